"""Delayed fetches (long polls). Each is woken when one of its partitions may have more records.

| | |
|---|---|
| `appended(key)` | to be called when a log's end, high watermark or start moves, or the log is removed; costs one look-up |
| `watch(keys, callback, at_end)` | after `appended(key)` for one of the keys, calls `callback(key)`, until `cancel` |
| `end()` | calls each watch's `at_end` when the broker shuts down |

Callbacks run in the next round of the loop, not inside `appended`. The producer thus gets its response first, and a request
that appends to twelve partitions wakes a delayed fetch after the last partition, not after the first. If thousands of fetches
wait for one record, their callbacks run in slices, with other clients served in between. Cancelling thousands of watches with
many keys is sliced, too: `cancel` stops the callbacks at once, and the watch's keys are removed later.

Everything runs on the event loop's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TYPE_CHECKING

from tidelog.broker.requests.slices import SLICE_S
from tidelog.broker.requests.wide_requests import FEW
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.loop.timers import Timers


class Watch:
    """One fetch's watch over its partitions; it lasts until it is cancelled."""

    __slots__ = ("_delayed_fetches", "_keys", "at_end", "callback")

    def __init__(
        self,
        delayed_fetches: DelayedFetches,
        keys: tuple[TopicPartition, ...],
        callback: Callable[[TopicPartition], None],
        at_end: Callable[[], None] | None,
    ) -> None:
        self.callback: Callable[[TopicPartition], None] | None = callback
        self.at_end = at_end
        self._delayed_fetches = delayed_fetches
        self._keys = keys

    def cancel(self) -> None:
        """Stop waiting, so that the callback is no longer called. Idempotent."""
        if self.callback is not None:
            self.callback = self.at_end = None
            self._delayed_fetches._forget(self, self._keys)


class DelayedFetches:
    """The fetches that wait for more records."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._watches: dict[TopicPartition, dict[Watch, None]] = {}
        self._woken: dict[TopicPartition, None] = {}
        self._due: deque[tuple[TopicPartition, deque[Watch]]] = deque()
        """The watches to call in the next round of the loop, each with the key that was appended to."""
        self._left: deque[tuple[Watch, tuple[TopicPartition, ...]]] = deque()
        """Cancelled watches that are still registered under their keys."""

    def appended(self, key: TopicPartition) -> None:
        """Wake the fetches that watch `key`, because it may have more or fewer readable records than before."""
        if key in self._watches:
            if not self._woken:
                self._timers.call_later(0, self._wake)
            self._woken[key] = None

    def watch(
        self,
        keys: Iterable[TopicPartition],
        callback: Callable[[TopicPartition], None],
        at_end: Callable[[], None] | None = None,
    ) -> Watch:
        """Call `callback` with a key of `keys` whenever `appended` reports that key, until the watch is cancelled.

        `at_end` is called once if the broker shuts down before that.
        """
        watch = Watch(self, tuple(keys), callback, at_end)
        watches = self._watches
        for key in watch._keys:
            of_key = watches.get(key)
            if of_key is None:
                watches[key] = {watch: None}
            else:
                of_key[watch] = None
        return watch

    def end(self) -> None:
        """Call `at_end` of all watches, because the broker is shutting down and no more records will arrive."""
        for watch in dict.fromkeys(watch for of_key in tuple(self._watches.values()) for watch in tuple(of_key)):
            if watch.callback is not None and watch.at_end is not None:
                watch.at_end()

    def _wake(self) -> None:
        woken, self._woken = self._woken, {}
        are_some_left = bool(self._due)
        for key in woken:
            watches = self._watches.get(key)
            if watches:
                self._due.append((key, deque(watches)))
        if not are_some_left:
            self._call_due()

    def _call_due(self) -> None:
        until = perf_counter() + SLICE_S
        try:
            while self._due:
                key, watches = self._due[0]
                watch = watches.popleft()
                if not watches:
                    self._due.popleft()
                if watch.callback is not None:  # An earlier callback may have cancelled it.
                    watch.callback(key)
                if perf_counter() >= until:
                    break
        finally:
            if self._due:
                self._timers.call_later(0, self._call_due)

    def _forget(self, watch: Watch, keys: tuple[TopicPartition, ...]) -> None:
        if len(keys) <= FEW:
            self._leave(watch, keys)
            return
        self._left.append((watch, keys))
        if len(self._left) == 1:
            self._timers.call_later(0, self._leave_some)

    def _leave_some(self) -> None:
        until = perf_counter() + SLICE_S
        while self._left:
            self._leave(*self._left.popleft())
            if self._left and perf_counter() >= until:
                self._timers.call_later(0, self._leave_some)
                return

    def _leave(self, watch: Watch, keys: tuple[TopicPartition, ...]) -> None:
        for key in keys:
            of_key = self._watches.get(key)
            if of_key is not None:
                of_key.pop(watch, None)
                if not of_key:
                    del self._watches[key]
