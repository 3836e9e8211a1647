"""All designs on one log: sizes, look-ups, starts, and errors. Each case is one workload with one timestamp type.

| workload | |
|---|---|
| in order | each message arrives 5 ms after its creation |
| mildly out of order | KIP-32's pattern 1: latencies of at least 5 ms, plus 20 ms on average |
| strongly out of order | pattern 3: every second message half an hour late |
| wrong clocks | one clock in 500 is an hour ahead |
| clock set back | Kafka's LogAppendTime on a broker whose clock is set back by five minutes halfway; small segments |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from studies.case import Case, Measurement
from studies.indexes.builders import AppendTimeIndex, EntryFiles, GranularIndex, MinuteMap, WideOffsetIndex
from studies.indexes.readers import (
    AppendTimeReader,
    FileReader,
    GranularReader,
    MinuteMapReader,
    NaiveMinuteMapReader,
    TimeIndexReader,
    WideReader,
)
from studies.indexes.starting import Rebuilt, rebuild, rebuild_time_index, start_clean
from studies.indexes.written_log import WalkedLog, WrittenLog, write_log
from studies.workload import (
    HOUR_MS,
    MINUTE_MS,
    MIXED_LATENCY,
    SECOND_MS,
    SMALL_LATENCY,
    Int64s,
    Latency,
    Workload,
    WrongClock,
    generate,
)
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME, PropertyValue
from tidelog.formats.names import file_name

PART = "designs"

TIME_INDEX = "time index (accepted)"
MINUTE_INDEX = "minute index"
SECOND_INDEX = "second index"
MINUTE_MAP = "minute map"
NAIVE_MAP = "minute map, closest minute only"
WIDE = "16-byte offset index"
WIDE_OWN = "16-byte offset index, the message's own time"
APPEND_TIME = "append time index (option 3)"

IN_ORDER = Latency("in order", smallest_ms=5, mean_extra_ms=0.0)
HALF_LATE = replace(MIXED_LATENCY, late_ms=30 * MINUTE_MS)
SET_BACK_MS = 5 * MINUTE_MS
INTERVAL_BYTES = 4096
SEGMENT_BYTES = 1 << 20
SMALL_SEGMENT_BYTES = 128 << 10
"""Less than five minutes of messages, so that a segment begins while the clock repeats itself."""
REBUILD_AFTER_MS = HOUR_MS
"""How long after the log's end the broker recovers from a crash."""


def workloads(scale: float) -> dict[str, Workload]:
    """Return the workload of that name."""
    records = max(400, round(24_000 * scale))
    base = Workload("in order", 33, records, 300.0, IN_ORDER, value_bytes=200)
    return {
        base.name: base,
        "mildly out of order": replace(base, name="mildly out of order", latency=SMALL_LATENCY, interval_ms=300.0),
        "strongly out of order": replace(base, name="strongly out of order", latency=HALF_LATE),
        "wrong clocks": replace(base, name="wrong clocks", latency=SMALL_LATENCY, wrong_clock=WrongClock(0.002, HOUR_MS)),
    }


CLOCK_SET_BACK = "clock set back"


def cases(scale: float) -> list[Case]:
    """Return a case for each workload with each timestamp type, and one for a broker whose clock is set back."""
    found = [
        Case(PART, f"{name}, {kind}", {"workload": name, "type": kind, "scale": scale})
        for name in workloads(scale)
        for kind in (CREATE_TIME, LOG_APPEND_TIME)
    ]
    set_back: dict[str, int | float | str | bool] = {"workload": "in order", "type": LOG_APPEND_TIME, "scale": scale}
    return [*found, Case(PART, CLOCK_SET_BACK, {**set_back, "set_back_ms": SET_BACK_MS})]


