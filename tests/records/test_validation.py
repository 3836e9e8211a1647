"""A leader's validation: every line of Kafka's LogValidatorTest, and what is Tidelog's own."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fields import check_fields
from tests.records.helpers import FORMATS, LEGACY_CODECS, V2_CODECS, raw_batch_v2, read_all, with_right_crc
from tests.records.kernels import KERNELS
from tests.records.strategies import Batch, batches
from tidelog.config import LogConfig
from tidelog.errors import (
    CorruptBatchError,
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordError,
    RecordValidationError,
    TidelogError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, check_crc, iter_headers
from tidelog.records.builder import Producer, build_batch_v2, build_empty_batch_v2, build_end_txn_marker, encode_varint
from tidelog.records.compression import Codec, compress
from tidelog.records.control import ControlType
from tidelog.records.legacy import build_message_set, encode_message
from tidelog.records.records import Record
from tidelog.records.validation import AppendOrigin, ValidatedRecords, ValidationRules, validate_and_assign_offsets
from tidelog.times import format_time

NOW = 1_700_000_000_000
START = 1_234_567
EPOCH = 15

COMPRESSED = [(magic, codec) for magic, codec in FORMATS if codec is not Codec.NONE]


def validate(
    buffer: bytearray,
    *,
    base_offset: int = 0,
    now_ms: int = NOW,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    **rules: Any,
) -> ValidatedRecords:
    return validate_and_assign_offsets(
        buffer,
        list(iter_headers(buffer)),
        ValidationRules(**{"leader_epoch": EPOCH, **rules}),
        base_offset=base_offset,
        now_ms=now_ms,
        origin=origin,
    )


def append(data: bytes | bytearray, *, base_offset: int = 0, **arguments: Any) -> ValidatedRecords:
    """Validate; what is written then carries right checksums, continues at `base_offset`, and is reported truly."""
    buffer = bytearray(data)
    validated = validate(buffer, base_offset=base_offset, **arguments)
    assert validated.headers == list(iter_headers(validated.data))
    for header in validated.headers:
        check_crc(header, validated.data[header.position : header.end_position])
    found = read_all(validated.data)
    assert [record.offset for record in found] == list(range(base_offset, base_offset + len(found)))
    assert (validated.first_offset, validated.last_offset) == (base_offset, base_offset + len(found) - 1)
    assert validated.max_timestamp == max(record.timestamp for record in found)
    assert (validated.data is buffer) is not validated.size_may_have_changed
    return validated


def batch(
    magic: int,
    codec: Codec = Codec.NONE,
    timestamps: Sequence[int] = (NOW, NOW, NOW),
    *,
    key: bytes | None = b"key",
    **fields: Any,
) -> bytearray:
    """A batch as a producer sends it, offsets from 0 on."""
    records = [Record(i, timestamp, 0, key, b"value %d" % i) for i, timestamp in enumerate(timestamps)]
    return (
        build_batch_v2(records, codec=codec, **fields) if magic == 2 else build_message_set(records, magic, codec=codec, **fields)
    )


def refusal(data: bytes | bytearray, error: type[TidelogError], match: str | None = None, **arguments: Any) -> Any:
    """Return the error of exactly that class with which records are refused; the buffer is as it was."""
    buffer = bytearray(data)
    with pytest.raises(error, match=match) as caught:
        validate(buffer, **arguments)
    assert type(caught.value) is error
    assert buffer == data
    return caught.value


def contents(data: bytes | bytearray | memoryview) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in read_all(data)]


class TestNumberOfBatches:
    @pytest.mark.parametrize(("magic", "codec"), [(2, Codec.NONE), *COMPRESSED])
    @pytest.mark.parametrize("target", [None, Codec.GZIP, Codec.NONE])
    def test_only_one_batch(self, magic: int, codec: Codec, target: Codec | None) -> None:
        """LogValidatorTest.testOnlyOneBatch: v2 and whatever is compressed comes as one batch."""
        data = batch(magic, codec) + batch(magic, codec)
        refusal(data, InvalidRecordError, "one batch|only one in its set", magic=magic, target_codec=target)

    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize("target", [None, Codec.NONE, Codec.GZIP])
    def test_allow_multi_batch(self, magic: int, target: Codec | None) -> None:
        """LogValidatorTest.testAllowMultiBatch: of uncompressed messages there may be many, whatever becomes of them."""
        validated = append(batch(magic) + batch(magic), magic=magic, target_codec=target, base_offset=START)
        assert len(read_all(validated.data)) == 6
        assert len(validated.headers) == (1 if target is Codec.GZIP else 6)

    def test_no_batch(self) -> None:
        """Nothing at all is refused."""
        refusal(b"", InvalidRecordError, "no batch")

    def test_formats_mixed(self) -> None:
        """A set of messages is of one format."""
        refusal(batch(1) + batch(0), InvalidRecordError, "different formats", magic=1)
        refusal(batch(1) + batch(2), InvalidRecordError, "different formats", magic=1)

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    @pytest.mark.parametrize("target", [None, Codec.LZ4])
    @pytest.mark.parametrize("origin", list(AppendOrigin))
    def test_batch_without_records_not_allowed(self, codec: Codec, target: Codec | None, origin: AppendOrigin) -> None:
        """LogValidatorTest.testCompressedBatchWithoutRecordsNotAllowed, testUncompressedBatchWithoutRecordsNotAllowed,
        testRecompressedBatchWithoutRecordsNotAllowed."""
        data = build_empty_batch_v2(0, 0, producer=Producer(1, 1, 1))
        data[22] |= codec
        data += compress(codec, b"")
        struct.pack_into(">i", data, 8, len(data) - 12)
        refusal(with_right_crc(data), InvalidRecordError, "record", target_codec=target, origin=origin)


class TestInnerOffsets:
    @pytest.mark.parametrize("magic", [0, 1])
    def test_non_sequential_inner_offsets_are_given_anew(self, magic: int) -> None:
        """LogValidatorTest.testValidationOfBatchesWithNonSequentialInnerOffsets: 20 records, all at offset 0: v0, v1."""
        inside = b"".join(encode_message(magic, 0, NOW, b"%d" % i, b"") for i in range(20))
        data = encode_message(magic, 0, NOW, None, bytes(compress(Codec.GZIP, inside, magic=magic)), codec=Codec.GZIP)
        validated = append(data, magic=magic)
        assert validated.size_may_have_changed
        assert [record.key for record in read_all(validated.data)] == [b"%d" % i for i in range(20)]

    def test_non_sequential_inner_offsets_of_v2(self) -> None:
        """LogValidatorTest.testValidationOfBatchesWithNonSequentialInnerOffsets: v2, whose header then says one offset."""
        section = bytes(compress(Codec.GZIP, b"".join(raw_record(0, i) for i in range(20))))
        data = raw_batch_v2(section, 20, attributes=Codec.GZIP, last_offset_delta=0, base_timestamp=NOW)
        refusal(data, InvalidRecordError, "record count")

    @pytest.mark.parametrize("codec", V2_CODECS)
    def test_deltas_out_of_order_under_a_right_header(self, codec: Codec) -> None:
        """Kafka stores this as it is, or fails over it; here the records get the offsets that they should have had."""
        section = bytes(compress(codec, b"".join(raw_record(delta, i) for i, delta in enumerate((0, 0, 7)))))
        data = raw_batch_v2(section, 3, attributes=codec, base_timestamp=NOW)
        validated = append(data, base_offset=START)
        assert validated.size_may_have_changed
        assert [record.value for record in read_all(validated.data)] == [b"0", b"1", b"2"]
        assert validated.headers[0].codec is codec

    def test_negative_delta_is_refused(self) -> None:
        """A record in front of its batch is no record."""
        refusal(raw_batch_v2(raw_record(-1, 0), 1, base_timestamp=NOW), InvalidRecordError, "offset out of range")

    @pytest.mark.parametrize("outer", [0, 2, 1_000_000])
    def test_v1_wrapper_stays_only_with_offsets_from_0(self, outer: int) -> None:
        """Offsets inside count with the wrapper's: from 0 on they stay, else the wrapper is made again."""
        data = batch(1, Codec.LZ4)
        struct.pack_into(">q", data, 0, outer)
        assert append(data, magic=1, base_offset=START).size_may_have_changed is (outer == 1_000_000)

    @pytest.mark.parametrize(
        ("last_offset_delta", "count"),
        [(0, 3), (15, 3), (-3, 3), (2, -3), (2, 6), (2, 0), (-3, -2), (5, 6), (1, 2)],
    )
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    def test_invalid_offset_range_and_record_count(self, last_offset_delta: int, count: int, codec: Codec) -> None:
        """LogValidatorTest.testInvalidOffsetRangeAndRecordCount: offsets, count and the records themselves must agree."""
        data = batch(2, codec)
        assert append(data).last_offset == 2
        struct.pack_into(">i", data, 57, count)
        struct.pack_into(">i", data, 23, max(last_offset_delta, 0))
        data = with_right_crc(data)
        (header,) = iter_headers(data)
        # A header that ends before it begins is refused by whoever reads it; handed in all the same, it is refused here.
        header = header._replace(last_offset=last_offset_delta)
        with pytest.raises(InvalidRecordError):
            validate_and_assign_offsets(data, [header], ValidationRules(), base_offset=0, now_ms=NOW)

    def test_negative_last_offset_delta_is_refused_when_read(self) -> None:
        """LogValidatorTest.testNonIncreasingOffsetRecordBatchHasMetricsLogged: it does not get as far as here."""
        data = batch(2)
        struct.pack_into(">i", data, 23, -3)
        with pytest.raises(CorruptBatchError, match="the last offset of a batch is out of range"):
            list(iter_headers(with_right_crc(data)))


