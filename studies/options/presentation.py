"""The chapter: the draft's questions, the results, and the tables and plots in reading order."""

from __future__ import annotations

from studies.case import Measurements
from studies.chapter import Chapter, Mark, Plot, Series
from studies.options import (
    good_things,
    leader_change,
    migration,
    observed,
    other_tables,
    pipeline,
    replica_tables,
    replicas,
    sizes,
)
from studies.options.option_table import (
    APPEND,
    DRAFTED,
    LATE_TOO,
    OPTION_1,
    OPTION_2,
    OPTION_3,
    REBUILT,
    REPLICATED,
    percent,
    retention_worst,
    table,
)
from studies.quantities import show_millis
from studies.workload import HOUR_MS


def chapter(name: str, title: str, m: Measurements) -> Chapter:
    """Return the study's chapter."""
    return Chapter(
        name,
        title,
        question=(
            "KIP-32's draft weighs three message formats: with CreateTime and LogAppendTime, with LogAppendTime only, and with"
            " CreateTime only, LogAppendTime then standing in a time index that replicas fetch. Which one serves mirroring,"
            " retention, rolling, stream processing and the measurement of latency, and what does each cost?"
        ),
        answer=_answer(m),
        parts=(
            table(m),
            other_tables.size_claims(m),
            *other_tables.size_tables(m),
            overhead_plot(m),
            other_tables.mirror_table(m),
            replica_tables.retention_table(m),
            retention_plot(m),
            replica_tables.rolling_table(m),
            other_tables.window_table(m),
            window_plot(m),
            other_tables.latency_table(m),
            replica_tables.leader_table(m),
            other_tables.good_things_table(m),
            other_tables.migration_table(m),
        ),
        assumptions=(
            f"Seeds: {replicas.SEED} replicas, {observed.SEED} pipelines, {sizes.SEED} sizes, {leader_change.SEED} leader change,"
            f" {good_things.SEED} good things.",
            "The options exist nowhere: their brokers are a model of one partition with leader, followers, a crash and its"
            " recovery, without elections, flushing or a high watermark. Accepted columns are the storage engine, its rules and"
            " its recovery.",
            "Fields stand in the order of Kafka's files (offset, size), in all formats; the draft's is the other way round, and"
            " packs differently.",
            f"Retention is asked every millisecond; {show_millis(replicas.RETENTION_MS)} is its limit.",
            *dict.fromkeys(one.text for one in m if one.part == replicas.WORKLOADS and one.text),
        ),
        findings=_findings(m),
    )


def _answer(m: Measurements) -> str:
    wrong = m.value("windows", "1 min", OPTION_2, "messages in the wrong window")
    rebuilt, alone = retention_worst(m, REBUILT, REPLICATED), retention_worst(m, LATE_TOO, (replicas.ALONE,))
    size = "bytes a message, 100 B"
    costs = [
        m.value(sizes.PART, "uncompressed", one, size) for one in ("v0", OPTION_1, OPTION_2, OPTION_3, sizes.V2_LOG_APPEND_TIME)
    ]
    return (
        f"Option 1 does everything that the draft wants, for {costs[1] - costs[0]:.0f} bytes a message where options 2 and 3 take"
        f" {costs[2] - costs[0]:.0f}. Option 2 puts {percent(wrong)} of the messages into wrong windows at a latency of a minute,"
        f" unless each application carries the time itself. Option 3 lets segments go {rebuilt} where the index is rebuilt, and"
        f" fetching it does not help a replica that is alone after a crash ({alone}). What was accepted is one time by topic;"
        f" since v2 a LogAppendTime topic holds both times in {costs[4]:.0f} bytes, fewer than v0's {costs[0]:.0f}: option 1 at"
        " no cost, though Kafka's consumers are shown only one of them."
    )


