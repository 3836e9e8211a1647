"""Use case 1: search by timestamp without losing messages.

A user wants the messages with a CreateTime of T or later, and starts reading at the offset that a search returns. A wanted
message before that offset is missed. An unwanted message after it is read needlessly.

| subject | searches for | wants |
|---|---|---|
| `CreateTime index, T` | T | messages with CreateTime >= T |
| `LogAppendTime index, T` | T | the same |
| `LogAppendTime index, T - X` | T minus the largest skew | the same |
| `LogAppendTime index, append time` | a message's append time | messages appended at that time or later |
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from studies.case import Case, Measurement
from studies.use_cases.clusters import (
    CREATE_TIME,
    LATENCY,
    LOG_APPEND_TIME,
    SKEW_MS,
    TYPES,
    Cluster,
    Tally,
    cluster,
    skew_of,
)
from studies.workload import HOUR_MS, MINUTE_MS, SECOND_MS, Int64s, Messages, Workload, generate

SEARCH = "search"
ONE_CREATE_TIME = "one CreateTime"

INTERVAL_MS = SECOND_MS
SEARCHES = 200

BY_CREATE_TIME = "CreateTime index, T"
BY_APPEND_TIME = "LogAppendTime index, T"
BY_APPEND_TIME_LESS_SKEW = "LogAppendTime index, T - X"
FOR_APPEND_TIME = "LogAppendTime index, append time"
SUBJECTS = (BY_CREATE_TIME, BY_APPEND_TIME, BY_APPEND_TIME_LESS_SKEW, FOR_APPEND_TIME)

DISTANCES_MS = (SECOND_MS, 10 * SECOND_MS, MINUTE_MS, 5 * MINUTE_MS, 20 * MINUTE_MS, HOUR_MS)
"""The time from the first message with a CreateTime to the arrival of the second one."""


def workload(case: Case) -> Workload:
    """Return the messages for a case of this use case."""
    wrong = skew_of(case.name).wrong_clock if case.part == SEARCH else None
    return Workload(
        f"{case.part}, {case.name}",
        int(case.parameters["seed"]),
        int(case.parameters["records"]),
        INTERVAL_MS,
        LATENCY,
        wrong,
    )


def measure_search(case: Case, work_dir: Path) -> list[Measurement]:
    """Search for the CreateTimes, and append times, of messages spread over the log."""
    tally = Tally(case.part, case.name)
    messages = generate(workload(case))
    chosen = np.linspace(0, len(messages) - 1, min(SEARCHES, len(messages))).astype(np.int64)
    for timestamp_type in TYPES:
        with cluster(work_dir / timestamp_type, timestamp_type, skew_of(case.name).broker_ms) as one:
            one.append(messages)
            targets = messages.create_ms[chosen]
            if timestamp_type == CREATE_TIME:
                _search(tally, BY_CREATE_TIME, one, targets, messages.create_ms, chosen)
            else:
                _search(tally, BY_APPEND_TIME, one, targets, messages.create_ms, chosen)
                _search(tally, BY_APPEND_TIME_LESS_SKEW, one, targets, messages.create_ms, chosen, less_ms=SKEW_MS)
                _search(tally, FOR_APPEND_TIME, one, one.timestamps[chosen], one.timestamps, chosen)
            _check_guarantees(tally, one, targets)
    return tally.measurements()


def _search(
    tally: Tally, subject: str, one: Cluster, targets: Int64s, wanted_by: Int64s, chosen: Int64s, less_ms: int = 0
) -> None:
    for target, offset in zip(targets.tolist(), chosen.tolist(), strict=True):
        start = one.start_offset(target - less_ms)
        is_wanted = wanted_by >= target
        missed = int(is_wanted[:start].sum())
        tally.add(subject, "searches", 1, "searches")
        tally.add(subject, "searches that miss", missed > 0, "searches")
        tally.add(subject, "the message itself missed", offset < start)
        tally.add(subject, "missed", missed)
        tally.add(subject, "missed by true time", int((one.messages.made_ms >= target)[:start].sum()))
        tally.add(subject, "read for nothing", int((~is_wanted)[start:].sum()))
        tally.add(subject, "unlike brute force", start != one.expected_start(target - less_ms), "searches")


def _check_guarantees(tally: Tally, one: Cluster, targets: Int64s) -> None:
    """Count violations of KIP-33's promises about searching, in terms of the topic's own timestamps."""
    for target in targets.tolist():
        start = one.start_offset(target)
        times = one.timestamps
        tally.add(f"guarantees, {one.timestamp_type}", "searches", 1, "searches")
        tally.add(
            f"guarantees, {one.timestamp_type}", "later than T and not behind the offset", int((times[:start] > target).sum())
        )
        tally.add(f"guarantees, {one.timestamp_type}", "before the offset and not below T", int((times[:start] >= target).sum()))
        tally.add(f"guarantees, {one.timestamp_type}", "earlier than T and read", int((times[start:] < target).sum()))


def measure_one_create_time(case: Case, work_dir: Path) -> list[Measurement]:
    """Append a second message with the CreateTime of an earlier one, at growing distances; search for that time after reading
    each of the two.
    """
    found: list[Measurement] = []
    messages = generate(workload(case))
    first = len(messages) // 10
    create_ms = messages.create_ms.copy()
    seconds: dict[int, int] = {}  # The second message by the requested distance.
    for distance_ms in DISTANCES_MS:
        second = int(np.searchsorted(messages.arrival_ms, messages.arrival_ms[first] + distance_ms))
        if first < second < len(messages):
            seconds[distance_ms] = second
            create_ms[second] = create_ms[first]
    pair = Messages(messages.numbers, messages.made_ms, create_ms, messages.arrival_ms, messages.value_bytes)
    for timestamp_type in TYPES:
        with cluster(work_dir / timestamp_type, timestamp_type) as one:
            one.append(pair)
            create_time = int(create_ms[first])
            for second in seconds.values():
                subject = str(int(pair.arrival_ms[second] - pair.arrival_ms[first]))
                starts = {f"{timestamp_type} index, CreateTime": one.start_offset(create_time)}
                if timestamp_type == LOG_APPEND_TIME:
                    starts["LogAppendTime index, append time"] = one.start_offset(int(one.timestamps[second]))
                for metric, start in starts.items():
                    found.append(Measurement(case.part, case.name, subject, metric, float(second + 1 - start), "messages"))
    return found
