"""What is found in pieces is what is found in one."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.records import pieces
from tidelog.records.pieces import extreme, increase, index_of, numbered

NUMBERS = st.lists(st.integers(-3, 8), min_size=1, max_size=20)


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE", 4)
        yield


@given(NUMBERS)
def test_numbers_in_pieces(given: list[int]) -> None:
    numbers = memoryview(array("q", given))
    assert (extreme(max, numbers), extreme(min, numbers)) == (max(given), min(given))
    assert all(index_of(one, numbers) == given.index(one) for one in given)
    assert increase(numbers) == all(one < other for one, other in pairwise(given))
    assert increase(memoryview(array("q", sorted(set(given)))))


@given(st.integers(0, 30))
def test_numbers_that_follow_each_other(count: int) -> None:
    assert numbered(7, count).tolist() == list(range(7, 7 + count))


def test_a_number_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="9 is not in the list"):
        index_of(9, memoryview(array("q", range(8))))
