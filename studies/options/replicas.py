"""Retention and rolling on every kind of replica, under each option and under KIP-32 as accepted.

| replica | |
|---|---|
| leader | appends produce requests |
| follower | fetches after each append, `FOLLOWER_LAG_MS` later, by a clock that is `FOLLOWER_SKEW_MS` off |
| new copy | created by a reassignment after three quarters of the time, then a follower like the other |
| after a crash | a follower, killed after half the time; the active segment's index is lost |
| ..., all indexes lost | the same, but no index survives |
| alone after a crash | a leader without followers, killed in the same way; it has no replica to fetch an index from |

A message's true time is its first append by the leader's clock. A segment should be deleted `RETENTION_MS` after its last
message's true time. A new one should begin when more than `SEGMENT_MS` have passed since its first message's true time.

Options run on `broker.Broker`. "Accepted" is KIP-32 as released: topics of both timestamp types on the storage engine. A crash is
a copy of the folder while it is written. The engine's own rules forecast the deletions.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from studies.case import Case, Measurement
from studies.options.broker import Broker, IndexCopy, deletion_times
from studies.options.formats import Message, Option, encode_set
from studies.workload import DAY_MS, HOUR_MS, Messages, Workload, build_batch, generate
from tidelog.clock import ManualClock
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME, LogConfig
from tidelog.reader.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.retention_forecast import forecast

RETENTION = "retention"
ROLLING = "rolling"
PARTS = (RETENTION, ROLLING)
ALL_MODELS = "all options"

WORKLOADS = "workloads"
"""The name of the part whose measurement is the workload of all cases, for the chapter's assumptions."""

SEED = 3200
HOURS = 12
"""For how long messages are created."""

RETENTION_MS = DAY_MS
SEGMENT_MS = HOUR_MS
SEGMENTS = 12
"""The number of segments if they roll by size, as in the retention measurements."""

FOLLOWER_LAG_MS = 50
FOLLOWER_SKEW_MS = -2_000
REQUEST_MESSAGES = 5

CRASH_AT = 0.53
"""The share of the messages after which a crash happens: not at a segment's end."""
REASSIGNED_AT = 0.75

LEADER = "leader"
FOLLOWER = "follower"
NEW_COPY = "new copy"
CRASHED = "after a crash"
CRASHED_ALL = "after a crash, all indexes lost"
ALONE = "alone after a crash"
ROLES = (LEADER, FOLLOWER, NEW_COPY, CRASHED, CRASHED_ALL, ALONE)

ACCEPTED = {"accepted: CreateTime": CREATE_TIME, "accepted: LogAppendTime": LOG_APPEND_TIME}
"""Subjects and their `message.timestamp.type`."""

MODELS: Mapping[str, tuple[Option, IndexCopy]] = {
    "before (file times)": (Option.BEFORE, IndexCopy.OWN),
    "option 1": (Option.BOTH, IndexCopy.OWN),
    "option 2": (Option.APPEND_TIME, IndexCopy.OWN),
    "option 3, index fetched as drafted": (Option.CREATE_TIME, IndexCopy.FETCHED),
    "option 3, late entries fetched too": (Option.CREATE_TIME, IndexCopy.FETCHED_LATE),
    "option 3, index rebuilt locally": (Option.CREATE_TIME, IndexCopy.OWN),
}

SUBJECTS = (*MODELS, *ACCEPTED)


class Layout(NamedTuple):
    """The segments of a replica's log, and when it deletes each."""

    base_offsets: tuple[int, ...]
    end_offset: int
    deleted_ms: tuple[int, ...]
    """When each segment is deleted, in epoch ms."""
    index_entries: int = 0
    """The number of entries in option 3's index."""
    fetched_index_bytes: int = 0
    """Bytes of index entries in the responses that a follower received."""


class Replicas(NamedTuple):
    """The outcome of one run."""

    append_ms: tuple[int, ...]
    """The true times on the leader, by offset."""
    layouts: Mapping[str, Layout]
    """The segments of each replica, by role."""


def requests(messages: Messages) -> Iterator[Messages]:
    """Yield the messages as producers send them, `REQUEST_MESSAGES` per request. A request arrives with its last message."""
    for first in range(0, len(messages), REQUEST_MESSAGES):
        yield messages.part(first, first + REQUEST_MESSAGES)


