"""Batches with some of their records left out: MemoryRecordsTest.testFilterTo* and its neighbours, and properties."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fields import check_fields
from tests.records.helpers import FORMATS, V2_CODECS, header_of, read_all, with_right_crc
from tests.records.kernels import KERNELS
from tests.records.strategies import Batch, batches
from tidelog.errors import CorruptBatchError, InvalidRecordError, UnsupportedForMessageFormatError
from tidelog.records import compaction
from tidelog.records import filter as filter_module
from tidelog.records.batch import LOG_APPEND_TIME, BatchHeader, check_crc, iter_headers
from tidelog.records.builder import Producer, build_batch_v2, build_empty_batch_v2, build_end_txn_marker
from tidelog.records.compaction import LatestRecordFilter
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.filter import BatchDecision, BatchRetention, FilterResult, OpenBatch, RecordFilter, Selected, filter_to
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record


@pytest.fixture(scope="module", autouse=True, params=list(KERNELS))
def kernel(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Put one of the kernels in place for the filter."""
    chosen = KERNELS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filter_module, "kernel", chosen)
        patch.setattr(compaction, "kernel", chosen)
        yield chosen


class Predicate(RecordFilter):
    """Keeps the records for which `stays` holds; each batch as `retention` says."""

    def __init__(
        self,
        stays: Callable[[Record], bool],
        retention: BatchRetention | Callable[[BatchHeader], BatchRetention] = BatchRetention.DELETE_EMPTY,
        now_ms: int = 0,
        delete_retention_ms: int = 0,
        holds_marker: bool = False,
    ) -> None:
        super().__init__(now_ms, delete_retention_ms)
        self.stays = stays
        self.retention = retention
        self.holds_marker = holds_marker

    def check_batch_retention(self, header: BatchHeader, batch: memoryview) -> BatchDecision:
        retention = self.retention if isinstance(self.retention, BatchRetention) else self.retention(header)
        return BatchDecision(retention, self.holds_marker)

    def should_retain_record(self, header: BatchHeader, record: Record) -> bool:
        return self.stays(record)


def with_key(record: Record) -> bool:
    return record.key is not None


def always(record: Record) -> bool:
    return True


def never(record: Record) -> bool:
    return False


def built(
    magic: int,
    codec: Codec,
    base_offset: int,
    *records: tuple[int, bytes | None, bytes | None],
    offsets: list[int] | None = None,
    log_append_time: int | None = None,
    leader_epoch: int = -1,
    producer: Producer | None = None,
    is_transactional: bool = False,
) -> bytearray:
    """A batch, or in v0 and v1 without a codec several, of (timestamp, key, value)."""
    numbered = [
        Record(base_offset + i if offsets is None else offsets[i], timestamp, 0, key, value)
        for i, (timestamp, key, value) in enumerate(records)
    ]
    timestamp_type = 0 if log_append_time is None else LOG_APPEND_TIME
    append_time = -1 if log_append_time is None else log_append_time
    if magic < 2:
        return build_message_set(numbered, magic, codec=codec, timestamp_type=timestamp_type, append_time=append_time)
    return build_batch_v2(
        numbered,
        base_offset=base_offset,
        codec=codec,
        timestamp_type=timestamp_type,
        append_time=append_time,
        leader_epoch=leader_epoch,
        producer=producer or Producer(),
        is_transactional=is_transactional,
    )


def headers(data: bytes | bytearray) -> list[BatchHeader]:
    """The batches' headers, their checksums verified."""
    found = list(iter_headers(data))
    for header in found:
        check_crc(header, memoryview(data)[header.position : header.end_position])
    return found


