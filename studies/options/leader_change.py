"""KIP-32's corner case of LogAppendTime: a new leader whose clock is behind the old one's.

Broker 0 leads and broker 1 follows. Halfway broker 0 fails, and broker 1 becomes the leader with a clock that is `BEHIND_MS`
behind. This runs on the real engine with the KIP's rule (the later of the last append time and the clock), with Kafka's plain
clock (`tidelog.log.append.time.monotonic=false`), and on option 1's broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from studies.case import Case, Measurement
from studies.options.broker import Broker, IndexCopy
from studies.options.formats import Option
from studies.options.replicas import WORKLOADS, model_request
from studies.workload import DAY_MS, MINUTE_MS, Messages, Workload, build_batch, generate
from tidelog.clock import ManualClock
from tidelog.records.batch import iter_headers
from tidelog.storage.log_manager import LogManager

PART = "leader change"

SEED = 3203
BEHIND_MS = 30_000
ENGINE_RULE = "engine, later of last and clock"
ENGINE_PLAIN = "engine, plain clock"
MODEL_RULE = "option 1's broker"


def cases(scale: float) -> list[Case]:
    return [Case(PART, "clock behind", {"records": max(100, int(2_000 * scale)), "behind_ms": BEHIND_MS, "seed": SEED})]


def workload(case: Case) -> Workload:
    records = int(case.parameters["records"])
    return Workload("leader change", SEED, records, 20 * MINUTE_MS / records)


def measure(case: Case, work_dir: Path) -> Iterator[Measurement]:
    """Run the leader change under each rule."""
    messages = generate(workload(case))
    yield Measurement(WORKLOADS, str(case), WORKLOADS, "describes", text=workload(case).describe())
    runs = {
        ENGINE_RULE: _engine(messages, work_dir / "rule", monotonic=True),
        ENGINE_PLAIN: _engine(messages, work_dir / "plain", monotonic=False),
        MODEL_RULE: _model(messages),
    }
    for subject, times in runs.items():
        for metric, value, unit in judge(times, messages.arrival_ms.tolist()):
            yield Measurement(PART, case.name, subject, metric, value, unit)


def judge(times: Sequence[int], arrival_ms: Sequence[int]) -> Iterator[tuple[str, float, str]]:
    """Measure how append times behave in log order. `arrival_ms` is when each message was really appended."""
    steps = np.diff(np.array(times, np.int64))
    yield "steps back", float(np.count_nonzero(steps < 0)), "messages"
    yield "largest step back", float(max(0, -int(steps.min()))), "ms"
    half = len(times) // 2
    held = times[half - 1]
    yield "messages with the old leader's last time", float(sum(time == held for time in times[half:])), "messages"
    errors = np.abs(np.array(times, np.int64) - np.array(arrival_ms, np.int64))
    yield "largest error of LogAppendTime", float(errors.max()), "ms"


def _engine(messages: Messages, folder: Path, *, monotonic: bool) -> list[int]:
    start_ms = int(messages.arrival_ms[0])
    clocks = ManualClock(start_ms), ManualClock(start_ms - BEHIND_MS)
    properties: dict[str, str | bool] = {
        "message.timestamp.type": "LogAppendTime",
        "tidelog.log.append.time.monotonic": monotonic,
    }
    with LogManager(folder / "0", clocks[0]) as first, LogManager(folder / "1", clocks[1]) as second:
        for manager in (first, second):
            manager.create_topic("t", 1, properties)
        leader, follower = first.log("t", 0), second.log("t", 0)
        half = len(messages) // 2
        for index in range(len(messages)):
            now_ms = int(messages.arrival_ms[index])
            clocks[0].advance(now_ms - clocks[0].now_ms())
            clocks[1].advance(now_ms - BEHIND_MS - clocks[1].now_ms())
            batch = build_batch(messages.part(index, index + 1))
            if index < half:
                leader.append_as_leader(batch, leader_epoch=0)
                follower.append_as_follower(bytes(leader.read(index, 1 << 20).data), 0)
            else:
                follower.append_as_leader(batch, leader_epoch=1)
        data = follower.read(0, 1 << 30).data
        return [header.max_timestamp for header in iter_headers(data)]


def _model(messages: Messages) -> list[int]:
    start_ms = int(messages.arrival_ms[0])
    leader, follower = (
        Broker(Option.BOTH, segment_ms=DAY_MS, segment_bytes=1 << 30, now_ms=start_ms, copy=IndexCopy.OWN) for _ in range(2)
    )
    half = len(messages) // 2
    for index in range(len(messages)):
        now_ms = int(messages.arrival_ms[index])
        request = model_request(Option.BOTH, messages.part(index, index + 1))
        if index < half:
            leader.append_as_leader(request, now_ms)
            leader.replicate(follower, now_ms - BEHIND_MS)
        else:
            follower.append_as_leader(request, now_ms - BEHIND_MS)
    return [message.append_ms for message in follower.read()]
