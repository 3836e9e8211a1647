"""Logs for the tests of scans, and the plain filter that scans are compared with.

`LogBuilder` writes the files of one partition with the project's own builders and remembers every record. `expected` answers from
what it remembers, with nothing but comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, iter_headers
from tidelog.records.builder import Producer, build_batch_v2, build_empty_batch_v2, build_end_txn_marker
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record
from tidelog.storage.segment.log_segment import LogSegment

TOPIC = "orders"


@dataclass(frozen=True)
class Row:
    """A record as a scan should deliver it; times in epoch ms, -1 for none."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    create_time: int
    producer_id: int = -1


class LogBuilder:
    """Writes `<directory>/<topic>-<partition>` batch by batch. `with_indexes` says which index files stay: "both", "none", ..."""

    def __init__(
        self,
        data_dir: Path,
        partition: int = 0,
        *,
        topic: str = TOPIC,
        segment_bytes: int = 4096,
        index_interval_bytes: int = 256,
        start_offset: int = 0,
        indexes: frozenset[str] = frozenset({".index", ".timeindex"}),
    ) -> None:
        self.data_dir = data_dir
        self.topic = topic
        self.partition = partition
        self.directory = data_dir / f"{topic}-{partition}"
        self.directory.mkdir(parents=True)
        self.next_offset = start_offset
        self._rows: list[Row] = []
        self._appended: list[tuple[list[Record], int, Codec, int | None, int]] = []
        self.aborted: list[tuple[int, int, int]] = []
        self.open: dict[int, int] = {}
        self._config = LogConfig(segment_bytes=1 << 30, index_interval_bytes=index_interval_bytes)
        self._segment_bytes = segment_bytes
        self._indexes = indexes
        self._segment = self._new_segment(self.next_offset)

    def append(
        self,
        records: Sequence[tuple[int, bytes | None, bytes | None]],
        *,
        magic: int = 2,
        codec: Codec = Codec.NONE,
        append_time: int | None = None,
        producer_id: int = -1,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        gaps: Iterable[int] = (),
    ) -> None:
        """Append one batch of (timestamp, key, value). `gaps` are the indices of records that a compaction has removed."""
        timestamp_type = CREATE_TIME if append_time is None else LOG_APPEND_TIME
        timing: dict[str, int] = {"timestamp_type": timestamp_type, "append_time": -1 if append_time is None else append_time}
        base = self.next_offset
        removed = set(gaps)
        kept = [
            Record(base + i, timestamp, timestamp_type, key, value, headers if magic == 2 else ())
            for i, (timestamp, key, value) in enumerate(records)
            if i not in removed
        ]
        producer = Producer(producer_id, 0, 0) if producer_id >= 0 else Producer()
        if magic < 2:
            # A cleaner leaves nothing of a message set without messages.
            data = build_message_set(kept, magic, codec=codec, **timing) if kept else bytearray()
        elif kept:
            transactional = producer_id >= 0
            data = build_batch_v2(
                kept, base_offset=base, codec=codec, producer=producer, is_transactional=transactional, leader_epoch=0, **timing
            )
        else:
            data = build_empty_batch_v2(base, base + len(records) - 1, producer=producer, is_transactional=producer_id >= 0)
        if producer_id >= 0:
            self.open.setdefault(producer_id, base)
        self.next_offset = base + len(records)
        self._write(data, base)
        self._appended.append((kept, magic, codec, append_time, producer_id))

    @property
    def rows(self) -> list[Row]:
        """What was appended so far; made when somebody asks."""
        for kept, *how in self._appended:
            self._rows += [self._row(record, *how) for record in kept]
        self._appended.clear()
        return self._rows

    def end_transaction(self, producer_id: int, timestamp: int, *, commit: bool) -> None:
        """Append the marker that ends the producer's transaction."""
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        marker = build_end_txn_marker(self.next_offset, timestamp, kind, Producer(producer_id, 0, -1), leader_epoch=0)
        first = self.open.pop(producer_id)
        if not commit:
            self.aborted.append((producer_id, first, self.next_offset))
        self.next_offset += 1
        self._write(marker, self.next_offset - 1)

    def roll(self) -> None:
        """Finish the segment and begin the next one."""
        self._finish_segment()
        self._segment = self._new_segment(self.next_offset)

    def close(self, *, log_start: int | None = None, high_watermark: int | None = None) -> None:
        """Finish the last segment and write the checkpoints that are given."""
        self._finish_segment()
        checkpoints = {"log-start-offset-checkpoint": log_start, "replication-offset-checkpoint": high_watermark}
        for name, offset in checkpoints.items():
            if offset is not None:
                (self.data_dir / name).write_text(f"0\n1\n{self.topic} {self.partition} {offset}\n")

    def logs(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))

    def _row(self, record: Record, magic: int, codec: Codec, append_time: int | None, producer_id: int) -> Row:
        create_time = record.timestamp
        if magic == 0 or (magic == 1 and append_time is not None and codec is Codec.NONE):
            create_time = -1
        timestamp = -1 if magic == 0 else record.timestamp if append_time is None else append_time
        kind = -1 if magic == 0 else record.timestamp_type
        fields = (record.key, record.value, record.headers)
        return Row(self.partition, record.offset, timestamp, kind, *fields, create_time, producer_id)

    def _write(self, data: bytearray, base_offset: int) -> None:
        if self._segment.size_bytes and self._segment.size_bytes + len(data) > self._segment_bytes:
            self._finish_segment()
            self._segment = self._new_segment(base_offset)
        self._segment.append(self.next_offset - 1, list(iter_headers(data)), data)

    def _new_segment(self, base_offset: int) -> LogSegment:
        return LogSegment.open(self.directory, base_offset, self._config, ManualClock(0))

    def _finish_segment(self) -> None:
        self._segment.on_become_inactive()
        self._segment.close_idle()
        for index in (self._segment.offset_index, self._segment.time_index):
            if index.path.suffix not in self._indexes:
                index.path.unlink()


