"""What a leader demands of the records that it is sent, and the offsets and times that it gives them (spec §11).

    the batch is                                             and the topic wants       what is done
    v2, or a v1 wrapper with offsets 0, 1, 2... inside       this format, this codec   patched in the caller's buffer
    v0 or v1, uncompressed: each message a batch             this format, no codec     patched in the caller's buffer
    anything else                                            another format or codec   rebuilt in new bytes (`conversion`)

    patched                   CreateTime                              LogAppendTime
    v0                        offset                                  offset
    v1, v1 wrapper            offset, type                            offset, type, timestamp
    v2                        base offset, epoch, max timestamp       base offset, epoch, type, max timestamp
                              where it is not the records' own        (the deltas go on telling the producer's times)

Refused, nothing being changed in the buffer::

    InvalidRecordError          no batch, or several where one is all there may be; formats mixed; a record count that is not
                                the offsets'; a client's control batch; a producer without a sequence; records that cannot
                                be read; a compressed message in a compressed one
    RecordValidationError       ... records of another format than their wrapper; without a key in a compacted topic: told one
    InvalidTimestampError       by one. With a timestamp outside of [now - before, now + after], or LogAppendTime set by a
                                producer, among them
    CorruptBatchError           the checksum of a message inside a wrapper
    UnsupportedForMessageFormatError    transactions and idempotence before v2
    UnsupportedCompressionTypeError     zstd before v2

What is taken can be read: a batch whose offset deltas are not 0, 1, 2..., which Kafka would store as it is, is rebuilt with
offsets that are. A batch that claims LogAppendTime in a CreateTime topic is judged by its claim, as in Kafka, and by its
records' own times, which are what is stored in place; the header tells the largest of these.

The checksums of batches are the caller's to check, before (`PartitionLog`); sizes, where they may have changed, afterwards.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, NoReturn

from tidelog.config import LOG_APPEND_TIME as LOG_APPEND_TIME_NAME
from tidelog.config import LogConfig
from tidelog.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordError,
    RecordValidationError,
    UnsupportedForMessageFormatError,
)
from tidelog.records import kernel
from tidelog.records.batch import (
    CREATE_TIME,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    iter_headers,
    read_header,
)
from tidelog.records.compression import Bytes, Codec, decompress
from tidelog.records.conversion import Target, check_codec, producer_of, rebuild, recompress
from tidelog.records.legacy import MessagePlace, has_right_crc, read_message, split_messages
from tidelog.records.patch import set_base_offset_and_epoch, set_max_timestamp
from tidelog.records.records import Record, iter_records
from tidelog.records.scanner import raise_fault, unwrap, wrapped_base_offset

_OFFSET = Struct(">q")

_MIN_TIME = -(2**63)
_MAX_TIME = 2**63 - 1
_MAX_DELTA = 2**31 - 1

_WITHOUT_KEY = 1  # the kernel's reasons
_CLAIM = "the producer set the timestamp type LogAppendTime"
_NO_KEY = "no key, which a compacted topic needs"

_LZ4_FAST = 9
"""Kafka's default level of LZ4, and the only one that it leaves to the fast compressor."""


class AppendOrigin(enum.Enum):
    """Where an append comes from; that says how much of it is checked."""

    REPLICATION = "replication"
    COORDINATOR = "coordinator"
    CLIENT = "client"


@dataclass(frozen=True)
class ValidationRules:
    """What a topic demands, and how it stores what it gets."""

    timestamp_type: int = CREATE_TIME
    """CREATE_TIME or LOG_APPEND_TIME."""
    before_max_ms: int = _MAX_TIME
    """How far a timestamp may lie in the past, with CreateTime."""
    after_max_ms: int = _MAX_TIME
    """How far in the future."""
    is_compacted: bool = False
    """Whether each record needs a key."""
    target_codec: Codec | None = None
    """None: the codec that the producer chose, at its default level."""
    target_level: int | None = None
    magic: int = 2
    leader_epoch: int = -1

    @classmethod
    def from_config(cls, config: LogConfig, leader_epoch: int) -> ValidationRules:
        """Return the rules of a topic's properties, for a leader of that epoch."""
        codec, level = _COMPRESSION_TYPES[config.compression_type], None
        if codec is Codec.GZIP and config.compression_gzip_level != -1:
            level = config.compression_gzip_level
        elif codec is Codec.LZ4 and config.compression_lz4_level != _LZ4_FAST:
            level = config.compression_lz4_level
        elif codec is Codec.ZSTD:
            level = config.compression_zstd_level
        return cls(
            timestamp_type=LOG_APPEND_TIME if config.message_timestamp_type == LOG_APPEND_TIME_NAME else CREATE_TIME,
            before_max_ms=config.timestamp_before_max_ms,
            after_max_ms=config.timestamp_after_max_ms,
            is_compacted=config.is_compacted,
            target_codec=codec,
            target_level=level,
            magic=config.magic,
            leader_epoch=leader_epoch,
        )


