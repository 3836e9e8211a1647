"""Producer state after a start: from which snapshot, what is replayed, which snapshots stay (spec §9.4 to §9.6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.partition_logs import NOW_MS, bases, batch, end_txn, messages, open_log, snapshots
from tests.storage.test_loader_recovery import spy_on_recovery
from tidelog.clock import ManualClock
from tidelog.formats.names import file_name
from tidelog.records.batch import BatchHeader
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.storage.loading import producer_rebuild
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.segment.log_segment import LogSegment

SIZE = len(batch())
DAY_MS = 86_400_000
V1 = {"message_format_version": "0.10.2"}


def idempotent(producer_id: int, sequence: int, count: int = 1, timestamp: int = NOW_MS) -> bytearray:
    return batch(count=count, timestamp=timestamp, producer=Producer(producer_id, 0, sequence))


def last_sequences(log: PartitionLog) -> dict[int, int]:
    return {producer_id: entry.last_sequence for producer_id, entry in log.producer_state.active_producers.items()}


class Reads:
    """Which segments are replayed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bases: list[int] = []
        replay = producer_rebuild._replay

        def spy(state: ProducerStateManager, segment: LogSegment, start_offset: int, last_offset: int) -> None:
            self.bases.append(segment.base_offset)
            replay(state, segment, start_offset, last_offset)

        monkeypatch.setattr(producer_rebuild, "_replay", spy)


