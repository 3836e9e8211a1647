"""Implements Avro's most common schema evolution on Arrow columns: fields added with a default, and fields removed.

fastavro resolves schemas value by value, at half its usual speed. This module adds and drops whole columns. All other changes
(promotions, aliases, changes within fields) are left to fastavro.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tidelog.decoding.decoder import Decoded, Decoder
from tidelog.decoding.schemaful.avro_schema import AvroSchema


def evolution(writer: AvroSchema, reader: AvroSchema) -> Callable[[pa.Array], pa.Array] | None:
    """Return a function that converts a column from the writer's type to the reader's type. Return None if that takes more than
    adding and dropping fields.
    """
    if not (writer.is_record and reader.is_record and writer.name == reader.name) or "aliases" in reader.schema:
        return None
    mine, theirs = reader.named_types(), writer.named_types()
    if any(mine[name] != theirs[name] for name in mine.keys() & theirs.keys() if name != reader.name):
        return None
    written = {field["name"]: (index, field) for index, field in enumerate(writer.schema["fields"])}
    columns: list[int | pa.Scalar] = []
    for field, kind in zip(reader.schema["fields"], reader.type, strict=True):
        index, old = written.get(field["name"], (-1, None))
        if old is not None and old["type"] == field["type"] and writer.type.field(index).type == kind.type:
            columns.append(index)
        elif old is None and "aliases" not in field and _is_plain(field.get("default", ...), kind.type):
            columns.append(pa.scalar(field["default"], kind.type))
        else:
            return None

    def evolved(column: pa.Array) -> pa.Array:
        arrays = [column.field(one) if isinstance(one, int) else pa.repeat(one, len(column)) for one in columns]
        return pa.StructArray.from_arrays(arrays, fields=list(reader.type), mask=column.is_null())

    return evolved


def _is_plain(default: Any, kind: pa.DataType) -> bool:
    """Return whether the JSON form of an Avro default is also its value in Arrow."""
    if default is None or isinstance(default, bool):
        return default is None or pa.types.is_boolean(kind)
    if isinstance(default, int):
        return bool(pa.types.is_integer(kind))
    return isinstance(default, str) and bool(pa.types.is_string(kind))


class EvolvedDecoder(Decoder):
    """Decodes with the writer's schema, then applies `evolution`."""

    name = "avro"

    def __init__(self, inner: Decoder, evolved: Callable[[pa.Array], pa.Array], kind: pa.DataType) -> None:
        self._inner = inner
        self._evolved = evolved
        self.type = kind

    def decode(self, column: pa.Array) -> Decoded:
        decoded = self._inner.decode(column)
        return Decoded(self._evolved(decoded.column), decoded.undecoded)

    def display(self, column: pa.Array) -> Decoded:
        return self._inner.display(column)
