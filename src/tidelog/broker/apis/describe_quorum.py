"""DescribeQuorum (55): returns the voters and observers of the metadata quorum (KIP-595).

A standalone broker is the only voter and has no observers, like a single Kafka node that is both broker and controller. The
controller of several brokers on one machine is the only voter, and these brokers are the observers. Any partition other than
that of the metadata log gets UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from tidelog.broker.handling.access import at_top, cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.model import METADATA_TOPIC
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import ZERO_UUID, Versions
from tidelog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    PartitionDataResult,
    ReplicaState,
    TopicDataResult,
)
from tidelog.wire.messages.describe_quorum import Node as QuorumNode

ACCESS = whole(cluster(Operation.DESCRIBE), refused=at_top(DescribeQuorumResponse))


def handle(node: Node, message: DescribeQuorumRequest, request: Request) -> Work:
    asked = [(topic.topic_name, one.partition_index) for topic in message.topics[:2] for one in topic.partitions[:2]]
    if asked != [(METADATA_TOPIC, 0)]:
        topics = []
        for topic in message.topics:
            refused = (_refused(one.partition_index) for one in topic.partitions)
            topics.append(TopicDataResult(topic.topic_name, (yield from slowly(refused, 64))))
            if not len(topics) % 16:
                yield None
        yield from discarded(message)
        return DescribeQuorumResponse(topics=topics)
    result = TopicDataResult(METADATA_TOPIC, [_partition(node)])
    return DescribeQuorumResponse(topics=[result], nodes=[_node(node)])


def _refused(partition: int) -> PartitionDataResult:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return PartitionDataResult(partition, code, "only the metadata partition can be described", -1)


def _partition(node: Node) -> PartitionDataResult:
    store, now_ms = node.manager.metadata, node.clock.now_ms()
    directory_id = node.manager.owner.directory_uuid or ZERO_UUID
    voter = ReplicaState(node.node_id, directory_id, store.end_offset, now_ms, now_ms)
    return PartitionDataResult(
        0, ErrorCode.NONE, None, node.node_id, store.epoch, store.end_offset, [voter], node.quorum_observers()
    )


def _node(node: Node) -> QuorumNode:
    return QuorumNode(node.node_id, [Listener(one.name, one.advertised_host, one.advertised_port) for one in node.listeners])


API = Api(DescribeQuorumRequest, DescribeQuorumResponse, Versions(0, 2), ACCESS, handle)
