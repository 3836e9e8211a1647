"""Reads and builds batches of the coordinators' state topics, as records with keys and values.

``__consumer_offsets`` and ``__transaction_state`` have millions of batches of one or two records, so many batches are read at
once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from tidelog.records import kernel
from tidelog.records.batch import BatchHeader, PathLike, check_crc
from tidelog.records.builder import NO_PRODUCER, Producer, binary_column, build_batch_v2_from_columns
from tidelog.records.compression import Bytes, Codec
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.records import iter_records
from tidelog.records.scanner import scan_batch

_V2: Final = 2
_COLUMNS: Final = ("offset", "timestamp", "key_position", "key_length", "value_position", "value_length")


Entry = tuple[bytes, bytes | None]
"""A key and its value. A value of None deletes the key."""


class StateRecord(NamedTuple):
    """A stored record. `timestamp` is in epoch ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class StateBatch(NamedTuple):
    """The content of a stored batch: records, or the marker that ends its producer's transaction."""

    producer_id: int
    producer_epoch: int
    is_transactional: bool
    marker: ControlType | None
    records: list[StateRecord]


def build_state_batch(
    entries: Sequence[Entry], now_ms: int, codec: Codec, producer: Producer = NO_PRODUCER, *, is_transactional: bool = False
) -> bytearray:
    """Return a batch of entries, all with the timestamp `now_ms`, at offset 0. Thread-safe."""
    if codec is Codec.NONE:
        batch = kernel.build_state_batch(list(entries), now_ms, *producer, is_transactional)
        if batch is not None:
            return batch
    return build_batch_v2_from_columns(
        array("q", (now_ms,)) * len(entries),
        binary_column([key for key, _ in entries]),
        binary_column([value for _, value in entries]),
        base_offset=0,
        codec=codec,
        producer=producer,
        is_transactional=is_transactional,
    ).data


def state_batches(headers: Sequence[BatchHeader], data: Bytes, path: PathLike, *, start: int = 0) -> Iterator[StateBatch]:
    """Yield the content of each batch. `data` has the bytes of the file `path` that begin at position `start`. Uncompressed
    batches are read all at once.

    Raises CorruptBatchError, InvalidRecordError, DecompressionError.
    """
    view = memoryview(data)
    rows = kernel.Rows()
    counts = []
    for header in headers:
        count = -1
        if header.magic == _V2 and not header.is_compressed:
            check_crc(header, view[header.position - start : header.end_position - start], path)
            count, _ = scan_batch(rows, header, data, header.position - start, path=path)
        counts.append(count)
    read = zip(*(rows.column(name)[: rows.count].tolist() for name in _COLUMNS), strict=True)
    for header, count in zip(headers, counts, strict=True):
        records = []
        if count < 0:
            found = iter_records(header, view[header.position - start : header.end_position - start], path=path)
            records = [StateRecord(one.offset, one.timestamp, one.key, one.value) for one in found]
        else:
            for offset, timestamp, key_at, key_length, value_at, value_length in islice(read, count):
                key = None if key_length < 0 else bytes(view[key_at : key_at + key_length])
                value = None if value_length < 0 else bytes(view[value_at : value_at + value_length])
                records.append(StateRecord(offset, timestamp, key, value))
        marker = None
        if header.is_control:
            marker = parse_control_type(records[0].key) if records else None
            records = []
        yield StateBatch(header.producer_id, header.producer_epoch, header.is_transactional, marker, records)
