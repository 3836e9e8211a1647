"""AssignReplicasToDirs (73): a broker reports in which of its folders each partition is (KIP-858)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import cast

from tidelog.broker.controller.controller_node import ControllerNode
from tidelog.broker.controller.registrations import BROKERS, of_brokers
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.topics.topic_changes import Job
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.records import PartitionChangeRecord
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryDataResult,
    PartitionDataResult,
    TopicDataResult,
)


def handle(node: Node, message: AssignReplicasToDirsRequest, request: Request) -> Work:
    """Return a result for each partition once the assignments are on disk."""
    controller = cast("ControllerNode", node)
    code = controller.registrations.is_current(message.broker_id, message.broker_epoch)
    if code:
        return AssignReplicasToDirsResponse(error_code=code)
    yield from node.topic_changes.side_by_side([Job(BROKERS, _assignment(node.manager.metadata, message))])
    image = node.image
    return AssignReplicasToDirsResponse(
        directories=[
            DirectoryDataResult(
                one.id,
                [
                    TopicDataResult(
                        topic.topic_id,
                        [
                            PartitionDataResult(index, _code(image, topic.topic_id, index, message.broker_id))
                            for index in (partition.partition_index for partition in topic.partitions)
                        ],
                    )
                    for topic in one.topics
                ],
            )
            for one in message.directories
        ]
    )


def _assignment(store: MetadataStore, message: AssignReplicasToDirsRequest) -> Steps[None]:
    changes = list(_changes(store.image, message))
    if changes:
        yield store.append(changes)


def _changes(image: MetadataImage, message: AssignReplicasToDirsRequest) -> Iterator[PartitionChangeRecord]:
    for one in message.directories:
        for topic in one.topics:
            for partition in topic.partitions:
                index = partition.partition_index
                if not _code(image, topic.topic_id, index, message.broker_id):
                    yield PartitionChangeRecord(index, topic.topic_id, directories=[one.id])


def _code(image: MetadataImage, topic_id: uuid.UUID, index: int, broker_id: int) -> ErrorCode:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if partition.replicas == [broker_id] else ErrorCode.NOT_LEADER_OR_FOLLOWER


API = Api(
    AssignReplicasToDirsRequest, AssignReplicasToDirsResponse, Versions(0, 0), of_brokers(AssignReplicasToDirsResponse), handle
)
