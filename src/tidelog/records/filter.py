"""Removes records from batches, and writes the remaining records byte for byte as Kafka's cleaner does (spec §15, KIP-534).

    the filter's decision for a batch       and for its records     what is written
    DELETE                                  not called              nothing
    DELETE_EMPTY or RETAIN_EMPTY            all kept                the batch unchanged, unless it needs a delete horizon
    DELETE_EMPTY or RETAIN_EMPTY            some kept               a new batch with the kept records
    DELETE_EMPTY                            none kept               nothing
    RETAIN_EMPTY                            none kept               the batch's header, for the producer's last sequence

A new v2 batch has the old batch's base and last offset, producer, leader epoch, codec and timestamp type; record offsets do not
change. The base timestamp is the first remaining record's timestamp, and the max timestamp is the largest of the remaining
records'. With LogAppendTime both are the append time, and the producers' timestamps are lost. A v0 or v1 wrapper gets the offsets
of the remaining records.

Delete horizon
    A tombstone must be kept until every consumer has had time to read it. So a batch that keeps a tombstone, or the marker of a
    transaction without remaining records, gets a delete horizon: the time from which these may be removed. The horizon replaces
    the base timestamp (attributes bit 6), and all deltas are relative to it. It is set once and never changed.

Unlike in Kafka's cleaner, checksums are verified: a rewritten batch gets a new checksum, which must not hide damage.

The cleaner calls this module. An object per record is created only for v0, v1 and control batches, and for filters that need it.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tidelog.config import INT32_MAX, INT64_MAX
from tidelog.errors import InvalidRecordError, UnsupportedForMessageFormatError
from tidelog.model import NO_TIMESTAMP
from tidelog.records import kernel
from tidelog.records.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, PathLike, check_crc, iter_headers
from tidelog.records.builder import Producer, build_empty_batch_v2, pack_header_v2
from tidelog.records.compression import (
    DEFAULT_DECOMPRESSION_LIMIT_BYTES,
    SCRATCH_BYTES,
    Bytes,
    Codec,
    Scratch,
    compress,
    decompress,
)
from tidelog.records.conversion import Target, rebuild
from tidelog.records.legacy import split_messages
from tidelog.records.records import Record, iter_records
from tidelog.records.scanner import unwrap

logger = logging.getLogger("tidelog.records")

_NO_OFFSETS: array[int] = array("q")


class BatchRetention(Enum):
    """A filter's decision for a whole batch."""

    DELETE = "delete"
    RETAIN_EMPTY = "retain, even without records"
    DELETE_EMPTY = "retain as long as there are records"


class BatchDecision(NamedTuple):
    """A filter's decision for a batch. `holds_marker_of_empty_txn` means that the batch is the marker of a transaction that has
    no other records left.
    """

    retention: BatchRetention
    holds_marker_of_empty_txn: bool = False


class OpenBatch(NamedTuple):
    """A v2 batch and its decompressed records, `data[start:end]`. `batch` has exactly the batch's bytes."""

    header: BatchHeader
    batch: memoryview
    data: Bytes
    start: int
    end: int

    def records(self, path: PathLike = None) -> list[Record]:
        """Return the records as objects."""
        return list(iter_records(self.header, self.batch, check_crc=False, path=path))


class Selected(NamedTuple):
    """A filter's result for a batch: the number of kept records, whether tombstones are among them, and the largest offset (-1
    for none).
    """

    retained: int
    has_tombstones: bool
    max_offset: int


@dataclass
class FilterResult:
    """A filter's output and counts. `data` holds whole batches. Timestamps are in ms; -1 means none."""

    data: bytearray = field(default_factory=bytearray)
    messages_read: int = 0
    bytes_read: int = 0
    """The size of the complete batches that were read, from the start of the input."""
    messages_retained: int = 0
    max_offset: int = -1
    """The largest offset of a kept record. For an unchanged batch or a batch without records, this is the batch's last offset."""
    max_timestamp: int = NO_TIMESTAMP
    shallow_offset_of_max_timestamp: int = -1
    """The last offset of the first batch with the largest timestamp."""

    @property
    def bytes_retained(self) -> int:
        return len(self.data)

    def add(self, data: Bytes, retained: int, max_offset: int, max_timestamp: int, shallow_offset: int) -> None:
        """Append a batch that is kept."""
        self.data += data
        self.note(retained, max_offset, max_timestamp, shallow_offset)

    def note(self, retained: int, max_offset: int, max_timestamp: int, shallow_offset: int) -> None:
        """Count a batch that is already in `data`."""
        self.messages_retained += retained
        if max_offset > self.max_offset:
            self.max_offset = max_offset
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.shallow_offset_of_max_timestamp = shallow_offset


