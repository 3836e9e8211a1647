"""Decodes Avro's binary encoding with fastavro.

The values of a slice are decoded as one array, in one call of the library, each with a random marker as its last field. If a
marker is not where it should be, a value is longer or shorter than its schema allows, and each value is decoded alone. So a
damaged value never affects the next value.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from tidelog.decoding.decoder import Decoded
from tidelog.decoding.json_text import json_texts
from tidelog.decoding.object_decoder import ObjectDecoder
from tidelog.decoding.schemaful.avro_schema import MARK, VALUE, AvroSchema
from tidelog.extras import imported_from

_MARK: Final = os.urandom(8)


class AvroDecoder(ObjectDecoder):
    """Decodes values of the schema `writer` into values of the schema `reader`, by Avro's rules of schema resolution."""

    name = "avro"
    is_exact = True
    undecodable = (Exception,)
    """All exceptions, because fastavro raises many types of exceptions for malformed values."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema | None = None) -> None:
        reader = None if reader is writer else reader
        super().__init__(self._one_value, (reader or writer).type)
        self.schema = writer
        with imported_from("decode", "fastavro"):
            # The compiled reader recurses without a limit.
            if writer.is_recursive or (reader is not None and reader.is_recursive):
                from fastavro._read_py import schemaless_reader
            else:
                from fastavro import schemaless_reader
        self._read = schemaless_reader
        self._rows = writer.rows(len(_MARK))
        self._reader_rows = None if reader is None else reader.rows(len(_MARK))
        self._one = writer.one()
        self._reader_one = None if reader is None else reader.one()

    def _one_value(self, value: bytes) -> object:
        stream = io.BytesIO(value)
        found = self._read(stream, self._one, self._reader_one)
        if stream.tell() != len(value):
            raise ValueError("there are bytes after the value")
        return found

    def load_all(self, values: Sequence[bytes | None]) -> list[object]:
        given = [value for value in values if value is not None]
        if not given:
            return [None] * len(values)
        body = _zigzag(len(given)) + _MARK.join(given) + _MARK + b"\0"
        rows: Any = self._read(io.BytesIO(body), self._rows, self._reader_rows)
        if {row[MARK] for row in rows} != {_MARK}:
            raise ValueError("a value is longer or shorter than its schema says")
        if not self.schema.is_record:
            rows = [row[VALUE] for row in rows]
        if len(given) == len(values):
            return rows  # type: ignore[no-any-return]
        found = iter(rows)
        return [None if value is None else next(found) for value in values]

    def display(self, column: pa.Array) -> Decoded:
        decoded = self.decode(column)
        return Decoded(json_texts(decoded.column), decoded.undecoded)


def _zigzag(count: int) -> bytes:
    number, encoded = count << 1, bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
