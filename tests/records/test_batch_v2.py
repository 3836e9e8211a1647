"""v2 batches: what Kafka's DefaultRecordBatchTest and MemoryRecordsTest establish about headers, checksums and walking."""

from __future__ import annotations

import struct

import pytest

from tests.fields import check_fields
from tests.records.helpers import header_of, read_all, simple_records, with_right_crc
from tidelog.errors import (
    CorruptBatchError,
    InvalidArgumentError,
    InvalidRecordError,
    UnsupportedForMessageFormatError,
)
from tidelog.records import patch
from tidelog.records.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_TIMESTAMP_TYPE,
    BatchHeader,
    check_crc,
    decrement_sequence,
    increment_sequence,
    iter_headers,
    read_header,
)
from tidelog.records.builder import Producer, build_batch_v2, build_empty_batch_v2, build_end_txn_marker
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType, EndTxnMarker, parse_end_txn_marker
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record, iter_records

MAX_INT32 = 2**31 - 1
NOW = 1_700_000_000_000


@pytest.mark.parametrize("timestamp_type", [CREATE_TIME, LOG_APPEND_TIME])
@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("is_control", [False, True])
def test_write_empty_header(timestamp_type: int, is_transactional: bool, is_control: bool) -> None:
    """DefaultRecordBatchTest.testWriteEmptyHeader: an empty batch says all that its header was given."""
    batch = build_empty_batch_v2(
        15,
        37,
        timestamp_type=timestamp_type,
        max_timestamp=NOW,
        leader_epoch=15,
        producer=Producer(23423, 145, 983),
        is_transactional=is_transactional,
        is_control=is_control,
    )
    header = header_of(batch)
    assert header == BatchHeader(
        position=0,
        size=61,
        base_offset=15,
        last_offset=37,
        magic=2,
        crc=header.crc,
        attributes=header.attributes,
        base_timestamp=-1,
        max_timestamp=NOW,
        leader_epoch=15,
        producer_id=23423,
        producer_epoch=145,
        base_sequence=983,
        record_count=0,
    )
    assert header.timestamp_type == timestamp_type
    assert header.is_transactional is is_transactional
    assert header.is_control is is_control
    assert header.codec is Codec.NONE
    assert not header.has_delete_horizon
    check_crc(header, batch)
    assert list(iter_records(header, batch)) == []


def test_build_default_record_batch() -> None:
    """DefaultRecordBatchTest.buildDefaultRecordBatch: offsets follow the base offset; there is no producer."""
    batch = build_batch_v2([Record(1234567 + i, i + 1, 0, b"%d" % i, b"v") for i in range(3)], timestamp_type=CREATE_TIME)
    header = header_of(batch)
    check_crc(header, batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (1234567, 1234569, 1234570)
    check_fields(header, producer_id=-1, producer_epoch=-1, base_sequence=-1, last_sequence=-1)
    assert not header.has_producer_id
    assert header.max_timestamp == 3
    assert [record.offset for record in iter_records(header, batch)] == [1234567, 1234568, 1234569]


def test_build_default_record_batch_with_producer_id() -> None:
    """DefaultRecordBatchTest.buildDefaultRecordBatchWithProducerId: producer id, epoch and sequences are kept."""
    batch = build_batch_v2(simple_records(3, base_offset=1234567), producer=Producer(23423, 145, 983))
    header = header_of(batch)
    check_crc(header, batch)
    assert header.has_producer_id
    assert (header.producer_id, header.producer_epoch) == (23423, 145)
    assert (header.base_sequence, header.last_sequence) == (983, 985)


def test_build_default_record_batch_with_sequence_wrap_around() -> None:
    """DefaultRecordBatchTest.buildDefaultRecordBatchWithSequenceWrapAround: after 2^31 - 1 comes sequence 0."""
    batch = build_batch_v2(simple_records(3), producer=Producer(23423, 145, MAX_INT32 - 1))
    header = header_of(batch)
    assert header.base_sequence == MAX_INT32 - 1
    assert header.last_sequence == 0
    sequences = [increment_sequence(header.base_sequence, record.offset) for record in iter_records(header, batch)]
    assert sequences == [MAX_INT32 - 1, MAX_INT32, 0]


def test_size_in_bytes() -> None:
    """DefaultRecordBatchTest.testSizeInBytes: the size told is the size there is, headers, nulls and all."""
    headers = (("foo", b"value"), ("bar", None), ("", b""))
    records = [
        Record(0, NOW, 0, b"key", b"value"),
        Record(1, NOW + 30_000, 0, None, b"value"),
        Record(2, NOW + 60_000, 0, b"key", None),
        Record(3, NOW + 60_000, 0, b"key", b"value", headers),
        Record(4, NOW + 60_000, 0, b"", b"", headers[:1]),
    ]
    batch = build_batch_v2(records)
    assert header_of(batch).size == len(batch)
    assert read_all(batch) == records


def test_invalid_record_size() -> None:
    """DefaultRecordBatchTest.testInvalidRecordSize: a length field below the least is corruption, said with its place."""
    batch = build_batch_v2(simple_records())
    batch[8:12] = struct.pack(">i", 10)
    with pytest.raises(CorruptBatchError, match=r"length is too small: found 10, expected at least 14 \(a\.log at byte 77\)"):
        read_header(batch, 0, 77, "a.log")


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, MAX_INT32, -1])
def test_invalid_record_count(codec: Codec, count: int) -> None:
    """DefaultRecordBatchTest.testInvalidRecordCountTooMany/TooLittle(Non)CompressedV2: as many records as declared."""
    batch = build_batch_v2(simple_records(3), codec=codec)
    batch[57:61] = struct.pack(">i", count)
    batch = with_right_crc(batch)
    with pytest.raises(InvalidRecordError):
        read_all(batch)


