"""Callbacks into an object that do not keep it alive: without reference cycles, a deleted log is freed at once. A garbage
collection of thousands of deleted logs blocks the loop.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def weakly(method: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls a bound method, and does nothing once the method's object is gone."""
    known = weakref.WeakMethod(method)

    def call(*arguments: P.args, **named: P.kwargs) -> T:
        found = known()
        return None if found is None else found(*arguments, **named)  # type: ignore[return-value]

    return call


def with_weak(one: T, call: Callable[[T], object]) -> Callable[[], None]:
    """Return a function that calls `call` with an object, and does nothing once the object is gone."""
    known = weakref.ref(one)

    def called() -> None:
        found = known()
        if found is not None:
            call(found)

    return called