class Workspace:
    """Buffers and the kernel for rebuilding, which are reused for each batch because they cost more to create than to use."""

    def __init__(self) -> None:
        self.scratch = Scratch()
        self.rebuilding = kernel.CleanPass(None, 0, -1, _NO_OFFSETS)
        self._section = bytearray()

    def section(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes. As with `Scratch`, a large buffer is not kept for reuse."""
        if size > SCRATCH_BYTES:
            return bytearray(size)
        if size > len(self._section):
            self._section = bytearray(size)
        return self._section


class RecordFilter:
    """Decides which batches and records are kept. A batch that needs a delete horizon gets `now_ms` + `delete_retention_ms`."""

    def __init__(self, now_ms: int, delete_retention_ms: int) -> None:
        self.now_ms = now_ms
        self.delete_retention_ms = delete_retention_ms
        self.workspace = Workspace()

    @property
    def new_delete_horizon_ms(self) -> int | None:
        """The delete horizon for batches that have none yet; None if it would exceed the largest timestamp, so that nothing is
        ever removed.
        """
        horizon_ms = self.now_ms + self.delete_retention_ms
        return horizon_ms if 0 <= horizon_ms <= INT64_MAX else None

    def check_batch_retention(self, header: BatchHeader, batch: memoryview) -> BatchDecision:
        """Decide whether a batch is deleted, kept even if it becomes empty, or kept only while it has records. Called once for
        each batch, in order.
        """
        return BatchDecision(BatchRetention.DELETE_EMPTY)

    def should_retain_record(self, header: BatchHeader, record: Record) -> bool:
        """Return whether to keep a record. This is called only for batches that are not deleted as a whole."""
        raise NotImplementedError

    def select(self, opened: OpenBatch, keep: bytearray, path: PathLike = None) -> Selected:
        """Set `keep` to 1 for each kept record of a v2 batch. The default calls `should_retain_record` for each record."""
        return select_records(self, opened.header, opened.records(path), keep)

    def take_run(self, view: memoryview, index: int, result: FilterResult) -> int:
        """Filter as many batches at `view[index:]` as possible in one call. Return the index of the next batch."""
        return index


def select_records(record_filter: RecordFilter, header: BatchHeader, records: Sequence[Record], keep: bytearray) -> Selected:
    """Mark the records to keep by calling `should_retain_record` for each."""
    count, has_tombstones, max_offset = 0, False, -1
    for i, record in enumerate(records):
        if record_filter.should_retain_record(header, record):
            keep[i] = 1
            count += 1
            has_tombstones = has_tombstones or record.value is None
            max_offset = max(max_offset, record.offset)
    return Selected(count, has_tombstones, max_offset)


def filter_to(
    data: Bytes,
    record_filter: RecordFilter,
    *,
    position: int = 0,
    path: PathLike = None,
    max_batch_bytes: int = INT32_MAX,
    limit_bytes: int = DEFAULT_DECOMPRESSION_LIMIT_BYTES,
) -> FilterResult:
    """Filter the complete batches of `data`, whose first byte is at file position `position`. A partial batch at the end is
    ignored.

    A batch that grows beyond `max_batch_bytes` is written anyway, with a warning in the log. Raises CorruptBatchError,
    InvalidRecordError, DecompressionError.
    """
    view = memoryview(data)
    result = FilterResult()
    while True:
        index = record_filter.take_run(view, result.bytes_read, result)
        result.bytes_read = index
        header = next(iter_headers(view[index:], position + index, path), None)
        if header is None:
            return result
        batch = view[index : index + header.size]
        check_crc(header, batch, path)
        result.bytes_read += header.size
        before = len(result.data)
        _filter_batch(header, batch, record_filter, result, path, limit_bytes)
        size = len(result.data) - before
        if size > header.size and size > max_batch_bytes:
            logger.warning(
                "%s: after compaction, the batch that ends at offset %d is larger than max.message.bytes: %d bytes",
                "a log" if path is None else path,
                header.last_offset,
                size,
            )


def _filter_batch(
    header: BatchHeader,
    batch: memoryview,
    record_filter: RecordFilter,
    result: FilterResult,
    path: PathLike,
    limit_bytes: int,
) -> None:
    retention, holds_marker = record_filter.check_batch_retention(header, batch)
    if retention is BatchRetention.DELETE:
        return
    if header.magic < 2:
        _filter_messages(header, batch, record_filter, result, path, limit_bytes)
        if retention is BatchRetention.RETAIN_EMPTY:
            raise UnsupportedForMessageFormatError(f"message format v{header.magic} has no batches without records", path=path)
        return
    workspace = record_filter.workspace
    opened = open_batch(header, batch, path, limit_bytes, workspace.scratch)
    keep = bytearray(max(header.record_count, 0))
    selected = record_filter.select(opened, keep, path)
    result.messages_read += len(keep)
    if selected.retained:
        horizon_ms = header.delete_horizon_ms
        needs_horizon = horizon_ms is None and (selected.has_tombstones or holds_marker)
        if needs_horizon:
            horizon_ms = record_filter.new_delete_horizon_ms
            needs_horizon = horizon_ms is not None
        if selected.retained == len(keep) and not needs_horizon:
            result.add(batch, selected.retained, header.last_offset, header.max_timestamp, header.last_offset)
        else:
            rebuilt, max_timestamp = _rebuild(opened, keep, selected.retained, horizon_ms, workspace, path)
            result.add(rebuilt, selected.retained, selected.max_offset, max_timestamp, header.last_offset)
    elif retention is BatchRetention.RETAIN_EMPTY:
        result.add(_emptied(header), 0, header.last_offset, header.max_timestamp, header.last_offset)


def open_batch(
    header: BatchHeader, batch: memoryview, path: PathLike, limit_bytes: int, scratch: Scratch | None = None
) -> OpenBatch:
    """Decompress the records of a v2 batch, into `scratch` if given. Raises CorruptBatchError, DecompressionError."""
    records = batch[HEADER_BYTES:]
    if not header.is_compressed or (header.record_count == 0 and not records):
        return OpenBatch(header, batch, batch, HEADER_BYTES, len(batch))
    data = decompress(header.codec, records, limit_bytes=limit_bytes, scratch=scratch, path=path, position=header.position)
    return OpenBatch(header, batch, data, 0, len(data))


def _rebuild(
    opened: OpenBatch, keep: bytearray, count: int, horizon_ms: int | None, workspace: Workspace, path: PathLike
) -> tuple[bytearray, int]:
    """Return a v2 batch with the records marked in `keep`, and its largest timestamp."""
    header = opened.header
    is_append_time = header.timestamp_type == LOG_APPEND_TIME
    section = workspace.section(opened.end - opened.start + kernel.GROWTH_BYTES * len(keep))
    rebuilding = workspace.rebuilding
    size = rebuilding.rebuild(
        opened.data,
        opened.start,
        opened.end,
        keep,
        header.base_timestamp,
        header.max_timestamp,
        is_append_time,
        kernel.NO_BASE if horizon_ms is None else horizon_ms,
        section,
    )
    if size < 0:
        raise_fault(size, rebuilding.fault_position, opened, path)
    records = compress(header.codec, memoryview(section)[:size])
    built = bytearray(HEADER_BYTES)
    built += records
    pack_header_v2(
        built,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        base_timestamp=rebuilding.base_timestamp,
        max_timestamp=rebuilding.batch_max_timestamp,
        record_count=count,
        codec=header.codec,
        timestamp_type=header.timestamp_type,
        leader_epoch=header.leader_epoch,
        producer=Producer(header.producer_id, header.producer_epoch, header.base_sequence),
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        has_delete_horizon=horizon_ms is not None,
    )
    return built, rebuilding.batch_max_timestamp


def _emptied(header: BatchHeader) -> bytearray:
    return build_empty_batch_v2(
        header.base_offset,
        header.last_offset,
        timestamp_type=header.timestamp_type,
        max_timestamp=header.max_timestamp,
        leader_epoch=header.leader_epoch,
        producer=Producer(header.producer_id, header.producer_epoch, header.base_sequence),
        is_transactional=header.is_transactional,
        is_control=header.is_control,
    )


def _filter_messages(
    header: BatchHeader,
    batch: memoryview,
    record_filter: RecordFilter,
    result: FilterResult,
    path: PathLike,
    limit_bytes: int,
) -> None:
    """Filter a v0 or v1 message, single or a wrapper."""
    records = list(iter_records(header, batch, check_crc=False, path=path, limit_bytes=limit_bytes))
    keep = bytearray(len(records))
    count, _, max_offset = select_records(record_filter, header, records, keep)
    result.messages_read += len(records)
    # If the cleaner of 0.10.0 left messages of a different format inside, write a new wrapper, as later releases of Kafka do.
    if count == len(records) and not _is_mixed(header, batch, limit_bytes):
        result.add(batch, count, header.last_offset, header.max_timestamp, header.last_offset)
    elif count:
        retained = [record for record, stays in zip(records, keep, strict=True) if stays]
        target = Target(header.magic, header.codec, timestamp_type=header.timestamp_type, append_time=header.max_timestamp)
        data = rebuild(retained, target)
        (rebuilt,) = iter_headers(data)
        result.add(data, count, max_offset, rebuilt.max_timestamp, rebuilt.last_offset)


def _is_mixed(header: BatchHeader, batch: memoryview, limit_bytes: int) -> bool:
    """Return whether a compressed message, which has been read successfully before, contains messages of a different format."""
    if not header.is_compressed:
        return False
    places = split_messages(unwrap(header, batch, limit_bytes=limit_bytes))
    return any(place.magic != header.magic for place in places)


def raise_fault(fault: int, fault_position: int, opened: OpenBatch, path: PathLike) -> None:
    """Raise InvalidRecordError for a fault that the kernel found in `opened`."""
    what = kernel.FAULTS[fault]
    position = opened.header.position
    if opened.header.codec is not Codec.NONE:
        raise InvalidRecordError(
            f"invalid record at byte {fault_position} of the decompressed batch: {what}", path=path, position=position
        )
    raise InvalidRecordError(f"invalid record: {what}", path=path, position=position + fault_position)
