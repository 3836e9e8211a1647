"""Tables and findings about retention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

from studies.case import Measurements
from studies.chapter import Bytes, Cell, Claim, Millis, Table, Verdict
from studies.policies import broker, moving, sweep_tables
from studies.policies.measuring import (
    BOTH,
    FILE_TIMES,
    FILE_TIMES_COPIED,
    MIXED_RATIOS,
    PLAIN_CLOCK,
    RATIOS,
    RETENTION,
    SANITY,
    SEEDS,
    measured,
    on_cluster,
)
from studies.policies.preferences import CT, EITHER, LAT
from studies.policies.scenarios import BROKER
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME

FUTURE = "one from the future"


def off(found: Measurements) -> Table:
    """Too early and too long, on cluster 1 and 2, by scenario and type."""
    rows: list[tuple[Cell, ...]] = []
    for scenario in measured(found, RETENTION):
        for kind in broker.TYPES:
            one, two = on_cluster(kind, 1), on_cluster(kind, 2)
            value = partial(found.value, RETENTION, scenario.name, one)
            rows.append(
                (
                    scenario.name,
                    kind,
                    int(value("early")),
                    Millis(value("early_mean_ms")),
                    int(value("long")),
                    Millis(value("long_mean_ms")),
                    int(value("left")),
                    Bytes(value("mean bytes")),
                    Millis(value("off_ms")),
                    Millis(found.value(RETENTION, scenario.name, two, "off_ms")),
                )
            )
    return Table(
        "policies-retention-off",
        "Deleted too early, kept too long",
        (
            "scenario",
            "retention by",
            "too early",
            "by, on average",
            "too long",
            "by, on average",
            "left at the end",
            "mean size",
            "off, a message",
            "the same, cluster 2",
        ),
        tuple(rows),
        "KIP-32, discussion of log retention: patterns 1 to 3, robustness",
        notes=(
            "too long is beyond segment.ms and one interval between checks, which any rule that deletes whole segments may need",
            "cluster 1, where no other is named; figures of what is left at the end are lower bounds",
        ),
    )


def divergence(found: Measurements) -> Table:
    """Messages that one cluster has deleted and the other still has."""
    rows: list[tuple[Cell, ...]] = []
    for scenario in measured(found, RETENTION):
        for kind in broker.TYPES:
            subject = f"{kind}, {BOTH}"
            value = partial(found.value, RETENTION, scenario.name, subject)
            rows.append(
                (
                    scenario.name,
                    kind,
                    int(value("messages")),
                    Millis(value("mean_ms")),
                    Millis(value("longest_ms")),
                    int(value("most")),
                    Millis(value("share_ms")),
                )
            )
    return Table(
        "policies-divergence-table",
        "Deleted on one cluster, not on the other",
        ("scenario", "retention by", "messages", "for, on average", "at most", "most at one instant", "a message, of all"),
        tuple(rows),
        "KIP-32, pattern 2: some data can be deleted on one cluster but not on another",
    )


def broker_clocks(found: Measurements) -> Table:
    """The effects of a broker's own wrong clock."""
    rows: list[tuple[Cell, ...]] = []
    for case in (one.name for one in measured(found, RETENTION) if one.pattern == BROKER):
        for subject in (on_cluster(CREATE_TIME, 1), on_cluster(LOG_APPEND_TIME, 1), PLAIN_CLOCK):
            value = partial(found.value, RETENTION, case, subject)
            rows.append(
                (
                    case,
                    subject,
                    int(value("early")),
                    Millis(value("early_max_ms")),
                    int(value("long")),
                    Millis(value("long_max_ms")),
                    int(value("left")),
                    int(value("segments")),
                    Millis(value("off_ms")),
                )
            )
    return Table(
        "policies-broker-clocks",
        "When the broker's own clock is wrong",
        ("scenario", "retention by", "too early", "by, at most", "too long", "by, at most", "left", "segments", "off, a message"),
        tuple(rows),
        "KIP-32: append max(lastAppendedTimestamp, currentTimeMillis), so that time does not go back",
        notes=("Kafka's plain clock is tidelog.log.append.time.monotonic=false: append times go back with the clock",),
    )