def raw_record(offset_delta: int, value: int) -> bytes:
    body = b"\x00\x00" + encode_varint(offset_delta) + encode_varint(-1) + encode_varint(1) + b"%d" % value + b"\x00"
    return encode_varint(len(body)) + body


class TestInside:
    """Messages inside a wrapper."""

    @pytest.mark.parametrize(("magic", "other"), [(0, 1), (1, 0)])
    @pytest.mark.parametrize("codec", LEGACY_CODECS[1:])
    def test_mismatch_magic(self, magic: int, other: int, codec: Codec) -> None:
        """LogValidatorTest.testMisMatchMagic: a message of another format than its wrapper."""
        inside = encode_message(magic, 0, NOW, b"k", b"v") + encode_message(other, 1, NOW, b"k", b"v")
        data = encode_message(magic, 1, NOW, None, bytes(compress(codec, inside, magic=magic)), codec=codec)
        error = refusal(data, RecordValidationError, magic=magic)
        assert error.record_errors == (RecordError(1, f"a message of format v{other} is inside a wrapper of format v{magic}"),)

    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize("codec", LEGACY_CODECS[1:])
    def test_invalid_checksum(self, magic: int, codec: Codec) -> None:
        """LogValidatorTest.testInvalidChecksum: of a message inside."""
        message = bytearray(encode_message(magic, 0, NOW, b"k", b"v"))
        message[14] ^= 1
        data = encode_message(magic, 0, NOW, None, bytes(compress(codec, message, magic=magic)), codec=codec)
        refusal(data, CorruptBatchError, "checksum of the message at byte 0", magic=magic)

    @pytest.mark.parametrize("magic", [0, 1])
    def test_compressed_inside_compressed(self, magic: int) -> None:
        """A codec's mark on a message inside."""
        inside = encode_message(magic, 0, NOW, b"k", b"v", codec=Codec.GZIP)
        data = encode_message(magic, 0, NOW, None, bytes(compress(Codec.LZ4, inside, magic=magic)), codec=Codec.LZ4)
        refusal(data, InvalidRecordError, "compressed message is inside", magic=magic)

    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize("cut", [1, 30, None])
    def test_cut_off_inside(self, magic: int, cut: int | None) -> None:
        """Half a message inside cannot be read again, so it is not taken."""
        message = encode_message(magic, 0, NOW, b"k", b"v" * 30)
        inside = message + message[:cut] if cut else b""
        data = encode_message(magic, 0, NOW, None, bytes(compress(Codec.GZIP, inside)), codec=Codec.GZIP)
        refusal(data, InvalidRecordError, "truncated|cut off|size|empty", magic=magic)

    @pytest.mark.parametrize(("at", "name"), [(26, "key"), (33, "value")])
    def test_lengths_beyond_the_message(self, at: int, name: str) -> None:
        """A key or a value that is longer than its message, under a right checksum."""
        message = bytearray(encode_message(1, 0, NOW, b"key", b"value"))
        struct.pack_into(">i", message, at, 100)
        refusal(with_right_crc(message), InvalidRecordError, f"{name} is longer than its message", magic=1)


