"""Which log is compacted, which part of it, and who may touch it (LogCleanerManagerTest)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.compacting import append, fill, producer
from tests.storage.partition_logs import NOW_MS, config
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.model import TopicPartition
from tidelog.records.builder import Producer, build_end_txn_marker
from tidelog.records.control import ControlType
from tidelog.records.validation import AppendOrigin
from tidelog.storage.compaction import cleaner_manager
from tidelog.storage.compaction.cleanable import LogToClean, cleanable_offsets, max_compaction_delay_ms
from tidelog.storage.compaction.cleaner_manager import CleanerManager, CleaningState
from tidelog.storage.loading.loader import load
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.scheduler import Scheduler

LAG_MS = 60 * 60 * 1000
POLICY_BOTH = "compact,delete"


class World:
    """A data folder with some logs, and their manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock(NOW_MS)
        self.scheduler = Scheduler(self.clock)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.manager = CleanerManager(directory, self.logs, self.clock)

    def log(self, name: str = "log", partition: int = 0, policy: str = "compact", **properties: int | str | bool) -> PartitionLog:
        key = TopicPartition(name, partition)
        folder = self.directory / f"{name}-{partition}"
        folder.mkdir()
        settings: dict[str, int | str | bool] = {
            "segment_bytes": 2048,
            "retention_ms": 1,
            "cleanup_policy": policy,
            "min_cleanable_dirty_ratio": "0.05",
        }
        self.logs[key] = load(
            folder,
            config(**{**settings, **properties}),
            self.clock,
            self.scheduler,
            had_clean_shutdown=True,
            recovery_point=0,
            log_start_offset=0,
        )
        return self.logs[key]

    def filthy(self, partitions: int = 3) -> list[TopicPartition]:
        """Logs with 20, 25, 30... batches, five in a segment."""
        for n in range(partitions):
            log = self.log("wishing-well", n)
            for i in range(20 + 5 * n):
                self.write(log)
                if i % 5 == 0:
                    log.roll()
            log.roll()
        return list(self.logs)

    def write(self, log: PartitionLog, records: int = 1) -> None:
        for _ in range(records):
            append(log, log.log_end_offset, log.log_end_offset, self.clock.now_ms())
        log.update_high_watermark(log.log_end_offset)

    def grab(self) -> LogToClean | None:
        return self.manager.grab_filthiest_compacted_log()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class TestChoice:
    def test_a_log_that_cannot_be_looked_at(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """LogCleanerManagerTest.testGrabFilthiestCompactedLogThrowsException: that log is uncleanable, the others go on."""
        keys = world.filthy(2)
        look: Callable[[PartitionLog, int, int], int] = max_compaction_delay_ms

        def broken(log: PartitionLog, first_dirty_offset: int, now_ms: int) -> int:
            if log.topic_partition == keys[1]:
                raise RuntimeError("Error!")
            return look(log, first_dirty_offset, now_ms)

        monkeypatch.setattr(cleaner_manager, "max_compaction_delay_ms", broken)
        found = world.grab()
        assert found is not None
        assert found.topic_partition == keys[0]
        assert world.manager.uncleanable_partitions == {keys[1]: "Error!"}

    def test_the_dirtiest(self, world: World) -> None:
        """LogCleanerManagerTest.testGrabFilthiestCompactedLogReturnsLogWithDirtiestRatio."""
        keys = world.filthy()
        for key in keys:
            world.manager.update_checkpoint(key, 20)
        found = world.grab()
        assert found is not None
        assert (found.topic_partition, found.log) == (keys[2], world.logs[keys[2]])

    def test_uncleanable_ones(self, world: World) -> None:
        """LogCleanerManagerTest.testGrabFilthiestCompactedLogIgnoresUncleanablePartitions."""
        keys = world.filthy()
        for key in keys:
            world.manager.update_checkpoint(key, 20)
        world.manager.mark_partition_uncleanable(keys[2], "damaged")
        found = world.grab()
        assert found is not None
        assert found.topic_partition == keys[1]
        del world.logs[keys[2]]
        assert world.manager.uncleanable_partitions == {}

    def test_those_in_progress(self, world: World) -> None:
        """LogCleanerManagerTest.testGrabFilthiestCompactedLogIgnoresInProgressPartitions."""
        keys = world.filthy()
        for key in keys:
            world.manager.update_checkpoint(key, 20)
        assert [one.topic_partition for one in (world.grab(), world.grab()) if one is not None] == [keys[2], keys[1]]

    def test_both(self, world: World) -> None:
        """LogCleanerManagerTest.testGrabFilthiestCompactedLogIgnoresBothInProgressPartitionsAndUncleanablePartitions."""
        keys = world.filthy()
        for key in keys:
            world.manager.update_checkpoint(key, 20)
        assert world.grab() is not None
        world.manager.mark_partition_uncleanable(keys[1], "damaged")
        assert world.grab() is None

    def test_an_offline_one(self, world: World) -> None:
        (key,) = world.filthy(1)
        world.logs[key].go_offline("write", OSError("disk gone"))
        assert world.grab() is None

    def test_checkpoint_above_the_log(self, world: World) -> None:
        """LogCleanerManagerTest.testDirtyOffsetResetIfLargerThanEndOffset."""
        (key,) = world.filthy(1)
        world.manager.update_checkpoint(key, 200)
        found = world.grab()
        assert found is not None
        assert found.first_dirty_offset == 0

    def test_checkpoint_below_the_log(self, world: World) -> None:
        """LogCleanerManagerTest.testDirtyOffsetResetIfSmallerThanStartOffset."""
        (key,) = world.filthy(1)
        world.logs[key].maybe_increment_log_start_offset(10)
        world.manager.update_checkpoint(key, 0)
        found = world.grab()
        assert found is not None
        assert found.first_dirty_offset == 10
        assert world.manager.checkpoints == {key: 10}

    def test_log_start_in_the_active_segment(self, world: World) -> None:
        """LogCleanerManagerTest.testLogStartOffsetLargerThanActiveSegmentBaseOffset."""
        log = world.log("foo")
        world.write(log, 9)
        assert len(log.segments) == 1
        log.maybe_increment_log_start_offset(2)
        world.manager.update_checkpoint(log.topic_partition, 0)
        assert world.grab() is None

    def test_checkpoint_in_the_active_segment(self, world: World) -> None:
        """LogCleanerManagerTest.testDirtyOffsetLargerThanActiveSegmentBaseOffset."""
        log = world.log("foo")
        world.write(log, 6)
        assert log.segments.base_offsets == [0]
        world.manager.update_checkpoint(log.topic_partition, 3)
        assert world.grab() is None

    def test_checkpoint_is_put_right_without_work(self, world: World) -> None:
        """LogCleanerManagerTest.testCheckpointUpdatedForInvalidOffsetNoCleaning."""
        (key,) = world.filthy(1)
        world.logs[key].maybe_increment_log_start_offset(20)
        world.manager.update_checkpoint(key, 15)
        assert world.grab() is None
        assert world.manager.checkpoints[key] == 20

    def test_checkpoint_is_put_right_of_another_log(self, world: World) -> None:
        """LogCleanerManagerTest.testCheckpointUpdatedForInvalidOffsetNotSelected."""
        keys = world.filthy(2)
        world.logs[keys[0]].maybe_increment_log_start_offset(15)
        world.manager.update_checkpoint(keys[0], 10)
        world.manager.update_checkpoint(keys[1], 5)
        found = world.grab()
        assert found is not None
        assert found.topic_partition == keys[1]
        assert world.manager.checkpoints[keys[0]] == 15

    def test_dirty_ratio(self, world: World) -> None:
        """min.cleanable.dirty.ratio is to be exceeded."""
        log = world.log(min_cleanable_dirty_ratio="0.5", segment_bytes=100)
        for _ in range(5):
            world.write(log)
        assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3, 4]
        world.manager.update_checkpoint(log.topic_partition, 2)
        assert world.grab() is None
        world.manager.update_checkpoint(log.topic_partition, 1)
        found = world.grab()
        assert found is not None
        assert found.cleanable_ratio == 0.75

    def test_max_compaction_lag(self, world: World) -> None:
        """KIP-354: what waits too long is compacted, however little it is."""
        log = world.log(min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms=LAG_MS)
        world.write(log)
        log.roll()
        world.clock.advance(LAG_MS)
        assert max_compaction_delay_ms(log, 0, world.clock.now_ms()) == 0
        assert world.grab() is None
        world.clock.advance(1)
        assert max_compaction_delay_ms(log, 0, world.clock.now_ms()) == 1
        found = world.grab()
        assert found is not None
        assert found.needs_compaction_now

    def test_retried_later(self, world: World) -> None:
        (key,) = world.filthy(1)
        assert world.grab() is not None
        world.manager.give_up_cleaning(key, retry_after_ms=1000)
        assert world.grab() is None
        world.clock.advance(1000)
        assert world.grab() is not None