def contents(data: bytes | bytearray) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(record.offset, record.timestamp, record.key, record.value) for record in read_all(data)]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
class TestFormats:
    def test_filter(self, magic: int, codec: Codec) -> None:
        """MemoryRecordsTest.testFilterTo."""
        data = (
            built(magic, codec, 0, (10, None, b"a"))
            + built(magic, codec, 1, (11, b"1", b"b"), (12, None, b"c"))
            + built(magic, codec, 3, (13, None, b"d"), (20, b"4", b"e"), (15, b"5", b"f"))
            + built(magic, codec, 6, (16, b"6", b"g"))
        )
        result = filter_to(data, Predicate(with_key))
        assert (result.messages_read, result.messages_retained) == (7, 4)
        assert result.bytes_read == len(data)
        assert result.bytes_retained == len(result.data)
        assert result.max_offset == 6
        is_single = magic < 2 and codec is Codec.NONE
        if magic > 0:
            assert result.max_timestamp == 20
            assert result.shallow_offset_of_max_timestamp == (4 if is_single else 5)
        else:
            assert (result.max_timestamp, result.shallow_offset_of_max_timestamp) == (-1, -1)
        found = headers(result.data)
        if is_single:
            ends, times = [1, 4, 5, 6], [11, 20, 15, 16]
            starts = ends
        elif magic < 2:
            ends, times = [1, 5, 6], [11, 20, 16]
            starts = ends
        else:
            starts, ends, times = [1, 3, 6], [2, 5, 6], [11, 20, 16]
        assert [header.last_offset for header in found] == ends
        assert [header.base_offset for header in found] == starts
        assert [header.max_timestamp for header in found] == (times if magic else [-1] * len(ends))
        assert {header.magic for header in found} == {magic}
        assert {header.codec for header in found} == {codec}
        expected = [(1, 11, b"1", b"b"), (4, 20, b"4", b"e"), (5, 15, b"5", b"f"), (6, 16, b"6", b"g")]
        assert contents(result.data) == [
            (offset, timestamp if magic else -1, key, value) for offset, timestamp, key, value in expected
        ]

    def test_nothing_to_leave_out(self, magic: int, codec: Codec) -> None:
        """A batch of which everything stays is not rewritten."""
        data = built(magic, codec, 1, (11, b"1", b"b"), (12, b"2", b"c")) + built(magic, codec, 3, (13, b"3", b"d"))
        assert filter_to(data, Predicate(always)).data == data

    def test_partition_leader_epoch(self, magic: int, codec: Codec) -> None:
        """MemoryRecordsTest.testFilterToPreservesPartitionLeaderEpoch."""
        data = built(magic, codec, 0, (10, None, b"a"), (11, b"1", b"b"), (12, None, b"c"), leader_epoch=67)
        (header,) = headers(filter_to(data, Predicate(with_key)).data)
        assert header.leader_epoch == (67 if magic == 2 else -1)

    def test_batch_discard(self, magic: int, codec: Codec) -> None:
        """MemoryRecordsTest.testFilterToBatchDiscard."""
        data = (
            built(magic, codec, 0, (10, b"1", b"a"))
            + built(magic, codec, 1, (11, b"2", b"b"), (12, b"3", b"c"))
            + built(magic, codec, 3, (13, b"4", b"d"), (20, b"5", b"e"), (15, b"6", b"f"))
            + built(magic, codec, 6, (16, b"7", b"g"))
        )

        def retention(header: BatchHeader) -> BatchRetention:
            return BatchRetention.DELETE if header.last_offset in (2, 6) else BatchRetention.DELETE_EMPTY

        result = filter_to(data, Predicate(always, retention))
        if codec is not Codec.NONE or magic == 2:
            assert [header.last_offset for header in headers(result.data)] == [0, 5]
        else:
            assert [header.last_offset for header in headers(result.data)] == [0, 1, 3, 4, 5]

    def test_already_compacted(self, magic: int, codec: Codec) -> None:
        """MemoryRecordsTest.testFilterToAlreadyCompactedLog."""
        data = built(magic, codec, 0, (10, None, b"a"), (11, b"1", b"b"), (12, None, b"c"), offsets=[5, 8, 10])
        result = filter_to(data, Predicate(with_key))
        (header,) = headers(result.data)
        assert contents(result.data) == [(8, 11 if magic else -1, b"1", b"b")]
        assert (header.base_offset, header.last_offset) == ((0, 10) if magic == 2 else (8, 8))

    def test_log_append_time(self, magic: int, codec: Codec) -> None:
        """MemoryRecordsTest.testFilterToPreservesLogAppendTime."""
        now = 1_600_000_000_000
        data = (
            built(magic, codec, 0, (10, None, b"a"), log_append_time=now)
            + built(magic, codec, 1, (11, b"1", b"b"), (12, None, b"c"), log_append_time=now)
            + built(magic, codec, 3, (13, None, b"d"), (14, b"4", b"e"), (15, b"5", b"f"), log_append_time=now)
        )
        result = filter_to(data, Predicate(with_key))
        found = headers(result.data)
        assert len(found) == (3 if magic < 2 and codec is Codec.NONE else 2)
        if magic > 0:
            assert {(header.timestamp_type, header.max_timestamp) for header in found} == {(LOG_APPEND_TIME, now)}
            assert {record.timestamp for record in read_all(result.data)} == {now}
        if magic == 2:
            assert {header.base_timestamp for header in found} == {now}

    def test_piece_by_piece(self, magic: int, codec: Codec) -> None:
        """MemoryRecordsTest.testFilterToWithUndersizedBuffer: what is cut off waits for the next call."""
        data = (
            built(magic, codec, 0, (10, None, b"a"))
            + built(magic, codec, 1, (11, b"1", bytes(128)), (12, b"2", b"c"), (13, None, b"d"))
            + built(magic, codec, 4, (14, None, b"e"), (15, b"5", b"f"), (16, b"6", b"g"))
            + built(magic, codec, 7, (17, b"7", bytes(128)))
        )
        at, size, records = 0, 64, []
        while at < len(data):
            result = filter_to(data[at : at + size], Predicate(with_key), position=at)
            records += read_all(result.data)
            at += result.bytes_read
            size = 64 if result.bytes_read else 2 * size
        assert [record.key for record in records] == [b"1", b"2", b"5", b"6", b"7"]
        whole = filter_to(data, Predicate(with_key))
        assert read_all(whole.data) == records


