"""The interface of all decoders, which convert a binary Arrow column to a typed column or to a column of texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

MAX_VALUE_BYTES = 16 << 20
"""Values of more bytes are not decoded, because as Python objects they may need a hundred times their size."""

SLICE_ROWS = 4096
"""The number of rows that are decoded at once. All these rows are Python objects at the same time."""


class Decoded(NamedTuple):
    """A decoded column."""

    column: pa.Array
    """One value per row. It is null for a null, and for a value that could not be decoded."""
    undecoded: pa.Array
    """The bytes of each value that could not be decoded; null in all other rows."""

    @property
    def failures(self) -> int:
        """The number of values that could not be decoded."""
        return int(len(self.undecoded) - self.undecoded.null_count)


class Decoder(ABC):
    """Decodes one topic's keys or values. Not thread-safe.

    Columns are `binary`, `large_binary` or `binary_view`. No value raises an error, whatever its content. Missing and malformed
    schemas raise errors (InvalidArgumentError, NotFoundError), and so does an unreachable registry (SchemaRegistryError).
    """

    name: str
    """The format's name in `--decode`."""
    displays_json = True
    """Whether `display` returns each value as JSON in one line."""
    reads_header_ids = False
    """Whether the decoder reads schema ids from record headers (`framing`)."""
    reads_keys = False
    """Whether a value is decoded together with its key. The column is then a struct of `key` and `value`."""
    type: pa.DataType = None
    """The type of the columns that `decode` returns. If it depends on the values, it is None until `learn` is called."""

    def learn(self, column: pa.Array) -> pa.DataType:
        """Return the type of the columns. Unless the type is known, infer it from a sample, usually the first batch."""
        return self.type

    def fix(self, kind: pa.DataType) -> None:
        """Make `kind` the type of the columns, unless the decoder determines the type."""
        if self.type is None:
            self.type = kind

    @abstractmethod
    def decode(self, column: pa.Array) -> Decoded:
        """Decode a column into a column of type `type`. If the type is unknown, call `learn` with this column first."""

    @abstractmethod
    def display(self, column: pa.Array) -> Decoded:
        """Decode a column into text (`string`) for people, with all fields."""

    @property
    def fault(self) -> str:
        """The reason why values could not be decoded, such as "not json". Messages put this text after "is" or "are"."""
        return f"not {self.name}"

    def notices(self) -> list[str]:
        """Return notices, one sentence each, about data that `decode` left out, such as fields that the type lacks."""
        return []


def as_binary(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the column as a `binary` array."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column if column.type == pa.binary() else column.cast(pa.binary())


def with_failures(source: pa.Array, column: pa.Array, failed: Iterable[int]) -> Decoded:
    """Return `column` together with the original bytes from `source` of the rows in `failed`."""
    rows = sorted(failed)
    if not rows:
        return Decoded(column, pa.nulls(len(source), pa.binary()))
    mask = bytearray(len(source))
    for row in rows:
        mask[row] = 1
    is_failed = pc.cast(pa.Array.from_buffers(pa.uint8(), len(source), [None, pa.py_buffer(mask)]), pa.bool_())
    return Decoded(column, pc.if_else(is_failed, source, pa.scalar(None, pa.binary())))


def slices(column: pa.Array, failed: set[int]) -> Iterator[tuple[int, pa.Array]]:
    """Cut a `binary` array into slices, and yield each slice's first row and its values. Values that are too large become null,
    and their rows are added to `failed`.
    """
    if len(column) and (pc.max(pc.binary_length(column)).as_py() or 0) > MAX_VALUE_BYTES:
        is_large = pc.fill_null(pc.greater(pc.binary_length(column), MAX_VALUE_BYTES), False)
        failed.update(pc.indices_nonzero(is_large).to_pylist())
        column = pc.if_else(is_large, pa.scalar(None, pa.binary()), column)
    for first in range(0, len(column), SLICE_ROWS):
        yield first, column.slice(first, SLICE_ROWS)
