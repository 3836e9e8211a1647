"""Use case 5: the broker reports the latency of a topic.

The same messages are appended to a LogAppendTime and to a CreateTime topic of one broker, at the same times by its clock. The
first topic's metric is LogAppendTime - CreateTime. It can be computed from the log at any time, because format v2 keeps both. The
second topic's metric is the broker's clock - CreateTime at the append. It is lost unless the broker records it.

| case | |
|---|---|
| a skew's name | the skew's clocks are wrong all the time |
| clock set back | the broker's clock is set back by the skew after half of the messages; append times never go backward |
| clock set back, as Kafka | the same with `tidelog.log.append.time.monotonic=false`: append times follow the clock |
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
    SKEWS,
    TRUE_CLOCKS,
    cluster,
    skew_of,
    stored_times,
)
from studies.workload import MINUTE_MS, Workload, generate

LATENCY_METRIC = "latency metric"
BY_MINUTE = "latency by minute"
INTERVAL_MS = 200
"""More messages per minute than in the other cases, so that percentiles per minute make sense."""
SET_BACK = "clock set back"
SET_BACK_AS_KAFKA = "clock set back, as Kafka"
CASES = (*(skew.name for skew in SKEWS), SET_BACK, SET_BACK_AS_KAFKA)

BY_APPEND_TIME = "LogAppendTime - CreateTime"
BY_CLOCK = "broker's clock - CreateTime"
TRUTH = "true latency"

PERCENTILES = (50, 90, 99)


def workload(case: Case) -> Workload:
    """Return the messages for both topics."""
    skew = TRUE_CLOCKS if case.name in (SET_BACK, SET_BACK_AS_KAFKA) else skew_of(case.name)
    return Workload(
        f"{case.part}, {case.name}",
        int(case.parameters["seed"]),
        int(case.parameters["records"]),
        INTERVAL_MS,
        LATENCY,
        skew.wrong_clock,
    )


def measure(case: Case, work_dir: Path) -> list[Measurement]:
    """Compare the two metrics, message by message, and both with the truth."""
    found: list[Measurement] = []
    messages = generate(workload(case))
    half = len(messages) // 2
    is_set_back = case.name in (SET_BACK, SET_BACK_AS_KAFKA)
    broker_ms = np.full(len(messages), 0 if is_set_back else skew_of(case.name).broker_ms, np.int64)
    if is_set_back:
        broker_ms[half:] = -SKEW_MS
    for timestamp_type in (CREATE_TIME, LOG_APPEND_TIME):
        folder = work_dir / timestamp_type
        with cluster(folder, timestamp_type, tidelog_log_append_time_monotonic=case.name != SET_BACK_AS_KAFKA) as one:
            one.append(messages.part(0, half), int(broker_ms[0]))
            one.append(messages.part(half, len(messages)), int(broker_ms[-1]))
        timestamps, create_times = stored_times(folder)
        assert np.array_equal(create_times, messages.create_ms), "v2 keeps CreateTime on both types"
    by_append_time = timestamps - create_times
    by_clock = messages.arrival_ms + broker_ms - messages.create_ms
    truth = messages.arrival_ms - messages.made_ms
    for subject, latencies in ((BY_APPEND_TIME, by_append_time), (BY_CLOCK, by_clock), (TRUTH, truth)):
        for percentile in PERCENTILES:
            value = float(np.percentile(latencies, percentile))
            found.append(Measurement(case.part, case.name, subject, f"p{percentile}", value, "ms"))
        found.append(Measurement(case.part, case.name, subject, "max", float(latencies.max()), "ms"))
        found.append(Measurement(case.part, case.name, subject, "below 0", float((latencies < 0).sum()), "messages"))
    different = by_append_time != by_clock
    found.append(Measurement(case.part, case.name, "both", "messages", float(len(messages)), "messages"))
    found.append(Measurement(case.part, case.name, "both", "messages that differ", float(different.sum()), "messages"))
    apart = float(np.abs(by_append_time - by_clock).max())
    found.append(Measurement(case.part, case.name, "both", "largest difference", apart, "ms"))
    if case.name == TRUE_CLOCKS.name:
        minutes = timestamps // MINUTE_MS * MINUTE_MS
        for minute in np.unique(minutes).tolist():
            of_minute = by_append_time[minutes == minute]
            for percentile in PERCENTILES:
                value = float(np.percentile(of_minute, percentile))
                found.append(Measurement(BY_MINUTE, case.name, str(minute), f"p{percentile}", value, "ms"))
            found.append(Measurement(BY_MINUTE, case.name, str(minute), "max", float(of_minute.max()), "ms"))
    return found
