"""The protocol alone, without sockets: the cost of reading and writing a message. Processor time of one thread, best of seven.

Each message is compared, on the same bytes, with kio, a library that is generated from Kafka's definitions and reads in Rust. A
broker reads requests and writes responses; a client does the reverse.
"""

from __future__ import annotations

import importlib
import io
import re
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from kio.serial import entity_reader, entity_writer

from tidelog.wire.codec import Message, decoder, encode, encoder
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

RUNS = 7
LOOPS = 2000
NAME = "topic-one"
TOPIC_ID = uuid.UUID(int=77)
TARGETS_US = {("ListOffsetsRequest", 7, "read"): 30.0}


def messages() -> list[tuple[str, Message, tuple[int, ...]]]:
    """The measured messages: one partition with 16 KiB of records, or 100 partitions without records."""
    batch = bytes(16384)
    hundred = range(100)
    return [
        ("1 partition", ProduceRequest(None, -1, 30_000, [_produced(batch)]), (7, 9, 12)),
        (
            "1 partition",
            ProduceResponse([TopicProduceResponse(NAME, TOPIC_ID, [PartitionProduceResponse(3, 0, 1, -1, 0)])]),
            (7, 9),
        ),
        ("1 partition", FetchRequest(max_wait_ms=500, topics=[_fetched()]), (11, 12, 17)),
        ("1 partition", FetchResponse(responses=[_answered(batch)]), (11, 12, 17)),
        (
            "100 partitions",
            ListOffsetsRequest(topics=[ListOffsetsTopic(NAME, [ListOffsetsPartition(i, -1, 1 << 40) for i in hundred])]),
            (1, 5, 7),
        ),
        (
            "100 partitions",
            ListOffsetsResponse(
                topics=[ListOffsetsTopicResponse(NAME, [ListOffsetsPartitionResponse(i, 0, [], 1 << 40, i, 0) for i in hundred])]
            ),
            (1, 5, 7),
        ),
    ]


def _produced(batch: bytes) -> TopicProduceData:
    return TopicProduceData(NAME, TOPIC_ID, [PartitionProduceData(3, batch)])


def _fetched() -> FetchTopic:
    return FetchTopic(NAME, TOPIC_ID, [FetchPartition(3, 0, 100, -1, 0, 1 << 20)])


def _answered(batch: bytes) -> FetchableTopicResponse:
    return FetchableTopicResponse(NAME, TOPIC_ID, [PartitionData(3, 0, 100, 100, 0, aborted_transactions=None, records=batch)])


def kio_class(message: Message, version: int) -> Any:
    """Return kio's class for a message."""
    api = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", message.API_NAME).lower()
    part = "request" if type(message).__name__.endswith("Request") else "response"
    return getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{part}"), type(message).__name__)


def cost_us(work: Callable[[], object]) -> float:
    """Return the microseconds of one call."""
    best = float("inf")
    for _ in range(RUNS):
        began = time.process_time()
        for _ in range(LOOPS):
            work()
        best = min(best, time.process_time() - began)
    return best / LOOPS * 1e6


def main(argv: list[str] | None = None) -> int:
    """Print the table. Return 1 if a target is missed."""
    missed = 0
    print(f"{'message':32} {'':15} {'read µs':>9} {'of kio':>7} {'write µs':>9} {'of kio':>7}")
    for what, message, versions in messages():
        for version in versions:
            cls = type(message)
            data = b"".join(encode(message, version))
            frame = memoryview(bytearray(data))
            read, write = decoder(cls, version), encoder(cls, version)
            entity = kio_class(message, version)
            their_read, their_write = entity_reader(entity), entity_writer(entity)
            theirs, _ = their_read(data, 0)
            costs = {
                "read": cost_us(partial(read, frame)),
                "write": cost_us(partial(write, message)),
                "kio reads": cost_us(partial(their_read, data, 0)),
                "kio writes": cost_us(partial(their_write, io.BytesIO(), theirs)),
            }
            print(
                f"{f'{cls.__name__} v{version}':32} {what:15} {costs['read']:9.2f} {costs['read'] / costs['kio reads']:6.2f}×"
                f" {costs['write']:9.2f} {costs['write'] / costs['kio writes']:6.2f}×"
            )
            for direction in ("read", "write"):
                if costs[direction] > TARGETS_US.get((cls.__name__, version, direction), float("inf")):
                    missed = 1
    return missed


if __name__ == "__main__":
    sys.exit(main())