class TestDeletion:
    def test_deleted_only(self, world: World) -> None:
        """LogCleanerManagerTest.testLogsWithSegmentsToDeleteShouldNotConsiderCleanupPolicyDeleteLogs."""
        world.log(policy="delete")
        assert world.manager.deletable_logs() == []

    @pytest.mark.parametrize("policy", [POLICY_BOTH, "compact"])
    def test_compacted(self, world: World, policy: str) -> None:
        """LogCleanerManagerTest.testLogsWithSegmentsToDeleteShouldConsiderCleanupPolicyCompact{,Delete}Logs."""
        log = world.log(policy=policy)
        assert world.manager.deletable_logs() == [log]
        assert world.manager.deletable_logs() == []

    def test_uncleanable(self, world: World) -> None:
        """LogCleanerManagerTest.testLogsWithSegmentsToDeleteShouldNotConsiderUncleanablePartitions."""
        log = world.log()
        world.manager.mark_partition_uncleanable(log.topic_partition, "damaged")
        assert world.manager.deletable_logs() == []

    def test_policy_changes_meanwhile(self, world: World) -> None:
        """LogCleanerManagerTest.testLogsUnderCleanupIneligibleForCompaction."""
        log = world.log(policy="delete")
        world.write(log)
        log.roll()
        world.write(log)
        world.manager.abort_and_pause_cleaning(log.topic_partition)
        log.update_config(config(cleanup_policy="compact", min_cleanable_dirty_ratio="0.0"))
        assert world.grab() is None
        world.manager.resume_cleaning([log.topic_partition])
        assert world.grab() is not None


