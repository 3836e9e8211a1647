"""The segments of a log, by base offset: LogSegmentsTest, and a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fields import check_fields
from tests.storage.segment_files import messages, open_descriptors, open_segment, put
from tidelog.errors import InvalidArgumentError, NotFoundError
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.log_segments import LogSegments


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[LogSegment]]:
    """Segments with the base offsets 1, 3, 5 and 7."""
    segments = [open_segment(tmp_path, base) for base in (1, 3, 5, 7)]
    yield segments
    for segment in segments:
        segment.close_handlers()


def test_basic_operations(made: list[LogSegment]) -> None:
    """LogSegmentsTest.testBasicOperations"""
    one, two = made[0], made[1]
    segments = LogSegments()
    assert not segments
    assert len(segments) == 0
    check_fields(segments, first=None, last=None, size_bytes=0)
    with pytest.raises(NotFoundError):
        _ = segments.active
    with pytest.raises(NotFoundError):
        segments.non_active_from(0)
    assert segments.add(one) is None
    assert (len(segments), bool(segments), 1 in segments, segments.get(1)) == (1, True, True, one)
    assert segments.first is segments.last is segments.active is one
    assert segments.add(two) is None
    assert (segments.base_offsets, segments.first, segments.last) == ([1, 3], one, two)
    assert segments.remove(1) is one
    assert segments.remove(1) is None
    assert (segments.base_offsets, 1 in segments, segments.get(1)) == ([3], False, None)
    segments.clear()
    assert not segments


def test_add_in_the_place_of_another(made: list[LogSegment], tmp_path: Path) -> None:
    """LogSegmentsTest.testBasicOperations: the segment that had the base offset is given back"""
    segments = LogSegments(made)
    other = open_segment(tmp_path, 3, suffix=".cleaned")
    assert segments.add(other) is made[1]
    assert (len(segments), segments.get(3)) == (4, other)
    other.close_handlers()


def test_segment_access(made: list[LogSegment]) -> None:
    """LogSegmentsTest.testSegmentAccess"""
    one, three, five, seven = made
    segments = LogSegments([five, one, seven, three])
    assert list(segments) == segments.values() == made
    assert segments.values(1, 8) == made
    assert segments.values(2, 4) == [one, three]  # from the one that holds 2
    assert segments.values(0, 4) == [one, three]
    assert segments.values(3, 5) == [three]
    assert segments.values(6) == [five, seven]
    assert segments.values(to_offset=3) == [one]
    assert segments.values(3, 3) == []
    assert segments.values(100, 200) == [seven]
    with pytest.raises(InvalidArgumentError):
        segments.values(2, 1)
    assert segments.non_active_from(0) == [one, three, five]
    assert segments.non_active_from(4) == [three, five]
    assert segments.non_active_from(5) == [five]
    assert segments.non_active_from(7) == []
    assert segments.non_active_from(8) == []
    assert segments.filter(lambda segment: segment.base_offset > 4) == [five, seven]


def test_closest_match_operations(made: list[LogSegment]) -> None:
    """LogSegmentsTest.testClosestMatchOperations"""
    one, three, five, seven = made
    segments = LogSegments(made)
    assert [segments.floor(offset) for offset in (0, 1, 2, 7, 8)] == [None, one, one, seven, seven]
    assert [segments.lower(offset) for offset in (1, 2, 3, 8)] == [None, one, one, seven]
    assert [segments.higher(offset) for offset in (0, 1, 2, 4, 7)] == [one, three, three, five, None]


def test_higher_segments(made: list[LogSegment]) -> None:
    """LogSegmentsTest.testHigherSegments"""
    _, three, five, seven = made
    segments = LogSegments(made)

    def above(offset: int) -> list[LogSegment]:
        found = segments.higher(offset)
        return [] if found is None else [found, *above(found.base_offset)]

    assert above(0) == made
    assert above(1) == above(2) == [three, five, seven]
    assert above(6) == [seven]
    assert above(7) == above(9) == []


def test_size_for_large_logs(made: list[LogSegment]) -> None:
    """LogSegmentsTest.testSizeForLargeLogs: more than an int32 says"""
    for segment in made:
        segment.log.size_bytes = 2**31 - 1
    assert LogSegments(made).size_bytes == 4 * (2**31 - 1)
    for segment in made:
        segment.log.size_bytes = 0


def test_update_dir(tmp_path: Path) -> None:
    """LogSegmentsTest.testUpdateDir"""
    folder, moved = tmp_path / "log-0", tmp_path / "moved-0"
    folder.mkdir()
    segments = LogSegments((open_segment(folder, base) for base in (0, 10)), directory=folder)
    folder.rename(moved)
    segments.update_parent_dir(moved)
    assert segments.directory == moved
    assert {path.parent for segment in segments for path in segment.paths} == {moved}
    for segment in segments:
        put(segment, messages(segment.base_offset, "a"), messages(segment.base_offset + 1, "b"))
    segments.close()
    assert sorted(path.parent for path in moved.iterdir()) == [moved] * 6


def test_segments_may_go_while_they_are_walked_through(made: list[LogSegment]) -> None:
    segments = LogSegments(made)
    for segment in segments:
        segments.remove(segment.base_offset)
    assert not segments


def test_descriptors_of_segments_that_are_not_active(tmp_path: Path) -> None:
    before = open_descriptors()
    segments = LogSegments()
    for base in (0, 10, 20):
        segment = open_segment(tmp_path, base)
        put(segment, messages(base, "a"), messages(base + 1, "b"))
        if base < 20:
            segment.on_become_inactive()
        segments.add(segment)
    active = 3
    assert open_descriptors() == before + 2 + active
    segments.flush()
    segments.close_idle()
    assert open_descriptors() == before + active
    assert [segment.read_next_offset() for segment in segments] == [2, 12, 22]
    segments.close()
    assert open_descriptors() == before
    segments.close_handlers()


@examples(60)
@given(bases=st.sets(st.integers(0, 30), max_size=12), removed=st.sets(st.integers(0, 30)), data=st.data())
def test_against_a_sorted_list(
    tmp_path_factory: pytest.TempPathFactory, bases: set[int], removed: set[int], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("log")
    made = {base: open_segment(folder, base) for base in bases}
    segments = LogSegments()
    for base in data.draw(st.permutations(sorted(bases))):
        segments.add(made[base])
    for base in removed:
        assert segments.remove(base) is made.get(base)
    kept = sorted(bases - removed)
    assert segments.base_offsets == [segment.base_offset for segment in segments] == kept
    for offset in range(-1, 32):
        below, above = [base for base in kept if base <= offset], [base for base in kept if base > offset]
        floor, lower, higher = segments.floor(offset), segments.lower(offset), segments.higher(offset)
        assert (floor and floor.base_offset) == (below[-1] if below else None)
        assert (lower and lower.base_offset) == max((base for base in kept if base < offset), default=None)
        assert (higher and higher.base_offset) == (above[0] if above else None)
        for end in range(offset, 32, 7):
            expected = [] if end == offset else [base for base in kept if (below[-1:] or [offset])[0] <= base < end]
            assert [segment.base_offset for segment in segments.values(offset, end)] == expected
    for segment in made.values():
        segment.close_handlers()
