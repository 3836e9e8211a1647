"""Which of some numbers are in order: the longest ascending choice, so that one out of place does not condemn all others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise


def longest_ascending(numbers: Sequence[int]) -> list[int]:
    """Return the places of a longest choice of `numbers` that ascends strictly."""
    if all(a < b for a, b in pairwise(numbers)):
        return list(range(len(numbers)))
    least: list[int] = []  # least[n]: the smallest number that a choice of n + 1 ends with
    places: list[int] = []
    before: list[int] = []
    for place, number in enumerate(numbers):
        length = bisect_left(least, number)
        if length == len(least):
            least.append(number)
            places.append(place)
        else:
            least[length] = number
            places[length] = place
        before.append(places[length - 1] if length else -1)
    chosen = []
    place = places[-1] if places else -1
    while place >= 0:
        chosen.append(place)
        place = before[place]
    return chosen[::-1]
