"""The tables and plots behind KIP-33's own table."""

from __future__ import annotations

from studies.case import Measurements
from studies.chapter import Cell, Mark, Millis, Plot, Series, Table
from studies.use_cases import bootstrap, failover, lag, latency_metric, searching
from studies.use_cases.clusters import LOG_APPEND_TIME, TRUE_CLOCKS, TYPES
from studies.workload import SECOND_MS

SECTION = "KIP-33, Use case discussion"


def search_table(found: Measurements) -> Table:
    """Use case 1, by skew and index."""
    part = searching.SEARCH
    rows: list[tuple[Cell, ...]] = []
    for case in found.cases(part):
        for subject in searching.SUBJECTS:
            searches = found.value(part, case, subject, "searches")
            rows.append(
                (
                    case,
                    subject,
                    f"{found.value(part, case, subject, 'searches that miss'):.0f} of {searches:.0f}",
                    int(found.value(part, case, subject, "missed")),
                    int(found.value(part, case, subject, "missed by true time")),
                    found.value(part, case, subject, "read for nothing") / searches,
                    int(found.value(part, case, subject, "unlike brute force")),
                )
            )
    return Table(
        "use-cases-search",
        "Use case 1: search by time",
        (
            "clocks",
            "index, and what is searched for",
            "searches that miss",
            "missed",
            "missed, made since T in truth",
            "read for nothing a search",
            "answers unlike brute force",
        ),
        tuple(rows),
        source=f"{SECTION}, case 1",
        notes=(
            "Wanted are the messages with a CreateTime of T or later; in the rows for an append time, those "
            "appended then or later.",
            "Made since T in truth: what someone misses who takes T for a true time; wrong clocks of producers "
            "hide it from any index.",
        ),
    )


def guarantees_table(found: Measurements) -> Table:
    """The promises of the KIP's section on searching."""
    part = searching.SEARCH
    metrics = ("later than T and not behind the offset", "before the offset and not below T", "earlier than T and read")
    rows: list[tuple[Cell, ...]] = []
    for case in found.cases(part):
        for timestamp_type in TYPES:
            subject = f"guarantees, {timestamp_type}"
            searches = found.value(part, case, subject, "searches")
            counts = [int(found.value(part, case, subject, metric)) for metric in metrics]
            rows.append((case, timestamp_type, int(searches), *counts[:2], counts[2] / searches))
    return Table(
        "use-cases-guarantees",
        "What a search by timestamp promises, in the topic's own timestamps",
        (
            "clocks",
            "topic",
            "searches",
            "messages later than T before the offset",
            "messages not below T before the offset",
            "earlier ones read, a search",
        ),
        tuple(rows),
        source="KIP-33, Search message by timestamp",
    )


def read_again_plot(found: Measurements) -> Plot:
    """How many messages are read again for the second message with the same CreateTime."""
    part, case = searching.ONE_CREATE_TIME, TRUE_CLOCKS.name
    distances = found.subjects(part, case)
    metrics = ("CreateTime index, CreateTime", "LogAppendTime index, CreateTime", "LogAppendTime index, append time")
    series = tuple(
        Series(
            metric,
            tuple(int(distance) / SECOND_MS for distance in distances),
            tuple(found.value(part, case, distance, metric) for distance in distances),
        )
        for metric in metrics
    )
    return Plot(
        "use-cases-read-again",
        "Read again to see m2 once more, by LAT2 - LAT1",
        series,
        Mark.LINE,
        "LAT2 - LAT1, s",
        "messages",
        log_y=True,
        log_x=True,
        caption="m1 and m2 have one CreateTime; a message a second comes between. Searching for that CreateTime leads to m1 "
        "or before, on either index; only the append time of m2 leads to m2.",
    )


