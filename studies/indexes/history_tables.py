"""Truncation and start of the accepted design; option 3's index between replicas, and its effect on retention and rolling."""

from __future__ import annotations

from functools import partial

from studies.case import Measurements
from studies.chapter import Bytes, Cell, Claim, Millis, Table, Verdict
from studies.indexes import behaviour, replication

REPLICA = "replica"


def _claim(text: str, measured: str, holds: bool, statement: str = "") -> Claim:
    return Claim(text, measured, Verdict.CONFIRMED if holds else Verdict.REFUTED, statement)


def truncation(found: Measurements) -> Table:
    """Return the effect of a truncation on the accepted index."""
    rows: list[tuple[Cell, ...]] = []
    for subject in found.subjects(behaviour.PART, behaviour.TRUNCATION):
        value = partial(found.value, behaviour.PART, behaviour.TRUNCATION, subject)
        after, kept = value("entries after"), value("entries of records that stay")
        rows.append(
            (
                subject,
                Bytes(value("bytes cut")),
                int(value("segments before") - value("segments after")),
                int(value("entries before")),
                _claim(
                    "those of cut messages go",
                    f"{after:.0f} are left, {kept:.0f} of messages that stay",
                    after == kept,
                    "the entries of messages that are cut go with them",
                ),
                _claim(
                    "found by a scan from the last entry",
                    f"right, {value('bytes walked'):,.0f} bytes walked",
                    bool(value("largest timestamp is right")),
                    "a scan from the last entry finds the largest timestamp",
                ),
                bool(value("last entry is the largest")),
            )
        )
    return Table(
        "which-index-truncation",
        "The accepted index when the log is cut",
        (
            "Cut",
            "Bytes cut",
            "Segments gone",
            "Entries before",
            "Entries after",
            "Largest timestamp",
            "The last entry alone would be right",
        ),
        tuple(rows),
        source='KIP-33, "Log truncation"',
    )


def starts(found: Measurements) -> Table:
    """Return what the engine reads at a start."""
    rows: list[tuple[Cell, ...]] = []
    for subject in found.subjects(behaviour.PART, behaviour.STARTS):
        value = partial(found.value, behaviour.PART, behaviour.STARTS, subject)
        segments, right = value("segments"), value("last entries that are the largest, before")
        clean = subject == "after a clean end"
        walked, active = value("bytes walked"), value("bytes of the active segment")
        rows.append(
            (
                subject,
                int(segments),
                _claim("the largest timestamp", f"{right:.0f} of {segments:.0f}", right == segments)
                if clean
                else f"{right:.0f} of {segments:.0f}",
                _claim("nothing", f"{walked:,.0f} bytes", walked == 0)
                if clean
                else _claim("the active segment", f"{walked:,.0f} bytes; it has {active:,.0f}", walked == active),
                f"{value('largest timestamps known'):.0f} of {segments:.0f}",
                bool(value("last entries as after a clean end")),
            )
        )
    return Table(
        "which-index-starts",
        "The accepted index at a start: the engine itself",
        ("Start", "Segments", "Last entries", "Log walked", "Largest timestamps right then", "Same last entries in the end"),
        tuple(rows),
        source='KIP-33, "Broker startup"',
        notes=(
            "After a crash everything behind the recovery point is walked. It stands at the active segment because rolled "
            "ones are "
            "flushed at once; a crash before that costs more than the active one.",
        ),
    )


def carried(found: Measurements) -> Table:
    """Return the state of option 3's index on the replicas."""
    rows: list[tuple[Cell, ...]] = []
    for history in found.cases(replication.PART):
        value = partial(found.value, replication.PART, history, REPLICA)
        rows.append(
            (
                history,
                int(value("leader's entries")),
                int(value("entries")),
                bool(value("identical")),
                int(value("entries that differ")),
                int(value("entries fetched again")),
                int(value("entries rebuilt")),
                bool(value("same segments")),
                int(value("segments without a last entry")),
                int(value("wrong first times")),
                value("entries on the wire") / value("fetches"),
                value("entries on the wire") / value("fetched bytes") * 100,
            )
        )
    return Table(
        "which-index-carried",
        "Option 3: the index that came with the data, and the one built again",
        (
            "History",
            "Leader's entries",
            "Replica's",
            "Identical",
            "Entries that differ",
            "Fetched again after the crash",
            "Rebuilt then",
            "Same segments",
            "Closed segments without their last message",
            "Segments whose first time is wrong",
            "Bytes more in a fetch response",
            "… % of the data",
        ),
        tuple(rows),
        source='KIP-32 draft 31, option 3, "Let replicas to also fetch log index file", requirements 1 to 4',
        notes=(
            "Caught up: the entry for a segment's last message is made when the segment rolls, and the follower has that message "
            "by then. An array with the entries of the message set never carries it: requirements 1 and 3 "
            "contradict the "
            "response as it is drawn. Sent along with the next segment, the indexes are the same.",
            "Both crash: identical, and wrong: the leader had nobody to fetch from, and its times are now everybody's.",
        ),
    )


def consequences(found: Measurements) -> Table:
    """Return the errors of retention and rolling that follow."""
    rows: list[tuple[Cell, ...]] = []
    for history in found.cases(replication.PART):
        value = partial(found.value, replication.PART, history, REPLICA)
        rows.append(
            (
                history,
                int(value("segments")),
                int(value("deleted too early")),
                Millis(value("deleted too early, at most")),
                Bytes(value("deleted too early, bytes")),
                int(value("kept too long")),
                Millis(value("kept too long, at most")),
                Bytes(value("kept too long, bytes")),
                _shift(value("rolls later by")),
                int(value("segment larger by")),
            )
        )
    return Table(
        "which-index-consequences",
        "Option 3: what retention and rolling do with that index",
        (
            "History",
            "Segments",
            "Deleted too early",
            "… by at most",
            "… bytes",
            "Kept too long",
            "… by at most",
            "… bytes",
            "If it leads: rolls later by",
            "… bytes more in the segment",
        ),
        tuple(rows),
        source="KIP-32 draft 31, use cases, log retention and log rolling under option 3",
        assumptions=(
            f"retention.ms {replication.RETENTION_MS:,}, segments roll after {replication.ROLL_MS:,} ms; retention's own rules, "
            "asked at every millisecond, with the replica's index and with the true append times",
        ),
        notes=(
            "An active segment's last entry may be up to a minute older than its last message, in every history: what is "
            "deleted too "
            "early by less than a minute is that, or a missing last entry.",
        ),
    )


def _shift(milliseconds: float) -> Cell:
    return Millis(milliseconds) if milliseconds >= 0 else f"{milliseconds:,.0f} ms: too early"
