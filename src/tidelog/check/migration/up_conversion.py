"""Converts the batches of a segment to format v2.

| original | result |
|---|---|
| a v2 batch | the same bytes |
| a compressed v0 or v1 message | one batch with the same records and codec |
| consecutive uncompressed messages | batches of up to `BATCH_BYTES`, each of messages with equal properties |

Offsets with their gaps, keys, values, timestamps (-1 if there is none) and the timestamp type are preserved. v0 has no timestamp
type, but v2 requires one: CreateTime. With LogAppendTime the append time is a field of the batch, so only messages with the same
append time share a batch; a record keeps the producer's timestamp if the old message has it. The messages of a batch have the
same timestamp type and append time, and all or none of them have a timestamp. v0 and v1 have no leader epochs, so the new batches
have none.

No Python object is created per message. Only `segment_migration` uses this.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.model import NO_TIMESTAMP
from tidelog.reader.segment import Segment
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, BatchHeader
from tidelog.records.builder import MAX_OFFSET_DELTA, build_batch_v2_from_columns
from tidelog.records.columns import BinaryBuffers, Columns
from tidelog.records.compression import Bytes
from tidelog.records.kernel import BinaryColumn

BATCH_BYTES = 16 * 1024
"""The bytes of messages in one batch: Kafka's default batch.size."""


class V2Batch(NamedTuple):
    """A batch of the new segment."""

    data: Bytes
    base_offset: int
    last_offset: int
    records: int
    old_magic: int
    """The original format, 0 or 1, of a converted batch."""
    is_control: bool


def v2_batches(segment: Segment) -> Iterator[V2Batch]:
    """Yield the batches of a segment, in order, up to its end. Raises CorruptDataError, SegmentChangedError."""
    columns = Columns(names=("offset", "timestamp", "create_time", "key", "value"), check_crc=False)
    group: list[BatchHeader] = []
    for header in segment.headers(check_crc=True):
        if group and not _may_join(group, header):
            yield _converted(segment, group, columns)
            group = []
        if header.magic == 2:
            batch = segment.read_batch(header)
            yield V2Batch(batch, header.base_offset, header.last_offset, header.record_count, 2, header.is_control)
        else:
            group.append(header)
    if group:
        yield _converted(segment, group, columns)


def _may_join(group: list[BatchHeader], header: BatchHeader) -> bool:
    """Whether a message can share a batch with the messages in `group`, which directly precede it."""
    first = group[0]
    return (
        header.magic < 2
        and not (header.is_compressed or first.is_compressed)
        and _kind(header) == _kind(first)
        and header.end_position - first.position <= BATCH_BYTES
        and header.last_offset - first.base_offset <= MAX_OFFSET_DELTA
    )


def _kind(header: BatchHeader) -> tuple[int, int, bool]:
    append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP
    return header.magic, append_time, header.max_timestamp == NO_TIMESTAMP


def _converted(segment: Segment, group: list[BatchHeader], columns: Columns) -> V2Batch:
    """Return the v2 batch for consecutive uncompressed messages, or for one compressed message."""
    first, last = group[0], group[-1]
    size = last.end_position - first.position
    data = segment.file.read(first.position, size)
    if len(data) < size:
        raise SegmentChangedError(
            "a segment was truncated while it was being read", path=segment.log_path, position=first.position
        )
    columns.clear()
    for header in group:
        columns.add(header, data, header.position - first.position, segment.log_path)
    offsets = memoryview(columns.offsets()).cast("q")
    base_offset, rows = offsets[0], columns.rows
    deltas = array("i", bytes(4 * rows))
    previous = base_offset - 1
    for row, offset in enumerate(offsets):
        if not previous < offset <= base_offset + MAX_OFFSET_DELTA:
            raise CorruptBatchError(
                "the offset of a record is outside its batch's range",
                path=segment.log_path,
                position=first.position,
                found=offset,
                expected=f"more than {previous}",
            )
        deltas[row] = offset - base_offset
        previous = offset
    is_append_time = first.timestamp_type == LOG_APPEND_TIME
    built = build_batch_v2_from_columns(
        memoryview(columns.create_times().data).cast("q"),
        _column(columns.keys(), rows),
        _column(columns.values(), rows),
        base_offset=base_offset,
        offset_deltas=deltas,
        codec=first.codec,
        timestamp_type=LOG_APPEND_TIME if is_append_time else CREATE_TIME,
        append_time=first.max_timestamp if is_append_time else NO_TIMESTAMP,
    )
    return V2Batch(built.data, built.base_offset, built.last_offset, rows, first.magic, is_control=False)


def _column(buffers: BinaryBuffers, rows: int) -> BinaryColumn:
    return BinaryColumn(buffers.offsets, buffers.data, buffers.validity, 0, rows)
