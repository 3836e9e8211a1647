"""Producers in a log: duplicates, sequences, epochs, transactions, snapshots; what Kafka's own log tests establish."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tests.storage.partition_logs import NOW_MS, bases, batch, end_txn, headers, marker, offsets, open_log, snapshots
from tidelog.clock import ManualClock
from tidelog.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from tidelog.formats.producer_snapshot import read_snapshot
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2, build_empty_batch_v2
from tidelog.records.control import ControlType
from tidelog.records.records import Record
from tidelog.storage.partition.partition_log import PartitionLog

PID = 7
DAY_MS = 86_400_000


def sent(sequence: int, count: int = 1, *, producer_id: int = PID, epoch: int = 0, offset: int = 0, **options: bool) -> bytearray:
    return batch(offset, count=count, producer=Producer(producer_id, epoch, sequence), **options)  # type: ignore[arg-type]


class TestSequences:
    def test_duplicate_appends(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testDuplicateAppends: one of the last five batches is answered with its old offsets, not appended."""
        log = open_log(tmp_path)
        infos = [log.append_as_leader(sent(2 * i, 2), 0) for i in range(6)]
        end, size = log.log_end_offset, log.size_bytes
        for i in range(1, 6):
            again = log.append_as_leader(sent(2 * i, 2), 0)
            assert again[:3] == infos[i][:3]
            assert (again.is_duplicate, again.size_bytes, again.log_append_time) == (True, 0, NOW_MS)
        assert (log.log_end_offset, log.size_bytes) == (end, size)
        for refused in (sent(0, 2), sent(10, 1), sent(11, 1), sent(13, 1)):  # forgotten, other ranges, a gap
            with pytest.raises(OutOfOrderSequenceError):
                log.append_as_leader(refused, 0)
        assert log.append_as_leader(sent(12), 0).first_offset == end

    def test_non_sequential_append(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testNonSequentialAppend."""
        log = open_log(tmp_path)
        log.append_as_leader(sent(0), 0)
        with pytest.raises(OutOfOrderSequenceError):
            log.append_as_leader(sent(2), 0)
        assert not log.is_offline

    def test_old_producer_epoch(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testOldProducerEpoch."""
        log = open_log(tmp_path)
        log.append_as_leader(sent(0, epoch=1), 0)
        with pytest.raises(InvalidProducerEpochError):
            log.append_as_leader(sent(0, epoch=0), 0)

    def test_duplicate_append_to_follower(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testDuplicateAppendToFollower: what the leader took is taken."""
        log = open_log(tmp_path)
        log.append_as_follower(sent(0, offset=0))
        log.append_as_follower(sent(0, offset=1))
        assert log.log_end_offset == 2

    def test_multiple_producers_with_duplicates_in_single_append(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testMultipleProducersWithDuplicatesInSingleAppend: on a follower, in one set."""
        log = open_log(tmp_path)
        sets = [sent(0, producer_id=producer_id, offset=offset) for offset, producer_id in enumerate((1, 2, 1, 2))]
        log.append_as_follower(b"".join(sets))
        assert [header.base_sequence for header in headers(log)] == [0, 0, 0, 0]
        log.append_as_follower(sent(0, producer_id=1, offset=4))
        assert log.log_end_offset == 5

    def test_multiple_producer_ids_per_memory_record(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testMultipleProducerIdsPerMemoryRecord."""
        log = open_log(tmp_path)
        sets = [sent(0, producer_id=producer_id, offset=offset) for offset, producer_id in enumerate((1, 2, 3, 4))]
        log.append_as_follower(b"".join(sets))
        assert [header.producer_id for header in headers(log)] == [1, 2, 3, 4]
        assert sorted(log.producer_state.active_producers) == [1, 2, 3, 4]

    def test_after_a_clean_restart(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        first = log.append_as_leader(sent(0, 3), 0)
        log.close()
        log = open_log(tmp_path)
        assert log.append_as_leader(sent(0, 3), 0)[:2] == first[:2]
        assert log.append_as_leader(sent(3), 0).first_offset == 3

    def test_duplicates_move_nothing(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, message_timestamp_type="LogAppendTime", flush_messages=1)
        clock = log.clock
        assert isinstance(clock, ManualClock)
        log.append_as_leader(sent(0), 0)
        clock.advance(1000)
        again = log.append_as_leader(sent(0), 0)
        assert (again.log_append_time, again.is_duplicate) == (NOW_MS, True)
        clock.advance(-500)
        assert log.append_as_leader(sent(1), 0).log_append_time == NOW_MS + 500


class TestState:
    def test_active_producers(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testActiveProducers."""
        log = open_log(tmp_path)
        assert not log.producer_state.active_producers
        log.append_as_leader(sent(10, producer_id=1, epoch=3, transactional=True), 0)
        log.append_as_leader(sent(5, producer_id=2, epoch=0), 0)
        one, two = (log.producer_state.active_producers[producer_id] for producer_id in (1, 2))
        assert (one.producer_epoch, one.last_sequence, one.current_txn_first_offset) == (3, 10, 0)
        assert (two.producer_epoch, two.last_sequence, two.current_txn_first_offset) == (0, 5, -1)
        end_txn(log, ControlType.COMMIT, 1, 3, coordinator_epoch=4)
        one = log.producer_state.active_producers[1]
        assert (one.coordinator_epoch, one.current_txn_first_offset) == (4, -1)

    def test_producer_id_map_offset_updated_for_non_idempotent_data(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testProducerIdMapOffsetUpdatedForNonIdempotentData."""
        log = open_log(tmp_path)
        log.append_as_leader(batch(), 0)
        log.producer_state.take_snapshot()
        assert (log.producer_state.latest_snapshot_offset, snapshots(log.directory)) == (1, [1])

    def test_take_snapshot_on_roll(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testTakeSnapshotOnRollAndDeleteSnapshotOnRecoveryPointCheckpoint, the part about rolls."""
        log = open_log(tmp_path)
        log.append_as_leader(batch(), 0)
        log.roll(1)
        assert log.producer_state.latest_snapshot_offset == 1
        log.append_as_leader(batch(), 0)
        log.roll(2)
        assert log.producer_state.latest_snapshot_offset == 2
        log.append_as_leader(sent(0), 0)
        log.roll()
        assert snapshots(log.directory) == [1, 2, 3]
        assert [entry.producer_id for entry in read_snapshot(log.directory / f"{3:020d}.snapshot")] == [PID]
        log.scheduler.tick()
        assert log.recovery_point == 3

    def test_periodic_producer_id_expiration(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testPeriodicProducerIdExpiration, testProducerExpireCheckAfterDelete."""
        clock = ManualClock(NOW_MS)
        log = open_log(tmp_path, clock)
        log.append_as_leader(sent(0), 0)
        log.append_as_leader(sent(0, producer_id=8, transactional=True), 0)
        clock.advance(600_000)
        log.scheduler.tick()
        assert sorted(log.producer_state.active_producers) == [7, 8]
        clock.advance(DAY_MS)
        log.scheduler.tick()
        assert list(log.producer_state.active_producers) == [8]  # its transaction is open
        log.delete()
        clock.advance(DAY_MS)
        before = log.scheduler.next_due_ms
        assert before is None or log.scheduler.tick() == 0

    def test_rebuild_transactional_state(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testRebuildTransactionalState: an open transaction is aborted after a restart without a clean end."""
        log = open_log(tmp_path)
        log.append_as_leader(sent(0, 3, epoch=5, transactional=True), 0)
        end_txn(log, ControlType.ABORT, PID, 5)
        log.append_as_leader(sent(3, 2, epoch=5, transactional=True), 0)
        log.close_handlers()
        log = open_log(tmp_path, clean=False)
        assert log.watermarks.first_unstable_offset == 4
        end_txn(log, ControlType.COMMIT, PID, 5)
        log.update_high_watermark(log.log_end_offset)
        assert [txn[:3] for txn in log.local.collect_aborted_transactions(0, 100)] == [(PID, 0, 3)]
        assert log.last_stable_offset == 7


class TestCompactedData:
    """What a follower gets of a compacted log: batches with holes, and batches without any record."""

    def with_a_hole(self, offset: int, sequence: int) -> bytearray:
        """Offsets `offset` and `offset` + 2 are left of three."""
        records = [Record(offset + i, NOW_MS, CREATE_TIME, b"k", b"v") for i in (0, 2)]
        return build_batch_v2(records, leader_epoch=0, producer=Producer(PID, 0, sequence))

    def test_update_producer_id_map_with_compacted_data(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testUpdateProducerIdMapWithCompactedData: the sequence is that of the whole batch."""
        log = open_log(tmp_path)
        log.append_as_follower(self.with_a_hole(23, 0))
        log.append_as_follower(self.with_a_hole(26, 3))
        entry = log.producer_state.last_entry(PID)
        assert entry is not None
        assert (entry.last_sequence, log.log_end_offset) == (5, 29)

    def test_rebuild_producer_id_map_with_compacted_data(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testRebuildProducerIdMapWithCompactedData, testRebuildProducerStateWithEmptyCompactedBatch."""
        log = open_log(tmp_path)
        log.append_as_follower(self.with_a_hole(23, 0))
        log.append_as_follower(build_empty_batch_v2(26, 28, max_timestamp=NOW_MS, leader_epoch=0, producer=Producer(PID, 0, 3)))
        log.append_as_follower(batch(29))
        log.truncate_to(29)
        assert log.producer_state.map_end_offset == 29
        for clean in (True, False):
            log.close() if clean else log.close_handlers()
            log = open_log(tmp_path, clean=clean)
            entry = log.producer_state.last_entry(PID)
            assert entry is not None
            assert (entry.last_sequence, log.log_end_offset) == (5, 29)
        assert log.append_as_leader(sent(6), 0).first_offset == 29
        assert offsets(log) == [23, 25, 29]


class TestTransactions:
    def interleaved(self, log: PartitionLog) -> None:
        """Four producers' transactions: 1 and 4 commit, 2 and 3 abort; markers come in another order than the data."""
        for producer_id, sequence, count in ((1, 0, 5), (2, 0, 10), (3, 0, 3), (4, 0, 2), (1, 5, 4), (3, 3, 1)):
            log.append_as_leader(sent(sequence, count, producer_id=producer_id, transactional=True), 0)
        log.append_as_leader(batch(count=5), 0)
        for kind, producer_id in (
            (ControlType.COMMIT, 1),
            (ControlType.ABORT, 3),
            (ControlType.ABORT, 2),
            (ControlType.COMMIT, 4),
        ):
            end_txn(log, kind, producer_id)

    EXPECTED: ClassVar = [(3, 15, 31, 5), (2, 5, 32, 18)]

    def test_transaction_index_updated(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testTransactionIndexUpdated."""
        log = open_log(tmp_path)
        self.interleaved(log)
        assert log.local.collect_aborted_transactions(0, 100) == self.EXPECTED
        assert [tuple(txn) for txn in log.segments.active.txn_index.aborted] == self.EXPECTED
        assert log.local.collect_aborted_transactions(16, 20) == self.EXPECTED
        assert log.local.collect_aborted_transactions(32, 34) == self.EXPECTED[1:]
        log.update_high_watermark(33)
        assert log.watermarks.first_unstable_offset == 18  # that of 4, whose marker is not below the high watermark
        log.update_high_watermark(34)
        assert log.watermarks.first_unstable_offset is None

    def test_transaction_index_updated_through_replication(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testTransactionIndexUpdatedThroughReplication."""
        (tmp_path / "leader").mkdir()
        (tmp_path / "follower").mkdir()
        leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
        self.interleaved(leader)
        follower.append_as_follower(leader.read(0, 2**20).data)
        assert follower.local.collect_aborted_transactions(0, 100) == self.EXPECTED
        assert offsets(follower) == offsets(leader)

    def test_over_segments(self, tmp_path: Path) -> None:
        """LogLoaderTest.testFullTransactionIndexRecovery's log, as it is written: aborted ones lie where their marker does."""
        log = open_log(tmp_path, segment_bytes=400)
        self.interleaved(log)
        assert len(log.segments) > 2
        assert log.local.collect_aborted_transactions(0, 100) == self.EXPECTED
        files = list(log.directory.glob("*.txnindex"))
        assert files
        assert sum(path.stat().st_size for path in files) == 2 * 34

    def test_transaction_index_of_an_aborted_transaction_with_another_one_open(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLastStableOffsetWithMixedProducerData, testAbortedTransactionSpanningMultipleSegments."""
        log = open_log(tmp_path, segment_bytes=200)
        log.append_as_leader(sent(0, 3, producer_id=1, transactional=True), 0)
        log.append_as_leader(sent(0, 3, producer_id=2, transactional=True), 0)
        assert bases(log) == [0, 3]
        end_txn(log, ControlType.ABORT, 1)
        log.update_high_watermark(7)
        assert log.last_stable_offset == 3
        assert log.local.collect_aborted_transactions(0, 7) == [(1, 0, 6, 3)]
        end_txn(log, ControlType.ABORT, 2)
        log.update_high_watermark(8)
        assert log.last_stable_offset == 8
        assert log.local.collect_aborted_transactions(0, 8) == [(1, 0, 6, 3), (2, 3, 7, 8)]

    def test_last_stable_offset_does_not_exceed_log_start_offset(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLastStableOffsetDoesNotExceedLogStartOffset{MidSegment,AfterSegmentDeletion}."""
        log = open_log(tmp_path, segment_bytes=len(sent(0, 3)) + 10, retention_ms=-1)
        for sequence in range(3):
            log.append_as_leader(sent(3 * sequence, 3, transactional=True), 0)
        log.update_high_watermark(9)
        assert log.last_stable_offset == 0
        for start in (5, 8):
            log.maybe_increment_log_start_offset(start)
            log.delete_old_segments()
            assert (log.watermarks.first_unstable_offset, log.last_stable_offset, log.log_start_offset) == (start, start, start)

    def test_end_txn_with_fenced_producer_epoch(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testEndTxnWithFencedProducerEpoch."""
        log = open_log(tmp_path)
        end_txn(log, ControlType.ABORT, PID, 5)
        with pytest.raises(InvalidProducerEpochError):
            end_txn(log, ControlType.ABORT, PID, 4)

    def test_zombie_coordinator_fenced(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testZombieCoordinatorFenced, testZombieCoordinatorFencedEmptyTransaction."""
        log = open_log(tmp_path)
        log.append_as_leader(sent(0, transactional=True), 0)
        end_txn(log, ControlType.ABORT, PID, coordinator_epoch=1)
        log.append_as_leader(sent(1, transactional=True), 0)
        end_txn(log, ControlType.COMMIT, PID, coordinator_epoch=2)
        for _ in range(2):
            with pytest.raises(TransactionCoordinatorFencedError):
                end_txn(log, ControlType.COMMIT, PID, coordinator_epoch=1)

    def test_a_transactional_batch_must_not_be_followed_by_a_plain_one(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append_as_leader(sent(0, transactional=True), 0)
        with pytest.raises(InvalidTxnStateError):
            log.append_as_leader(sent(1), 0)

    def test_replication_of_a_log_whose_markers_are_compacted(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append_as_follower(sent(0, 2, transactional=True) + marker(ControlType.COMMIT, PID, offset=2))
        assert log.watermarks.first_unstable_offset == 0
        log.update_high_watermark(3)
        assert log.watermarks.first_unstable_offset is None
