"""Checks the records that a leader receives, and assigns offsets and timestamps (spec §11).

    the batch is                                             and the topic has         what is done
    v2, or a v1 wrapper with offsets 0, 1, 2... inside       this format, this codec   patched in the caller's buffer
    v0 or v1, uncompressed: each message a batch             this format, no codec     patched in the caller's buffer
    any other combination of the two                                                   rebuilt in new bytes (`conversion`)

    patched                   CreateTime                              LogAppendTime
    v0                        offset                                  offset
    v1, v1 wrapper            offset, type                            offset, type, timestamp
    v2                        base offset, epoch, max timestamp       base offset, epoch, type, max timestamp
                              if it is not the records' largest       (the deltas still hold the producer's times)

Refused, with the buffer unchanged::

    InvalidRecordError          no batch, or several if only one is allowed; mixed formats; a record count that does
                                not match the offsets; a client's control batch; a producer without a sequence; records that
                                cannot be read; a compressed message inside a compressed one
    RecordValidationError       ... records of another format than their wrapper; without a key in a compacted topic: each
    InvalidTimestampError       is reported. A timestamp outside of [now - before, now + after], or LogAppendTime set by a
                                producer, among them
    CorruptBatchError           the checksum of a message inside a wrapper
    UnsupportedForMessageFormatError    transactions and idempotence before v2
    UnsupportedCompressionTypeError     zstd before v2

Every accepted batch can be read. A batch whose offset deltas are not 0, 1, 2... is rebuilt with such deltas; Kafka would store it
unchanged. A batch with LogAppendTime in a CreateTime topic must have an append time within the topic's limits, as in Kafka. If
the batch is patched, its records' timestamps must be within the limits as well: they are stored, and the header gets the largest
of them. If it is rebuilt, each record gets the append time.

The caller (`PartitionLog`) checks the batches' checksums first, and afterwards the sizes of rebuilt batches.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from struct import Struct
from typing import NamedTuple

from tidelog.errors import CorruptBatchError, InvalidRecordError
from tidelog.model import NO_TIMESTAMP
from tidelog.records import kernel
from tidelog.records.batch import CREATE_TIME, HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, iter_headers, read_header
from tidelog.records.compression import Bytes, Codec, Scratch, decompress
from tidelog.records.conversion import Target, producer_of, rebuild, recompress
from tidelog.records.legacy import MessagePlace, has_right_crc, read_message, split_messages
from tidelog.records.message_set import MessageSet
from tidelog.records.patch import set_base_offset_and_epoch, set_max_timestamp
from tidelog.records.pieces import extreme
from tidelog.records.records import Record, iter_records
from tidelog.records.scanner import raise_fault, unwrap, wrapped_base_offset
from tidelog.records.validation_rules import (
    MAX_RECORD_ERRORS,
    MAX_TIME,
    MIN_TIME,
    NO_KEY,
    Refused,
    check_batch,
    claim_refused,
    outside,
    raise_refused,
    time_bounds,
)
from tidelog.records.validation_rules import AppendOrigin as AppendOrigin
from tidelog.records.validation_rules import ValidationRules as ValidationRules

_OFFSET = Struct(">q")

_MAX_DELTA = 2**31 - 1

_LOOKED_AT_BYTES = 1 << 20
"""In message sets of more bytes, only the first fault is reported."""

_WITHOUT_KEY = 1  # The kernel's reasons for refusing a record.


class _Memory(threading.local):
    """The buffer for decompressed records during the checks. Each thread has one."""

    def __init__(self) -> None:
        self.scratch = Scratch()


_memory = _Memory()


class ValidatedRecords(NamedTuple):
    """Records that are ready to be written, with the facts that an append needs. Times are in epoch ms."""

    data: bytearray | memoryview
    """The records: the caller's buffer, patched, or new bytes."""
    headers: list[BatchHeader]
    """The batch headers in `data` after the assignment. Positions are relative to `data`."""
    first_offset: int
    last_offset: int
    max_timestamp: int
    """The largest timestamp; -1 if no record has a timestamp."""
    offset_of_max_timestamp: int
    """The last offset of the first batch with `max_timestamp`, which a time index entry stores; -1 for none."""
    log_append_time: int
    """The append time; -1 with CreateTime."""
    size_may_have_changed: bool
    """Whether batches were rebuilt, so that max.message.bytes must be checked again."""


