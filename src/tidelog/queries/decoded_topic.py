"""Decodes one topic's keys and values, with the same types in all scans of a query.

Without a schema, the types are inferred from the topic's newest records, once, when its table is made. Each scan has its own
`TopicDecoding`, which infers the same types from the same records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidelog.decoding.decodings import Decodings
from tidelog.decoding.topic_decoding import UNDECODED, TopicDecoding
from tidelog.model import TopicPartition
from tidelog.sources.opening import Address
from tidelog.sources.schema import ALL_COLUMNS, scan_schema
from tidelog.sources.source import Source
from tidelog.sources.stream import scan

SAMPLE_ROWS = 2_000
"""Types are inferred from about this many records."""


@dataclass(frozen=True, slots=True)
class DecodedTopic:
    """How to decode a topic. If `decodings` is None, keys and values stay bytes."""

    topic: str
    decodings: Decodings | None = None
    sample: pa.RecordBatch | None = None

    def decoding(self) -> TopicDecoding | None:
        """Return new decoders for one scan."""
        if self.decodings is None or self.sample is None:
            return None
        made = self.decodings.topic(self.topic)
        made.learn(self.sample)
        return made

    def schema(self) -> pa.Schema:
        """Return the schema of all columns."""
        decoding = self.decoding()
        scanned = scan_schema(ALL_COLUMNS)
        return scanned if decoding is None else decoding.schema(scanned)


def decoded_topic(
    topic: str, decodings: Decodings | None, address: Address, listing: Source, options: dict[str, Any]
) -> DecodedTopic:
    """Return how to decode a topic. If the topic has decoders, read its newest records to infer the types."""
    if decodings is None or not decodings.topic(topic).decoders:
        return DecodedTopic(topic)
    keys = [TopicPartition(topic, number) for number in listing.partitions(topic)]
    ends = listing.ends(keys)
    rows = -(-SAMPLE_ROWS // max(1, len(keys)))
    offsets = {key.partition: (max(one.log_start_offset, one.end_offset - rows), one.end_offset) for key, one in ends.items()}
    columns = ["key", "value", "headers"]
    newest = scan(address, topic, columns=columns, offsets=offsets, **options).read_all()
    arrays = [pa.concat_arrays([pa.array([], one.type), *one.chunks]) for one in newest.columns]
    return DecodedTopic(topic, decodings, pa.RecordBatch.from_arrays(arrays, schema=newest.schema))


def scanned_name(name: str) -> str:
    """Return the name of the scanned column from which a column is decoded."""
    return name.removesuffix(UNDECODED)