def model_request(option: Option, messages: Messages) -> bytes:
    """Return a produce request in an option's format, with unset LogAppendTime and offsets from 0 on."""
    value = bytes(messages.value_bytes)
    rows = zip(messages.numbers.tolist(), messages.create_ms.tolist(), strict=True)
    return encode_set(
        option, [Message(i, create, -1, number.to_bytes(8, "big"), value) for i, (number, create) in enumerate(rows)]
    )


def run_models(option: Option, copy: IndexCopy, messages: Messages, *, by_size: bool) -> Replicas:
    """Run every replica of an option over the messages. `by_size` rolls by bytes only, otherwise by `SEGMENT_MS` only."""
    now_ms = int(messages.arrival_ms[0])
    size = len(model_request(option, messages.part(0, REQUEST_MESSAGES)))
    segment_bytes, segment_ms = _limits(size, len(messages), by_size)

    def broker(at_ms: int) -> Broker:
        return Broker(option, segment_ms=segment_ms, segment_bytes=segment_bytes, now_ms=at_ms, copy=copy)

    brokers = {role: broker(now_ms) for role in ROLES if role != NEW_COPY}
    leader, alone = brokers[LEADER], brokers[ALONE]
    append_ms: list[int] = []

    def crash(at_ms: int) -> None:
        active = leader.base_offsets[-1]
        brokers[CRASHED].crash(at_ms + FOLLOWER_SKEW_MS, first_lost=active + 1, leader=leader)
        brokers[CRASHED_ALL].crash(at_ms + FOLLOWER_SKEW_MS, leader=leader)
        alone.crash(at_ms)

    def reassign(at_ms: int) -> None:
        brokers[NEW_COPY] = broker(at_ms + FOLLOWER_SKEW_MS)

    due = _Moments(len(messages), crash, reassign)
    for some in requests(messages):
        now_ms = int(some.arrival_ms[-1])
        request = model_request(option, some)
        append_ms += [leader.append_as_leader(request, now_ms)] * len(some)
        alone.append_as_leader(request, now_ms)
        due.after(len(append_ms), now_ms)
        for role, one in brokers.items():
            if role not in (LEADER, ALONE):
                leader.replicate(one, now_ms + FOLLOWER_LAG_MS + FOLLOWER_SKEW_MS)
    layouts = {
        role: Layout(
            tuple(one.base_offsets),
            one.end_offset,
            tuple(one.deletion_times(RETENTION_MS)[base] for base in one.base_offsets),
            sum(len(segment.entries) for segment in one.segments),
            one.fetched_index_bytes,
        )
        for role, one in brokers.items()
    }
    return Replicas(tuple(append_ms), layouts)


def run_engine(timestamp_type: str, messages: Messages, work_dir: Path, *, by_size: bool) -> Replicas:
    """Run every replica on the storage engine, with a topic of `timestamp_type`, in folders below `work_dir`."""
    size = len(build_batch(messages.part(0, REQUEST_MESSAGES)))
    segment_bytes, segment_ms = _limits(size, len(messages), by_size)
    properties: dict[str, str | int] = {
        "message.timestamp.type": timestamp_type,
        "segment.bytes": segment_bytes,
        "segment.ms": segment_ms,
        "retention.ms": RETENTION_MS,
    }
    now_ms = int(messages.arrival_ms[0])
    append_ms: list[int] = []
    with ExitStack() as stack:
        nodes = {
            role: Node(stack, work_dir / role.replace(" ", "-"), now_ms, properties)
            for role in (LEADER, FOLLOWER, CRASHED, ALONE)
        }
        leader, alone = nodes[LEADER], nodes[ALONE]

        def crash(at_ms: int) -> None:
            for role, source in ((CRASHED_ALL, nodes[CRASHED]), (CRASHED, nodes[CRASHED]), (ALONE, alone)):
                skew = 0 if role == ALONE else FOLLOWER_SKEW_MS
                folder = work_dir / (role.replace(" ", "-") + "-again")
                nodes[role] = source.crashed(stack, folder, at_ms + skew, all_indexes=role != CRASHED)

        def reassign(at_ms: int) -> None:
            nodes[NEW_COPY] = Node(stack, work_dir / "new-copy", at_ms + FOLLOWER_SKEW_MS, properties)
            nodes[NEW_COPY].catch_up(leader, at_ms + FOLLOWER_SKEW_MS)

        due = _Moments(len(messages), crash, reassign)
        for some in requests(messages):
            now_ms = int(some.arrival_ms[-1])
            append_ms += [now_ms] * len(some)
            leader.append(some, now_ms)
            nodes[ALONE].append(some, now_ms)
            for role, node in nodes.items():
                if role not in (LEADER, ALONE):
                    node.catch_up(leader, now_ms + FOLLOWER_LAG_MS + FOLLOWER_SKEW_MS)
            due.after(len(append_ms), now_ms)
        layouts = {role: nodes[role].layout() for role in ROLES}
    return Replicas(tuple(append_ms), layouts)


