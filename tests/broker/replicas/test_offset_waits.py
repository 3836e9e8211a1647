"""Waits for offsets: each ends once, in order of offsets, by whatever comes first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tidelog.broker.replicas.offset_waits import OffsetWaits
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode

KEY, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Timer:
    def __init__(self, delay_ms: float, callback: Callable[[], None]) -> None:
        self.delay_ms = delay_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Waits:
    def __init__(self) -> None:
        self.timers: list[Timer] = []
        self.ended: list[tuple[int, ErrorCode]] = []
        self.waits = OffsetWaits(self, lambda call: call())

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(delay_ms, callback))
        return self.timers[-1]

    def add(self, *offsets: int, key: TopicPartition = KEY, timeout_ms: int | None = 100) -> None:
        for offset in offsets:
            self.waits.add(key, offset, timeout_ms, partial(self._done, offset))

    def _done(self, offset: int, code: ErrorCode) -> None:
        self.ended.append((offset, code))


@pytest.fixture
def waits() -> Waits:
    return Waits()


def test_all_up_to_an_offset_end(waits: Waits) -> None:
    waits.add(5, 3, 9, 3)
    waits.add(4, key=OTHER)
    waits.waits.reached(KEY, 2)
    assert not waits.ended
    waits.waits.reached(KEY, 5, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert [offset for offset, _ in waits.ended] == [3, 3, 5]
    assert {code for _, code in waits.ended} == {ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
    assert KEY in waits.waits and OTHER in waits.waits
    waits.waits.reached(KEY, 100)
    assert KEY not in waits.waits and waits.ended[-1] == (9, ErrorCode.NONE)


def test_a_time_that_is_over(waits: Waits) -> None:
    waits.add(5, 7)
    first = waits.timers[0].callback
    assert first is not None and waits.timers[0].delay_ms == 100
    first()
    assert waits.ended == [(5, ErrorCode.REQUEST_TIMED_OUT)]
    waits.waits.reached(KEY, 10)
    assert waits.ended[1:] == [(7, ErrorCode.NONE)] and waits.timers[1].callback is None


def test_all_of_a_partition_end(waits: Waits) -> None:
    waits.add(5, 7, timeout_ms=None)
    waits.waits.end(KEY, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    waits.waits.end(KEY, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert waits.ended == [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (7, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert not waits.timers