class TestLogAppendTime:
    @pytest.mark.parametrize(
        ("magic", "max_timestamp", "shallow_offset"), [(0, NO_TIMESTAMP, -1), (1, NOW, START), (2, NOW, START + 2)]
    )
    def test_non_compressed(self, magic: int, max_timestamp: int, shallow_offset: int) -> None:
        """LogValidatorTest.testLogAppendTimeNonCompressedV0/V1/V2: patched; the base timestamp stays the producer's."""
        data = batch(magic, timestamps=(1234, 1235, 1236))
        validated = append(data, magic=magic, timestamp_type=LOG_APPEND_TIME, base_offset=START)
        assert not validated.size_may_have_changed
        assert (validated.max_timestamp, validated.offset_of_max_timestamp) == (max_timestamp, shallow_offset)
        assert validated.log_append_time == NOW
        assert {record.timestamp for record in read_all(validated.data)} == {max_timestamp}
        if magic == 2:
            (header,) = validated.headers
            assert (header.base_timestamp, header.timestamp_type, header.leader_epoch) == (1234, LOG_APPEND_TIME, EPOCH)

    @pytest.mark.parametrize("magic", [1, 2])
    def test_with_recompression(self, magic: int) -> None:
        """LogValidatorTest.testLogAppendTimeWithRecompressionV1/V2: v0 in gzip becomes something else."""
        validated = append(batch(0, Codec.GZIP), magic=magic, timestamp_type=LOG_APPEND_TIME)
        assert validated.size_may_have_changed
        assert (validated.max_timestamp, validated.offset_of_max_timestamp) == (NOW, 2)
        assert {record.timestamp for record in read_all(validated.data)} == {NOW}
        (header,) = validated.headers
        assert (header.magic, header.codec, header.timestamp_type) == (magic, Codec.GZIP, LOG_APPEND_TIME)

    @pytest.mark.parametrize(("magic", "codec"), [format_ for format_ in COMPRESSED if format_[0] > 0])
    def test_without_recompression(self, magic: int, codec: Codec) -> None:
        """LogValidatorTest.testLogAppendTimeWithoutRecompressionV1/V2: the header is patched, the block stays."""
        data = batch(magic, codec, timestamps=(1234, 1235, 1236))
        validated = append(data, magic=magic, timestamp_type=LOG_APPEND_TIME, base_offset=START)
        assert not validated.size_may_have_changed
        assert (validated.max_timestamp, validated.offset_of_max_timestamp) == (NOW, START + 2)
        assert {record.timestamp for record in read_all(validated.data)} == {NOW}
        start = 61 if magic == 2 else 26
        assert validated.data[start:] == data[start:]

    def test_rebuilt_v2_keeps_the_producers_times_as_deltas(self) -> None:
        """Also where it is compressed anew, the records still hold when they were created."""
        data = batch(2, timestamps=(1234, 1230, 1240))
        validated = append(data, timestamp_type=LOG_APPEND_TIME, target_codec=Codec.LZ4)
        (header,) = validated.headers
        assert (header.base_timestamp, header.max_timestamp, header.codec) == (1234, NOW, Codec.LZ4)
        plain = append(validated.data, timestamp_type=CREATE_TIME, target_codec=Codec.NONE).data
        assert {record.timestamp for record in read_all(plain)} == {NOW}

    @pytest.mark.parametrize(("magic", "codec"), [format_ for format_ in FORMATS if format_[0] > 0])
    def test_claimed_by_a_producer(self, magic: int, codec: Codec) -> None:
        """The type is the log's to set: on a LogAppendTime topic every record of such a batch is refused."""
        data = batch(magic, codec, timestamp_type=LOG_APPEND_TIME, append_time=NOW)
        error = refusal(data, InvalidTimestampError, "LogAppendTime", magic=magic, timestamp_type=LOG_APPEND_TIME)
        # Uncompressed v1 messages are batches of their own: the first one is one too many.
        refused = 1 if (magic, codec) == (1, Codec.NONE) else 3
        assert [one.batch_index for one in error.record_errors] == list(range(refused))

    def test_bounds_do_not_count(self) -> None:
        """What producers say of the time does not matter on a LogAppendTime topic."""
        data = batch(2, timestamps=(0, NOW * 2, -1))
        append(data, timestamp_type=LOG_APPEND_TIME, before_max_ms=0, after_max_ms=0)

    def test_header_that_is_right_already(self) -> None:
        """An append time that the header has by chance is written all the same: its type is new."""
        validated = append(batch(2), timestamp_type=LOG_APPEND_TIME)
        assert validated.headers[0].timestamp_type == LOG_APPEND_TIME