def pinned(found: Measurements) -> Table:
    """The segments kept by a future timestamp, and the cost of the timestamp check."""
    rows: list[tuple[Cell, ...]] = []
    for case in (one for one in ("producers ahead", FUTURE) if one in found.cases(RETENTION)):
        for subject in (on_cluster(CREATE_TIME, 1), SANITY, on_cluster(LOG_APPEND_TIME, 1)):
            value = partial(found.value, RETENTION, case, subject)
            still = found.get(RETENTION, case, subject, "pinned for")
            rows.append(
                (
                    case,
                    subject,
                    int(value("pinned segments")),
                    int(value("left")),
                    None if still is None or still.value is None else Millis(still.value),
                    Bytes(value("bytes at the end")),
                    Millis(value("long_max_ms")),
                    int(value("refused")),
                )
            )
    return Table(
        "policies-pinned",
        "One future timestamp pins what is behind it; a check when it comes refuses it",
        (
            "scenario",
            "retention by",
            "segments left",
            "messages left",
            "and for as long again",
            "bytes left",
            "too long, at most",
            "refused",
        ),
        tuple(rows),
        "KIP-32, robustness of log retention",
        ("message.timestamp.after.max.ms = 3,600,000 (an hour) where it is on",),
        (
            "how long the rest stays is the engine's forecast at the end of the run",
            "a refused message is lost unless its producer does something about it",
        ),
    )


def file_times(found: Measurements) -> Table:
    """The rule before KIP-33."""
    rows: list[tuple[Cell, ...]] = []
    for scenario in measured(found, RETENTION):
        if found.get(RETENTION, scenario.name, FILE_TIMES, "early") is None:
            continue
        rows += [
            (
                scenario.name,
                subject,
                int(found.value(RETENTION, scenario.name, subject, "early")),
                int(found.value(RETENTION, scenario.name, subject, "long")),
                Millis(found.value(RETENTION, scenario.name, subject, "long_mean_ms")),
                Millis(found.value(RETENTION, scenario.name, subject, "long_max_ms")),
                Millis(found.value(RETENTION, scenario.name, subject, "off_ms")),
            )
            for subject in (FILE_TIMES, FILE_TIMES_COPIED)
        ]
    return Table(
        "policies-file-times",
        "The baseline: retention by the file's last modification, rolling by its creation",
        ("scenario", "rule", "too early", "too long", "by, on average", "at most", "off, a message"),
        tuple(rows),
        "KIP-32 and KIP-33, motivation: not honored when a replica is reassigned",
        ("a model over arrays; the copy fetches everything at once, after three days",),
    )


def reassignment(found: Measurements) -> Table:
    """A partition that moves to another broker, on the real engine."""
    case = found.cases(moving.REASSIGNMENT)[0]
    rows: list[tuple[Cell, ...]] = []
    for subject in (CREATE_TIME, LOG_APPEND_TIME, moving.NO_TIMESTAMPS):

        def value(where: str, metric: str, subject: str = subject) -> float:
            return found.value(moving.REASSIGNMENT, case, f"{subject}, {where}", metric)

        later = value("moves", "goes later by, at most")
        is_old = subject == moving.NO_TIMESTAMPS
        holds = (later > 0) == is_old
        claimed = "retention and rolling go wrong" if is_old else "a copy changes nothing"
        rows.append(
            (
                subject,
                int(value("stays", "segments")),
                int(value("moves", "segments")),
                int(value("stays", "long")),
                int(value("moves", "long")),
                Millis(value("moves", "long_max_ms")),
                Millis(later),
                Claim(
                    claimed,
                    "later on the new broker" if later else "same",
                    Verdict.CONFIRMED if holds else Verdict.REFUTED,
                    "" if is_old else "with timestamps in the messages a copy changes nothing",
                ),
            )
        )
    return Table(
        "policies-reassignment",
        "A replica is reassigned on day 4: the real engine",
        (
            "timestamps",
            "segments, where it was",
            "on the new broker",
            "too long, where it was",
            "on the new broker",
            "at most",
            "goes later than it would have, at most",
            "KIP-32 and KIP-33",
        ),
        tuple(rows),
        "KIP-32 and KIP-33, motivation",
    )


