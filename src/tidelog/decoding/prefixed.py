"""Decodes values with a given schema. Values may have the prefix that `framing` describes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.decoding.decoder import SLICE_ROWS, Decoded, Decoder, as_binary, with_failures
from tidelog.decoding.framing import payload, schema_keys


class PrefixedDecoder(Decoder):
    """Decodes values after removing their prefix, if that way more values of the sample can be decoded.

    An Avro value may begin with the same bytes as a prefix, so a single value does not show whether there is a prefix.
    """

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner
        self.name = inner.name
        self.type = inner.type
        self._strips: bool | None = None

    def learn(self, column: pa.Array) -> pa.DataType:
        column = as_binary(column)
        if self._strips is None:
            sample = column.slice(0, SLICE_ROWS)
            stripped = self._without_prefix(sample)
            self._strips = (
                stripped is not sample and self._inner.display(stripped).failures < self._inner.display(sample).failures
            )
        if self.type is None:
            self.type = self._inner.learn(self._payload(column))
        return self.type

    def fix(self, kind: pa.DataType) -> None:
        self._inner.fix(kind)
        self.type = self._inner.type

    def decode(self, column: pa.Array) -> Decoded:
        column = as_binary(column)
        self.learn(column)
        return self._outer(column, self._inner.decode(self._payload(column)))

    def display(self, column: pa.Array) -> Decoded:
        column = as_binary(column)
        self.learn(column)
        return self._outer(column, self._inner.display(self._payload(column)))

    def notices(self) -> list[str]:
        return self._inner.notices()

    def _payload(self, column: pa.Array) -> pa.Array:
        return self._without_prefix(column) if self._strips else column

    def _without_prefix(self, column: pa.Array) -> pa.Array:
        keys = schema_keys(column, with_indexes=self.name == "protobuf")
        if keys.null_count == len(keys):
            return column
        values = column
        for size in pc.unique(pc.binary_length(keys)).drop_null().to_pylist():
            has_size = pc.fill_null(pc.equal(pc.binary_length(keys), size), False)
            values = pc.if_else(has_size, payload(column, size), values)
        return values

    def _outer(self, column: pa.Array, found: Decoded) -> Decoded:
        if not self._strips or not found.failures:
            return found
        return with_failures(column, found.column, pc.indices_nonzero(found.undecoded.is_valid()).to_pylist())
