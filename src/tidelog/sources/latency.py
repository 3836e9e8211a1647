"""Counts how late records are, split by split, without an object per record.

| kind | records | minute | value, ms |
|---|---|---|---|
| `latency` | LogAppendTime, producer's time known | append time | append time - CreateTime; negative if a clock was ahead |
| `lateness` | CreateTime | CreateTime | largest CreateTime so far in log order - own CreateTime; 0 if in order |
| `unknown` | all other records | timestamp; null if the record has none | null |

The producer's time of a LogAppendTime record is known in format v2, where the broker overwrites only the largest timestamp and
one bit of the header, not the base timestamp and the deltas. v1 has room for one time, v0 for none. A compressed v1 wrapper has
the producer's times if the broker stored the batch unchanged, and the append time if the broker had to rewrite the batch. Nothing
in the batch says which, so all v1 records are `unknown`. The append time of a record with CreateTime is unknown.

The result is counts of equal values, (kind, minute, value, records), from which exact percentiles follow. The same value may be
returned again later, or by a different split; the caller adds the counts. `tidelog.spark.jobs` uses this.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.formats.batch_walk import walk
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME
from tidelog.records.columns import Columns
from tidelog.sources.files.folder_split import FolderSplit

LATENCY = "latency"
LATENESS = "lateness"
UNKNOWN = "unknown"
KINDS = (LATENCY, LATENESS, UNKNOWN)

MINUTE_MS = 60_000

SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("minute_ms", pa.int64()),
        pa.field("value_ms", pa.int64()),
        pa.field("records", pa.int64()),
    ]
)

_COLUMNS = ("offset", "timestamp", "timestamp_type", "create_time")
_KEYS = ["kind", "minute_ms", "value_ms"]
_GROUPS = 500_000
"""When more counts than this are in memory, counts of equal values are combined. If many counts remain, they are yielded."""


def largest_create_time(split: FolderSplit) -> int:
    """Return the largest timestamp of a split's records with CreateTime (epoch ms), -1 if there is none.

    The timestamp comes from batch headers, except for a batch that contains the log start. Checksums are not checked here,
    because `count_delays` checks them when it reads everything. Raises CorruptDataError, SegmentChangedError.
    """
    largest = NO_TIMESTAMP
    with split.open() as file:
        for run in split.runs:
            for header in walk(file, run.start_position, run.end_position):
                if header.timestamp_type != CREATE_TIME or header.is_control or header.max_timestamp <= largest:
                    continue
                if header.magic == 2 and header.base_offset >= split.start_offset and header.last_offset < split.end_offset:
                    largest = header.max_timestamp
                    continue
                columns = Columns(None, None, split.start_offset, split.end_offset, names=("timestamp",))
                columns.add(header, file.read(header.position, header.size), 0, split.path)
                largest = max(largest, *memoryview(columns.timestamps().data).cast("q"), NO_TIMESTAMP)
    return largest


def count_delays(split: FolderSplit, largest_before: int = NO_TIMESTAMP) -> Iterator[pa.RecordBatch]:
    """Yield the counts of delays in a split (`SCHEMA`).

    `largest_before` is the partition's largest CreateTime before the split (`largest_create_time`). Raises CorruptDataError,
    SegmentChangedError.
    """
    kept: list[pa.Table] = []
    groups = 0
    doubtful = _doubtful_offsets(split)
    for batch in split.read(_COLUMNS):
        largest_before, delays = _delays(batch, largest_before, doubtful)
        kept.append(_counted(delays.append_column("records", pa.repeat(pa.scalar(1, pa.int64()), len(delays)))))
        groups += len(kept[-1])
        if groups > _GROUPS:
            kept = [_counted(pa.concat_tables(kept))]
            groups = len(kept[0])
            if groups > _GROUPS // 2:
                yield from kept.pop().to_batches()
                groups = 0
    if kept:
        yield from _counted(pa.concat_tables(kept)).to_batches()


def _doubtful_offsets(split: FolderSplit) -> list[tuple[int, int]]:
    """Return the first and last offsets of v1 batches with LogAppendTime."""
    found: list[tuple[int, int]] = []
    next_offset = split.base_offset
    with split.open() as file:
        for run in split.runs:
            for header in walk(file, run.start_position, run.end_position):
                if header.magic == 1 and header.timestamp_type == LOG_APPEND_TIME:
                    # A wrapper's header has only its last offset.
                    is_next = found and found[-1][1] + 1 == next_offset
                    found.append((found.pop()[0] if is_next else next_offset, header.last_offset))
                next_offset = header.next_offset
    return found


def _delays(batch: pa.RecordBatch, largest: int, doubtful: list[tuple[int, int]]) -> tuple[int, pa.Table]:
    """Return the largest CreateTime of the partition up to the end of the rows, and each record's kind, minute and value."""
    timestamps = batch.column("timestamp").cast(pa.int64())
    create_times = batch.column("create_time").cast(pa.int64())
    types = batch.column("timestamp_type")
    is_latency = pc.and_(pc.equal(types, LOG_APPEND_TIME), pc.is_valid(create_times))
    for first, last in doubtful:
        offsets = batch.column("offset")
        is_latency = pc.and_not(is_latency, pc.and_(pc.greater_equal(offsets, first), pc.less_equal(offsets, last)))
    is_lateness = pc.and_(pc.equal(types, CREATE_TIME), pc.is_valid(timestamps))
    own = pc.if_else(is_lateness, timestamps, NO_TIMESTAMP)
    running = pc.cumulative_max(own, start=largest)
    none = pa.scalar(None, pa.int64())
    values = pc.case_when(
        pc.make_struct(is_latency, is_lateness),
        pc.subtract(timestamps, create_times),
        pc.subtract(running, own),
        none,
    )
    kinds = pc.case_when(pc.make_struct(is_latency, is_lateness), LATENCY, LATENESS, UNKNOWN)
    minutes = pc.multiply(pc.divide(timestamps, MINUTE_MS), MINUTE_MS)
    if len(running):
        largest = running[-1].as_py()
    return largest, pa.table([kinds, minutes, values], names=_KEYS)


def _counted(delays: pa.Table) -> pa.Table:
    """Add up records of equal kind, minute and value."""
    grouped = delays.group_by(_KEYS).aggregate([("records", "sum")])
    return grouped.select([*_KEYS, "records_sum"]).rename_columns(SCHEMA.names).cast(SCHEMA)