class TestCheckpoint:
    def test_added(self, world: World) -> None:
        """LogCleanerManagerTest.testUpdateCheckpointsShouldAddOffsetToPartition."""
        key = world.log().topic_partition
        world.manager.update_checkpoint(key, 999)
        assert world.manager.checkpoints == {key: 999}
        assert (world.directory / "cleaner-offset-checkpoint").read_text() == "0\n1\nlog 0 999\n"
        assert CleanerManager(world.directory, world.logs, world.clock).checkpoints == {key: 999}

    def test_removed(self, world: World) -> None:
        """LogCleanerManagerTest.testUpdateCheckpointsShouldRemovePartitionData."""
        key = world.log().topic_partition
        world.manager.update_checkpoint(key, 999)
        world.manager.remove_checkpoint(key)
        assert world.manager.checkpoints == {}
        assert (world.directory / "cleaner-offset-checkpoint").read_text() == "0\n0\n"

    def test_logs_that_are_gone(self, world: World) -> None:
        key, other = world.log().topic_partition, world.log("other").topic_partition
        world.manager.update_checkpoint(key, 1)
        del world.logs[key]
        world.manager.update_checkpoint(other, 2)
        assert world.manager.checkpoints == {other: 2}

    def test_truncated(self, world: World) -> None:
        """LogCleanerManagerTest.testMaybeTruncateCheckpointShouldTruncateData."""
        key = world.log().topic_partition
        world.manager.update_checkpoint(key, 999)
        world.manager.maybe_truncate_checkpoint(key, 1000)
        assert world.manager.checkpoints == {key: 999}
        world.manager.maybe_truncate_checkpoint(key, 1)
        assert world.manager.checkpoints == {key: 1}

    @pytest.mark.parametrize("text", ["9\n0\n", "nonsense", "0\n5\n"])
    def test_damaged(self, world: World, text: str) -> None:
        """All of every log is dirty then."""
        (world.directory / "cleaner-offset-checkpoint").write_text(text)
        assert CleanerManager(world.directory, world.logs, world.clock).checkpoints == {}

    def test_cannot_be_written(self, world: World) -> None:
        """It counts all the same; the next start does some work again."""
        key = world.log().topic_partition
        (world.directory / "cleaner-offset-checkpoint").mkdir()
        world.manager.update_checkpoint(key, 7)
        assert world.manager.checkpoints == {key: 7}