def migration(found: Measurements) -> Table:
    """Segments without timestamps, with some, with all."""
    case = found.cases(moving.MIGRATION)[0]
    rows: list[tuple[Cell, ...]] = []
    for kind, claimed in (
        (moving.ONLY_OLD, "last modification"),
        (moving.MIXED, "largest timestamp"),
        (moving.ONLY_NEW, "largest timestamp"),
    ):
        value = partial(found.value, moving.MIGRATION, case, kind)
        by = {name: int(value(f"goes by {name}")) for name in ("last modification", "largest timestamp")}
        fits = by[claimed] == value("segments") > 0
        measured = ", ".join(f"{count} by {name}" for name, count in by.items())
        rolled = found.get(moving.MIGRATION, case, kind, "rolled by the clock")
        rows.append(
            (
                kind,
                int(value("segments")),
                Claim(
                    claimed,
                    measured,
                    Verdict.CONFIRMED if fits else Verdict.REFUTED,
                    "a segment with any timestamp goes by the largest" if claimed == "largest timestamp" else "",
                ),
                "event time" if rolled is None or rolled.value is None else f"the clock, {int(rolled.value)} of them",
            )
        )
    return Table(
        "policies-migration",
        "What a segment's deletion goes by, while the format changes: the real engine",
        ("the segment's messages", "segments", "deleted by", "rolled by"),
        tuple(rows),
        "KIP-33, compatibility, deprecation and migration plan",
        (
            "format 0.9.0 until the afternoon of day 2, then today's; every message is an hour late, so that the file's time and "
            "the largest CreateTime are an hour apart",
        ),
        (
            "the segment that begins in the old format is rolled by the clock, also once it has timestamps: as in Kafka, and "
            "unlike KIP-33, which asks for one message with a timestamp, whichever it is",
        ),
    )


def findings(found: Measurements) -> Iterable[str]:
    """Return the measured results that contradict the documents or are unexpected."""
    jump = "broker jumps 30 days"
    create, append = (
        found.value(RETENTION, jump, on_cluster(kind, 1), "off_ms") / 3_600_000 for kind in (CREATE_TIME, LOG_APPEND_TIME)
    )
    early, left = (found.value(RETENTION, jump, on_cluster(LOG_APPEND_TIME, 1), metric) for metric in ("early", "left"))
    plain = found.value(RETENTION, jump, PLAIN_CLOCK, "left")
    if left:
        yield (
            f"LogAppendTime is robust against producers, not against the broker: a clock that jumps 30 days ahead for an hour "
            f"deletes {early:.0f} messages too early with LogAppendTime, and what it stamped then keeps {left:.0f} to the end: "
            f"{append:.1f} hours off a message, against {create:.1f} with CreateTime. That append times never go back (KIP-32) "
            f"is not to blame: with Kafka's plain clock {plain:.0f} are kept: the segment that has the future time does not roll."
        )
    mixed = {kind: found.value(RETENTION, "mixed latency", on_cluster(kind, 2), "off_ms") / 3_600_000 for kind in broker.TYPES}
    yield (
        f"Pattern 3: by true age CreateTime is off by {mixed[CREATE_TIME]:.1f} hours a message on the second cluster, "
        f"LogAppendTime by {mixed[LOG_APPEND_TIME]:.1f}. A late message shares its segment with fresh ones and goes with them "
        f"under either; what KIP-32 called difficult, knowing a segment's latest CreateTime, is what KIP-33's index does."
    )
    flips = [ratio for ratio in RATIOS if sweep_tables.preferred_by_age(found, ratio) == CT]
    lost = [ratio for ratio in RATIOS if sweep_tables.unread(found, ratio, CREATE_TIME) > 0]
    if flips and lost:
        yield (
            f"Pattern 2: CreateTime is preferred by true age from a latency of {flips[0]:g} × retention.ms on, and from "
            f"{lost[0]:g} × on it deletes messages before anybody can have read them: there only {LAT} is of any use."
        )
    chosen = Counter(sweep_tables.preferred_when_mixed(found, ratio, seed) for ratio in MIXED_RATIOS for seed in SEEDS)
    yield (
        f"Pattern 3 on one cluster, {len(MIXED_RATIOS)} differences in latency and {len(SEEDS)} seeds: by true age CreateTime is "
        f"preferred in {chosen[CT]} runs, LogAppendTime in {chosen[LAT]}, and {chosen[EITHER]} are as good as equal."
    )
    refused = found.value(RETENTION, FUTURE, SANITY, "refused")
    left = found.value(RETENTION, FUTURE, on_cluster(CREATE_TIME, 1), "left")
    yield (
        f"One timestamp 30 days ahead keeps {left:.0f} messages to the end of the run under CreateTime; with "
        f"message.timestamp.after.max.ms {refused:.0f} message is refused and "
        f"{found.value(RETENTION, FUTURE, SANITY, 'left'):.0f} are left."
    )
    past = found.get(RETENTION, "one from the past", on_cluster(CREATE_TIME, 1), "off_ms")
    if past is not None and past.value == 0:
        yield "One timestamp 30 days behind changes nothing under CreateTime: the largest timestamp of its segment counts."