@dataclass
class LookUps:
    """The totals of many look-ups."""

    index_bytes: list[int] = field(default_factory=list)
    log_bytes: list[int] = field(default_factory=list)
    early: list[int] = field(default_factory=list)
    """The number of records read before the result."""
    inexact: int = 0
    """The number of wrong results."""
    missing: int = 0
    """The number of results that are too far along in the log, or missing although a record exists."""
    missed: int = 0
    """The number of records before the result whose time is at or after the target."""
    behind: list[int] = field(default_factory=list)
    """The number of records after the result whose time is before the target; a reader that continues gets them."""
    example: str = ""


def measure(case: Case, work_dir: Path) -> Iterator[Measurement]:
    """Write one log, and measure every design on it."""
    scale, kind = float(case.parameters["scale"]), str(case.parameters["type"])
    messages = generate(workloads(scale)[str(case.parameters["workload"])])
    set_back_ms = int(case.parameters.get("set_back_ms", 0))
    half = len(messages) // 2
    parts = [(messages.part(0, half), set_back_ms), (messages.part(half, len(messages)), 0)] if set_back_ms else [(messages, 0)]
    builders = _builders(work_dir / "designs", kind)
    properties: dict[str, PropertyValue] = {
        "segment.bytes": SMALL_SEGMENT_BYTES if set_back_ms else SEGMENT_BYTES,
        "index.interval.bytes": INTERVAL_BYTES,
        "message.timestamp.type": kind,
        "tidelog.log.append.time.monotonic": not set_back_ms,
    }
    written = write_log(work_dir / "log", parts, list(builders.values()), properties=properties)
    with WalkedLog(written.directory) as log:
        readers = _readers(log, builders)
        offset_bytes = sum(segment.offset_index.size_bytes for segment in log.segments)
        yield from _log_rows(case, log, written, offset_bytes)
        for subject, reader in readers.items():
            times = written.append_ms if isinstance(reader, AppendTimeReader) else written.timestamps
            if subject != NAIVE_MAP:
                yield from _size_rows(case, subject, reader, offset_bytes)
                yield from _start_rows(case, subject, log, reader, written)
                yield from _rebuild_rows(case, subject, log, builders.get(subject), work_dir / "rebuilt" / subject, written)
            yield from _look_up_rows(case, subject, look_up_all(reader, times, targets(times, scale)))
            if isinstance(reader, FileReader):
                reader.close()
        yield from _order_rows(case, log)
        held, loaded = builders.get(MINUTE_MAP), readers.get(MINUTE_MAP)
        if isinstance(held, MinuteMap) and isinstance(loaded, MinuteMapReader):
            yield from _map_rows(case, held, loaded)


def targets(times: Int64s, scale: float) -> list[int]:
    """Return seeded target times (ms): half are records' own times, half are anywhere, from a second before to a second after the
    log.
    """
    random = np.random.default_rng(79)
    count = max(20, round(150 * scale))
    own = random.choice(times, count)
    anywhere = random.integers(int(times.min()) - SECOND_MS, int(times.max()) + SECOND_MS, count)
    return [int(time) for time in np.concatenate([own, anywhere])]


def look_up_all(reader: FileReader | MinuteMapReader, times: Int64s, wanted: list[int]) -> LookUps:
    """Look up each time, and compare with a scan of every record."""
    found = LookUps()
    for timestamp in wanted:
        answer = reader.look_up(timestamp)  # type: ignore[union-attr]
        reached = times >= timestamp
        truth = int(reached.argmax()) if reached.any() else None
        missed = int(reached[: answer.offset].sum()) if answer.offset is not None else int(reached.sum())
        found.index_bytes.append(answer.index_bytes)
        found.log_bytes.append(answer.log_bytes)
        if truth is not None and answer.start_offset is not None:
            found.early.append(max(0, truth - answer.start_offset))
        if answer.offset is not None:
            found.behind.append(int((~reached[answer.offset :]).sum()))
        found.inexact += answer.offset != truth
        found.missing += missed > 0
        found.missed += missed
        if answer.offset != truth and not found.example:
            said = "no record" if answer.offset is None else f"offset {answer.offset:,}"
            right = "there is none" if truth is None else f"offset {truth:,} has {_clock_time(int(times[truth]))} already"
            cost = f"{missed:,} missed" if missed else "what is read up to there is earlier, and nothing tells"
            found.example = f"T = {_clock_time(timestamp)}: answers {said}; {right}; {cost}"
    return found


