"""Decodes keys and values: JSON, Avro, Protobuf, MessagePack, text, into typed Arrow columns or into text for people.

| module | |
|---|---|
| `decodings` | the entry point: parses texts such as `json` or `orders=avro`, and makes each topic's decoders |
| `topic_decoding` | applies the decoders of one topic to Arrow batches of records |
| `decoder` | the interface of all decoders |
| `plain`, `json_values`, `msgpack_values`, `auto`, `schemaful/` | the decoders |
| `internal/` | records of Kafka's internal topics, in the form that Kafka's tools print |
| `framed`, `framing`, `registry`, `schemas` | find the schema that a value was written with |
| `objects`, `json_text` | convert Python objects to Arrow columns, and Arrow columns to JSON texts |

If a library can decode many records at once, it is used that way. A value that cannot be decoded raises no error. Its bytes are
returned beside the column, and such values are counted.
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
