"""Guesses the format of a topic's keys or values from a sample."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.decoding.decoder import SLICE_ROWS, Decoded, Decoder, as_binary
from tidelog.decoding.plain import HexDecoder, Utf8Decoder
from tidelog.decoding.registry import SchemaRegistry
from tidelog.errors import InvalidArgumentError

_MOST_FAILURES: Final = 0.1
"""A format fits if at most this fraction of the sample cannot be decoded."""


class AutoDecoder(Decoder):
    """Applies the first format that fits the sample.

    | format | fits a sample of |
    |---|---|
    | avro, protobuf or json with a registry | values that name a schema in the registry |
    | json | objects and lists |
    | utf8 | text without control characters |
    | msgpack | maps and lists |
    | hex | any values; typed columns contain the bytes |
    """

    reads_header_ids = True

    def __init__(self, registry: SchemaRegistry | None, topic: str, side: str) -> None:
        self.name = "auto"
        self._registry = registry
        self._topic = topic
        self._side = side
        self._chosen: Decoder | None = None
        self._is_known = False

    @property
    def displays_json(self) -> bool:  # type: ignore[override]
        """Whether `display` of the chosen format returns JSON."""
        return self._chosen is not None and self._chosen.displays_json

    def learn(self, column: pa.Array) -> pa.DataType:
        if not self._is_known:
            sample = as_binary(column).slice(0, SLICE_ROWS)
            self._chosen = self._choice(sample.drop_null())
            self._is_known = len(sample) > sample.null_count
            self.type = pa.binary() if self._chosen is None else self._chosen.learn(column)
            self.name = "auto" if self._chosen is None else self._chosen.name
        return self.type

    def decode(self, column: pa.Array) -> Decoded:
        column = as_binary(column)
        self.learn(column)
        return Decoded(column, pa.nulls(len(column), pa.binary())) if self._chosen is None else self._chosen.decode(column)

    def display(self, column: pa.Array) -> Decoded:
        self.learn(column)
        return (self._chosen or HexDecoder()).display(column)

    def notices(self) -> list[str]:
        return [] if self._chosen is None else self._chosen.notices()

    def _choice(self, sample: pa.Array) -> Decoder | None:
        if not len(sample):
            return None
        return self._framed(sample) or self._json(sample) or self._utf8(sample) or self._msgpack(sample)

    def _framed(self, sample: pa.Array) -> Decoder | None:
        if self._registry is None:
            return None
        from tidelog.decoding.framed import FramedDecoder
        from tidelog.decoding.framing import id_bytes, schema_keys
        from tidelog.decoding.json_values import JsonDecoder
        from tidelog.decoding.schemas import KINDS

        keys = schema_keys(sample, with_indexes=False)
        if keys.null_count > _MOST_FAILURES * len(keys):
            return None
        kinds = {
            found.kind
            for key in pc.unique(keys).drop_null().to_pylist()
            if (found := self._registry.by_key(key[: id_bytes(key)]))
        }
        for name, kind in KINDS.items():
            if kinds == {kind}:
                others = JsonDecoder() if name == "json" else None
                decoder = FramedDecoder(name, self._registry, topic=self._topic, side=self._side, others=others)
                return decoder if _fits(decoder, sample) else None
        return None

    def _json(self, sample: pa.Array) -> Decoder | None:
        from tidelog.decoding.json_values import JsonDecoder

        starts = pc.match_substring_regex(sample, r"^[ \t\r\n]*[{\[]")
        return (
            JsonDecoder()
            if pc.sum(starts).as_py() >= (1 - _MOST_FAILURES) * len(sample) and _fits(JsonDecoder(), sample)
            else None
        )

    def _utf8(self, sample: pa.Array) -> Decoder | None:
        decoder = Utf8Decoder()
        decoded = decoder.decode(sample)
        controls = pc.sum(pc.match_substring_regex(decoded.column, r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")).as_py() or 0
        return decoder if decoded.failures + controls <= _MOST_FAILURES * len(sample) else None

    def _msgpack(self, sample: pa.Array) -> Decoder | None:
        from tidelog.decoding.msgpack_values import MsgpackDecoder

        # fixmap, fixarray, array 16 and 32, map 16 and 32.
        starts = pc.is_in(
            pc.binary_slice(sample, 0, 1), pa.array([bytes([one]) for one in (*range(0x80, 0xA0), *range(0xDC, 0xE0))])
        )
        return MsgpackDecoder() if pc.all(starts).as_py() and _fits(MsgpackDecoder(), sample) else None


def _fits(decoder: Decoder, sample: pa.Array) -> bool:
    try:
        return decoder.display(sample).failures <= _MOST_FAILURES * len(sample)
    except InvalidArgumentError:
        return False
