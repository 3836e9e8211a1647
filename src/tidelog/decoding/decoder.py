"""The interface of all decoders: a binary Arrow column in, a typed column or a column of texts out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

MAX_VALUE_BYTES = 16 << 20
"""Larger values are not decoded: as Python objects, some formats' values need a hundred times their size."""

SLICE_ROWS = 4096
"""Rows that are decoded at once: they exist as Python objects meanwhile."""


class Decoded(NamedTuple):
    """A decoded column."""

    column: pa.Array
    """One value per row; null for a null, and for a value that could not be decoded."""
    undecoded: pa.Array
    """The bytes of each value that could not be decoded, null in all other rows."""

    @property
    def failures(self) -> int:
        """The number of values that could not be decoded."""
        return int(len(self.undecoded) - self.undecoded.null_count)


class Decoder(ABC):
    """Decodes one topic's keys or values. Not thread-safe.

    Columns are `binary`, `large_binary` or `binary_view`. No content of a value raises an error; what does raise are schemas that
    are missing or malformed (InvalidArgumentError, NotFoundError) and an unreachable registry (RegistryError).
    """

    name: str
    """The name in `--decode`."""
    displays_json = True
    """Whether the texts of `display` are JSON, without line breaks."""
    reads_header_ids = False
    """Whether a schema's id may be in a record's header (`framing`)."""
    type: pa.DataType | None = None
    """The type of the columns that `decode` returns; None until `learn` has been called, if it depends on the values."""

    def learn(self, column: pa.Array) -> pa.DataType:
        """Determine the type by a sample, usually the first batch, unless it is already known. Return the type."""
        assert self.type is not None
        return self.type

    @abstractmethod
    def decode(self, column: pa.Array) -> Decoded:
        """Return a column of `type`; calls `learn` with this column if nothing was learned."""

    @abstractmethod
    def display(self, column: pa.Array) -> Decoded:
        """Return a column of texts (`string`), complete and for people."""

    def notices(self) -> list[str]:
        """Return notices about what `decode` left out, one sentence each, for example fields that the type lacks."""
        return []


def as_binary(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the column as a `binary` array."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column if column.type == pa.binary() else column.cast(pa.binary())


def with_failures(source: pa.Array, column: pa.Array, failed: Iterable[int]) -> Decoded:
    """Return `column` with the bytes of the failed rows beside it."""
    rows = sorted(failed)
    if not rows:
        return Decoded(column, pa.nulls(len(source), pa.binary()))
    mask = bytearray(len(source))
    for row in rows:
        mask[row] = 1
    is_failed = pc.cast(pa.Array.from_buffers(pa.uint8(), len(source), [None, pa.py_buffer(mask)]), pa.bool_())
    return Decoded(column, pc.if_else(is_failed, source, pa.scalar(None, pa.binary())))


def slices(column: pa.Array, failed: set[int]) -> Iterator[tuple[int, list[bytes | None]]]:
    """Yield the first row and the values of each slice. Values that are too large become None, and their rows are added to
    `failed`.
    """
    if len(column) and (pc.max(pc.binary_length(column)).as_py() or 0) > MAX_VALUE_BYTES:
        is_large = pc.fill_null(pc.greater(pc.binary_length(column), MAX_VALUE_BYTES), False)
        failed.update(pc.indices_nonzero(is_large).to_pylist())
        column = pc.if_else(is_large, pa.scalar(None, pa.binary()), column)
    for first in range(0, len(column), SLICE_ROWS):
        yield first, column.slice(first, SLICE_ROWS).to_pylist()
