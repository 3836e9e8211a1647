"""The tables that compare the designs: a table for each log, a table of errors, and a table of KIP-33's guarantees."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from studies.case import Measurements
from studies.chapter import Bytes, Cell, Claim, Table, Verdict
from studies.indexes.side_by_side import (
    APPEND_TIME,
    INTERVAL_BYTES,
    MINUTE_INDEX,
    MINUTE_MAP,
    PART,
    SECOND_INDEX,
    TIME_INDEX,
    WIDE,
    WIDE_OWN,
)

SHOWN = (TIME_INDEX, MINUTE_INDEX, SECOND_INDEX, MINUTE_MAP, WIDE, WIDE_OWN, APPEND_TIME)
COLUMNS = (
    "Index",
    "Entries",
    "On disk",
    "In memory, with the offset index",
    "Index read a look-up",
    "Log read a look-up",
    "… 99 of 100",
    "Records read before the answer",
    "Wrong answers",
    "Clean start, index",
    "… and log",
    "Start after a crash, log",
    "Same file then",
)
IN_MEMORY = "in memory: entries times their size, as Kafka maps both files; what a map of objects costs a JVM on top is left out"
READ = "read a look-up: entries that are probed, and whole batches from where the index leads to the one with the answer"
CLEAN = "clean start: what it takes to know each segment's largest time, which retention and the next append need"


def side_by_side(found: Measurements) -> Iterator[Table]:
    """Yield one table for each log."""
    for number, case in enumerate(found.cases(PART)):
        records = found.value(PART, case, "log", "records")
        size, segments = found.value(PART, case, "log", "bytes"), found.value(PART, case, "log", "segments")
        disordered = found.value(PART, case, "log", "records behind an earlier one")
        yield Table(
            f"which-index-log-{number + 1}",
            f"The designs on one log: {case}",
            COLUMNS,
            tuple(_row(found, case, subject) for subject in SHOWN if subject in found.subjects(PART, case)),
            source="KIP-33, rejected alternatives; KIP-32, option 3",
            assumptions=(IN_MEMORY, READ, CLEAN),
            notes=(
                f"{records:,.0f} records, {size:,.0f} bytes, {segments:.0f} segments, an index entry at most every "
                f"{INTERVAL_BYTES:,} bytes; {disordered:,.0f} records are earlier than one before them.",
            ),
        )


def _row(found: Measurements, case: str, subject: str) -> tuple[Cell, ...]:
    value = partial(found.value, PART, case, subject)
    wrong, asked = value("look-up: inexact answers"), value("look-ups")
    return (
        subject,
        int(value("entries")),
        Bytes(value("bytes")),
        Bytes(value("bytes, both")),
        Bytes(value("look-up: index bytes, mean")),
        Bytes(value("look-up: log bytes, mean")) if subject != APPEND_TIME else "by the consumer",
        Bytes(value("look-up: log bytes, p99")) if subject != APPEND_TIME else "by the consumer",
        value("look-up: records before the answer, mean"),
        f"{wrong:.0f} of {asked:.0f}",
        f"{value('start: entries'):,.0f} entries, {value('start: index bytes'):,.0f} B",
        Bytes(value("start: log bytes")),
        Bytes(value("crash: log bytes")),
        bool(value("crash: same file")),
    )


def mistakes(found: Measurements) -> Table:
    """Return each design's errors, with an example of each."""
    rows: list[tuple[Cell, ...]] = []
    for case in found.cases(PART):
        for subject in found.subjects(PART, case):
            example = found.get(PART, case, subject, "example")
            wrong_starts = found.get(PART, case, subject, "start: largest times wrong")
            starts = 0 if wrong_starts is None else int(wrong_starts.value or 0)
            if example is not None or starts:
                rows.append(
                    (
                        case,
                        subject,
                        int(found.value(PART, case, subject, "look-ups")),
                        int(found.value(PART, case, subject, "look-up: inexact answers")),
                        int(found.value(PART, case, subject, "look-up: answers that miss records")),
                        int(found.value(PART, case, subject, "look-up: records missed")),
                        starts,
                        None if example is None else example.text,
                    )
                )
    return Table(
        "which-index-mistakes",
        "What each design gets wrong",
        (
            "Log",
            "Index",
            "Look-ups",
            "Inexact",
            "That miss records",
            "Records missed",
            "Segments whose largest time it has wrong",
            "The first of them",
        ),
        tuple(rows),
        source="KIP-33, rejected options 1 and 2, and the offset index with a timestamp; KIP-32 draft 31, option 3",
        notes=(
            "The minute and second index are meant for LogAppendTime; under CreateTime they are shown to be wrong there.",
            "The append time index is asked for append times. Its answers are early by up to a minute of messages, and as "
            "those do not bear the time, no consumer can leave the early ones out.",
            "Designs and logs that are not here made no mistake.",
            "Where the 16-byte index reads more log than the accepted one, that is each earlier segment's end, behind its "
            "last entry: a "
            "closing entry, as the accepted design has, would spare it.",
        ),
    )


def guarantees(found: Measurements) -> Table:
    """Return KIP-33's guarantees of the search, counted."""
    rows: list[tuple[Cell, ...]] = []
    for case in found.cases(PART):
        missed = int(found.value(PART, case, TIME_INDEX, "look-up: records missed"))
        behind = found.value(PART, case, TIME_INDEX, "look-up: earlier records behind the answer, mean")
        verdict = Verdict.CONFIRMED if missed == 0 else Verdict.REFUTED
        rows.append(
            (
                case,
                int(found.value(PART, case, TIME_INDEX, "look-ups")),
                Claim("none is missed", f"{missed} missed", verdict, "no message at or after the time is missed"),
                Claim(
                    "some may be",
                    f"{behind:,.1f} a look-up" if behind else "none",
                    Verdict.CONFIRMED,
                    "messages before the time may be read, too",
                ),
                int(found.value(PART, case, TIME_INDEX, "look-up: inexact answers")),
            )
        )
    return Table(
        "which-index-guarantees",
        "KIP-33's guarantees of a search, counted",
        (
            "Log",
            "Look-ups",
            "Messages at or after the time",
            "Earlier messages read after the answer",
            "Answers that are not the first such message",
        ),
        tuple(rows),
        source='KIP-33, "Search message by timestamp"',
        notes=("Earlier messages are those behind the answer to the log's end: what a consumer gets that reads on.",),
    )
