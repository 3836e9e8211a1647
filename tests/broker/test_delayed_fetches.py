"""Who waits for records is reported, once the loop has come round, and not after it was answered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog.broker.fetch import delayed_fetches as delayed_fetches_module
from tidelog.broker.fetch.delayed_fetches import DelayedFetches
from tidelog.broker.requests.wide_requests import FEW
from tidelog.model import TopicPartition

ONE, TWO, THREE = (TopicPartition("topic", index) for index in range(3))


class Soon:
    """Timers that ring when told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Soon:
        assert delay_ms == 0
        self.waiting.append(callback)
        return self

    def cancel(self) -> None:
        raise AssertionError("nobody cancels these")

    def ring(self) -> None:
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()


def test_told_once_after_all_was_appended() -> None:
    soon, told = Soon(), list[TopicPartition]()
    delayed_fetches = DelayedFetches(soon)
    delayed_fetches.watch([ONE, TWO], told.append)
    for key in (ONE, ONE, THREE, TWO, ONE):
        delayed_fetches.appended(key)
    assert (told, len(soon.waiting)) == ([], 1)
    soon.ring()
    assert told == [ONE, TWO]
    delayed_fetches.appended(TWO)
    soon.ring()
    assert told == [ONE, TWO, TWO]


def test_cancelled() -> None:
    soon, told = Soon(), list[str]()
    delayed_fetches = DelayedFetches(soon)
    first = delayed_fetches.watch([ONE, TWO], lambda key: (told.append("first"), second.cancel())[0])
    second = delayed_fetches.watch([TWO, ONE], lambda key: told.append("second"))
    delayed_fetches.appended(ONE)
    soon.ring()
    assert (told, len(delayed_fetches._watches)) == (["first"], 2)
    delayed_fetches.appended(TWO)
    first.cancel()
    first.cancel()
    soon.ring()
    assert (told, len(delayed_fetches._watches)) == (["first"], 0)


def test_wide_watches_that_are_cancelled_leave_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand clients go at once: nobody is called any more, and one watch is taken from under its keys after the other."""
    monkeypatch.setattr(delayed_fetches_module, "SLICE_S", 0)
    soon, told = Soon(), list[TopicPartition]()
    delayed_fetches = DelayedFetches(soon)
    keys = [TopicPartition("topic", index) for index in range(FEW + 1)]
    watches = [delayed_fetches.watch(keys, told.append) for _ in range(3)]
    for watch in watches:
        watch.cancel()
    assert [len(of_key) for of_key in delayed_fetches._watches.values()] == [3] * len(keys)
    delayed_fetches.appended(ONE)
    delayed_fetches.end()
    for left in (2, 1, 0):
        soon.ring()
        assert {len(of_key) for of_key in delayed_fetches._watches.values()} == ({left} if left else set())
    while soon.waiting:
        soon.ring()
    assert not told


def test_watched_anew_while_told() -> None:
    """What a callback watches is passed what comes later, not of what woke the callback."""
    soon, told = Soon(), list[str]()
    delayed_fetches = DelayedFetches(soon)

    def again(key: TopicPartition) -> None:
        told.append("first")
        watch.cancel()
        delayed_fetches.watch([key], lambda key: told.append("second"))

    watch = delayed_fetches.watch([ONE], again)
    delayed_fetches.appended(ONE)
    soon.ring()
    assert told == ["first"]
    delayed_fetches.appended(ONE)
    soon.ring()
    assert told == ["first", "second"]


def test_many_have_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is woken once, in order, and what is appended meanwhile wakes those behind; one that fails stops nobody."""
    monkeypatch.setattr(delayed_fetches_module, "SLICE_S", 0)
    soon, told = Soon(), list[int]()
    delayed_fetches = DelayedFetches(soon)

    def woken(number: int) -> None:
        told.append(number)
        if number == 1:
            raise ValueError("one that fails")

    for number in range(4):
        delayed_fetches.watch([ONE], lambda key, number=number: woken(number))  # type: ignore[misc]
    delayed_fetches.appended(ONE)
    soon.ring()
    assert told == [0]
    with pytest.raises(ValueError, match="one that fails"):
        soon.ring()
    delayed_fetches.appended(ONE)
    for expected in ([0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 0]):
        soon.ring()
        assert told == expected
    with pytest.raises(ValueError, match="one that fails"):
        soon.ring()
    soon.ring()
    soon.ring()
    assert told == [0, 1, 2, 3] * 2 and not soon.waiting
