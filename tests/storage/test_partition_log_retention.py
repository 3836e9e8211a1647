"""What retention lets go, and when: by time, by size, by the log start; on an injected clock."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.storage.partition_logs import NOW_MS, bases, batch, config, offsets, open_log, snapshots
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError, OffsetOutOfRangeError
from tidelog.model import NO_TIMESTAMP
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.retention import Reason, SegmentFacts, due

SIZE = len(batch())
DAY_MS = 86_400_000


def filled(
    directory: Path, count: int = 15, *, timestamp: int = NOW_MS, clock: ManualClock | None = None, **properties: int | str
) -> PartitionLog:
    """Segments of five batches, all of them below the high watermark."""
    log = open_log(directory, clock, **{"segment_bytes": 5 * SIZE, **properties})
    for _ in range(count):
        log.append_as_leader(batch(timestamp=timestamp), 0)
    log.update_high_watermark(log.log_end_offset)
    return log


class TestBySize:
    def test_should_delete_size_based_segments(self, tmp_path: Path) -> None:
        """UnifiedLogTest.shouldDeleteSizeBasedSegments: what stays is at least retention.bytes."""
        log = filled(tmp_path, retention_bytes=10 * SIZE)
        assert (log.delete_old_segments(), len(log.segments)) == (1, 2)

    def test_should_not_delete_size_based_segments_when_under_retention_size(self, tmp_path: Path) -> None:
        """UnifiedLogTest.shouldNotDeleteSizeBasedSegmentsWhenUnderRetentionSize."""
        log = filled(tmp_path, retention_bytes=15 * SIZE)
        assert (log.delete_old_segments(), len(log.segments)) == (0, 3)
        log.update_config(config(segment_bytes=5 * SIZE, retention_bytes=10 * SIZE + 1))
        assert (log.delete_old_segments(), len(log.segments)) == (0, 3)

    def test_nothing_at_all_is_kept(self, tmp_path: Path) -> None:
        log = filled(tmp_path, retention_bytes=0)
        assert log.delete_old_segments() == 3
        assert (bases(log), log.log_start_offset, log.log_end_offset) == ([15], 15, 15)


class TestByTime:
    def test_should_delete_time_based_segments_ready_to_be_deleted(self, tmp_path: Path) -> None:
        """UnifiedLogTest.shouldDeleteTimeBasedSegmentsReadyToBeDeleted."""
        log = filled(tmp_path, timestamp=10, retention_ms=10_000)
        assert (log.delete_old_segments(), len(log.segments)) == (3, 1)

    def test_should_not_delete_time_based_segments_when_none_ready_to_be_deleted(self, tmp_path: Path) -> None:
        """UnifiedLogTest.shouldNotDeleteTimeBasedSegmentsWhenNoneReadyToBeDeleted; older than, not as old as."""
        clock = ManualClock(NOW_MS)
        log = filled(tmp_path, clock=clock, retention_ms=7 * DAY_MS)
        for wait_ms, deleted in ((0, 0), (7 * DAY_MS, 0), (1, 3)):
            clock.advance(wait_ms)
            assert log.delete_old_segments() == deleted
        assert bases(log) == [15]

    def test_should_not_delete_segments_when_policy_does_not_include_delete(self, tmp_path: Path) -> None:
        """UnifiedLogTest.shouldNotDeleteSegmentsWhenPolicyDoesNotIncludeDelete."""
        log = filled(tmp_path, timestamp=10, retention_ms=10_000, cleanup_policy="compact")
        assert (log.delete_old_segments(), len(log.segments)) == (0, 3)

    def test_should_delete_segments_when_cleanup_policy_is_compact_and_delete(self, tmp_path: Path) -> None:
        """UnifiedLogTest.shouldDeleteSegmentsReadyToBeDeletedWhenCleanupPolicyIsCompactAndDelete."""
        log = filled(tmp_path, timestamp=10, retention_ms=10_000, cleanup_policy="compact,delete")
        assert (log.delete_old_segments(), len(log.segments)) == (3, 1)

    def test_retention_is_off(self, tmp_path: Path) -> None:
        assert filled(tmp_path, timestamp=10, retention_ms=-1).delete_old_segments() == 0

    def test_a_record_of_the_future_keeps_all_behind_it(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        log = filled(tmp_path, 5, clock=clock, retention_ms=1000)
        log.append_as_leader(batch(timestamp=NOW_MS + DAY_MS), 0)
        for _ in range(9):
            log.append_as_leader(batch(), 0)
        log.update_high_watermark(15)
        clock.advance(5000)
        assert (log.delete_old_segments(), bases(log)) == (1, [5, 10])
        clock.advance(DAY_MS)
        assert (log.delete_old_segments(), bases(log)) == (2, [15])

    def test_without_timestamps_the_files_time_counts(self, tmp_path: Path) -> None:
        log = filled(tmp_path, timestamp=NO_TIMESTAMP, retention_ms=1000)
        for segment, age_ms in zip(log.segments, (2000, 1000, 2000), strict=True):
            os.utime(segment.log.path, ns=(0, (NOW_MS - age_ms) * 1_000_000))
        assert (log.delete_old_segments(), bases(log)) == (1, [5, 10])


class TestTheIndexIsNotBelieved:
    """Before retention deletes on an index's word, the batches after the index's last entry are looked at."""

    def lost_tail(self, directory: Path, clock: ManualClock, entries: int) -> PartitionLog:
        """A log whose first segment ends with its latest record, opened with an index that has lost its end."""
        log = open_log(directory, clock, segment_bytes=5 * SIZE, index_interval_bytes=1, retention_ms=1000)
        for later_ms in (0, 10, 20, 30, DAY_MS):
            log.append_as_leader(batch(timestamp=NOW_MS + later_ms), 0)
        log.append_as_leader(batch(), 0)
        log.close()
        path = log.directory / f"{0:020d}.timeindex"
        assert path.stat().st_size == 4 * 12
        path.write_bytes(path.read_bytes()[: entries * 12])
        log = open_log(directory, clock, segment_bytes=5 * SIZE, index_interval_bytes=1, retention_ms=1000)
        log.update_high_watermark(log.log_end_offset)
        return log

    @pytest.mark.parametrize("entries", [0, 1, 3])
    def test_a_larger_timestamp_behind_its_end_wins(self, entries: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        clock = ManualClock(NOW_MS)
        log = self.lost_tail(tmp_path, clock, entries)
        first = log.segments.first
        assert first is not None
        os.utime(first.log.path, ns=(0, 0))  # Kafka would take this where the index is empty
        clock.advance(DAY_MS + 1000)
        with caplog.at_level(logging.WARNING):
            assert (log.delete_old_segments(), bases(log)) == (0, [0, 5])
        assert first.largest_timestamp == NOW_MS + DAY_MS
        clock.advance(1)
        assert (log.delete_old_segments(), bases(log)) == (2, [6])

    def test_size_and_log_start_need_no_look(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = filled(tmp_path, retention_ms=-1, retention_bytes=5 * SIZE)
        for segment in log.segments:
            monkeypatch.setattr(segment, "check_largest_timestamp", None)
        assert log.delete_old_segments() == 2

    def test_damage_behind_the_index_is_told_and_the_index_believed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = ManualClock(NOW_MS)
        log = self.lost_tail(tmp_path, clock, 1)
        first = log.segments.first
        assert first is not None
        with first.log.path.open("r+b") as file:
            file.seek(3 * SIZE + 8)
            file.write(b"\0\0\0\1")
        clock.advance(5000)
        with caplog.at_level(logging.WARNING):
            assert log.delete_old_segments() >= 1
        assert "largest timestamp unchecked" in caplog.text


class TestHighWatermark:
    def test_delete_old_segments(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testDeleteOldSegments: whole segments below the high watermark, at last all but an empty one."""
        log = open_log(tmp_path, segment_bytes=5 * SIZE, retention_ms=999)
        for i in range(100):
            log.append_as_leader(batch(timestamp=NOW_MS - 1000), i // 50)
        before = len(log.segments)
        log.delete_old_segments()
        assert len(log.segments) == before
        for mark in range(25, 31):
            log.update_high_watermark(mark)
            log.delete_old_segments()
            assert log.log_start_offset <= mark
            for segment in log.segments:
                assert segment.read_next_offset() > mark
        log.update_high_watermark(log.log_end_offset)
        log.delete_old_segments()
        assert (len(log.segments), log.size_bytes) == (1, 0)
        assert log.leader_epochs.entries == ((1, 100),)
        for _ in range(5):
            log.append_as_leader(batch(timestamp=NOW_MS - 1000), 1)
        assert offsets(log) == list(range(100, 105))

    def test_cannot_delete_segments_at_or_above_high_watermark(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testCannotDeleteSegmentsAtOrAboveHighWatermark."""
        log = open_log(tmp_path, segment_bytes=5 * SIZE, retention_ms=999)
        for _ in range(100):
            log.append_as_leader(batch(timestamp=10), 0)
        for mark in range(101):
            log.update_high_watermark(mark)
            log.delete_old_segments()
            found = bases(log)
            assert found[0] <= mark
            assert all(base > mark for base in found[1:])
            assert log.log_start_offset <= mark

    def test_cannot_increment_log_start_offset_past_high_watermark(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testCannotIncrementLogStartOffsetPastHighWatermark."""
        log = filled(tmp_path, 100)
        log.update_high_watermark(25)
        with pytest.raises(OffsetOutOfRangeError):
            log.maybe_increment_log_start_offset(26)
        assert log.maybe_increment_log_start_offset(25)
        assert not log.maybe_increment_log_start_offset(24)

    def test_segment_deletion_with_high_watermark_initialization(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testSegmentDeletionWithHighWatermarkInitialization."""
        log = filled(tmp_path, 100, timestamp=10, retention_ms=-1)
        log.flush(force_active=True)
        log.close()
        log = open_log(tmp_path, segment_bytes=5 * SIZE, retention_ms=999)
        assert log.update_high_watermark(25) == 25
        assert log.delete_old_segments() == 5
        assert log.log_start_offset == 25

    def test_that_garbage_collecting_segments_doesnt_change_offset(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testThatGarbageCollectingSegmentsDoesntChangeOffset."""
        for count in (0, 1, 25):
            (tmp_path / str(count)).mkdir()
            log = filled(tmp_path / str(count), count, timestamp=10, retention_ms=0)
            segments, end = len(log.segments), log.log_end_offset
            deleted = log.delete_old_segments()
            assert log.log_end_offset == end
            assert deleted == (0 if count == 0 else segments)
            assert len(log.segments) == 1
            assert log.delete_old_segments() == 0
            assert log.append_as_leader(batch(), 0).first_offset == end


class TestLogStart:
    def test_log_deletion_after_delete_records(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLogDeletionAfterDeleteRecords."""
        log = filled(tmp_path, retention_ms=-1)
        for start, segments in ((1, 3), (6, 2), (15, 1)):
            assert log.delete_records(start) == start
            log.delete_old_segments()
            assert (len(log.segments), log.log_start_offset) == (segments, start)
        with pytest.raises(OffsetOutOfRangeError):
            log.read(14, 10)

    def test_delete_records(self, tmp_path: Path) -> None:
        log = filled(tmp_path)
        log.update_high_watermark(12)
        for refused in (13, -2):
            with pytest.raises(OffsetOutOfRangeError):
                log.delete_records(refused)
        assert [log.delete_records(offset) for offset in (7, 3, -1)] == [7, 7, 12]
        log.update_config(config(cleanup_policy="compact"))
        with pytest.raises(InvalidArgumentError):
            log.delete_records(13)

    def test_should_delete_start_offset_breached_segments_when_policy_does_not_include_delete(self, tmp_path: Path) -> None:
        """UnifiedLogTest.shouldDeleteStartOffsetBreachedSegmentsWhenPolicyDoesNotIncludeDelete."""
        log = filled(tmp_path, timestamp=10, retention_ms=10_000, cleanup_policy="compact")
        log.maybe_increment_log_start_offset(5)
        assert (log.delete_old_segments(), len(log.segments)) == (1, 2)

    def test_retention_idempotency(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testRetentionIdempotency: a segment below the log start does not hold back the old one behind it."""
        log = open_log(tmp_path, retention_ms=DAY_MS)
        log.append_as_leader(batch(timestamp=NOW_MS - 10), 0)
        log.roll()
        log.append_as_leader(batch(timestamp=NOW_MS - 2 * DAY_MS), 0)
        log.roll()
        log.append_as_leader(batch(), 0)
        log.update_high_watermark(3)
        log.maybe_increment_log_start_offset(1)
        assert (len(log.segments), log.delete_old_segments(), log.delete_old_segments()) == (3, 2, 0)

    def test_delete_snapshots_on_increment_log_start_offset(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testDeleteSnapshotsOnIncrementLogStartOffset, testLogStartOffsetMovementDeletesSnapshots."""
        log = filled(tmp_path)
        assert snapshots(log.directory) == [5, 10]
        log.maybe_increment_log_start_offset(11)
        log.delete_old_segments()
        assert (bases(log), snapshots(log.directory)) == ([10], [10])
        log.scheduler._clock.advance(60_000)  # type: ignore[attr-defined]
        log.scheduler.tick()
        assert not list(log.directory.glob("*.deleted"))

    def test_retention_deletes_producer_state_snapshots(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testRetentionDeletesProducerStateSnapshots: one is left, that of the log start."""
        log = open_log(tmp_path, segment_bytes=SIZE + 10, retention_bytes=0)
        for _ in range(3):
            log.append_as_leader(batch(), 0)
        log.update_high_watermark(3)
        assert snapshots(log.directory) == [1, 2]
        log.delete_old_segments()
        assert (log.log_start_offset, snapshots(log.directory)) == (3, [3])

    def test_a_producer_outlives_its_segment(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testProducerIdExpirationOnSegmentDeletion."""
        from tidelog.records.builder import Producer

        log = open_log(tmp_path, segment_bytes=SIZE + 10, retention_bytes=0)
        log.append_as_leader(batch(producer=Producer(1, 0, 0)), 0)
        for sequence in range(2):
            log.append_as_leader(batch(producer=Producer(2, 0, sequence)), 0)
        log.update_high_watermark(3)
        log.delete_old_segments()
        assert (len(log.segments), sorted(log.producer_state.active_producers)) == (1, [1, 2])


class TestEpochs:
    def three_epochs(self, directory: Path, starts: tuple[int, int, int]) -> PartitionLog:
        log = open_log(directory, segment_bytes=5 * SIZE, retention_bytes=10 * SIZE)
        for offset in range(15):
            log.append_as_leader(batch(), sum(start <= offset for start in starts) - 1)
        log.update_high_watermark(15)
        return log

    def test_should_truncate_leader_epochs_when_deleting_segments(self, tmp_path: Path) -> None:
        """UnifiedLogTest.shouldTruncateLeaderEpochsWhenDeletingSegments."""
        log = self.three_epochs(tmp_path, (0, 5, 10))
        log.delete_old_segments()
        assert log.leader_epochs.entries == ((1, 5), (2, 10))

    def test_should_update_offset_for_leader_epochs_when_deleting_segments(self, tmp_path: Path) -> None:
        """UnifiedLogTest.shouldUpdateOffsetForLeaderEpochsWhenDeletingSegments."""
        log = self.three_epochs(tmp_path, (0, 7, 10))
        log.delete_old_segments()
        assert log.leader_epochs.entries == ((0, 5), (1, 7), (2, 10))


class TestDeletionOfFiles:
    def test_async_delete(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testAsyncDelete: renamed at once, removed after file.delete.delay.ms."""
        clock = ManualClock(NOW_MS)
        log = open_log(
            tmp_path, clock, segment_bytes=5 * SIZE, index_interval_bytes=10_000, retention_ms=999, file_delete_delay_ms=1000
        )
        for _ in range(100):
            log.append_as_leader(batch(timestamp=NOW_MS - 1000), 0)
        log.update_high_watermark(log.log_end_offset)
        segments = log.segments.values()
        old = [path for segment in segments for path in segment.paths if path.exists()]
        log.delete_old_segments()
        assert len(log.segments) == 1
        assert not any(path.exists() for path in old if path.name[:20] != f"{100:020d}")
        renamed = list(log.directory.glob("*.deleted"))
        assert len(renamed) >= 3 * 20
        log.scheduler.tick()
        assert all(path.exists() for path in renamed)
        clock.advance(1001)
        log.scheduler.tick()
        assert not list(log.directory.glob("*.deleted"))

    def test_a_file_that_cannot_be_removed_does_not_end_the_log(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """UnifiedLogTest.testBackgroundDeletionWithIOException."""
        clock = ManualClock(NOW_MS)
        log = filled(tmp_path, clock=clock, retention_bytes=5 * SIZE)
        log.delete_old_segments()
        (gone,) = log.directory.glob(f"{0:020d}.log.deleted")
        gone.unlink()
        gone.mkdir()
        clock.advance(60_000)
        with caplog.at_level(logging.ERROR):
            log.scheduler.tick()
        assert "delete-file failed" in caplog.text
        assert not list(log.directory.glob(f"{5:020d}.*.deleted"))
        log.append_as_leader(batch(), 0)


class TestRules:
    """The rules alone, over made-up segments."""

    SEGMENTS = (
        SegmentFacts(0, 10, 100, False),
        SegmentFacts(10, 20, 100, False),
        SegmentFacts(20, 30, 100, False),
        SegmentFacts(30, 35, 50, True),
    )

    def reasons(self, *, mark: int = 35, start: int = 0, times: tuple[int, ...] = (1, 1, 1, 1), **properties: int | str) -> str:
        by_base = dict(zip((0, 10, 20, 30), times, strict=True))
        found = due(
            self.SEGMENTS,
            config(**{"retention_ms": -1, **properties}),
            now_ms=1000,
            high_watermark=mark,
            log_start_offset=start,
            largest_timestamp=by_base.__getitem__,
        )
        assert [one.facts for one in found] == list(self.SEGMENTS[: len(found)])
        return "".join(one.reason.name[0] for one in found)

    def test_deletable_segments_iteration(self) -> None:
        """UnifiedLogTest.testDeletableSegmentsIteration, testDeletableSegmentsFilter: the oldest first, up to one that stays."""
        assert self.reasons() == ""
        assert self.reasons(retention_ms=998) == "TTTT"
        assert self.reasons(retention_ms=999) == ""
        assert self.reasons(retention_ms=998, times=(1, 1, 2, 1)) == "TT"
        assert self.reasons(retention_ms=998, mark=29) == "TT"
        assert self.reasons(retention_ms=998, mark=34) == "TTT"

    def test_the_rules_come_one_after_the_other(self) -> None:
        assert self.reasons(start=10, retention_bytes=150, retention_ms=998, times=(1, 1, 1, 999)) == "LST"
        assert self.reasons(start=10, retention_bytes=150, retention_ms=998) == "LSTT"
        assert self.reasons(start=35) == "LLL"
        assert self.reasons(retention_bytes=0) == "SSSS"
        assert self.reasons(retention_bytes=250) == "S"
        assert self.reasons(retention_bytes=251) == ""
        assert self.reasons(start=20, retention_bytes=0, retention_ms=0, cleanup_policy="compact") == "LL"

    def test_an_empty_last_segment_stays(self) -> None:
        empty = [SegmentFacts(0, 10, 100, False), SegmentFacts(10, 10, 0, True)]
        found = due(
            empty, config(retention_ms=0), now_ms=1000, high_watermark=10, log_start_offset=10, largest_timestamp=lambda base: 0
        )
        assert [(one.facts.base_offset, one.reason) for one in found] == [(0, Reason.LOG_START)]