@pytest.mark.parametrize("index", [17, 23, 27, 60, 61, 90])
def test_invalid_crc(index: int) -> None:
    """DefaultRecordBatchTest.testInvalidCrc: a change anywhere behind the leader epoch breaks the checksum."""
    batch = build_batch_v2(simple_records())
    batch[index] ^= 1
    with pytest.raises(CorruptBatchError, match="checksum"):
        read_all(batch)


def test_set_last_offset() -> None:
    """DefaultRecordBatchTest.testSetLastOffset: the batch moves as a whole, and its checksum stays right."""
    batch = build_batch_v2(simple_records(3))
    patch.set_base_offset_and_epoch(batch, 568, 0)
    header = header_of(batch)
    assert (header.base_offset, header.last_offset) == (568, 570)
    assert [record.offset for record in read_all(batch)] == [568, 569, 570]


def test_set_partition_leader_epoch() -> None:
    """DefaultRecordBatchTest.testSetPartitionLeaderEpoch: the epoch is reported back, and the checksum stays right."""
    batch = build_batch_v2(simple_records(3))
    patch.set_leader_epoch(batch, 500)
    header = header_of(batch)
    assert header.leader_epoch == 500
    check_crc(header, batch)
    patch.set_base_offset_and_epoch(batch, 90, 501)
    assert (header_of(batch).base_offset, header_of(batch).leader_epoch) == (90, 501)
    assert len(read_all(batch)) == 3


def test_set_log_append_time() -> None:
    """DefaultRecordBatchTest.testSetLogAppendTime: every record then carries the append time, under a right checksum."""
    batch = build_batch_v2(simple_records(3, timestamp=5))
    patch.set_max_timestamp(batch, LOG_APPEND_TIME, NOW)
    header = header_of(batch)
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == (LOG_APPEND_TIME, NOW, 5)
    assert [(record.timestamp, record.timestamp_type) for record in read_all(batch)] == [(NOW, LOG_APPEND_TIME)] * 3


def test_set_max_timestamp_without_a_change_touches_nothing() -> None:
    """Spec §10.1: same type and same maximum leave even a wrong checksum as it is."""
    batch = build_batch_v2(simple_records(3))
    batch[17] ^= 1
    before = bytes(batch)
    patch.set_max_timestamp(batch, CREATE_TIME, header_of(batch).max_timestamp)
    assert batch == before


@pytest.mark.parametrize("codec", list(Codec))
def test_set_producer(codec: Codec) -> None:
    """Who sends a finished batch is written into it, and taken out again: byte for byte as if it had been built so."""
    records = simple_records(3)
    plain = build_batch_v2(records, codec=codec)
    batch = bytearray(b"before") + plain
    producer = Producer(7_000_000_000, 3, MAX_INT32)
    for is_transactional in (True, False):
        patch.set_producer(batch, *producer, is_transactional=is_transactional, index=6)
        assert batch[6:] == build_batch_v2(records, codec=codec, producer=producer, is_transactional=is_transactional)
    patch.set_producer(batch, -1, -1, -1, is_transactional=False, index=6)
    assert batch == b"before" + plain
    with pytest.raises(UnsupportedForMessageFormatError, match="v1 has no producers"):
        patch.set_producer(build_message_set(records, 1), *producer, is_transactional=False)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_set_no_timestamp_type_not_allowed(magic: int) -> None:
    """DefaultRecordBatchTest, AbstractLegacyRecordBatchTest.testSetNoTimestampTypeNotAllowed: there is no such type to set."""
    records = simple_records(1)
    batch = build_batch_v2(records) if magic == 2 else build_message_set(records, magic)
    with pytest.raises(InvalidArgumentError):
        patch.set_max_timestamp(batch, NO_TIMESTAMP_TYPE, -1)