class TestSnapshotsAfterUncleanShutdown:
    """LogLoaderTest.testProducerSnapshotsRecoveryAfterUncleanShutdownV1, …CurrentMessageFormat"""

    @pytest.mark.parametrize("magic", [1, 2])
    def test_which_segments_are_read_and_which_snapshots_stay(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, magic: int
    ) -> None:
        properties: dict[str, int | str] = {"segment_bytes": 640, **(V1 if magic == 1 else {})}
        log = open_log(tmp_path, **properties)
        for _ in range(101):
            log.append_as_leader(batch() if magic == 2 else messages(magic=1), 0)
        segments = bases(log)
        assert len(segments) >= 5
        point_segment, after_point, active = segments[-4], segments[-3], segments[-1]
        before, after = [base for base in segments if base < point_segment], segments[-4:]
        recovery_point = point_segment + 1
        assert recovery_point < after_point
        kept = segments[-2:] if magic == 1 else segments[-4:]
        log.close()

        def reopen() -> tuple[list[int], list[int]]:
            with monkeypatch.context() as patch:
                reads, recovered = Reads(patch), spy_on_recovery(patch)
                open_log(tmp_path, clean=False, recovery_point=recovery_point, **properties).close()
            return sorted(set(reads.bases)), recovered

        # No snapshot below the recovery point: everything is read to bring the state there.
        for offset in snapshots(log.directory):
            if offset < segments[-2]:
                (log.directory / file_name(offset, ".snapshot")).unlink()
        read, recovered = reopen()
        assert recovered == after
        assert read == ([] if magic == 1 else before)
        assert snapshots(log.directory) == [*kept, 101]

        # With one at the recovery point's segment nothing is read but what is recovered.
        for offset in snapshots(log.directory):
            if offset < point_segment:
                (log.directory / file_name(offset, ".snapshot")).unlink()
        read, recovered = reopen()
        assert (read, recovered) == ([], after)
        assert snapshots(log.directory) == [*kept, 101]
        assert active == recovered[-1]

    @pytest.mark.parametrize("clean", [True, False])
    def test_from_before_there_were_snapshots(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool) -> None:
        """UnifiedLogTest.testInitializationOfProducerSnapshotsUpgradePath"""
        log = open_log(tmp_path, segment_bytes=2 * SIZE)
        for _ in range(10):
            log.append_as_leader(batch(), 0)
        log.close()
        for offset in snapshots(log.directory):
            (log.directory / file_name(offset, ".snapshot")).unlink()
        reads = Reads(monkeypatch)
        log = open_log(tmp_path, segment_bytes=2 * SIZE, clean=clean)
        assert reads.bases == ([0, 2, 4, 6, 8] if clean else [])  # Kafka reads nothing; `test_all_snapshots_are_lost` says why.
        assert snapshots(log.directory) == ([6, 8, 10] if clean else [2, 4, 6, 8, 10])
        assert log.log_end_offset == 10

    def test_only_what_is_behind_the_last_snapshot_is_replayed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = open_log(tmp_path, segment_bytes=3 * SIZE)
        for i in range(8):
            log.append_as_leader(idempotent(1, i), 0)
        log.close()
        (log.directory / file_name(8, ".snapshot")).unlink()
        reads = Reads(monkeypatch)
        log = open_log(tmp_path, segment_bytes=3 * SIZE, clean=True)
        assert reads.bases == [6]
        assert (last_sequences(log), snapshots(log.directory)) == ({1: 7}, [3, 6, 8])

    def test_a_damaged_snapshot(self, tmp_path: Path) -> None:
        """The next lower one is taken, and what is behind that is replayed."""
        log = open_log(tmp_path, segment_bytes=3 * SIZE)
        for i in range(8):
            log.append_as_leader(idempotent(1, i), 0)
        log.close()
        for offset in (6, 8):
            (log.directory / file_name(offset, ".snapshot")).write_bytes(b"nonsense")
        log = open_log(tmp_path, segment_bytes=3 * SIZE, clean=True)
        assert (last_sequences(log), snapshots(log.directory)) == ({1: 7}, [3, 6, 8])

    @pytest.mark.parametrize("magic", [1, 2])
    def test_all_snapshots_are_lost(self, tmp_path: Path, caplog: pytest.LogCaptureFixture, magic: int) -> None:
        """Kafka forgets producers after a clean end, so an open transaction is shown; only older formats know no producers."""
        log = open_log(tmp_path, segment_bytes=3 * SIZE)
        for i in range(4):
            log.append_as_leader(batch(producer=Producer(1, 0, i), transactional=True), 0)
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == 0
        log.close()
        for snapshot in log.directory.glob("*.snapshot"):
            snapshot.unlink()
        if magic == 1:
            for path in log.directory.glob("*.log"):
                path.write_bytes(messages(int(path.stem)))
        log = open_log(tmp_path, segment_bytes=3 * SIZE, clean=True)
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == (0 if magic == 2 else log.log_end_offset)
        assert last_sequences(log) == ({1: 3} if magic == 2 else {})
        assert ("no producer snapshot is left" in caplog.text) is (magic == 2)


