"""RecordsBuilder: what Kafka's MemoryRecordsBuilderTest and MemoryRecordsTest establish about building and reading back."""

from __future__ import annotations

import pytest

from tests.records.helpers import FORMATS, header_of, read_all
from tests.records.records_builder import RecordsBuilder
from tidelog.errors import InvalidArgumentError, UnsupportedCompressionTypeError
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, iter_headers
from tidelog.records.builder import Producer, build_batch_v2, build_end_txn_marker
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.records import Record

NOW = 1_700_000_000_000

formats = pytest.mark.parametrize(("magic", "codec"), FORMATS)


@formats
def test_write_empty_record_set(magic: int, codec: Codec) -> None:
    """MemoryRecordsBuilderTest.testWriteEmptyRecordSet: nothing appended is no bytes at all."""
    built = RecordsBuilder(magic, codec=codec).build()
    assert built == (b"", -1, -1)


@formats
def test_build_using_log_append_time(magic: int, codec: Codec) -> None:
    """MemoryRecordsBuilderTest.buildUsingLogAppendTime: the append time for all, at the last or the base offset."""
    builder = RecordsBuilder(magic, codec=codec, timestamp_type=LOG_APPEND_TIME, append_time=NOW)
    for key in (b"a", b"b", b"c"):
        builder.append(0, key, b"1")
    built = builder.build()
    assert built.max_timestamp == NOW
    assert built.shallow_offset_of_max_timestamp == (0 if magic < 2 and codec is Codec.NONE else 2)
    expected_type = -1 if magic == 0 else LOG_APPEND_TIME
    assert {header.timestamp_type for header in iter_headers(built.data)} == {expected_type}
    assert {(r.timestamp, r.timestamp_type) for r in read_all(built.data)} == {(-1 if magic == 0 else NOW, expected_type)}


@formats
def test_build_using_create_time(magic: int, codec: Codec) -> None:
    """MemoryRecordsBuilderTest.buildUsingCreateTime: times 0, 2, 1; the maximum is 2, at the batch that holds it."""
    builder = RecordsBuilder(magic, codec=codec, timestamp_type=CREATE_TIME)
    for timestamp in (0, 2, 1):
        builder.append(timestamp, b"a", b"1")
    built = builder.build()
    assert built.max_timestamp == (-1 if magic == 0 else 2)
    if magic == 0:
        assert built.shallow_offset_of_max_timestamp == -1
    elif magic == 1 and codec is Codec.NONE:
        assert built.shallow_offset_of_max_timestamp == 1
    else:
        assert built.shallow_offset_of_max_timestamp == 2
    assert [record.timestamp for record in read_all(built.data)] == ([-1] * 3 if magic == 0 else [0, 2, 1])


@formats
def test_append_at_invalid_offset(magic: int, codec: Codec) -> None:
    """MemoryRecordsBuilderTest.testAppendAtInvalidOffset: an offset is not given twice, and the builder goes on being usable."""
    builder = RecordsBuilder(magic, codec=codec)
    builder.append_with_offset(0, NOW, b"a", None)
    with pytest.raises(InvalidArgumentError, match="offset does not increase: found 0, expected at least 1"):
        builder.append_with_offset(0, NOW, b"b", None)
    builder.append_with_offset(5, NOW, b"c", None)
    assert builder.append(NOW, b"d", None) == 6
    assert [record.offset for record in read_all(builder.build().data)] == [0, 5, 6]


@pytest.mark.parametrize("codec", [codec for magic, codec in FORMATS if magic == 2])
def test_record_timestamps_with_delete_horizon(codec: Codec) -> None:
    """MemoryRecordsBuilderTest.testRecordTimestampsWithDeleteHorizon: the horizon takes the base's place, the times stay."""
    builder = RecordsBuilder(2, codec=codec, delete_horizon_ms=100)
    for timestamp in (50, 100, 150):
        builder.append(timestamp, b"0", b"0")
    batch = builder.build().data
    header = header_of(batch)
    assert header.has_delete_horizon
    assert (header.delete_horizon_ms, header.base_timestamp, header.max_timestamp) == (100, 100, 150)
    assert [record.timestamp for record in read_all(batch)] == [50, 100, 150]


def test_base_timestamp_to_delete_horizon_conversion() -> None:
    """MemoryRecordsTest.testBaseTimestampToDeleteHorizonConversion: both forms of a batch tell the same records."""
    records = [Record(i, NOW + i, 0, b"k%d" % i, None) for i in range(5)]
    plain = build_batch_v2(records)
    horizon = build_batch_v2(records, delete_horizon_ms=NOW + 86_400_000)
    assert header_of(plain).delete_horizon_ms is None
    assert header_of(horizon).delete_horizon_ms == NOW + 86_400_000
    assert read_all(plain) == read_all(horizon) == records


@pytest.mark.parametrize(("magic", "codec"), [f for f in FORMATS if f[1] is Codec.NONE])
def test_write_past_limit(magic: int, codec: Codec) -> None:
    """MemoryRecordsBuilderTest.writePastLimit: the limit is reported, not enforced; all that was appended is there."""
    builder = RecordsBuilder(magic, codec=codec, write_limit_bytes=64, compression_ratio=0.5)
    assert builder.has_room_for(0, b"a" * 100, b"1")
    builder.append(0, b"a", b"1")
    builder.append(1, b"b", b"2")
    assert not builder.has_room_for(2, b"c", b"3")
    builder.append(2, b"c", b"3")
    assert builder.is_full
    assert builder.estimated_bytes == len(builder.build().data)
    assert [record.value for record in read_all(builder.build().data)] == [b"1", b"2", b"3"]


