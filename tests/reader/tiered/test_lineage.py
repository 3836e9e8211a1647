"""Which remote segments are read, and how far: the table of `lineage`, and random histories of leaders beside a plain oracle."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.metadata.remote_log_records import SegmentState
from tidelog.reader.tiered.lineage import agreed_end, chosen_segments, newest_of
from tidelog.reader.tiered.remote_segments import RemoteSegment, TopicIdPartition

PARTITION = TopicIdPartition("orders", uuid.UUID(int=1), 0)


def segment(start: int, end: int, *epochs: tuple[int, int], number: int = 0) -> RemoteSegment:
    """A segment with offsets from `start` to `end`, both included."""
    entries = tuple(EpochEntry(*entry) for entry in epochs)
    state = SegmentState.COPY_SEGMENT_FINISHED
    return RemoteSegment(PARTITION, uuid.UUID(int=number), start, end, 0, entries, 100, None, state, 1, 0)


def lineage(*epochs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochEntry(*entry) for entry in epochs)


@pytest.mark.parametrize(
    ("one", "log", "end"),
    [
        (segment(0, 99, (0, 0)), lineage((0, 0)), 100),
        (segment(0, 99, (0, 0)), lineage((0, 0), (1, 100)), 100),
        (segment(0, 99, (0, 0)), lineage((0, 0), (1, 80)), 80),
        (segment(0, 99, (0, 0), (2, 50)), lineage((0, 0), (1, 50)), 50),
        (segment(0, 99, (1, 0)), lineage((0, 0), (2, 50)), 0),
        (segment(0, 99, (0, 0), (1, 40)), lineage((1, 60)), 100),
        (segment(0, 99, (3, 0)), lineage(), 100),
        # An epoch without records, in either, changes nothing.
        (segment(0, 99, (0, 0), (1, 50), (2, 50)), lineage((0, 0), (2, 50)), 100),
        (segment(0, 99, (0, 0), (2, 50)), lineage((0, 0), (1, 50), (2, 50)), 100),
        # All of it was deleted.
        (segment(0, 99, (0, 0)), lineage((0, 100)), 0),
        # The log learned of a later epoch than the segment's, and before.
        (segment(50, 99, (0, 50)), lineage((1, 20)), 50),
    ],
)
def test_how_far_a_segment_agrees(one: RemoteSegment, log: LeaderEpochs, end: int) -> None:
    assert agreed_end(one, log) == end


def test_overlaps_are_read_once_and_gaps_stay() -> None:
    segments = [segment(0, 99, (0, 0)), segment(50, 149, (0, 50)), segment(60, 70, (0, 60)), segment(200, 249, (0, 200))]
    found = chosen_segments(segments, lineage((0, 0)), 240)
    assert [(one.segment.start_offset, one.next_offset, one.is_cut) for one in found] == [
        (0, 50, True),
        (50, 150, False),
        (200, 240, True),
    ]
    assert chosen_segments(segments, lineage((0, 0)), 0) == []
    assert [one.segment.start_offset for one in chosen_segments(segments, lineage((0, 0)), None, log_start=150)] == [200]
    assert newest_of(segments) == segments[-1]
    assert newest_of([]) is None


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[RemoteSegment], LeaderEpochs, dict[int, int], int, int]:
    """Segments that leaders copied, some of what was truncated later; the log's epochs, and the epoch of each offset."""
    log: dict[int, int] = {}
    segments: list[RemoteSegment] = []
    for epoch in range(draw(st.integers(1, 5))):
        end = max(log, default=-1) + 1
        # An unclean election truncates.
        end = draw(st.integers(max(0, end - 6), end))
        log = {offset: known for offset, known in log.items() if offset < end}
        for offset in range(end, end + draw(st.integers(0, 12))):
            log[offset] = epoch
        for _ in range(draw(st.integers(0, 4))):
            if log:
                start = draw(st.integers(0, max(log)))
                last = draw(st.integers(start, max(log)))
                segments.append(segment(start, last, *_epochs(log, start, last), number=len(segments)))
    assume(log)
    log_start = draw(st.integers(0, max(log)))
    local = draw(st.integers(log_start, max(log) + 1))  # A folder has its log's end.
    return segments, lineage(*_epochs(log, log_start, max(log))), log, log_start, local


def _epochs(log: dict[int, int], start: int, last: int) -> list[tuple[int, int]]:
    found: dict[int, int] = {}
    for offset in range(start, last + 1):
        found.setdefault(log[offset], offset)
    return list(found.items())


@examples(300)
@given(histories())
def test_each_offset_is_read_once_where_a_segment_has_it(
    history: tuple[list[RemoteSegment], LeaderEpochs, dict[int, int], int, int],
) -> None:
    segments, epochs, log, log_start, local = history
    covered: set[int] = set()
    for one in segments:
        own = LeaderEpochs(one.epochs)
        for offset in range(max(one.start_offset, log_start), one.end_offset + 1):
            if log.get(offset) != own.epoch_for_offset(offset):
                break  # What follows a record of another history is of that history, too.
            covered.add(offset)
    read = [
        offset
        for one in chosen_segments(segments, epochs, local, log_start)
        for offset in range(max(one.segment.start_offset, log_start), one.next_offset)
    ]
    assert read == sorted(set(read))
    assert set(read) == {offset for offset in covered if offset < local}
