"""What a person wrote about decoding, and the decoders that follow from it.

| text | decodes |
|---|---|
| `json` | the values of all topics (in `key_texts`: the keys) |
| `orders=avro` | the values of the topic `orders` (in `key_texts`: its keys); `order*=avro` those of several topics |
| `orders.key=utf8`, `orders.value=avro` | its keys, its values |

The most specific text applies: a topic's name before a pattern before neither; of equals, the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidelog.decoding.topic_decoding import SIDES, TopicDecoding
from tidelog.errors import InvalidArgumentError
from tidelog.near_names import did_you_mean

if TYPE_CHECKING:
    from tidelog.decoding.decoder import Decoder

Decode: TypeAlias = "str | Mapping[str, str] | Iterable[str] | Decodings"
"""What `tidelog.scan` accepts."""

FORMATS: Final = ("utf8", "json", "avro", "protobuf", "msgpack", "hex", "auto")

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


class Decodings:
    """How to decode each topic's keys and values; `topic` returns the decoders of one topic."""

    def __init__(self, rules: Iterable[_Rule], schemas: Iterable[_Rule] = ()) -> None:
        self._rules = tuple(rules)
        self._schemas = tuple(schemas)
        for one in self._rules:
            if one.text not in FORMATS:
                raise InvalidArgumentError(
                    f"no such format: {one.text}{did_you_mean(one.text, FORMATS)}", expected=", ".join(FORMATS)
                )

    @classmethod
    def parse(cls, texts: Iterable[str] = (), *, key_texts: Iterable[str] = (), schemas: Iterable[str] = ()) -> Decodings:
        """Parse texts as above. Raises InvalidArgumentError for an unknown format."""
        rules = [*(_rule(one, "value") for one in texts), *(_rule(one, "key") for one in key_texts)]
        return cls(rules, [_rule(one, "value") for one in schemas])

    @classmethod
    def of(cls, decode: Decode) -> Decodings:
        """Return the decodings of an argument in Python: a text as above, several, or `{"key": "utf8", "value": "json"}`."""
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
        return bool(self._rules)

    def topic(self, topic: str) -> TopicDecoding:
        """Return new decoders for a topic's keys and values, none for a side that no text names.

        Raises InvalidArgumentError for a missing or malformed schema, MissingPackageError without the extra `decode`.
        """
        decoders = {}
        for side in SIDES:
            name = _applying(self._rules, topic, side)
            if name is not None:
                decoders[side] = self._decoder(name, topic, side)
        return TopicDecoding(topic, decoders)

    def _decoder(self, name: str, topic: str, side: str) -> Decoder:
        # Each decoder's module is imported only if it is used.
        if name in ("utf8", "hex"):
            from tidelog.decoding.plain import HexDecoder, Utf8Decoder

            return Utf8Decoder() if name == "utf8" else HexDecoder()
        if name == "json":
            from tidelog.decoding.json_values import JsonDecoder

            return JsonDecoder()
        if name == "msgpack":
            from tidelog.decoding.msgpack_values import MsgpackDecoder

            return MsgpackDecoder()
        raise InvalidArgumentError(f"{name} is not available yet")


def _rule(text: str, side: str) -> _Rule:
    topic, equals, name = text.rpartition("=")
    if not equals:
        return _Rule(None, side, text.strip())
    for one in SIDES:
        if topic.endswith(f".{one}"):
            topic, side = topic.removesuffix(f".{one}"), one
            break
    if not topic:
        raise InvalidArgumentError("a topic is missing before '='", found=repr(text), expected="TOPIC=FORMAT")
    return _Rule(topic, side, name.strip())


def _applying(rules: Iterable[_Rule], topic: str, side: str) -> str | None:
    best, text = 0, None
    for one in rules:
        if one.side == side and (rank := one.rank(topic)) and rank >= best:
            best, text = rank, one.text
    return text
