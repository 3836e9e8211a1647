"""Decodes values that name their schema (`framing`), with a decoder for each schema and a single type for the column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.decoding.decoder import Decoded, Decoder, as_binary, with_failures
from tidelog.decoding.framing import GUID_BYTES, ID_BYTES, ID_MAGIC, id_bytes, message_indexes, payload, schema_keys
from tidelog.decoding.registry import Schema, SchemaRegistry
from tidelog.decoding.schemas import KINDS, make_decoder
from tidelog.errors import InvalidArgumentError

MAX_KEYS: Final = 10_000
"""The most schema ids whose decoders are cached, unknown ids included."""


class FramedDecoder(Decoder):
    """Decodes each value by the schema that the value names. `others` decodes values that name no schema.

    The column has the type of the newest schema of the topic's subject. If there is no such subject, the column has the type of
    the schema that the sample names. If a topic has values of several record types, the column is JSON text.
    """

    reads_header_ids = True

    def __init__(
        self,
        name: str,
        registry: SchemaRegistry,
        *,
        topic: str,
        side: str,
        reader: Schema | None = None,
        others: Decoder | None = None,
    ) -> None:
        self.name = name
        self._has_indexes = name == "protobuf"
        self._others = others
        self._registry = registry
        self._topic = topic
        self._side = side
        self._reader = reader
        self._as_text = self._is_fixed = False
        self._own: dict[bytes, tuple[Decoder, str | None] | None] = {}
        self._resolved: dict[bytes, Decoder | None] = {}
        self._refused: dict[str, None] = {}

    def learn(self, column: pa.Array) -> pa.DataType:
        if self.type is None:
            names: dict[str | None, bytes] = {}
            for key in pc.unique(schema_keys(as_binary(column), with_indexes=self._has_indexes)).to_pylist():
                own = None if key is None else self._own_decoder(key)
                if own is not None:
                    names[own[1]] = key
            self._as_text = len(names) > 1
            if self._as_text:
                self.type = pa.string()
            elif not names and self._others is not None:
                self.type = self._others.learn(column)
            else:
                self.type = self._common_type(*next(iter(names.items()), (None, None)))
            if self._others is not None:
                self._others.type = self.type
        return self.type

    def fix(self, kind: pa.DataType) -> None:
        self.type = kind
        if self._reader is not None:
            decoder = make_decoder(self._reader)[0]
            decoder.fix(kind)
            self.type = decoder.type
        if self._others is not None:
            self._others.fix(self.type)
        self._is_fixed = True

    def decode(self, column: pa.Array) -> Decoded:
        column = as_binary(column)
        kind = self.learn(column)
        if self._as_text:
            return self.display(column)
        return self._by_schema(column, kind, self._resolved_decoder, lambda decoder, part: decoder.decode(part))

    def display(self, column: pa.Array) -> Decoded:
        def own(key: bytes) -> Decoder | None:
            found = self._own_decoder(key)
            return None if found is None else found[0]

        return self._by_schema(as_binary(column), pa.string(), own, lambda decoder, part: decoder.display(part))

    def notices(self) -> list[str]:
        lines = {line for one in self._resolved.values() if one is not None for line in one.notices()}
        return [*self._refused, *sorted(lines), *([] if self._others is None else self._others.notices())]

    def _common_type(self, name: str | None, key: bytes | None) -> pa.DataType:
        """Return the column's type for values of the record or message `name`: the type of the newest schema. `key` has the id of
        such a value's schema.
        """
        own = None if key is None else self._registry.by_key(key[: id_bytes(key)])
        indexes = () if key is None else message_indexes(key)
        if self._reader is None:
            self._reader = self._latest(name) or own
        if self._reader is None:
            return pa.string()
        if own is None:
            return make_decoder(self._reader)[0].type
        return make_decoder(own, indexes, self._reader)[0].type

    def _by_schema(
        self,
        column: pa.Array,
        kind: pa.DataType,
        decoder_of: Callable[[bytes], Decoder | None],
        apply: Callable[[Decoder, pa.Array], Decoded],
    ) -> Decoded:
        """Decode the values, schema by schema, with `decoder_of` and `apply`."""
        keys = schema_keys(column, with_indexes=self._has_indexes).dictionary_encode()
        parts, undecoded, order = [], [], []
        for number, key in enumerate(keys.dictionary.to_pylist()):
            is_all = len(keys.dictionary) == 1 and keys.null_count == 0
            rows = None if is_all else pc.indices_nonzero(pc.fill_null(pc.equal(keys.indices, number), False))
            values = column if rows is None else column.take(rows)
            decoder = decoder_of(key)
            if decoder is None:
                found = Decoded(pa.nulls(len(values), kind), values)
            else:
                found = apply(decoder, payload(values, len(key)))
                if found.failures:
                    found = with_failures(values, found.column, pc.indices_nonzero(found.undecoded.is_valid()).to_pylist())
            if rows is None:
                return found
            parts.append(found.column)
            undecoded.append(found.undecoded)
            order.append(rows)
        # The remaining rows are null or name no schema.
        rows = pc.indices_nonzero(keys.indices.is_null())
        values = column.take(rows)
        found = Decoded(pa.nulls(len(rows), kind), values) if self._others is None else apply(self._others, values)
        if len(rows) == len(column):
            return found
        parts.append(found.column)
        undecoded.append(found.undecoded)
        order.append(rows)
        back = pc.sort_indices(pa.concat_arrays(order))
        return Decoded(pa.concat_arrays(parts).take(back), pa.concat_arrays(undecoded).take(back))

    def _own_decoder(self, key: bytes) -> tuple[Decoder, str | None] | None:
        """Return the decoder for the writer schema alone, and the schema's record name. Return None if the registry lacks the
        schema or the schema has a different format.
        """
        if key in self._own:
            return self._own[key]
        found = self._decoder(key, None)
        if len(self._own) < MAX_KEYS:
            self._own[key] = found
        return found

    def _resolved_decoder(self, key: bytes) -> Decoder | None:
        if key in self._resolved:
            return self._resolved[key]
        found = self._decoder(key, self._reader)
        if found is not None and self._is_fixed:
            found[0].fix(self.type)
        decoder = None if found is None or found[0].type != self.type else found[0]
        if len(self._resolved) < MAX_KEYS:
            self._resolved[key] = decoder
        return decoder

    def _decoder(self, key: bytes, reader: Schema | None) -> tuple[Decoder, str | None] | None:
        schema = self._registry.by_key(key[: id_bytes(key)])
        if schema is None or schema.kind != KINDS[self.name]:
            return None
        try:
            return make_decoder(schema, message_indexes(key), reader)
        except InvalidArgumentError as error:
            self._refused[f"schema {_shown(key)}: {error}"] = None
            return None

    def _latest(self, name: str | None) -> Schema | None:
        """Return the newest schema of the topic's subject: the first that exists by the naming strategies TopicName,
        TopicRecordName and RecordName. None if none exists.
        """
        subjects = [f"{self._topic}-{self._side}", *([] if name is None else [f"{self._topic}-{name}", name])]
        for subject in subjects:
            found = self._registry.latest(subject)
            if found is not None and found.kind == KINDS[self.name]:
                return found
        return None


def _shown(key: bytes) -> str:
    return str(int.from_bytes(key[1:ID_BYTES], "big")) if key[0] == ID_MAGIC else key[1:GUID_BYTES].hex()
