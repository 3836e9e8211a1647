"""Parses the arguments for decoding, and makes decoders from them.

| text | decodes |
|---|---|
| `json` | the values of all topics (in `key_texts`, the keys) |
| `orders=avro`, `order*=avro` | the values of a topic, or of all topics that match (in `key_texts`, the keys) |
| `orders.key=utf8`, `orders.value=avro` | a topic's keys, or a topic's values |

The format `internal` decodes Kafka's internal topics, and `raw` decodes nothing. With `decodes_internal`, internal topics are
decoded unless a text applies to them. The most specific text applies: a text with a topic's name before a text with a pattern,
and both before a text with neither. Of equally specific texts, the last applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tidelog.errors import InvalidArgumentError
from tidelog.model import KAFKAS_TOPICS, SIDES
from tidelog.near_names import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.decoding.decoder import Decoder
    from tidelog.decoding.registry import Schema, SchemaRegistry
    from tidelog.decoding.topic_decoding import TopicDecoding

_NONE: Final[Mapping[str, Any]] = {}

Decode: TypeAlias = "str | Mapping[str, str] | Iterable[str] | Decodings"
"""The type of the argument `decode` of `tidelog.scan`."""

FORMATS: Final = ("utf8", "json", "avro", "protobuf", "msgpack", "hex", "auto", "internal", "raw")

_WILDCARDS = frozenset("*?[")


class _Rule(NamedTuple):
    topic: str | None
    side: str
    text: str

    def rank(self, topic: str) -> int:
        if self.topic is None:
            return 1
        if self.topic == topic:
            return 3
        return 2 if _WILDCARDS & set(self.topic) and fnmatchcase(topic, self.topic) else 0


class DecodeTexts(NamedTuple):
    """The arguments of `Decodings.parse` that a command got as options."""

    texts: tuple[str, ...] = ()
    key_texts: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    registry: SchemaRegistry | None = None


class Decodings:
    """How to decode each topic's keys and values; `topic` returns the decoders of one topic."""

    def __init__(
        self,
        rules: Iterable[_Rule],
        schemas: Iterable[_Rule] = (),
        registry: SchemaRegistry | None = None,
        *,
        decodes_internal: bool = False,
    ) -> None:
        self._decodes_internal = decodes_internal
        self._rules = tuple(rules)
        self._schemas = tuple(schemas)
        self._given_registry = registry
        self._registry_found = registry
        for one in self._rules:
            if one.text not in FORMATS:
                raise InvalidArgumentError(
                    f"unknown format: {one.text}{did_you_mean(one.text, FORMATS)}", expected=", ".join(FORMATS)
                )

    @classmethod
    def parse(
        cls,
        texts: Iterable[str] = (),
        *,
        key_texts: Iterable[str] = (),
        schemas: Iterable[str] = (),
        registry: SchemaRegistry | str | Mapping[str, str] | None = None,
        decodes_internal: bool = False,
    ) -> Decodings:
        """Parse texts of the forms in this module's table. Raises InvalidArgumentError for an unknown format or property.

        `schemas` have the same forms, with a file instead of a format: `FILE`, `orders=FILE`, `orders.key=FILE`
        (`tidelog.decoding.schemas`). If the whole text is the path of an existing file, it means that file, even if it
        contains `=`. `registry` is a schema registry, its URL, or its properties (`tidelog.decoding.registry`). By default, the
        registry comes from environment variables.
        """
        rules = [*(_rule(one, "value") for one in texts), *(_rule(one, "key") for one in key_texts)]
        if isinstance(registry, str | Mapping):
            from tidelog.decoding.registry import SchemaRegistry

            url, properties = (registry, {}) if isinstance(registry, str) else (None, registry)
            registry = SchemaRegistry.from_environment(url, properties)
        return cls(rules, [_schema_rule(one) for one in schemas], registry, decodes_internal=decodes_internal)

    @classmethod
    def of(cls, decode: Decode) -> Decodings:
        """Convert an argument of the Python API: one text, several texts, or `{"key": "utf8", "value": "json"}`."""
        if isinstance(decode, Decodings):
            return decode
        if isinstance(decode, str):
            return cls.parse([decode])
        if isinstance(decode, Mapping):
            for name in decode:
                if name not in SIDES:
                    raise InvalidArgumentError("decode", found=repr(name), expected="key or value")
            return cls([_Rule(None, side, text) for side, text in decode.items()])
        return cls.parse(decode)

    def __bool__(self) -> bool:
        return bool(self._rules) or self._decodes_internal

    def with_internal(self) -> Decodings:
        """Return the same decodings, which also decode Kafka's internal topics."""
        return Decodings(self._rules, self._schemas, self._given_registry, decodes_internal=True)

    def decodes(self, topic: str) -> bool:
        """Return whether a topic's keys or values have a decoder."""
        return any(self._format(topic, side) is not None for side in SIDES)

    def check_schemas(self) -> None:
        """Read every schema file, and parse those whose format is known: by a text for the same topics, or by the extension.

        Raises NotFoundError, InvalidArgumentError, MissingPackageError.
        """
        from tidelog.decoding.schemas import KINDS, make_decoder, read_schema_file, schema_file

        for schema in self._schemas:
            formats = {one.text for one in self._rules if one.side == schema.side and one.topic in (schema.topic, None)}
            path = schema.text.partition("#")[0]
            if not formats:
                formats = {"avro"} if path.endswith(".avsc") else {"protobuf"} if path.endswith(".proto") else set()
            for name in sorted(formats & KINDS.keys()):
                make_decoder(schema_file(schema.text, name))
            if not formats & KINDS.keys():
                read_schema_file(path)

    def unused(self, topics: Iterable[str]) -> list[str]:
        """Return the names and patterns in the texts that match none of `topics`."""
        named = {one.topic: one for one in (*self._rules, *self._schemas) if one.topic is not None}
        return [name for name, one in named.items() if not any(map(one.rank, topics))]

    def topic(self, topic: str, types: Mapping[str, pa.DataType] = _NONE, readers: Mapping[str, Schema] = _NONE) -> TopicDecoding:
        """Return new decoders for a topic's keys and values. If no text applies to the keys or the values, they have no decoder.

        For `key` and `value`, `types` has the column types and `readers` the reader schemas. Decoders determine any that are not
        given. Raises InvalidArgumentError for a missing or malformed schema, MissingPackageError without the extra `decode`.
        """
        decoders = {}
        for side in SIDES:
            name = self._format(topic, side)
            if name is not None:
                decoder = decoders[side] = self._decoder(name, topic, side, readers.get(side))
                if side in types:
                    decoder.fix(types[side])
        # Loads Arrow.
        from tidelog.decoding.topic_decoding import TopicDecoding

        return TopicDecoding(topic, decoders)

    def _format(self, topic: str, side: str) -> str | None:
        """Return the format of a topic's keys or values, None if they stay bytes."""
        name = _applying(self._rules, topic, side)
        if name is None and self._decodes_internal and topic in KAFKAS_TOPICS:
            return "internal"
        return None if name == "raw" else name

    def _decoder(self, name: str, topic: str, side: str, reader: Schema | None = None) -> Decoder:
        # Import a decoder's module only if the decoder is used.
        if name in ("utf8", "hex"):
            from tidelog.decoding.plain import HexDecoder, Utf8Decoder

            return Utf8Decoder() if name == "utf8" else HexDecoder()
        if name == "internal":
            from tidelog.decoding.internal.values import InternalDecoder

            return InternalDecoder(topic, side)
        if name == "msgpack":
            from tidelog.decoding.msgpack_values import MsgpackDecoder

            return MsgpackDecoder()
        if name == "auto":
            from tidelog.decoding.auto import AutoDecoder

            return AutoDecoder(self._registry(), topic, side)
        return self._by_schema(name, topic, side, reader)

    def _by_schema(self, name: str, topic: str, side: str, latest: Schema | None) -> Decoder:
        """Return the decoder of a format that has schemas.

        If there is a schema file and no `registry` argument, values are decoded by the file alone, even if the environment names
        a registry. If both are given, the writer schemas come from the registry, and the file is the reader schema.
        """
        from tidelog.decoding.framed import FramedDecoder
        from tidelog.decoding.json_values import JsonDecoder
        from tidelog.decoding.prefixed import PrefixedDecoder
        from tidelog.decoding.schemas import make_decoder, schema_file

        text = _applying(self._schemas, topic, side)
        reader = None if text is None else schema_file(text, name)
        registry = self._registry() if reader is None else self._given_registry
        reader = reader or latest
        if registry is not None:
            others = JsonDecoder() if name == "json" else None
            return FramedDecoder(name, registry, topic=topic, side=side, reader=reader, others=others)
        if reader is not None:
            return PrefixedDecoder(make_decoder(reader)[0])
        if name == "json":
            return PrefixedDecoder(JsonDecoder())
        raise InvalidArgumentError(
            f"to decode the {side}s of {topic}, {name} needs a schema registry or a schema file",
            expected="SCHEMA_REGISTRY_URL, or the option registry or schema",
        )

    def _registry(self) -> SchemaRegistry | None:
        if self._registry_found is None:
            from tidelog.decoding.registry import SchemaRegistry

            self._registry_found = SchemaRegistry.from_environment()
        return self._registry_found


