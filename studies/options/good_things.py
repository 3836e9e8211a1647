"""The article's "good things" about LogAppendTime and CreateTime, measured on the storage engine with topics of both types.

The same messages arrive twice, once with small latencies and once with the case's, and the results are compared. "Deterministic"
is taken literally: with any latencies, a message is kept for retention.ms after its append and at most one segment.ms longer, and
segments begin at the same messages. A last case puts one timestamp of next year into the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from studies.case import Case, Measurement
from studies.options.replicas import ACCEPTED, REQUEST_MESSAGES, RETENTION_MS, SEGMENT_MS, WORKLOADS, Node, requests
from studies.workload import (
    DAY_MS,
    HOUR_MS,
    LARGE_LATENCY,
    MIXED_LATENCY,
    SMALL_LATENCY,
    Latency,
    Messages,
    Workload,
    generate,
)

PART = "good things"

SEED = 3204
HOURS = 48
"""For how long messages are created: long enough that messages of two days are in the log together."""
AHEAD_MS = 365 * DAY_MS
FUTURE = "one timestamp of next year"
LATENCIES: Mapping[str, Latency] = {"pattern 2": LARGE_LATENCY, "pattern 3": MIXED_LATENCY, FUTURE: SMALL_LATENCY}


def cases(scale: float) -> list[Case]:
    """Return the cases: one for each of `LATENCIES`."""
    return [Case(PART, "all patterns", {"records": max(200, int(3_000 * scale)), "seed": SEED})]


def workload(pattern: str, records: int) -> Workload:
    return Workload(f"good things, {pattern}", SEED, records, HOURS * HOUR_MS / records, LATENCIES[pattern])


def messages_of(pattern: str, records: int) -> Messages:
    """Return a pattern's messages in order of arrival."""
    messages = generate(workload(pattern, records))
    if pattern == FUTURE:
        messages.create_ms[len(messages) // 3] += AHEAD_MS
    return messages


class Cut(NamedTuple):
    """The segments of a log and the deletion times of its messages, by message number."""

    first_numbers: tuple[int, ...]
    """The first message of each segment."""
    lengths: tuple[int, ...]
    after_append_ms: np.typing.NDArray[np.int64]
    """Deletion time minus append time minus retention.ms."""
    after_made_ms: np.typing.NDArray[np.int64]
    """Deletion time minus creation time minus retention.ms."""
    longest_ms: int
    """The longest time between the first and the last append of a segment."""
    steps_back: int
    """How often a batch's timestamp is lower than that of the batch before it."""


def measure(case: Case, work_dir: Path) -> Iterator[Measurement]:
    """Run each pattern's messages on topics of both types, and compare with the same messages at small latencies."""
    records = int(case.parameters["records"])
    small = generate(Workload("good things, small", SEED, records, HOURS * HOUR_MS / records, SMALL_LATENCY))
    for pattern in LATENCIES:
        yield Measurement(WORKLOADS, pattern, WORKLOADS, "describes", text=workload(pattern, records).describe())
    for subject, timestamp_type in ACCEPTED.items():
        first = run(timestamp_type, small, work_dir / timestamp_type / "small")
        for number, pattern in enumerate(LATENCIES):
            second = run(timestamp_type, messages_of(pattern, records), work_dir / timestamp_type / str(number))
            for metric, value, unit in judge(first, second):
                yield Measurement(PART, pattern, subject, metric, value, unit)


def judge(first: Cut, second: Cut) -> Iterator[tuple[str, float, str]]:
    """Compare a run with the run with small latencies."""
    same = set(first.first_numbers) & set(second.first_numbers)
    yield "segments, small latency", len(first.lengths), "segments"
    yield "segments", len(second.lengths), "segments"
    yield "segments that begin alike", len(same) / len(set(first.first_numbers) | set(second.first_numbers)), "share"
    yield "segments of one request", sum(length <= REQUEST_MESSAGES for length in second.lengths), "segments"
    yield "longest segment", second.longest_ms, "ms"
    yield "kept after append, least", float(second.after_append_ms.min()), "ms"
    yield "kept after append, most", float(second.after_append_ms.max()), "ms"
    yield "kept after made, least", float(second.after_made_ms.min()), "ms"
    yield "kept after made, most", float(second.after_made_ms.max()), "ms"
    within = (second.after_append_ms >= 0) & (second.after_append_ms <= SEGMENT_MS + 1)
    yield "messages kept as long as promised, from append", float(within.mean()), "share"
    within = (second.after_made_ms >= 0) & (second.after_made_ms <= SEGMENT_MS + 1)
    yield "messages kept as long as promised, from making", float(within.mean()), "share"
    yield "steps back", second.steps_back, "batches"


def run(timestamp_type: str, messages: Messages, folder: Path) -> Cut:
    """Append the messages to a topic, and record its segments and deletion times."""
    properties: dict[str, str | int] = {
        "message.timestamp.type": timestamp_type,
        "segment.ms": SEGMENT_MS,
        "retention.ms": RETENTION_MS,
    }
    appended: list[int] = []
    largest: list[int] = []
    with ExitStack() as stack:
        node = Node(stack, folder, int(messages.arrival_ms[0]), properties)
        for some in requests(messages):
            appended += [int(some.arrival_ms[-1])] * len(some)
            largest.append(node.append(some, appended[-1]))
        layout = node.layout()
    ends = [*layout.base_offsets[1:], layout.end_offset]
    lengths = tuple(end - base for base, end in zip(layout.base_offsets, ends, strict=True))
    gone = np.repeat(np.array(layout.deleted_ms, np.int64), lengths) - RETENTION_MS
    return Cut(
        tuple(int(messages.numbers[base]) for base in layout.base_offsets),
        lengths,
        gone - np.array(appended, np.int64),
        gone - messages.made_ms,
        max(appended[end - 1] - appended[base] for base, end in zip(layout.base_offsets, ends, strict=True)),
        int(np.count_nonzero(np.diff(largest) < 0)),
    )
