"""`tidelog stat HOST:PORT [TOPIC]`: what brokers report about partitions, without reading records.

| shown | from |
|---|---|
| leader, in-sync replicas | Metadata |
| log start, high watermark, last stable offset | ListOffsets, at both isolation levels |
| largest timestamp and its offset | ListOffsets -3; unknown before Kafka 3.0, and if records have no timestamps |
| size | DescribeLogDirs; unknown before Kafka 1.0, and if the broker does not report it |

Brokers do not count records, and do not report segments. TOPIC limits the output to that topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidelog.cli.printing.layout import json_line, show_bytes_size, show_time, table
from tidelog.client.client import Client, connect
from tidelog.client.connections.cluster import NO_LEADER, PartitionState
from tidelog.client.reading.offsets import OffsetAnswer
from tidelog.client.reading.sizes import log_sizes
from tidelog.errors import UnsupportedVersionError
from tidelog.model import TopicPartition
from tidelog.reader.time_search import FoundOffset

_HEADER = (
    *("topic", "partition", "leader", "in sync", "log start", "high watermark", "last stable"),
    *("size", "largest timestamp", "its offset"),
)


@dataclass(frozen=True, slots=True)
class PartitionStat:
    """Figures of a partition; a figure is None if unknown. All are unknown if the partition has no leader."""

    key: TopicPartition
    state: PartitionState
    log_start_offset: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    size_bytes: int | None
    largest: FoundOffset | None

    @property
    def cells(self) -> list[object]:
        leader = self.state.leader.node_id
        return [
            *(*self.key, None if leader == NO_LEADER else leader, f"{len(self.state.in_sync)}/{len(self.state.replicas)}"),
            *(self.log_start_offset, self.high_watermark, self.last_stable_offset),
            None if self.size_bytes is None else show_bytes_size(self.size_bytes),
            *((None, None) if self.largest is None else (show_time(self.largest.timestamp), self.largest.offset)),
        ]

    @property
    def json(self) -> str:
        leader = self.state.leader.node_id
        return json_line(
            {
                "type": "partition",
                "topic": self.key.topic,
                "partition": self.key.partition,
                "leader": None if leader == NO_LEADER else leader,
                "replicas": list(self.state.replicas),
                "in_sync": list(self.state.in_sync),
                "log_start_offset": self.log_start_offset,
                "high_watermark": self.high_watermark,
                "last_stable_offset": self.last_stable_offset,
                "bytes": self.size_bytes,
                "largest_timestamp": None if self.largest is None else self.largest.timestamp,
                "largest_timestamp_offset": None if self.largest is None else self.largest.offset,
            }
        )


def lines(brokers: str, topic: str | None, partitions: list[int] | None, as_json: bool) -> Iterator[str]:
    """Yield the output lines. Raises the errors of requests to brokers."""
    with connect(brokers) as client:
        stats = _stats(client, _wanted(client, topic, partitions))
    if as_json:
        yield from (stat.json for stat in stats)
    else:
        yield from table(_HEADER, (stat.cells for stat in stats), spare=("its offset", "last stable", "leader", "log start"))


def _wanted(client: Client, topic: str | None, partitions: list[int] | None) -> dict[TopicPartition, PartitionState]:
    if topic is None:
        return {
            TopicPartition(name, number): state
            for name, found in client.cluster.topics().items()
            for number, state in found.partitions.items()
        }
    existing = client.partitions(topic)
    for number in partitions or ():
        if number not in existing:
            client.cluster.leader(TopicPartition(topic, number))  # The error of this call names the existing partitions.
    return {TopicPartition(topic, number): existing[number] for number in partitions or existing}


def _stats(client: Client, states: dict[TopicPartition, PartitionState]) -> list[PartitionStat]:
    led = [key for key, state in states.items() if state.leader.node_id != NO_LEADER]
    starts, ends = client.earliest_offsets(led), client.latest_offsets(led)
    stable = client.latest_offsets(led, "read_committed") if _knows_transactions(client) else {}
    sizes = log_sizes(client.cluster, led)
    largest = _largest(client, led)
    return [
        PartitionStat(key, state, starts.get(key), ends.get(key), stable.get(key), sizes.get(key), _found(largest.get(key)))
        for key, state in states.items()
    ]


def _knows_transactions(client: Client) -> bool:
    from tidelog.wire.messages.list_offsets import ListOffsetsRequest

    with client.cluster.connection_to_any() as connection:
        return connection.offers(ListOffsetsRequest, 2)


def _largest(client: Client, keys: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAnswer]:
    try:
        return client.max_timestamp_offsets(keys)
    except UnsupportedVersionError:
        return {}


def _found(answer: OffsetAnswer | None) -> FoundOffset | None:
    return answer if isinstance(answer, FoundOffset) else None
