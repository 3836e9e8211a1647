"""Works in slices (`tidelog.broker.requests.slices`), done by hand."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")


def done(work: Generator[Any, Any, T]) -> T:
    """Do a work to its end; it asks for nothing, it only gives others their turn."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        result: T = end.value
        return result
