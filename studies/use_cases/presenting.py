"""The chapter: KIP-33's table with the measured result in each cell, and the tables and plots behind it.

Each verdict follows from measured numbers, by the condition in the code beside it.
"""

from __future__ import annotations

from studies.case import Measurements
from studies.chapter import Chapter, Plot, Table
from studies.use_cases import bootstrap, clusters, failover, lag, latency_metric, searching
from studies.use_cases.clusters import SKEW_MS, SKEWS, TRUE_CLOCKS, TYPES, WRONG_SHARE
from studies.use_cases.details import (
    bootstrap_table,
    documents_case_table,
    failover_plots,
    failover_table,
    guarantees_table,
    lag_table,
    latency_plot,
    latency_table,
    read_again_plot,
    search_table,
)
from studies.use_cases.kip_table import conclusion, kip_table
from studies.workload import SECOND_MS

QUESTION = (
    "KIP-33 discusses five things that people do with times in a log, and what an index on LogAppendTime or on "
    "CreateTime is worth "
    "for each: search by time, bootstrap from a database, failover to another cluster, lag by time, and a latency metric."
)


def present(measurements: Measurements) -> Chapter:
    """Return the chapter with the results."""
    table, findings = kip_table(measurements)
    parts: list[Table | Plot] = [
        table,
        search_table(measurements),
        guarantees_table(measurements),
        read_again_plot(measurements),
        bootstrap_table(measurements),
        failover_table(measurements),
        *failover_plots(measurements),
        documents_case_table(measurements),
        lag_table(measurements),
        latency_table(measurements),
        latency_plot(measurements),
    ]
    return Chapter(
        "use-cases", "KIP-33's use cases", QUESTION, conclusion(measurements), tuple(parts), _assumptions(measurements), findings
    )


def _assumptions(measurements: Measurements) -> tuple[str, ...]:
    seed, records = (int(measurements.value("assumptions", "all", "workload", name)) for name in ("seed", "messages"))
    ways = "; ".join(
        f"{one.name}: {one.smallest_ms} ms + exponential of mean {one.mean_extra_ms:g} ms, {one.late_share:.0%} of them "
        f"{one.late_ms // SECOND_MS} s later"
        for one in (clusters.LATENCY, clusters.SECOND_LATENCY)
    )
    return (
        f"Seed {seed}; {records:,} messages of 100 bytes a case, one a second on average (exponential; the "
        "metric's five a second), each a batch of its own; "
        f"segments of {clusters.SEGMENT_BYTES // 1024} KiB, Kafka's index interval of 4 KiB, one partition.",
        f"Latency, {ways}.",
        f"Skews, each {SKEW_MS // SECOND_MS} s: "
        + ", ".join(skew.name for skew in SKEWS if skew is not TRUE_CLOCKS)
        + f". Of the producers {WRONG_SHARE:.0%} are wrong; X, the largest skew, is known to the user.",
        f"Search: {searching.SEARCHES} CreateTimes of messages spread over the log, the user wants every "
        "message with that CreateTime "
        "or a later one.",
        f"Bootstrap: rows made over {bootstrap.DAYS} days, dumped in 1 ms each, then a day of live messages.",
        f"Failover: {failover.CRASHES} crashes spread over the log; the consumer had read all of cluster 1. "
        "A skewed broker is cluster 2's.",
        f"Lag: a consumer {lag.SPEED} times as fast as the messages, a quarter of the log behind; its own clock is right.",
        f"Topics of type {' and '.join(TYPES)}. On the latter CreateTime is what format v2 keeps in its deltas; "
        "Kafka's own consumer does not show it.",
        f"Metric: per message. Cases {', '.join(latency_metric.CASES)}.",
    )
