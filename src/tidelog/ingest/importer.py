"""Imports a file's rows as batches of a new topic, a chunk of rows at a time.

::

    rows ─► times in ms, keys and values as bytes ─► partition of each row ─► batches, each as full as fits ─► log
                                                          ▲                            │
                                                          └── rows of unfinished batches, in front of the next chunk

A row with a key goes to the partition that Kafka's default partitioner chooses: murmur2 of the key. Rows without a key go to the
partitions in turn. Within a partition, rows keep the file's order. A batch has as many rows as fit into `batch_bytes` before
compression, but at least one, like batches of a producer with that ``batch.size``.

No row becomes a Python object. Memory use depends on the size of a chunk, not on the size of the file. The import is atomic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.clock import Clock
from tidelog.config import LogConfig, unaliased
from tidelog.errors import InvalidArgumentError, RecordTooLargeError, RecordValidationError
from tidelog.ingest.arrow_columns import binary_layout, int_view, rows_by_place
from tidelog.ingest.formats import open_source
from tidelog.ingest.json_rows import encode_rows, plain_text
from tidelog.ingest.progress import Position, ProgressMaker, silent
from tidelog.ingest.source import Rows, Wanted, check_unchanged, file_state
from tidelog.ingest.time_column import TimeColumn
from tidelog.records.column_batches import ColumnBatches, partitions_of
from tidelog.records.compression import Codec
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.topics.new_topic import LEADER_EPOCH, NewTopic

DEFAULT_BATCH_BYTES = 16384
"""The default of a producer's `batch.size`."""

_MAX_OVERHEAD_BYTES = 128
"""An upper bound of the size of a batch with one record, not counting the record's key and value."""


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """How rows become records. Columns are given by name. If `value_column` is None, the value is the whole row as JSON.

    `timestamp_unit` (`timestamps.UNITS`) is the unit of numbers in the timestamp column. None means milliseconds, if that is
    plausible. `properties` are the topic's properties, as text under Kafka's names. By default retention.ms is -1: with Kafka's
    default, a week, a broker would delete old rows as soon as it runs on the folder.
    """

    timestamp_column: str
    timestamp_unit: str | None = None
    key_column: str | None = None
    value_column: str | None = None
    partitions: int = 1
    codec: Codec = Codec.NONE
    batch_bytes: int = DEFAULT_BATCH_BYTES
    properties: Mapping[str, str] = field(default_factory=dict)
    file_format: str | None = None
    delimiter: str | None = None
    as_text: bool = False

    def __post_init__(self) -> None:
        if self.batch_bytes < 1:
            raise InvalidArgumentError("batch_bytes must be positive", found=self.batch_bytes)

    def topic_properties(self) -> dict[str, str]:
        """Return the properties with which the topic is registered."""
        return {"retention.ms": "-1", **{name: str(value) for name, value in unaliased(self.properties).items()}}


class PartitionSummary(NamedTuple):
    """The numbers of records, segments and bytes that were written to a partition."""

    partition: int
    records: int
    segments: int
    size_bytes: int


class ImportSummary(NamedTuple):
    """The result of an import. Timestamps are in epoch ms; they are None if there were no rows."""

    topic: str
    partitions: list[PartitionSummary]
    min_timestamp: int | None
    max_timestamp: int | None
    notices: tuple[str, ...] = ()
    """Assumptions that the import made, one line each."""

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions)

    @property
    def segments(self) -> int:
        return sum(one.segments for one in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.partitions)


def import_file(
    directory: Path, topic: str, path: Path, options: ImportOptions, clock: Clock, progress: ProgressMaker = silent
) -> ImportSummary:
    """Write the rows of the file `path` as the new topic `topic` of the data folder `directory`. The folder is created if it does
    not exist.

    Raises InvalidArgumentError for invalid options, missing columns, and a null or negative time (the error has the row);
    CorruptDataError for a file that is damaged or was changed while it was being read; TopicExistsError; RecordTooLargeError for
    a row that exceeds max.message.bytes or segment.bytes; RecordValidationError for a row that the topic refuses; StorageError.
    After an error nothing is left behind.
    """
    properties = options.topic_properties()
    config = LogConfig.from_properties(properties)
    wanted = Wanted(options.timestamp_column, options.key_column, options.value_column)
    before = file_state(path)
    source = open_source(
        path, wanted, options.file_format, as_text=options.as_text, delimiter=options.delimiter, progress=progress
    )
    with NewTopic(directory, topic, options.partitions, properties, clock) as new_topic:
        batcher = _Batcher(new_topic.logs, options, config)
        times = TimeColumn(options.timestamp_column, options.timestamp_unit)
        with progress(f"importing {path.name}", source.size_bytes) as bar:
            position = Position(bar)
            for rows in source.rows():
                batcher.add(_columns(rows, wanted, times))
                position.reach(rows.bytes_done)
            batcher.finish()
        check_unchanged(path, before)
        new_topic.commit()
    partitions = [
        PartitionSummary(p, log.log_end_offset, len(log.segments), log.size_bytes) for p, log in enumerate(new_topic.logs)
    ]
    return ImportSummary(topic, partitions, batcher.min_timestamp, batcher.max_timestamp, tuple(times.notices()))


class _Columns(NamedTuple):
    """Rows to be written: timestamps (int64 ms), keys and values (binary, may be null), and the rows' numbers in the file."""

    timestamps: pa.Int64Array
    keys: pa.BinaryArray
    values: pa.BinaryArray
    numbers: pa.Int64Array


