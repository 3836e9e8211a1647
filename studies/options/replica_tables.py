"""The tables about replicas: retention, rolling, and a new leader with a slower clock."""

from __future__ import annotations

from studies.case import Measurements
from studies.chapter import Cell, Claim, Millis, Table
from studies.options import leader_change, replicas
from studies.options.option_table import Worst, percent, verdict
from studies.quantities import show_millis


def retention_table(m: Measurements) -> Table:
    """Return by how much segments are deleted too late or too early on each kind of replica."""
    rows = []
    for subject in replicas.SUBJECTS:
        worst = [
            Worst(
                m.value(replicas.RETENTION, role, subject, "kept too long, most"),
                m.value(replicas.RETENTION, role, subject, "deleted too early, most"),
            )
            for role in replicas.ROLES
        ]
        rows.append((subject, *map(str, worst)))
    return Table(
        "options-retention",
        "Retention: how far from the truth segments go",
        ("Rule", *replicas.ROLES),
        tuple(rows),
        source="KIP-32 draft 31, Options comparison, Log retention",
        assumptions=(_replica_assumption(), f"{replicas.SEGMENTS} segments, rolled by size so that they are alike everywhere."),
        notes=(
            "CreateTime topics go by when messages were made: earlier than the append by the latency, on every replica alike.",
        ),
    )


def rolling_table(m: Measurements) -> Table:
    """Return how the segments of each kind of replica compare with the leader's."""
    rows = []
    for subject in replicas.SUBJECTS:
        cells: list[Cell] = [subject]
        for role in replicas.ROLES:
            segments = int(m.value(replicas.ROLLING, role, subject, "segments"))
            alike = m.value(replicas.ROLLING, role, subject, "segments as the leader's")
            overdue = m.value(replicas.ROLLING, role, subject, "overdue, most")
            late = f", one {show_millis(overdue)} too long" if overdue else ""
            cells.append(f"{segments}, {percent(alike)}{late}")
        rows.append(tuple(cells))
    return Table(
        "options-rolling",
        "Rolling by time: segments, and how many of them begin where the leader's do",
        ("Rule", *replicas.ROLES),
        tuple(rows),
        source="KIP-32 draft 31, Options comparison, Log rolling",
        assumptions=(_replica_assumption(), f"`segment.ms` {show_millis(replicas.SEGMENT_MS)}, no limit of size."),
    )


def _replica_assumption() -> str:
    return (
        f"{replicas.HOURS} h of messages in requests of {replicas.REQUEST_MESSAGES}; followers are"
        f" {show_millis(replicas.FOLLOWER_LAG_MS)} behind, their clocks {show_millis(-replicas.FOLLOWER_SKEW_MS)} slow; crash"
        f" after {percent(replicas.CRASH_AT)} of the messages, reassignment after {percent(replicas.REASSIGNED_AT)}."
    )


def leader_table(m: Measurements) -> Table:
    """Return the table of the corner case: a new leader with a slower clock."""
    case = "clock behind"

    def value(subject: str, metric: str) -> float:
        return m.value(leader_change.PART, case, subject, metric)

    rows: list[tuple[Cell, ...]] = []
    for subject in (leader_change.ENGINE_RULE, leader_change.MODEL_RULE, leader_change.ENGINE_PLAIN):
        back = int(value(subject, "steps back"))
        plain = subject == leader_change.ENGINE_PLAIN
        claimed = (
            "Times go backward in the log"
            if plain
            else "Times do not go backward; the last one is given until the clock has passed it"
        )
        rows.append(
            (
                subject,
                Claim(claimed, f"{back} steps back", verdict((back > 0) == plain), "" if plain else claimed),
                Millis(value(subject, "largest step back")),
                int(value(subject, "messages with the old leader's last time")),
                Millis(value(subject, "largest error of LogAppendTime")),
            )
        )
    return Table(
        "options-leader-change",
        "A new leader with a slower clock",
        (
            "Rule",
            "Order of times",
            "Largest step back",
            "Messages with the old leader's last time",
            "Largest error of LogAppendTime",
        ),
        tuple(rows),
        source="KIP-32 draft 31, A corner case for LogAppendTime",
        assumptions=(
            f"The new leader's clock is {show_millis(leader_change.BEHIND_MS)} slow; two brokers of the storage engine,"
            " `tidelog.log.append.time.monotonic` true and false.",
        ),
    )