@pytest.mark.parametrize("codec", V2_CODECS)
class TestV2:
    @pytest.mark.parametrize("is_transactional", [True, False])
    def test_empty_batch_of_records_that_go(self, codec: Codec, is_transactional: bool) -> None:
        """MemoryRecordsTest.testFilterToEmptyBatchRetention."""
        data = built(
            2,
            codec,
            3,
            (11, b"2", b"b"),
            (12, b"3", b"c"),
            leader_epoch=293,
            producer=Producer(23, 5, 10),
            is_transactional=is_transactional,
        )
        result = filter_to(data, Predicate(never, BatchRetention.RETAIN_EMPTY))
        assert (result.messages_read, result.messages_retained) == (2, 0)
        assert (result.bytes_read, result.bytes_retained) == (len(data), 61)
        assert (result.max_offset, result.max_timestamp, result.shallow_offset_of_max_timestamp) == (4, 12, 4)
        (header,) = headers(result.data)
        check_fields(header, record_count=0, max_timestamp=12, timestamp_type=0, codec=Codec.NONE)
        assert (header.base_offset, header.last_offset) == (3, 4)
        assert (header.base_sequence, header.last_sequence) == (10, 11)
        assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (23, 5, 293)
        assert header.is_transactional == is_transactional
        assert header.base_timestamp == -1

    def test_producers(self, codec: Codec) -> None:
        """MemoryRecordsTest.testFilterToPreservesProducerInfo."""
        data = (
            built(2, codec, 0, (10, None, b"a"), (11, b"1", b"b"), (12, None, b"c"))
            + built(2, codec, 3, (13, None, b"d"), (14, b"4", b"e"), (15, b"5", b"f"), producer=Producer(23, 5, 10))
            + built(
                2,
                codec,
                6,
                (16, b"6", b"g"),
                (17, b"7", b"h"),
                (18, None, b"i"),
                producer=Producer(99384, 234, 15),
                is_transactional=True,
            )
        )
        result = filter_to(data, Predicate(with_key))
        first, second, third = headers(result.data)
        assert (first.record_count, first.base_offset, first.last_offset) == (1, 0, 2)
        check_fields(first, producer_id=-1, producer_epoch=-1, base_sequence=-1, last_sequence=-1)
        assert (second.record_count, second.base_offset, second.last_offset) == (2, 3, 5)
        check_fields(second, producer_id=23, producer_epoch=5, base_sequence=10, last_sequence=12)
        assert not second.is_transactional
        assert (third.record_count, third.base_offset, third.last_offset) == (2, 6, 8)
        check_fields(third, producer_id=99384, producer_epoch=234, base_sequence=15, last_sequence=17)
        assert third.is_transactional
        assert [record.value for record in read_all(result.data)] == [b"b", b"e", b"f", b"g", b"h"]

    def test_delete_horizon(self, codec: Codec) -> None:
        """MemoryRecordsTest.testBaseTimestampToDeleteHorizonConversion."""
        horizon = (2**31 - 1) // 2
        data = built(2, codec, 0, (5, b"0", b"0"), (10, b"1", None), (15, b"2", b"2"), leader_epoch=998)
        keeping = Predicate(always, BatchRetention.RETAIN_EMPTY, now_ms=horizon - 1, delete_retention_ms=1)
        result = filter_to(data, keeping)
        (header,) = headers(result.data)
        assert (header.delete_horizon_ms, header.leader_epoch, header.max_timestamp) == (horizon, 998, 15)
        assert [record.timestamp for record in read_all(result.data)] == [5, 10, 15]
        again = filter_to(result.data, Predicate(always, now_ms=2 * horizon))
        assert again.data == result.data, "a horizon is set once"
        less = filter_to(result.data, Predicate(lambda record: record.offset > 0, now_ms=2 * horizon))
        (header,) = headers(less.data)
        assert (header.delete_horizon_ms, header.max_timestamp) == (horizon, 15)
        assert contents(less.data) == [(1, 10, b"1", None), (2, 15, b"2", b"2")]

    def test_delete_horizon_of_append_time(self, codec: Codec) -> None:
        data = built(2, codec, 0, (5, b"0", b"0"), (10, b"1", None), log_append_time=1000)
        result = filter_to(data, Predicate(always, now_ms=5000, delete_retention_ms=7))
        (header,) = headers(result.data)
        assert (header.delete_horizon_ms, header.max_timestamp) == (5007, 1000)
        assert [record.timestamp for record in read_all(result.data)] == [1000, 1000]

    def test_delete_horizon_beyond_the_end_of_time(self, codec: Codec) -> None:
        """Kafka's sum goes round to a negative number, which is no horizon: the tombstone stays for good."""
        data = built(2, codec, 0, (5, b"0", None))
        assert filter_to(data, Predicate(always, now_ms=1, delete_retention_ms=2**63 - 1)).data == data

    def test_codec_stays(self, codec: Codec) -> None:
        data = built(2, codec, 0, *((i, b"key %d" % i, bytes(100)) for i in range(50)))
        result = filter_to(data, Predicate(lambda record: record.offset % 3 == 0))
        (header,) = headers(result.data)
        check_fields(header, codec=codec, record_count=17, base_offset=0, last_offset=49)

    def test_gap_at_the_end_of_int32(self, codec: Codec) -> None:
        data = built(2, codec, 7, (1, b"a", b"a"), (2, b"b", b"b"), offsets=[7, 7 + 2**31 - 1])
        result = filter_to(data, Predicate(lambda record: record.key == b"b"))
        assert contents(result.data) == [(7 + 2**31 - 1, 2, b"b", b"b")]


