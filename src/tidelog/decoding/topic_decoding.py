"""Applies the decoders of one topic to Arrow batches of its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from tidelog.decoding.decoder import Decoded, Decoder, as_binary
from tidelog.decoding.framing import with_header_ids
from tidelog.model import SIDES

UNDECODED = "_undecoded"
"""The suffix of the columns with the bytes that could not be decoded."""


class TopicDecoding:
    """Decodes a topic's keys and values in batches of a scan, which may have any columns in any order.

    In decoded batches, the columns `key` and `value` are replaced with decoded columns. A column `key_undecoded` is appended if
    keys have a decoder, and `value_undecoded` if values have a decoder. Both are binary.
    """

    def __init__(self, topic: str, decoders: Mapping[str, Decoder]) -> None:
        self.topic = topic
        self.decoders = dict(decoders)
        self.undecoded: Counter[str] = Counter()
        """The number of values that could not be decoded so far, by `key` and `value`."""

    @property
    def needs_headers(self) -> bool:
        """Whether the decoders need the column `headers`, which may contain schema ids."""
        return any(one.reads_header_ids for one in self.decoders.values())

    def columns_to_read(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns `names`, plus any other columns that are needed to decode them."""
        needs_keys = any(one.reads_keys for name, one in self.decoders.items() if name in names)
        needed = [*(["key"] if needs_keys else []), *(["headers"] if self.needs_headers else [])]
        return (*names, *(one for one in needed if one not in names))

    def learn(self, batch: pa.RecordBatch) -> None:
        """Infer the types from a sample, usually the first batch. Without this call, `decode` infers the types from its first
        batch.
        """
        for name, decoder in self._in(batch.schema):
            decoder.learn(self._column(batch, name))

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of decoded batches, if the undecoded batches have the schema `schema`. Call `learn` first."""
        fields = []
        for field in schema:
            decoder = self.decoders.get(field.name)
            if decoder is not None:
                assert decoder.type is not None, "learn is called first"
                field = field.with_type(decoder.type).with_nullable(True)
            fields.append(field)
        return pa.schema([*fields, *(pa.field(name + UNDECODED, pa.binary()) for name, _ in self._in(schema))])

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with typed columns."""
        return self._replaced(batch, {name: one.decode(self._column(batch, name)) for name, one in self._in(batch.schema)})

    def display(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with keys and values as text (`string`)."""
        return self._replaced(batch, {name: one.display(self._column(batch, name)) for name, one in self._in(batch.schema)})

    def decoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch, decoded by `decode`."""
        return map(self.decode, batches)

    def notices(self) -> list[str]:
        """Return notices, one sentence each, about values that could not be decoded and fields that the columns lack."""
        lines = []
        for name, decoder in self.decoders.items():
            count = self.undecoded[name]
            if count:
                what = f"1 {name} is" if count == 1 else f"{count:,} {name}s are"
                lines.append(f"{self.topic}: {what} {decoder.fault}: shown as bytes")
            lines += [f"{self.topic}: {name}: {one}" for one in decoder.notices()]
        return lines

    def _in(self, schema: pa.Schema) -> list[tuple[str, Decoder]]:
        return [(name, self.decoders[name]) for name in SIDES if name in self.decoders and name in schema.names]

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        column = as_binary(batch.column(name))
        if self.decoders[name].reads_keys:
            return pa.StructArray.from_arrays([as_binary(batch.column("key")), column], ["key", "value"])
        if self.decoders[name].reads_header_ids and "headers" in batch.schema.names:
            return with_header_ids(column, batch.column("headers"), name)
        return column

    def _replaced(self, batch: pa.RecordBatch, found: Mapping[str, Decoded]) -> pa.RecordBatch:
        arrays, fields = [], []
        for field, array in zip(batch.schema, batch.columns, strict=True):
            if field.name in found:
                array = found[field.name].column
                field = field.with_type(array.type).with_nullable(True)
            arrays.append(array)
            fields.append(field)
        for name, one in found.items():
            self.undecoded[name] += one.failures
            arrays.append(one.undecoded)
            fields.append(pa.field(name + UNDECODED, pa.binary()))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
