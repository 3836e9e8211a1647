"""Reads JSON into columns of a known type with Arrow's parser, without an object for each value.

Arrow reads a stream of objects, so each value becomes the only field of one, whose name nobody can guess. A value that is not
complete JSON can then only cause an error, a further object or a further field. All of these are noticed, as is every value that
does not fit the type or has fields that it lacks. The values are then decoded one by one (`object_decoder`), which is slower.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.json as pj

MAX_BYTES: Final = 64 << 20
"""The most bytes that are read at once."""

PATIENCE: Final = 4
"""After so many more failures than successes, nothing is tried any more: the values vary too much."""


class ArrowJson:
    """Makes columns of one type."""

    def __init__(self, kind: pa.DataType) -> None:
        name = f"value{secrets.token_hex(8)}"
        self._before = f'{{"{name}":'.encode()
        self._between = b"}\n" + self._before
        self._options = pj.ParseOptions(explicit_schema=pa.schema([(name, kind)]), unexpected_field_behavior="error")
        self._tries = PATIENCE if _is_known(kind) else 0

    def column(self, values: Sequence[bytes | None]) -> pa.Array | None:
        """Return the column of these values; None is null. Returns None if they must be decoded one by one."""
        if not self._tries:
            return None
        given = [b"null" if value is None else value for value in values]
        if sum(map(len, given)) > MAX_BYTES:
            return None
        found = self._read(b"".join([self._before, self._between.join(given), b"}\n"]), len(given))
        self._tries = min(PATIENCE, self._tries + 1) if found is not None else self._tries - 1
        return found

    def _read(self, body: bytes, rows: int) -> pa.Array | None:
        if b"\0" in body:
            return None  # The parser would stop there.
        try:
            table = pj.read_json(
                pa.py_buffer(body), pj.ReadOptions(use_threads=False, block_size=len(body) + 1), self._options
            )
            column = table.column(0).combine_chunks()
            column.validate(full=True)  # The parser does not check UTF-8.
        except pa.ArrowException:
            return None
        return column if len(column) == rows else None


def _is_known(kind: pa.DataType) -> bool:
    """Whether Arrow reads values of a type as `objects.to_column` does."""
    if pa.types.is_struct(kind):
        return all(_is_known(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_known(kind.value_type)
    return kind in (pa.string(), pa.int64(), pa.float64(), pa.bool_())
