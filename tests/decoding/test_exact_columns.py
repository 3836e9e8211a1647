"""Objects in columns of given types: what a type cannot hold exactly is not decoded, where Arrow alone would change it."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.decoding.objects import infer_type, to_column

DAY = datetime.date(2013, 7, 10)
NOON = datetime.datetime(2013, 7, 10, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "held", "refused"),
    [
        (pa.int64(), {1: 1}, [1.5, 1.0, True, "1", Decimal(1), 1 << 63]),
        (pa.int32(), {-1: -1}, [3_000_000_000, 1.5]),
        (pa.float64(), {1: 1.0, 1.5: 1.5}, [True, "1"]),
        (pa.bool_(), {True: True}, [1, 0.0, "true"]),
        (
            pa.timestamp("us", tz="UTC"),
            {"2013-07-10T14:00:00+02:00": NOON, "2013-07-10T12:00:00Z": NOON, NOON: NOON},
            [1, 1.5, "x"],
        ),
        (pa.date32(), {"2013-07-10": DAY, DAY: DAY}, [1, NOON, "2013-07-10T12:00:00"]),
        (pa.decimal128(10, 2), {1: Decimal("1.00"), 1.5: Decimal("1.50"), Decimal("2.5"): Decimal("2.50")}, [1.555, "1", True]),
        (pa.binary(), {b"z": b"z", "aGk=": b"hi"}, ["x!", 1]),
        (pa.string(), {"a": "a", 2: "2", True: "true"}, []),
        (pa.list_(pa.int64()), {}, ["12", {"a": 1}, [1.5], 1]),
    ],
)
def test_what_a_type_holds(kind: pa.DataType, held: dict[Any, Any], refused: list[Any]) -> None:
    for wrap, of in (
        (lambda value: value, lambda kind: kind),
        (lambda value: {"a": value}, lambda kind: pa.struct([("a", kind)])),
    ):
        for value, expected in held.items():
            column, failed = to_column([wrap(value), None], of(kind), set())
            assert (column.to_pylist(), failed) == ([wrap(expected), None], [])
        for value in refused:
            column, failed = to_column([None, wrap(value)], of(kind), set())
            assert (column.to_pylist(), failed) == ([None, None], [1])


def test_one_misfit_does_not_change_the_others() -> None:
    kind = infer_type([{"n": 1, "at": "a"}])
    column, failed = to_column([{"n": 1, "at": "a"}, {"n": 2.5, "at": "b"}, {"n": 3, "at": "c"}], kind, set())
    assert (column.to_pylist(), failed) == ([{"n": 1, "at": "a"}, None, {"n": 3, "at": "c"}], [1])


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(1 << 65), 1 << 65), st.floats(allow_nan=False), st.text(max_size=3))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6
)


@examples(300)
@given(st.lists(VALUES, min_size=1, max_size=5), st.lists(VALUES, max_size=5))
def test_what_is_in_a_column_is_what_was_given(sample: list[Any], more: list[Any]) -> None:
    """By the type of any sample: a value is equal to what was given, as text where the type is text, or was refused."""
    kind, extra = infer_type(sample), set[str]()
    column, failed = to_column([*sample, *more], kind, extra)
    for row, (value, found) in enumerate(zip([*sample, *more], column.to_pylist(), strict=True)):
        if row not in failed:
            assert is_same(value, found, kind), (value, found, kind)


def is_same(value: Any, found: Any, kind: pa.DataType) -> bool:
    if value is None or found is None:
        return value is None and found is None
    if pa.types.is_struct(kind):
        return all(is_same(value.get(field.name), found[field.name], field.type) for field in kind)
    if pa.types.is_list(kind):
        return len(value) == len(found) and all(is_same(*pair, kind.value_type) for pair in zip(value, found, strict=True))
    if pa.types.is_string(kind):
        return found == value or not isinstance(value, str)
    return bool(found == value) and isinstance(value, bool) == isinstance(found, bool)
