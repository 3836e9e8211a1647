"""OffsetCommit (8): commits a group's offsets.

Version 0, which in Kafka stores offsets in ZooKeeper, gets UNSUPPORTED_VERSION. A retention time of -1 means the broker's
default.

Unknown partitions get UNKNOWN_TOPIC_OR_PARTITION; the others are committed. If a partition is named twice, the last offset
counts. `coordinators.groups.offset_commits` checks the member and its generation.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from tidelog.broker.coordinators.groups.offset_commits import (
    Codes,
    Committer,
    are_known,
    by_topic,
    commit,
    commit_usual,
    unknown_partitions,
    without,
)
from tidelog.broker.handling.access import Right, allows, each, first, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_groups, usual_by_groups
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.requests.wide_requests import AT_ONCE, discarded
from tidelog.groups.group_offsets import NO_EXPIRY, CommittedOffset
from tidelog.model import NO_TIMESTAMP, TopicPartition
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.broker.node import Node

SERVED = Versions(0, 9)
"""The versions served here. `tidelog.wire.messages.offset_commit` lists the changes of each version."""


def _refused(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        topic.name, topic.topic_id, [OffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions]
    )


NO_RETENTION = -1
INT64_MAX = (1 << 63) - 1


ACCESS = first(
    whole(
        Right(Operation.READ, ResourceType.GROUP, "group_id"),
        refused=lambda message, code: OffsetCommitResponse(topics=[_refused(topic, code) for topic in message.topics]),
    ),
    each(
        Operation.READ,
        ResourceType.TOPIC,
        of="topics",
        name="name",
        refused=_refused,
        response=OffsetCommitResponse,
        into="topics",
    ),
)


def handle(node: Node, message: OffsetCommitRequest, request: Request) -> Work:
    now_ms = node.clock.now_ms()
    retention_ms = message.retention_time_ms
    expire_ms = NO_EXPIRY if retention_ms == NO_RETENTION else min(now_ms + retention_ms, INT64_MAX)
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in message.topics:
        name = topic.name
        for one in topic.partitions:
            offsets[TopicPartition(name, one.partition_index)] = CommittedOffset(
                one.committed_offset,
                one.committed_leader_epoch,
                one.committed_metadata or "",
                now_ms if one.commit_timestamp == NO_TIMESTAMP else one.commit_timestamp,
                expire_ms,
            )
            if len(offsets) % 128 == 127:
                yield None
    codes = yield from unknown_partitions(node.topics, offsets)
    known = (yield from without(offsets, codes)) if codes else offsets
    if known:
        if request.api_version == 0:
            return (yield from _response(dict.fromkeys(offsets, ErrorCode.UNSUPPORTED_VERSION)))
        committer = Committer(
            message.group_id,
            message.generation_id_or_member_epoch,
            message.member_id,
            message.group_instance_id,
            request.api_version,
        )
        codes.update((yield from commit(node, committer, known)))
    response = yield from _response(codes)
    if len(offsets) > AT_ONCE:
        yield from discarded(None, offsets, codes)
    return response


def answer_usual(node: Node, request: Request, row: list[Any]) -> list[Any] | None:
    """Answer an authorized commit for known partitions that uses the broker's retention and is committed in the log at once.
    Return None for any other.
    """
    group_id, generation_id, member_id, instance_id, retention_ms, topics = row
    if not request.api_version or retention_ms != NO_RETENTION:
        return None
    for name, _, partitions in topics:
        if not are_known(node.topics, name, partitions):
            return None
    if node.permissions is not None and not allows(
        node,
        request,
        (Operation.READ, ResourceType.GROUP, (group_id,)),
        (Operation.READ, ResourceType.TOPIC, [topic[0] for topic in topics]),
    ):
        return None
    committer = Committer(group_id, generation_id, member_id, instance_id, request.api_version)
    if not commit_usual(node, committer, topics):
        return None
    return [0, [[name, topic_id, [[one[0], 0] for one in some]] for name, topic_id, some in topics if some]]


def _response(codes: Codes) -> Generator[None, None, OffsetCommitResponse]:
    return OffsetCommitResponse(topics=(yield from by_topic(codes, OffsetCommitResponseTopic, OffsetCommitResponsePartition)))


API = Api(OffsetCommitRequest, OffsetCommitResponse, SERVED, ACCESS, by_groups(handle), usual_by_groups(answer_usual))