def test_marker_of_an_empty_transaction() -> None:
    """The marker of a transaction with no other records left is given a horizon, and keeps its time."""
    data = build_end_txn_marker(9, 1234, ControlType.ABORT, Producer(7, 1, -1), coordinator_epoch=3, leader_epoch=2)
    result = filter_to(data, Predicate(always, now_ms=10_000, delete_retention_ms=500, holds_marker=True))
    (header,) = headers(result.data)
    assert header.is_control
    assert header.is_transactional
    assert (header.delete_horizon_ms, header.max_timestamp, header.leader_epoch) == (10_500, 1234, 2)
    assert [record._replace(timestamp_type=0) for record in read_all(result.data)] == read_all(data)


def test_empty_batch_retention() -> None:
    """MemoryRecordsTest.testEmptyBatchRetention."""
    data = build_empty_batch_v2(3, 3, max_timestamp=77, leader_epoch=293, producer=Producer(23, 5, 10))
    result = filter_to(data, Predicate(never, BatchRetention.RETAIN_EMPTY))
    assert result.data == data
    assert (result.messages_read, result.bytes_read, result.messages_retained) == (0, 61, 0)
    assert (result.max_offset, result.max_timestamp, result.shallow_offset_of_max_timestamp) == (3, 77, 3)


@pytest.mark.parametrize("retention", [BatchRetention.DELETE, BatchRetention.DELETE_EMPTY])
def test_empty_batch_deletion(retention: BatchRetention) -> None:
    """MemoryRecordsTest.testEmptyBatchDeletion."""
    data = build_empty_batch_v2(3, 3, max_timestamp=77, leader_epoch=293, producer=Producer(23, 5, 10))
    result = filter_to(data, Predicate(never, retention))
    assert (result.data, result.bytes_read) == (b"", 61)


