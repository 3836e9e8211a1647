"""Requests as the tests say them, short."""

from __future__ import annotations

import uuid
from typing import Any

from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def produce(
    topic: str, data: bytes | None, *, acks: int = -1, partition: int = 0, transactional_id: str | None = None
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id, acks, 30_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, data)])]
    )


def fetch(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    partition_max_bytes: int = 1 << 20,
    max_bytes: int = 50 << 20,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    topic_id: uuid.UUID | None = None,
    **more: Any,
) -> FetchRequest:
    wanted = FetchPartition(
        partition,
        current_leader_epoch=current_leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        partition_max_bytes=partition_max_bytes,
    )
    of = FetchTopic(topic, topic_id, [wanted]) if topic_id else FetchTopic(topic, partitions=[wanted])
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, isolation_level=isolation_level, topics=[of], **more
    )


def list_offsets(
    topic: str, *timestamps: int, partition: int = 0, isolation_level: int = 0, epoch: int = -1, count: int = 1
) -> ListOffsetsRequest:
    """One timestamp a topic entry: a partition that is named twice is an error of its own."""
    topics = [ListOffsetsTopic(topic, [ListOffsetsPartition(partition, epoch, timestamp, count)]) for timestamp in timestamps]
    return ListOffsetsRequest(-1, isolation_level, topics)