@pytest.mark.parametrize("control_type", [ControlType.COMMIT, ControlType.ABORT])
def test_read_and_write_control_batch(control_type: ControlType) -> None:
    """DefaultRecordBatchTest.testReadAndWriteControlBatch, MemoryRecordsTest.testBuildEndTxnMarker: the marker is reported
    back.
    """
    batch = build_end_txn_marker(7, NOW, control_type, Producer(73, 13), coordinator_epoch=347, leader_epoch=29)
    header = header_of(batch)
    assert header.is_control
    assert header.is_transactional
    check_fields(header, producer_id=73, producer_epoch=13, base_sequence=-1, leader_epoch=29)
    (record,) = iter_records(header, batch)
    assert (record.offset, record.timestamp) == (7, NOW)
    assert parse_end_txn_marker(record.key, record.value) == EndTxnMarker(control_type, 347)
    assert header.size == 78


def test_increment_sequence() -> None:
    """DefaultRecordBatchTest.testIncrementSequence: sequences wrap to 0."""
    assert increment_sequence(5, 10) == 15
    assert increment_sequence(MAX_INT32, 1) == 0
    assert increment_sequence(MAX_INT32 - 5, 10) == 4


def test_decrement_sequence() -> None:
    """DefaultRecordBatchTest.testDecrementSequence: and back again."""
    assert decrement_sequence(5, 5) == 0
    assert decrement_sequence(0, 1) == MAX_INT32
    assert decrement_sequence(5, 10) == MAX_INT32 - 4


def test_next_batch_size() -> None:
    """MemoryRecordsTest.testNextBatchSize: a walk ends in front of a partial batch, and raises on an impossible size or magic."""
    batch = build_batch_v2(simple_records(3, base_offset=3))
    two = bytes(batch + batch)
    assert [header.position for header in iter_headers(two)] == [0, len(batch)]
    for cut in range(len(batch)):
        assert [header.position for header in iter_headers(two[: len(batch) + cut])] == [0]
    broken = bytearray(two)
    broken[len(batch) + 16] = 10
    with pytest.raises(CorruptBatchError, match="magic: found 10"):
        list(iter_headers(broken))
    broken = bytearray(two)
    broken[len(batch) + 8 : len(batch) + 12] = struct.pack(">i", 13)
    with pytest.raises(CorruptBatchError, match=f"at byte {len(batch) + 1000}"):
        list(iter_headers(broken, 1000))


def test_a_batch_smaller_than_its_header_is_corrupt() -> None:
    """Spec §10.1: 14 is enough for a v0 message, not for a v2 batch."""
    batch = build_batch_v2(simple_records())
    batch[8:12] = struct.pack(">i", 48)
    with pytest.raises(CorruptBatchError, match="too small for magic 2: found 60"):
        read_header(batch)


def test_only_the_low_byte_of_attributes_counts() -> None:
    """Spec §10.1: bits of the high byte are carried along and mean nothing."""
    batch = build_batch_v2(simple_records())
    batch[21] = 0x7F
    batch = with_right_crc(batch)
    header = header_of(batch)
    assert header.codec is Codec.NONE
    assert not header.is_control
    assert len(read_all(batch)) == 3


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_unknown_codec(codec_id: int) -> None:
    """A codec id that no codec has is a typed error with path and position."""
    batch = build_batch_v2(simple_records())
    batch[22] = codec_id
    batch = with_right_crc(batch)
    with pytest.raises(CorruptBatchError, match=rf"unknown codec: found {codec_id}.*\(a\.log at byte 0\)"):
        list(iter_records(header_of(batch), batch, path="a.log"))


def test_offsets_of_a_compacted_batch() -> None:
    """Spec §10.1: a compacted batch keeps its base and last offset whatever records it lost."""
    batch = build_batch_v2([Record(5, NOW, 0, b"k", b"v"), Record(9, NOW, 0, b"k", b"v")], base_offset=3)
    batch[23:27] = struct.pack(">i", 20)
    batch = with_right_crc(batch)
    header = header_of(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (3, 23, 2)
    assert [record.offset for record in read_all(batch)] == [5, 9]


def test_leader_epoch_before_v2_not_allowed() -> None:
    """AbstractLegacyRecordBatchTest.testSetPartitionLeaderEpochNotAllowedV0/V1: these formats have none."""
    for magic in (0, 1):
        with pytest.raises(UnsupportedForMessageFormatError):
            patch.set_leader_epoch(build_message_set(simple_records(1), magic), 15)


@pytest.mark.parametrize(
    ("base_offset", "delta"), [(-1, 0), (0, -1), (2**63 - 1, 1)], ids=["negative offset", "negative delta", "beyond int64"]
)
def test_impossible_offsets(base_offset: int, delta: int) -> None:
    """Offsets below 0 or beyond int64 are corruption, not numbers to count with."""
    batch = build_batch_v2(simple_records(1))
    batch[0:8] = struct.pack(">q", base_offset)
    batch[23:27] = struct.pack(">i", delta)
    with pytest.raises(CorruptBatchError, match="offset"):
        read_header(batch)
