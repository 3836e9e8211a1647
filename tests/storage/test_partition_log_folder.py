"""A log's folder: renamed, closed, deleted; whose it is; and settings that change while the log is open."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.storage.partition_logs import NOW_MS, TOPIC_ID, bases, batch, config, headers, messages, offsets, open_log, snapshots
from tidelog.clock import ManualClock
from tidelog.errors import CorruptCheckpointError, InconsistentTopicIdError, LogOfflineError
from tidelog.formats.names import log_delete_dir_name
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.records.builder import Producer
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.partition_metadata_file import PartitionMetadataFile

OTHER_ID = uuid.UUID("00000000-0000-0000-0000-00000000002a")
SIZE = len(batch())


class TestRenaming:
    def renamed(self, directory: Path, log: PartitionLog) -> Path:
        target = directory / log_delete_dir_name("log", 0)
        log.rename_dir(target)
        assert log.directory == target
        assert not (directory / "log-0").exists()
        return target

    def test_renaming_dir_without_reinitialization(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testRenamingDirWithoutReinitialization, what is written goes to the new place."""
        log = open_log(tmp_path, segment_bytes=2 * SIZE, index_interval_bytes=0)
        for i in range(3):
            log.append_as_leader(batch(producer=Producer(1, 0, i)), 0)
        target = self.renamed(tmp_path, log)
        for i in range(3, 7):
            log.append_as_leader(batch(producer=Producer(1, 0, i)), i)
        assert offsets(log) == list(range(7))
        log.update_high_watermark(7)
        log.maybe_increment_log_start_offset(5)
        assert log.delete_old_segments() == 2
        log.flush(force_active=True)
        log.close()
        assert list(tmp_path.iterdir()) == [target]
        assert snapshots(target) == [4, 6, 7]

    def test_write_leader_epoch_checkpoint_after_directory_rename(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testWriteLeaderEpochCheckpointAfterDirectoryRename."""
        log = open_log(tmp_path)
        log.append_as_leader(batch(), 5)
        target = self.renamed(tmp_path, log)
        log.append_as_leader(batch(), 10)
        assert log.leader_epochs.latest_epoch == 10
        assert (target / "leader-epoch-checkpoint").read_text() == "0\n2\n5 0\n10 1\n"

    def test_topic_id_transfers_after_directory_rename(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testTopicIdTransfersAfterDirectoryRename."""
        log = open_log(tmp_path)
        log.append_as_leader(batch(), 0)
        target = self.renamed(tmp_path, log)
        assert (read_topic_id(target / "partition.metadata"), log.topic_id) == (TOPIC_ID, TOPIC_ID)

    def test_topic_id_flushes_before_directory_rename(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testTopicIdFlushesBeforeDirectoryRename."""
        log = open_log(tmp_path)
        assert not (log.directory / "partition.metadata").exists()
        assert read_topic_id(self.renamed(tmp_path, log) / "partition.metadata") == TOPIC_ID

    def test_to_a_name_that_is_taken(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        (tmp_path / "other-0").mkdir()
        (tmp_path / "other-0" / "file").touch()
        with pytest.raises(LogOfflineError, match="rename"):
            log.rename_dir(tmp_path / "other-0")


class TestDeletion:
    def test_log_deletion_after_close(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLogDeletionAfterClose."""
        log = open_log(tmp_path)
        log.append_as_leader(batch(), 0)
        log.roll()
        log.close()
        log.delete()
        assert not (tmp_path / "log-0").exists()
        assert len(log.segments) == 0

    def test_deleted_while_open(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append_as_leader(batch(), 0)
        log.roll()
        log.delete()
        assert not (tmp_path / "log-0").exists()
        log.scheduler.tick()
        with pytest.raises(LogOfflineError):
            log.append_as_leader(batch(), 0)


class TestTopicId:
    def test_log_fails_when_inconsistent_topic_id_set(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLogFailsWhenInconsistentTopicIdSet."""
        open_log(tmp_path).close()
        with pytest.raises(InconsistentTopicIdError):
            open_log(tmp_path, topic_id=OTHER_ID)

    def test_assigned_later(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, topic_id=None)
        log.append_as_leader(batch(), 0)
        assert not (log.directory / "partition.metadata").exists()
        log.assign_topic_id(TOPIC_ID)
        log.assign_topic_id(TOPIC_ID)
        with pytest.raises(InconsistentTopicIdError):
            log.assign_topic_id(OTHER_ID)
        log.append_as_leader(batch(), 0)
        assert read_topic_id(log.directory / "partition.metadata") == TOPIC_ID

    def test_set_record_with_different_topic_id(self, tmp_path: Path) -> None:
        """PartitionMetadataFileTest.testSetRecordWith{SameTopicId,DifferentTopicId}, testRead."""
        file = PartitionMetadataFile(tmp_path)
        file.record(TOPIC_ID)
        file.record(TOPIC_ID)
        with pytest.raises(InconsistentTopicIdError):
            file.record(OTHER_ID)
        file.maybe_flush()
        assert PartitionMetadataFile(tmp_path).topic_id == TOPIC_ID
        assert not PartitionMetadataFile(tmp_path).is_dirty

    def test_maybe_flush_with_no_topic_id_present(self, tmp_path: Path) -> None:
        """PartitionMetadataFileTest.testMaybeFlushWithNoTopicIdPresent: nothing to write; no file at all here."""
        PartitionMetadataFile(tmp_path).maybe_flush()
        assert not list(tmp_path.iterdir())

    def test_a_file_that_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "partition.metadata").write_text("nonsense")
        with pytest.raises(CorruptCheckpointError):
            PartitionMetadataFile(tmp_path)


class TestSettings:
    def test_update_config(self, tmp_path: Path) -> None:
        """LocalLogTest's changes of configuration: from the next append on."""
        log = open_log(tmp_path)
        for _ in range(3):
            log.append_as_leader(batch(), 0)
        log.update_config(config(segment_bytes=3 * SIZE, message_timestamp_type="LogAppendTime"))
        assert log.append_as_leader(batch(timestamp=5), 0).log_append_time == NOW_MS
        assert bases(log) == [0, 3]

    def test_leader_epoch_cache_cleared_after_dynamic_message_format_downgrade(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLeaderEpochCacheClearedAfterDynamicMessageFormatDowngrade."""
        log = open_log(tmp_path)
        log.append_as_leader(batch(), 5)
        assert log.leader_epochs.latest_epoch == 5
        log.update_config(config(message_format_version="0.10.2"))
        assert log.leader_epochs.latest_epoch is None
        assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n0\n"
        log.append_as_leader(messages(), 6)
        log.maybe_assign_epoch_start_offset(7, 2)
        assert log.leader_epochs.latest_epoch is None

    def test_leader_epoch_cache_created_after_message_format_upgrade(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLeaderEpochCacheCreatedAfterMessageFormatUpgrade."""
        log = open_log(tmp_path, message_format_version="0.10.2")
        log.append_as_leader(messages(), 5)
        assert log.leader_epochs.is_empty
        log.update_config(config())
        log.append_as_leader(batch(), 5)
        assert log.leader_epochs.latest_epoch == 5
        assert [header.magic for header in headers(log)] == [1, 2]

    def test_last_flush(self, tmp_path: Path) -> None:
        """LocalLogTest.testLogFlush."""
        clock = ManualClock(NOW_MS)
        log = open_log(tmp_path, clock)
        assert (log.recovery_point, log.local.last_flush_ms) == (0, NOW_MS)
        log.append_as_leader(batch(), 0)
        clock.advance(500)
        log.flush()
        assert (log.recovery_point, log.local.last_flush_ms, log.local.unflushed_messages) == (1, NOW_MS + 500, 0)
        assert log.directory.name == "log-0"
