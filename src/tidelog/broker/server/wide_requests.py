"""Requests of very many elements: read by another thread, few of them at a time, and taken apart again piece by piece.

Half a million elements are half a gigabyte of objects. Their other costs for the loop:

| | |
|---|---|
| reading and writing them | is done on the thread for heavy work |
| all connections sending one at once | `SLOTS` of them are in memory, the others wait with their bytes |
| garbage collection looks at all of them, again and again | is off meanwhile: they are freed by counting |
| freeing them in one go holds the interpreter for half a second | `discard` frees some hundreds at a time |
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.server.slices import Elsewhere

if TYPE_CHECKING:
    from tidelog.wire.codec import Message

AT_ONCE = 2000
"""Elements that are read on the loop: some milliseconds of work."""

FEW = 8
"""Partitions of a fetch that are looked at in a round of the loop that is full (`Slices.is_round_full`)."""

FEW_BYTES = 128
"""Bytes of a request that is read in such a round; larger ones wait for their turn."""

BYTES_AT_ONCE = 1 << 20
"""Bytes of a request that are read on the loop: they are copied. Those of Produce, which are not, may be more."""

SLOTS = 2

_PIECE = 200


class WideRequests:
    """The slots, and requests that wait for one. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._used = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._has_stopped_collector = False

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiting)

    def enter(self, begin: Callable[[], None]) -> None:
        """Call `begin` when there is a slot: now, or later. `leave` gives it back."""
        if self._used == SLOTS:
            self._waiting.append(begin)
            return
        if not self._used and gc.isenabled():
            gc.disable()
            self._has_stopped_collector = True
        self._used += 1
        begin()

    def leave(self) -> None:
        """Give a slot back."""
        if self._waiting:
            self._waiting.popleft()()
            return
        self._used -= 1
        if not self._used:
            self.close()

    def close(self) -> None:
        """Have the collector work again: a broker that ends in the middle of a request may be part of a program that goes on."""
        if self._has_stopped_collector:
            self._has_stopped_collector = False
            gc.enable()


def discarded(message: Message | None, *containers: list[Any] | dict[Any, Any] | set[Any]) -> Generator[Elsewhere, None, None]:
    """Empty a wide request, and what was made of it, on another thread: the last step of a work (`yield from`)."""
    if max(map(len, containers), default=0) > AT_ONCE or (message is not None and _elements(message) > AT_ONCE):
        yield Elsewhere(partial(_discard_all, message, containers))


def discard(message: Message, depth: int = 2) -> None:
    """Empty the arrays of a message, down to `depth`, some elements at a time. For another thread."""
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
    """Return the values of a message's fields; none for anything but a struct."""
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
