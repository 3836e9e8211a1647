"""Truncation, and what goes with the records: segments, index entries, epochs, producers, snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.partition_logs import NOW_MS, bases, batch, end_txn, fetch, offsets, open_log, snapshots
from tidelog.errors import InvalidArgumentError
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.storage.partition.partition_log import PartitionLog

SIZE = len(batch())


def filled(directory: Path, count: int = 10, per_segment: int = 5, **properties: int) -> PartitionLog:
    log = open_log(directory, segment_bytes=per_segment * SIZE, **properties)
    for i in range(count):
        log.append_as_leader(batch(0, NOW_MS + i), 0)
    return log


def producer(producer_id: int, sequence: int, epoch: int = 0, *, transactional: bool = False) -> bytearray:
    return batch(producer=Producer(producer_id, epoch, sequence), transactional=transactional)


def test_truncate_to(tmp_path: Path) -> None:
    """UnifiedLogTest.testTruncateTo."""
    log = filled(tmp_path, 10, 10)
    assert (len(log.segments), log.log_end_offset) == (1, 10)
    size, last = log.size_bytes, log.log_end_offset
    for same in (last, last + 1):
        assert log.truncate_to(same) is False
        assert (log.log_end_offset, log.size_bytes) == (last, size)
    assert log.truncate_to(5) is True
    assert (log.log_end_offset, log.size_bytes, offsets(log)) == (5, size // 2, [0, 1, 2, 3, 4])
    assert log.truncate_to(0) is True
    assert (log.log_end_offset, log.size_bytes, len(log.segments)) == (0, 0, 1)
    for _ in range(10):
        log.append_as_leader(batch(), 0)
    assert (log.log_end_offset, log.size_bytes) == (10, size)
    log.truncate_fully_and_start_at(9)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, bases(log)) == (9, 9, 0, [9])
    log.append_as_leader(batch(count=3), 0)
    assert log.truncate_to(8) is True  # before the first segment
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (8, 8, [8])
    with pytest.raises(InvalidArgumentError):
        log.truncate_to(-1)


def test_over_several_segments(tmp_path: Path) -> None:
    """LocalLogTest.testTruncateTo."""
    log = filled(tmp_path, 18, 3)
    assert bases(log) == [0, 3, 6, 9, 12, 15]
    assert log.truncate_to(7)
    assert (bases(log), log.log_end_offset, offsets(log)) == ([0, 3, 6], 7, list(range(7)))
    assert sorted(path.name[:20] for path in log.directory.glob("*.log.deleted")) == [f"{base:020d}" for base in (9, 12, 15)]
    log.append_as_leader(batch(), 0)
    assert fetch(log, 6) == [6, 7]


def test_truncate_fully_and_start_at(tmp_path: Path) -> None:
    """LocalLogTest.testTruncateFullyAndStartAt."""
    log = filled(tmp_path, 14, 7)
    log.truncate_fully_and_start_at(10)
    assert (bases(log), log.log_start_offset, log.log_end_offset, log.high_watermark) == ([10], 10, 10, 10)
    assert log.recovery_point <= 10
    log.truncate_fully_and_start_at(10)  # on the base of the segment that is there
    assert bases(log) == [10]
    log.append_as_leader(batch(), 0)
    assert offsets(log) == [10]


def test_truncate_fully_and_start(tmp_path: Path) -> None:
    """UnifiedLogTest.testTruncateFullyAndStart: producers and open transactions are forgotten; a log start of one's own."""
    log = open_log(tmp_path)
    log.append_as_leader(producer(17, 10, transactional=True), 0)
    log.append_as_leader(batch(), 0)
    log.update_high_watermark(2)
    log.maybe_increment_log_start_offset(1)
    assert (log.watermarks.first_unstable_offset, log.log_start_offset, log.log_end_offset) == (1, 1, 2)
    log.truncate_fully_and_start_at(2, 1)
    assert (log.watermarks.first_unstable_offset, log.log_start_offset, log.log_end_offset) == (None, 1, 2)
    assert not log.producer_state.active_producers
    assert fetch(log, 2) == []


def test_truncate_below_first_unstable_offset(tmp_path: Path) -> None:
    """UnifiedLogTest.testTruncateBelowFirstUnstableOffset."""
    log = open_log(tmp_path)
    log.append_as_leader(batch(), 0)
    log.append_as_leader(producer(15, 10, transactional=True), 0)
    assert log.watermarks.first_unstable_offset == 1
    log.truncate_to(0)
    log.append_as_leader(batch(), 0)
    assert (log.watermarks.first_unstable_offset, log.log_end_offset) == (None, 1)
    assert not log.producer_state.active_producers


def test_truncate_fully_and_start_below_first_unstable_offset(tmp_path: Path) -> None:
    """UnifiedLogTest.testTruncateFullyAndStartBelowFirstUnstableOffset."""
    log = open_log(tmp_path)
    log.append_as_leader(batch(), 0)
    log.append_as_leader(producer(15, 10, transactional=True), 0)
    assert log.watermarks.first_unstable_offset == 1
    log.truncate_fully_and_start_at(0)
    log.append_as_leader(batch(), 0)
    assert log.watermarks.first_unstable_offset is None


