"""Leader epochs: LeaderEpochFileCacheTest."""

from __future__ import annotations

import pytest

from tidelog.errors import InvalidArgumentError
from tidelog.formats.leader_epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    found = LeaderEpochs()
    for entry in entries:
        found.assign(*entry)
    return found


def test_should_add_epoch_and_message_offset_to_cache() -> None:
    """LeaderEpochFileCacheTest.shouldAddEpochAndMessageOffsetToCache"""
    assert epochs((2, 10)).entries == [(2, 10)]
    assert epochs((2, 10)).end_offset_for(2, 11) == (2, 11)


def test_should_return_log_end_offset_if_latest_epoch_requested() -> None:
    """LeaderEpochFileCacheTest.shouldReturnLogEndOffsetIfLatestEpochRequested"""
    assert epochs((2, 11), (2, 12)).end_offset_for(2, 14) == (2, 14)


def test_should_return_undefined() -> None:
    """LeaderEpochFileCacheTest.shouldReturnUndefinedOffsetIfUndefinedEpochRequested, shouldReturnUnsupportedIfNoEpochRecorded,
    shouldReturnUnsupportedIfNoEpochRecordedAndUndefinedEpochRequested,
    shouldReturnInvalidOffsetIfEpochIsRequestedWhichIsNotCurrentlyTracked"""
    assert epochs((2, 11), (3, 12)).end_offset_for(-1, 14) == (-1, -1)
    assert epochs().end_offset_for(0, 0) == (-1, -1)
    assert epochs().end_offset_for(-1, 73) == (-1, -1)
    assert epochs((2, 100)).end_offset_for(3, 100) == (-1, -1)


def test_should_not_overwrite_log_end_offset_for_a_leader_epoch_once_it_has_been_assigned() -> None:
    """LeaderEpochFileCacheTest.shouldNotOverwriteLogEndOffsetForALeaderEpochOnceItHasBeenAssigned,
    shouldNotOverwriteOffsetForALeaderEpochOnceItHasBeenAssigned, shouldNotUpdateEpochAndStartOffsetIfItDidNotChange"""
    assert epochs((2, 9), (2, 10)).entries == [(2, 9)]
    assert epochs((2, 6), (2, 7)).entries == [(2, 6)]
    again = epochs((2, 6))
    assert not again.assign(2, 6) and not again.assign(2, 7)


def test_should_enforce_monotonically_increasing_start_offsets() -> None:
    """LeaderEpochFileCacheTest.shouldEnforceMonotonicallyIncreasingStartOffsets"""
    assert epochs((2, 9), (3, 9)).entries == [(3, 9)]


def test_should_enforce_monotonically_increasing_epochs() -> None:
    """LeaderEpochFileCacheTest.shouldTruncateIfMatchingEpochButEarlierStartingOffset: what contradicts is dropped from the
    tail"""
    assert epochs((1, 5), (2, 6), (1, 7)).entries == [(1, 7)]
    assert epochs((2, 6), (3, 5)).entries == [(3, 5)]
    assert epochs((2, 6), (2, 5)).entries == [(2, 5)]


def test_should_return_first_epoch_if_requested_epoch_less_than_first_epoch() -> None:
    """LeaderEpochFileCacheTest.shouldReturnFirstEpochIfRequestedEpochLessThanFirstEpoch"""
    assert epochs((5, 11), (6, 12), (7, 13)).end_offset_for(4, 14) == (4, 11)


def test_should_get_first_offset_of_subsequent_epoch_when_offset_requested_for_previous_epoch() -> None:
    """LeaderEpochFileCacheTest.shouldGetFirstOffsetOfSubsequentEpochWhenOffsetRequestedForPreviousEpoch"""
    assert epochs((1, 11), (1, 12), (2, 13), (2, 14), (3, 15), (3, 16)).end_offset_for(2, 17) == (2, 15)
    later = epochs((5, 11), (6, 12), (7, 12))
    assert later.end_offset_for(5, 13) == (5, 12)


def test_should_return_next_available_epoch_if_there_is_no_exact_epoch_for_the_one_requested() -> None:
    """LeaderEpochFileCacheTest.shouldReturnNextAvailableEpochIfThereIsNoExactEpochForTheOneRequested"""
    some = epochs((0, 10), (2, 13), (4, 17))
    assert [some.end_offset_for(epoch, 20) for epoch in (1, 2, 3)] == [(0, 13), (2, 17), (2, 17)]


def test_entries_at_the_same_start() -> None:
    """LeaderEpochFileCacheTest: (0,0), (1,0)"""
    some = epochs((0, 0), (1, 0))
    assert some.end_offset_for(1, 0) == (1, 0) and some.end_offset_for(0, 0) == (0, 0)


def test_truncation() -> None:
    """LeaderEpochFileCacheTest.shouldDropEntriesOnEpochBoundaryWhenRemovingLatestEntries and its siblings, to
    shouldNotResetEpochHistoryTailIfUndefinedPassed"""
    three = [(2, 6), (3, 8), (4, 11)]
    for end, left in {8: three[:1], 9: three[:2], -1: three, 12: three}.items():
        some = epochs(*three)
        some.truncate_from_end(end)
        assert some.entries == left
    starts = {8: three[1:], 9: [(3, 9), (4, 11)], 1: three, 6: three, 11: [(4, 11)], 15: [(4, 15)], -1: three}
    for start, left in starts.items():
        some = epochs(*three)
        some.truncate_from_start(start)
        assert some.entries == left
    some = epochs((0, 0), (1, 7), (2, 10))
    some.truncate_from_start(5)
    assert some.entries == [(0, 5), (1, 7), (2, 10)]


def test_should_clear_all_entries() -> None:
    """LeaderEpochFileCacheTest.shouldClearAllEntries"""
    some = epochs((2, 6), (3, 8))
    some.clear()
    assert some.entries == [] and some.latest is None and some.earliest is None


def test_should_fetch_epoch_for_given_offset() -> None:
    """LeaderEpochFileCacheTest.shouldFetchEpochForGivenOffset"""
    some = epochs((0, 10), (1, 20), (5, 30))
    assert [some.epoch_for_offset(offset) for offset in (25, 20, 30, 50, 5)] == [1, 1, 5, 5, None]


def test_negative_values_are_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        epochs((-1, 0))
    with pytest.raises(InvalidArgumentError):
        epochs((0, -1))
