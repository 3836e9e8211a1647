"""Functions over arrays of numbers that process one slice at a time. A batch may have millions of numbers, and no other thread
runs while a slice is being processed.

This module is pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from operator import ge

PIECE = 1 << 16
"""The number of elements in a slice, which takes about a millisecond."""


def extreme(of: Callable[[Iterable[int]], int], numbers: memoryview) -> int:
    """Return the largest of `numbers` if `of` is `max`, the smallest if `of` is `min`."""
    return of(of(numbers[index : index + PIECE]) for index in range(0, len(numbers), PIECE))


def index_of(number: int, numbers: memoryview) -> int:
    """Return the first index of a number. Raises ValueError if the number is absent."""
    for index in range(0, len(numbers), PIECE):
        piece = numbers[index : index + PIECE].tolist()
        if number in piece:
            return index + piece.index(number)
    raise ValueError(f"{number} is not in the list")


def increase(numbers: memoryview) -> bool:
    """Return whether each number is larger than the number before it."""
    return not any(
        any(map(ge, numbers[index : index + PIECE], numbers[index + 1 : index + 1 + PIECE]))
        for index in range(0, len(numbers), PIECE)
    )


def numbered(first: int, count: int) -> memoryview:
    """Return `count` consecutive numbers, starting at `first`."""
    numbers = array("q")
    for index in range(0, count, PIECE):
        numbers.extend(range(first + index, first + min(index + PIECE, count)))
    return memoryview(numbers)
