"""Decoders without a schema or a library: UTF-8 and hexadecimal."""

from __future__ import annotations

import pyarrow as pa

from tidelog.decoding.decoder import Decoded, Decoder, as_binary, with_failures


class Utf8Decoder(Decoder):
    """Decodes text. Values that are not UTF-8 are not decoded."""

    name = "utf8"
    displays_json = False
    type = pa.string()

    def decode(self, column: pa.Array) -> Decoded:
        column = as_binary(column)
        try:
            return Decoded(column.cast(pa.string()), pa.nulls(len(column), pa.binary()))
        except pa.ArrowInvalid:
            pass
        texts: list[str | None] = []
        failed = []
        for row, value in enumerate(column.to_pylist()):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError:
                texts.append(None)
                failed.append(row)
        return with_failures(column, pa.array(texts, pa.string()), failed)

    display = decode


class HexDecoder(Decoder):
    """Shows each byte as two hexadecimal digits."""

    name = "hex"
    displays_json = False
    type = pa.string()

    def decode(self, column: pa.Array) -> Decoded:
        values = [None if value is None else value.hex() for value in as_binary(column).to_pylist()]
        return Decoded(pa.array(values, pa.string()), pa.nulls(len(values), pa.binary()))

    display = decode
