"""The documents' sentences about the designs, each with its measured result."""

from __future__ import annotations

from studies.case import Measurements
from studies.chapter import Cell, Claim, Table, Verdict
from studies.indexes import behaviour, replication
from studies.indexes.side_by_side import (
    CLOCK_SET_BACK,
    MINUTE_INDEX,
    MINUTE_MAP,
    NAIVE_MAP,
    PART,
    SECOND_INDEX,
    TIME_INDEX,
)
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME

INEXACT, MISSED, READ = "look-up: inexact answers", "look-up: records missed", "look-up: log bytes, mean"
DISORDERED = f"strongly out of order, {CREATE_TIME}"
WRONG_CLOCKS = f"wrong clocks, {CREATE_TIME}"
IN_ORDER = f"in order, {LOG_APPEND_TIME}"


def _holds(holds: bool) -> Verdict:
    return Verdict.CONFIRMED if holds else Verdict.REFUTED


def sentences(found: Measurements) -> Table:
    """Return the table."""
    rows: list[tuple[Cell, ...]] = [*_accepted(found), *_rejected(found), *_option_3(found)]
    return Table(
        "which-index-sentences",
        "What the documents say of each index, and what a run says",
        ("Document", "Sentence, in our words", "Found"),
        tuple(rows),
        source="KIP-33; KIP-32 draft 31, option 3",
    )


def _accepted(found: Measurements) -> list[tuple[Cell, ...]]:
    cases = found.cases(PART)

    def total(metric: str) -> float:
        return sum(found.value(PART, case, TIME_INDEX, metric) for case in cases)

    asked, wrong = total("look-ups"), total(INEXACT)
    within = total("entries that go back within a file")
    between = found.value(PART, DISORDERED, TIME_INDEX, "segments that begin before the last one's end")
    rebuilt = sum(found.value(PART, case, TIME_INDEX, "crash: same file") for case in cases)
    after = "after a crash"
    recovered = found.value(behaviour.PART, behaviour.STARTS, after, "last entries as after a clean end")
    return [
        (
            "KIP-33, proposed changes",
            "the index works for LogAppendTime and CreateTime",
            Claim("for both", f"{wrong:.0f} of {asked:,.0f} answers wrong, on {len(cases)} logs", _holds(wrong == 0)),
        ),
        (
            "KIP-33, build the time index",
            "times grow within each file, not from a segment to the next",
            Claim(
                "only within",
                f"entries that go back in a file: {within:.0f}; segments that begin before the last one's end: "
                f"{between:.0f}, {DISORDERED}",
                _holds(within == 0),
            ),
        ),
        (
            "KIP-33, broker startup",
            "after a hard failure the active segment is scanned",
            Claim(
                "the index is whole again",
                f"the same files on {rebuilt:.0f} of {len(cases)} logs, rebuilt from the log alone",
                _holds(rebuilt == len(cases) and recovered == 1),
            ),
        ),
    ]