def validate_and_assign_offsets(
    records: bytearray | memoryview,
    headers: Sequence[BatchHeader],
    rules: ValidationRules,
    *,
    base_offset: int,
    now_ms: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ValidatedRecords:
    """Check `records`, and assign offsets that start at `base_offset`. `headers` are the batch headers in `records`.

    Timestamps are compared with `now_ms`, which is also the append time for LogAppendTime. Raises the errors that the module's
    docstring lists, and DecompressionError (DecompressedTooLargeError); InvalidArgumentError for records that the target format
    cannot hold, such as headers in v0 and v1. After an error `records` is unchanged.
    """
    if not headers:
        raise InvalidRecordError("there is no batch to append")
    if headers[0].magic == 2:
        if len(headers) > 1:
            raise InvalidRecordError("a producer's v2 records must be one batch", found=f"{len(headers)} batches")
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
    check_batch(header, header, rules, origin)
    source = header.codec
    data: Bytes = records
    start, end = header.position + HEADER_BYTES, header.position + header.size
    if source is not Codec.NONE:
        packed = memoryview(records)[start:end]
        data = decompress(
            source, packed, limit_bytes=rules.decompressed_max_bytes, scratch=_memory.scratch, position=header.position
        )
        start, end = 0, len(data)
    low, high = time_bounds(rules, now_ms)
    claims = header.timestamp_type == LOG_APPEND_TIME
    first_ms, last_ms = (MIN_TIME, MAX_TIME) if claims else (low, high)
    count = header.record_count
    refused, max_timestamp, is_in_order, is_plain = kernel.check_records_v2(
        data, start, end, count, header.base_timestamp, first_ms, last_ms, rules.is_compacted, None
    )
    if refused < 0:
        raise_fault(refused, max_timestamp, header, None if header.is_compressed else header.position, None)
    claim = claim_refused(header, rules, low, high) if claims else None
    if refused or claim:
        _refuse_batch(memoryview(data)[start:end], header, first_ms, last_ms, rules, claim)
    if count == 0:
        raise InvalidRecordError("a batch has no records", position=header.position)
    is_in_order &= header.last_offset - header.base_offset + 1 == count
    target = source if rules.target_codec is None or (header.is_control and source is Codec.NONE) else rules.target_codec
    if source is target and is_in_order and rules.magic == 2:
        if claims:  # The records' own times are stored as their timestamps.
            _refuse_batch(memoryview(data)[start:end], header, low, high, replace(rules, is_compacted=False))
        return _patched_batch(records, header, _target(rules, target, now_ms), base_offset, max_timestamp)
    to = _target(rules, target, now_ms)
    if rules.magic == 2 and is_in_order and is_plain and not claims:
        section = memoryview(data)[start:end]
        largest = now_ms if rules.timestamp_type == LOG_APPEND_TIME else max_timestamp
        return _validated(recompress(section, header, base_offset, largest, to), base_offset, to, True)
    return _validated(_rebuilt_batch(records, header, to, base_offset), base_offset, to, True)


def _rebuilt_batch(records: bytearray | memoryview, header: BatchHeader, to: Target, base_offset: int) -> bytearray:
    """Rebuild the batch's records one by one in the topic's format and codec."""
    # Offset deltas may be any non-negative numbers, because offsets are assigned again.
    loose = header._replace(base_offset=0, last_offset=_MAX_DELTA)
    batch = memoryview(records)[header.position : header.end_position]
    sent = [record._replace(offset=base_offset + i) for i, record in enumerate(iter_records(loose, batch, check_crc=False))]
    return rebuild(sent, to, producer=producer_of(header), is_transactional=header.is_transactional, is_control=header.is_control)


def _patched_batch(
    records: bytearray | memoryview, header: BatchHeader, to: Target, base_offset: int, max_timestamp: int
) -> ValidatedRecords:
    """Write offsets and timestamps into the batch in place. `max_timestamp` is the largest timestamp of its records."""
    position, end = header.position, header.position + header.size
    set_base_offset_and_epoch(records, base_offset, to.leader_epoch, position)
    if to.timestamp_type == LOG_APPEND_TIME:
        max_timestamp = to.append_time
    if header.max_timestamp != max_timestamp or header.timestamp_type != to.timestamp_type:
        set_max_timestamp(records, to.timestamp_type, max_timestamp, position)
    patched = read_header(records, position, position)
    return ValidatedRecords(
        records if len(records) == end else memoryview(records)[:end],
        [patched],
        base_offset,
        patched.last_offset,
        max_timestamp,
        -1 if max_timestamp == NO_TIMESTAMP else patched.last_offset,
        to.append_time,
        False,
    )


def _refuse_batch(
    section: memoryview, header: BatchHeader, low: int, high: int, rules: ValidationRules, claim: str | None = None
) -> None:
    """Raise the error for the records of a v2 batch that the kernel refuses. If `claim` has a reason, all records are refused for
    that reason.
    """
    count = header.record_count
    shown = min(count, MAX_RECORD_ERRORS)
    listed = array("q", bytes(24 * shown))
    first_ms, keyed = header.base_timestamp, rules.is_compacted
    total = kernel.check_records_v2(section, 0, len(section), count, first_ms, low, high, keyed, listed)[0]
    refused = {}
    for index, reason, timestamp in zip(listed[::3], listed[1::3], listed[2::3], strict=True):
        if reason == _WITHOUT_KEY:
            refused[index] = Refused(False, index, NO_KEY)
        elif reason:
            refused[index] = Refused(True, index, outside(timestamp, low, high, rules))
    if claim:
        refused = {i: refused.get(i, Refused(True, i, claim)) for i in range(shown)}
        total = count
    raise_refused(list(refused.values()), header, total)


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
        raise InvalidRecordError("a compressed message must be the only one in its set", found=f"{len(headers)} messages")
    if first.is_compressed and first.timestamp_type != LOG_APPEND_TIME:
        taken = _assign_wrapped(records, first, rules, target, base_offset, now_ms)
        if taken is not None:
            return taken
    elif source is Codec.NONE and (first.magic != rules.magic or target is not Codec.NONE):
        taken = _convert_messages(records, headers, rules, target, base_offset, now_ms)
        if taken is not None:
            return taken
    low, high = time_bounds(rules, now_ms)
    sent: list[Record] = []
    max_inside = NO_TIMESTAMP
    is_in_order = True
    hidden: list[Refused] = []
    for header in headers:
        check_batch(first, header, rules, origin)
        data: Bytes = records
        places = [MessagePlace(header.base_offset, header.position, header.end_position, header.magic, 0)]
        inside = 0
        if header.is_compressed:
            data = unwrap(header, records, header.position, limit_bytes=rules.decompressed_max_bytes)
            inside = wrapped_base_offset(header, data)
            places = split_messages(data)
        claims = header.timestamp_type == LOG_APPEND_TIME
        claim = claim_refused(header, rules, low, high) if claims else None
        refused: list[Refused] = []
        for index, place in enumerate(places):
            if header.is_compressed:
                _check_inside(place, data, header)
            if place.magic != header.magic:
                refused.append(
                    Refused(False, index, f"a message of format v{place.magic} is inside a wrapper of format v{header.magic}")
                )
                continue
            timestamp, key, value = read_message(data, place.magic, place.position, place.end)
            if key is None and rules.is_compacted:
                refused.append(Refused(False, index, NO_KEY))
            elif claim:
                refused.append(Refused(True, index, claim))
            elif not (low <= timestamp <= high or timestamp == NO_TIMESTAMP):
                (hidden if claims else refused).append(Refused(True, index, outside(timestamp, low, high, rules)))
            max_inside = max(max_inside, timestamp)
            is_in_order &= inside + place.offset == len(sent)
            shown = header.max_timestamp if claims else timestamp
            sent.append(Record(base_offset + len(sent), shown, CREATE_TIME, key, value))
        raise_refused(refused, header)
    to = _target(rules, target, now_ms)
    if first.magic == rules.magic and source is target:
        if source is Codec.NONE:
            return _patched_messages(records, headers, to, base_offset)
        if first.magic == 1 and is_in_order:
            raise_refused(hidden, first)
            return _patched_wrapper(records, first, to, base_offset, len(sent), max_inside)
    return _validated(rebuild(sent, to, producer=producer_of(first)), base_offset, to, True)


def _assign_wrapped(
    records: bytearray | memoryview, header: BatchHeader, rules: ValidationRules, target: Codec, base_offset: int, now_ms: int
) -> ValidatedRecords | None:
    """Check a compressed message by columns, and assign offsets. Return None if its messages must be checked one by one to report
    what is wrong.
    """
    # Checking a message costs more than checking a v2 record.
    data = unwrap(header, records, header.position, limit_bytes=max(rules.decompressed_max_bytes // 4, 1))
    inside = MessageSet(header, data, wrapped_base_offset(header, data))
    if inside.fault:
        if len(data) <= _LOOKED_AT_BYTES:
            return None
        raise_fault(inside.fault, inside.fault_position, header, None, None)
    inside.check_crcs(header)
    _refuse_messages(inside, header, rules, *time_bounds(rules, now_ms))
    to = _target(rules, target, now_ms)
    if header.magic == rules.magic == 1 and header.codec is target and inside.is_in_order:
        return _patched_wrapper(records, header, to, base_offset, inside.count, max(NO_TIMESTAMP, *inside.timestamps))
    return _validated(inside.rebuilt(to, base_offset), base_offset, to, True)


def _convert_messages(
    records: bytearray | memoryview,
    headers: Sequence[BatchHeader],
    rules: ValidationRules,
    target: Codec,
    base_offset: int,
    now_ms: int,
) -> ValidatedRecords | None:
    """Check and convert uncompressed messages by columns. Return None if they must be handled one by one."""
    first, last = headers[0], headers[-1]
    if any(header.magic != first.magic or header.timestamp_type == LOG_APPEND_TIME for header in headers):
        return None
    inside = MessageSet(first, memoryview(records)[first.position : last.end_position], 0, is_nested=False)
    if inside.fault:
        return None
    low, high = time_bounds(rules, now_ms)
    refused = next(_refused_messages(inside, rules, low, high), None)
    if refused is not None:
        raise_refused([refused._replace(batch_index=0)], headers[refused.batch_index])
    to = _target(rules, target, now_ms)
    return _validated(inside.rebuilt(to, base_offset), base_offset, to, True)


def _refuse_messages(inside: MessageSet, header: BatchHeader, rules: ValidationRules, low: int, high: int) -> None:
    """Raise an error if messages lack a required key or have timestamps out of bounds."""
    refused = []
    total = 0
    for one in _refused_messages(inside, rules, low, high):
        total += 1
        if total <= MAX_RECORD_ERRORS:
            refused.append(one)
    raise_refused(refused, header, total)


def _refused_messages(inside: MessageSet, rules: ValidationRules, low: int, high: int) -> Iterator[Refused]:
    timestamps, key_lengths = inside.timestamps, inside.key_lengths
    without_key = rules.is_compacted and extreme(min, key_lengths) < 0
    by_time = (low > MIN_TIME or high < MAX_TIME) and (extreme(min, timestamps) < low or extreme(max, timestamps) > high)
    if not (without_key or by_time):
        return
    for index, (timestamp, key_length) in enumerate(zip(timestamps, key_lengths, strict=True)):
        if rules.is_compacted and key_length < 0:
            yield Refused(False, index, NO_KEY)
        elif not (low <= timestamp <= high or timestamp == NO_TIMESTAMP):
            yield Refused(True, index, outside(timestamp, low, high, rules))


def _check_inside(place: MessagePlace, data: Bytes, header: BatchHeader) -> None:
    """Raise an error if an inner message makes the whole set invalid."""
    if place.attributes & 7:
        raise InvalidRecordError("a compressed message is inside a compressed message", position=header.position)
    if place.magic == header.magic and not has_right_crc(data, place):
        raise CorruptBatchError(
            f"the checksum of the message at byte {place.position} inside a compressed message does not match",
            position=header.position,
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
    records: bytearray | memoryview, header: BatchHeader, to: Target, base_offset: int, count: int, max_inside: int
) -> ValidatedRecords:
    _OFFSET.pack_into(records, header.position, base_offset + count - 1)
    timestamp = to.append_time if to.timestamp_type == LOG_APPEND_TIME else max_inside
    set_max_timestamp(records, to.timestamp_type, timestamp, header.position)
    end = header.end_position
    return _validated(records if len(records) == end else memoryview(records)[:end], base_offset, to, False)


# --- Both -----------------------------------------------------------------------------------------------------------------


def _target(rules: ValidationRules, codec: Codec, now_ms: int) -> Target:
    append_time = now_ms if rules.timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP
    # The topic's level applies only to the topic's own codec.
    level = None if rules.target_codec is None else rules.target_level
    return Target(rules.magic, codec, level, rules.timestamp_type, append_time, rules.leader_epoch)


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
