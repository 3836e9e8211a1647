"""Converts Arrow columns to the input of the batch builder. Imports, Spark's sink, copies and restores use this module.

| Arrow | becomes |
|---|---|
| a binary column | `BinaryLayout`: offsets, data and validity, not copied |
| an int32 or int64 column without nulls | a memoryview of its values |
| a column with each row's target partition | for each target, the numbers of its rows, in order |
| header keys and values, and their rows | a binary column in the encoding of v2 records (`records.builder.encode_headers`) |

No row becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.records.builder import encode_varint
from tidelog.records.column_batches import BinaryLayout

_NOTHING = pa.scalar(b"", pa.binary())


def binary_layout(array: pa.BinaryArray) -> BinaryLayout:
    """Return a column's byte strings as offsets, data and validity, without a copy."""
    validity, offsets, data = array.buffers()
    return BinaryLayout(offsets, data or b"", validity, array.offset, len(array))


def int_view(array: pa.Array, code: Literal["i", "q"]) -> memoryview:
    """Return the values of an int32 ("i") or int64 ("q") column. Nulls become arbitrary values."""
    values = memoryview(array.buffers()[1]).cast("B").cast(code)
    return values[array.offset : array.offset + len(array)]


def rows_by_place(places: pa.Array) -> Iterator[tuple[int, pa.Int32Array]]:
    """Yield each value of `places`, such as a target partition, with the numbers of its rows in ascending order."""
    order = pc.array_sort_indices(places).cast(pa.int32())  # This sort is stable.
    start = 0
    runs = pc.run_end_encode(places.take(order))
    for place, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield place, order.slice(start, end - start)
        start = end


def encoded_headers(keys: pa.BinaryArray, values: pa.BinaryArray, offsets: pa.Int32Array) -> pa.BinaryArray:
    """Return each row's headers as a binary column. Row n has the headers from `offsets[n]` to `offsets[n + 1]`. Keys must not be
    null.

    The encoding is varint(count), then for each header varint(key bytes), key, varint(value bytes, -1 for null), value.
    """
    headers = pc.binary_join_element_wise(
        _varints(pc.binary_length(keys)),
        keys,
        _varints(pc.fill_null(pc.binary_length(values), -1)),
        pc.fill_null(values, _NOTHING),
        _NOTHING,
    )
    lists = pa.ListArray.from_arrays(offsets, headers)
    return pc.binary_join_element_wise(_varints(pc.list_value_length(lists)), pc.binary_join(lists, _NOTHING), _NOTHING)


def _varints(numbers: pa.Array) -> pa.Array:
    """Return numbers as zig-zag varints. Lengths repeat often, so each distinct number is encoded only once."""
    coded = numbers.dictionary_encode()
    texts = pa.array([encode_varint(number) for number in coded.dictionary.to_pylist()], pa.binary())
    return texts.take(coded.indices)
