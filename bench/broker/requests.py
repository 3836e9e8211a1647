"""The requests that the raw client sends. They are made once; the client only replays them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.wire.codec import Message
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

FIRST_MS = 1_700_000_000_000
PRODUCE_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION = 9, 12, 7
WORDS = ("orders", "paid", "shipped", "customer", "amount", "currency", "EUR", "USD", "true", "false", "null", "warehouse")


def frame(message: Message, version: int) -> bytes:
    """Return a request preceded by its size."""
    return b"".join(bytes(chunk) for chunk in request_chunks(message, version, 1, "bench"))


def batch(records: int, record_bytes: int, codec: Codec = Codec.NONE, first_ms: int = FIRST_MS) -> bytes:
    """Return a v2 batch of records without keys, with words as values, one millisecond apart."""
    draw = random.Random(7)
    values = []
    for _ in range(records):
        text = " ".join(draw.choice(WORDS) + str(draw.randrange(10_000)) for _ in range(record_bytes // 6 + 1))
        values.append(text.encode()[:record_bytes])
    made = [Record(i, first_ms + i, CREATE_TIME, None, value) for i, value in enumerate(values)]
    return bytes(build_batch_v2(made, codec=codec))


def records_for(batch_bytes: int, record_bytes: int) -> int:
    """Return how many records fit into an uncompressed batch of at most this size."""
    few, many = len(batch(1, record_bytes)), len(batch(101, record_bytes))
    each = (many - few) / 100 + 2.05  # offset and time deltas take up to three bytes each in a large batch
    return max(1, int((batch_bytes - 61) / each))


def produce_request(topic: str, records: bytes, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetch_request(topic: str, offset: int, max_bytes: int, partition: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def list_offsets_request(topic: str, timestamps: Mapping[int, int]) -> ListOffsetsRequest:
    """Return a ListOffsets request; `timestamps` has the time for each partition."""
    partitions = [ListOffsetsPartition(partition_index=p, timestamp=t, max_num_offsets=1) for p, t in timestamps.items()]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)])


def metadata_request(topics: Iterable[str]) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False)
