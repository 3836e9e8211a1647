"""Operations that wait until a partition's high watermark (acks=all) or low watermark (DeleteRecords) reaches an offset.

A wait ends when its offset is reached, when its timeout passes, or when this broker no longer leads the partition. Thousands of
waits may end together, for example when leadership is lost; their callbacks then run in slices of the loop.

Use only on the event loop's thread.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from operator import attrgetter

from tidelog.broker.loop.timers import Timer, Timers
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode

_by_offset = attrgetter("offset")


class _Wait:
    __slots__ = ("done", "offset", "timer")

    def __init__(self, offset: int, done: Callable[[ErrorCode], None]) -> None:
        self.offset = offset
        self.done = done
        self.timer: Timer | None = None


class OffsetWaits:
    """The waits of all partitions. `soon` schedules a call for one of the event loop's next turns (`Slices.soon`)."""

    def __init__(self, timers: Timers, soon: Callable[[Callable[[], None]], None]) -> None:
        self._timers = timers
        self._soon = soon
        self._waits: dict[TopicPartition, list[_Wait]] = {}

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._waits

    def add(self, key: TopicPartition, offset: int, timeout_ms: int | None, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` once: when `offset` is reached, after `timeout_ms` (None for no timeout), or when `end` is called for the
        partition.
        """
        wait = _Wait(offset, done)
        waits = self._waits.get(key)
        if waits is None:
            self._waits[key] = [wait]
        elif waits[-1].offset <= offset:
            waits.append(wait)
        else:
            insort(waits, wait, key=_by_offset)
        if timeout_ms is not None:
            wait.timer = self._timers.call_later(max(timeout_ms, 0), lambda: self._timed_out(key, wait))

    def reached(self, key: TopicPartition, offset: int, code: ErrorCode = ErrorCode.NONE) -> None:
        """End the waits for `offset` or a lower offset: call their `done` with `code`."""
        waits = self._waits.get(key)
        if waits is None or waits[0].offset > offset:
            return
        count = bisect_right(waits, offset, key=_by_offset)
        ended = waits[:count]
        del waits[:count]
        if not waits:
            del self._waits[key]
        self._end(ended, code)

    def end(self, key: TopicPartition, code: ErrorCode) -> None:
        """End all waits of a partition: call their `done` with `code`."""
        self._end(self._waits.pop(key, ()), code)

    def _end(self, ended: list[_Wait] | tuple[()], code: ErrorCode) -> None:
        for wait in ended:
            if wait.timer is not None:
                wait.timer.cancel()
            self._soon(lambda done=wait.done: done(code))  # type: ignore[misc]

    def _timed_out(self, key: TopicPartition, wait: _Wait) -> None:
        waits = self._waits.get(key)
        if waits is not None and wait in waits:
            waits.remove(wait)
            if not waits:
                del self._waits[key]
            wait.timer = None
            wait.done(ErrorCode.REQUEST_TIMED_OUT)
