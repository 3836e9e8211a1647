"""Snapshots of the producers' state, taken, loaded, removed: ProducerStateManagerTest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fields import check_fields
from tests.storage.producers import DAY_MS, NOW_MS, PRODUCER, append, batch, end_txn, manager
from tidelog.clock import ManualClock
from tidelog.errors import StorageError, TransactionCoordinatorFencedError
from tidelog.formats.producer_snapshot import ProducerEntry, build_snapshot, read_snapshot
from tidelog.records.control import ControlType
from tidelog.records.validation import AppendOrigin
from tidelog.storage.producers.producer_state_entry import BatchMetadata, ProducerStateEntry
from tidelog.storage.producers.producer_state_manager import ProducerStateManager


def snapshot_offsets(state: ProducerStateManager) -> tuple[int, ...]:
    return tuple(state._snapshots.offsets)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def state(tmp_path: Path, clock: ManualClock) -> ProducerStateManager:
    return manager(tmp_path, clock)


def snapshot_path(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}.snapshot"


def on_disk(directory: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in directory.glob("*.snapshot"))


def reloaded(directory: Path, clock: ManualClock, start: int, end: int, now_ms: int | None = None) -> ProducerStateManager:
    again = manager(directory, clock)
    again.truncate_and_reload(start, end, clock.now_ms() if now_ms is None else now_ms)
    return again


def unstable(state: ProducerStateManager) -> int | None:
    first = state.first_unstable_offset
    return None if first is None else first.message_offset


class TestTaking:
    def test_take_snapshot(self, state: ProducerStateManager, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testTakeSnapshot"""
        append(state, batch(0, 0))
        append(state, batch(1, 1))
        assert state.take_snapshot() == snapshot_path(tmp_path, 2)
        assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000002.snapshot"]
        assert read_snapshot(snapshot_path(tmp_path, 2)) == [ProducerEntry(1, 0, 1, 1, 0, NOW_MS, -1, -1)]

    def test_skip_snapshot_if_offset_unchanged(self, state: ProducerStateManager, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testSkipSnapshotIfOffsetUnchanged"""
        append(state, batch(0, 0))
        assert state.take_snapshot() is not None
        assert state.take_snapshot() is None
        assert on_disk(tmp_path) == [1]

    def test_read_write_snapshot(self, state: ProducerStateManager, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testReadWriteSnapshot"""
        entries = [ProducerEntry(1, 2, 1, 2, 3, -1, 3, 100), ProducerEntry(11, 12, -1, -1, 0, 123456, 13, -1)]
        for entry in entries:
            state.load_entry(ProducerStateEntry.from_snapshot(entry))
        state.map_end_offset = 150
        state.take_snapshot()
        assert read_snapshot(snapshot_path(tmp_path, 150)) == entries
        again = manager(tmp_path, ManualClock(0))
        again.truncate_and_reload(0, 150, 0)
        assert again.active_producers == state.active_producers and unstable(again) == 100

    def test_only_the_last_batch_is_kept(self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path) -> None:
        for i in range(5):
            append(state, batch(i * 3, i * 3, records=3))
        state.take_snapshot()
        again = reloaded(tmp_path, clock, 0, 15)
        assert again.active_producers[PRODUCER].batches == ((14, 14, 2, NOW_MS),)
        assert again.duplicate_of(batch(12, 99, records=3)) is not None
        assert again.duplicate_of(batch(9, 99, records=3)) is None

    def test_not_synced_at_once(self, state: ProducerStateManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", synced.append)
        append(state, batch(0, 0))
        path = state.take_snapshot(sync=False)
        assert path is not None and not synced
        append(state, batch(1, 1))
        assert state.take_snapshot() is not None
        assert len(synced) == 1

    def test_a_full_disk_leaves_no_torn_one(
        self, state: ProducerStateManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(fd: int) -> None:
            raise OSError(28, "No space left on device")

        append(state, batch(0, 0))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(StorageError, match="No space left"):
                state.take_snapshot()
        assert on_disk(tmp_path) == [] and snapshot_offsets(state) == ()
        assert state.take_snapshot() is not None

    def test_one_already_there_is_replaced(self, state: ProducerStateManager, tmp_path: Path) -> None:
        snapshot_path(tmp_path, 1).write_bytes(b"x" * 4000)
        append(state, batch(0, 0))
        assert snapshot_offsets(state) == (1,)
        state.take_snapshot()
        assert len(read_snapshot(snapshot_path(tmp_path, 1))) == 1 and snapshot_offsets(state) == (1,)


class TestLoading:
    def test_recover_from_snapshot_unfinished_transaction(
        self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path
    ) -> None:
        """ProducerStateManagerTest.testRecoverFromSnapshotUnfinishedTransaction"""
        append(state, batch(0, 0, transactional=True))
        append(state, batch(1, 1, transactional=True))
        state.take_snapshot()
        again = reloaded(tmp_path, clock, 0, 3)
        entry = again.active_producers[PRODUCER]
        check_fields(entry, first_sequence=1, last_data_offset=1, last_sequence=1)
        assert entry.current_txn_first_offset == 0 and unstable(again) == 0
        append(again, batch(2, 2, transactional=True))

    def test_recover_from_snapshot_finished_transaction(
        self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path
    ) -> None:
        """ProducerStateManagerTest.testRecoverFromSnapshotFinishedTransaction"""
        append(state, batch(0, 0, transactional=True))
        append(state, batch(1, 1, transactional=True))
        end_txn(state, ControlType.ABORT, 2)
        state.take_snapshot()
        again = reloaded(tmp_path, clock, 0, 3)
        entry = again.active_producers[PRODUCER]
        check_fields(entry, first_sequence=1, last_data_offset=1, last_sequence=1)
        assert not entry.has_open_transaction and unstable(again) is None

    def test_recover_from_snapshot_empty_transaction(
        self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path
    ) -> None:
        """ProducerStateManagerTest.testRecoverFromSnapshotEmptyTransaction"""
        end_txn(state, ControlType.ABORT, 0, timestamp=NOW_MS - 7)
        state.take_snapshot()
        entry = reloaded(tmp_path, clock, 0, 1).active_producers[PRODUCER]
        assert entry.last_timestamp == NOW_MS - 7 and not entry.has_open_transaction and entry.is_empty

    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: b"",
            lambda data: data[: len(data) // 2],
            lambda data: bytes(37) + data[37:],
            lambda data: data + b"\0",
        ],
        ids=["empty", "truncated", "corrupt", "longer"],
    )
    def test_load_from_damaged_snapshot_file(
        self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path, damage: Callable[[bytes], bytes]
    ) -> None:
        """ProducerStateManagerTest.testLoadFromEmptySnapshotFile, testLoadFromTruncatedSnapshotFile,
        testLoadFromCorruptSnapshotFile"""
        append(state, batch(0, 0))
        state.take_snapshot()
        append(state, batch(1, 1))
        state.take_snapshot()
        path = snapshot_path(tmp_path, 2)
        path.write_bytes(damage(path.read_bytes()))
        again = reloaded(tmp_path, clock, 0, 20)
        assert on_disk(tmp_path) == [1] and snapshot_offsets(again) == (1,)
        assert again.active_producers[PRODUCER].last_data_offset == 0 and again.map_end_offset == 1

    def test_all_damaged(self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path) -> None:
        for offset in (3, 5, 9):
            snapshot_path(tmp_path, offset).write_bytes(b"junk")
        again = reloaded(tmp_path, clock, 2, 9)
        assert on_disk(tmp_path) == [] and again.map_end_offset == 2 and again.is_empty

    def test_load_from_snapshot_retains_non_expired_producers(self, state: ProducerStateManager, clock: ManualClock) -> None:
        """ProducerStateManagerTest.testLoadFromSnapshotRetainsNonExpiredProducers"""
        append(state, batch(0, 0, producer_id=1))
        append(state, batch(0, 1, producer_id=2))
        state.take_snapshot()
        state.truncate_and_reload(1, 2, clock.now_ms())
        found = {pid: (entry.last_sequence, entry.last_data_offset) for pid, entry in state.active_producers.items()}
        assert found == {1: (0, 0), 2: (0, 1)}

    def test_remove_expired_pids_on_reload(self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testRemoveExpiredPidsOnReload"""
        append(state, batch(0, 0))
        append(state, batch(1, 1))
        state.take_snapshot()
        again = reloaded(tmp_path, clock, 0, 2, NOW_MS + DAY_MS)
        assert again.is_empty
        append(again, batch(2, 2))
        assert [entry.last_sequence for entry in again.active_producers.values()] == [2]
        assert again.map_end_offset == 3

    def test_open_transactions_do_not_expire_on_reload(
        self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path
    ) -> None:
        append(state, batch(0, 7, transactional=True))
        append(state, batch(0, 8, producer_id=2))
        state.take_snapshot()
        again = reloaded(tmp_path, clock, 0, 9, NOW_MS + 3 * DAY_MS)
        assert list(again.active_producers) == [PRODUCER] and unstable(again) == 7

    def test_accept_append_without_producer_state_on_replica(
        self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path
    ) -> None:
        """ProducerStateManagerTest.testAcceptAppendWithoutProducerStateOnReplica"""
        append(state, batch(0, 0))
        append(state, batch(1, 1))
        state.take_snapshot()
        again = reloaded(tmp_path, clock, 0, 1, NOW_MS + DAY_MS)
        assert PRODUCER not in again.active_producers
        append(again, batch(2, 2), AppendOrigin.REPLICATION)
        entry = again.active_producers[PRODUCER]
        assert (entry.producer_epoch, entry.first_sequence, entry.last_sequence) == (0, 2, 2)

    def test_coordinator_fenced_after_reload(self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testCoordinatorFencedAfterReload"""
        append(state, batch(0, 99, transactional=True))
        end_txn(state, ControlType.COMMIT, 100, coordinator_epoch=1)
        state.take_snapshot()
        again = reloaded(tmp_path, clock, 0, 102)
        with pytest.raises(TransactionCoordinatorFencedError):
            end_txn(again, ControlType.COMMIT, 101, coordinator_epoch=0)

    def test_first_unstable_offset_after_truncation(self, state: ProducerStateManager, clock: ManualClock) -> None:
        """ProducerStateManagerTest.testFirstUnstableOffsetAfterTruncation"""
        append(state, batch(0, 99, transactional=True))
        assert unstable(state) == 99
        state.take_snapshot()
        end_txn(state, ControlType.COMMIT, 105)
        state.on_high_watermark_updated(106)
        assert unstable(state) is None
        state.take_snapshot()
        append(state, batch(1, 106))
        state.truncate_and_reload(0, 106, clock.now_ms())
        assert unstable(state) is None
        state.truncate_and_reload(0, 100, clock.now_ms())
        assert unstable(state) == 99

    def test_transactions_of_a_snapshot_are_in_order(self, clock: ManualClock, tmp_path: Path) -> None:
        """A snapshot's entries come in any order."""
        entries = [ProducerEntry(pid, 0, 0, first, 0, NOW_MS, -1, first) for pid, first in ((1, 30), (2, 10), (3, 20))]
        snapshot_path(tmp_path, 40).write_bytes(build_snapshot(entries))
        again = reloaded(tmp_path, clock, 0, 40)
        assert unstable(again) == 10
        done = end_txn(again, ControlType.ABORT, 40, producer_id=2)
        again.on_high_watermark_updated(41)
        assert done is not None and unstable(again) == 20 and again.first_undecided_offset == 20

    def test_the_same_end_keeps_the_map(self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path) -> None:
        """Nothing to reload where the map is there already, but decided transactions below the start are forgotten."""
        append(state, batch(0, 5, transactional=True))
        end_txn(state, ControlType.COMMIT, 6)
        state.truncate_and_reload(3, 7, clock.now_ms())
        assert unstable(state) == 5 and PRODUCER in state.active_producers
        state.truncate_and_reload(7, 7, clock.now_ms())
        assert unstable(state) is None and PRODUCER in state.active_producers
        state.on_log_start_offset_incremented(12)
        assert state.map_end_offset == 12 and PRODUCER in state.active_producers
        assert state.take_snapshot() is None


class TestRemoving:
    def test_truncate_and_reload_removes_out_of_range_snapshots(
        self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path
    ) -> None:
        """ProducerStateManagerTest.testTruncateAndReloadRemovesOutOfRangeSnapshots"""
        for i in range(5):
            append(state, batch(i, i))
            state.take_snapshot()
        state.truncate_and_reload(1, 3, clock.now_ms())
        assert (snapshot_offsets(state)[0], state.latest_snapshot_offset) == (2, 3)
        assert on_disk(tmp_path) == [2, 3] and state.map_end_offset == 3

    def test_remove_stray_snapshots_keep_clean_shutdown_snapshot(self, state: ProducerStateManager, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testRemoveStraySnapshotsKeepCleanShutdownSnapshot"""
        assert snapshot_offsets(state) == ()
        for offset in (5, 2, 42):
            snapshot_path(tmp_path, offset).touch()
        state.remove_stray_snapshots([5])
        assert on_disk(tmp_path) == [5, 42] and snapshot_offsets(state) == (5, 42)

    def test_remove_all_stray_snapshots(self, state: ProducerStateManager, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testRemoveAllStraySnapshots"""
        for offset in (5, 2, 42):
            snapshot_path(tmp_path, offset).touch()
        state.remove_stray_snapshots([42])
        assert on_disk(tmp_path) == [42]

    def test_of_strays_above_the_last_segment_the_largest_stays(self, state: ProducerStateManager, tmp_path: Path) -> None:
        """LogLoaderTest.testLoadingLogKeepsLargestStrayProducerStateSnapshot"""
        for offset in (0, 1, 2, 3, 5, 6):
            snapshot_path(tmp_path, offset).touch()
        state.remove_stray_snapshots([0, 2, 3])
        assert on_disk(tmp_path) == [0, 2, 3, 6]
        state.remove_stray_snapshots([])
        assert on_disk(tmp_path) == [6]

    def test_remove_and_mark_snapshot_for_deletion(self, state: ProducerStateManager, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testRemoveAndMarkSnapshotForDeletion"""
        snapshot_path(tmp_path, 5).touch()
        assert state.latest_snapshot_offset == 5
        path = state.remove_and_mark_snapshot_for_deletion(5)
        assert path == tmp_path / "00000000000000000005.snapshot.deleted" and path.exists()
        assert state.latest_snapshot_offset is None and on_disk(tmp_path) == []
        assert state.remove_and_mark_snapshot_for_deletion(5) is None

    def test_remove_and_mark_snapshot_for_deletion_already_deleted(self, state: ProducerStateManager, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testRemoveAndMarkSnapshotForDeletionAlreadyDeleted"""
        path = snapshot_path(tmp_path, 5)
        path.touch()
        assert state.latest_snapshot_offset == 5
        path.unlink()
        assert state.remove_and_mark_snapshot_for_deletion(5) is None
        assert state.latest_snapshot_offset is None

    def test_delete_snapshots_before(self, state: ProducerStateManager, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testDeleteSnapshotsBefore"""
        for i in (0, 1):
            append(state, batch(i, i))
        state.take_snapshot()
        append(state, batch(2, 2))
        state.take_snapshot()
        assert on_disk(tmp_path) == [2, 3]
        for before, left in ((2, [2, 3]), (3, [3]), (4, [])):
            for offset in [one for one in snapshot_offsets(state) if one < before]:
                state.remove_and_mark_snapshot_for_deletion(offset)
            assert on_disk(tmp_path) == left

    def test_truncate_fully_and_start_at(self, state: ProducerStateManager, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testTruncateFullyAndStartAt"""
        for i in range(3):
            append(state, batch(i, i))
            state.take_snapshot()
        assert on_disk(tmp_path) == [1, 2, 3]
        state.truncate_fully_and_start_at(0)
        assert on_disk(tmp_path) == [] and state.is_empty and state.map_end_offset == 0
        append(state, batch(0, 0))
        state.take_snapshot()
        assert on_disk(tmp_path) == [1]

    def test_reload_snapshots(self, state: ProducerStateManager, clock: ManualClock, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testReloadSnapshots"""
        for i in (1, 2):
            append(state, batch(i, i))
        state.take_snapshot()
        kept = snapshot_path(tmp_path, 3).read_bytes()
        for i in (3, 4):
            append(state, batch(i, i))
        state.take_snapshot()
        assert on_disk(tmp_path) == [3, 5]
        state.truncate_and_reload(3, 5, clock.now_ms())
        assert on_disk(tmp_path) == [5]
        snapshot_path(tmp_path, 3).write_bytes(kept)
        state.truncate_fully_and_start_at(0)
        state.remove_stray_snapshots([3])
        assert state.latest_snapshot_offset == 3 and on_disk(tmp_path) == [3]

    def test_fetch_snapshot(self, state: ProducerStateManager, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testFetchSnapshotEmptySnapShot; UnifiedLogTest.testOffsetFromProducerSnapshotFile"""
        assert state.latest_snapshot_offset is None
        state.map_end_offset = 23423423
        assert state.take_snapshot() == snapshot_path(tmp_path, 23423423)
        assert state.latest_snapshot_offset == 23423423

    def test_a_renamed_folder(self, state: ProducerStateManager, tmp_path: Path) -> None:
        moved = tmp_path / "there"
        moved.mkdir()
        append(state, batch(0, 0))
        state.take_snapshot()
        snapshot_path(tmp_path, 1).rename(snapshot_path(moved, 1))
        state.update_parent_dir(moved)
        append(state, batch(1, 1))
        assert state.take_snapshot() == snapshot_path(moved, 2) and snapshot_offsets(state) == (1, 2)

    def test_other_files_are_left_alone(self, state: ProducerStateManager, tmp_path: Path) -> None:
        (tmp_path / "x.snapshot").touch()
        (tmp_path / "00000000000000000003.snapshot.deleted").touch()
        (tmp_path / "00000000000000000004.snapshot").mkdir()
        assert snapshot_offsets(state) == ()
        state.truncate_fully_and_start_at(0)
        assert len(list(tmp_path.iterdir())) == 3

    def test_a_snapshot_that_cannot_be_deleted(
        self, state: ProducerStateManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(self: Path, *args: object, **kwargs: object) -> None:
            raise PermissionError(13, "Permission denied")

        snapshot_path(tmp_path, 1).touch()
        assert state.latest_snapshot_offset == 1
        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", refuse)
            patched.setattr(Path, "replace", refuse)
            with pytest.raises(StorageError, match="cannot delete a snapshot: Permission denied"):
                state.truncate_fully_and_start_at(0)
            snapshot_path(tmp_path, 2).touch()
            state.remove_stray_snapshots([2, 1])
            with pytest.raises(StorageError, match="cannot rename a snapshot: Permission denied"):
                state.remove_and_mark_snapshot_for_deletion(2)


def test_a_snapshot_of_very_many_only_joins_bytes(tmp_path: Path, clock: ManualClock) -> None:
    """It is made while clients wait. Each producer's entry was packed when it changed."""
    state = manager(tmp_path, clock)
    for producer_id in range(30_000):
        batches = (BatchMetadata(0, producer_id, 0, NOW_MS),)
        state.load_entry(ProducerStateEntry(producer_id, 0, -1, NOW_MS, batches=batches))
    state.map_end_offset = 30_000
    began = time.thread_time()
    path = state.take_snapshot(sync=False)
    made = time.thread_time()
    assert path is not None
    assert build_snapshot(read_snapshot(path)) == path.read_bytes()
    assert (made - began) * 2 < time.thread_time() - made
