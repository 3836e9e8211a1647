"""Partition folders made to measure: batches in, segments with indexes and snapshots out, by the rules of the specification.

Written for the tests of reading, and apart from the writer: it can also lay an index as older releases did, and leaves
nothing synced, so that many small logs cost little.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.places import placed
from tidelog.formats import names
from tidelog.formats.offset_index import OffsetIndex
from tidelog.formats.producer_snapshot import build_snapshot
from tidelog.formats.time_index import TimeIndex
from tidelog.formats.txn_index import TxnIndex
from tidelog.objects.opening import folder_at
from tidelog.reader.log import Log
from tidelog.reader.producer_state import ProducerState
from tidelog.reader.segment import Segment
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.builder import Producer, build_batch_v2, build_end_txn_marker
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType, parse_end_txn_marker
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record, iter_records

INDEX_BYTES = 36_000


def batch(
    offset: int,
    timestamps: Sequence[int],
    *,
    magic: int = 2,
    codec: Codec = Codec.NONE,
    append_time: int | None = None,
    epoch: int = -1,
    producer: Producer | None = None,
    transactional: bool = False,
    step: int = 1,
    value: bytes | None = None,
) -> bytes:
    """Return a batch of records with these timestamps, at offsets `offset`, `offset + step`, ..."""
    records = [
        Record(offset + i * step, timestamp, 0, None, b"value %d" % (offset + i * step) if value is None else value)
        for i, timestamp in enumerate(timestamps)
    ]
    kind = {} if append_time is None else {"timestamp_type": 1, "append_time": append_time}
    if magic < 2:
        return bytes(build_message_set(records, magic, codec=codec, **kind))
    extra = {} if producer is None else {"producer": producer}
    return bytes(build_batch_v2(records, codec=codec, leader_epoch=epoch, is_transactional=transactional, **kind, **extra))


def marker(offset: int, timestamp: int, kind: ControlType, producer_id: int, epoch: int = 0) -> bytes:
    """Return the control batch that ends a transaction."""
    return bytes(build_end_txn_marker(offset, timestamp, kind, Producer(producer_id, epoch, -1)))


class LogBuilder:
    """A partition's folder that grows by `append`; `close` writes what a clean shutdown leaves."""

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int = 1 << 30,
        interval_bytes: int = 0,
        start_offset: int = 0,
        per_append: bool = False,
        index_bytes: int = INDEX_BYTES,
    ) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.interval_bytes = interval_bytes
        self.per_append = per_append
        self.index_bytes = index_bytes
        self.next_offset = start_offset
        self.state = ProducerState(map_end_offset=start_offset)
        self._begin(start_offset)

    def append(self, *appends: bytes) -> LogBuilder:
        """Append sets of batches; each argument is one append call."""
        for data in appends:
            if self.log and len(self.log) + len(data) > self.segment_bytes:
                self.roll()
            headers = list(iter_headers(data))
            groups = [headers] if self.per_append else [[header] for header in headers]
            for group in groups:
                self._index(group)
            for header in headers:
                self._apply(header, data[header.position : header.end_position])
            self.log += data
            self.next_offset = headers[-1].next_offset
        return self

    def roll(self, base_offset: int | None = None) -> LogBuilder:
        """Finish the segment and begin one at the log's end, or above it."""
        self._finish()
        self.next_offset = base_offset if base_offset is not None else self.next_offset
        self.snapshot(self.next_offset)
        self._begin(self.next_offset)
        return self

    def snapshot(self, offset: int) -> None:
        (self.directory / names.file_name(offset, names.SNAPSHOT_SUFFIX)).write_bytes(build_snapshot(self.state.entries()))

    def close(self, *, snapshot: bool = True) -> LogBuilder:
        self._finish()
        if snapshot:
            self.snapshot(self.next_offset)
        return self

    def close_live(self) -> LogBuilder:
        """Leave the last segment as a running broker has it: preallocated indexes, no last time entry, no snapshot."""
        self._write(self.offset_index.to_bytes().ljust(self.index_bytes // 8 * 8, b"\0"), names.INDEX_SUFFIX)
        self._write(self.time_index.to_bytes().ljust(self.index_bytes // 12 * 12, b"\0"), names.TIME_INDEX_SUFFIX)
        self._write_rest()
        return self

    def open(self, **options: int) -> Log:
        return Log.open(folder_at(placed(self.directory.parent)) / self.directory.name, **options)

    def file(self, base_offset: int, suffix: str) -> Path:
        return self.directory / names.file_name(base_offset, suffix)

    def _begin(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.log = bytearray()
        self.offset_index = OffsetIndex.create(base_offset, self.index_bytes)
        self.time_index = TimeIndex.create(base_offset, self.index_bytes)
        self.txn_index = TxnIndex(base_offset)
        self.max_timestamp, self.max_offset = -1, base_offset
        self.since = 0

    def _index(self, group: list[BatchHeader]) -> None:
        for header in group:
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_offset = header.max_timestamp, header.last_offset
        if self.since > self.interval_bytes:
            self.offset_index.append(group[-1].last_offset, len(self.log) + group[0].position)
            self.time_index.maybe_append(self.max_timestamp, self.max_offset)
            self.since = 0
        self.since += sum(header.size for header in group)

    def _apply(self, header: BatchHeader, data: bytes) -> None:
        end = None
        if header.is_control:
            (record,) = iter_records(header, data)
            end = parse_end_txn_marker(record.key, record.value)
        completed = self.state.apply(header, end)
        if completed is not None and completed.is_aborted:
            self.txn_index.append(self.state.aborted[-1])

    def _finish(self) -> None:
        self.time_index.maybe_append(self.max_timestamp, self.max_offset, skip_full_check=True)
        self._write(self.offset_index.to_bytes(), names.INDEX_SUFFIX)
        self._write(self.time_index.to_bytes(), names.TIME_INDEX_SUFFIX)
        self._write_rest()

    def _write_rest(self) -> None:
        self._write(self.log, names.LOG_SUFFIX)
        if self.txn_index.aborted:
            self._write(self.txn_index.to_bytes(), names.TXN_INDEX_SUFFIX)

    def _write(self, data: bytes | bytearray, suffix: str) -> None:
        self.file(self.base_offset, suffix).write_bytes(data)


def segment_of(directory: Path, data: Iterable[bytes], *, base_offset: int = 0, interval_bytes: int = 0) -> Segment:
    """Make a folder of one segment, closed cleanly, and return the segment."""
    builder = LogBuilder(directory, start_offset=base_offset, interval_bytes=interval_bytes)
    builder.append(*data).close()
    return Segment.open(builder.file(base_offset, names.LOG_SUFFIX))


def set_modified_ms(path: Path, milliseconds: int) -> None:
    os.utime(path, ns=(milliseconds * 1_000_000, milliseconds * 1_000_000))


def open_descriptors(directory: Path) -> list[str]:
    """Return the files below `directory` that this process has open."""
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sorted(link for link in links if link.startswith(str(directory)))
