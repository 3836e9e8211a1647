"""Decodes keys and values: JSON, Avro, Protobuf, MessagePack, text, into typed Arrow columns or into text for people.

| module | |
|---|---|
| `decodings` | what a person wrote (`json`, `orders=avro`) → a decoder for each topic's keys and values; the entry point |
| `topic_decoding` | applies the decoders of one topic to Arrow batches of records |
| `decoder` | the interface of all decoders |
| `plain`, `json_values`, `msgpack_values`, `auto`, `schemaful/` | the decoders |
| `internal/` | records of Kafka's internal topics, as its own tools print them |
| `framed`, `framing`, `registry`, `schemas` | which schema a value was written with |
| `objects`, `json_text` | Python objects → Arrow columns → JSON texts |

Nothing is decoded record by record where a library decodes many at once. A value that cannot be decoded ends nothing: its bytes
are returned beside the column, and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tidelog.decoding.decoder import Decoded as Decoded
    from tidelog.decoding.decoder import Decoder as Decoder
    from tidelog.decoding.decodings import Decodings as Decodings
    from tidelog.decoding.registry import SchemaRegistry as SchemaRegistry
    from tidelog.decoding.topic_decoding import TopicDecoding as TopicDecoding
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tidelog.decoding.decoder": ("Decoded", "Decoder"),
            "tidelog.decoding.decodings": ("Decodings",),
            "tidelog.decoding.registry": ("SchemaRegistry",),
            "tidelog.decoding.topic_decoding": ("TopicDecoding",),
        },
    )

__all__ = ["Decoded", "Decoder", "Decodings", "SchemaRegistry", "TopicDecoding"]
