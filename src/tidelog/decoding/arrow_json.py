"""Reads JSON objects into columns of a known type with Arrow's parser, without a Python object for each value.

The parser reads a stream of objects, and does not know where each value ends. So values must begin with `{` and end with `}`, and
are joined by line breaks. An incomplete object cannot become a row together with the next value, because a line break in a string
and a `{` after a `}` are errors. A value with two objects makes the number of rows too large. If values have additional fields,
do not fit the type, or are not JSON, the result is None. Such values are then decoded one by one (`object_decoder`), which is
slower.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

MAX_BYTES: Final = 64 << 20
"""The most bytes that are read at once."""

PATIENCE: Final = 4
"""Once failures exceed successes by this number, Arrow's parser is no longer tried, because the values vary too much."""


class ArrowJson:
    """Makes columns of one type. For types other than `struct`, the result is always None."""

    def __init__(self, kind: pa.DataType) -> None:
        self._fields = list(kind) if pa.types.is_struct(kind) and _is_known(kind) else []
        self._options = pj.ParseOptions(explicit_schema=pa.schema(self._fields), unexpected_field_behavior="error")
        self._tries = PATIENCE if self._fields else 0

    def column_fast(self, values: pa.Array) -> pa.Array | None:
        """Return the values of a `binary` array as a typed column, or None if they must be decoded one by one."""
        if not self._tries or values.nbytes > MAX_BYTES:
            return None
        found = self._read(values)
        self._tries = min(PATIENCE, self._tries + 1) if found is not None else self._tries - 1
        return found

    def _read(self, values: pa.Array) -> pa.Array | None:
        given = values.fill_null(b"{}")
        is_object = pc.and_(pc.starts_with(given, b"{"), pc.ends_with(given, b"}"))
        body = pc.binary_join(pa.ListArray.from_arrays([0, len(given)], given), b"\n")[0].as_buffer()
        # The parser would stop at a NUL.
        if is_object.false_count or b"\0" in body.to_pybytes():
            return None
        try:
            options = pj.ReadOptions(use_threads=False, block_size=body.size + 1)
            table = pj.read_json(pa.BufferReader(body), options, self._options)
            columns = [column.combine_chunks() for column in table.columns]
            for column in columns:
                column.validate(full=True)  # The parser does not check UTF-8.
        except pa.ArrowException:
            return None
        # The parser accepts NaN and Infinity, which are not JSON, and numbers beyond a double's range.
        if len(table) != len(values) or not all(map(_is_finite, columns)):
            return None
        return pa.StructArray.from_arrays(columns, fields=self._fields, mask=values.is_null())


def _is_finite(column: pa.Array) -> bool:
    if pa.types.is_struct(column.type) or pa.types.is_list(column.type):
        return all(map(_is_finite, column.flatten() if pa.types.is_struct(column.type) else [column.flatten()]))
    return not pa.types.is_floating(column.type) or pc.all(pc.is_finite(column), min_count=0).as_py() is True


def _is_known(kind: pa.DataType) -> bool:
    """Return whether Arrow reads values of this type as `objects.to_column` does."""
    if pa.types.is_struct(kind):
        return all(_is_known(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_known(kind.value_type)
    return kind in (pa.string(), pa.int64(), pa.float64(), pa.bool_())
