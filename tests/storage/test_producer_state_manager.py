"""What an append may follow, and what becomes unstable by it: ProducerStateManagerTest (snapshots: test_producer_snapshots)."""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path

import pytest

from tests.storage.producers import DAY_MS, MAX_TIMEOUT_MS, NOW_MS, PARTITION, PRODUCER, append, batch, end_txn, manager
from tidelog.clock import ManualClock
from tidelog.errors import (
    InvalidArgumentError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
    kafka_error_code,
)
from tidelog.reader.producer_state import CompletedTxn
from tidelog.records.batch import BatchHeader
from tidelog.records.control import ControlType, EndTxnMarker
from tidelog.records.validation import AppendOrigin
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.producers.producer_append_info import ProducerAppendInfo
from tidelog.storage.producers.producer_state_entry import ProducerStateEntry
from tidelog.storage.producers.producer_state_manager import LATE_TRANSACTION_BUFFER_MS, ProducerStateManager

MAX_SEQUENCE = 2**31 - 1
CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
LATE_MS = MAX_TIMEOUT_MS + LATE_TRANSACTION_BUFFER_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def state(tmp_path: Path, clock: ManualClock) -> ProducerStateManager:
    return manager(tmp_path, clock)


def entry(state: ProducerStateManager, producer_id: int = PRODUCER) -> ProducerStateEntry:
    found = state.last_entry(producer_id)
    assert found is not None
    return found


def unstable(state: ProducerStateManager) -> int | None:
    first = state.first_unstable_offset
    return None if first is None else first.message_offset


