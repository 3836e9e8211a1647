"""Batches of a metadata log, and snapshots: values to bytes and back (KIP-595, KIP-630).

A data batch has format v2, no producer, keys or compression, and the epoch of the quorum's leader. A control batch contains one
record of `control_records`, whose key is its type. A snapshot is a file of batches, whose offsets begin at 0::

    control   SnapshotHeader         the time of the newest record in the snapshot
    control   KRaftVersion, Voters   only in a quorum whose voters can change
    data      values                 at most 1000 per batch
    control   SnapshotFooter         without it the snapshot is incomplete

A snapshot replaces all records of the log below the offset in its name, ``<end offset>-<epoch>.checkpoint``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from tidelog.metadata.control_records import CONTROL_RECORDS, SnapshotFooterRecord, SnapshotHeaderRecord
from tidelog.records import kernel
from tidelog.records.batch import CREATE_TIME, BatchHeader
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Bytes
from tidelog.records.control import ControlType, control_key, parse_control_type
from tidelog.records.records import Record, iter_records
from tidelog.records.scanner import scan_batch
from tidelog.wire.codec import Message, decoder, encode

SNAPSHOT_BATCH_RECORDS = 1000

_TYPES = {cls: control_type for control_type, cls in CONTROL_RECORDS.items()}


def build_batch(values: Sequence[bytes], base_offset: int, epoch: int, timestamp: int) -> bytes:
    """Return a batch with the metadata records `values`, in order. `timestamp` is in epoch ms."""
    records = [Record(base_offset + i, timestamp, CREATE_TIME, None, value) for i, value in enumerate(values)]
    return bytes(build_batch_v2(records, leader_epoch=epoch))


def build_control_batch(message: Message, base_offset: int, epoch: int, timestamp: int, version: int = 0) -> bytes:
    """Return the control batch for a Raft message."""
    value = b"".join(encode(message, version))
    record = Record(base_offset, timestamp, CREATE_TIME, control_key(_TYPES[type(message)]), value)
    return bytes(build_batch_v2([record], leader_epoch=epoch, is_control=True))


def build_snapshot(values: Iterable[bytes], epoch: int, timestamp: int, control: Sequence[Message] = ()) -> Iterator[bytes]:
    """Yield the batches of a snapshot. `timestamp`, in epoch ms, is the time of the newest record in the snapshot.

    `control` has KRaftVersion and Voters if the quorum's voters can change.
    """
    offset = 0
    for message in (SnapshotHeaderRecord(0, timestamp), *control):
        yield build_control_batch(message, offset, epoch, timestamp)
        offset += 1
    rest = iter(values)
    while some := list(islice(rest, SNAPSHOT_BATCH_RECORDS)):
        yield build_batch(some, offset, epoch, timestamp)
        offset += len(some)
    yield build_control_batch(SnapshotFooterRecord(0), offset, epoch, timestamp)


class ValueReader:
    """Reads the values of data batches, one batch after the other, reusing memory."""

    def __init__(self) -> None:
        self._rows = kernel.Rows()

    def values(self, header: BatchHeader, buffer: Bytes) -> list[memoryview]:
        """Return the values of a batch. Raises CorruptBatchError, InvalidRecordError, DecompressionError."""
        rows = self._rows
        rows.clear()
        count, data = scan_batch(rows, header, buffer)
        view = memoryview(data)
        positions, lengths = rows.column("value_position"), rows.column("value_length")
        return [view[positions[i] : positions[i] + max(lengths[i], 0)] for i in range(count)]


def control_message(header: BatchHeader, buffer: Bytes) -> tuple[ControlType, Message | None]:
    """Return the type and message of a control batch. The message is None if `control_records` does not have the type.

    Raises InvalidRecordError, ProtocolError for invalid bytes.
    """
    record = next(iter_records(header, buffer, check_crc=False))
    control_type = parse_control_type(record.key)
    cls = CONTROL_RECORDS.get(control_type)
    if cls is None or record.value is None:
        return control_type, None
    version = int.from_bytes(record.value[:2], "big")
    # A newer version begins with the fields of the newest known version.
    return control_type, decoder(cls, min(version, cls.VERSIONS[-1]), exact=False)(record.value)
