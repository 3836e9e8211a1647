"""Use case 3: a consumer of cluster 1 continues on cluster 2 when cluster 1 fails.

Both clusters have the same messages, each in its order of arrival. Until the crash the consumer has read everything on cluster 1.
Then it searches cluster 2, in its current state, for a time, and starts there; without a result it starts at the end. A message
is missed if the consumer did not read it on cluster 1 and it lies before the start on cluster 2, even if it reaches cluster 1
later. It is read twice if the consumer read it on cluster 1 and it lies at or after the start.

| strategy | searches for |
|---|---|
| crash time | the true time of the crash |
| CreateTime | the CreateTime of the last message read |
| append time | cluster 1's append time of the last message read: known only on LogAppendTime topics |
| CreateTime - latency seen | minus the largest latency that cluster 1's metric (use case 5) has shown until the crash |
| CreateTime - largest latency | minus the largest latency of the whole run with later messages, unknown at the crash |

The metric is append time minus CreateTime by cluster 1's clock, with any clock errors. Messages are sent to both clusters, or are
copied from the first to the second. The copying is assumed to catch up.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.case import Case, Measurement
from studies.use_cases.clusters import (
    LATENCY,
    LOG_APPEND_TIME,
    SECOND_LATENCY,
    TRUE_CLOCKS,
    TYPES,
    Cluster,
    Tally,
    cluster,
    skew_of,
)
from studies.workload import EPOCH_MS, SECOND_MS, Latency, Messages, Workload, generate, mirrored

FAILOVER = "failover"
DOCUMENTS_CASE = "m1 and m2"
COPIED = "true clocks, copied"

INTERVAL_MS = SECOND_MS
CRASHES = 20

CRASH_TIME = "crash time"
OWN_CREATE_TIME = "CreateTime"
APPEND_TIME = "append time"
LESS_SEEN = "CreateTime - latency seen"
LESS_LARGEST = "CreateTime - largest latency"
STRATEGIES = (CRASH_TIME, OWN_CREATE_TIME, APPEND_TIME, LESS_SEEN, LESS_LARGEST)

AT_ONCE = Latency("on the way to nowhere", smallest_ms=0, mean_extra_ms=0.0)


def workload(case: Case) -> Workload:
    """Return the messages' workload, without their latencies to the clusters."""
    skew = TRUE_CLOCKS if case.name == COPIED else skew_of(case.name)
    return Workload(
        f"{case.part}, {case.name}",
        int(case.parameters["seed"]),
        int(case.parameters["records"]),
        INTERVAL_MS,
        AT_ONCE,
        skew.wrong_clock,
    )


def both_clusters(case: Case) -> tuple[Messages, Messages]:
    """Return the messages in order of arrival at cluster 1 and at cluster 2."""
    made = generate(workload(case))
    seed = int(case.parameters["seed"])
    first = mirrored(made, LATENCY, seed + 1)
    return first, mirrored(first if case.name == COPIED else made, SECOND_LATENCY, seed + 2)


def measure(case: Case, work_dir: Path) -> list[Measurement]:
    """Crash cluster 1 at several times, and fail over with each strategy."""
    tally = Tally(case.part, case.name)
    arriving = both_clusters(case)
    broker_ms = 0 if case.name == COPIED else skew_of(case.name).broker_ms
    made_ms = np.sort(arriving[0].made_ms)
    crashes_ms = made_ms[np.linspace(0.3 * len(made_ms), 0.95 * len(made_ms), CRASHES).astype(np.int64)]
    for timestamp_type in TYPES:
        with ExitStack() as stack:
            first = stack.enter_context(cluster(work_dir / f"{timestamp_type}-1", timestamp_type))
            second = stack.enter_context(cluster(work_dir / f"{timestamp_type}-2", timestamp_type, broker_ms))
            for crash_ms in crashes_ms.tolist():
                _append_until(first, arriving[0], crash_ms)
                _append_until(second, arriving[1], crash_ms)
                targets = _targets(first, arriving[0], crash_ms)
                for strategy, target in targets.items():
                    _fail_over(tally, f"{timestamp_type}: {strategy}", first, second, arriving[1], target)
    return tally.measurements()


def _append_until(one: Cluster, messages: Messages, time_ms: int) -> None:
    arrived = int(np.searchsorted(messages.arrival_ms, time_ms, side="right"))
    one.append(messages.part(len(one.messages), arrived))


