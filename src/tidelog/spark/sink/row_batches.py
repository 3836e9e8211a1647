"""Turns Arrow rows into finished batches, by the columns and rules of Spark's Kafka connector.

| column | type | if missing or null |
|---|---|---|
| `value` | string or binary | the column is required; null is a tombstone |
| `key` | string or binary | no key |
| `topic` | string | the option `topic` is used, which takes precedence over the column; one of the two is required |
| `partition` | int | murmur2 of the key, as in Kafka's producers; for rows without a key, a new partition for each batch |
| `headers` | array<struct<key: string, value: binary>> | no headers |
| `timestamp` | timestamp | the time of writing (Spark's connector ignores this column, so its copies lose their timestamps) |

All other columns are ignored, as in the connector, so a DataFrame that was read can be written unchanged.

::

    rows ─► a chunk of some MiB ─► a lane for each row ─► batches, each as full as fits
                  ▲                                           │
                  └────────── rows of unfinished batches ─────┘

A lane is a partition, or all rows of a topic without a key. Within a lane rows keep their order. No row becomes a Python object.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.clock import Clock, SystemClock
from tidelog.errors import InvalidArgumentError
from tidelog.ingest.arrow_columns import binary_layout, int_view, rows_by_place
from tidelog.model import TopicPartition
from tidelog.records.column_batches import ColumnBatches, partitions_of
from tidelog.spark.sink.column_rules import check_columns
from tidelog.spark.sink.header_columns import header_column
from tidelog.spark.sink.sink_options import SinkOptions

CHUNK_BYTES = 8 << 20
"""About this many bytes of rows are collected before they are cut into batches. Rows left over are copied once per chunk."""

_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_NO_PARTITION = -1


def spark_type(kind: pa.DataType) -> str:
    """Return Spark's name for an Arrow type if a column of this type can be written; otherwise return the Arrow name."""
    if any(is_text(kind) for is_text in _TEXT):
        return "string"
    if any(is_bytes(kind) for is_bytes in _BYTES):
        return "binary"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{spark_type(field.type)}' for field in kind)}>"
    return "int" if pa.types.is_int32(kind) else "void" if pa.types.is_null(kind) else str(kind)


class _Columns(NamedTuple):
    """Rows to be written. `timestamps` (int64 ms) and `lanes` (int32) have no nulls; all other columns may."""

    timestamps: pa.Array
    keys: pa.Array
    values: pa.Array
    headers: pa.Array
    """Headers in the encoding of v2 records."""
    lanes: pa.Array


class _Topic(NamedTuple):
    name: str
    partitions: int
    first_lane: int
    """The lane of partition 0. The lane before this lane is for rows without a key."""