def bootstrap_table(found: Measurements) -> Table:
    """Use case 2, by order of the dump, moment and topic."""
    part = bootstrap.BOOTSTRAP
    rows: list[tuple[Cell, ...]] = []
    for case in found.cases(part):
        for moment in bootstrap.MOMENTS:
            for subject in bootstrap.SUBJECTS:
                wanted, in_log, missed, for_nothing = (
                    int(found.value(part, case, subject, f"{metric} {moment}"))
                    for metric in ("wanted", "in the log", "missed", "read for nothing")
                )
                share = (wanted - missed + for_nothing) / in_log
                rows.append((case, moment, subject, in_log, wanted, missed, for_nothing, f"{share:.1%}"))
    return Table(
        "use-cases-bootstrap",
        "Use case 2: a dumped database, and its last three days",
        ("dump", "looked for", "topic", "messages", "wanted", "missed", "read for nothing", "share of the log read"),
        tuple(rows),
        source=f"{SECTION}, case 2",
    )


def failover_table(found: Measurements) -> Table:
    """Use case 3, by skew, topic and strategy."""
    part = failover.FAILOVER
    rows: list[tuple[Cell, ...]] = []
    for case in found.cases(part):
        for subject in found.subjects(part, case):
            topic, strategy = subject.split(": ", 1)
            crashes = found.value(part, case, subject, "crashes")
            rows.append(
                (
                    case.replace("broker", "cluster 2"),
                    topic,
                    strategy,
                    f"{found.value(part, case, subject, 'crashes that miss'):.0f} of {crashes:.0f}",
                    int(found.value(part, case, subject, "missed")),
                    found.value(part, case, subject, "read twice") / crashes,
                    int(found.value(part, case, subject, "most read twice")),
                )
            )
    return Table(
        "use-cases-failover",
        "Use case 3: failover from cluster 1 to cluster 2",
        ("clocks", "topics", "search on cluster 2 for", "crashes that miss", "missed", "read twice a crash", "most read twice"),
        tuple(rows),
        source=f"{SECTION}, case 3",
        notes=("On a CreateTime topic cluster 1's append time is unknown.",),
    )


def failover_plots(found: Measurements) -> tuple[Plot, Plot]:
    """Messages missed and read twice, by strategy, with correct clocks."""

    def plot(name: str, metric: str, title: str) -> Plot:
        part, case = failover.FAILOVER, TRUE_CLOCKS.name
        series = []
        for topic in reversed(TYPES):
            known = [one for one in failover.STRATEGIES if found.get(part, case, f"{topic}: {one}", metric) is not None]
            values = [
                found.value(part, case, f"{topic}: {one}", metric) / found.value(part, case, f"{topic}: {one}", "crashes")
                for one in known
            ]
            series.append(Series(topic, tuple(known), tuple(values)))
        return Plot(
            f"use-cases-failover-{name}",
            title,
            tuple(series),
            Mark.BARS,
            "search on cluster 2 for",
            "messages a crash",
            caption="True clocks; messages go to both clusters.",
        )

    return (
        plot("missed", "missed", "Missed after a failover"),
        plot("twice", "read twice", "Read twice after a failover"),
    )


def documents_case_table(found: Measurements) -> Table:
    """The KIP's m1 and m2."""
    part, case = failover.DOCUMENTS_CASE, TRUE_CLOCKS.name
    rows: list[tuple[Cell, ...]] = []
    for reading in failover.READINGS:
        for subject in found.subjects(part, case):
            topic, looked_for = subject.split(": ", 1)
            missed = found.value(part, case, subject, f"m1 missed, {reading}") > 0
            twice = int(found.value(part, case, subject, f"read twice, {reading}"))
            rows.append((reading, topic, looked_for, "missed" if missed else "read", twice))
    return Table(
        "use-cases-m1-m2",
        "The document's case of m1 and m2",
        ("conditions", "topics", "search on cluster 1 for", "m1", "read twice"),
        tuple(rows),
        source=f"{SECTION}, case 3 [1]",
        assumptions=(
            "CT1 = 0 s, CT2 = 10 s, LAT22 = 11 s, LAT12 = 20 s; cluster 2 fails at 15 s, after m2 was read there. "
            "As it is meant LAT11 = 1 s and LAT21 = 11 s; as it is written, LAT11 = 15 s and LAT21 = 11 s "
            "satisfy all that is said.",
        ),
        notes=(
            "The document lets m2 arrive at cluster 2 twice, at LAT21 and LAT22: the first of the two is cluster 1. It says "
            "LAT11 < LAT12, m1 on both clusters, where the order on cluster 1, LAT11 < LAT21, is what the case needs.",
            "The consumer leaves cluster 2, so it is cluster 2's latency that counts, m1's included, which has "
            "not arrived there yet.",
        ),
    )