def _schema_rule(text: str) -> _Rule:
    # The path of a file may contain "=", as in `day=1/orders.avsc`. `#` separates a Protobuf message from the path.
    is_path = Path(text.partition("#")[0]).is_file()
    return _Rule(None, "value", text) if is_path else _rule(text, "value", "FILE")


def _rule(text: str, side: str, what: str = "FORMAT") -> _Rule:
    # A path may contain "=" too, but a topic name cannot contain a slash.
    topic, equals, name = text.partition("=")
    if not (name if equals else topic).strip():
        raise InvalidArgumentError(f"the {what.lower()} is missing", found=repr(text), expected=f"{what} or TOPIC={what}")
    if not equals or "/" in topic:
        return _Rule(None, side, text.strip())
    for one in SIDES:
        if topic.endswith(f".{one}"):
            topic, side = topic.removesuffix(f".{one}"), one
            break
    if not topic:
        raise InvalidArgumentError("the topic's name is missing before '='", found=repr(text), expected=f"TOPIC={what}")
    return _Rule(topic, side, name.strip())


def _applying(rules: Iterable[_Rule], topic: str, side: str) -> str | None:
    best, text = 0, None
    for one in rules:
        if one.side == side and (rank := one.rank(topic)) and rank >= best:
            best, text = rank, one.text
    return text
