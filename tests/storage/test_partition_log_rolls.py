"""When a log begins a new segment, and what that leaves: what Kafka's own tests establish, and its two counters."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from tests.storage.partition_logs import (
    NOW_MS,
    bases,
    batch,
    headers,
    messages,
    offset_entries,
    offsets,
    open_log,
    snapshots,
    time_entries,
)
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError, LogOfflineError
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.storage.partition import roll_statistics
from tidelog.storage.partition.partition_log import PartitionLog

INT32_MAX = 2**31 - 1
HOUR_MS = 3_600_000


def timeless(offset: int = 0) -> bytearray:
    return batch(offset, NO_TIMESTAMP)


class TestByTime:
    def test_time_based_log_roll_during_append(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testTimeBasedLogRollDuringAppend."""
        clock = ManualClock(0)
        log = open_log(tmp_path, clock, segment_ms=HOUR_MS)
        clock.advance(HOUR_MS + 1)
        log.append_as_leader(timeless(), 0)
        assert len(log.segments) == 1  # an empty segment never rolls
        clock.advance(HOUR_MS + 1)
        log.append_as_leader(batch(0, clock.now_ms() + 10 * HOUR_MS), 0)
        assert len(log.segments) == 2  # wall clock since the segment was made, as its first batch has no timestamp
        first = clock.now_ms() + 10 * HOUR_MS
        clock.advance(10 * HOUR_MS)
        log.append_as_leader(batch(0, first), 0)
        assert len(log.segments) == 2  # event time now, however long the wall clock waits
        log.append_as_leader(batch(0, first + HOUR_MS), 0)
        assert len(log.segments) == 2  # exactly segment.ms later
        log.append_as_leader(timeless(), 0)
        log.append_as_leader(batch(0, 0), 0)
        assert len(log.segments) == 2  # no timestamp, and one before the first: never
        log.append_as_leader(batch(0, first + HOUR_MS + 1), 0)
        assert len(log.segments) == 3
        clock.advance(10 * HOUR_MS)
        log.append_as_leader(b"", 0)
        assert len(log.segments) == 3  # nothing to append, nothing rolls

    def test_the_first_batchs_largest_timestamp_counts(self, tmp_path: Path) -> None:
        """Not that batch's first timestamp, not its append's largest, not the segment's largest so far, not the clock."""
        clock = ManualClock(0)
        log = open_log(tmp_path, clock, segment_ms=1000)
        first = build_batch_v2(
            [Record(n, time, CREATE_TIME, b"k", b"v") for n, time in enumerate((100, 300, 200))], leader_epoch=0
        )
        log.append_as_follower(bytes(first) + bytes(batch(3, 900)))
        clock.advance(10**9)
        for offset, time, segments in ((4, 1300, 1), (5, 1200, 1), (6, 1301, 2), (7, 2301, 2), (8, 2302, 3)):
            log.append_as_follower(batch(offset, time))
            assert len(log.segments) == segments, f"after the record of time {time}"

    def test_a_future_timestamp_does_not_roll_early(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testTimeBasedLogRollDuringAppend, (b): while the first batch has no timestamp, only the clock counts."""
        clock = ManualClock(0)
        log = open_log(tmp_path, clock, segment_ms=1000)
        log.append_as_leader(timeless(), 0)
        log.append_as_leader(batch(0, 10**12), 0)
        clock.advance(1000)
        log.append_as_leader(batch(0, 0), 0)
        assert len(log.segments) == 1
        clock.advance(1)
        log.append_as_leader(batch(0, 0), 0)
        assert len(log.segments) == 2

    def test_time_based_log_roll_jitter(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testTimeBasedLogRollJitter: not before segment.ms - jitter, certainly once that has passed."""
        jitter_ms = random.Random(7).randrange(20 * 60_000)
        log = open_log(tmp_path, segment_ms=HOUR_MS, segment_jitter_ms=20 * 60_000, jitter=random.Random(7))
        assert log.segments.active.roll_jitter_ms == jitter_ms
        log.append_as_leader(batch(0, NOW_MS), 0)
        log.append_as_leader(batch(0, NOW_MS + HOUR_MS - jitter_ms), 0)
        assert len(log.segments) == 1
        log.append_as_leader(batch(0, NOW_MS + HOUR_MS - jitter_ms + 1), 0)
        assert len(log.segments) == 2

    def test_compaction_that_must_not_wait_rolls_earlier(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, cleanup_policy="compact", max_compaction_lag_ms=1000, segment_ms=HOUR_MS)
        for later_ms in (0, 1000, 1001):
            log.append_as_leader(batch(0, NOW_MS + later_ms), 0)
        assert bases(log) == [0, 2]


class TestBySizeAndIndex:
    def test_size_based_log_roll(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testSizeBasedLogRoll: segment.bytes of 10 * (size - 1) holds nine sets, so eleven make two segments."""
        log = open_log(tmp_path, segment_bytes=10 * (len(batch()) - 1))
        for _ in range(11):
            log.append_as_leader(batch(), 0)
        assert bases(log) == [0, 9]

    def test_a_segment_may_be_exactly_full(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, segment_bytes=10 * len(batch()))
        for _ in range(11):
            log.append_as_leader(batch(), 0)
        assert bases(log) == [0, 10]

    def test_log_rolls(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLogRolls: many small segments; every offset stays readable, all but the active one get flushed."""
        log = open_log(tmp_path, segment_bytes=100, index_interval_bytes=10)
        for i in range(100):
            assert log.append_as_leader(batch(), 0).first_offset == i
        assert len(log.segments) == 100
        assert offsets(log) == list(range(100))
        assert log.recovery_point == 0  # it is written, not yet on the disk
        log.scheduler.tick()
        assert log.recovery_point == log.segments.active.base_offset == 99
        assert log.truncate_to(0)
        assert (len(log.segments), log.log_end_offset, log.recovery_point) == (1, 0, 0)
        log.append_as_leader(batch(), 0)

    def test_a_full_index_rolls(self, tmp_path: Path) -> None:
        """TimeIndexTest.testIsFull, OffsetIndexTest.appendTooMany: a full index rolls the segment."""
        # 60 bytes: 7 entries in the offset index, 5 in the time index, the last of which is kept for the roll.
        log = open_log(tmp_path, segment_index_bytes=60, index_interval_bytes=0)
        for i in range(12):
            log.append_as_leader(batch(0, NOW_MS + i), 0)
        log.close()
        assert bases(log) == [0, 5, 10]
        assert [len(time_entries(log.directory, base)) for base in bases(log)] == [4, 4, 1]
        assert [len(offset_entries(log.directory, base)) for base in bases(log)] == [4, 4, 1]


class TestNewSegments:
    def test_roll_segment_that_already_exists(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testRollSegmentThatAlreadyExists: an empty active segment is made again, with room in its indexes."""
        log = open_log(tmp_path)
        log.roll()
        assert bases(log) == [0]
        log.append_as_leader(batch(), 0)
        log.roll()
        assert bases(log) == [0, 1]
        log.segments.active.offset_index.resize(0)
        log.segments.active.time_index.resize(0)
        assert log.segments.active.offset_index.is_full
        log.append_as_leader(batch(), 0)
        assert bases(log) == [0, 1]
        assert not log.segments.active.offset_index.is_full
        assert offsets(log) == [0, 1]

    def test_a_leftover_under_the_new_name_is_removed(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append_as_leader(batch(), 0)
        for suffix in ("log", "index", "timeindex", "txnindex"):
            (log.directory / f"{1:020d}.{suffix}").write_bytes(b"left over")
        assert log.roll().size_bytes == 0
        log.append_as_leader(batch(), 0)
        log.close()
        assert not (log.directory / f"{1:020d}.txnindex").exists()
        assert offset_entries(log.directory, 1) == []

    def test_roll_segment_error_when_next_offset_is_illegal(self, tmp_path: Path) -> None:
        """LocalLogTest.testRollSegmentErrorWhenNextOffsetIsIllegal: a segment that is there, and one before the last."""
        log = open_log(tmp_path)
        for _ in range(3):
            log.append_as_leader(batch(), 0)
        log.local.log_end_offset = 0  # as no log ever is
        with pytest.raises(InvalidArgumentError):
            log.roll()
        log.local.log_end_offset = 3
        log.roll()
        log.local.log_end_offset = 1
        with pytest.raises(InvalidArgumentError):
            log.roll()

    def test_over_compacted_log_recovery(self, tmp_path: Path) -> None:
        """LogLoaderTest.testOverCompactedLogRecovery: an offset out of an int32's reach rolls to that very offset."""
        log = open_log(tmp_path)
        log.append_as_follower(batch(0))
        log.append_as_follower(batch(INT32_MAX + 2))
        log.close()
        assert bases(log) == [0, INT32_MAX + 2]
        assert (log.directory / f"{INT32_MAX + 2:020d}.snapshot").exists()
        assert len(list(log.directory.glob("*.index"))) == 2

    def test_over_compacted_log_recovery_multi_record(self, tmp_path: Path) -> None:
        """LogLoaderTest.testOverCompactedLogRecoveryMultiRecord."""
        log = open_log(tmp_path)
        log.append_as_follower(batch(0, codec=Codec.GZIP))
        log.append_as_follower(batch(INT32_MAX + 2, count=2, codec=Codec.GZIP))
        log.append_as_follower(batch(2 * INT32_MAX + 4, count=2, codec=Codec.GZIP))
        log.close()
        assert bases(log) == [0, INT32_MAX + 2, 2 * INT32_MAX + 4]

    def test_over_compacted_log_recovery_multi_record_v1(self, tmp_path: Path) -> None:
        """LogLoaderTest.testOverCompactedLogRecoveryMultiRecordV1: v1 does not report its first offset, so as low as will do."""
        log = open_log(tmp_path)
        for offset, count in ((0, 1), (INT32_MAX + 2, 2), (INT32_MAX + 4, 2)):
            log.append_as_follower(messages(offset, count=count, codec=Codec.GZIP))
        log.close()
        assert bases(log) == [0, 3, INT32_MAX + 4]
        assert len(list(log.directory.glob("*.index"))) == 3

    def test_preallocated_files_are_trimmed(self, tmp_path: Path) -> None:
        """What rolls or closes gives its room back (see also LogCleanerTest.testSizeTrimmedForPreallocatedAndCompactedTopic)."""
        log = open_log(tmp_path, segment_bytes=4096, preallocate=True)
        log.append_as_leader(batch(), 0)
        first, size = log.segments.active.log.path, log.size_bytes
        assert first.stat().st_size == 4096
        log.roll()
        assert first.stat().st_size == size
        active = log.segments.active.log.path
        assert active.stat().st_size == 4096
        log.append_as_leader(batch(), 0)
        assert offsets(log) == [0, 1]
        log.close()
        assert active.stat().st_size == size

    def test_log_roll_after_log_handler_closed(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLogRollAfterLogHandlerClosed."""
        log = open_log(tmp_path)
        log.close_handlers()
        with pytest.raises(LogOfflineError, match="closed"):
            log.roll(1)

    def test_flushing_empty_active_segments(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testFlushingEmptyActiveSegments: a clean end needs the last segment's files, before that nobody does."""
        log = open_log(tmp_path)
        log.append_as_leader(batch(), 0)
        log.roll()
        assert len(list(log.directory.glob("*.log"))) == 2
        assert len(list(log.directory.glob("*.index"))) == 1
        log.flush()
        assert len(list(log.directory.glob("*.index"))) == 1
        log.flush(force_active=True)
        assert len(list(log.directory.glob("*.index"))) == 2
        assert log.recovery_point == 1

    def test_producer_snapshot_after_segment_roll_on_append(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testProducerSnapshotAfterSegmentRollOnAppend: at the base of each segment but the first."""
        log = open_log(tmp_path, segment_bytes=len(batch()) + 10)
        for _ in range(4):
            log.append_as_leader(batch(), 0)
        assert bases(log) == [0, 1, 2, 3]
        assert snapshots(log.directory) == [1, 2, 3]
        log.close()
        assert snapshots(log.directory) == [1, 2, 3, 4]


class TestFlush:
    def test_by_number_of_records(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, flush_messages=3)
        log.append_as_leader(batch(count=2), 0)
        assert log.recovery_point == 0
        log.append_as_leader(batch(), 0)
        assert (log.recovery_point, log.local.unflushed_messages) == (3, 0)

    def test_up_to(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        log = open_log(tmp_path, clock, segment_bytes=100)
        for _ in range(3):
            log.append_as_leader(batch(), 0)
        clock.advance(5)
        log.flush(up_to=2)
        assert (log.recovery_point, log.local.last_flush_ms) == (2, NOW_MS + 5)
        log.flush(up_to=1)
        assert log.recovery_point == 2


class TestStatistics:
    def test_segments_rolled_by_time_and_of_one_batch_are_counted(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, segment_ms=1000, segment_bytes=4 * len(batch()))
        for later_ms in (0, 5000, 10_000, 10_500, 10_600, 10_700, 10_800):
            log.append_as_leader(batch(0, NOW_MS + later_ms), 0)
        assert bases(log) == [0, 1, 2, 6]
        assert (log.statistics.rolled_by_time, log.statistics.one_batch_segments) == (2, 2)
        log.roll()
        assert (log.statistics.rolled_by_time, log.statistics.one_batch_segments) == (2, 3)

    def test_a_limit_above_segment_ms_is_told_once_for_each_topic(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        def told() -> int:
            return sum("more than segment.ms" in record.getMessage() for record in caplog.records)

        with caplog.at_level(logging.WARNING):
            open_log(tmp_path, segment_ms=1000)  # no limit, as by default
            open_log(tmp_path, segment_ms=1000, message_timestamp_difference_max_ms=1000)
            open_log(tmp_path, segment_ms=1000, message_timestamp_difference_max_ms=1001, message_timestamp_type="LogAppendTime")
            assert told() == 0
            log = open_log(tmp_path, segment_ms=1000, message_timestamp_difference_max_ms=1001)
            assert told() == 1
            log.update_config(log.config)
            open_log(tmp_path, segment_ms=1000, message_timestamp_difference_max_ms=1001)
            assert told() == 1
            open_log(tmp_path, segment_ms=1000, message_timestamp_before_max_ms=2000)
            assert told() == 2
        roll_statistics._warned.clear()


def test_leader_epochs_are_forgotten_where_v1_comes(tmp_path: Path) -> None:
    """UnifiedLogTest.testLeaderEpochCacheClearedAfterDowngradeInAppendedMessages."""
    log: PartitionLog = open_log(tmp_path)
    log.append_as_leader(batch(), 5)
    assert log.leader_epochs.latest_epoch == 5
    log.append_as_follower(messages(1))
    assert log.leader_epochs.latest_epoch is None
    assert [header.magic for header in headers(log)] == [2, 1]