def _columns(rows: Rows, wanted: Wanted, times: TimeColumn) -> _Columns:
    batch = rows.columns
    timestamps = times.epoch_ms(batch.column(wanted.timestamp), rows.first_row)
    keys = pa.nulls(batch.num_rows, pa.binary()) if wanted.key is None else plain_text(batch.column(wanted.key), wanted.key)
    if wanted.value is not None:
        values = plain_text(batch.column(wanted.value), wanted.value)
    else:
        values = (encode_rows(batch) if rows.texts is None else rows.texts).cast(pa.binary())
    numbers = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows), start=rows.first_row - 1)
    return _Columns(timestamps, keys, values, numbers)


class _Batcher:
    """Assigns rows to partitions and cuts each partition's rows into batches."""

    def __init__(self, logs: Sequence[PartitionLog], options: ImportOptions, config: LogConfig) -> None:
        self.min_timestamp: int | None = None
        self.max_timestamp: int | None = None
        self._logs = logs
        self._codec = options.codec
        limits = {"max.message.bytes": config.max_message_bytes, "segment.bytes": config.segment_bytes}
        self._limits = {name: _before_compression(limit_bytes, options.codec) for name, limit_bytes in limits.items()}
        self._row_limit_bytes = min(self._limits.values())
        self._batch_bytes = min(options.batch_bytes, self._row_limit_bytes)
        self._without_key = 0
        self._waiting: tuple[_Columns, pa.Int32Array] | None = None

    def add(self, columns: _Columns) -> None:
        """Add rows: write all full batches, and keep the remaining rows."""
        self._check_sizes(columns)
        span = pc.min_max(columns.timestamps).as_py()
        if span["min"] is not None:
            self.min_timestamp = span["min"] if self.min_timestamp is None else min(self.min_timestamp, span["min"])
            self.max_timestamp = span["max"] if self.max_timestamp is None else max(self.max_timestamp, span["max"])
        self._write(*self._behind_waiting(columns), is_last=False)

    def finish(self) -> None:
        """Write the remaining rows as batches."""
        if self._waiting is not None:
            self._write(*self._waiting, is_last=True)

    def _write(self, columns: _Columns, partitions: pa.Int32Array, *, is_last: bool) -> None:
        batches = _batches(columns, self._codec)
        left: list[pa.Int32Array] = []
        for partition, indices in rows_by_place(partitions):
            log = self._logs[partition]
            entries = int_view(indices, "i")
            first = 0
            while first < len(entries):
                rows = batches.fitting(entries, first, self._batch_bytes)
                if first + rows == len(entries) and not is_last:
                    left.append(indices.slice(first))
                    break
                try:
                    log.append_as_leader(batches.build(entries, first, first + rows), LEADER_EPOCH)
                except RecordValidationError as error:
                    if not error.record_errors:
                        raise
                    index, why = error.record_errors[0]
                    row = columns.numbers[entries[first + index]].as_py()
                    raise type(error)(f"row {row}: {why}") from error
                first += rows
        self._waiting = None
        if left:
            # Copy the rows, because slices would keep the whole chunk in memory.
            rows_left = pa.concat_arrays(left)
            self._waiting = _Columns(*(column.take(rows_left) for column in columns)), partitions.take(rows_left)

    def _behind_waiting(self, columns: _Columns) -> tuple[_Columns, pa.Int32Array]:
        """Put the rows awaiting a full batch in front of the new rows. Return the rows and their partitions."""
        partitions = self._partitions(columns.keys)
        if self._waiting is None:
            return columns, partitions
        before, their_partitions = self._waiting
        joined = _Columns(*(pa.concat_arrays(pair) for pair in zip(before, columns, strict=True)))
        return joined, pa.concat_arrays([their_partitions, partitions])

    def _partitions(self, keys: pa.BinaryArray) -> pa.Int32Array:
        count = len(self._logs)
        if count == 1:
            return pa.repeat(pa.scalar(0, pa.int32()), len(keys))
        chosen = pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(partitions_of(binary_layout(keys), count))])
        if not keys.null_count:
            return chosen
        turns = pc.add(pc.cumulative_sum(keys.is_null().cast(pa.int64())), self._without_key - 1)
        self._without_key = turns[-1].as_py() + 1
        in_turn = pc.subtract(turns, pc.multiply(pc.divide(turns, count), count)).cast(pa.int32())
        return pc.if_else(keys.is_null(), in_turn, chosen)

    def _check_sizes(self, columns: _Columns) -> None:
        """Raise RecordTooLargeError, with the row's number, if a row is too large for any batch or segment."""
        keys, values = (pc.fill_null(pc.binary_length(column), 0).cast(pa.int64()) for column in (columns.keys, columns.values))
        suspects = pc.indices_nonzero(pc.greater(pc.add(keys, values), self._row_limit_bytes - _MAX_OVERHEAD_BYTES))
        if not len(suspects):
            return
        rows = suspects.cast(pa.int32())
        batches = _batches(columns, Codec.NONE)
        entries = int_view(rows, "i")
        for i in range(len(rows)):
            size = batches.size_bytes(entries, i, i + 1)
            for name, limit_bytes in self._limits.items():
                if size > limit_bytes:
                    raise RecordTooLargeError(
                        f"row {columns.numbers[entries[i]].as_py()} is larger than {name} allows",
                        found=f"a batch of {size} bytes",
                        expected=f"at most {limit_bytes}",
                    )


def _before_compression(limit_bytes: int, codec: Codec) -> int:
    """Return the largest size before compression with which a batch stays within `limit_bytes`. Compression makes an
    incompressible batch slightly larger.
    """
    return limit_bytes if codec is Codec.NONE else limit_bytes - 64 - limit_bytes // 128


def _batches(columns: _Columns, codec: Codec) -> ColumnBatches:
    return ColumnBatches(
        int_view(columns.timestamps, "q"), binary_layout(columns.keys), binary_layout(columns.values), codec=codec
    )
