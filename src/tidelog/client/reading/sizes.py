"""Requests the sizes of partitions on their leaders' disks (DescribeLogDirs, KIP-113: Kafka 1.0 and later).

Sizes are used only for estimates, so errors are not raised; a size that cannot be fetched is reported as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.client.connections.addresses import BrokerAddress
from tidelog.client.connections.cluster import NO_LEADER, Cluster
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse

NEWEST_VERSION = 4


def log_sizes(cluster: Cluster, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the size in bytes of each partition whose leader reports it."""
    by_leader: dict[BrokerAddress, list[TopicPartition]] = {}
    for key in keys:
        leader = cluster.leader(key)
        if leader.node_id != NO_LEADER:
            by_leader.setdefault(cluster.brokers[leader.node_id], []).append(key)
    sizes: dict[TopicPartition, int] = {}
    for address, its_keys in by_leader.items():
        by_topic: dict[str, list[int]] = {}
        for key in its_keys:
            by_topic.setdefault(key.topic, []).append(key.partition)
        request = DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=name, partitions=n) for name, n in by_topic.items()]
        )
        try:
            with cluster.connection_to(address) as connection:
                version = connection.version(DescribeLogDirsRequest, newest=NEWEST_VERSION)
                answer = connection.ask(request, version, DescribeLogDirsResponse)
        except TidelogError:
            continue
        for folder in answer.results:
            for topic in folder.topics:
                for partition in topic.partitions:
                    # A replica that is being moved to another folder of its broker is listed in both.
                    if not partition.is_future_key:
                        sizes[TopicPartition(topic.name, partition.partition_index)] = partition.partition_size
    return sizes
