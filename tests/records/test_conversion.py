"""Conversion between formats and codecs, and down-conversion for old fetchers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fields import check_fields
from tests.records.helpers import FORMATS, LEGACY_CODECS, V2_CODECS, read_all, simple_records
from tests.records.strategies import Batch, batches
from tidelog.errors import CorruptBatchError, InvalidArgumentError, UnsupportedCompressionTypeError
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, check_crc, iter_headers
from tidelog.records.builder import Producer, build_batch_v2, build_end_txn_marker
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.conversion import Target, down_convert, rebuild
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record

NOW = 1_700_000_000_000

each_codec = pytest.mark.parametrize("codec", LEGACY_CODECS)


def fetch(data: bytes | bytearray, magic: int, first_offset: int = 0) -> bytearray:
    """Down-convert; what comes of it is sound."""
    converted = bytearray().join(down_convert(data, header, magic, first_offset) for header in iter_headers(data))
    end = 0
    for header in iter_headers(converted):
        check_crc(header, converted[header.position : header.end_position])
        assert header.magic <= magic
        end = header.end_position
    assert end == len(converted)
    return converted


def record(offset: int, timestamp: int, timestamp_type: int = CREATE_TIME) -> Record:
    return Record(offset, timestamp, timestamp_type, b"%d" % offset, b"value")


class TestDownConversion:
    @each_codec
    def test_mixed_create_and_log_append_time(self, codec: Codec) -> None:
        """MemoryRecordsBuilderTest.convertV2ToV1UsingMixedCreateAndLogAppendTime: each batch keeps its type of time, and
        control batches are left out."""
        producer = Producer(1, 0, 0)
        data = build_batch_v2([record(0, 1), record(1, 2)], codec=codec, timestamp_type=LOG_APPEND_TIME, append_time=NOW)
        data += build_batch_v2([record(2, 10), record(3, 11)], codec=codec, producer=producer, is_transactional=True)
        data += build_end_txn_marker(4, NOW, ControlType.COMMIT, producer)
        converted = fetch(data, 1)
        headers = list(iter_headers(converted))
        if codec is Codec.NONE:
            assert [header.base_offset for header in headers] == [0, 1, 2, 3]
        else:
            assert [(header.last_offset, header.codec) for header in headers] == [(1, codec), (3, codec)]
        assert {header.magic for header in headers} == {1}
        assert read_all(converted) == [
            record(0, NOW, LOG_APPEND_TIME),
            record(1, NOW, LOG_APPEND_TIME),
            record(2, 10),
            record(3, 11),
        ]

    def test_zstd_does_not_exist_before_v2(self) -> None:
        """MemoryRecordsBuilderTest.convertV2ToV1UsingMixedCreateAndLogAppendTime: with zstd it is an error."""
        data = build_batch_v2([record(0, 1)], codec=Codec.ZSTD)
        for magic in (0, 1):
            with pytest.raises(UnsupportedCompressionTypeError, match=f"v{magic} does not support zstd"):
                fetch(data, magic)
        assert fetch(data, 2) == data

    @each_codec
    def test_mixed_v0_and_v2(self, codec: Codec) -> None:
        """MemoryRecordsBuilderTest.convertToV1WithMixedV0AndV2Data: older batches are copied, newer ones converted; of
        uncompressed ones what lies before the fetch offset is left out."""
        data = build_message_set([record(0, NO_TIMESTAMP)], 0, codec=codec)
        kept = len(data)
        data += build_batch_v2([record(1, 1), record(2, 2)], codec=codec)
        data += build_batch_v2([record(3, 3), record(4, 4)], codec=codec)
        everything = fetch(data, 1, 0)
        assert everything[:kept] == data[:kept]
        assert [(r.offset, r.timestamp) for r in read_all(everything)] == [(0, -1), (1, 1), (2, 2), (3, 3), (4, 4)]
        offsets = [r.offset for r in read_all(fetch(data, 1, 2))]
        assert offsets == ([0, 2, 3, 4] if codec is Codec.NONE else [0, 1, 2, 3, 4])
        assert [r.offset for r in read_all(fetch(data, 1, 4))] == ([0, 4] if codec is Codec.NONE else [0, 1, 2, 3, 4])

    @pytest.mark.parametrize("to", [0, 1, 2])
    @each_codec
    def test_every_format_in_one_log(self, codec: Codec, to: int) -> None:
        """FileRecordsTest.testConversion: v0, v1 and v2 after one another, with gaps between offsets and with headers."""
        data = build_message_set([record(0, -1), record(2, -1), record(3, -1)], 0, codec=codec)
        data += build_message_set([record(4, 4), record(5, 5)], 1, codec=codec)
        last = [Record(6, 6, 0, None, b"6", (("h", b"x"),)), Record(9, 9, 0, b"9", None)]
        data += build_batch_v2(last, codec=codec, producer=Producer(5, 0, 0))
        found = read_all(fetch(data, to))
        assert [r.offset for r in found] == [0, 2, 3, 4, 5, 6, 9]
        assert [(r.key, r.value) for r in found] == [(r.key, r.value) for r in read_all(data)]
        expected = [r.timestamp if to > 0 else -1 for r in read_all(data)]
        assert [r.timestamp for r in found] == expected
        assert found[-2].headers == (last[0].headers if to == 2 else ())

    @each_codec
    def test_after_a_format_downgrade(self, codec: Codec) -> None:
        """FileRecordsTest.testDownconversionAfterMessageFormatDowngrade: v2 first, v1 after it."""
        data = build_batch_v2([record(0, 1)], codec=codec) + build_message_set([record(1, 2)], 1, codec=codec)
        assert [(r.offset, r.timestamp) for r in read_all(fetch(data, 1))] == [(0, 1), (1, 2)]

    def test_no_messages(self) -> None:
        """FileRecordsTest.testFormatConversionWithNoMessages: nothing comes of nothing."""
        assert fetch(b"", 0) == b""

    def test_partial_message(self) -> None:
        """FileRecordsTest.testFormatConversionWithPartialMessage: a cut-off batch at the end is skipped."""
        data = build_batch_v2([record(0, 1)])
        assert fetch(data[:-1], 1) == b""
        assert [r.offset for r in read_all(fetch(data + data[:-1], 1))] == [0]

    def test_a_batch_of_which_nothing_is_left(self) -> None:
        """All records before the fetch offset: no message at all, not an empty one."""
        assert fetch(build_batch_v2([record(0, 1), record(1, 1)]), 1, 2) == b""

    def test_damage_is_told(self) -> None:
        """What is converted is read, and so checked."""
        data = build_batch_v2([record(0, 1)])
        data[-1] ^= 1
        with pytest.raises(CorruptBatchError):
            fetch(data, 1)


class TestRebuild:
    def test_v1_wrapper_with_append_time_inside(self) -> None:
        """As in Kafka, a v1 wrapper that is made again carries the append time in each message inside."""
        target = Target(1, Codec.GZIP, timestamp_type=LOG_APPEND_TIME, append_time=NOW)
        built = rebuild([record(5, 1), record(6, 2)], target)
        same = build_message_set([record(5, NOW), record(6, NOW)], 1, codec=Codec.GZIP, timestamp_type=1, append_time=NOW)
        assert built == same

    def test_what_a_format_cannot_hold(self) -> None:
        """Headers before v2, and negative timestamps anywhere."""
        with pytest.raises(InvalidArgumentError, match="has no headers"):
            rebuild([Record(0, 1, 0, None, None, (("h", None),))], Target(1, Codec.NONE))
        for magic in (1, 2):
            with pytest.raises(InvalidArgumentError, match="negative timestamp"):
                rebuild([record(0, -2)], Target(magic, Codec.NONE))

    def test_producer_stays(self) -> None:
        """What a v2 batch says about its producer goes with it."""
        built = rebuild(simple_records(), Target(2, Codec.LZ4, leader_epoch=4), producer=Producer(1, 2, 3), is_transactional=True)
        (header,) = iter_headers(built)
        check_fields(header, producer_id=1, producer_epoch=2, base_sequence=3, leader_epoch=4)
        assert header.is_transactional

    @pytest.mark.parametrize(("magic", "codec"), FORMATS)
    def test_all_formats(self, magic: int, codec: Codec) -> None:
        """The records are there again, at their offsets."""
        built = rebuild(simple_records(5, base_offset=1000), Target(magic, codec))
        assert [(r.offset, r.key, r.value) for r in read_all(built)] == [
            (r.offset, r.key, r.value) for r in simple_records(5, base_offset=1000)
        ]


@examples(200)
@given(found=batches(), magic=st.sampled_from([1, 2]), codec=st.sampled_from(V2_CODECS), back=st.sampled_from([0, 1, 2]))
def test_there_and_back(found: Batch, magic: int, codec: Codec, back: int) -> None:
    """A batch rebuilt in a format from v1 on, and converted down: offsets, keys, values stay, times where the format has any."""
    if codec is Codec.ZSTD and min(magic, back) < 2:
        return
    sent = [r._replace(headers=()) if magic < 2 else r for r in found.records]
    converted = read_all(fetch(rebuild(sent, Target(magic, codec)), back))
    assert [(r.offset, r.key, r.value) for r in converted] == [(r.offset, r.key, r.value) for r in found.records]
    if back > 0:
        assert [r.timestamp for r in converted] == [r.timestamp for r in found.records]
    else:
        assert {r.timestamp for r in converted} == {-1}
    if magic == back == 2:
        assert [r.headers for r in converted] == [r.headers for r in found.records]