def _clock_time(timestamp: int) -> str:
    return f"{datetime.fromtimestamp(timestamp / 1000, UTC):%H:%M:%S}.{timestamp % 1000:03}"


def _builders(folder: Path, kind: str) -> dict[str, EntryFiles]:
    builders: dict[str, EntryFiles] = {
        MINUTE_INDEX: GranularIndex(folder / "minute"),
        SECOND_INDEX: GranularIndex(folder / "second", SECOND_MS),
        WIDE: WideOffsetIndex(folder / "wide"),
        WIDE_OWN: WideOffsetIndex(folder / "own", own_timestamp=True),
    }
    if kind == CREATE_TIME:
        builders[MINUTE_MAP] = MinuteMap(folder / "map")
        builders[APPEND_TIME] = AppendTimeIndex(folder / "append")
    return builders


def _readers(log: WalkedLog, builders: dict[str, EntryFiles]) -> dict[str, FileReader | MinuteMapReader]:
    readers: dict[str, FileReader | MinuteMapReader] = {TIME_INDEX: TimeIndexReader(log)}
    for subject, builder in builders.items():
        if isinstance(builder, GranularIndex):
            readers[subject] = GranularReader(log, builder.folder)
        elif isinstance(builder, WideOffsetIndex):
            readers[subject] = WideReader(log, builder.folder)
        elif isinstance(builder, MinuteMap):
            readers[subject] = MinuteMapReader(log, builder.folder)
            readers[NAIVE_MAP] = NaiveMinuteMapReader(log, builder.folder)
        else:
            readers[subject] = AppendTimeReader(log, builder.folder)
    return readers


def _log_rows(case: Case, log: WalkedLog, written: WrittenLog, offset_bytes: int) -> Iterator[Measurement]:
    real = [segment.segment.index_path(".timeindex").stat().st_size for segment in log.segments]
    behind = np.maximum.accumulate(written.timestamps) - written.timestamps
    for metric, value, unit in (
        ("scale", float(case.parameters["scale"]), ""),
        ("records", len(written.timestamps), "records"),
        ("batches", written.batches, "batches"),
        ("segments", len(log.segments), "segments"),
        ("bytes", sum(segment.size_bytes for segment in log.segments), "bytes"),
        ("span", int(written.append_ms.max() - written.append_ms.min()), "ms"),
        ("offset index bytes", offset_bytes, "bytes"),
        (".timeindex bytes", sum(real), "bytes"),
        ("records behind an earlier one", int((behind > 0).sum()), "records"),
        ("largest disorder", int(behind.max()), "ms"),
    ):
        yield Measurement(case.part, case.name, "log", metric, float(value), unit)


def _order_rows(case: Case, log: WalkedLog) -> Iterator[Measurement]:
    """Check whether times in the indexes decrease: they must never decrease within a file, and between segments only if the
    log's times do.
    """
    reader = TimeIndexReader(log)
    within = between = 0
    before = -1
    for index in reader.files:
        times = [index.entry(slot).timestamp for slot in range(index.entries)]
        within += sum(earlier >= later for earlier, later in pairwise(times))
        between += bool(times) and times[0] < before
        before = times[-1] if times else before
    reader.close()
    yield Measurement(case.part, case.name, TIME_INDEX, "entries that go back within a file", float(within), "entries")
    yield Measurement(
        case.part, case.name, TIME_INDEX, "segments that begin before the last one's end", float(between), "segments"
    )


def _map_rows(case: Case, builder: MinuteMap, reader: MinuteMapReader) -> Iterator[Measurement]:
    """Compare the loaded map with the one kept while writing; delete the first segment from the latter."""
    held = dict(builder.minutes)
    loaded = {segment.base_offset: known for segment, known in zip(reader.log.segments, reader.minutes, strict=True)}
    yield Measurement(case.part, case.name, MINUTE_MAP, "loaded as it was held", float(loaded == held), "")
    first = reader.log.segments[0].base_offset
    builder.delete_segment(first)
    gone = len(held[first]) if first not in builder.minutes and not builder.path(first).exists() else 0
    yield Measurement(case.part, case.name, MINUTE_MAP, "entries dropped with the first segment", float(gone), "entries")