class Node:
    """A broker's folder with one topic of one partition."""

    def __init__(self, stack: ExitStack, folder: Path, now_ms: int, properties: Mapping[str, str | int] | None) -> None:
        self.clock = ManualClock(now_ms)
        self.manager = stack.enter_context(LogManager(folder, self.clock, properties={"tidelog.time.map.enable": False}))
        if properties is not None:
            self.manager.create_topic("t", 1, properties)

    @property
    def log(self) -> PartitionLog:
        return self.manager.log("t", 0)

    def append(self, messages: Messages, now_ms: int) -> int:
        """Append a request at `now_ms`; return the batch's largest timestamp."""
        self._set_clock(now_ms)
        info = self.log.append_as_leader(build_batch(messages), leader_epoch=0)
        self.log.update_high_watermark(self.log.log_end_offset)
        return info.max_timestamp

    def catch_up(self, leader: Node, now_ms: int) -> None:
        self._set_clock(now_ms)
        log = self.log
        while log.log_end_offset < leader.log.log_end_offset:
            log.append_as_follower(bytes(leader.log.read(log.log_end_offset, 64 * 1024).data))
        log.update_high_watermark(log.log_end_offset)

    def crashed(self, stack: ExitStack, folder: Path, now_ms: int, *, all_indexes: bool) -> Node:
        """Return this node after a crash: a copy of its current folder without indexes, opened and recovered."""
        shutil.copytree(self.manager.directory, folder)
        bases = [segment.base_offset for segment in self.log.segments.values()]
        for path in (folder / "t-0").glob("*index"):
            if all_indexes or int(path.name.split(".")[0]) == bases[-1]:
                path.unlink()
        return Node(stack, folder, now_ms, None)

    def layout(self) -> Layout:
        log = self.log
        log.flush()
        config: LogConfig = log.config
        with Log.open(log.directory, high_watermark=log.log_end_offset) as reading:
            told = forecast(reading, config, now_ms=0)
        assert all(one.goes_ms is not None for one in told), "retention.ms is set, and no segment is empty"
        return Layout(tuple(one.base_offset for one in told), log.log_end_offset, tuple(one.goes_ms or 0 for one in told))

    def _set_clock(self, now_ms: int) -> None:
        self.clock.advance(now_ms - self.clock.now_ms())


class _Moments:
    """Calls `crash` and `reassign` once each, when the given share of the messages has been appended."""

    def __init__(self, count: int, crash: Callable[[int], None], reassign: Callable[[int], None]) -> None:
        self._waiting = [(CRASH_AT * count, crash), (REASSIGNED_AT * count, reassign)]

    def after(self, appended: int, now_ms: int) -> None:
        while self._waiting and appended >= self._waiting[0][0]:
            self._waiting.pop(0)[1](now_ms)


