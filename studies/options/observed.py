"""What a consumer can compute from the timestamps: windows by event time, latency and lag, also after mirroring (`pipeline`).

| quantity | truth | computed from |
|---|---|---|
| window | the minute in which the message was created | CreateTime, or LogAppendTime if there is none |
| end-to-end latency | consumed - created | consumed - CreateTime, or LogAppendTime if there is none |
| lag in time | consumed - appended | consumed - LogAppendTime, or CreateTime if there is none |
| first hop, by cluster 1's broker | appended there - created | its clock - the request's CreateTime, if any |
| second hop, by cluster 2's broker | appended there - appended in cluster 1 | its clock - the request's LogAppendTime, if any |

Consumers' clocks are right here. They read a message `CONSUMER_DELAY_MS` after the append on average (exponential).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from studies.case import Case, Measurement
from studies.options import pipeline
from studies.options.formats import Option
from studies.options.replicas import WORKLOADS
from studies.workload import (
    HOUR_MS,
    LARGE_LATENCY,
    MINUTE_MS,
    MIXED_LATENCY,
    SECOND_MS,
    Int64s,
    Latency,
    Workload,
    WrongClock,
    generate,
    mirrored,
)
from tidelog.model import NO_TIMESTAMP

PART = "pipeline"

CONSUMER_DELAY_MS = 2_000
MIRROR_LATENCY = Latency("mirror", smallest_ms=200, mean_extra_ms=800.0)
SEED = 3201

LATENCIES: dict[str, Latency] = {
    "25 ms": Latency("25 ms"),
    "1 s": Latency("1 s", mean_extra_ms=SECOND_MS),
    "10 s": Latency("10 s", mean_extra_ms=10 * SECOND_MS),
    "1 min": Latency("1 min", mean_extra_ms=MINUTE_MS),
    "6 h": LARGE_LATENCY,
    "half 1 d late": MIXED_LATENCY,
}
SHORTEST = "25 ms"
WRONG_CLOCKS = "25 ms, wrong clocks"
"""Wrong clocks: 1 % of the messages have a timestamp that is ten minutes ahead."""

CASES = (*LATENCIES, WRONG_CLOCKS)


def cases(scale: float) -> list[Case]:
    """Return a case for each latency."""
    return [Case(PART, name, {"records": max(60, int(1_500 * scale)), "seed": SEED}) for name in CASES]


def workload(case: Case) -> Workload:
    wrong = WrongClock(0.01, 10 * MINUTE_MS) if case.name == WRONG_CLOCKS else None
    records = int(case.parameters["records"])
    latency = LATENCIES.get(case.name, LATENCIES[SHORTEST])
    return Workload(f"pipeline, {case.name}", SEED, records, 2 * HOUR_MS / records, latency, wrong)


def measure(case: Case, work_dir: Path) -> Iterator[Measurement]:
    """Run all subjects through both clusters, and measure what their consumers can compute."""
    messages = generate(workload(case))
    copied = mirrored(messages, MIRROR_LATENCY, SEED + 1)
    made = pipeline.by_number(messages.numbers, messages.made_ms)
    said = pipeline.by_number(messages.numbers, messages.create_ms)
    delay = np.random.default_rng(SEED + 2).exponential(CONSUMER_DELAY_MS, len(messages)).astype(np.int64)
    yield Measurement(WORKLOADS, str(case), WORKLOADS, "describes", text=workload(case).describe())
    with pipeline.Engines(work_dir, int(messages.arrival_ms[0])) as engines:
        for subject in pipeline.SUBJECTS:
            run = pipeline.run(subject, messages, copied, engines)
            yield Measurement("mirror", case.name, subject, "steps of a message", text=_steps(subject, run, said))
            for part, metrics in (
                ("mirror", _mirror(run, said)),
                ("windows", _windows(run.source, made)),
                ("latency", _latency(run, made, delay)),
            ):
                for metric, value, unit in metrics:
                    yield Measurement(part, case.name, subject, metric, value, unit)


Found = Iterator[tuple[str, float, str]]


def _steps(subject: str, run: pipeline.Pipeline, said: Int64s) -> str:
    """Return (CreateTime, LogAppendTime) of the first message at the draft's four steps, by the draft's names.

    "-" marks a field that the format does not have.
    """
    source, target = run.source, run.target
    names = {int(said[0]): "T0", int(source.appended_ms[0]): "T1", int(target.appended_ms[0]): "T2", NO_TIMESTAMP: "-1"}
    option = Option.BOTH if subject in pipeline.ACCEPTED else pipeline.MODELS.get(subject, Option.APPEND_TIME)

    def pair(create_ms: Int64s, append_ms: Int64s) -> str:
        create = names[int(create_ms[0])] if option.has_create_time else "-"
        append = names[int(append_ms[0])] if option.has_append_time else "-"
        return f"({create}, {append})"

    steps = (
        pair(source.incoming_create_ms, source.incoming_append_ms),
        pair(source.create_ms, source.append_ms),
        pair(target.incoming_create_ms, target.incoming_append_ms),
        pair(target.create_ms, target.append_ms),
    )
    return " → ".join(steps)


def _mirror(run: pipeline.Pipeline, said: Int64s) -> Found:
    source, target = run.source, run.target
    yield "messages", len(said), "messages"
    yield "CreateTime seen in target", _share(target.create_ms >= 0), "share"
    yield "CreateTime as made, in target", _share(target.create_ms == said), "share"
    yield "CreateTime same in both", _share((source.create_ms == target.create_ms) & (source.create_ms >= 0)), "share"
    yield "LogAppendTime seen in target", _share(target.append_ms >= 0), "share"
    yield "LogAppendTime differs", _share((source.append_ms != target.append_ms) & (target.append_ms >= 0)), "share"
    yield "leader and follower differ", run.replicas_differ, "messages"
    if (target.indexed_ms >= 0).all():
        errors = target.appended_ms - target.indexed_ms
        yield "LogAppendTime in the index", _share(errors == 0), "share"
        yield "index's mean error", float(errors.mean()), "ms"


def _windows(seen: pipeline.Seen, made: Int64s) -> Found:
    used = np.where(seen.create_ms >= 0, seen.create_ms, seen.append_ms)
    right, wrong = made // MINUTE_MS, used // MINUTE_MS
    yield "messages in the wrong window", _share(right != wrong), "share"
    low, high = min(right.min(), wrong.min()), max(right.max(), wrong.max())
    size = int(high - low + 1)
    true_counts, counts = np.bincount(right - low, minlength=size), np.bincount(wrong - low, minlength=size)
    some = (true_counts > 0) | (counts > 0)
    yield "windows with a wrong count", _share(true_counts[some] != counts[some]), "share"
    yield "bytes a message", seen.size_bytes / len(made), "bytes"


def _latency(run: pipeline.Pipeline, made: Int64s, delay: Int64s) -> Found:
    source, target = run.source, run.target
    consumed = source.appended_ms + delay
    create = np.where(source.create_ms >= 0, source.create_ms, source.append_ms)
    append = np.where(source.append_ms >= 0, source.append_ms, source.create_ms)
    yield "end-to-end latency, truth", float(np.mean(consumed - made)), "ms"
    yield "end-to-end latency computable", _share(source.create_ms >= 0), "share"
    yield "end-to-end latency, mean error", float(np.mean(np.abs((consumed - create) - (consumed - made)))), "ms"
    yield "lag in time, truth", float(np.mean(delay)), "ms"
    yield "lag in time computable", _share(source.append_ms >= 0), "share"
    yield "lag in time, mean error", float(np.mean(np.abs((consumed - append) - delay))), "ms"
    # The options' brokers know what a request carries when it arrives.
    carries_create, carries_append = source.incoming_create_ms >= 0, target.incoming_append_ms >= 0
    yield "first hop computable", _share(carries_create), "share"
    yield "second hop computable", _share(carries_append), "share"
    if carries_create.all():
        yield "first hop, mean error", float(np.mean(np.abs(made - source.incoming_create_ms))), "ms"
    if carries_append.all():
        yield "second hop, mean error", float(np.mean(np.abs(target.incoming_append_ms - source.appended_ms))), "ms"


def _share(which: np.typing.NDArray[np.bool_]) -> float:
    return float(np.mean(which))
