"""Times of every type as epoch milliseconds, and the row that has none."""

from __future__ import annotations

import datetime as dt
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidArgumentError
from tidelog.ingest.timestamps import epoch_ms

DAY = dt.date(2013, 7, 10)
DAY_MS = 1_373_414_400_000


def ms(array: pa.Array) -> list[int]:
    return epoch_ms(array, "when", 1).to_pylist()


def test_timestamps_of_each_unit_are_floored() -> None:
    assert ms(pa.array([1, 2], pa.timestamp("s"))) == [1000, 2000]
    assert ms(pa.array([1, 2], pa.timestamp("ms"))) == [1, 2]
    assert ms(pa.array([999, 1000, 1999], pa.timestamp("us"))) == [0, 1, 1]
    assert ms(pa.array([999_999, 1_000_000], pa.timestamp("ns"))) == [0, 1]


def test_zones_do_not_move_the_instant() -> None:
    assert ms(pa.array([5], pa.timestamp("ms", "Asia/Tokyo"))) == [5]
    assert ms(pa.array([5], pa.timestamp("ms"))) == [5]


def test_dates_and_integers() -> None:
    assert ms(pa.array([DAY])) == [DAY_MS]
    assert ms(pa.array([DAY], pa.date64())) == [DAY_MS]
    assert ms(pa.array([0, 2**63 - 1])) == [0, 2**63 - 1]
    assert ms(pa.array([7], pa.uint8())) == [7]
    assert ms(pa.array([7], pa.int64()).dictionary_encode()) == [7]


def test_texts() -> None:
    texts = {
        "2013-07-10": DAY_MS,
        "2013-07-10T00:00": DAY_MS,
        "2013-07-10 00:00:00": DAY_MS,
        "2013-07-10T00:00:00Z": DAY_MS,
        "2013-07-10T00:00:00.123456789Z": DAY_MS + 123,
        "2013-07-10T02:00:00+02:00": DAY_MS,
        "2013-07-09T20:00:00-0400": DAY_MS,
        "2013-07-09T20:00:00-04": DAY_MS,
        " 2013-07-10 ": DAY_MS,
        "9999-12-31T23:59:59.999999999Z": 253_402_300_799_999,
        str(DAY_MS): DAY_MS,
    }
    assert ms(pa.array(list(texts))) == list(texts.values())
    for text, expected in texts.items():
        assert ms(pa.array([text])) == [expected]
        assert ms(pa.array([text], pa.large_string())) == [expected]
    assert ms(pa.array([], pa.string())) == []


@pytest.mark.parametrize(
    ("array", "row"),
    [
        (pa.array([5, None]), 8),
        (pa.array([None], pa.timestamp("us")), 7),
        (pa.nulls(1), 7),
        (pa.array([5, 5, -1]), 9),
        (pa.array([0, -1], pa.timestamp("ns")), 8),  # a nanosecond before 1970 is -1 ms
        (pa.array([0, -1], pa.timestamp("us", "UTC")), 8),
        (pa.array([dt.date(1969, 12, 31)]), 7),
        (pa.array([2**62], pa.timestamp("s")), 7),
        (pa.array([-(2**63)], pa.timestamp("s")), 7),
        (pa.array([-(2**63)], pa.timestamp("ms")), 7),
        (pa.array([1, 2**64 - 1], pa.uint64()), 8),
        (pa.array(["2013-07-10", "tomorrow"]), 8),
        (pa.array(["2013-07-10T00:00:00Z", "2013-07-10T25:00:00Z"]), 8),
        (pa.array(["2013-07-10", ""]), 8),
        (pa.array(["20130710"]), 7),  # a date that would pass for a moment of 1970
        (pa.array(["1969-12-31T23:59:59.9999Z"]), 7),
        (pa.array(["9" * 30]), 7),
    ],
)
def test_errors_name_row_and_column(array: pa.Array, row: int) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(f"row {row}: column 'when'")):
        epoch_ms(array, "when", 7)


@pytest.mark.parametrize("array", [pa.array([1.5]), pa.array([True]), pa.array([b"x"]), pa.array([dt.time(1)]), pa.array([[1]])])
def test_other_types_are_refused(array: pa.Array) -> None:
    with pytest.raises(InvalidArgumentError, match="column 'when' cannot be a time"):
        epoch_ms(array, "when", 1)


@given(st.lists(st.integers(0, 2**62), min_size=1), st.sampled_from([("us", 1000), ("ns", 1_000_000)]))
def test_flooring_is_python_floor(values: list[int], unit: tuple[str, int]) -> None:
    assert ms(pa.array(values, pa.timestamp(unit[0]))) == [value // unit[1] for value in values]
