"""Who waits for records is reported, once the loop has come round, and not after it was answered."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.fetch.delayed_fetches import DelayedFetches
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