class TestCreateTime:
    @pytest.mark.parametrize(("magic", "shallow_offset"), [(1, 1), (2, 2)])
    def test_non_compressed(self, magic: int, shallow_offset: int) -> None:
        """LogValidatorTest.testNonCompressedV1/V2: the maximum, and the batch that has it; a producer's fields stay."""
        fields: dict[str, Any] = {}
        if magic == 2:
            fields = {"producer": Producer(1324, 10, 984), "is_transactional": True}
        data = batch(magic, timestamps=(NOW - 1, NOW + 1, NOW), **fields)
        validated = append(data, magic=magic, before_max_ms=1000, after_max_ms=1000)
        assert not validated.size_may_have_changed
        assert (validated.max_timestamp, validated.offset_of_max_timestamp) == (NOW + 1, shallow_offset)
        assert validated.log_append_time == NO_TIMESTAMP
        if magic == 2:
            (header,) = validated.headers
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1324, 10, 984)
            assert (header.is_transactional, header.leader_epoch) == (True, EPOCH)

    @pytest.mark.parametrize("magic", [1, 2])
    def test_recompression(self, magic: int) -> None:
        """LogValidatorTest.testRecompressionV1/V2: no codec in, gzip out, one batch."""
        fields: dict[str, Any] = {}
        if magic == 2:
            fields = {"producer": Producer(1324, 10, 984), "is_transactional": True}
        data = batch(magic, timestamps=(NOW - 1, NOW + 1, NOW), **fields)
        validated = append(data, magic=magic, target_codec=Codec.GZIP, base_offset=START)
        assert validated.size_may_have_changed
        assert (validated.max_timestamp, validated.offset_of_max_timestamp) == (NOW + 1, START + 2)
        (header,) = validated.headers
        assert header.codec is Codec.GZIP
        assert [record.timestamp for record in read_all(validated.data)] == [NOW - 1, NOW + 1, NOW]
        if magic == 2:
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1324, 10, 984)
            assert (header.is_transactional, header.leader_epoch) == (True, EPOCH)

    @pytest.mark.parametrize(("magic", "codec"), [format_ for format_ in COMPRESSED if format_[0] > 0])
    def test_compressed(self, magic: int, codec: Codec) -> None:
        """LogValidatorTest.testCompressedV1/V2: patched, not one compressed byte touched."""
        fields: dict[str, Any] = {"producer": Producer(1324, 10, 984), "is_transactional": True} if magic == 2 else {}
        data = batch(magic, codec, timestamps=(NOW - 1, NOW + 1, NOW), **fields)
        validated = append(data, magic=magic, before_max_ms=1000, after_max_ms=1000, base_offset=START)
        assert not validated.size_may_have_changed
        assert (validated.max_timestamp, validated.offset_of_max_timestamp) == (NOW + 1, START + 2)
        assert validated.data[61:] == data[61:]

    @pytest.mark.parametrize("codec", LEGACY_CODECS)
    @pytest.mark.parametrize("magic", [1, 2])
    def test_up_conversion_from_v0(self, magic: int, codec: Codec) -> None:
        """LogValidatorTest.testCreateTimeUpConversionV0ToV1/V0ToV2: no timestamps come of it."""
        validated = append(batch(0, codec), magic=magic, before_max_ms=1000, after_max_ms=1000)
        assert validated.size_may_have_changed
        assert (validated.max_timestamp, validated.offset_of_max_timestamp) == (NO_TIMESTAMP, -1)
        assert {header.timestamp_type for header in validated.headers} == {CREATE_TIME}
        assert {header.max_timestamp for header in validated.headers} == {NO_TIMESTAMP}

    @pytest.mark.parametrize("codec", LEGACY_CODECS)
    def test_up_conversion_from_v1_to_v2(self, codec: Codec) -> None:
        """LogValidatorTest.testCreateTimeUpConversionV1ToV2: the timestamps stay."""
        validated = append(batch(1, codec, timestamps=(NOW, NOW, NOW)), before_max_ms=1000, after_max_ms=1000)
        (header,) = validated.headers
        check_fields(header, magic=2, codec=codec, timestamp_type=CREATE_TIME, max_timestamp=NOW)
        assert (header.producer_id, header.base_sequence, header.leader_epoch) == (-1, -1, EPOCH)
        assert (validated.max_timestamp, validated.offset_of_max_timestamp) == (NOW, 2)

    @pytest.mark.parametrize(("magic", "codec"), [format_ for format_ in FORMATS if format_[0] > 0])
    def test_invalid_create_time(self, magic: int, codec: Codec) -> None:
        """LogValidatorTest.testInvalidCreateTimeNonCompressedV1/V2, testInvalidCreateTimeCompressedV1/V2: 1 ms beyond."""
        old = (NOW - 1001,) * 3
        limits = {"before_max_ms": 1000, "after_max_ms": 1000, "magic": magic}
        refusal(batch(magic, codec, timestamps=old), InvalidTimestampError, "the earliest that", **limits)
        append(batch(magic, codec, timestamps=[t + 1 for t in old]), **limits)
        append(batch(magic, codec, timestamps=(NOW + 1000, -1, NOW)), **limits)

    @pytest.mark.parametrize("codec", V2_CODECS)
    def test_record_with_past_timestamp_is_rejected(self, codec: Codec) -> None:
        """LogValidatorTest.testRecordWithPastTimestampIsRejected: five minutes more than a day ago."""
        day, hour = 24 * 3600 * 1000, 3600 * 1000
        data = batch(2, codec, timestamps=(NOW - day - 300_000,) * 3)
        error = refusal(data, InvalidTimestampError, before_max_ms=day, after_max_ms=hour)
        assert len(error.record_errors) == 3

    @pytest.mark.parametrize("codec", V2_CODECS)
    def test_record_with_future_timestamp_is_rejected(self, codec: Codec) -> None:
        """LogValidatorTest.testRecordWithFutureTimestampIsRejected: five minutes more than an hour ahead."""
        day, hour = 24 * 3600 * 1000, 3600 * 1000
        data = batch(2, codec, timestamps=(NOW + hour + 300_000,) * 3)
        error = refusal(data, InvalidTimestampError, before_max_ms=day, after_max_ms=hour)
        assert [one.batch_index for one in error.record_errors] == [0, 1, 2]

    @pytest.mark.parametrize("codec", V2_CODECS)
    def test_wrong_maximum_in_the_header(self, codec: Codec) -> None:
        """A header's maximum that is not the records' is corrected, under a new checksum; a right one costs none."""
        data = batch(2, codec, timestamps=(NOW - 1, NOW + 1, NOW))
        crc = next(iter_headers(data)).crc
        assert append(data).headers[0].crc == crc
        for wrong in (NOW, NOW + 2, -1):
            struct.pack_into(">q", data, 35, wrong)
            assert append(with_right_crc(data)).headers[0].crc == crc

    def test_no_timestamps(self) -> None:
        """-1 is no timestamp: no bound refuses it, and there is no maximum."""
        for magic in (1, 2):
            validated = append(batch(magic, timestamps=(-1, -1)), magic=magic, before_max_ms=0, after_max_ms=0)
            assert (validated.max_timestamp, validated.offset_of_max_timestamp) == (-1, -1)