def expected(
    builder: LogBuilder,
    start: int | None = None,
    end: int | None = None,
    *,
    first: int = 0,
    last: int | None = None,
    committed: bool = False,
) -> list[Row]:
    """What a scan must deliver: one comparison after the other."""
    rows = [row for row in builder.rows if row.offset >= first and (last is None or row.offset < last)]
    if start is not None or end is not None:
        rows = [row for row in rows if row.timestamp >= 0]
    if start is not None:
        rows = [row for row in rows if row.timestamp >= start]
    if end is not None:
        rows = [row for row in rows if row.timestamp < end]
    if committed:
        stable = min(builder.open.values(), default=builder.next_offset)
        rows = [row for row in rows if row.offset < stable and not _is_aborted(row, builder.aborted)]
    return rows


def _is_aborted(row: Row, aborted: list[tuple[int, int, int]]) -> bool:
    return any(row.producer_id == producer and begin <= row.offset <= end for producer, begin, end in aborted)


ROW_COLUMNS = ["partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "create_time"]


def rows_of(batches: pa.RecordBatchReader | Iterable[pa.RecordBatch] | pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a scan with `ROW_COLUMNS`, in a form that compares with `plain`."""
    rows = []
    for batch in batches.to_batches() if isinstance(batches, pa.Table) else batches:
        batch.validate(full=True)
        columns = [batch.column(name) for name in ROW_COLUMNS]
        for name in ("timestamp", "create_time"):
            columns[ROW_COLUMNS.index(name)] = columns[ROW_COLUMNS.index(name)].cast(pa.int64())
        for row in zip(*(column.to_pylist() for column in columns), strict=True):
            headers = tuple((header["key"], header["value"]) for header in row[6])
            rows.append((*row[:6], headers, row[7]))
    return rows


def plain(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Expected rows as `rows_of` gives them: null for -1."""
    return [
        (
            row.partition,
            row.offset,
            None if row.timestamp < 0 else row.timestamp,
            row.timestamp_type,
            row.key,
            row.value,
            row.headers,
            None if row.create_time < 0 else row.create_time,
        )
        for row in rows
    ]
