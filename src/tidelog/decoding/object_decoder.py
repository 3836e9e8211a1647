"""The base class of decoders whose library returns Python objects: JSON, MessagePack and Avro."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from tidelog.decoding.decoder import SLICE_ROWS, Decoded, Decoder, as_binary, slices, with_failures
from tidelog.decoding.objects import extra_notice, infer_type, json_of, to_column

SAMPLE_ROWS = 2 * SLICE_ROWS
"""A type is inferred from at most this many values."""


class ObjectDecoder(Decoder):
    """Decodes values into Python objects, and converts the objects to a column. If `type` is None, the type is inferred."""

    is_exact = False
    """Whether the library returns objects of exactly the column's type, except for values of type `string`."""
    undecodable: tuple[type[Exception], ...] = (ValueError, TypeError, RecursionError, OverflowError)
    """The errors that the library raises for malformed bytes."""

    def __init__(self, load: Callable[[bytes], object], type_: pa.DataType | None = None) -> None:
        self.load = load
        """Returns one value as an object. Raises one of the errors in `undecodable`."""
        self.type = type_
        self._extra: set[str] = set()

    def load_all(self, values: Sequence[bytes | None]) -> list[object]:
        """Return several values as objects; None stays None. Raises one of the errors in `undecodable` if a value is
        malformed.
        """
        load = self.load
        try:
            return list(map(load, values))  # type: ignore[arg-type]
        except self.undecodable:
            pass  # Most of the time this is a null.
        return [None if value is None else load(value) for value in values]

    def column_without_objects(self, values: pa.Array, kind: pa.DataType) -> pa.Array | None:
        """Return these values as a column without making Python objects. Return None if that is impossible, or if the result
        might differ.
        """
        return None

    def text(self, value: bytes) -> str:
        """Return one value as text. Raises one of the errors in `undecodable`."""
        return json_of(self.load(value))

    def learn(self, column: pa.Array) -> pa.DataType:
        if self.type is None:
            failed: set[int] = set()
            objects: list[object] = []
            for first, values in slices(as_binary(column).slice(0, SAMPLE_ROWS), failed):
                objects += self._load_slice(first, values.to_pylist(), failed)
            self.type = infer_type(objects)
        return self.type

    def fix(self, kind: pa.DataType) -> None:
        if not self.is_exact:
            self.type = kind

    def decode(self, column: pa.Array) -> Decoded:
        column = as_binary(column)
        kind = self.learn(column)
        failed: set[int] = set()
        chunks = []
        for first, values in slices(column, failed):
            chunk = self.column_without_objects(values, kind)
            if chunk is None:
                objects = self._load_slice(first, values.to_pylist(), failed)
                chunk, misfits = to_column(objects, kind, None if self.is_exact else self._extra)
                failed.update(first + row for row in misfits)
            chunks.append(chunk)
        return with_failures(column, pa.concat_arrays(chunks) if chunks else pa.nulls(0, kind), failed)

    def display(self, column: pa.Array) -> Decoded:
        column = as_binary(column)
        failed: set[int] = set()
        texts: list[str | None] = []
        for first, values in slices(column, failed):
            for row, value in enumerate(values.to_pylist(), first):
                try:
                    texts.append(None if value is None else self.text(value))
                except self.undecodable:
                    texts.append(None)
                    failed.add(row)
        return with_failures(column, pa.array(texts, pa.string()), failed)

    def notices(self) -> list[str]:
        return extra_notice(self._extra)

    def _load_slice(self, first: int, values: Sequence[bytes | None], failed: set[int]) -> list[object]:
        try:
            return self.load_all(values)
        except self.undecodable:
            pass
        objects: list[object] = []
        for row, value in enumerate(values, first):
            try:
                objects.append(None if value is None else self.load(value))
            except self.undecodable:
                objects.append(None)
                failed.add(row)
        return objects