def _findings(m: Measurements) -> tuple[str, ...]:
    drafted = retention_worst(m, DRAFTED, REPLICATED)
    entries = {one: int(m.value(replicas.RETENTION, replicas.FOLLOWER, one, "index entries")) for one in (DRAFTED, LATE_TOO)}
    exact = m.value("mirror", observed.SHORTEST, OPTION_3, "LogAppendTime in the index")
    same = m.value("mirror", observed.SHORTEST, APPEND, "CreateTime same in both")
    alone = retention_worst(m, LATE_TOO, (replicas.ALONE,))
    recompressed = m.value(migration.PART, "gzip", migration.CELLS[0].subject, "converted") == 1
    found = (
        (
            entries[DRAFTED] < entries[LATE_TOO],
            "Option 3's FetchResponse, as drafted, carries the entries of the messages that come with it. The entry for a"
            " segment's last message comes into being only when the next segment begins, after the message was fetched: a"
            f" follower that keeps up never gets it ({entries[DRAFTED]} entries instead of {entries[LATE_TOO]}); how far off"
            f" retention is: {drafted}.",
        ),
        (
            alone.either > 0,
            "Option 3's rule that a replica never rebuilds its index cannot be followed by one that has no leader to ask: after a"
            f" crash of the only replica, times are those of the recovery, as the draft fears; retention: {alone}.",
        ),
        (
            exact < 1,
            f"Option 3 does not know as much as option 1: the index has the exact LogAppendTime of {percent(exact)} of the"
            " messages.",
        ),
        (
            True,
            "The draft does not say what the int32 offset of an index entry in a FetchResponse counts from: an absolute offset"
            " does not fit, and a segment's base is not in the response. Here it counts from the offset that was fetched.",
        ),
        (
            _second_time(m) < 2,
            f"Where a wrapper is compressed, the second time is nearly free, at most {_second_time(m):.2g} bytes a message: all"
            " of a request's LogAppendTimes are alike.",
        ),
        (
            same < 1,
            "In a mirror between LogAppendTime topics, Kafka's consumer hands on the first cluster's append time as the"
            f" producer's: CreateTime is kept for {percent(same)} of the messages, and v2's deltas then hold the wrong time for"
            " ever.",
        ),
        (
            recompressed,
            "Phase 1 of the migration cannot spare recompression for v0 messages, as the draft has it: their offsets lie inside"
            " the compressed bytes.",
        ),
    )
    return tuple(text for holds, text in found if holds)


def _second_time(m: Measurements) -> float:
    """Return by how much option 1 exceeds option 3 with a compressed wrapper, at most (bytes per message)."""
    return max(
        m.value(sizes.PART, codec, OPTION_1, metric) - m.value(sizes.PART, codec, OPTION_3, metric)
        for codec in ("gzip", "lz4")
        for metric in (f"bytes a message, {value_bytes} B" for value_bytes in sizes.VALUE_BYTES)
    )


def overhead_plot(m: Measurements) -> Plot:
    """Return the overhead over v0 by value size."""
    shown = [value_bytes for value_bytes in sizes.VALUE_BYTES if value_bytes]
    return Plot(
        "options-overhead-plot",
        "Overhead over v0, uncompressed",
        tuple(
            Series(
                name,
                tuple(float(value_bytes) for value_bytes in shown),
                tuple(m.value(sizes.PART, "uncompressed", name, f"over v0, {value_bytes} B") for value_bytes in shown),
            )
            for name in (OPTION_1, OPTION_2, OPTION_3, sizes.V2_LOG_APPEND_TIME)
        ),
        Mark.LINE,
        "size of a value, bytes",
        "overhead over v0, %",
        log_x=True,
        caption="Options 2 and 3 are alike; below 0: smaller than v0, because a v2 batch shares one header.",
    )


def window_plot(m: Measurements) -> Plot:
    """Return the share of messages in wrong windows by latency."""
    return Plot(
        "options-windows-plot",
        "Messages in the wrong one-minute window, by latency",
        tuple(
            Series(
                name,
                observed.CASES,
                tuple(100 * m.value("windows", case, name, "messages in the wrong window") for case in observed.CASES),
            )
            for name in (OPTION_1, OPTION_2, pipeline.PAYLOAD, OPTION_3)
        ),
        Mark.BARS,
        "latency",
        "messages in the wrong window, %",
        caption="CreateTime errs only where producers' clocks do.",
    )


def retention_plot(m: Measurements) -> Plot:
    """Return the largest error of retention by kind of replica."""
    subjects = ("before (file times)", OPTION_1, OPTION_2, DRAFTED, LATE_TOO, REBUILT)
    return Plot(
        "options-retention-plot",
        "Retention: largest error, by kind of replica",
        tuple(
            Series(name, replicas.ROLES, tuple(retention_worst(m, name, (role,)).either / HOUR_MS for role in replicas.ROLES))
            for name in subjects
        ),
        Mark.BARS,
        "replica",
        "largest error, h",
        caption="Errors of seconds are too small to be seen here; the table has them.",
    )
