"""Message formats v0, v1: what Kafka's AbstractLegacyRecordBatchTest, LegacyRecordTest and SimpleLegacyRecordTest establish."""

from __future__ import annotations

import struct

import pytest

from tests.fields import check_fields
from tests.records.helpers import LEGACY_CODECS, header_of, read_all, simple_records, with_right_crc
from tidelog.errors import (
    CorruptBatchError,
    DecompressionError,
    InvalidArgumentError,
    InvalidRecordError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from tidelog.records import patch
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, check_crc, iter_headers
from tidelog.records.columns import Columns
from tidelog.records.compression import Codec, compress
from tidelog.records.legacy import build_message_set, encode_message
from tidelog.records.records import Record, iter_records

NOW = 1_700_000_000_000
COMPRESSED = [codec for codec in LEGACY_CODECS if codec is not Codec.NONE]


def wrap(magic: int, offset: int, inside: bytes, *, codec: Codec = Codec.GZIP, timestamp: int = NOW) -> bytes:
    """Return a compressed message around bytes that may be anything."""
    return encode_message(magic, offset, timestamp, None, bytes(compress(codec, inside, magic=magic)), codec=codec)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_set_last_offset_compressed(codec: Codec) -> None:
    """AbstractLegacyRecordBatchTest.testSetLastOffsetCompressed: moving a v1 wrapper moves the records inside."""
    batch = build_message_set(simple_records(3), 1, codec=codec)
    struct.pack_into(">q", batch, 0, 570)
    assert header_of(batch).last_offset == 570
    assert [record.offset for record in read_all(batch)] == [568, 569, 570]


def test_iterate_compressed_record_with_wrapper_offset_zero() -> None:
    """AbstractLegacyRecordBatchTest.testIterateCompressedRecordWithWrapperOffsetZero: as producers send it, counted from 0."""
    batch = build_message_set(simple_records(3), 1, codec=Codec.GZIP)
    struct.pack_into(">q", batch, 0, 0)
    assert [record.offset for record in read_all(batch)] == [0, 1, 2]


@pytest.mark.parametrize("offset", [1, 2])
def test_invalid_wrapper_offset_v1(offset: int) -> None:
    """AbstractLegacyRecordBatchTest.testInvalidWrapperOffsetV1: a wrapper below the last offset inside is invalid."""
    batch = build_message_set(simple_records(4), 1, codec=Codec.GZIP)
    struct.pack_into(">q", batch, 0, offset)
    with pytest.raises(InvalidRecordError, match=rf"found {offset}, expected at least 3"):
        read_all(batch)


def test_relative_offsets_keep_gaps() -> None:
    """Spec §10.2: what compaction took out of a v1 wrapper leaves gaps; absolute = wrapper - last inside + inside."""
    records = [Record(offset, NOW + offset, 0, b"k", b"v") for offset in (100, 103, 104, 110)]
    batch = build_message_set(records, 1, codec=Codec.LZ4)
    assert read_all(batch) == records
    inside = b"".join(encode_message(1, offset, NOW, b"k", b"v") for offset in (4, 7))
    assert [record.offset for record in read_all(wrap(1, 50, inside))] == [47, 50]


def test_absolute_offsets_v0() -> None:
    """Spec §10.2: offsets inside a v0 wrapper are absolute, whatever the wrapper's."""
    inside = b"".join(encode_message(0, offset, -1, b"k", b"v") for offset in (40, 43))
    assert [record.offset for record in read_all(wrap(0, 99, inside))] == [40, 43]


@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_set_log_append_time_v1(codec: Codec) -> None:
    """AbstractLegacyRecordBatchTest.testSetLogAppendTimeV1: the wrapper's time overrides those inside, which stay readable."""
    batch = build_message_set(simple_records(3 if codec else 1, timestamp=5), 1, codec=codec)
    patch.set_max_timestamp(batch, LOG_APPEND_TIME, NOW)
    header = header_of(batch)
    check_crc(header, batch)
    assert (header.timestamp_type, header.max_timestamp) == (LOG_APPEND_TIME, NOW)
    assert {(record.timestamp, record.timestamp_type) for record in read_all(batch)} == {(NOW, LOG_APPEND_TIME)}
    columns = Columns()
    columns.add(header, batch)
    create_times = memoryview(columns.create_times().data).cast("q").tolist()
    assert create_times == ([5, 6, 7] if codec else [-1])


@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_set_create_time_v1(codec: Codec) -> None:
    """AbstractLegacyRecordBatchTest.testSetCreateTimeV1: the wrapper's maximum changes, the times inside do not."""
    batch = build_message_set(simple_records(3 if codec else 1, timestamp=5), 1, codec=codec)
    patch.set_max_timestamp(batch, CREATE_TIME, NOW)
    header = header_of(batch)
    check_crc(header, batch)
    assert (header.timestamp_type, header.max_timestamp) == (CREATE_TIME, NOW)
    assert [record.timestamp for record in read_all(batch)] == ([5, 6, 7] if codec else [NOW])


@pytest.mark.parametrize("timestamp_type", [CREATE_TIME, LOG_APPEND_TIME])
def test_set_timestamps_not_allowed_v0(timestamp_type: int) -> None:
    """AbstractLegacyRecordBatchTest.testSetLogAppendTimeNotAllowedV0, testSetCreateTimeNotAllowedV0: v0 has no timestamp."""
    with pytest.raises(UnsupportedForMessageFormatError):
        patch.set_max_timestamp(build_message_set(simple_records(1), 0), timestamp_type, NOW)


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_compression_type_with_v0_or_v1(magic: int) -> None:
    """AbstractLegacyRecordBatchTest.testZStdCompressionTypeWithV0OrV1: neither written nor read."""
    with pytest.raises(UnsupportedCompressionTypeError):
        build_message_set(simple_records(3), magic, codec=Codec.ZSTD)
    batch = build_message_set(simple_records(3), magic, codec=Codec.GZIP)
    batch[17] = Codec.ZSTD
    with pytest.raises(InvalidRecordError, match="does not support zstd"):
        read_all(with_right_crc(batch))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize(("key", "value"), [(b"key", b"value"), (None, b"value"), (b"key", None), (None, None), (b"", b"")])
def test_fields(magic: int, codec: Codec, key: bytes | None, value: bytes | None) -> None:
    """LegacyRecordTest.testFields: what was written is read; v0 carries no time."""
    batch = build_message_set([Record(7, NOW, 0, key, value)], magic, codec=codec)
    expected = Record(7, NOW if magic else -1, 0 if magic else -1, key, value)
    assert read_all(batch) == [expected]
    header = header_of(batch)
    check_fields(header, magic=magic, base_offset=7, last_offset=7, codec=codec)
    assert header.max_timestamp == (NOW if magic else -1)
    assert (header.leader_epoch, header.producer_id, header.record_count) == (-1, -1, -1)


@pytest.mark.parametrize("magic", [0, 1])
def test_checksum(magic: int) -> None:
    """LegacyRecordTest.testChecksum: a change of any byte after the checksum, or of itself, is seen."""
    batch = build_message_set([Record(0, NOW, 0, b"key", b"value")], magic)
    check_crc(header_of(batch), batch)
    for index in [*range(12, 16), *range(17, len(batch))]:
        broken = bytearray(batch)
        broken[index] ^= 0x10
        with pytest.raises((CorruptBatchError, InvalidRecordError)):
            read_all(broken)


@pytest.mark.parametrize("magic", [0, 1])
def test_equality(magic: int) -> None:
    """LegacyRecordTest.testEquality: equal records are equal bytes."""
    records = simple_records(2)
    assert build_message_set(records, magic) == build_message_set(list(records), magic)


@pytest.mark.parametrize("magic", [0, 1])
def test_compressed_iteration_with_null_value(magic: int) -> None:
    """SimpleLegacyRecordTest.testCompressedIterationWithNullValue: a compressed message without a value is invalid."""
    with pytest.raises(InvalidRecordError, match="has no value"):
        read_all(encode_message(magic, 1, NOW, None, None, codec=Codec.GZIP))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", COMPRESSED)
def test_compressed_iteration_with_empty_records(magic: int, codec: Codec) -> None:
    """SimpleLegacyRecordTest.testCompressedIterationWithEmptyRecords: nothing inside is invalid; so is nothing at all."""
    with pytest.raises(InvalidRecordError, match="empty compressed message set"):
        read_all(wrap(magic, 1, b"", codec=codec))
    if codec is not Codec.SNAPPY:
        with pytest.raises(DecompressionError):
            read_all(encode_message(magic, 1, NOW, None, b"", codec=codec))


def test_is_valid_with_too_small_buffer() -> None:
    """SimpleLegacyRecordTest.testIsValidWithTooSmallBuffer, ...WithFourBytesBuffer: a message too small for its own fields."""
    for magic, least in ((0, 14), (1, 22)):
        message = bytearray(build_message_set(simple_records(1), magic))
        message[8:12] = struct.pack(">i", least - 1)
        with pytest.raises(CorruptBatchError):
            list(iter_headers(message))
    assert list(iter_headers(bytes(4))) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_is_valid_with_checksum_mismatch(magic: int) -> None:
    """SimpleLegacyRecordTest.testIsValidWithChecksumMismatch: found and expected checksum are reported."""
    batch = build_message_set(simple_records(1), magic)
    batch[12:16] = struct.pack(">i", 2)
    with pytest.raises(CorruptBatchError, match=r"checksum does not match: found 0x[0-9a-f]{8}, expected 0x00000002"):
        read_all(batch)


@pytest.mark.parametrize("magic", [0, 1])
def test_compressed_inside_compressed(magic: int) -> None:
    """Spec §10.2: a compressed message holds no compressed messages."""
    inside = wrap(magic, 0, encode_message(magic, 0, NOW, b"k", b"v"))
    with pytest.raises(InvalidRecordError, match="compressed message inside a compressed message"):
        read_all(wrap(magic, 0, inside))


@pytest.mark.parametrize("magic", [0, 1])
def test_other_magic_inside(magic: int) -> None:
    """Spec §10.2: the messages inside are of one of the old formats (which of them: test_old_messages.py)."""
    message = bytearray(encode_message(magic, 0, NOW, b"key", b"value"))
    for other in (2, 3, 255):
        message[16] = other
        with pytest.raises(InvalidRecordError, match="another format"):
            read_all(wrap(magic, 0, bytes(message)))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize("nested", [False, True])
def test_lengths_beyond_the_message(magic: int, field: str, nested: bool) -> None:
    """A key or value that is longer than its message is invalid, inside a wrapper too."""
    message = bytearray(encode_message(magic, 0, NOW, b"key", b"value"))
    at = (18 if magic == 0 else 26) + (0 if field == "key" else 7)
    for length in (9, 12, 1000, 2**31 - 1):
        message[at : at + 4] = struct.pack(">i", length)
        with pytest.raises(InvalidRecordError, match=f"{field} longer than its record"):
            read_all(wrap(magic, 0, bytes(message)) if nested else with_right_crc(message))


@pytest.mark.parametrize("magic", [0, 1])
def test_cut_inside(magic: int) -> None:
    """A message set that is cut off inside its wrapper is invalid, not short."""
    inside = b"".join(encode_message(magic, i, NOW, b"key", b"value") for i in range(2))
    for cut in range(1, len(inside) // 2):
        with pytest.raises(InvalidRecordError):
            read_all(wrap(magic, 1, inside[:-cut]))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("offsets", [(-1,), (-(2**63), 0), (0, -(2**63)), (2**63 - 1, 5), (5, 2**63 - 1)])
def test_impossible_offsets_inside(magic: int, offsets: tuple[int, ...]) -> None:
    """Offsets inside a wrapper that are negative, or leave int64 once they are made absolute, are invalid."""
    inside = b"".join(encode_message(magic, offset, NOW, b"k", b"v") for offset in offsets)
    if magic == 0 and min(offsets) >= 0:
        assert [record.offset for record in read_all(wrap(0, 9, inside))] == list(offsets)
    else:
        with pytest.raises(InvalidRecordError, match="offset"):
            read_all(wrap(magic, 9, inside))


def test_messages_of_different_sizes() -> None:
    """An uncompressed message set is a batch per message; walking and reading meet each."""
    records = [Record(3 * i, NOW - i, 0, None if i % 3 == 0 else b"k" * i, b"v" * (i * i)) for i in range(30)]
    batch = build_message_set(records, 1)
    headers = list(iter_headers(batch, 500))
    assert [header.base_offset for header in headers] == [record.offset for record in records]
    assert headers[0].position == 500
    assert headers[-1].end_position == 500 + len(batch)
    view = memoryview(batch)
    assert [r for h in headers for r in iter_records(h, view[h.position - 500 : h.end_position - 500])] == records


def test_what_legacy_formats_do_not_have() -> None:
    """Headers, offsets that go back, times before 1970 and other magics are refused before a byte is written."""
    with pytest.raises(InvalidArgumentError, match="no headers"):
        build_message_set([Record(0, NOW, 0, None, None, (("h", b""),))], 1)
    with pytest.raises(InvalidArgumentError, match="does not increase"):
        build_message_set([*simple_records(2), *simple_records(1)], 1)
    with pytest.raises(InvalidArgumentError, match="negative timestamp"):
        encode_message(1, 0, -2, None, None)
    with pytest.raises(InvalidArgumentError, match="magic"):
        encode_message(2, 0, 0, None, None)
    with pytest.raises(InvalidArgumentError, match="needs at least one record"):
        build_message_set([], 1, codec=Codec.GZIP)
    assert build_message_set([], 1) == b""