@formats
def test_iterator(magic: int, codec: Codec) -> None:
    """MemoryRecordsTest.testIterator: records, with null keys and values, come back in order, whatever the base offset."""
    rows = [(1, b"a", b"1"), (2, b"b", b"2"), (3, b"c", b"3"), (4, None, b"4"), (5, b"d", None), (6, None, None)]
    for base_offset in (0, 57):
        builder = RecordsBuilder(magic, codec=codec, base_offset=base_offset, write_limit_bytes=10_000)
        for row in rows:
            assert builder.has_room_for(*row)
            builder.append(*row)
        built = builder.build()
        kind = -1 if magic == 0 else 0
        assert read_all(built.data) == [
            Record(base_offset + i, t if magic else -1, kind, k, v) for i, (t, k, v) in enumerate(rows)
        ]


def test_estimated_size_of_v2_is_exact() -> None:
    """Without a codec the estimate is the size, headers and far offsets included."""
    builder = RecordsBuilder(2, base_offset=10)
    builder.append(NOW, None, None)
    builder.append_with_offset(500_000, NOW - 100_000, b"key" * 50, b"value" * 5000, (("h", None), ("hé", b"x")))
    assert builder.estimated_bytes == len(builder.build().data)


def test_compressed_size_is_estimated() -> None:
    """With a codec, fullness is judged by the ratio that the caller expects."""
    builder = RecordsBuilder(2, codec=Codec.LZ4, write_limit_bytes=1000, compression_ratio=0.5)
    builder.append(NOW, None, bytes(1500))
    assert not builder.is_full
    assert builder.has_room_for(NOW, None, b"small")
    assert not builder.has_room_for(NOW, None, bytes(300))
    builder.append(NOW, None, bytes(500))
    assert builder.is_full
    assert not builder.has_room_for(NOW, None, b"")


def test_refusals() -> None:
    """What a format does not have is refused when the builder is made, or the record appended."""
    with pytest.raises(UnsupportedCompressionTypeError):
        RecordsBuilder(1, codec=Codec.ZSTD)
    with pytest.raises(InvalidArgumentError, match="has no producers"):
        RecordsBuilder(1, producer=Producer(1, 1, 1))
    with pytest.raises(InvalidArgumentError, match="unknown magic"):
        RecordsBuilder(3)
    with pytest.raises(InvalidArgumentError, match="no headers"):
        RecordsBuilder(1).append(0, None, None, (("h", b""),))
    builder = RecordsBuilder(2, base_offset=5)
    with pytest.raises(InvalidArgumentError, match="negative timestamp"):
        builder.append(-2, None, None)
    with pytest.raises(InvalidArgumentError, match="too far"):
        builder.append_with_offset(5 + 2**31, 0, None, None)
    with pytest.raises(InvalidArgumentError, match="does not increase"):
        builder.append_with_offset(4, 0, None, None)
    assert builder.records == []


def test_refusals_of_batches() -> None:
    """`build_batch_v2` refuses what would not be a batch."""
    record = Record(5, NOW, 0, b"k", b"v")
    with pytest.raises(InvalidArgumentError, match="has no records"):
        build_batch_v2([])
    with pytest.raises(InvalidArgumentError, match="does not increase"):
        build_batch_v2([record, record])
    with pytest.raises(InvalidArgumentError, match="does not increase"):
        build_batch_v2([record], base_offset=6)
    with pytest.raises(InvalidArgumentError, match="are too far apart"):
        build_batch_v2([record, record._replace(offset=5 + 2**31)])
    with pytest.raises(InvalidArgumentError, match="negative timestamp"):
        build_batch_v2([record._replace(timestamp=-2)])
    with pytest.raises(InvalidArgumentError, match="int64"):
        build_batch_v2([record._replace(timestamp=2**63)])
    with pytest.raises(InvalidArgumentError, match="too far from the batch's first"):
        build_batch_v2([record._replace(timestamp=-1), record._replace(offset=6, timestamp=2**63 - 1)])
    with pytest.raises(InvalidArgumentError, match="producer id"):
        build_batch_v2([record], is_transactional=True)
    with pytest.raises(InvalidArgumentError, match="timestamp type"):
        build_batch_v2([record], timestamp_type=-1)
    with pytest.raises(InvalidArgumentError, match="ABORT or COMMIT"):
        build_end_txn_marker(0, NOW, ControlType.LEADER_CHANGE, Producer(1, 0))
    with pytest.raises(InvalidArgumentError, match="producer id"):
        build_end_txn_marker(0, NOW, ControlType.COMMIT, Producer())


@pytest.mark.parametrize("timestamps", [(-1, -1, -1), (-1, 5, -1), (5, -1, 7)])
def test_records_without_timestamps(timestamps: tuple[int, ...]) -> None:
    """Spec §11: -1 is no time; a batch of nothing else has -1 as its base and maximum."""
    builder = RecordsBuilder(2)
    for timestamp in timestamps:
        builder.append(timestamp, None, b"v")
    built = builder.build()
    header = header_of(built.data)
    assert (header.base_timestamp, header.max_timestamp) == (timestamps[0], max(timestamps))
    assert built[1:] == ((max(timestamps), 2) if max(timestamps) >= 0 else (-1, -1))
    assert tuple(record.timestamp for record in read_all(built.data)) == timestamps