def test_empty_batch_of_an_old_format() -> None:
    data = built(1, Codec.NONE, 0, (1, b"a", b"b"))
    with pytest.raises(UnsupportedForMessageFormatError):
        filter_to(data, Predicate(never, BatchRetention.RETAIN_EMPTY))


def test_headers_of_records() -> None:
    """What follows the offset in a record is carried over as it is."""
    head = (("h", b"x" * 200), ("", None))
    records = [Record(i, 1000 * i, 0, b"k%d" % i, None if i == 1 else b"v", head[: i % 3]) for i in range(4)]
    data = build_batch_v2(records)
    result = filter_to(data, Predicate(lambda record: record.offset > 0, now_ms=5))
    assert read_all(result.data) == records[1:]


def test_a_wrong_checksum_is_not_made_right() -> None:
    data = built(2, Codec.NONE, 0, (1, b"a", b"b"), (2, b"c", b"d"))
    data[-3] ^= 1
    with pytest.raises(CorruptBatchError):
        filter_to(data, Predicate(lambda record: record.offset == 0))


def test_a_negative_timestamp() -> None:
    """No log has such records; what is rewritten must not have them either."""
    data = built(2, Codec.NONE, 0, (5, b"a", b"b"), (5, b"c", b"d"))
    assert data[63] == 0  # the first record's timestamp delta
    data[63] = 13  # -7
    with pytest.raises(InvalidRecordError, match="negative timestamp"):
        filter_to(with_right_crc(data), Predicate(lambda record: record.offset == 0))


@examples(150)
@given(batch=batches(), data=st.data())
def test_records_that_stay_are_the_same(batch: Batch, data: st.DataObject) -> None:
    """Whatever goes, what stays has the same offset, time, key, value and headers, and the batch is what a builder builds."""
    stays = data.draw(st.lists(st.booleans(), min_size=len(batch.records), max_size=len(batch.records)))
    kept = [record for record, stay in zip(batch.records, stays, strict=True) if stay]
    offsets = {record.offset for record in kept}
    result = filter_to(batch.data, Predicate(lambda record: record.offset in offsets, now_ms=3, delete_retention_ms=4))
    assert read_all(result.data) == kept
    assert result.messages_retained == len(kept)
    if batch.magic < 2 and batch.codec is Codec.NONE:
        return
    before = header_of(batch.data)
    for header in headers(result.data):
        assert header.codec == before.codec
        assert header.timestamp_type == before.timestamp_type
        if batch.magic == 2:
            assert header[2:5] == before[2:5]
            assert header[9:13] == before[9:13]
            assert header.record_count == len(kept)
            wanted = any(record.value is None for record in kept)
            horizon = before.delete_horizon_ms if before.has_delete_horizon else 7 if wanted else None
            assert header.delete_horizon_ms == horizon
            if len(kept) == len(batch.records) and horizon == before.delete_horizon_ms:
                assert result.data == batch.data
            else:
                again = build_batch_v2(
                    kept,
                    base_offset=header.base_offset,
                    codec=header.codec,
                    timestamp_type=header.timestamp_type,
                    append_time=before.max_timestamp,
                    delete_horizon_ms=horizon,
                )
                assert result.data[61:] == again[61:]
                assert header.base_timestamp == header_of(again).base_timestamp
                assert header.max_timestamp == header_of(again).max_timestamp


@examples(60)
@given(all_batches=st.lists(batches(max_records=4), min_size=1, max_size=4), cut=st.integers(1, 40))
def test_bytes_read(all_batches: list[Batch], cut: int) -> None:
    """Whole batches are read, a partial one is not."""
    data = b"".join(batch.data for batch in all_batches)
    last = list(iter_headers(data))[-1]
    result = filter_to(data[: len(data) - min(cut, last.size)], Predicate(always, BatchRetention.DELETE))
    assert result.bytes_read == len(data) - last.size


