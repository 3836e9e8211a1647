"""The plots of the study."""

from __future__ import annotations

from bisect import bisect_right

from studies.case import Measurements
from studies.chapter import Mark, Plot, Series
from studies.indexes import behaviour, density, replication
from studies.indexes.side_by_side import (
    APPEND_TIME,
    MINUTE_INDEX,
    MINUTE_MAP,
    PART,
    SECOND_INDEX,
    TIME_INDEX,
    WIDE,
)
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME


def _points(found: Measurements, part: str, case: str, subject: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    xs, ys = (tuple(map(float, found.text(part, case, subject, which).split(","))) for which in ("xs", "ys"))
    return xs, ys


def sizes(found: Measurements) -> Plot:
    """Return the size of each design's index with messages in order, strongly out of order, and with wrong clocks."""
    cases = [f"in order, {LOG_APPEND_TIME}", *(f"{name}, {CREATE_TIME}" for name in ("strongly out of order", "wrong clocks"))]
    series = []
    for case in cases:
        subjects = [
            subject
            for subject in (TIME_INDEX, SECOND_INDEX, MINUTE_INDEX, MINUTE_MAP, WIDE, APPEND_TIME)
            if subject in found.subjects(PART, case)
        ]
        series.append(Series(case, tuple(subjects), tuple(found.value(PART, case, subject, "bytes") for subject in subjects)))
    return Plot(
        "which-index-bytes",
        "Bytes of index on one log",
        tuple(series),
        Mark.BARS,
        "index",
        "bytes",
        log_y=True,
        caption="Each design's own file. The 16-byte index replaces the offset index; the others stand beside it.",
    )


def work(found: Measurements) -> Plot:
    """Return the bytes that a look-up reads, by index interval."""
    series = tuple(
        Series(
            case,
            tuple(float(interval) for interval in density.INTERVALS),
            tuple(
                found.value(density.PART, case, density.interval_name(interval), "log bytes a look-up, mean")
                for interval in density.INTERVALS
            ),
        )
        for case in found.cases(density.PART)
    )
    return Plot(
        "which-index-work",
        "Log read a look-up by index.interval.bytes",
        series,
        Mark.LINE,
        "index.interval.bytes",
        "bytes read, mean",
        log_y=True,
        log_x=True,
        caption="The answers are the same at every point.",
    )


def staircase(found: Measurements) -> Plot:
    """Return record timestamps, and the time index's value at each of them: points under a staircase."""
    records = _points(found, behaviour.PART, behaviour.STAIRCASE, "records")
    offsets, times = _points(found, behaviour.PART, behaviour.STAIRCASE, "time index")
    known = [(offset, bisect_right(offsets, offset) - 1) for offset in records[0]]
    steps = [(offset, times[entry]) for offset, entry in known if entry >= 0]
    return Plot(
        "which-index-staircase",
        "A time index is the staircase over its records",
        (
            Series("records", *records),
            Series("the time index so far", tuple(offset for offset, _ in steps), tuple(time for _, time in steps)),
        ),
        Mark.POINTS,
        "offset",
        "minutes since the first",
        caption="Half of the messages come half an hour late. Each step is an entry: up to there no record is later. A "
        "search for a "
        "time begins at the last entry that is not later, and takes the first record that reaches it.",
    )


def rebuilt(found: Measurements) -> Plot:
    """Return option 3's index as fetched, and as rebuilt after a crash."""
    case = replication.PLOTTED
    return Plot(
        "which-index-rebuilt",
        "Option 3: the index fetched from the leader, and rebuilt from the log",
        tuple(Series(subject, *_points(found, replication.PART, case, subject)) for subject in ("fetched", "rebuilt")),
        Mark.STEPS,
        "offset",
        "append time, hours since the first message",
        caption="All that the rebuilt one can say of what came before the crash is when it was rebuilt.",
    )