def _rejected(found: Measurements) -> list[tuple[Cell, ...]]:
    exact = found.value(PART, IN_ORDER, MINUTE_INDEX, INEXACT) + found.value(PART, IN_ORDER, SECOND_INDEX, INEXACT)
    reads = [found.value(PART, IN_ORDER, subject, READ) for subject in (MINUTE_INDEX, SECOND_INDEX)]
    back = found.value(PART, CLOCK_SET_BACK, MINUTE_INDEX, MISSED)
    misused = found.value(PART, WRONG_CLOCKS, MINUTE_INDEX, MISSED)
    create_time = [case for case in found.cases(PART) if found.get(PART, case, MINUTE_MAP, INEXACT) is not None]
    right = sum(found.value(PART, case, MINUTE_MAP, INEXACT) for case in create_time)
    naive = sum(found.value(PART, case, NAIVE_MAP, MISSED) for case in create_time)
    loaded = all(found.value(PART, case, MINUTE_MAP, "loaded as it was held") for case in create_time)
    dropped = found.value(PART, DISORDERED, MINUTE_MAP, "entries dropped with the first segment")
    return [
        (
            "KIP-33, rejected option 1",
            "granularity changes the time that a search needs, not its precision",
            Claim(
                "the same answers",
                f"{exact:.0f} inexact; minutes read {reads[0]:,.0f} bytes of log a look-up, seconds {reads[1]:,.0f}",
                _holds(exact == 0),
            ),
        ),
        (
            "KIP-33, rejected option 1",
            "the index is built on LogAppendTime",
            Claim(
                "times never go back",
                f"{back:,.0f} records missed where the broker's clock does, {misused:,.0f} on CreateTime with wrong clocks",
                Verdict.PARTLY if back else Verdict.CONFIRMED,
            ),
        ),
        (
            "KIP-33, rejected option 2",
            "CreateTime can be out of order: the challenge",
            Claim(
                "a map of every minute solves it",
                f"{right:.0f} inexact if every later minute is looked at, {naive:,.0f} records missed if only the closest is",
                Verdict.PARTLY if naive else _holds(right == 0),
            ),
        ),
        (
            "KIP-33, rejected option 2",
            "the file is a lasting copy of the map, loaded at the start",
            Claim("the same map", f"the same on {len(create_time)} logs" if loaded else "another map", _holds(loaded)),
        ),
        (
            "KIP-33, rejected option 2",
            "with a segment its key and its file go",
            Claim("both go", f"{dropped:.0f} entries and their file gone, {DISORDERED}", _holds(dropped > 0)),
        ),
    ]


def _option_3(found: Measurements) -> list[tuple[Cell, ...]]:
    def value(history: str, metric: str) -> float:
        return found.value(replication.PART, history, "replica", metric)

    plotted = replication.PLOTTED
    fetched = [name for name, one in replication.HISTORIES.items() if one.recovery == "fetched" and one.with_closing]
    same = sum(value(name, "identical") for name in fetched)
    segments = all(value(name, "same segments") for name in replication.HISTORIES)
    without, early = value("caught up", "segments without a last entry"), value("caught up", "deleted too early, at most")
    uncut = value("leader crashes, entries not cut", "entries that differ")
    entries, times = value(plotted, "entries rebuilt"), value(plotted, "different times among them")
    later = value("both crash", "rolls later by")
    document = "KIP-32 draft 31, option 3"
    return [
        (
            document,
            "the index is fetched, not rebuilt, or replicas have different ones",
            Claim(
                "fetched: the same",
                f"{same:.0f} of {len(fetched)} histories end with the same; rebuilt: "
                f"{value(plotted, 'entries that differ'):,.0f} entries differ",
                _holds(same == len(fetched)),
            ),
        ),
        (
            document,
            "an entry for a segment's first message makes segments the same on leader and follower",
            Claim("the same segments", "the same in every history" if segments else "not the same", _holds(segments)),
        ),
        (
            document,
            "retention needs the entry for a segment's last message",
            Claim(
                "it comes with the message set",
                f"{without:.0f} segments of a follower that keeps up never get it, and go up to {early / 1000:,.1f} s too early",
                _holds(without == 0),
            ),
        ),
        (
            document,
            "when messages are truncated, so must the entries be",
            Claim(
                "or they differ",
                f"entries that differ if they are not: {uncut:.0f}",
                Verdict.CONFIRMED if uncut else Verdict.NOT_MEASURABLE,
            ),
        ),
        (
            document,
            "rebuilt times differ from the true ones and lie very close, or are the same",
            Claim(
                "very close, or the same",
                f"{entries:.0f} entries were rebuilt, different times among them: {times:.0f}",
                _holds(0 < times <= 2),
            ),
        ),
        (
            document,
            "after a recovery rolling may not be honoured either",
            Claim("may not", f"the segment rolls {later / 3_600_000:.1f} h late", _holds(later > 0)),
        ),
    ]