class TestStates:
    def test_truncation_meanwhile(self, world: World) -> None:
        """LogCleanerManagerTest.testConcurrentLogCleanupAndLogTruncation."""
        log = world.log(policy="delete")
        world.manager.abort_and_pause_cleaning(log.topic_partition)
        world.manager.abort_and_pause_cleaning(log.topic_partition)
        world.manager.resume_cleaning([log.topic_partition])
        assert world.manager.state(log.topic_partition) is CleaningState.PAUSED
        world.manager.resume_cleaning([log.topic_partition])
        assert world.manager.state(log.topic_partition) is None

    def test_deletion_meanwhile(self, world: World) -> None:
        """LogCleanerManagerTest.testConcurrentLogCleanupAndTopicDeletion."""
        log = world.log(policy="delete")
        world.manager.abort_and_pause_cleaning(log.topic_partition)
        world.manager.abort_cleaning(log.topic_partition)
        world.manager.resume_cleaning([log.topic_partition])
        assert world.manager.state(log.topic_partition) is None

    def test_done_cleaning(self, world: World) -> None:
        """LogCleanerManagerTest.testDoneCleaning."""
        (key,) = world.filthy(1)
        with pytest.raises(InvalidArgumentError):
            world.manager.done_cleaning(key, 1)
        world.manager.abort_and_pause_cleaning(key)
        with pytest.raises(InvalidArgumentError, match="paused"):
            world.manager.done_cleaning(key, 1)
        world.manager.resume_cleaning([key])
        assert world.grab() is not None
        world.manager.done_cleaning(key, 1)
        assert world.manager.state(key) is None
        assert world.manager.checkpoints == {key: 1}

    def test_done_deleting(self, world: World) -> None:
        """LogCleanerManagerTest.testDoneDeleting."""
        key = world.log(policy=POLICY_BOTH).topic_partition
        with pytest.raises(InvalidArgumentError):
            world.manager.done_deleting([key])
        world.manager.abort_and_pause_cleaning(key)
        with pytest.raises(InvalidArgumentError):
            world.manager.done_deleting([key])
        world.manager.resume_cleaning([key])
        assert world.manager.deletable_logs()
        world.manager.done_deleting([key])
        assert world.manager.state(key) is None

    def test_abort(self, world: World) -> None:
        """A pass that is in progress ends when somebody needs the log; it stays away until as many resumes as pauses."""
        (key,) = world.filthy(1)
        ended = []
        assert world.grab() is not None
        world.manager.on_abort(key, lambda: ended.append(key))
        world.manager.abort_and_pause_cleaning(key)
        assert ended == [key]
        world.manager.abort_and_pause_cleaning(key)
        assert ended == [key]
        assert world.grab() is None
        world.manager.resume_cleaning([key])
        assert world.grab() is None
        world.manager.resume_cleaning([key])
        assert world.grab() is not None
        with pytest.raises(InvalidArgumentError):
            world.manager.resume_cleaning([key])


