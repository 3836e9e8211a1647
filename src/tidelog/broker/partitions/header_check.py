"""Checks produced records by their batch headers, before the log sees them.

| records | result |
|---|---|
| one whole non-transactional v2 batch, in a codec that the request's version allows | accepted without a further check |
| a first batch with an impossible length or format | CORRUPT_MESSAGE for the whole request, as in Kafka |
| no whole batch, several batches, a different format, zstd in an old version | an error, in versions that require format v2 |
| transactional | must be verified with the coordinator, unless the transaction is open in the log |

Only `is_of_open_transaction` uses the log: it reads the state of producers.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from tidelog.errors import CorruptBatchError
from tidelog.records.batch import CODEC_MASK, HEADER_BYTES, LOG_OVERHEAD, MIN_LENGTH, TRANSACTIONAL_BIT
from tidelog.records.builder import Producer
from tidelog.records.compression import Bytes, Codec
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode

FIRST_V2: Final = 3
"""The first version of Produce in which a partition's records must be a single v2 batch."""

FIRST_ZSTD: Final = 7

_PLAIN_BYTES: Final = 32 * 1024
"""The size in bytes up to which the log always checks an uncompressed batch on the calling thread."""

_NONE: Final = 0
_ZSTD: Final = int(Codec.ZSTD)

_read_head = Struct(">8xi4xb5xB").unpack_from
"""The fields of a v2 batch that are checked before the append: length, magic, low byte of the attributes."""
_read_prefix = Struct(">8xi4xb").unpack_from
_read_producer = Struct(">43xqhi").unpack_from
_MAGIC_END: Final = 17
_ATTRIBUTES: Final = 22
"""The position of the low byte of a v2 batch's attributes: codec, timestamp type, transactional."""
_PRODUCER_ID: Final = 43
_SIGN: Final = 0x80


class HeaderCheck(NamedTuple):
    """The result of the first check of a partition's batch headers."""

    error_code: int = _NONE
    is_transactional: bool = False
    producer: Producer | None = None
    """The producer id, epoch and sequence; None unless the records are transactional."""


USUAL = HeaderCheck()
"""The result for records that need no further check."""


def check_headers_fast(records: Bytes | None, version: int) -> HeaderCheck | None:
    """Return USUAL for one whole non-transactional v2 batch in a codec that the version allows. For all other records return
    None: they must be checked by `check_headers`.
    """
    if records is None:
        return None
    size = len(records)
    if size <= HEADER_BYTES:
        return None
    length, magic, attributes = _read_head(records)
    if magic != 2 or length + LOG_OVERHEAD != size or attributes & TRANSACTIONAL_BIT:
        return None
    return USUAL if version >= FIRST_ZSTD or attributes & CODEC_MASK != _ZSTD else None


def are_plain(topics: Sequence[Sequence[Any]]) -> bool:
    """Whether a request's batches may be appended one after the other, with no other client served in between. They must be
    small, uncompressed, and for different partitions. Each element of `topics` has a name, an id, and pairs of a partition and
    its records.
    """
    if len({topic[0] for topic in topics}) != len(topics):
        return False
    for _, _, partitions in topics:
        if len({one[0] for one in partitions}) != len(partitions):
            return False
        for _, records in partitions:
            if len(records) > _PLAIN_BYTES or records[_ATTRIBUTES] & CODEC_MASK:
                return False
    return True


def is_of_open_transaction(log: PartitionLog | None, records: Bytes | None, version: int) -> bool:
    """Whether the records are one whole batch of a transaction that is already open in the log, so that the coordinator need not
    verify it.
    """
    if log is None or records is None:
        return False
    size = len(records)
    if size <= HEADER_BYTES:
        return False
    length, magic, attributes = _read_head(records)
    if magic != 2 or length + LOG_OVERHEAD != size or not attributes & TRANSACTIONAL_BIT or version < FIRST_V2:
        return False
    if version < FIRST_ZSTD and attributes & CODEC_MASK == _ZSTD:
        return False
    producer_id, epoch, _sequence = _read_producer(records)
    entry = log.producer_state.last_entry(producer_id)
    return entry is not None and entry.has_open_transaction and epoch <= entry.producer_epoch


def check_produced(records: Bytes, version: int) -> HeaderCheck:
    """Return the result of `check_headers`, computed faster for usual records."""
    return check_headers_fast(records, version) or check_headers(records, version)


def check_headers(records: Bytes, version: int) -> HeaderCheck:
    """Check a partition's records by their batch headers. Raises CorruptBatchError if the first header has an impossible length
    or format.
    """
    end = _batch_end(records, 0)
    if end is None:
        return USUAL if version < FIRST_V2 else HeaderCheck(ErrorCode.INVALID_RECORD)
    is_v2 = records[_MAGIC_END - 1] == 2
    attributes = records[_ATTRIBUTES] if is_v2 and end >= HEADER_BYTES else 0
    is_transactional = bool(attributes & TRANSACTIONAL_BIT)
    producer = None
    if is_transactional and not records[_PRODUCER_ID] & _SIGN:
        producer = Producer(*_read_producer(records))
    code = ErrorCode.NONE
    if version < FIRST_V2:
        while end is not None:
            end = _batch_end(records, end)
    elif not is_v2:
        code = ErrorCode.INVALID_RECORD
    elif attributes & CODEC_MASK == _ZSTD and version < FIRST_ZSTD:
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    else:
        try:
            if _batch_end(records, end) is not None:
                code = ErrorCode.INVALID_RECORD
        except CorruptBatchError:
            code = ErrorCode.CORRUPT_MESSAGE
    return HeaderCheck(code, is_transactional, producer) if code or is_transactional else USUAL


def _batch_end(records: Bytes, position: int) -> int | None:
    """Return the end of the batch at `position`, or None if the batch is incomplete. Raises CorruptBatchError."""
    left = len(records) - position
    if left < LOG_OVERHEAD:
        return None
    if left < _MAGIC_END:
        length = int.from_bytes(records[position + 8 : position + 12], "big", signed=True)
    else:
        length, magic = _read_prefix(records, position)
        if length >= MIN_LENGTH and not 0 <= magic <= 2:
            raise CorruptBatchError("unknown batch magic", position=position, found=magic, expected="0, 1 or 2")
    if length < MIN_LENGTH:
        raise CorruptBatchError("batch length too small", position=position, found=length, expected=f"at least {MIN_LENGTH}")
    return position + length + LOG_OVERHEAD if length + LOG_OVERHEAD <= left else None