class TestClaims:
    """A producer's batch that says LogAppendTime, in a CreateTime topic (conformance, more checks, 10)."""

    @pytest.mark.parametrize(("magic", "codec"), [format_ for format_ in FORMATS if format_[0] > 0])
    def test_in_range_is_stored_as_create_time(self, magic: int, codec: Codec) -> None:
        """Taken since Kafka 3.6; the header says the largest of the times that can be read afterwards."""
        data = batch(magic, codec, timestamps=(NOW - 2, NOW - 1, NOW - 3), timestamp_type=LOG_APPEND_TIME, append_time=NOW)
        validated = append(data, magic=magic, before_max_ms=10, after_max_ms=0)
        assert not validated.size_may_have_changed
        assert {header.timestamp_type for header in validated.headers} == {CREATE_TIME}
        is_message = magic == 1 and codec is Codec.NONE
        assert validated.max_timestamp == (NOW if is_message else NOW - 1)

    @pytest.mark.parametrize(("magic", "codec"), [format_ for format_ in FORMATS if format_[0] > 0])
    def test_out_of_range(self, magic: int, codec: Codec) -> None:
        """The claimed time is judged, as the records' own are: those are what would be stored."""
        late = batch(magic, codec, timestamp_type=LOG_APPEND_TIME, append_time=NOW + 11)
        refusal(late, InvalidTimestampError, "the latest that", magic=magic, after_max_ms=10)
        none = batch(magic, codec, timestamp_type=LOG_APPEND_TIME, append_time=-1)
        refusal(none, InvalidTimestampError, "set the timestamp type", magic=magic)
        hidden = batch(magic, codec, timestamps=(NOW, NOW - 11), timestamp_type=LOG_APPEND_TIME, append_time=NOW)
        if (magic, codec) != (1, Codec.NONE):
            error = refusal(hidden, InvalidTimestampError, "the earliest that", magic=magic, before_max_ms=10)
            assert [one.batch_index for one in error.record_errors] == [1]

    @pytest.mark.parametrize("magic", [1, 2])
    def test_rebuilt_with_the_claimed_time(self, magic: int) -> None:
        """Where the batch is made again, the time that was claimed is each record's."""
        data = batch(magic, Codec.GZIP, timestamps=(NOW - 2, NOW - 1), timestamp_type=LOG_APPEND_TIME, append_time=NOW)
        validated = append(data, magic=magic, target_codec=Codec.LZ4)
        assert [(record.timestamp, record.timestamp_type) for record in read_all(validated.data)] == [(NOW, CREATE_TIME)] * 2


