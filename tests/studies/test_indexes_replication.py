"""Option 3's index between replicas against a model that knows no replicas, only times."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.indexes.replicated import Replica, TimeEntry, decode, encode, entry_overhead_bytes
from studies.indexes.replication import (
    DOWN_MS,
    HISTORIES,
    RETENTION_MS,
    ROLL_MS,
    Arrival,
    History,
    arrivals,
    deletions,
    retention_mistakes,
    roll_after,
    simulate,
    with_true_first,
)
from studies.workload import DAY_MS, HOUR_MS, MINUTE_MS
from tests.examples import examples
from tidelog.errors import InvalidArgumentError
from tidelog.storage.partition.retention import SegmentFacts

Index = list[tuple[int, tuple[TimeEntry, ...]]]


def model(appended: list[tuple[int, int]], roll_ms: int) -> Index:
    """Return the index of a leader that appended (time, records): segments by their first time, then the three entries."""
    segments: list[list[tuple[int, int, int]]] = []
    offset = latest = 0
    for now_ms, records in appended:
        latest = max(latest, now_ms)
        if not segments or latest - segments[-1][0][0] > roll_ms:
            segments.append([])
        segments[-1].append((latest, offset, records))
        offset += records
    index: Index = []
    for segment in segments:
        wanted: dict[int, int] = {}
        minutes: set[int] = set()
        for time, first, _ in segment:
            if time // MINUTE_MS not in minutes:
                minutes.add(time // MINUTE_MS)
                wanted[first] = time
        if segment is not segments[-1]:
            time, first, records = segment[-1]
            wanted[first + records - 1] = time
        index.append((segment[0][1], tuple(TimeEntry(time, first) for first, time in sorted(wanted.items()))))
    return index


APPENDED = st.lists(st.tuples(st.integers(-30_000, 90_000), st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=60)


@examples(60)
@given(APPENDED, st.integers(60_000, 600_000), st.integers(1, 2_000))
def test_leader_and_follower_have_the_models_index(steps: list[tuple[int, int, int]], roll_ms: int, max_bytes: int) -> None:
    leader, follower = Replica(roll_ms), Replica(roll_ms)
    now_ms, appended = 10**9, []
    for gap_ms, records, fetches in steps:
        now_ms += gap_ms
        leader.append(records, 100 * records, now_ms)
        appended.append((now_ms, records))
        for _ in range(fetches):
            follower.take(leader.fetch(follower.end_offset, max_bytes, with_closing=True))
    while follower.end_offset < leader.end_offset:
        follower.take(leader.fetch(follower.end_offset, max_bytes, with_closing=True))
    assert leader.index == model(appended, roll_ms) == follower.index
    assert [part.batches for part in follower.parts] == [part.batches for part in leader.parts]


def test_a_follower_that_keeps_up_never_gets_the_last_entry_of_the_text() -> None:
    leader, follower = Replica(roll_ms=HOUR_MS), Replica(roll_ms=HOUR_MS)
    for now_ms in (0, 1_000, 2_000, HOUR_MS + 1):
        leader.append(1, 100, now_ms)
        follower.take(leader.fetch(follower.end_offset, 1_000, with_closing=False))
    assert leader.index == [(0, (TimeEntry(0, 0), TimeEntry(2_000, 2))), (3, (TimeEntry(HOUR_MS + 1, 3),))]
    assert follower.index == [(0, (TimeEntry(0, 0),)), (3, (TimeEntry(HOUR_MS + 1, 3),))]
    assert (leader.largest(0), follower.largest(0)) == (2_000, 0)  # two seconds too early


def test_truncation_cuts_entries_too() -> None:
    replica = Replica(roll_ms=HOUR_MS)
    for now_ms in (0, MINUTE_MS, 2 * MINUTE_MS, HOUR_MS + MINUTE_MS):
        replica.append(2, 100, now_ms)
    replica.truncate_to(3)  # inside the second batch, which goes as a whole
    assert replica.end_offset == 2
    assert replica.index == [(0, (TimeEntry(0, 0),))]
    kept = Replica(roll_ms=HOUR_MS)
    for now_ms in (0, MINUTE_MS):
        kept.append(1, 100, now_ms)
    kept.truncate_to(1, entries_too=False)
    assert kept.index == [(0, (TimeEntry(0, 0), TimeEntry(MINUTE_MS, 1)))]


def test_rebuilt_entries_say_when_they_were_rebuilt() -> None:
    replica = Replica(roll_ms=HOUR_MS)
    for now_ms in (0, MINUTE_MS, 2 * HOUR_MS, 2 * HOUR_MS + MINUTE_MS):
        replica.append(1, 100, now_ms)
    replica.rebuild(5 * HOUR_MS, parts=9)
    assert replica.index == [(0, (TimeEntry(5 * HOUR_MS, 0), TimeEntry(5 * HOUR_MS, 1))), (2, (TimeEntry(5 * HOUR_MS, 2),))]


class TestWire:
    def test_layout(self) -> None:
        data = encode(b"set", [TimeEntry(7, 0), TimeEntry(9, -1)], 42)
        assert data == struct.pack(">hqi", 0, 42, 3) + b"set" + struct.pack(">iqiqi", 2, 7, 0, 9, -1)
        assert decode(data) == (b"set", (TimeEntry(7, 0), TimeEntry(9, -1)), 42)
        assert entry_overhead_bytes(2) == len(data) - len(struct.pack(">hqi", 0, 42, 3)) - 3

    def test_a_consumer_gets_none(self) -> None:
        assert decode(encode(b"set", [TimeEntry(7, 0)], 42, is_follower=False)) == (b"set", (), 42)

    def test_broken(self) -> None:
        with pytest.raises(InvalidArgumentError):
            decode(encode(b"set", [TimeEntry(7, 0)], 42)[:-1])


class TestRetention:
    @given(st.lists(st.integers(0, 10 * DAY_MS), min_size=1, max_size=8), st.integers(0, 12 * DAY_MS))
    @examples(60)
    def test_deletions_are_those_of_a_check_at_every_moment(self, last: list[int], from_ms: int) -> None:
        facts = [SegmentFacts(10 * i, 10 * i + 10, 100, i == len(last) - 1) for i in range(len(last))]
        told = deletions(facts, lambda base: last[base // 10], from_ms)
        # The oldest first: a segment goes when it and all before it are old enough.
        expected = {10 * i: max(from_ms, max(last[: i + 1]) + RETENTION_MS + 1) for i in range(len(last))}
        assert told == expected

    def test_rebuilt_times_keep_segments_from_their_last_message_to_the_rebuild(self) -> None:
        coming = arrivals(0.05)
        outcome = simulate(coming, HISTORIES["follower crashes, every segment rebuilt"])
        mistakes = retention_mistakes(outcome, outcome.recovered_ms)
        first = outcome.replica.parts[0]
        last = max(time for offset, time in outcome.append_ms.items() if offset < first.end_offset)
        # By its true time the first segment goes as soon as retention is asked, at the latest.
        due_ms = max(outcome.recovered_ms, last + RETENTION_MS + 1)
        assert mistakes.late_ms >= outcome.recovered_ms + RETENTION_MS + 1 - due_ms > 0
        assert mistakes.late >= 2

    def test_a_clock_that_is_behind_deletes_too_early(self) -> None:
        coming = arrivals(0.05)
        outcome = simulate(coming, HISTORIES["follower crashes, every segment rebuilt, its clock a day behind"])
        assert retention_mistakes(outcome, outcome.recovered_ms).early >= 2


class TestHistories:
    @pytest.mark.parametrize("name", list(HISTORIES))
    def test_ends_as_the_text_says(self, name: str) -> None:
        history = HISTORIES[name]
        outcome = simulate(arrivals(0.05), history)
        same = outcome.leader.index == outcome.replica.index
        assert outcome.leader.end_offset == outcome.replica.end_offset
        assert [part.base_offset for part in outcome.leader.parts] == [part.base_offset for part in outcome.replica.parts]
        if history.crash == "both" or (history.recovery == "fetched" and history.with_closing):
            assert same
        elif history.recovery == "rebuilt":
            assert not same

    def test_without_a_crash_the_leader_is_the_models(self) -> None:
        coming = arrivals(0.05)
        outcome = simulate(coming, History())
        assert outcome.leader.index == model([(one.at_ms, one.records) for one in coming], ROLL_MS)

    def test_a_rebuilt_segment_rolls_later_by_what_it_lost(self) -> None:
        coming = [Arrival(minute * MINUTE_MS, 1, 100) for minute in range(200)]
        outcome = simulate(coming, History("follower", recovery="rebuilt"))
        first_ms = outcome.append_ms[outcome.recovered.parts[-1].base_offset]
        told_ms, told_bytes = roll_after(outcome.recovered, outcome.recovered_ms, MINUTE_MS, 100)
        true_ms, true_bytes = roll_after(with_true_first(outcome), outcome.recovered_ms, MINUTE_MS, 100)
        assert told_ms - true_ms == outcome.recovered_ms - first_ms == 140 * MINUTE_MS + DOWN_MS
        assert told_bytes - true_bytes == (told_ms - true_ms) // MINUTE_MS * 100
