"""Reads, and up to where they may go: high watermark, last stable offset, log start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fields import check_fields
from tests.storage.partition_logs import batch, end_txn, fetch, marker, offsets, open_log
from tidelog.errors import LogOfflineError, OffsetOutOfRangeError
from tidelog.records.batch import iter_headers
from tidelog.records.builder import Producer
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation

LOG_END, HIGH_WATERMARK, TXN_COMMITTED = FetchIsolation.LOG_END, FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED
SIZE = len(batch())


class TestReads:
    def test_load_empty_log(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLoadEmptyLog."""
        log = open_log(tmp_path)
        check_fields(log, log_start_offset=0, log_end_offset=0, high_watermark=0, last_stable_offset=0)
        assert fetch(log, 0) == []

    def test_read_at_log_gap(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testReadAtLogGap: the gap at a segment's end leads to the next segment's first batch."""
        log = open_log(tmp_path, segment_bytes=300)
        while len(log.segments) == 1:
            log.append_as_leader(batch(), 0)
        first = log.segments.values()[0]
        last = first.read_next_offset() - 1
        first.truncate_to(last)
        assert fetch(log, last)[0] == last + 1

    def test_read_with_min_message(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testReadWithMinMessage: the first batch comes whole, whatever its size."""
        log = open_log(tmp_path, segment_bytes=200)
        ids = [*range(50), *range(50, 200, 7)]
        for offset in ids:
            log.append_as_follower(batch(offset))
        for i in range(50, max(ids)):
            read = log.read(i, 1, min_one_message=True)
            assert [header.base_offset for header in iter_headers(read.data)] == [next(one for one in ids if one >= i)]
            assert read.first_entry_incomplete is False

    def test_read_with_too_small_max_length(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testReadWithTooSmallMaxLength."""
        log = open_log(tmp_path, segment_bytes=200)
        for offset in [*range(50), *range(50, 200, 7)]:
            log.append_as_follower(batch(offset))
        for i in range(50, log.log_end_offset):
            assert len(log.read(i, 0, min_one_message=False).data) == 0
            read = log.read(i, 1, min_one_message=False)
            assert (len(read.data), read.first_entry_incomplete) == (1, True)

    def test_read_out_of_range(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testReadOutOfRange."""
        log = open_log(tmp_path, log_start_offset=1024)
        log.append_as_leader(batch(), 0)
        assert len(log.read(1025, 1000).data) == 0
        for offset in (0, 1026):
            with pytest.raises(OffsetOutOfRangeError):
                log.read(offset, 1000)

    def test_compressed_messages(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testCompressedMessages: a read starts where the batch does."""
        log = open_log(tmp_path, segment_bytes=110)
        for _ in range(2):
            log.append_as_leader(batch(count=2, codec=Codec.GZIP), 0)
        assert [next(iter_headers(log.read(offset, 4096).data)).base_offset for offset in range(4)] == [0, 0, 2, 2]

    def test_when_fetch_offset_higher_than_max_offset(self, tmp_path: Path) -> None:
        """LocalLogTest.testWhenFetchOffsetHigherThanMaxOffset."""
        log = open_log(tmp_path)
        log.append_as_follower(batch(0, count=3))
        log.roll()
        log.append_as_follower(batch(3) + batch(4))
        log.roll()

        def read(offset: int, end: LogOffsetMetadata) -> tuple[LogOffsetMetadata, int]:
            data = log.local.locate(offset, 10_000, min_one_message=False, max_offset=end, include_aborted=False).load()
            return data.metadata, len(data.data)

        end = log.local.log_end_offset_metadata
        assert read(3, end) == ((3, 3, 0), 2 * SIZE)
        assert read(3, LogOffsetMetadata(4, 3, SIZE)) == ((3, 3, 0), SIZE)
        assert read(4, LogOffsetMetadata(4, 3, SIZE)) == ((4, 3, SIZE), 0)  # the end itself: its place
        assert read(4, LogOffsetMetadata(3, 3, 0)) == ((4, 3, SIZE), 0)  # after it: the offset's own place, no bytes
        assert read(3, LogOffsetMetadata(4)) == ((3, 3, 0), 0)  # the end's place is not known: nothing is given
        assert read(0, LogOffsetMetadata(3)) == ((0, 0, 0), 0)

    def test_a_closed_log_is_not_read(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.close()
        with pytest.raises(LogOfflineError, match="closed"):
            log.read(0, 1)
        with pytest.raises(LogOfflineError, match="closed"):
            log.append_as_leader(batch(), 0)
        log.close()  # it is idempotent


def assert_place_is_right(log: PartitionLog, found: LogOffsetMetadata) -> None:
    segment = log.segments.floor(found.message_offset)
    assert segment is not None
    place = segment.translate_offset(found.message_offset)
    position = segment.size_bytes if place is None else place.position
    assert found == (found.message_offset, segment.base_offset, position)


class TestHighWatermark:
    def test_high_watermark_maintenance(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testHighWatermarkMaintenance."""
        log = open_log(tmp_path)

        def assert_high_watermark(offset: int) -> None:
            assert log.high_watermark == offset
            assert_place_is_right(log, log.watermarks.fetch_high_watermark_metadata())

        assert_high_watermark(0)
        log.append_as_leader(batch(count=3), 0)
        assert_high_watermark(0)
        log.update_high_watermark(LogOffsetMetadata(1))
        assert_high_watermark(1)
        assert log.update_high_watermark(2) == 2
        assert_high_watermark(2)
        assert log.update_high_watermark(5) == 3
        assert_high_watermark(3)
        log.truncate_to(2)
        assert_high_watermark(2)
        log.truncate_fully_and_start_at(13)
        assert_high_watermark(13)

    def test_its_place_follows_a_roll(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append_as_leader(batch(count=3), 0)
        log.update_high_watermark(log.log_end_offset_metadata)
        assert log.watermarks.fetch_high_watermark_metadata() == (3, 0, len(batch(count=3)))
        log.roll()  # the same offset, on a newer segment
        assert log.watermarks.fetch_high_watermark_metadata() == (3, 3, 0)

    def test_high_watermark_metadata_updated_after_segment_roll(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testHighWatermarkMetadataUpdatedAfterSegmentRoll."""
        log = open_log(tmp_path)

        def read(offset: int) -> int:
            return len(log.read(offset, 2**20, HIGH_WATERMARK, min_one_message=False).data)

        log.append_as_leader(batch(count=3), 0)
        assert read(0) == 0
        log.update_high_watermark(log.log_end_offset_metadata)
        assert read(0) == len(batch(count=3))
        log.roll()
        assert read(0) == len(batch(count=3))
        log.append_as_leader(batch(count=3), 0)
        assert read(3) == 0

    def test_maybe_update_high_watermark_as_follower(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testMaybeUpdateHighWatermarkAsFollower."""
        log = open_log(tmp_path)
        for i in range(100):
            log.append_as_follower(batch(i))
        moved = [log.update_high_watermark(offset) for offset in (99, 100, 100, 101, 98)]
        assert moved == [99, 100, 100, 100, 98]

    def test_offset_snapshot(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testOffsetSnapshot."""
        log = open_log(tmp_path)
        log.append_as_leader(batch(count=3), 0)
        assert (log.log_start_offset, log.high_watermark) == (0, 0)
        assert log.log_end_offset_metadata == (3, 0, len(batch(count=3)))
        log.append_as_leader(batch(), 0)
        log.update_high_watermark(4)
        log.maybe_increment_log_start_offset(2)
        assert (log.log_start_offset, log.high_watermark, log.last_stable_offset, log.log_end_offset) == (2, 4, 4, 4)

    def test_convert_to_offset_metadata_does_not_throw_offset_out_of_range_error(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testConvertToOffsetMetadataDoesNotThrowOffsetOutOfRangeError."""
        log = open_log(tmp_path)
        for i in range(35):
            if i == 31:
                log.roll()
            log.append_as_leader(batch(), 0)
        log.update_high_watermark(35)
        log.maybe_increment_log_start_offset(30)
        convert = log.watermarks._with_place
        assert convert(35) == (35, 31, 4 * SIZE)
        for offset in (29, log.log_end_offset + 1, 14):
            assert convert(offset) == LogOffsetMetadata(offset)


def test_fetch_up_to_log_end_offset(tmp_path: Path) -> None:
    """UnifiedLogTest.testFetchUpToLogEndOffset."""
    log = open_log(tmp_path)
    log.append_as_leader(batch(count=3), 0)
    log.append_as_leader(batch(count=2), 0)
    for offset in range(5):
        assert fetch(log, offset, LOG_END) == list(range(offset, 5))
    assert fetch(log, 5, LOG_END) == []


def test_fetch_up_to_high_watermark(tmp_path: Path) -> None:
    """UnifiedLogTest.testFetchUpToHighWatermark."""
    log = open_log(tmp_path, segment_bytes=200)
    for _ in range(4):
        log.append_as_leader(batch(), 0)
    for mark in range(5):
        log.update_high_watermark(mark)
        seen: list[int] = []
        while found := fetch(log, len(seen), HIGH_WATERMARK):
            seen += found
        assert seen == list(range(mark))
        assert fetch(log, 4, HIGH_WATERMARK) == []


def test_fetch_up_to_last_stable_offset(tmp_path: Path) -> None:
    """UnifiedLogTest.testFetchUpToLastStableOffset: 0, then 8, then all, and only once the high watermark moves."""
    log = open_log(tmp_path)
    one, two = Producer(1, 0, 0), Producer(2, 0, 0)

    def write(producer: Producer, sequence: int, count: int) -> None:
        log.append_as_leader(batch(count=count, producer=producer._replace(base_sequence=sequence), transactional=True), 0)

    write(one, 0, 5)
    log.append_as_leader(batch(count=3), 0)
    write(two, 0, 2)
    log.append_as_leader(batch(count=3), 0)
    write(one, 5, 5)
    assert log.log_end_offset == 18

    def assert_readable_up_to(end: int) -> None:
        assert log.last_stable_offset == end
        assert_place_is_right(log, log.watermarks.fetch_last_stable_offset_metadata())
        for offset in range(end):
            assert fetch(log, offset, TXN_COMMITTED) == list(range(offset, end))
        for offset in range(end, log.log_end_offset + 1):
            assert fetch(log, offset, TXN_COMMITTED) == []

    assert_readable_up_to(0)
    log.update_high_watermark(18)
    assert_readable_up_to(0)
    end_txn(log, ControlType.COMMIT, 1)
    assert_readable_up_to(0)
    log.update_high_watermark(19)
    assert_readable_up_to(8)
    end_txn(log, ControlType.ABORT, 2)
    log.update_high_watermark(20)
    assert_readable_up_to(20)
    assert [txn[:3] for txn in log.read(0, 10_000, TXN_COMMITTED).aborted_transactions or ()] == [(2, 8, 19)]
    assert log.read(0, 10_000, HIGH_WATERMARK).aborted_transactions is None


def test_read_committed_with_concurrent_high_watermark_updates(tmp_path: Path) -> None:
    """UnifiedLogTest.testReadCommittedWithConcurrentHighWatermarkUpdates: each step of a transaction, watermark by watermark."""
    log = open_log(tmp_path)
    for i in range(20):
        producer = Producer(1, 0, i)
        first = log.append_as_leader(batch(producer=producer, transactional=True), 0).first_offset
        log.update_high_watermark(log.log_end_offset)
        assert (log.last_stable_offset, fetch(log, first, TXN_COMMITTED)) == (first, [])
        end_txn(log, ControlType.COMMIT, 1)
        assert (log.last_stable_offset, fetch(log, first, TXN_COMMITTED)) == (first, [])
        log.update_high_watermark(log.log_end_offset)
        assert (log.last_stable_offset, fetch(log, first, TXN_COMMITTED)) == (first + 2, [first, first + 1])


def test_first_unstable_offset_no_transactional_data(tmp_path: Path) -> None:
    """UnifiedLogTest.testFirstUnstableOffsetNoTransactionalData."""
    log = open_log(tmp_path)
    log.append_as_leader(batch(count=3), 0)
    assert log.watermarks.first_unstable_offset is None


def test_first_unstable_offset_with_transactional_data(tmp_path: Path) -> None:
    """UnifiedLogTest.testFirstUnstableOffsetWithTransactionalData."""
    log = open_log(tmp_path)
    log.append_as_leader(batch(count=3, producer=Producer(137, 5, 0), transactional=True), 0)
    assert log.watermarks.first_unstable_offset == 0
    log.append_as_leader(batch(), 0)
    assert log.watermarks.first_unstable_offset == 0
    end_txn(log, ControlType.ABORT, 137, 5)
    assert log.watermarks.first_unstable_offset == 0  # its marker may yet be lost
    log.update_high_watermark(5)
    assert log.watermarks.first_unstable_offset is None


def test_first_unstable_offset_does_not_exceed_log_start_offset_mid_segment(tmp_path: Path) -> None:
    """UnifiedLogTest.testFirstUnstableOffsetDoesNotExceedLogStartOffsetMidSegment."""
    log = open_log(tmp_path)
    for sequence in range(5):
        log.append_as_leader(batch(producer=Producer(1, 0, sequence), transactional=True), 0)
    log.update_high_watermark(5)
    log.maybe_increment_log_start_offset(3)
    assert log.watermarks.first_unstable_offset == 3


def test_followers_take_transactions_as_they_come(tmp_path: Path) -> None:
    """UnifiedLogTest.testTransactionIndexUpdatedThroughReplication, in small."""
    log = open_log(tmp_path)
    log.append_as_follower(
        batch(0, count=2, producer=Producer(1, 0, 0), transactional=True)
        + batch(2)
        + marker(ControlType.ABORT, 1, offset=3)
        + batch(4, producer=Producer(1, 0, 2), transactional=True)
    )
    assert [txn[:3] for txn in log.local.collect_aborted_transactions(0, 5)] == [(1, 0, 3)]
    assert log.watermarks.first_unstable_offset == 0
    log.update_high_watermark(5)
    assert (log.watermarks.first_unstable_offset, offsets(log)) == (4, [0, 1, 2, 3, 4])
