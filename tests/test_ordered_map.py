"""Several at a time, answers in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.patience import PATIENCE_S
from tidelog.ordered_map import ordered_map


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_answers_come_in_the_order_of_the_things(threads: int) -> None:
    assert list(ordered_map(lambda number: number * number, range(20), threads)) == [number * number for number in range(20)]


def test_things_are_taken_as_there_is_room() -> None:
    taken: list[int] = []

    def things() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    found = ordered_map(str, things(), 3)
    assert (next(found), len(taken)) == ("0", 4)
    assert (next(found), len(taken)) == ("1", 5)
    found.close()  # type: ignore[attr-defined]
    assert len(taken) == 5


def test_an_error_comes_in_its_turn() -> None:
    late = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            assert late.wait(PATIENCE_S)
        if number == 1:
            late.set()
            raise ValueError("one")
        return number

    found = ordered_map(work, range(5), 2)
    assert next(found) == 0
    with pytest.raises(ValueError, match="one"):
        next(found)
