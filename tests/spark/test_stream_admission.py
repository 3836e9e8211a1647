"""How much a batch takes: numbers against plain statements, and whole logs read through against a list."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.spark.stream.admission import TimeLimit, TriggerDelay, Window, share

counts = st.dictionaries(st.integers(0, 8), st.one_of(st.integers(0, 5), st.integers(0, 10**12)), max_size=9)


@examples(200)
@given(counts, st.integers(1, 10**6), st.integers(0, 100))
def test_shares_are_exactly_the_limit(available: dict[int, int], limit: int, turn: int) -> None:
    shares = share(available, limit, turn)
    assert sum(shares.values()) == min(limit, sum(available.values()))
    assert shares.keys() == available.keys()
    assert all(0 <= shares[key] <= available[key] for key in available)


def test_shares_are_those_of_the_backlogs() -> None:
    assert share({"a": 100, "b": 300}, 40) == {"a": 10, "b": 30}
    assert share({"a": 1, "b": 10**9}, 100) == {"a": 1, "b": 99}
    assert share({"a": 3, "b": 4}, 100) == {"a": 3, "b": 4}


def test_no_partition_is_passed_over_for_ever() -> None:
    small = dict.fromkeys(range(5), 1) | {9: 10**9}
    taken = {key for turn in range(5) for key, count in share(small, 2, turn).items() if count}
    assert taken == set(small)


class Logs:
    """Partitions as lists of timestamps, read with a TimeLimit as the reader does it."""

    def __init__(self, partitions: Mapping[int, list[int]], window: int = 3) -> None:
        self.window = window
        self.partitions = partitions
        self.positions = dict.fromkeys(partitions, 0)

    @property
    def left(self) -> int:
        return sum(len(times) - self.positions[key] for key, times in self.partitions.items())

    def batch(self, limit: TimeLimit, now_ms: int) -> dict[int, list[int]]:
        windows = {
            key: Window(range(start, behind), times[start:behind], behind)
            for key, times in self.partitions.items()
            if (start := self.positions[key]) < (behind := min(len(times), start + self.window))
        }
        limited = limit.ends(windows, now_ms)
        taken = {}
        for key, times in self.partitions.items():
            start = end = self.positions[key]
            if limited is None:
                end = len(times)
            elif key in limited[1]:
                end = next((at for at in range(limited[1][key], len(times)) if times[at] >= limited[0]), len(times))
            taken[key] = times[start:end]
            self.positions[key] += len(taken[key])
        return taken


NOW_MS = 10_000
moments = st.one_of(st.integers(0, 200), st.sampled_from([-1, 0, 1, NOW_MS, 10 * NOW_MS, 10**15]))


@examples(200)
@given(st.lists(st.lists(moments, max_size=12), max_size=4), st.integers(1, 300))
def test_every_batch_takes_something_whatever_the_times(logs: list[list[int]], span_ms: int) -> None:
    model, limit = Logs(dict(enumerate(logs))), TimeLimit(span_ms)
    while model.left:
        before = model.left
        model.batch(limit, NOW_MS)
        assert model.left < before


@examples(100)
@given(st.lists(st.lists(st.integers(0, 2_000), max_size=30).map(sorted), min_size=1, max_size=4), st.integers(1, 500))
def test_in_order_no_batch_holds_more_time_than_that_and_partitions_go_in_step(logs: list[list[int]], span_ms: int) -> None:
    model, limit = Logs(dict(enumerate(logs))), TimeLimit(span_ms)
    newest = -1
    while model.left:
        taken = [time for times in model.batch(limit, NOW_MS).values() for time in times]
        assert max(taken) - min(taken) < span_ms
        assert min(taken) > newest
        newest = max(taken)


def test_what_is_left_of_a_batch_that_was_cut_short_is_not_late() -> None:
    limit = TimeLimit(100)
    assert limit.ends({0: Window([0], [100], 1)}, NOW_MS) == (200, {0: 1})
    limit.cut()
    assert limit.ends({0: Window([1], [110], 2)}, NOW_MS) == (210, {0: 2})
    # As if the cut had not been: late.
    assert limit.ends({0: Window([2], [120], 3)}, NOW_MS) == (210, {0: 3})


def test_a_late_record_sets_no_batch_back() -> None:
    model, limit = Logs({0: [100, 150, 199, 5, 201, 260], 1: [120, 220, 320]}), TimeLimit(100)
    assert model.batch(limit, NOW_MS) == {0: [100, 150, 199, 5], 1: [120]}
    assert model.batch(limit, NOW_MS) == {0: [201, 260], 1: [220]}


def test_a_late_record_that_comes_next_is_read_along() -> None:
    logs = {0: [100], 1: [120, 300]}
    model, limit = Logs(logs), TimeLimit(100)
    model.batch(limit, NOW_MS)
    logs[0] += [3, 4, 310]
    assert model.batch(limit, NOW_MS) == {0: [3, 4, 310], 1: [300]}


def test_nobody_waits_for_the_future() -> None:
    far = 100 * NOW_MS
    model, limit = Logs({0: [far, far, far, 10], 1: [10, 500, NOW_MS - 50]}), TimeLimit(100)
    assert model.batch(limit, NOW_MS) == {0: [], 1: [10]}
    assert model.batch(limit, NOW_MS) == {0: [], 1: [500]}
    # Caught up: from here on there is no limit.
    assert model.batch(limit, NOW_MS) == {0: [far, far, far, 10], 1: [NOW_MS - 50]}


def test_a_record_ahead_of_its_neighbours_does_not_take_the_time_ahead() -> None:
    far = NOW_MS - 200
    model, limit = Logs({0: [10, far, 20, 110, 120, 220, far, 230], 1: [15, 115]}), TimeLimit(100)
    assert model.batch(limit, NOW_MS) == {0: [10], 1: [15]}
    assert model.batch(limit, NOW_MS) == {0: [far, 20, 110, 120], 1: [115]}
    assert model.batch(limit, NOW_MS) == {0: [220], 1: []}
    assert model.batch(limit, NOW_MS) == {0: [far, 230], 1: []}


def test_records_without_timestamp_have_no_limit() -> None:
    model, limit = Logs({0: [-1, -1, -1]}), TimeLimit(1)
    assert model.batch(limit, NOW_MS) == {0: [-1, -1, -1]}


@pytest.mark.parametrize(("available", "now_ms", "waits"), [(9, 1, True), (10, 1, False), (9, 500, False), (0, 499, True)])
def test_a_batch_waits_for_more_but_not_for_ever(available: int, now_ms: int, waits: bool) -> None:
    patience = TriggerDelay(10, 500)
    assert not patience.waits(3, 0)
    assert patience.waits(available, now_ms) == waits


def test_without_a_minimum_nobody_waits() -> None:
    patience = TriggerDelay(None, 500)
    assert not any(patience.waits(0, now) for now in range(3))
