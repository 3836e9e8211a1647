"""Decodes keys and values for the page: only in rows that are shown, and only values of a bounded size.

| `decode`, `key_decode` | |
|---|---|
| (missing) | the same as `tidelog ui --decode`; `raw` if that was not given, and JSON for Kafka's internal topics |
| raw | text if it is UTF-8, otherwise hexadecimal digits |
| hex | hexadecimal digits |
| utf8, json, avro, protobuf, msgpack, auto | decoded by `tidelog.decoding`, with the registry and schemas of `tidelog ui` |

For internal topics, `auto` is JSON, too. A value that cannot be decoded is shown raw, with `error`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.errors import MissingPackageError
from tidelog.model import KAFKAS_TOPICS, SIDES
from tidelog.web.context import Answer, Context
from tidelog.web.query import Query
from tidelog.web.values import beginning, cell

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.decoding.decodings import Decodings
    from tidelog.decoding.topic_decoding import TopicDecoding

RAW, HEX = "raw", "hex"
FORMATS = (RAW, HEX, "utf8", "json", "avro", "protobuf", "msgpack", "auto")

DECODED_BYTES = 1 << 20
"""Larger keys and values are not decoded in a list of records."""


class Decoding:
    """How the keys and values of one request are shown."""

    def __init__(self, context: Context, query: Query, topic: str) -> None:
        given = {"value": query.text("decode"), "key": query.text("key_decode")}
        for name, value in given.items():
            if value is not None:
                query.choice("decode" if name == "value" else "key_decode", FORMATS)
        self.is_hex = {side for side, value in given.items() if value == HEX}
        self.decodings = _decodings(context, given, topic)
        self._topic: TopicDecoding | None = None
        if self.decodings is not None:
            try:
                self._topic = self.decodings.topic(topic)
            except MissingPackageError:
                if not set(given.values()) <= {"auto", RAW, None}:
                    raise
                self.decodings = None  # Without the extra `decode`, auto means raw.
        decoders = {} if self._topic is None else self._topic.decoders
        self._sides: tuple[str, ...] = tuple(side for side in SIDES if side in decoders and side not in self.is_hex)

    def cells(self, batch: pa.RecordBatch, numbers: Sequence[int], limit: int) -> dict[str, list[Answer | None]]:
        """Return the cells of some rows, for the key, the value or both, whichever is decoded. None means that the raw
        cell is shown.
        """
        if self._topic is None or not self._sides:
            return {}
        import pyarrow as pa

        found = {side: [beginning(batch.column(side), row, DECODED_BYTES + 1) for row in numbers] for side in self._sides}
        arrays = {side: pa.array([_whole(*one) for one in values], pa.binary()) for side, values in found.items()}
        if self._topic.needs_headers:
            arrays["headers"] = batch.column("headers").take(pa.array(numbers, pa.int64()))
        shown = self._topic.display(pa.RecordBatch.from_pydict(arrays))
        return {
            side: [self._cell(shown, side, place, *found[side][place], limit) for place in range(len(numbers))]
            for side in self._sides
        }

    def notices(self) -> list[str]:
        """Return a sentence for each kind of failure to decode."""
        return [] if self._topic is None else self._topic.notices()

    def _cell(self, shown: pa.RecordBatch, side: str, place: int, data: bytes | None, size: int, limit: int) -> Answer | None:
        assert self._topic is not None
        decoder = self._topic.decoders[side]
        if data is None:
            return None
        if size > DECODED_BYTES:
            return {**cell(data[:limit], size), "error": f"larger than {DECODED_BYTES} bytes: not decoded"}
        text, text_size = beginning(shown.column(side), place, limit)
        if text is None:
            return {**cell(data[:limit], size), "error": f"not {decoder.name}"}
        one = cell(text, text_size)
        kind = "json" if decoder.displays_json else "text"
        return {**one, "kind": kind, "size": size, "decoded": decoder.name}


def _decodings(context: Context, given: dict[str, str | None], topic: str) -> Decodings | None:
    texts, keys, schemas, registry = context.decode
    is_internal = topic in KAFKAS_TOPICS
    if given["value"] is not None:
        texts = _rules(given["value"], is_internal=is_internal)
    if given["key"] is not None:
        keys = _rules(given["key"], is_internal=is_internal)
    if not texts and not keys and not is_internal:
        return None
    from tidelog.decoding.decodings import Decodings

    return Decodings.parse(texts, key_texts=keys, schemas=schemas, registry=registry, decodes_internal=True)


def _rules(text: str, *, is_internal: bool) -> tuple[str, ...]:
    if text == RAW:
        return (RAW,) if is_internal else ()
    return ("internal",) if is_internal and text == "auto" else (text,)


def _whole(data: bytes | None, size: int) -> bytes | None:
    return None if data is None or size > DECODED_BYTES else data