class TestRecordErrors:
    @pytest.mark.parametrize(("magic", "codec"), [case for case in FORMATS if case[0] > 0])
    @pytest.mark.parametrize(
        ("name", "off_ms", "words"),
        [
            ("message.timestamp.before.max.ms", -1001, "is before {}, the earliest that"),
            ("message.timestamp.after.max.ms", 1001, "is after {}, the latest that"),
            ("message.timestamp.difference.max.ms", 1001, "is after {}, the latest that"),
            ("message.timestamp.difference.max.ms", -1001, "is before {}, the earliest that"),
        ],
    )
    def test_refusals_name_the_bound_and_its_property(self, magic: int, codec: Codec, name: str, off_ms: int, words: str) -> None:
        """Only the bound that was crossed is named, as a time: the other one may be none."""
        config = {name: "1000", "message.format.version": ("0.9.0", "0.10.0", "3.0")[magic]}
        rules = ValidationRules.from_config(LogConfig.from_properties(config), 0)
        data = bytearray(batch(magic, codec, timestamps=(NOW + off_ms,)))
        with pytest.raises(InvalidTimestampError) as raised:
            validate_and_assign_offsets(data, list(iter_headers(data)), rules, base_offset=0, now_ms=NOW)
        bound = format_time(NOW + (1000 if off_ms > 0 else -1000))
        (one,) = raised.value.record_errors
        assert one.message == f"timestamp {format_time(NOW + off_ms)} {words.format(bound)} {name} allows"

    @pytest.mark.parametrize("codec", V2_CODECS)
    def test_invalid_timestamp_has_batch_index(self, codec: Codec) -> None:
        """LogValidatorTest.testInvalidTimestampExceptionHasBatchIndex."""
        data = batch(2, codec, timestamps=(NOW - 1001,) * 3)
        error = refusal(data, InvalidTimestampError, before_max_ms=1000, after_max_ms=1000)
        text = (
            f"timestamp {format_time(NOW - 1001)} is before {format_time(NOW - 1000)}, "
            "the earliest that message.timestamp.before.max.ms allows"
        )
        assert error.record_errors == tuple(RecordError(i, text) for i in range(3))
        assert str(error) == f"record 0: {text} (and 2 more records were refused) (at byte 0)"

    @pytest.mark.parametrize(("magic", "codec"), FORMATS)
    def test_invalid_record_has_batch_index(self, magic: int, codec: Codec) -> None:
        """LogValidatorTest.testInvalidRecordExceptionHasBatchIndex: records without key in a compacted topic."""
        keys = [b"k", None, b"k", None]
        records = [Record(i, NOW, 0, key, b"v") for i, key in enumerate(keys)]
        data = build_batch_v2(records, codec=codec) if magic == 2 else build_message_set(records, magic, codec=codec)
        error = refusal(data, RecordValidationError, "no key", magic=magic, is_compacted=True)
        # Uncompressed messages are batches of their own, and the first bad one ends it.
        expected = [0] if magic < 2 and codec is Codec.NONE else [1, 3]
        assert [one.batch_index for one in error.record_errors] == expected
        assert append(batch(magic, codec), magic=magic, is_compacted=True).last_offset == 2

    def test_invalid_records_and_invalid_timestamp(self) -> None:
        """LogValidatorTest.testBatchWithInvalidRecordsAndInvalidTimestamp: the timestamp wins, all six are reported."""
        messages = [encode_message(0, i, NOW, b"%d" % i, b"") for i in range(5)]
        messages.append(encode_message(1, 5, NOW - 1001, b"5", b""))
        value = bytes(compress(Codec.GZIP, b"".join(messages)))
        data = encode_message(1, 5, NOW, None, value, codec=Codec.GZIP)
        error = refusal(data, InvalidTimestampError, "record 5: timestamp", magic=1, before_max_ms=1000)
        assert [one.batch_index for one in error.record_errors] == [0, 1, 2, 3, 4, 5]

    def test_both_reasons_in_v2(self) -> None:
        """A record without key and with a bad timestamp is refused for its key."""
        records = [
            Record(0, NOW, 0, None, b""),
            Record(1, 5, 0, b"k", b""),
            Record(2, 5, 0, None, b""),
            Record(3, NOW, 0, b"k", b""),
        ]
        error = refusal(build_batch_v2(records), InvalidTimestampError, is_compacted=True, before_max_ms=1000)
        assert [(one.batch_index, one.message[:6]) for one in error.record_errors] == [
            (0, "it has"),
            (1, "timest"),
            (2, "it has"),
        ]

    def test_claimed_append_time_without_keys(self) -> None:
        """The reasons for a whole batch leave the others standing."""
        records = [Record(0, NOW, 0, None, b""), Record(1, NOW, 0, b"k", b"")]
        data = build_batch_v2(records, timestamp_type=LOG_APPEND_TIME, append_time=NOW)
        error = refusal(data, InvalidTimestampError, is_compacted=True, timestamp_type=LOG_APPEND_TIME)
        assert [one.message for one in error.record_errors] == [
            "it has no key, but the topic is compacted",
            "the producer set the timestamp type LogAppendTime",
        ]

    def test_second_message_of_several(self) -> None:
        """Index 0: each uncompressed message is a batch. Nothing of the first one is patched."""
        data = batch(1, timestamps=(NOW, NOW - 1001))
        error = refusal(data, InvalidTimestampError, magic=1, before_max_ms=1000, base_offset=START)
        assert [one.batch_index for one in error.record_errors] == [0]