def _size_rows(case: Case, subject: str, reader: FileReader | MinuteMapReader, offset_bytes: int) -> Iterator[Measurement]:
    own = reader.entries * reader.entry_bytes
    total = own if isinstance(reader, WideReader) else own + offset_bytes
    for metric, value, unit in (("entries", reader.entries, "entries"), ("bytes", own, "bytes"), ("bytes, both", total, "bytes")):
        yield Measurement(case.part, case.name, subject, metric, float(value), unit)


def _start_rows(
    case: Case, subject: str, log: WalkedLog, reader: FileReader | MinuteMapReader, written: WrittenLog
) -> Iterator[Measurement]:
    start = start_clean(log, reader)
    times = written.append_ms if isinstance(reader, AppendTimeReader) else written.timestamps
    true = [int(times[segment.base_offset : segment.end_offset].max()) for segment in log.segments]
    wrong = sum(known != largest for known, largest in zip(start.largest, true, strict=True))
    for metric, value, unit in (
        ("start: entries", start.entries, "entries"),
        ("start: index bytes", start.index_bytes, "bytes"),
        ("start: log bytes", start.log_bytes, "bytes"),
        ("start: largest times wrong", wrong, "segments"),
    ):
        yield Measurement(case.part, case.name, subject, metric, float(value), unit)


def _rebuild_rows(
    case: Case, subject: str, log: WalkedLog, builder: EntryFiles | None, scratch: Path, written: WrittenLog
) -> Iterator[Measurement]:
    last = log.segments[-1]
    if builder is None:
        rebuilt: Rebuilt = rebuild_time_index(last, INTERVAL_BYTES)
    else:
        fresh = _fresh(builder, scratch)
        now_ms = int(written.append_ms.max()) + REBUILD_AFTER_MS
        rebuilt = rebuild(last, fresh, builder.folder / file_name(last.base_offset, builder.SUFFIX), INTERVAL_BYTES, now_ms)
    yield Measurement(case.part, case.name, subject, "crash: log bytes", float(rebuilt.log_bytes), "bytes")
    yield Measurement(case.part, case.name, subject, "crash: records opened", float(rebuilt.records_opened), "records")
    yield Measurement(case.part, case.name, subject, "crash: same file", float(rebuilt.is_identical), "")


def _fresh(builder: EntryFiles, folder: Path) -> EntryFiles:
    if isinstance(builder, GranularIndex):
        return GranularIndex(folder, builder.granule_ms)
    if isinstance(builder, WideOffsetIndex):
        return WideOffsetIndex(folder, own_timestamp=builder.own_timestamp)
    return type(builder)(folder)


def _look_up_rows(case: Case, subject: str, found: LookUps) -> Iterator[Measurement]:
    for metric, value, unit in (
        ("look-ups", len(found.log_bytes), "look-ups"),
        ("look-up: index bytes, mean", float(np.mean(found.index_bytes)), "bytes"),
        ("look-up: log bytes, mean", float(np.mean(found.log_bytes)), "bytes"),
        ("look-up: log bytes, p99", float(np.percentile(found.log_bytes, 99)), "bytes"),
        ("look-up: records before the answer, mean", float(np.mean(found.early or [0])), "records"),
        ("look-up: earlier records behind the answer, mean", float(np.mean(found.behind or [0])), "records"),
        ("look-up: inexact answers", found.inexact, "look-ups"),
        ("look-up: answers that miss records", found.missing, "look-ups"),
        ("look-up: records missed", found.missed, "records"),
    ):
        yield Measurement(case.part, case.name, subject, metric, float(value), unit)
    if found.example:
        yield Measurement(case.part, case.name, subject, "example", text=found.example)