def _targets(first: Cluster, messages: Messages, crash_ms: int) -> dict[str, int]:
    """Return what each strategy searches for after the consumer has read all of cluster 1."""
    create_ms = int(first.messages.create_ms[-1])
    # Cluster 1's clock is correct: its append times are the arrivals.
    seen = int((first.messages.arrival_ms - first.messages.create_ms).max())
    largest = int((messages.arrival_ms - messages.create_ms).max())
    targets = {CRASH_TIME: crash_ms, OWN_CREATE_TIME: create_ms}
    if first.timestamp_type == LOG_APPEND_TIME:
        targets[APPEND_TIME] = int(first.timestamps[-1])
    return {**targets, LESS_SEEN: create_ms - seen, LESS_LARGEST: create_ms - largest}


def _fail_over(tally: Tally, subject: str, first: Cluster, second: Cluster, arriving: Messages, target: int) -> None:
    start = second.start_offset(target)
    is_read = np.isin(arriving.numbers, first.messages.numbers)
    missed = int((~is_read[:start]).sum())
    twice = int(is_read[start:].sum())
    tally.add(subject, "crashes", 1, "crashes")
    tally.add(subject, "crashes that miss", missed > 0, "crashes")
    tally.add(subject, "missed", missed)
    tally.most(subject, "most missed", missed)
    tally.add(subject, "read twice", twice)
    tally.most(subject, "most read twice", twice)
    tally.add(subject, "unlike brute force", start != second.expected_start(target), "searches")


# --- the document's case

CT1_MS = EPOCH_MS
CT2_MS = EPOCH_MS + 10 * SECOND_MS
CRASH_MS = EPOCH_MS + 15 * SECOND_MS
"""The time at which cluster 2 fails, from which the document's consumer moves away."""

LAT22_MS = CT2_MS + SECOND_MS
LAT12_MS = EPOCH_MS + 20 * SECOND_MS
READINGS = {
    "as it is meant: LAT11 < LAT21, LAT12 > LAT22": (CT1_MS + SECOND_MS, CT2_MS + SECOND_MS),
    "as it is written: LAT11 < LAT12, LAT12 > LAT22, and LAT21 < LAT11": (CT2_MS + 5 * SECOND_MS, CT2_MS + SECOND_MS),
}
"""The values of (LAT11, LAT21) under two interpretations of the document's conditions; LAT12 and LAT22 are the same in both."""

BY_LATENCY_OF_1 = "CT2 - largest latency of cluster 1"
BY_LATENCY_SEEN_ON_2 = "CT2 - latency seen on cluster 2"
BY_LATENCY_OF_2 = "CT2 - largest latency of cluster 2"


def measure_documents_case(case: Case, work_dir: Path) -> list[Measurement]:
    """m2 is read on cluster 2, which fails before m1 arrives there; cluster 1 has both in either order."""
    tally = Tally(case.part, case.name)
    for reading, (lat11, lat21) in READINGS.items():
        on_first = _pair([(0, CT1_MS, lat11), (1, CT2_MS, lat21)])
        on_second = _pair([(0, CT1_MS, LAT12_MS), (1, CT2_MS, LAT22_MS)])
        arrived = on_second.arrival_ms <= CRASH_MS
        looked_for = {
            "CT2": CT2_MS,
            "LAT22": LAT22_MS,
            BY_LATENCY_OF_1: CT2_MS - _largest_latency(on_first),
            BY_LATENCY_SEEN_ON_2: CT2_MS - _largest_latency(on_second, arrived),
            BY_LATENCY_OF_2: CT2_MS - _largest_latency(on_second),
        }
        for timestamp_type in TYPES:
            folder = work_dir / f"{timestamp_type}-{list(READINGS).index(reading)}"
            with cluster(folder, timestamp_type) as first:
                # Some earlier messages, read on both clusters.
                before_ms = EPOCH_MS - np.arange(5, 0, -1, dtype=np.int64) * 60 * SECOND_MS
                numbers = np.arange(100, 105, dtype=np.int64)
                first.append(Messages(numbers, before_ms, before_ms, before_ms + 10, 100))
                first.append(on_first)
                for name, target in looked_for.items():
                    if name == "LAT22" and timestamp_type != LOG_APPEND_TIME:
                        continue
                    start = first.start_offset(target)
                    tally.add(f"{timestamp_type}: {name}", f"m1 missed, {reading}", 0 in first.messages.numbers[:start])
                    tally.add(
                        f"{timestamp_type}: {name}", f"read twice, {reading}", int((first.messages.numbers[start:] != 0).sum())
                    )
    return tally.measurements()


def _pair(messages: list[tuple[int, int, int]]) -> Messages:
    """Return the messages, given as (number, CreateTime, arrival), in order of arrival."""
    numbers, made, arrival = np.array(sorted(messages, key=lambda one: one[2]), np.int64).T
    return Messages(numbers, made, made, arrival, 100)


def _largest_latency(messages: Messages, which: NDArray[np.bool_] | None = None) -> int:
    latencies = messages.arrival_ms - messages.create_ms
    return int((latencies if which is None else latencies[which]).max())