class TestOffsets:
    @pytest.mark.parametrize(("magic", "codec"), FORMATS)
    def test_assignment(self, magic: int, codec: Codec) -> None:
        """LogValidatorTest.testAbsoluteOffsetAssignmentNonCompressed, testAbsoluteOffsetAssignmentCompressed,
        testRelativeOffsetAssignmentNonCompressedV1/V2, testRelativeOffsetAssignmentCompressedV1/V2."""
        validated = append(batch(magic, codec), magic=magic, base_offset=START)
        assert validated.last_offset == START + 2
        # Absolute offsets inside a v0 wrapper cannot be changed without compressing anew.
        assert validated.size_may_have_changed is (magic == 0 and codec is not Codec.NONE)

    @pytest.mark.parametrize(("magic", "codec"), FORMATS)
    @pytest.mark.parametrize("to", [0, 1, 2])
    @pytest.mark.parametrize("timestamp_type", [CREATE_TIME, LOG_APPEND_TIME])
    def test_after_conversion(self, magic: int, codec: Codec, to: int, timestamp_type: int) -> None:
        """LogValidatorTest.testOffsetAssignmentAfterUpConversionV0ToV1NonCompressed, ...V0ToV1Compressed, ...V0ToV2NonCompressed,
        ...V0ToV2Compressed, ...V1ToV2NonCompressed, ...V1ToV2Compressed; testOffsetAssignmentAfterDownConversion
        V1ToV0NonCompressed, ...V1ToV0Compressed, ...V2ToV1NonCompressed, ...V2ToV1Compressed, ...V2ToV0NonCompressed,
        ...V2ToV0Compressed."""
        data = batch(magic, codec)
        if codec is Codec.ZSTD and to < 2:
            refusal(data, UnsupportedCompressionTypeError, "does not support zstd", magic=to)
            return
        validated = append(data, magic=to, timestamp_type=timestamp_type, base_offset=START)
        assert {header.magic for header in validated.headers} == {to}
        assert contents(validated.data) == contents(data)
        assert validated.size_may_have_changed is (to != magic or (magic == 0 and codec is not Codec.NONE))

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    @pytest.mark.parametrize("to", [0, 1])
    def test_transactional_and_idempotent_records_need_v2(self, codec: Codec, to: int) -> None:
        """LogValidatorTest.testDownConversionOfTransactionalRecordsNotPermitted,
        testDownConversionOfIdempotentRecordsNotPermitted."""
        producer = Producer(1344, 16, 0)
        data = batch(2, codec, producer=producer, is_transactional=True)
        refusal(data, UnsupportedForMessageFormatError, "transactions", magic=to)
        refusal(batch(2, codec, producer=producer), UnsupportedForMessageFormatError, "idempotent", magic=to)

    def test_headers_need_v2(self) -> None:
        """Kafka fails over headers that a topic's format cannot hold; nothing is dropped in silence here either."""
        data = build_batch_v2([Record(0, NOW, 0, b"k", b"v", (("h", b"x"),))])
        refusal(data, InvalidArgumentError, "has no headers", magic=1)

    def test_trailing_bytes_are_not_written(self) -> None:
        """Only what the headers report is passed on."""
        for magic in (1, 2):
            data = batch(magic)
            buffer = bytearray(data + b"half a batch")
            validated = validate_and_assign_offsets(
                memoryview(buffer), list(iter_headers(data)), ValidationRules(magic=magic), base_offset=0, now_ms=NOW
            )
            assert len(validated.data) == len(data)


class TestControlBatches:
    marker = build_end_txn_marker(0, NOW, ControlType.COMMIT, Producer(1324, 10))

    def test_not_allowed_from_clients(self) -> None:
        """LogValidatorTest.testControlRecordsNotAllowedFromClients."""
        refusal(self.marker, InvalidRecordError, "clients cannot write control batches")

    @pytest.mark.parametrize("target", [None, Codec.SNAPPY, Codec.ZSTD])
    def test_not_compressed(self, target: Codec | None) -> None:
        """LogValidatorTest.testControlRecordsNotCompressed: a coordinator's stay as they are, whatever the topic wants."""
        validated = append(self.marker, target_codec=target, origin=AppendOrigin.COORDINATOR, base_offset=START)
        (header,) = validated.headers
        assert header.is_control
        assert header.codec is Codec.NONE
        assert not validated.size_may_have_changed

    def test_producer_without_sequence(self) -> None:
        """A client's producer counts its records."""
        data = batch(2, producer=Producer(5, 0, -1))
        refusal(data, InvalidRecordError, "producer 5 sent no sequence number")
        append(data, origin=AppendOrigin.COORDINATOR)


class TestCompression:
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    @pytest.mark.parametrize("magic", [0, 1])
    def test_zstd_unavailable(self, codec: Codec, magic: int) -> None:
        """LogValidatorTest.testZStdCompressedWithUnavailableIBPVersion: formats before v2 do not know it."""
        refusal(batch(2, codec), UnsupportedCompressionTypeError, "does not support zstd", magic=magic, target_codec=Codec.ZSTD)

    def test_different_level_does_not_cause_recompression(self) -> None:
        """LogValidatorTest.testDifferentLevelDoesNotCauseRecompression: the records are the same bytes."""
        records = [Record(i, NOW, 0, b"key", b"value " * 100) for i in range(100)]
        data = build_batch_v2(records, codec=Codec.GZIP, level=9)
        validated = append(data, target_codec=Codec.GZIP, target_level=1)
        assert not validated.size_may_have_changed
        assert validated.data[61:] == data[61:]

    @pytest.mark.parametrize("source", V2_CODECS)
    @pytest.mark.parametrize("target", V2_CODECS)
    def test_different_codec_causes_recompression(self, source: Codec, target: Codec) -> None:
        """LogValidatorTest.testDifferentCodecCausesRecompression: the same records in the topic's codec."""
        records = [Record(i, NOW - i, 0, b"%d" % i, b"value " * 10, (("h", b"%d" % i),)) for i in range(100)]
        validated = append(build_batch_v2(records, codec=source), target_codec=target)
        assert validated.size_may_have_changed is (source is not target)
        assert validated.headers[0].codec is target
        assert read_all(validated.data) == records

    def test_levels_are_honoured(self) -> None:
        """A topic's level counts where its codec is written."""
        data = build_batch_v2([Record(i, NOW, 0, b"key %d" % (i * i), b"value %d " % i * 10) for i in range(300)])
        sizes = [len(append(data, target_codec=Codec.GZIP, target_level=level).data) for level in (1, 9)]
        assert sizes[0] > sizes[1]