class RowBatches:
    """Assigns rows to partitions and cuts each partition's rows into batches of base offset 0.

    `partitions(topic)` returns a topic's number of partitions; it is called once per topic. All methods raise
    InvalidArgumentError for a null topic, an invalid partition, a negative time, or a header without a key.
    """

    def __init__(
        self,
        schema: pa.Schema,
        options: SinkOptions,
        partitions: Callable[[str], int],
        clock: Clock | None = None,
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        check_columns([(field.name, spark_type(field.type)) for field in schema], options)
        self._names = set(schema.names)
        if not options.include_headers:
            self._names.discard("headers")
        self._options = options
        self._partitions = partitions
        self._clock = clock or SystemClock()
        self._chunk_bytes = chunk_bytes
        self._topics: dict[str, _Topic] = {}
        self._lanes: list[tuple[_Topic, int]] = []
        """The topic and partition of each lane. Partition -1 stands for rows without a key."""
        self._turns: dict[str, int] = {}
        self._collected: list[pa.RecordBatch] = []
        self._collected_bytes = 0
        self._waiting: _Columns | None = None

    def add(self, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, bytearray]]:
        """Add rows, and yield the batches that are full. The caller must exhaust the generator."""
        pieces = min(max(1, rows.nbytes // self._chunk_bytes), rows.num_rows)
        for piece in range(pieces):
            first = rows.num_rows * piece // pieces
            part = rows.slice(first, rows.num_rows * (piece + 1) // pieces - first)
            self._collected.append(part)
            self._collected_bytes += part.nbytes
            if self._collected_bytes >= self._chunk_bytes:
                yield from self._write(is_last=False)

    def finish(self) -> Iterator[tuple[TopicPartition, bytearray]]:
        """Yield batches with the remaining rows."""
        yield from self._write(is_last=True)

    def _write(self, *, is_last: bool) -> Iterator[tuple[TopicPartition, bytearray]]:
        columns = self._take()
        if columns is None:
            return
        batches = ColumnBatches(
            int_view(columns.timestamps, "q"),
            binary_layout(columns.keys),
            binary_layout(columns.values),
            binary_layout(columns.headers) if "headers" in self._names else None,
            codec=self._options.codec,
        )
        limit_bytes = self._options.batch_bytes
        left: list[pa.Array] = []
        for lane, rows in rows_by_place(columns.lanes):
            topic, partition = self._lanes[lane]
            indices = int_view(rows, "i")
            first = 0
            while first < len(indices):
                count = batches.fitting(indices, first, limit_bytes)
                if first + count == len(indices) and not is_last:
                    left.append(rows.slice(first))
                    break
                target = self._next_turn(topic) if partition == _NO_PARTITION else partition
                yield TopicPartition(topic.name, target), batches.build(indices, first, first + count)
                first += count
        if left:
            # Copy the rows, because slices would keep the whole chunk in memory.
            rows_left = pa.concat_arrays(left)
            self._waiting = _Columns(*(column.take(rows_left) for column in columns))

    def _take(self) -> _Columns | None:
        """Return the rows awaiting a full batch, followed by the collected rows."""
        waiting, collected = self._waiting, self._collected
        self._waiting, self._collected, self._collected_bytes = None, [], 0
        if not collected:
            return waiting
        columns = self._columns(collected[0] if len(collected) == 1 else pa.concat_batches(collected))
        if waiting is None:
            return columns
        return _Columns(*(pa.concat_arrays(pair) for pair in zip(waiting, columns, strict=True)))

    def _columns(self, rows: pa.RecordBatch) -> _Columns:
        keys = self._binary(rows, "key")
        return _Columns(
            self._timestamps(rows),
            keys,
            self._binary(rows, "value"),
            header_column(rows.column("headers")) if "headers" in self._names else pa.nulls(rows.num_rows, pa.binary()),
            self._lanes_of(rows, keys),
        )

    def _binary(self, rows: pa.RecordBatch, name: str) -> pa.Array:
        return rows.column(name).cast(pa.binary()) if name in self._names else pa.nulls(rows.num_rows, pa.binary())

    def _timestamps(self, rows: pa.RecordBatch) -> pa.Array:
        now = pa.scalar(self._clock.now_ms(), pa.int64())
        if "timestamp" not in self._names or pa.types.is_null(rows.schema.field("timestamp").type):
            return pa.repeat(now, rows.num_rows)
        times = rows.column("timestamp")
        earliest = pc.min(times.cast(pa.int64()))
        if earliest.is_valid and earliest.as_py() < 0:
            raise InvalidArgumentError("column timestamp: a record's timestamp cannot be before 1970", found=str(pc.min(times)))
        # Times are not negative, so truncation is flooring.
        times_ms = times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())
        return times_ms.fill_null(now) if times_ms.null_count else times_ms

    # --- lanes

    def _lanes_of(self, rows: pa.RecordBatch, keys: pa.Array) -> pa.Array:
        """Return the lane of each row, int32."""
        wanted = rows.column("partition").cast(pa.int32()) if "partition" in self._names else None
        if self._options.topic is not None:
            return self._lanes_in(self._topic(self._options.topic), keys, wanted)
        names = rows.column("topic").cast(pa.string())
        if names.null_count:
            raise InvalidArgumentError(
                "column topic is null in a row: every row needs a topic, unless the option topic is set",
                found=f"{names.null_count} rows",
            )
        coded = names.dictionary_encode()
        topics = [self._topic(name) for name in coded.dictionary.to_pylist()]
        if len(topics) == 1:
            return self._lanes_in(topics[0], keys, wanted)
        parts, lanes = [], []
        for code, part in rows_by_place(coded.indices):
            parts.append(part)
            lanes.append(self._lanes_in(topics[code], keys.take(part), None if wanted is None else wanted.take(part)))
        order = pc.array_sort_indices(pa.concat_arrays(parts))
        return pa.concat_arrays(lanes).take(order)

    def _lanes_in(self, topic: _Topic, keys: pa.Array, wanted: pa.Array | None) -> pa.Array:
        if wanted is not None and wanted.null_count < len(wanted):
            span = pc.min_max(wanted).as_py()
            if span["min"] < 0 or span["max"] >= topic.partitions:
                raise InvalidArgumentError(
                    f"column partition: topic {topic.name!r} does not have this partition",
                    found=span["min"] if span["min"] < 0 else span["max"],
                    expected=f"0 to {topic.partitions - 1}",
                )
        if topic.partitions == 1:
            return pa.repeat(pa.scalar(topic.first_lane, pa.int32()), len(keys))
        # A null key gives -1: the lane before partition 0's lane.
        chosen = pa.Array.from_buffers(
            pa.int32(), len(keys), [None, pa.py_buffer(partitions_of(binary_layout(keys), topic.partitions))]
        )
        if wanted is not None:
            chosen = pc.coalesce(wanted, chosen)
        return pc.add(chosen, pa.scalar(topic.first_lane, pa.int32()))

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _Topic(name, self._partitions(name), len(self._lanes) + 1)
            self._lanes += [(topic, partition) for partition in range(_NO_PARTITION, topic.partitions)]
        return topic

    def _next_turn(self, topic: _Topic) -> int:
        # Tasks begin at different partitions. Otherwise all small tasks, which have a single batch, would write to the same
        # partition.
        before = self._turns.get(topic.name)
        turn = random.randrange(topic.partitions) if before is None else (before + 1) % topic.partitions
        self._turns[topic.name] = turn
        return turn
