"""Leader epochs written through to their checkpoint: LeaderEpochFileCacheTest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.errors import CorruptCheckpointError, InvalidArgumentError, StorageError
from tidelog.formats.leader_epochs import EpochEntry
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache

THREE = ((2, 6), (3, 8), (4, 11))


def cache_of(directory: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache(directory)
    for entry in entries:
        cache.assign(*entry)
    return cache


def text(directory: Path) -> str:
    return (directory / "leader-epoch-checkpoint").read_text()


class TestAssign:
    @pytest.mark.parametrize(
        ("assigned", "left"),
        [
            pytest.param([(2, 10)], [(2, 10)], id="shouldAddEpochAndMessageOffsetToCache"),
            pytest.param([(2, 9), (2, 10)], [(2, 9)], id="shouldNotOverwriteLogEndOffsetForALeaderEpochOnceItHasBeenAssigned"),
            pytest.param([(2, 6), (2, 7)], [(2, 6)], id="shouldNotOverwriteOffsetForALeaderEpochOnceItHasBeenAssigned"),
            pytest.param([(2, 6), (2, 6)], [(2, 6)], id="shouldNotUpdateEpochAndStartOffsetIfItDidNotChange"),
            pytest.param([(2, 9), (3, 9)], [(3, 9)], id="shouldEnforceMonotonicallyIncreasingStartOffsets"),
            pytest.param([(1, 5), (2, 6), (1, 7)], [(1, 7)], id="shouldEnforceMonotonicallyIncreasingEpochs"),
            pytest.param([(2, 6), (3, 5)], [(3, 5)], id="shouldEnforceOffsetsIncreaseMonotonically"),
            pytest.param([(2, 6), (2, 5)], [(2, 5)], id="shouldTruncateIfMatchingEpochButEarlierStartingOffset"),
            pytest.param([(0, 0), (1, 0), (2, 0), (5, 7)], [(2, 0), (5, 7)], id="no record was written in an epoch"),
        ],
    )
    def test_written_through(self, tmp_path: Path, assigned: list[tuple[int, int]], left: list[tuple[int, int]]) -> None:
        """LeaderEpochFileCacheTest: the names above; shouldPersistEpochsBetweenInstances: all of them again from the file"""
        cache = cache_of(tmp_path, *assigned)
        assert list(cache.entries) == left
        assert list(LeaderEpochCache(tmp_path).entries) == left
        assert text(tmp_path) == f"0\n{len(left)}\n" + "".join(f"{epoch} {start}\n" for epoch, start in left)

    def test_written_only_when_the_epoch_changes(self, tmp_path: Path) -> None:
        cache = cache_of(tmp_path, (2, 6))
        cache.path.unlink()
        assert not cache.assign(2, 6) and not cache.assign(2, 900)
        assert not cache.assign_all([EpochEntry(2, 7), EpochEntry(2, 11)])
        assert not cache.path.exists()
        assert cache.assign_all([EpochEntry(2, 12), EpochEntry(3, 13), EpochEntry(4, 20)])
        assert text(tmp_path) == "0\n3\n2 6\n3 13\n4 20\n"

    def test_the_file_may_be_named(self, tmp_path: Path) -> None:
        cache_of(tmp_path, (2, 6))
        assert LeaderEpochCache(tmp_path / "leader-epoch-checkpoint").entries == ((2, 6),)

    def test_negative_values_are_refused(self, tmp_path: Path) -> None:
        cache = LeaderEpochCache(tmp_path)
        for epoch, start in ((-1, 0), (0, -1)):
            with pytest.raises(InvalidArgumentError):
                cache.assign(epoch, start)
        assert cache.is_empty and not cache.path.exists()

    def test_what_could_not_be_written_is_written_the_next_time(self, tmp_path: Path) -> None:
        cache = LeaderEpochCache(tmp_path / "later")
        with pytest.raises(StorageError):
            cache.assign(3, 5)
        (tmp_path / "later").mkdir()
        assert not cache.assign(3, 9)
        assert text(tmp_path / "later") == "0\n1\n3 5\n"

    def test_a_damaged_file(self, tmp_path: Path) -> None:
        (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n1 5\n")
        with pytest.raises(CorruptCheckpointError):
            LeaderEpochCache(tmp_path)
        rebuilt = LeaderEpochCache(tmp_path, entries=[EpochEntry(1, 5)])
        rebuilt.assign(2, 9)
        assert text(tmp_path) == "0\n2\n1 5\n2 9\n"


class TestAnswers:
    def test_end_offset_for(self, tmp_path: Path) -> None:
        """LeaderEpochFileCacheTest.shouldReturnLogEndOffsetIfLatestEpochRequested,
        shouldReturnUndefinedOffsetIfUndefinedEpochRequested, shouldReturnUnsupportedIfNoEpochRecorded,
        shouldReturnUnsupportedIfNoEpochRecordedAndUndefinedEpochRequested,
        shouldReturnFirstEpochIfRequestedEpochLessThanFirstEpoch,
        shouldGetFirstOffsetOfSubsequentEpochWhenOffsetRequestedForPreviousEpoch,
        shouldReturnNextAvailableEpochIfThereIsNoExactEpochForTheOneRequested,
        shouldReturnInvalidOffsetIfEpochIsRequestedWhichIsNotCurrentlyTracked, shouldSupportEpochsThatDoNotStartFromZero"""

        def answer(entries: list[tuple[int, int]], epoch: int, end: int) -> tuple[int, int]:
            cache = LeaderEpochCache(tmp_path, entries=[EpochEntry(*entry) for entry in entries])
            return cache.end_offset_for(epoch, end)

        assert answer([(2, 11)], 2, 14) == (2, 14)
        assert answer([(2, 11), (3, 12)], -1, 14) == (-1, -1)
        assert answer([], 0, 0) == answer([], -1, 73) == (-1, -1)
        assert answer([(5, 11), (6, 12), (7, 13)], 4, 14) == (4, 11)
        assert answer([(1, 11), (2, 13), (3, 15)], 2, 17) == (2, 15)
        assert [answer([(0, 10), (2, 13), (4, 17)], epoch, 20) for epoch in (1, 2, 3)] == [(0, 13), (2, 17), (2, 17)]
        assert answer([(2, 100)], 3, 100) == (-1, -1)
        assert answer([(2, 6)], 2, 7) == (2, 7)

    def test_should_increase_and_track_epochs_as_leaders_change_many_times(self, tmp_path: Path) -> None:
        """LeaderEpochFileCacheTest.shouldIncreaseAndTrackEpochsAsLeadersChangeManyTimes"""
        cache = cache_of(tmp_path, (0, 0), (1, 0))
        assert cache.latest_epoch == 1
        assert cache.end_offset_for(1, 0) == (1, 0) and cache.end_offset_for(0, 0) == (0, 0)
        cache.assign(2, 5)
        assert [cache.end_offset_for(epoch, 7) for epoch in (0, 1, 2)] == [(0, 0), (1, 5), (2, 7)]

    def test_should_increase_and_track_epochs_as_follower_receives_many_messages(self, tmp_path: Path) -> None:
        """LeaderEpochFileCacheTest.shouldIncreaseAndTrackEpochsAsFollowerReceivesManyMessages"""
        cache = LeaderEpochCache(tmp_path)
        for epoch, offsets in ((0, range(3)), (1, range(3, 6)), (2, range(6, 9))):
            for offset in offsets:
                cache.assign(epoch, offset)
            assert cache.end_offset_for(epoch, offsets.stop) == (epoch, offsets.stop)
        assert cache.entries == ((0, 0), (1, 3), (2, 6))
        assert [cache.end_offset_for(epoch, 9) for epoch in (0, 1, 2)] == [(0, 3), (1, 6), (2, 9)]

    def test_should_fetch_epoch_for_given_offset(self, tmp_path: Path) -> None:
        """LeaderEpochFileCacheTest.shouldFetchEpochForGivenOffset, shouldFetchEpochForOffsetOfEmptyCache"""
        assert LeaderEpochCache(tmp_path).epoch_for_offset(5) is None
        cache = cache_of(tmp_path, (0, 10), (1, 20), (5, 30))
        assert [cache.epoch_for_offset(offset) for offset in (25, 20, 30, 50, 5)] == [1, 1, 5, 5, None]

    def test_neighbours(self, tmp_path: Path) -> None:
        """LeaderEpochFileCacheTest.testPreviousEpoch, testGetEpochEntry"""
        cache = LeaderEpochCache(tmp_path)
        assert cache.previous_epoch is cache.latest_epoch is cache.latest is cache.earliest is None
        assert cache.entry(3) is None
        cache.assign(2, 6)
        assert cache.previous_epoch is None
        cache.assign(4, 11)
        assert cache.previous_epoch == 2
        cache.assign(10, 20)
        assert cache.previous_epoch == 4
        assert [cache.entry(epoch) for epoch in (2, 3, 10)] == [(2, 6), None, (10, 20)]
        cache.truncate_from_end(18)
        assert cache.previous_epoch == 2 and cache.latest == (4, 11) and cache.earliest == (2, 6)


class TestTruncation:
    @pytest.mark.parametrize(
        ("end", "left"),
        [
            pytest.param(8, THREE[:1], id="shouldDropEntriesOnEpochBoundaryWhenRemovingLatestEntries"),
            pytest.param(9, THREE[:2], id="shouldTruncateOnAnyOffsetInAnEpoch"),
            pytest.param(-1, THREE, id="shouldNotResetEpochHistoryHeadIfUndefinedPassed"),
            pytest.param(12, THREE, id="after all"),
            pytest.param(6, (), id="all"),
        ],
    )
    def test_from_the_end(self, tmp_path: Path, end: int, left: tuple[tuple[int, int], ...]) -> None:
        """LeaderEpochFileCacheTest: the names above; shouldWriteCheckpointOnTruncation"""
        cache = cache_of(tmp_path, *THREE)
        cache.truncate_from_end(end)
        assert cache.entries == left == LeaderEpochCache(tmp_path).entries

    @pytest.mark.parametrize(
        ("start", "left"),
        [
            pytest.param(8, THREE[1:], id="shouldPreserveResetOffsetOnClearEarliestIfOneExists"),
            pytest.param(9, ((3, 9), (4, 11)), id="shouldUpdateSavedOffsetWhenOffsetToClearToIsBetweenEpochs"),
            pytest.param(1, THREE, id="shouldNotClearAnythingIfOffsetToEarly"),
            pytest.param(6, THREE, id="shouldNotClearAnythingIfOffsetToFirstOffset"),
            pytest.param(11, ((4, 11),), id="shouldRetainLatestEpochOnClearAllEarliest"),
            pytest.param(15, ((4, 15),), id="shouldRetainLatestEpochOnClearAllEarliestAndUpdateItsOffset"),
            pytest.param(-1, THREE, id="shouldNotResetEpochHistoryTailIfUndefinedPassed"),
        ],
    )
    def test_from_the_start(self, tmp_path: Path, start: int, left: tuple[tuple[int, int], ...]) -> None:
        """LeaderEpochFileCacheTest: the names above; shouldWriteCheckpointOnTruncation"""
        cache = cache_of(tmp_path, *THREE)
        cache.truncate_from_start(start)
        assert cache.entries == left == LeaderEpochCache(tmp_path).entries

    def test_should_update_offset_between_epoch_boundaries_on_clear_earliest(self, tmp_path: Path) -> None:
        """LeaderEpochFileCacheTest.shouldUpdateOffsetBetweenEpochBoundariesOnClearEarliest,
        shouldUpdateOffsetBetweenEpochBoundariesOnClearEarliest2"""
        cache = cache_of(tmp_path, (0, 0), (1, 7), (2, 10))
        cache.truncate_from_start(5)
        assert cache.entries == ((0, 5), (1, 7), (2, 10))

    def test_should_clear_all_entries(self, tmp_path: Path) -> None:
        """LeaderEpochFileCacheTest.shouldClearAllEntries"""
        cache = cache_of(tmp_path, *THREE)
        cache.clear()
        assert cache.is_empty and LeaderEpochCache(tmp_path).entries == THREE
        cache.clear_and_flush()
        assert cache.is_empty and text(tmp_path) == "0\n0\n"

    def test_an_empty_cache(self, tmp_path: Path) -> None:
        """LeaderEpochFileCacheTest.shouldClearEarliestOnEmptyCache, shouldClearLatestOnEmptyCache"""
        cache = LeaderEpochCache(tmp_path)
        cache.truncate_from_start(7)
        cache.truncate_from_end(7)
        assert cache.is_empty and not cache.path.exists()


class TestDeferred:
    def test_cleared_later(self, tmp_path: Path) -> None:
        """Nobody's disk is waited for where there is somebody to write; else at once."""
        waiting: list[Callable[[], None]] = []
        cache_of(tmp_path, *THREE)
        cache = LeaderEpochCache(tmp_path, defer=waiting.append)
        cache.clear_soon()
        assert cache.is_empty and cache.is_unwritten and LeaderEpochCache(tmp_path).entries == THREE
        (write,) = waiting
        write()
        assert text(tmp_path) == "0\n0\n" and not cache.is_unwritten
        at_once = cache_of(tmp_path, *THREE)
        at_once.clear_soon()
        assert text(tmp_path) == "0\n0\n"

    def test_written_later_and_once(self, tmp_path: Path) -> None:
        waiting: list[Callable[[], None]] = []
        cache_of(tmp_path, *THREE)
        cache = LeaderEpochCache(tmp_path, defer=waiting.append)
        cache.truncate_from_end(11)
        cache.truncate_from_start(7)
        assert cache.entries == ((2, 7), (3, 8)) and len(waiting) == 1
        assert LeaderEpochCache(tmp_path).entries == THREE
        waiting.pop()()
        assert LeaderEpochCache(tmp_path).entries == ((2, 7), (3, 8))
        cache.truncate_from_end(8)
        assert len(waiting) == 1
        cache.flush()
        assert LeaderEpochCache(tmp_path).entries == ((2, 7),)

    def test_an_assignment_does_not_wait(self, tmp_path: Path) -> None:
        waiting: list[Callable[[], None]] = []
        cache = LeaderEpochCache(tmp_path, defer=waiting.append)
        cache.assign(1, 0)
        cache.truncate_from_start(3)
        cache.assign(2, 5)
        assert LeaderEpochCache(tmp_path).entries == ((1, 3), (2, 5))
        cache.path.unlink()
        waiting.pop()()
        assert not cache.path.exists()

    def test_a_folder_renamed_or_gone(self, tmp_path: Path) -> None:
        waiting: list[Callable[[], None]] = []
        old, new = tmp_path / "old", tmp_path / "new"
        old.mkdir()
        cache = LeaderEpochCache(old, defer=waiting.append)
        cache.assign(1, 0)
        cache.truncate_from_start(3)
        old.rename(new)
        cache.update_parent_dir(new)
        waiting.pop()()
        assert LeaderEpochCache(new).entries == ((1, 3),)
        cache.truncate_from_start(4)
        cache.path.unlink()
        new.rmdir()
        waiting.pop()()
        assert list(tmp_path.iterdir()) == []