class TestOffsetTable:
    def test_put_and_get(self, kernel: ModuleType) -> None:
        table = kernel.OffsetTable(2000, bytes(16))
        keys = [b"%d" % i * (1 + i % 30) for i in range(1, 1000)]
        for offset, key in enumerate(keys):
            table.put(key, offset)
        latest = {key: offset for offset, key in enumerate(keys)}
        assert table.size == len(latest)
        assert table.latest_offset == len(keys) - 1
        assert {key: table.get(key) for key in latest} == latest
        assert table.get(b"another") == -1
        assert table.get(b"") == -1

    def test_full(self, kernel: ModuleType) -> None:
        table = kernel.OffsetTable(100, b"0123456789abcdef")
        for i in range(100):
            table.put(b"%d" % i, i)
        assert table.size == 100
        table.put(b"7", 500)
        assert [table.get(b"%d" % i) for i in range(100)] == [*range(7), 500, *range(8, 100)]
        assert table.get(b"100") == -1
        with pytest.raises(ValueError, match="full"):
            table.put(b"100", 100)
        table.clear()
        assert (table.size, table.latest_offset, table.get(b"7")) == (0, -1, -1)

    def test_one_slot(self, kernel: ModuleType) -> None:
        table = kernel.OffsetTable(1, bytes(16))
        table.put(b"", 2**62)
        assert (table.get(b""), table.get(b"x")) == (2**62, -1)

    @pytest.mark.parametrize(("slots", "salt"), [(0, bytes(16)), (1, b"short")])
    def test_arguments(self, kernel: ModuleType, slots: int, salt: bytes) -> None:
        with pytest.raises(ValueError, match=r"slots|salt"):
            kernel.OffsetTable(slots, salt)

    def test_keys_alike(self, kernel: ModuleType) -> None:
        """Keys that differ in their length or in one bit only."""
        table = kernel.OffsetTable(1 << 10, bytes(range(16)))
        keys = [bytes(length) for length in range(40)]
        keys += [(1 << bit).to_bytes(16, "little") for bit in range(128)]
        for offset, key in enumerate(keys):
            table.put(key, offset)
        assert [table.get(key) for key in keys] == list(range(len(keys)))


