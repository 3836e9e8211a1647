"""Requests with very many elements: another thread decodes them, only a few requests at a time, and frees them piece by piece.

Half a million elements are half a gigabyte of objects. The table shows how the event loop is protected from their costs:

| | |
|---|---|
| decoding and encoding | done on the thread for heavy work |
| all connections send such a request at the same time | only `SLOTS` of them are decoded; the others wait as bytes |
| garbage collection would scan all objects repeatedly | it is off during this time: reference counting frees the objects |
| freeing all objects at once would block the interpreter for half a second | `discard` frees some hundreds at a time |
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from tidelog.broker.requests.slices import Elsewhere
from tidelog.wire.codec import Message

AT_ONCE = 2000
"""The most elements of a request that is decoded on the event loop's thread: some milliseconds of work."""

FEW = 8
"""The most partitions of a fetch that is handled in a full round of the loop (`Slices.is_round_full`)."""

FEW_BYTES = 128
"""The most bytes of a request that is decoded in a full round. Larger requests wait for their turn."""

BYTES_AT_ONCE = 1 << 20
"""The most bytes of a request that is decoded, and so copied, on the event loop's thread. Produce requests may be larger,
because they are not copied."""

SLOTS = 2

_PIECE = 200


class WideRequests:
    """`SLOTS` slots for wide requests, and the requests that wait for a slot. Everything runs on the event loop's thread."""

    def __init__(self) -> None:
        self._used = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._has_stopped_collector = False
        self.before_collecting: Callable[[], object] = lambda: None
        """Called before the garbage collector is turned on again."""

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a slot."""
        return len(self._waiting)

    def enter(self, begin: Callable[[], None]) -> None:
        """Call `begin` when a slot is free, now or later. `leave` returns the slot."""
        if self._used == SLOTS:
            self._waiting.append(begin)
            return
        if not self._used and gc.isenabled():
            gc.disable()
            self._has_stopped_collector = True
        self._used += 1
        begin()

    def leave(self) -> None:
        """Free a slot, or pass it to the request that has waited longest."""
        if self._waiting:
            self._waiting.popleft()()
            return
        self._used -= 1
        if not self._used:
            self.close()

    def close(self) -> None:
        """Turn the garbage collector on again. A broker that stops calls this, too, because the program may outlive it."""
        if self._has_stopped_collector:
            self._has_stopped_collector = False
            self.before_collecting()
            gc.enable()


def discarded(message: Message | None, *containers: list[Any] | dict[Any, Any] | set[Any]) -> Generator[Elsewhere, None, None]:
    """Empty a wide request, and objects that were built from it, on another thread. Use it with `yield from` as the last step
    of a handler.
    """
    if max(map(len, containers), default=0) > AT_ONCE or (message is not None and _elements(message) > AT_ONCE):
        yield Elsewhere(partial(_discard_all, message, containers))


def discard(message: Message, depth: int = 2) -> None:
    """Empty the arrays of a message, down to `depth`, some elements at a time. Call it on another thread."""
    _discard_arrays(message, depth)


def _discard_all(message: Message | None, containers: tuple[list[Any] | dict[Any, Any] | set[Any], ...]) -> None:
    for one in containers:
        _empty(one)
    if message is not None:
        _discard_arrays(message, 2)


def _elements(message: Message) -> int:
    most = 0
    for one in vars_of(message):
        if isinstance(one, list):
            most = max(most, len(one), *(len(inner) for each in one[:100] for inner in vars_of(each) if isinstance(inner, list)))
    return most


def vars_of(struct: Any) -> list[Any]:
    """Return the values of a message's fields in their order, or nothing if `struct` is not a message."""
    return [getattr(struct, field.name) for field in getattr(struct, "FIELDS", ())]


def _discard_arrays(struct: Any, depth: int) -> None:
    for one in vars_of(struct):
        if isinstance(one, list):
            if depth > 1:
                for inner in one:
                    _discard_arrays(inner, depth - 1)
            _empty(one)


def _empty(one: list[Any] | dict[Any, Any] | set[Any]) -> None:
    if isinstance(one, list):
        while one:
            del one[-_PIECE:]
    elif isinstance(one, dict):
        while one:
            one.popitem()
    else:
        while one:
            one.pop()