def lag_table(found: Measurements) -> Table:
    """Use case 4, by skew and estimate."""
    part = lag.LAG
    rows: list[tuple[Cell, ...]] = []
    for case in found.cases(part):
        for timestamp_type in (LOG_APPEND_TIME, "CreateTime"):
            ends = [found.get(part, case, timestamp_type, f"time to the end, {name} error") for name in ("median", "largest")]
            for name in (lag.NOW, lag.LOG_END):
                subject = f"{timestamp_type}: {name}"
                rows.append(
                    (
                        case,
                        timestamp_type,
                        name,
                        Millis(found.value(part, case, subject, "lag, mean error")),
                        Millis(found.value(part, case, subject, "lag, largest error")),
                        *(_share(one.value if one is not None and name == lag.LOG_END else None) for one in ends),
                    )
                )
        offsets = [found.get(part, case, lag.OFFSETS, f"time to the end, {name} error") for name in ("median", "largest")]
        rows.append((case, "either", "offsets", None, None, *(_share(None if one is None else one.value) for one in offsets)))
    first_ms = found.value(part, TRUE_CLOCKS.name, "consumer", "lag at first")
    end_ms = found.value(part, TRUE_CLOCKS.name, "consumer", "time to the end at first")
    return Table(
        "use-cases-lag",
        "Use case 4: lag by time, and time to the log's end",
        (
            "clocks",
            "topic",
            "estimate",
            "lag: mean error",
            "lag: largest error",
            "time to the end: median error",
            "time to the end: largest error",
        ),
        tuple(rows),
        source=f"{SECTION}, case 4",
        notes=(
            f"With true clocks the consumer is {first_ms / SECOND_MS:,.0f} s behind at first, and at the end after "
            f"{end_ms / SECOND_MS:,.0f} s. Errors of the time to the end are shares of the time that is left.",
        ),
    )


def latency_table(found: Measurements) -> Table:
    """Use case 5, by skew and metric."""
    part = latency_metric.LATENCY_METRIC
    rows: list[tuple[Cell, ...]] = []
    for case in found.cases(part):
        differ = int(found.value(part, case, "both", "messages that differ"))
        for subject in (latency_metric.BY_APPEND_TIME, latency_metric.BY_CLOCK, latency_metric.TRUTH):
            figures = [Millis(found.value(part, case, subject, metric)) for metric in ("p50", "p90", "p99", "max")]
            below = int(found.value(part, case, subject, "below 0"))
            rows.append((case, subject, *figures, below, None if subject == latency_metric.TRUTH else differ))
    return Table(
        "use-cases-latency",
        "Use case 5: the broker's latency metric",
        ("clocks", "metric", "p50", "p90", "p99", "max", "below 0", "messages where the two differ"),
        tuple(rows),
        source=f"{SECTION}, case 5",
    )


def latency_plot(found: Measurements) -> Plot:
    """Percentiles by minute, as `tidelog job latency` gives them."""
    part, case = latency_metric.BY_MINUTE, TRUE_CLOCKS.name
    minutes = found.subjects(part, case)
    series = tuple(
        Series(
            metric,
            tuple(float(minute) for minute in minutes),
            tuple(max(1.0, found.value(part, case, minute, metric)) for minute in minutes),
        )
        for metric in ("p50", "p90", "p99")
    )
    return Plot(
        "use-cases-latency-by-minute",
        "Latency by minute, from a LogAppendTime topic",
        series,
        Mark.LINE,
        "minute of the append",
        "append time - CreateTime, ms",
        log_y=True,
        x_is_time=True,
        caption="Read from the log's v2 batches; the job `latency` gives the same of any folder.",
    )


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"