class TestSkipped:
    """Where nothing can be gained, nothing is loaded (LogLoaderTest, with a state that notes what it is reported)."""

    @pytest.fixture
    def told(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        told: list[str] = []
        reload, take = ProducerStateManager.truncate_and_reload, ProducerStateManager.take_snapshot

        def truncate_and_reload(state: ProducerStateManager, *arguments: int) -> None:
            told.append("truncate_and_reload")
            reload(state, *arguments)

        def take_snapshot(state: ProducerStateManager, *, sync: bool = True) -> Path | None:
            told.append(f"take_snapshot at {state.map_end_offset}")
            return take(state, sync=sync)

        monkeypatch.setattr(ProducerStateManager, "truncate_and_reload", truncate_and_reload)
        monkeypatch.setattr(ProducerStateManager, "take_snapshot", take_snapshot)
        return told

    @pytest.mark.parametrize("clean", [True, False])
    def test_truncate_and_reload_if_old_message_format(self, tmp_path: Path, told: list[str], clean: bool) -> None:
        """LogLoaderTest.testSkipTruncateAndReloadIfOldMessageFormatAndNoCleanShutdown, …AndCleanShutdown"""
        open_log(tmp_path, clean=clean, **V1)
        assert "truncate_and_reload" not in told
        assert told[-2:] == ["take_snapshot at 0", "take_snapshot at 0"]

    def test_truncate_and_reload_if_new_message_format_and_clean_shutdown(self, tmp_path: Path, told: list[str]) -> None:
        """LogLoaderTest.testSkipTruncateAndReloadIfNewMessageFormatAndCleanShutdown"""
        open_log(tmp_path, clean=True)
        assert told == ["take_snapshot at 0", "take_snapshot at 0"]

    def test_loading_if_empty_producer_state_before_truncation(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """LogLoaderTest.testSkipLoadingIfEmptyProducerStateBeforeTruncation"""
        log = open_log(tmp_path)
        for _ in range(3):
            log.append_as_leader(batch(), 0)
        reads = Reads(monkeypatch)
        assert log.producer_state.is_empty
        log.truncate_to(1)
        assert reads.bases == []
        log.append_as_leader(idempotent(1, 0), 0)
        log.append_as_leader(idempotent(1, 1), 0)
        log.truncate_to(2)
        assert reads.bases == [0]
        assert last_sequences(log) == {1: 0}


class TestAfterDeleteRecords:
    @pytest.mark.parametrize("clean", [True, False])
    def test_mid_segment(self, tmp_path: Path, clean: bool) -> None:
        """LogLoaderTest.testLoadProducersAfterDeleteRecordsMidSegment"""
        log = open_log(tmp_path)
        log.append_as_leader(idempotent(1, 0), 0)
        log.append_as_leader(idempotent(2, 0), 0)
        log.update_high_watermark(2)
        log.delete_records(1)
        assert last_sequences(log) == {1: 0, 2: 0}
        log.close()
        log = open_log(tmp_path, log_start_offset=1, clean=clean)
        assert last_sequences(log) == {1: 0, 2: 0}

    def test_on_segment(self, tmp_path: Path) -> None:
        """LogLoaderTest.testLoadProducersAfterDeleteRecordsOnSegment"""
        log = open_log(tmp_path)
        log.append_as_leader(idempotent(1, 0), 0)
        log.roll()
        log.append_as_leader(idempotent(2, 0), 0)
        log.update_high_watermark(2)
        log.delete_records(1)
        assert log.delete_old_segments() == 1
        assert (bases(log), last_sequences(log)) == ([1], {1: 0, 2: 0})
        log.close()
        log = open_log(tmp_path, log_start_offset=1, clean=False)
        assert last_sequences(log) == {2: 0}


class TestStraySnapshots:
    def test_the_largest_stray_is_kept(self, tmp_path: Path) -> None:
        """LogLoaderTest.testLoadingLogKeepsLargestStrayProducerStateSnapshot"""
        log = open_log(tmp_path)
        log.append_as_leader(idempotent(1, 0), 0)
        log.roll()
        log.append_as_leader(idempotent(1, 1), 0)
        log.roll()
        log.append_as_leader(idempotent(1, 2), 0)
        log.append_as_leader(idempotent(1, 3), 0)
        log.close()
        assert (bases(log), snapshots(log.directory)) == ([0, 1, 2], [1, 2, 4])
        (log.directory / file_name(3, ".snapshot")).touch()
        log = open_log(tmp_path, clean=False)
        assert snapshots(log.directory) == [1, 2, 4]
        assert last_sequences(log) == {1: 3}

    @pytest.mark.parametrize("clean", [True, False])
    def test_past_the_log_end(self, tmp_path: Path, clean: bool) -> None:
        """UnifiedLogTest.testLoadingLogDeletesProducerStateSnapshotsPastLogEndOffset"""
        log = open_log(tmp_path)
        log.append_as_leader(idempotent(1, 0), 0)
        log.close()
        for offset in (42, 43):
            (log.directory / file_name(offset, ".snapshot")).touch()
        log = open_log(tmp_path, clean=clean)
        assert (snapshots(log.directory), last_sequences(log)) == ([1], {1: 0})

    def test_none_is_lost_by_recovery(self, tmp_path: Path) -> None:
        """LogLoaderTest.testCorruptedLogRecoveryDoesNotDeleteProducerStateSnapshotsPostRecovery"""
        log = open_log(tmp_path)
        for i in range(5):
            log.append_as_leader(idempotent(1, i), 0)
            if i < 4:
                log.roll()
        log.close()
        assert (bases(log), snapshots(log.directory)) == ([0, 1, 2, 3, 4], [1, 2, 3, 4, 5])
        with (log.directory / file_name(2, ".log")).open("ab") as file:
            file.write(b"x" * 100)
        log = open_log(tmp_path, clean=False)
        assert (bases(log), log.log_end_offset) == ([0, 1, 2], 3)
        assert snapshots(log.directory) == [1, 2, 3]
        assert last_sequences(log) == {1: 2}
        log.close()
        assert snapshots(log.directory) == [1, 2, 3]


class TestState:
    @pytest.mark.parametrize("clean", [True, False])
    def test_sequences_and_transactions_go_on(self, tmp_path: Path, clean: bool) -> None:
        log = open_log(tmp_path, segment_bytes=5 * SIZE)
        for i in range(20):
            log.append_as_leader(idempotent(1, i), 0)
        log.append_as_leader(batch(producer=Producer(2, 0, 0), transactional=True), 0)
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == 20
        log.close() if clean else log.close_handlers()
        log = open_log(tmp_path, segment_bytes=5 * SIZE, clean=clean)
        log.update_high_watermark(log.log_end_offset)
        assert (last_sequences(log), log.last_stable_offset) == ({1: 19, 2: 0}, 20)
        info = log.append_as_leader(idempotent(1, 19), 0)
        assert (info.first_offset, log.log_end_offset) == (19, 21)
        end_txn(log, ControlType.ABORT, 2)
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == 22
        assert [txn[:3] for txn in log.local.collect_aborted_transactions(0, 22)] == [(2, 20, 21)]

    def test_recover_after_non_monotonic_coordinator_epoch_write(self, tmp_path: Path) -> None:
        """LogLoaderTest.testRecoverAfterNonMonotonicCoordinatorEpochWrite (KAFKA-9144)"""
        clock = ManualClock(NOW_MS)
        log = open_log(tmp_path, clock)
        end_txn(log, ControlType.ABORT, 1, coordinator_epoch=5)
        clock.advance(DAY_MS)
        log.remove_expired_producers()
        assert log.producer_state.last_entry(1) is None
        end_txn(log, ControlType.ABORT, 1, coordinator_epoch=4)
        log.close_handlers()
        clock = ManualClock(NOW_MS)
        log = open_log(tmp_path, clock, clean=False)
        entry = log.producer_state.last_entry(1)
        assert entry is not None and entry.coordinator_epoch == 4

    def test_idle_producers_are_forgotten(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append_as_leader(idempotent(1, 0), 0)
        log.append_as_leader(idempotent(2, 0, timestamp=NOW_MS + DAY_MS), 0)
        log.close()
        assert last_sequences(open_log(tmp_path, ManualClock(NOW_MS + DAY_MS), clean=True)) == {2: 0}

    def test_replay_begins_inside_a_segment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only batches at or after the state's end are reported, and control batches that are no markers pass."""
        log = open_log(tmp_path)
        for i in range(6):
            log.append_as_leader(idempotent(1, 2 * i, count=2), 0)
        log.close()
        state = ProducerStateManager(log.topic_partition, log.directory, ManualClock(NOW_MS))
        told: list[int] = []

        def replay(self: ProducerStateManager, header: BatchHeader, marker: object = None) -> None:
            told.append(header.base_offset)

        monkeypatch.setattr(ProducerStateManager, "replay", replay)
        log = open_log(tmp_path)
        producer_rebuild._replay(state, log.segments.active, 4, 8)
        assert told == [4, 6]
        told.clear()
        producer_rebuild._replay(state, log.segments.active, 99, 120)
        assert told == []