def test_index_resizing_at_truncation(tmp_path: Path) -> None:
    """UnifiedLogTest.testIndexResizingAtTruncation: a rolled segment has no room, one that is active again has all of it."""
    log = open_log(tmp_path, segment_bytes=10 * SIZE, index_interval_bytes=SIZE - 1, segment_index_bytes=1000)
    for i in range(10):
        log.append_as_leader(batch(0, NOW_MS + i), 0)
    assert len(log.segments) == 1
    log.append_as_leader(batch(0, NOW_MS + 20), 0)
    first = log.segments.values()[0]
    assert first.offset_index.max_entries == first.offset_index.entries == 9
    assert first.time_index.max_entries == first.time_index.entries == 9
    log.truncate_to(0)
    active = log.segments.active
    assert (active.offset_index.max_entries, active.time_index.max_entries) == (1000 // 8, 1000 // 12)
    for i in range(10):
        log.append_as_leader(batch(0, NOW_MS + i), 0)
    assert len(log.segments) == 1


def test_roll_segment_after_truncation_of_the_active_one(tmp_path: Path) -> None:
    log = filled(tmp_path, 12, 5)
    log.truncate_to(10)  # the base of the third: it stays, empty
    assert (bases(log), log.log_end_offset) == ([0, 5, 10], 10)
    log.roll()
    assert bases(log) == [0, 5, 10]
    log.truncate_to(5)
    assert (bases(log), log.log_end_offset, log.segments.active.size_bytes) == ([0, 5], 5, 0)


def test_truncation_inside_a_batch_takes_all_of_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        log.append_as_leader(batch(count=4), 0)
    assert log.truncate_to(6)
    # The log end is what was asked for; the batch that held it is gone whole.
    assert (log.log_end_offset, offsets(log)) == (6, [0, 1, 2, 3])
    log.append_as_follower(batch(6, count=2))
    assert offsets(log) == [0, 1, 2, 3, 6, 7]


class TestEpochs:
    def test_should_truncate_leader_epoch_checkpoint_file_when_truncating_log(self, tmp_path: Path) -> None:
        """UnifiedLogTest.shouldTruncateLeaderEpochCheckpointFileWhenTruncatingLog."""
        log = open_log(tmp_path, segment_bytes=10 * SIZE)
        for start, epoch in ((0, 0), (10, 1), (11, 2)):
            log.maybe_assign_epoch_start_offset(epoch, start)
            for _ in range({0: 10, 10: 1, 11: 5}[start]):
                log.append_as_leader(batch(), epoch)
        for target, left in ((12, 3), (11, 2), (10, 1), (0, 0)):
            log.truncate_to(target)
            assert len(log.leader_epochs.entries) == left
            assert (log.directory / "leader-epoch-checkpoint").read_text().splitlines()[1] == str(left)

    def test_truncate_to_end_offset_clears_epoch_cache(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testTruncateToEndOffsetClearsEpochCache: an epoch that begins at the log end goes."""
        for target in (10, 11):
            (tmp_path / str(target)).mkdir()
            log = filled(tmp_path / str(target))
            log.maybe_assign_epoch_start_offset(5, 10)
            log.truncate_to(target)
            assert log.leader_epochs.latest_epoch == 0

    def test_end_offset_for_epoch(self, tmp_path: Path) -> None:
        """OffsetsForLeaderEpochTest.shouldGetEpochsFromReplica, as far as the log answers it."""
        log = open_log(tmp_path)
        assert log.end_offset_for_epoch(5) is None
        for epoch in (5, 5, 7):
            log.append_as_leader(batch(), epoch)
        assert [log.end_offset_for_epoch(epoch) for epoch in (4, 5, 6, 7, 8)] == [(4, 0), (5, 2), (5, 2), (7, 3), None]


class TestProducers:
    def test_producer_id_map_truncate_to(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testProducerIdMapTruncateTo: the newest snapshot follows the log's end."""
        log = open_log(tmp_path)
        latest = []
        for _ in range(2):
            log.append_as_leader(batch(), 0)
            log.producer_state.take_snapshot()
        log.append_as_leader(batch(), 0)
        log.producer_state.take_snapshot()
        for target in (2, 1, 0):
            log.truncate_to(target)
            latest.append((log.producer_state.latest_snapshot_offset, log.producer_state.map_end_offset))
        assert latest == [(2, 2), (1, 1), (None, 0)]

    def test_producer_id_map_truncate_to_with_no_snapshots(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testProducerIdMapTruncateToWithNoSnapshots: what stays is read from the log."""
        log = open_log(tmp_path)
        log.append_as_leader(producer(1, 0), 0)
        log.append_as_leader(producer(1, 1), 0)
        for path in log.directory.glob("*.snapshot"):
            path.unlink()
        log.truncate_to(1)
        assert list(log.producer_state.active_producers) == [1]
        entry = log.producer_state.last_entry(1)
        assert entry is not None
        assert entry.last_sequence == 0
        assert log.append_as_leader(producer(1, 1), 0).first_offset == 1

    def test_producer_id_map_truncate_fully_and_start_at(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testProducerIdMapTruncateFullyAndStartAt."""
        log = open_log(tmp_path, segment_bytes=SIZE + 10)
        for _ in range(3):
            log.append_as_leader(batch(), 0)
        assert (len(log.segments), log.producer_state.latest_snapshot_offset) == (3, 2)
        log.truncate_fully_and_start_at(29)
        assert (len(log.segments), log.producer_state.latest_snapshot_offset, log.log_end_offset) == (1, None, 29)
        assert snapshots(log.directory) == []

    def test_a_transaction_that_is_cut_is_open_again(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append_as_leader(producer(3, 0, transactional=True), 0)
        end_txn(log, ControlType.ABORT, 3)
        log.update_high_watermark(2)
        assert (log.watermarks.first_unstable_offset, log.last_stable_offset) == (None, 2)
        assert len(log.local.collect_aborted_transactions(0, 5)) == 1
        log.truncate_to(1)
        assert (log.watermarks.first_unstable_offset, log.last_stable_offset) == (0, 0)
        assert log.local.collect_aborted_transactions(0, 5) == []
        end_txn(log, ControlType.COMMIT, 3)
        log.update_high_watermark(2)
        assert (log.last_stable_offset, log.local.collect_aborted_transactions(0, 5)) == (2, [])
