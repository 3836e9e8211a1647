"""Numbers are taken as milliseconds where it is plain that they are, and in no other case."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidArgumentError
from tidelog.ingest.time_column import TimeColumn

FIRST_MS, LAST_MS = 100_000_000_000, 4_102_444_799_999  # March 1973 to the end of 2099
PER_MS = {"us": 1_000, "ns": 1_000_000}


def taken(array: pa.Array, unit: str | None = None) -> list[int]:
    return TimeColumn("when", unit).epoch_ms(array, 1).to_pylist()


@given(st.lists(st.integers(FIRST_MS, LAST_MS), min_size=1), st.booleans())
def test_a_moment_of_our_times_is_right_or_refused_in_each_unit(moments: list[int], as_text: bool) -> None:
    """The property: without a unit no number of seconds, microseconds or nanoseconds becomes another moment."""
    for unit in ("s", "ms", "us", "ns"):
        numbers = [m // 1000 if unit == "s" else m * PER_MS.get(unit, 1) for m in moments]
        array = pa.array([str(number) for number in numbers] if as_text else numbers)
        exact = [m // 1000 * 1000 if unit == "s" else m for m in moments]
        try:
            assert taken(array) == moments
            assert unit == "ms"
        except InvalidArgumentError as error:
            assert unit != "ms" or "or text such as" in str(error)  # 12 or 14 digits that make a date
        assert taken(array, unit) == exact


@pytest.mark.parametrize("number", [20130710, 201307100930, 20130710093000])
@pytest.mark.parametrize("as_text", [False, True])
def test_the_digits_of_a_calendar_are_no_milliseconds(number: int, as_text: bool) -> None:
    array = pa.array(["5" if as_text else 5, str(number) if as_text else number])
    with pytest.raises(InvalidArgumentError, match=f"row {1 if as_text and number < 10**11 else 2}|{number}"):
        taken(array)
    assert taken(pa.array([number]), "ms") == [number]


@pytest.mark.parametrize("number", [10**8, 10**11 - 1, 10**14, 2**63 - 1])
def test_the_row_that_is_refused_is_named(number: int) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape("row 3: column 'when' does not look like epoch milliseconds")):
        taken(pa.array([0, FIRST_MS, number]))


def test_fractions() -> None:
    assert taken(pa.array([1373414400.123, 0.0005]), "s") == [1_373_414_400_123, 0]
    assert taken(pa.array(["1373414400.123", " 1373414401", "2013-07-10"]), "s") == [
        1_373_414_400_123,
        1_373_414_401_000,
        1_373_414_400_000,
    ]
    assert taken(pa.array([1373414400123.0]), "ms") == [1_373_414_400_123]
    for value in (float("nan"), float("inf"), 1e300):
        with pytest.raises(InvalidArgumentError, match="row 1: column 'when' is not a time"):
            taken(pa.array([value]), "s")
    with pytest.raises(InvalidArgumentError, match=re.escape("--timestamp-unit s|ms|us|ns")):
        taken(pa.array([1.5]))


def test_an_unknown_unit() -> None:
    with pytest.raises(InvalidArgumentError, match="unknown unit"):
        TimeColumn("when", "m")