_COMPRESSION_TYPES = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class ValidatedRecords(NamedTuple):
    """Records as they are to be written, and what an append needs to know of them. Times in epoch ms."""

    data: bytearray | memoryview
    """The caller's buffer, patched, or new bytes."""
    headers: list[BatchHeader]
    """The headers of `data`, after the assignment; positions are into `data`."""
    first_offset: int
    last_offset: int
    max_timestamp: int
    """-1: no record has a timestamp."""
    offset_of_max_timestamp: int
    """Last offset of the first batch that has `max_timestamp`, which is what a time index entry names; -1 for none."""
    log_append_time: int
    """-1 with CreateTime."""
    size_may_have_changed: bool
    """Whether batches were rebuilt, so that max.message.bytes must be looked at again."""


def validate_and_assign_offsets(
    records: bytearray | memoryview,
    headers: Sequence[BatchHeader],
    rules: ValidationRules,
    *,
    base_offset: int,
    now_ms: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ValidatedRecords:
    """Check `records`, whose batches are `headers` (positions into it), and give them offsets from `base_offset` on.

    `now_ms` is the time that timestamps are compared with, and the append time of LogAppendTime.
    Raises what the table above says, and DecompressionError; InvalidArgumentError for records that a conversion cannot
    express, as headers in v0 and v1. `records` is then as it was.
    """
    if not headers:
        raise InvalidRecordError("no batch among the records to be appended")
    if headers[0].magic == 2:
        if len(headers) > 1:
            raise InvalidRecordError("a producer's v2 records come as one batch", found=f"{len(headers)} batches")
        return _assign_batch(records, headers[0], rules, base_offset, now_ms, origin)
    return _assign_messages(records, headers, rules, base_offset, now_ms, origin)


# --- Format v2 ------------------------------------------------------------------------------------------------------------


def _assign_batch(
    records: bytearray | memoryview,
    header: BatchHeader,
    rules: ValidationRules,
    base_offset: int,
    now_ms: int,
    origin: AppendOrigin,
) -> ValidatedRecords:
    _check_batch(header, header, rules, origin)
    source = header.codec
    target = source if rules.target_codec is None else rules.target_codec
    check_codec(target, rules.magic)
    data: Bytes = records
    start, end = header.position + HEADER_BYTES, header.position + header.size
    if source is not Codec.NONE:
        data = decompress(source, memoryview(records)[start:end], position=header.position)
        start, end = 0, len(data)
    by_append = rules.timestamp_type == LOG_APPEND_TIME
    low, high = _time_bounds(rules, now_ms)
    refused, max_timestamp, is_in_order, is_based = kernel.check_records_v2(
        data, start, end, header.record_count, header.base_timestamp, low, high, rules.is_compacted, None
    )
    if refused < 0:
        raise_fault(refused, max_timestamp, header, None if header.is_compressed else header.position, None)
    claim = _claim_refused(header, by_append, low, high) if header.timestamp_type == LOG_APPEND_TIME else None
    if refused or claim:
        _refuse_batch(memoryview(data)[start:end], header, low, high, rules.is_compacted, refused, claim)
    count = header.record_count
    if count == 0:
        raise InvalidRecordError("a batch without records", position=header.position)
    is_in_order &= header.last_offset - header.base_offset + 1 == count
    keeps_codec = source is target or (source is Codec.NONE and header.is_control)
    if keeps_codec and is_in_order and rules.magic == 2:
        set_base_offset_and_epoch(records, base_offset, rules.leader_epoch, header.position)
        if by_append:
            max_timestamp = now_ms
        if header.max_timestamp != max_timestamp or header.timestamp_type != rules.timestamp_type:
            set_max_timestamp(records, rules.timestamp_type, max_timestamp, header.position)
        header = read_header(records, header.position, header.position)
        whole = records if len(records) == header.position + header.size else memoryview(records)[: header.end_position]
        return ValidatedRecords(
            whole,
            [header],
            base_offset,
            header.last_offset,
            max_timestamp,
            -1 if max_timestamp == NO_TIMESTAMP else header.last_offset,
            now_ms if by_append else NO_TIMESTAMP,
            False,
        )
    to = _target(rules, target, now_ms)
    if rules.magic == 2 and is_in_order and is_based and header.timestamp_type == CREATE_TIME:
        section = memoryview(data)[start:end]
        return _rebuilt(recompress(section, header, base_offset, now_ms if by_append else max_timestamp, to), base_offset, to)
    # Offsets inside may be anything that is not negative: they are given anew.
    loose = header._replace(base_offset=0, last_offset=_MAX_DELTA)
    batch = memoryview(records)[header.position : header.end_position]
    sent = [record._replace(offset=base_offset + i) for i, record in enumerate(iter_records(loose, batch, check_crc=False))]
    built = rebuild(
        sent, to, producer=producer_of(header), is_transactional=header.is_transactional, is_control=header.is_control
    )
    return _rebuilt(built, base_offset, to)


def _refuse_batch(
    section: memoryview, header: BatchHeader, low: int, high: int, needs_keys: bool, refused: int, claim: str | None
) -> NoReturn:
    """Raise for a v2 batch of which the kernel refuses records, or all of them for what their header claims."""
    found = array("q", bytes(24 * refused))
    kernel.check_records_v2(section, 0, len(section), header.record_count, header.base_timestamp, low, high, needs_keys, found)
    reasons = {found[i]: (found[i + 1], found[i + 2]) for i in range(0, len(found), 3)}
    errors = []
    for index in range(header.record_count) if claim else reasons:
        reason, timestamp = reasons.get(index, (0, 0))
        if reason == _WITHOUT_KEY:
            errors.append((False, RecordError(index, _NO_KEY)))
        else:
            errors.append((True, RecordError(index, claim or _outside(timestamp, low, high))))
    _raise_refusal(errors, header)


# --- Formats v0 and v1 ----------------------------------------------------------------------------------------------------


def _assign_messages(
    records: bytearray | memoryview,
    headers: Sequence[BatchHeader],
    rules: ValidationRules,
    base_offset: int,
    now_ms: int,
    origin: AppendOrigin,
) -> ValidatedRecords:
    first = headers[0]
    source = next((header.codec for header in headers if header.is_compressed), Codec.NONE)
    target = source if rules.target_codec is None else rules.target_codec
    if source is not Codec.NONE and len(headers) > 1:
        raise InvalidRecordError("a compressed message is not alone", found=f"{len(headers)} messages")
    check_codec(target, rules.magic)
    by_append = rules.timestamp_type == LOG_APPEND_TIME
    low, high = _time_bounds(rules, now_ms)
    sent: list[Record] = []
    max_inside = NO_TIMESTAMP
    is_in_order = True
    for header in headers:
        _check_batch(first, header, rules, origin)
        data: Bytes = records
        places = [MessagePlace(header.base_offset, header.position, header.end_position, header.magic, 0)]
        inside = 0
        if header.is_compressed:
            data = unwrap(header, records, header.position)
            inside = wrapped_base_offset(header, data)
            places = split_messages(data)
        claims = header.timestamp_type == LOG_APPEND_TIME
        claim = _claim_refused(header, by_append, low, high) if claims else None
        errors = []
        for index, place in enumerate(places):
            if header.is_compressed:
                _check_inside(place, data, header)
            if place.magic != header.magic:
                text = f"message format v{place.magic} inside of v{header.magic}"
                errors.append((False, RecordError(index, text)))
                continue
            timestamp, key, value = read_message(data, place.magic, place.position, place.end)
            if key is None and rules.is_compacted:
                errors.append((False, RecordError(index, _NO_KEY)))
            elif claim or not (low <= timestamp <= high or timestamp == NO_TIMESTAMP):
                errors.append((True, RecordError(index, claim or _outside(timestamp, low, high))))
            max_inside = max(max_inside, timestamp)
            is_in_order &= inside + place.offset == len(sent)
            shown = header.max_timestamp if claims else timestamp
            sent.append(Record(base_offset + len(sent), shown, CREATE_TIME, key, value))
        if errors:
            _raise_refusal(errors, header)
    to = _target(rules, target, now_ms)
    if first.magic == rules.magic and source is target:
        if source is Codec.NONE:
            return _patched_messages(records, headers, to, base_offset)
        if first.magic == 1 and is_in_order:
            last_offset = base_offset + len(sent) - 1
            return _patched_wrapper(records, first, to, base_offset, last_offset, max_inside)
    return _rebuilt(rebuild(sent, to, producer=producer_of(first)), base_offset, to)


def _check_inside(place: MessagePlace, data: Bytes, header: BatchHeader) -> None:
    """Raise for a message inside a wrapper that makes the whole set unfit."""
    if place.attributes & 7:
        raise InvalidRecordError("compressed message inside a compressed message", position=header.position)
    if place.magic == header.magic and not has_right_crc(data, place):
        raise CorruptBatchError(
            f"checksum of the message at byte {place.position} of a compressed one does not match", position=header.position
        )


def _patched_messages(
    records: bytearray | memoryview, headers: Sequence[BatchHeader], to: Target, base_offset: int
) -> ValidatedRecords:
    for offset, header in enumerate(headers, base_offset):
        _OFFSET.pack_into(records, header.position, offset)
        if to.magic == 1:
            is_dated = to.timestamp_type == LOG_APPEND_TIME
            timestamp = to.append_time if is_dated else max(header.max_timestamp, NO_TIMESTAMP)
            set_max_timestamp(records, to.timestamp_type, timestamp, header.position)
    end = headers[-1].end_position
    return _validated(records if len(records) == end else memoryview(records)[:end], base_offset, to, False)


def _patched_wrapper(
    records: bytearray | memoryview, header: BatchHeader, to: Target, base_offset: int, last_offset: int, max_inside: int
) -> ValidatedRecords:
    _OFFSET.pack_into(records, header.position, last_offset)
    timestamp = to.append_time if to.timestamp_type == LOG_APPEND_TIME else max_inside
    set_max_timestamp(records, to.timestamp_type, timestamp, header.position)
    end = header.end_position
    return _validated(records if len(records) == end else memoryview(records)[:end], base_offset, to, False)


# --- Both -----------------------------------------------------------------------------------------------------------------


def _check_batch(first: BatchHeader, header: BatchHeader, rules: ValidationRules, origin: AppendOrigin) -> None:
    """Raise for what a batch's header alone gives away."""
    if header.magic != first.magic:
        raise InvalidRecordError(
            "batches of several formats in one append",
            position=header.position,
            found=f"v{header.magic}",
            expected=f"v{first.magic}",
        )
    if header.magic < 2:
        return
    if origin is AppendOrigin.CLIENT:
        count = header.record_count
        offsets = header.last_offset - header.base_offset + 1
        if count <= 0 or count != offsets:
            raise InvalidRecordError(
                "the batch's record count is not that of its offsets", position=header.position, found=count, expected=offsets
            )
        if header.is_control:
            raise InvalidRecordError("clients write no control batches", position=header.position)
        if header.has_producer_id and header.base_sequence < 0:
            raise InvalidRecordError(
                f"producer {header.producer_id} without a sequence", position=header.position, found=header.base_sequence
            )
    if rules.magic < 2 and (header.is_transactional or header.has_producer_id):
        what = "transactions" if header.is_transactional else "idempotent producers"
        raise UnsupportedForMessageFormatError(f"message format v{rules.magic} knows no {what}", position=header.position)


def _time_bounds(rules: ValidationRules, now_ms: int) -> tuple[int, int]:
    """Return the first and the last timestamp that is let in."""
    if rules.timestamp_type == LOG_APPEND_TIME:
        return _MIN_TIME, _MAX_TIME
    return max(now_ms - rules.before_max_ms, _MIN_TIME), min(now_ms + rules.after_max_ms, _MAX_TIME)


def _claim_refused(header: BatchHeader, by_append: bool, low: int, high: int) -> str | None:
    """Return why no record passes under a header that says LogAppendTime; None where it is let in, into CreateTime topics."""
    claimed = header.max_timestamp
    if by_append or claimed == NO_TIMESTAMP:
        return _CLAIM
    return None if low <= claimed <= high else _outside(claimed, low, high)


def _outside(timestamp: int, low: int, high: int) -> str:
    return f"timestamp {timestamp} is outside of {low} to {high}"


def _raise_refusal(errors: Sequence[tuple[bool, RecordError]], header: BatchHeader) -> NoReturn:
    """Raise for refused records, each with whether its timestamp is the reason: one of those decides for them all."""
    by_time = any(is_time for is_time, _ in errors)
    index, text = next(error for is_time, error in errors if is_time == by_time)
    kind = InvalidTimestampError if by_time else RecordValidationError
    more = f" (and {len(errors) - 1} more refused)" if len(errors) > 1 else ""
    raise kind(f"record {index}: {text}{more}", position=header.position, record_errors=[error for _, error in errors])


def _target(rules: ValidationRules, codec: Codec, now_ms: int) -> Target:
    append_time = now_ms if rules.timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP
    # The level is the topic's, for its own codec only.
    level = None if rules.target_codec is None else rules.target_level
    return Target(rules.magic, codec, level, rules.timestamp_type, append_time, rules.leader_epoch)


def _rebuilt(data: bytearray, base_offset: int, to: Target) -> ValidatedRecords:
    return _validated(data, base_offset, to, True)


def _validated(data: bytearray | memoryview, base_offset: int, to: Target, may_have_changed: bool) -> ValidatedRecords:
    headers = list(iter_headers(data))
    max_timestamp, offset_of_max = NO_TIMESTAMP, -1
    for header in headers:
        if header.max_timestamp > max_timestamp:
            max_timestamp, offset_of_max = header.max_timestamp, header.last_offset
    return ValidatedRecords(
        data,
        headers,
        base_offset,
        headers[-1].last_offset,
        max_timestamp,
        offset_of_max,
        to.append_time,
        may_have_changed,
    )