def _limits(request_bytes: int, count: int, by_size: bool) -> tuple[int, int]:
    """Return segment.bytes and segment.ms."""
    total = request_bytes * count // REQUEST_MESSAGES
    return (total // SEGMENTS, 365 * DAY_MS) if by_size else (1 << 30, SEGMENT_MS)


# --- the cases


def cases(scale: float) -> list[Case]:
    """Return the cases for retention and for rolling: one for the models, and one for each accepted type."""
    records = max(200, int(6_000 * scale))
    return [Case(part, name, {"records": records, "seed": SEED}) for part in PARTS for name in (ALL_MODELS, *ACCEPTED)]


def workload(case: Case) -> Workload:
    records = int(case.parameters["records"])
    return Workload("replicas", SEED, records, HOURS * HOUR_MS / records)


def measure(case: Case, work_dir: Path) -> Iterator[Measurement]:
    """Run the subjects; the roles are the cases of the measurements."""
    messages = generate(workload(case))
    yield Measurement(WORKLOADS, str(case), WORKLOADS, "describes", text=workload(case).describe())
    for number, subject in enumerate(MODELS if case.name == ALL_MODELS else [case.name]):
        outcome = run(subject, messages, work_dir / str(number), by_size=case.part == RETENTION)
        leader = outcome.layouts[LEADER]
        for role in ROLES:
            layout = outcome.layouts[role]

            def found(metric: str, value: float, unit: str, role: str = role, subject: str = subject) -> Measurement:
                return Measurement(case.part, role, subject, metric, value, unit)

            if case.part == RETENTION:
                errors = retention_errors(outcome.append_ms, layout)
                yield found("mean error", errors.mean_ms, "ms")
                yield found("kept too long, most", errors.late_ms, "ms")
                yield found("deleted too early, most", errors.early_ms, "ms")
                yield found("segments", errors.segments, "segments")
                if subject in MODELS and MODELS[subject][0] is Option.CREATE_TIME:
                    yield found("index entries", layout.index_entries, "entries")
                    size = layout.fetched_index_bytes / len(messages)
                    yield found("index bytes fetched a message", size, "bytes")
            else:
                rolling = rolling_errors(outcome.append_ms, layout, leader)
                yield found("segments", rolling.segments, "segments")
                yield found("segments as the leader's", rolling.as_leader, "share")
                yield found("overdue, most", rolling.overdue_ms, "ms")
                yield found("ended too early", rolling.early, "segments")


# --- what went wrong


class RetentionErrors(NamedTuple):
    """How far segments' deletion times are from the truth, in ms."""

    segments: int
    mean_ms: float
    """The mean of the absolute errors."""
    late_ms: int
    """The longest time that a segment was kept too long."""
    early_ms: int
    """The longest time that a segment was deleted too early."""


def retention_errors(append_ms: Sequence[int], layout: Layout) -> RetentionErrors:
    """Compare when segments are deleted with when they should be if every append time were known."""
    ends = [*layout.base_offsets[1:], layout.end_offset]
    pieces = [(base, end, 1) for base, end in zip(layout.base_offsets, ends, strict=True)]
    truth = deletion_times(pieces, [append_ms[end - 1] for end in ends], RETENTION_MS)
    errors = [gone - truth[base] for base, gone in zip(layout.base_offsets, layout.deleted_ms, strict=True)]
    return RetentionErrors(len(errors), float(np.mean(np.abs(errors))), max(0, *errors, 0), max(0, *[-one for one in errors], 0))


class RollingErrors(NamedTuple):
    """How far segments' beginnings are from the truth."""

    segments: int
    as_leader: float
    """The share of segments that begin at the same message as on the leader."""
    overdue_ms: int
    """By how much the span of the longest segment exceeds `SEGMENT_MS`."""
    early: int
    """The number of segments that ended although no more than `SEGMENT_MS` had passed."""


def rolling_errors(append_ms: Sequence[int], layout: Layout, leader: Layout) -> RollingErrors:
    """Compare a replica's segments with the expected ones, and with the leader's."""
    bases = layout.base_offsets
    ends = [*bases[1:], layout.end_offset]
    spans = [append_ms[end - 1] - append_ms[base] for base, end in zip(bases, ends, strict=True)]
    early = sum(append_ms[after] - append_ms[base] <= SEGMENT_MS for base, after in itertools.pairwise(bases))
    common = len(set(bases) & set(leader.base_offsets))
    return RollingErrors(len(bases), common / max(len(bases), len(leader.base_offsets)), max(0, max(spans) - SEGMENT_MS), early)


def run(subject: str, messages: Messages, work_dir: Path, *, by_size: bool) -> Replicas:
    """Run one of `SUBJECTS`."""
    if subject in ACCEPTED:
        return run_engine(ACCEPTED[subject], messages, work_dir, by_size=by_size)
    return run_models(*MODELS[subject], messages, by_size=by_size)
