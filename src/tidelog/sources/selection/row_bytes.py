"""Returns the bytes of one row of an Arrow array without copying them, because a key or value may be as large as 100 MB."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

LARGE_ROW = 1 << 20
"""If the rows of a batch have more bytes than this on average, the rows are handled one by one, which avoids copying them."""

INLINE_BYTES = 12
"""Arrow's views store values of up to this many bytes inline."""


def row_bytes(array: pa.Array, row: int) -> pa.Buffer | None:
    """Return the bytes of a row of a binary, binary_view or string array, None for a null."""
    if array.slice(row, 1).null_count:
        return None
    # Do not make a scalar: Arrow would copy the whole value for the scalar, and again for the scalar's buffer.
    place = array.offset + row
    _, index, *data = array.buffers()
    if str(array.type) == "binary_view":
        size, _, number, start = struct.unpack_from("=iiii", index, 16 * place)
        return index.slice(16 * place + 4, size) if size <= INLINE_BYTES else data[number].slice(start, size)
    start, end = struct.unpack_from("=ii", index, 4 * place)
    return index.slice(0, 0) if start == end else data[0].slice(start, end - start)


def rows_apart(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch with binary columns instead of views. If its rows are large on average, yield a batch per row, without
    copying.
    """
    is_large = batch.nbytes > LARGE_ROW * batch.num_rows
    for part in (batch.slice(row, 1) for row in range(batch.num_rows)) if is_large else (batch,):
        yield _without_views(part)


def kept(batch: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """Return the rows for which the mask is true. Nothing is copied if all rows or no rows pass."""
    return batch.filter(mask) if 0 < mask.true_count < len(mask) else batch.slice(0, mask.true_count)


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    if not any(pa.types.is_binary_view(column.type) for column in batch.columns):
        return batch
    columns = list(batch.columns)
    fields = list(batch.schema)
    for number, column in enumerate(columns):
        if not pa.types.is_binary_view(column.type):
            continue
        held = row_bytes(column, 0) if batch.num_rows == 1 else None
        if held is None:
            columns[number] = column.cast(pa.binary())
        else:
            columns[number] = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(struct.pack("=ii", 0, held.size)), held])
        fields[number] = fields[number].with_type(pa.binary())
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, batch.schema.metadata))