class TestCleanableOffsets:
    """What min.compaction.lag.ms, transactions and the active segment leave to be compacted."""

    def log(self, world: World, **properties: int | str | bool) -> PartitionLog:
        return world.log(segment_bytes=1024, **properties)

    def test_stable_offset(self, world: World) -> None:
        """LogCleanerManagerTest.testCleanableOffsetsForNone."""
        log = self.log(world)
        fill(log, 8)
        log.update_high_watermark(50)
        found = cleanable_offsets(log, 0, NOW_MS)
        assert log.high_watermark == log.last_stable_offset
        assert (found.first_dirty_offset, found.first_uncleanable_dirty_offset) == (0, log.last_stable_offset)
        chosen = LogToClean.of(log, 0, found.first_uncleanable_dirty_offset)
        assert chosen.first_uncleanable_offset <= 50, "the segment that holds it is left alone"

    def test_active_segment(self, world: World) -> None:
        """LogCleanerManagerTest.testCleanableOffsetsActiveSegment."""
        log = self.log(world)
        fill(log, 8)
        log.update_high_watermark(log.log_end_offset)
        found = cleanable_offsets(log, 0, NOW_MS)
        assert found == (0, log.segments.active.base_offset, False)

    def test_time(self, world: World) -> None:
        """LogCleanerManagerTest.testCleanableOffsetsForTime."""
        log = self.log(world, min_compaction_lag_ms=LAG_MS)
        while len(log.segments) < 4:
            world.write(log)
        active = log.segments.active.base_offset
        world.clock.advance(LAG_MS + 1)
        while len(log.segments) < 8:
            world.write(log)
        assert cleanable_offsets(log, 0, world.clock.now_ms()) == (0, active, False)

    def test_short_time(self, world: World) -> None:
        """LogCleanerManagerTest.testCleanableOffsetsForShortTime."""
        log = self.log(world, min_compaction_lag_ms=LAG_MS)
        while len(log.segments) < 8:
            world.write(log)
        world.clock.advance(LAG_MS + 1)
        assert cleanable_offsets(log, 0, world.clock.now_ms()) == (0, log.segments.active.base_offset, False)

    def test_checkpoint_reset(self, world: World) -> None:
        """LogCleanerManagerTest.testCleanableOffsetsNeedsCheckpointReset."""
        (key,) = world.filthy(1)
        log = world.logs[key]
        log.maybe_increment_log_start_offset(10)
        assert not cleanable_offsets(log, 15, NOW_MS).force_update_checkpoint
        log.maybe_increment_log_start_offset(20)
        assert cleanable_offsets(log, 15, NOW_MS).force_update_checkpoint
        assert cleanable_offsets(log, 25, NOW_MS).force_update_checkpoint

    def test_undecided_transaction(self, world: World) -> None:
        """LogCleanerManagerTest.testUndecidedTransactionalDataNotCleanable."""
        log = self.log(world, min_compaction_lag_ms=LAG_MS)
        write = producer(log, 15)
        write(1, 2)
        write(3)
        log.roll()
        log.update_high_watermark(3)
        world.clock.advance(LAG_MS + 1)
        assert cleanable_offsets(log, 0, world.clock.now_ms())[:2] == (0, 0)
        marker = build_end_txn_marker(0, world.clock.now_ms(), ControlType.ABORT, Producer(15, 0, -1), coordinator_epoch=15)
        log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
        log.roll()
        log.update_high_watermark(4)
        assert cleanable_offsets(log, 0, world.clock.now_ms())[:2] == (0, 3)
        world.clock.advance(LAG_MS + 1)
        assert cleanable_offsets(log, 0, world.clock.now_ms())[:2] == (0, 4)

    def test_log_to_clean(self, world: World) -> None:
        """LogCleanerTest.testLogToClean."""
        log = world.log(segment_bytes=100)
        for _ in range(6):
            append(log, 1, bytes(25))
        active = log.segments.active
        assert len(log.segments) == 6
        chosen = LogToClean.of(log, active.base_offset, active.base_offset)
        assert chosen.total_bytes == log.size_bytes - active.size_bytes

    def test_log_to_clean_with_uncleanable_section(self, world: World) -> None:
        """LogCleanerTest.testLogToCleanWithUncleanableSection."""
        log = world.log(segment_bytes=100)
        for _ in range(6):
            append(log, 1, bytes(25))
        segments = list(log.segments)
        chosen = LogToClean.of(log, segments[2].base_offset, segments[4].base_offset)
        clean = sum(segment.size_bytes for segment in segments[:2])
        cleanable = sum(segment.size_bytes for segment in segments[2:4])
        assert (chosen.clean_bytes, chosen.cleanable_bytes, chosen.total_bytes) == (clean, cleanable, clean + cleanable)
        assert chosen.cleanable_ratio == cleanable / (clean + cleanable)
        assert chosen.first_uncleanable_offset == segments[4].base_offset


def test_unused(world: World) -> None:
    """Nothing to do, nothing written."""
    assert world.grab() is None
    assert not list(world.directory.iterdir())