class TestPasses:
    """Runs of plain batches at one go give what one batch after the other gives."""

    @examples(60)
    @given(all_batches=st.lists(batches(max_records=5), min_size=1, max_size=6), data=st.data())
    def test_run_or_single(self, kernel: ModuleType, all_batches: list[Batch], data: st.DataObject) -> None:
        log = b"".join(batch.data for batch in all_batches)
        table = kernel.OffsetTable(1000, bytes(16))
        for batch in all_batches:
            for record in batch.records:
                if record.key is not None and data.draw(st.booleans()):
                    table.put(record.key, record.offset)
        table.latest_offset = data.draw(st.sampled_from([0, 2**31, 2**62]))
        now_ms = data.draw(st.sampled_from([0, 2**60, 2**62]))
        run, single = (kind(table, now_ms, 1000) for kind in (Transactional, OneByOne))
        run.transactional_end = data.draw(st.sampled_from([-1, 6, 2**40, 2**63 - 1]))
        assert filter_to(log, run) == filter_to(log, single)
        assert run.without_key == single.without_key
        taken = [
            header.producer_id
            for header in map(header_of, (batch.data for batch in all_batches))
            if header.is_transactional and not header.is_compressed and header.last_offset < run.transactional_end
        ]
        assert set(run.producers) == set(taken)

    @examples(60)
    @given(all_batches=st.lists(batches(max_records=5), min_size=1, max_size=6), start=st.sampled_from([0, 3, 2**31]))
    def test_map(self, kernel: ModuleType, all_batches: list[Batch], start: int) -> None:
        """The keys of plain batches, from an offset on."""
        table = kernel.OffsetTable(1000, bytes(16))
        mapping = kernel.MapPass(table, start, 900)
        latest: dict[bytes, int] = {}
        messages = 0
        for batch in all_batches:
            data = bytes(batch.data)
            consumed = mapping.add_batches(data, 0, len(data))
            header = header_of(data)
            if header.magic < 2 or header.is_compressed or header.is_transactional:
                assert consumed == 0
                continue
            assert consumed == len(data)
            messages += len(batch.records)
            latest |= {record.key: record.offset for record in batch.records if record.key is not None and record.offset >= start}
        assert mapping.messages_read == messages
        assert table.size == len(latest)
        assert {key: table.get(key) for key in latest} == latest

    def test_full_in_the_middle(self, kernel: ModuleType) -> None:
        """The last record that found a place is where the map ends."""
        data = bytes(built(2, Codec.NONE, 10, (1, b"a", b""), (1, b"b", b""), (1, None, b""), (1, b"a", b"")))
        table = kernel.OffsetTable(4, bytes(16))
        mapping = kernel.MapPass(table, 0, 2)
        assert mapping.add_batches(data, 0, len(data)) == 0
        assert mapping.is_full
        assert (mapping.messages_read, table.latest_offset, table.size) == (3, 11, 2)

    def test_many_producers(self, kernel: ModuleType) -> None:
        """A run stops where there is no room for another producer's id, and goes on when they were taken."""
        one = [
            bytes(built(2, Codec.NONE, i, (1, b"a", b""), producer=Producer(i, 0, 0), is_transactional=True)) for i in range(1500)
        ]
        data = b"".join(one)
        mapping = kernel.MapPass(kernel.OffsetTable(4, bytes(16)), 0, 4)
        mapping.transactional_end = 1400
        found, index = [], 0
        for expected in (1024, 1400, 1400):
            index = mapping.add_batches(data, index, len(data))
            assert index == len(one[0]) * expected
            found += mapping.take_producers()
        assert found == list(range(1400))
        assert list(mapping.take_producers()) == []

    def test_kept_ends(self, kernel: ModuleType) -> None:
        """A batch that a producer's state needs is left to the caller."""
        one, two = bytes(built(2, Codec.NONE, 0, (1, b"a", b""))), bytes(built(2, Codec.NONE, 1, (1, b"a", b"")))
        table = kernel.OffsetTable(4, bytes(16))
        table.put(b"a", 1)
        cleaning = kernel.CleanPass(table, 0, -1, array("q", [-3, 1, 50]))
        out = bytearray(1000)
        assert cleaning.filter_batches(one + two, 0, len(one + two), out) == len(one)
        assert cleaning.written == 0

    def test_no_room(self, kernel: ModuleType) -> None:
        one = bytes(built(2, Codec.NONE, 0, (1, b"a", b"")))
        cleaning = kernel.CleanPass(kernel.OffsetTable(4, bytes(16)), 0, -1, array("q"))
        out = bytearray(2 * len(one))
        assert cleaning.filter_batches(one * 3, 0, 3 * len(one), out) == len(one)
        assert out[: cleaning.written] == one

    def test_many_records_in_a_batch(self, kernel: ModuleType) -> None:
        data = bytes(built(2, Codec.NONE, 0, *((1, b"%d" % (i % 7), b"v") for i in range(500))))
        table = kernel.OffsetTable(100, bytes(16))
        kernel.MapPass(table, 0, 90).add_batches(data, 0, len(data))
        cleaning = kernel.CleanPass(table, 0, -1, array("q"))
        out = bytearray(3 * len(data))
        assert cleaning.filter_batches(data, 0, len(data), out) == len(data)
        assert [record.offset for record in read_all(out[: cleaning.written])] == list(range(493, 500))


class Transactional(LatestRecordFilter):
    """Takes transactional batches in runs as well."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.transactional_end = -1
        self.producers: list[int] = []

    def take_run(self, view: memoryview, index: int, result: FilterResult) -> int:
        end, producers = self.take_transactional_run(view, index, result, self.transactional_end)
        self.producers += producers
        return end


class OneByOne(LatestRecordFilter):
    """The same, record by record and batch by batch."""

    def select(self, opened: OpenBatch, keep: bytearray, path: object = None) -> Selected:
        return RecordFilter.select(self, opened, keep)

    def take_run(self, view: memoryview, index: int, result: FilterResult) -> int:
        return index
