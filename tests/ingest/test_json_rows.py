"""Rows as JSON: each Arrow type's form, and nothing lost on the way."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.errors import InvalidArgumentError
from tidelog.ingest.json_rows import encode_rows, plain_text

MOMENT = dt.datetime(2013, 7, 10, 9, 30, 0, 123456)


def one(array: pa.Array) -> list[str]:
    """The JSON of each value of a column."""
    texts = encode_rows(pa.RecordBatch.from_arrays([array], ["x"])).to_pylist()
    return [text.removeprefix('{"x":').removesuffix("}") for text in texts]


FORMS: list[tuple[pa.Array, list[str]]] = [
    (pa.nulls(1), ["null"]),
    (pa.array([True, False, None]), ["true", "false", "null"]),
    (pa.array([0, -1, 2**63 - 1, -(2**63), None]), ["0", "-1", "9223372036854775807", "-9223372036854775808", "null"]),
    (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
    (pa.array([1.0, 0.1, -0.0, 1e300, 1e-7, None]), ["1.0", "0.1", "-0.0", "1e+300", "1e-7", "null"]),
    (pa.array([math.nan, math.inf, -math.inf]), ['"NaN"', '"Infinity"', '"-Infinity"']),
    (pa.array([0.1, 2.0], pa.float32()), ["0.1", "2.0"]),
    (pa.array([1.5, math.inf], pa.float16()), ["1.5", '"Infinity"']),
    (pa.array([decimal.Decimal("1.10"), None]), ["1.10", "null"]),
    (
        pa.array(['a"b', "\\", "\n\x00\x7f", "é😀\u2028", "", None]),
        [r'"a\"b"', r'"\\"', '"\\n\\u0000\x7f"', '"é😀\u2028"', '""', "null"],
    ),
    (pa.array(["x"], pa.large_string()), ['"x"']),
    (pa.array(["x", None], pa.string_view()), ['"x"', "null"]),
    (pa.array([b"\x00\xff", b"", None]), ['"AP8="', '""', "null"]),
    (pa.array([b"ab"], pa.binary(2)), ['"YWI="']),
    (pa.array([dt.date(2013, 7, 10)]), ['"2013-07-10"']),
    (pa.array([dt.date(2013, 7, 10)], pa.date64()), ['"2013-07-10"']),
    (pa.array([MOMENT], pa.timestamp("us")), ['"2013-07-10T09:30:00.123456"']),
    (pa.array([MOMENT.replace(microsecond=0)], pa.timestamp("s")), ['"2013-07-10T09:30:00"']),
    (pa.array([-1], pa.timestamp("ns")), ['"1969-12-31T23:59:59.999999999"']),
    (pa.array([0], pa.timestamp("ms", "America/New_York")), ['"1970-01-01T00:00:00.000Z"']),
    (pa.array([dt.time(9, 30)], pa.time32("s")), ['"09:30:00"']),
    (pa.array([dt.timedelta(seconds=2)], pa.duration("ms")), ["2000"]),
    (pa.array([[1, None], [], None]), ["[1,null]", "[]", "null"]),
    (pa.array([["a", "b"], None], pa.large_list(pa.string())), ['["a","b"]', "null"]),
    (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), ["[1,2]", "null"]),
    (pa.array([[[1], None], [[]], []], pa.list_(pa.list_(pa.int8()))), ["[[1],null]", "[[]]", "[]"]),
    (pa.array([{"a": 1, "b": 'x"'}, {"a": None, "b": None}, None]), [r'{"a":1,"b":"x\""}', '{"a":null,"b":null}', "null"]),
    (pa.array([[("k", 1), ('"', None)], [], None], pa.map_(pa.string(), pa.int64())), [r'{"k":1,"\"":null}', "{}", "null"]),
    (pa.array([[(1, "x")], None], pa.map_(pa.int64(), pa.string())), ['[[1,"x"]]', "null"]),
    (pa.array(["x", "y", None, "x"]).dictionary_encode(), ['"x"', '"y"', "null", '"x"']),
    (pa.RunEndEncodedArray.from_arrays([2, 3], ["x", None]), ['"x"', '"x"', "null"]),
    (pa.array([[1], None], pa.list_view(pa.int64())), ["[1]", "null"]),
    (pa.array([], pa.int64()), []),
]


@pytest.mark.parametrize(("array", "expected"), FORMS, ids=[f"{i}-{array.type}" for i, (array, _) in enumerate(FORMS)])
def test_form_of_each_type(array: pa.Array, expected: list[str]) -> None:
    assert one(array) == expected
    for text in expected:
        json.loads(text)
    # A slice is a view into shared buffers: its offset must count everywhere.
    assert one(array.slice(1)) == expected[1:]


def test_fields_keep_their_order_and_names() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["z", 'a"', "é"])
    assert encode_rows(batch).to_pylist() == [r'{"z":1,"a\"":2,"é":3}']


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="'x'"):
        encode_rows(pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]))


def test_types_without_a_form_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="month_day_nano"):
        one(pa.array([(1, 2, 3)], pa.month_day_nano_interval()))


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="not UTF-8"):
        one(pa.array([b"\xff"]).view(pa.string()))


def test_keys_and_raw_values() -> None:
    assert plain_text(pa.array(["é", None]), "k").to_pylist() == ["é".encode(), None]
    assert plain_text(pa.array([b"\xff", None]), "k").to_pylist() == [b"\xff", None]
    assert plain_text(pa.array([7, None]), "k").to_pylist() == [b"7", None]
    assert plain_text(pa.array([True]), "k").to_pylist() == [b"true"]
    assert plain_text(pa.array([0.5, math.nan]), "k").to_pylist() == [b"0.5", b"NaN"]
    assert plain_text(pa.array([dt.date(2013, 7, 10)]), "k").to_pylist() == [b"2013-07-10"]
    assert plain_text(pa.array([0], pa.timestamp("s", "UTC")), "k").to_pylist() == [b"1970-01-01T00:00:00Z"]
    assert plain_text(pa.array([{"a": 1}, None]), "k").to_pylist() == [b'{"a":1}', None]
    assert plain_text(pa.array(["x"]).dictionary_encode(), "k").to_pylist() == [b"x"]


SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.string(), st.text(st.characters(codec="utf-8"), max_size=12)),
    (pa.string(), st.text('"\\\x00\x1f\n/\x7fä', max_size=6)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.bool_(), st.booleans()),
]


def columns() -> st.SearchStrategy[pa.Array]:
    def column(kind: pa.DataType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[pa.DataType, list[Any]]]:
        cells = st.one_of(st.none(), values)
        return st.lists(cells, min_size=5, max_size=5).map(lambda found: (kind, found))

    plain = [column(kind, values) for kind, values in SCALARS]
    lists = [column(pa.list_(kind), st.lists(st.one_of(st.none(), values), max_size=3)) for kind, values in SCALARS]
    structs = [
        column(pa.struct([("a", kind), ("b", pa.string())]), st.fixed_dictionaries({"a": values, "b": st.none()}))
        for kind, values in SCALARS
    ]
    return st.one_of(*plain, *lists, *structs)


@examples(150)
@given(st.lists(columns(), min_size=1, max_size=4), st.integers(0, 4), st.integers(0, 5))
def test_rows_read_back_equal(found: list[tuple[pa.DataType, list[Any]]], start: int, length: int) -> None:
    names = [f"c{i}" for i in range(len(found))]
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind) for kind, values in found], names)
    rows = [dict(zip(names, cells, strict=True)) for cells in zip(*(values for _, values in found), strict=True)]
    texts = encode_rows(batch.slice(start, length)).to_pylist()
    # Compared as text again: that says 1 from 1.0 from true, and -0.0 from 0.0.
    normal = [json.dumps(json.loads(text), sort_keys=True) for text in texts]
    assert normal == [json.dumps(row, sort_keys=True) for row in rows[start : start + length]]