class TestSequences:
    def test_basic_id_mapping(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testBasicIdMapping"""
        append(state, batch(0, 0))
        append(state, batch(1, 1))
        for again in (1, 5, 0):
            with pytest.raises(OutOfOrderSequenceError):
                append(state, batch(again, 2))
        append(state, batch(0, 3, epoch=1))
        with pytest.raises(InvalidProducerEpochError):
            append(state, batch(0, 4))
        assert entry(state).last_data_offset == 3 and state.map_end_offset == 4

    def test_errors_have_kafkas_codes(self) -> None:
        kinds = (OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError, TransactionCoordinatorFencedError)
        assert [kafka_error_code(kind)[0] for kind in kinds] == [45, 47, 48, 52]

    def test_an_error_says_who_and_where(self, state: ProducerStateManager) -> None:
        append(state, batch(0, 0))
        with pytest.raises(OutOfOrderSequenceError) as raised:
            append(state, batch(5, 17))
        text = "the batch is out of order: producer 1, test-0, offset 17: found sequence 5, expected the one after 0"
        assert str(raised.value) == text

    def test_producer_sequence_wrap_around(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testProducerSequenceWrapAround"""
        append(state, batch(MAX_SEQUENCE, 735, epoch=15), REPLICATION)
        append(state, batch(0, 1235, epoch=15))
        found = entry(state)
        assert (found.producer_epoch, found.first_sequence, found.last_sequence) == (15, MAX_SEQUENCE, 0)

    def test_producer_sequence_with_wrap_around_batch_record(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testProducerSequenceWithWrapAroundBatchRecord"""
        header = batch(MAX_SEQUENCE - 10, 2000, records=21, epoch=15)
        info = state.prepare_update(PRODUCER, REPLICATION)
        info.append(header)
        assert state.last_entry(PRODUCER) is None
        state.update(info)
        found = entry(state)
        assert (found.first_sequence, found.last_sequence) == (MAX_SEQUENCE - 10, 9)
        assert (found.batches[0].first_offset, found.last_data_offset) == (2000, 2020)
        append(state, batch(10, 2021, epoch=15))
        assert state.duplicate_of(header) == (9, 2020, 20, NOW_MS)

    def test_producer_sequence_invalid_wrap_around(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testProducerSequenceInvalidWrapAround"""
        append(state, batch(MAX_SEQUENCE, 735, epoch=15), REPLICATION)
        with pytest.raises(OutOfOrderSequenceError):
            append(state, batch(1, 1235, epoch=15))

    def test_no_validation_on_first_entry_when_loading_log(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testNoValidationOnFirstEntryWhenLoadingLog"""
        append(state, batch(16, 735, epoch=5), REPLICATION)
        found = entry(state)
        assert (found.producer_epoch, found.first_sequence, found.last_sequence) == (5, 16, 16)
        assert (found.batches[0].first_offset, found.last_data_offset) == (735, 735)

    def test_unknown_producer_may_begin_anywhere(self, state: ProducerStateManager) -> None:
        """UnifiedLogTest.testAllowNonZeroSequenceOnFirstAppendNonZeroEpoch: its first records may be deleted already"""
        append(state, batch(3, 0, epoch=5))
        assert entry(state).last_sequence == 3

    def test_new_epoch_begins_at_zero(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testRejectNonZeroSequenceForDirectEpochBump (4.x)"""
        for i in range(3):
            append(state, batch(i, i))
        with pytest.raises(OutOfOrderSequenceError):
            append(state, batch(5, 3, epoch=1))
        append(state, batch(0, 3, epoch=1))
        assert entry(state).batches == ((0, 3, 0, NOW_MS),)

    def test_prepare_update_does_not_mutate(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testPrepareUpdateDoesNotMutate"""
        info = state.prepare_update(PRODUCER, CLIENT)
        info.append(batch(0, 15, records=6))
        assert state.last_entry(PRODUCER) is None
        state.update(info)
        following = state.prepare_update(PRODUCER, CLIENT)
        following.append(batch(6, 26, records=5))
        found = entry(state)
        assert (found.first_sequence, found.last_sequence, found.last_data_offset) == (0, 5, 20)
        state.update(following)
        found = entry(state)
        assert (found.first_sequence, found.last_sequence, found.last_data_offset) == (0, 10, 30)

    def test_accept_append_with_sequence_gaps_on_replica(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testAcceptAppendWithSequenceGapsOnReplica"""
        append(state, batch(0, 0))
        with pytest.raises(OutOfOrderSequenceError):
            append(state, batch(3, 1))
        assert state.active_producers[PRODUCER].last_sequence == 0
        append(state, batch(3, 1), REPLICATION)
        assert state.active_producers[PRODUCER].last_sequence == 3

    def test_an_old_epoch_of_a_leader_is_told_not_refused(
        self, state: ProducerStateManager, caplog: pytest.LogCaptureFixture
    ) -> None:
        append(state, batch(0, 0, epoch=3))
        with caplog.at_level(logging.WARNING, "tidelog.storage"):
            append(state, batch(7, 1, epoch=2), REPLICATION)
        assert "epoch 2, expected >= 3" in caplog.text
        assert (entry(state).producer_epoch, entry(state).last_sequence) == (2, 7)

    def test_sequence_not_validated_for_group_metadata_topic(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testSequenceNotValidatedForGroupMetadataTopic: a coordinator's records have none"""
        append(state, batch(-1, 99, transactional=True), COORDINATOR)
        append(state, batch(-1, 100, transactional=True), COORDINATOR)
        assert entry(state).last_data_offset == 100

    def test_an_update_of_no_producer_is_refused(self, state: ProducerStateManager) -> None:
        with pytest.raises(InvalidArgumentError):
            state.update(state.prepare_update(-1, CLIENT))

    def test_producers_are_read_only(self, state: ProducerStateManager) -> None:
        with pytest.raises(TypeError):
            state.active_producers[3] = ProducerStateEntry(3)  # type: ignore[index]


class TestDuplicates:
    def test_the_last_five_batches(self, state: ProducerStateManager) -> None:
        """UnifiedLogTest.testDuplicateAppends: what the map knows of them"""
        headers = [batch(i * 10, i * 20, records=10, timestamp=NOW_MS + i) for i in range(7)]
        for header in headers:
            assert state.duplicate_of(header) is None
            append(state, header)
        assert [state.duplicate_of(header) is not None for header in headers] == [False, False, True, True, True, True, True]
        assert state.duplicate_of(headers[3]) == (39, 69, 9, NOW_MS + 3)
        assert entry(state).batches[0].first_offset == 40

    @pytest.mark.parametrize(
        "other", [batch(0, 0, records=4), batch(1, 0, records=4), batch(0, 0, records=5, epoch=1), batch(0, 0, producer_id=2)]
    )
    def test_only_the_same_sequences_of_the_same_epoch(self, state: ProducerStateManager, other: BatchHeader) -> None:
        append(state, batch(0, 0, records=5))
        assert state.duplicate_of(batch(0, 77, records=5)) is not None
        assert state.duplicate_of(other) is None

    def test_a_marker_of_the_same_epoch_keeps_them(self, state: ProducerStateManager) -> None:
        append(state, batch(0, 0, transactional=True))
        end_txn(state, COMMIT, 1)
        assert state.duplicate_of(batch(0, 0, transactional=True)) is not None
        end_txn(state, ABORT, 2, epoch=1)
        assert state.duplicate_of(batch(0, 0, transactional=True)) is None


class TestMarkers:
    def test_append_txn_marker_with_no_producer_state(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testAppendTxnMarkerWithNoProducerState"""
        assert end_txn(state, COMMIT, 27, epoch=2) is None
        assert (entry(state).producer_epoch, entry(state).last_sequence) == (2, -1)
        with pytest.raises(InvalidProducerEpochError):
            append(state, batch(0, 4))
        with pytest.raises(OutOfOrderSequenceError):
            append(state, batch(17, 4, epoch=2))
        append(state, batch(0, 39, epoch=2))
        assert (entry(state).producer_epoch, entry(state).last_sequence) == (2, 0)

    def test_control_record_bumps_producer_epoch(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testControlRecordBumpsProducerEpoch"""
        append(state, batch(0, 0))
        end_txn(state, ABORT, 1, epoch=1)
        found = entry(state)
        assert (found.producer_epoch, found.first_sequence, found.last_sequence) == (1, -1, -1)
        assert not found.has_open_transaction and found.is_empty
        append(state, batch(0, 2, epoch=1))
        assert entry(state).first_sequence == 0

    def test_out_of_sequence_after_control_record_epoch_bump(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testOutOfSequenceAfterControlRecordEpochBump"""
        append(state, batch(0, 0, transactional=True))
        append(state, batch(1, 1, transactional=True))
        end_txn(state, ABORT, 1, epoch=1)
        for epoch in (1, 2):
            with pytest.raises(OutOfOrderSequenceError):
                append(state, batch(2, 2, epoch=epoch, transactional=True))
        append(state, batch(0, 2, epoch=1, transactional=True))
        assert (entry(state).producer_epoch, entry(state).last_sequence) == (1, 0)

    def test_producer_state_after_fencing_abort_marker(self, state: ProducerStateManager, clock: ManualClock) -> None:
        """ProducerStateManagerTest.testProducerStateAfterFencingAbortMarker: the epoch stays known"""
        append(state, batch(0, 0, transactional=True))
        end_txn(state, ABORT, 1, epoch=1)
        found = entry(state)
        assert not found.has_open_transaction
        assert (found.batches, found.last_data_offset, found.last_offset_delta) == ((), -1, 0)
        deque(state.remove_expired_producers(clock.now_ms()), maxlen=0)
        assert state.last_entry(PRODUCER) is not None

    def test_old_epoch_for_control_record(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testOldEpochForControlRecord"""
        assert state.first_undecided_offset is None
        append(state, batch(0, 99, epoch=5, transactional=True))
        with pytest.raises(InvalidProducerEpochError):
            end_txn(state, COMMIT, 100, epoch=3)
        assert state.first_undecided_offset == 99

    def test_coordinator_fencing(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testCoordinatorFencing"""
        append(state, batch(0, 99, epoch=5, transactional=True))
        end_txn(state, COMMIT, 100, epoch=5, coordinator_epoch=1)
        assert entry(state).coordinator_epoch == 1
        end_txn(state, COMMIT, 101, epoch=5, coordinator_epoch=1)
        end_txn(state, COMMIT, 102, epoch=5, coordinator_epoch=2)
        with pytest.raises(TransactionCoordinatorFencedError):
            end_txn(state, COMMIT, 103, epoch=5, coordinator_epoch=1)

    def test_a_fenced_coordinators_marker_in_the_log(self, state: ProducerStateManager, caplog: pytest.LogCaptureFixture) -> None:
        """LogLoaderTest.testRecoverAfterNonMonotonicCoordinatorEpochWrite: told, not refused"""
        marker = EndTxnMarker(ABORT, 7)
        state.replay(batch(-1, 0, control=True, transactional=True), marker)
        with caplog.at_level(logging.WARNING, "tidelog.storage"):
            state.replay(batch(-1, 1, control=True, transactional=True), marker._replace(coordinator_epoch=6))
        assert "coordinator epoch 6, expected >= 7" in caplog.text
        assert entry(state).coordinator_epoch == 6 and state.map_end_offset == 2

    def test_append_empty_control_batch(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testAppendEmptyControlBatch: a compacted one says nothing"""
        append(state, batch(-1, 15, producer_id=23423, control=True))
        assert not entry(state, 23423).has_open_transaction and state.map_end_offset == 16

    def test_a_transaction_of_unknown_beginning_cannot_end(self, state: ProducerStateManager) -> None:
        with pytest.raises(InvalidArgumentError):
            state.complete_txn(CompletedTxn(1, 5, 9, False))


class TestTransactions:
    def test_update_producer_transaction_state(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.updateProducerTransactionState"""
        append(state, batch(0, 9))
        info = state.prepare_update(PRODUCER, CLIENT)
        info.append(batch(1, 16, records=5, transactional=True))
        started = info.started_transactions
        assert [txn.first_offset.message_offset for txn in started] == [16]
        assert (info.entry.last_sequence, info.entry.current_txn_first_offset) == (5, 16)
        info.append(batch(6, 26, records=5, transactional=True))
        assert (info.entry.last_sequence, info.entry.current_txn_first_offset) == (10, 16)
        assert (info.entry.last_data_offset, info.started_transactions) == (30, started)
        completed = info.append_end_txn_marker(EndTxnMarker(COMMIT, 15), 0, 40, NOW_MS)
        assert completed == CompletedTxn(PRODUCER, 16, 40, False)
        assert (info.entry.last_sequence, info.entry.last_data_offset, info.entry.coordinator_epoch) == (10, 30, 15)
        assert info.entry.current_txn_first_offset == -1 and info.started_transactions == started

    def test_txn_first_offset_metadata_cached(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testTxnFirstOffsetMetadataCached"""
        where = LogOffsetMetadata(992342, 990000, 234224)
        info = state.prepare_update(PRODUCER, CLIENT)
        info.append(batch(0, 992342, transactional=True), where)
        state.update(info)
        assert state.first_unstable_offset == where

    def test_non_transactional_append_with_ongoing_transaction(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testNonTransactionalAppendWithOngoingTransaction"""
        append(state, batch(0, 0, transactional=True))
        before = entry(state)
        with pytest.raises(InvalidTxnStateError):
            append(state, batch(1, 1))
        assert entry(state) == before

    def test_the_same_in_a_log_is_told(self, state: ProducerStateManager, caplog: pytest.LogCaptureFixture) -> None:
        append(state, batch(0, 0, transactional=True))
        with caplog.at_level(logging.WARNING, "tidelog.storage"):
            state.replay(batch(1, 1))
        assert "the batch is outside the open transaction" in caplog.text
        assert entry(state).last_sequence == 1 and unstable(state) == 0

    def test_first_unstable_offset(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testFirstUnstableOffset"""
        assert state.first_undecided_offset is None and unstable(state) is None
        append(state, batch(0, 99, epoch=5, transactional=True))
        assert (state.first_undecided_offset, unstable(state)) == (99, 99)
        append(state, batch(0, 105, producer_id=2, epoch=5, transactional=True))
        assert (state.first_undecided_offset, unstable(state)) == (99, 99)
        end_txn(state, COMMIT, 109, epoch=5)
        assert (state.first_undecided_offset, unstable(state)) == (105, 99)
        state.on_high_watermark_updated(100)
        assert unstable(state) == 99
        state.on_high_watermark_updated(110)
        assert unstable(state) == 105
        end_txn(state, ABORT, 112, producer_id=2, epoch=5)
        assert (state.first_undecided_offset, unstable(state)) == (None, 105)
        assert not state.is_empty
        state.on_high_watermark_updated(113)
        assert unstable(state) is None

    def test_last_stable_offset_completed_txn(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testLastStableOffsetCompletedTxn"""
        starts = {1: 992342, 2: 992367, 3: 992399}
        for producer_id, start in starts.items():
            append(state, batch(0, start, producer_id=producer_id, transactional=True))
        first = CompletedTxn(1, starts[1], starts[3] + 15, False)
        third = CompletedTxn(3, starts[3], first.last_offset + 20, False)
        second = CompletedTxn(2, starts[2], third.last_offset + 78, False)
        for completed, stable, left in ((first, starts[2], starts[2]), (third, starts[2], starts[2])):
            assert state.last_stable_offset(completed) == stable
            state.complete_txn(completed)
            state.on_high_watermark_updated(completed.last_offset + 1)
            assert unstable(state) == left
        assert state.last_stable_offset(second) == second.last_offset + 1
        state.complete_txn(second)
        state.on_high_watermark_updated(second.last_offset + 1)
        assert unstable(state) is None

    def test_skip_empty_transactions(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testSkipEmptyTransactions"""

        def end(kind: ControlType, offset: int) -> CompletedTxn | None:
            return second.append_end_txn_marker(EndTxnMarker(kind, 27), 0, offset, NOW_MS)

        first = state.prepare_update(PRODUCER, CLIENT)
        first.append(batch(0, 16, records=5, transactional=True))
        assert [txn.first_offset for txn in first.started_transactions] == [LogOffsetMetadata(16)]
        state.update(first)
        state.on_high_watermark_updated(21)
        assert unstable(state) == 16

        second = state.prepare_update(PRODUCER, CLIENT)
        one = end(COMMIT, 21)
        assert one == CompletedTxn(PRODUCER, 16, 21, False)
        assert end(COMMIT, 22) is None and end(ABORT, 23) is None
        second.append(batch(5, 24, records=4, transactional=True))
        two = end(ABORT, 28)
        assert two == CompletedTxn(PRODUCER, 24, 28, True)
        assert end(ABORT, 29) is None
        second.append(batch(9, 30, records=2, transactional=True))
        assert [txn.first_offset.message_offset for txn in second.started_transactions] == [24, 30]
        state.update(second)
        state.complete_txn(one)
        state.complete_txn(two)
        state.on_high_watermark_updated(32)
        assert unstable(state) == 30

    def test_transactions_begun_in_one_append_of_several_producers(self, state: ProducerStateManager) -> None:
        """A follower's append holds batches of many producers; each part is taken over by itself, in any order."""
        infos = {producer_id: state.prepare_update(producer_id, REPLICATION) for producer_id in (1, 2)}
        infos[1].append(batch(0, 10, transactional=True))
        infos[2].append(batch(0, 20, producer_id=2, transactional=True))
        completed = infos[1].append(batch(-1, 25, transactional=True, control=True), None, EndTxnMarker(ABORT, 0))
        infos[1].append(batch(1, 30, transactional=True))
        for info in infos.values():
            state.update(info)
        assert unstable(state) == 10
        assert completed is not None
        assert state.last_stable_offset(completed) == 20
        state.complete_txn(completed)
        state.on_high_watermark_updated(31)
        assert unstable(state) == 20
        assert state.last_stable_offset(CompletedTxn(2, 20, 40, False)) == 30

    def test_replay_says_what_the_index_needs(self, state: ProducerStateManager) -> None:
        assert state.replay(batch(0, 0, producer_id=-1)) is None
        assert state.map_end_offset == 1 and state.is_empty
        assert state.replay(batch(0, 1, transactional=True)) is None
        assert state.replay(batch(7, 2, producer_id=2, transactional=True)) is None
        done = state.replay(batch(-1, 3, control=True, transactional=True), EndTxnMarker(ABORT, 1))
        assert done == (CompletedTxn(1, 1, 3, True), 2)
        done = state.replay(batch(-1, 4, producer_id=2, control=True, transactional=True), EndTxnMarker(COMMIT, 1))
        assert done == (CompletedTxn(2, 2, 4, False), 5)
        assert unstable(state) == 1 and state.first_undecided_offset is None


class TestLateTransactions:
    def test_has_late_transaction(self, state: ProducerStateManager, clock: ManualClock) -> None:
        """ProducerStateManagerTest.testHasLateTransaction"""

        def late() -> bool:
            return state.has_late_transaction(clock.now_ms())

        append(state, batch(0, 100, producer_id=39, epoch=2, transactional=True))
        assert not late()
        clock.advance(500)
        append(state, batch(0, 150, producer_id=57, epoch=9, transactional=True, timestamp=clock.now_ms()))
        assert not late()
        clock.advance(LATE_MS - 500)
        assert not late()
        clock.advance(1)
        assert late()
        clock.advance(500)
        assert late()
        end_txn(state, COMMIT, 200, producer_id=39, epoch=2, timestamp=clock.now_ms())
        assert late()
        end_txn(state, COMMIT, 250, producer_id=57, epoch=9, timestamp=clock.now_ms())
        assert not late()

    def test_has_late_transaction_initialized_after_reload(
        self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path
    ) -> None:
        """ProducerStateManagerTest.testHasLateTransactionInitializedAfterReload"""
        append(state, batch(0, 100, producer_id=39, epoch=2, transactional=True))
        clock.advance(500)
        append(state, batch(0, 150, producer_id=57, epoch=9, transactional=True, timestamp=clock.now_ms()))
        state.take_snapshot()
        clock.advance(LATE_MS - 500 + 1)
        assert state.has_late_transaction(clock.now_ms())
        again = manager(tmp_path, clock)
        again.truncate_and_reload(0, state.map_end_offset, clock.now_ms())
        assert again.has_late_transaction(clock.now_ms())

    def test_has_late_transaction_updated_after_truncation(self, state: ProducerStateManager, clock: ManualClock) -> None:
        """ProducerStateManagerTest.testHasLateTransactionUpdatedAfterPartialTruncation,
        testHasLateTransactionUpdatedAfterFullTruncation"""
        for partial in (True, False):
            append(state, batch(0, 100, producer_id=39, epoch=2, transactional=True, timestamp=clock.now_ms()))
            clock.advance(LATE_MS + 1)
            assert state.has_late_transaction(clock.now_ms())
            if partial:
                state.truncate_and_reload(0, 80, clock.now_ms())
            else:
                state.truncate_fully_and_start_at(150)
            assert not state.has_late_transaction(clock.now_ms())


class TestExpiry:
    def test_pid_expiration_timeout(self, state: ProducerStateManager, clock: ManualClock) -> None:
        """ProducerStateManagerTest.testPidExpirationTimeout"""
        append(state, batch(0, 1, epoch=5))
        clock.advance(DAY_MS - 1)
        deque(state.remove_expired_producers(clock.now_ms()), maxlen=0)
        assert len(state.active_producers) == 1
        clock.advance(1)
        deque(state.remove_expired_producers(clock.now_ms()), maxlen=0)
        assert state.is_empty
        append(state, batch(1, 2, epoch=5, timestamp=clock.now_ms()))
        assert entry(state).last_sequence == 1 and state.map_end_offset == 3

    def test_producers_with_ongoing_transactions_dont_expire(self, state: ProducerStateManager, clock: ManualClock) -> None:
        """ProducerStateManagerTest.testProducersWithOngoingTransactionsDontExpire"""
        append(state, batch(0, 99, epoch=5, transactional=True))
        clock.advance(DAY_MS + 1)
        for _ in range(2):
            deque(state.remove_expired_producers(clock.now_ms()), maxlen=0)
            assert state.last_entry(PRODUCER) is not None and state.first_undecided_offset == 99


class TestVerification:
    def test_entry_for_verification(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testEntryForVerification"""
        original = state.maybe_create_verification(PRODUCER, 0, 0)
        guard = original.guard
        assert state.maybe_create_verification(PRODUCER, 0, 0) is original
        assert state.verification(PRODUCER) is original and original.guard is guard
        append(state, batch(0, 0, transactional=True))
        assert state.verification(PRODUCER) is None
        assert state.maybe_create_verification(PRODUCER, 0, 0).guard != guard

    def test_what_another_leader_wrote_ends_a_verification(self, state: ProducerStateManager) -> None:
        """A leader that resigns may have seen a sequence that it did not write. Another one writes it; then it leads again."""
        state.maybe_create_verification(PRODUCER, 3, 0)
        state.replay(batch(3, 0, transactional=True))
        assert state.verification(PRODUCER) is None
        append(state, batch(4, 1, transactional=True))

        state.maybe_create_verification(PRODUCER, 5, 0)
        state.replay(batch(-1, 2, transactional=True, control=True), EndTxnMarker(ABORT, 0))
        assert state.verification(PRODUCER) is None, "a marker: the transaction is over"

        state.maybe_create_verification(PRODUCER, 5, 0)
        state.replay(batch(0, 3, producer_id=PRODUCER + 1, transactional=True))
        assert state.verification(PRODUCER) is not None, "another producer's"

    def test_sequence_and_epoch_in_verification_entry(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testSequenceAndEpochInVerificationEntry"""
        original = state.maybe_create_verification(PRODUCER, 1, 0)
        for sequence, epoch, found in ((1, 0, (1, 0)), (0, 0, (0, 0)), (2, 1, (2, 1)), (0, 0, (2, 1)), (3, 1, (2, 1))):
            assert state.maybe_create_verification(PRODUCER, sequence, epoch) is original
            assert (original.lowest_sequence, original.epoch) == found

    def test_throw_out_of_order_sequence_with_verification_sequence_check(self, state: ProducerStateManager) -> None:
        """ProducerStateManagerTest.testThrowOutOfOrderSequenceWithVerificationSequenceCheck"""
        original = state.maybe_create_verification(PRODUCER, 0, 0)
        with pytest.raises(OutOfOrderSequenceError):
            append(state, batch(4, 0, transactional=True))
        assert state.verification(PRODUCER) is original
        append(state, batch(0, 0, transactional=True))

    def test_verification_state_entry_expiration(self, state: ProducerStateManager, clock: ManualClock) -> None:
        """ProducerStateManagerTest.testVerificationStateEntryExpiration: a look does not prolong it"""
        original = state.maybe_create_verification(PRODUCER, 0, 0)
        clock.advance(DAY_MS // 2)
        deque(state.remove_expired_producers(clock.now_ms()), maxlen=0)
        assert state.maybe_create_verification(PRODUCER, 0, 0) is original
        clock.advance(DAY_MS // 2 + 1)
        deque(state.remove_expired_producers(clock.now_ms()), maxlen=0)
        assert state.verification(PRODUCER) is None

    def test_an_append_without_the_manager(self) -> None:
        info = ProducerAppendInfo(PARTITION, ProducerStateEntry(7), CLIENT)
        info.append(batch(5, 0, producer_id=7))
        assert info.producer_id == 7 and info.entry.last_sequence == 5
        assert "last_timestamp=1700000000000" in repr(info.entry) and info.entry != 3