class TestRules:
    def test_from_config(self) -> None:
        """Each property that matters."""
        config = LogConfig.from_properties(
            {
                "message.timestamp.type": "LogAppendTime",
                "message.timestamp.before.max.ms": "5",
                "message.timestamp.difference.max.ms": "7",
                "cleanup.policy": "compact",
                "compression.type": "gzip",
                "compression.gzip.level": "3",
                "message.format.version": "0.10.2",
                "tidelog.log.decompressed.max.bytes": "9",
            }
        )
        rules = ValidationRules.from_config(config, 4)
        by = "message.timestamp.difference.max.ms"
        assert rules == ValidationRules(LOG_APPEND_TIME, 5, 7, True, Codec.GZIP, 3, 1, 4, 9, after_property=by)

    @pytest.mark.parametrize(
        ("properties", "codec", "level"),
        [
            ({}, None, None),
            ({"compression.type": "uncompressed"}, Codec.NONE, None),
            ({"compression.type": "gzip"}, Codec.GZIP, None),
            ({"compression.type": "snappy"}, Codec.SNAPPY, None),
            ({"compression.type": "lz4"}, Codec.LZ4, None),
            ({"compression.type": "lz4", "compression.lz4.level": "3"}, Codec.LZ4, 3),
            ({"compression.type": "zstd"}, Codec.ZSTD, 3),
            ({"compression.type": "zstd", "compression.zstd.level": "-7"}, Codec.ZSTD, -7),
        ],
    )
    def test_codecs_and_levels(self, properties: dict[str, str], codec: Codec | None, level: int | None) -> None:
        """LZ4 at 9, Kafka's default, is not LZ4's level 9: it is the fast compressor."""
        rules = ValidationRules.from_config(LogConfig.from_properties(properties), 0)
        assert (rules.target_codec, rules.target_level) == (codec, level)


# --- Properties -----------------------------------------------------------------------------------------------------------


@examples(200)
@given(
    found=batches(),
    magic=st.sampled_from([0, 1, 2]),
    codec=st.none() | st.sampled_from(list(Codec)),
    timestamp_type=st.sampled_from([CREATE_TIME, LOG_APPEND_TIME]),
    base_offset=st.sampled_from([0, 1, 2**40]),
)
def test_whatever_is_taken_can_be_read(
    found: Batch, magic: int, codec: Codec | None, timestamp_type: int, base_offset: int
) -> None:
    """Batches of every kind into topics of every kind: keys and values stay, offsets are consecutive, or it is refused."""
    rules = {"magic": magic, "target_codec": codec, "timestamp_type": timestamp_type}
    try:
        validated = append(found.data, base_offset=base_offset, **rules)
    except TidelogError:
        return
    records = read_all(validated.data)
    assert [(r.key, r.value) for r in records] == [(r.key, r.value) for r in found.records]
    if magic == 2:
        assert [r.headers for r in records] == [r.headers for r in found.records]
    is_dated = magic > 0 and timestamp_type == LOG_APPEND_TIME
    claims = found.magic > 0 and found.records[0].timestamp_type == LOG_APPEND_TIME
    if is_dated:
        assert {r.timestamp for r in records} == {NOW}
    elif magic == 0:
        assert {r.timestamp for r in records} == {-1}
    elif not claims:
        assert [r.timestamp for r in records] == [r.timestamp for r in found.records]


@examples(200)
@given(section=st.binary(max_size=80), count=st.integers(0, 12), base=st.sampled_from([0, -1, NOW, 2**63 - 1, -(2**63)]))
def test_the_check_is_as_strict_as_the_reader(kernel: ModuleType, section: bytes, count: int, base: int) -> None:
    """A records section of random bytes: what the check lets pass, offsets in order, the reader reads; else neither does."""
    size = len(section)
    refused, max_timestamp, is_in_order, _ = kernel.check_records_v2(
        section, 0, size, count, base, -(2**63), 2**63 - 1, False, None
    )
    rows = kernel.Rows()
    read = kernel.scan_records_v2(rows, section, 0, size, count, 0, max(count - 1, 0), base, 0, 0, 0, kernel.NO_LIMIT)
    if refused == 0 and is_in_order:
        assert read == count
        assert max_timestamp == max([-1, *rows.column("timestamp")])
    else:
        assert read != count or list(rows.column("offset")) != list(range(count))


@examples(200)
@given(found=batches(), damage=st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), max_size=2), data=st.data())
def test_both_kernels_judge_alike(found: Batch, damage: list[tuple[int, int]], data: st.DataObject) -> None:
    """The compiled and the interpreted kernel, over sound and damaged records sections."""
    if found.magic < 2 or found.codec is not Codec.NONE:
        return
    section = bytearray(found.data[61:])
    for index, mask in damage:
        section[index % len(section)] ^= mask
    low = data.draw(st.sampled_from([-(2**63), 1_600_000_050_000]))
    base = next(iter_headers(found.data)).base_timestamp
    answers = []
    for chosen in KERNELS.values():
        listed = array("q", bytes(24 * len(found.records)))
        answer = chosen.check_records_v2(section, 0, len(section), len(found.records), base, low, 2**62, True, listed)
        answers.append((tuple(map(int, answer)), listed))
    assert all(answer == answers[0] for answer in answers)


HEADER_FIELDS = (
    *("base_offset", "batch_length", "partition_leader_epoch", "magic", "crc", "attributes", "last_offset_delta"),
    *("base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "records_count"),
)
"""A v2 batch's header, in order, as Kafka's documentation names its fields."""


def test_the_header_is_patched_under_its_checksum() -> None:
    """A last look by hand, with nothing of ours but the offsets of fields."""
    data = append(batch(2, timestamps=(5, 7, 6)), timestamp_type=LOG_APPEND_TIME, base_offset=START).data
    fields = struct.unpack_from(">qiibIhiqqqhii", data)
    assert dict(zip(HEADER_FIELDS, fields, strict=True)) == {
        "base_offset": START,
        "batch_length": len(data) - 12,
        "partition_leader_epoch": EPOCH,
        "magic": 2,
        "crc": crc32c(data[21:]),
        "attributes": 8,
        "last_offset_delta": 2,
        "base_timestamp": 5,
        "max_timestamp": NOW,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "records_count": 3,
    }
