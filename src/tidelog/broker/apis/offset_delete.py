"""OffsetDelete (47): deletes a group's committed offsets for the given partitions (KIP-496).

| the group | a partition |
|---|---|
| has no members | its offset is deleted |
| has consumers | GROUP_SUBSCRIBED_TO_TOPIC if they are or may be subscribed to its topic; otherwise its offset is deleted |
| has members that are not consumers | NON_EMPTY_GROUP for the whole request |
| does not exist | GROUP_ID_NOT_FOUND for the whole request |

Deleting a missing offset is not an error; an unknown partition gets UNKNOWN_TOPIC_OR_PARTITION. An empty group is deleted
together with its last offset.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial

from tidelog.broker.coordinators.groups.offset_commits import Codes, by_topic, unknown_partitions
from tidelog.broker.coordinators.groups.subscriptions import is_short, subscriptions, topics_in
from tidelog.broker.handling.access import Right, at_top, each, first, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_groups
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Elsewhere, Work, counted, elements, picked, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.model import TopicPartition
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.coordinator.consumer_protocol import PROTOCOL_TYPE
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

ACCESS = first(
    whole(
        Right(Operation.DELETE, ResourceType.GROUP, "group_id"),
        refused=at_top(OffsetDeleteResponse),
    ),
    each(
        Operation.READ,
        ResourceType.TOPIC,
        of="topics",
        name="name",
        refused=lambda topic, code: OffsetDeleteResponseTopic(
            topic.name, [OffsetDeleteResponsePartition(one.partition_index, code) for one in topic.partitions]
        ),
        response=OffsetDeleteResponse,
        into="topics",
        asks_for_none=True,  # As in Kafka, the error for an unknown group comes before any error for a topic.
    ),
)


def handle(node: Node, message: OffsetDeleteRequest, request: Request) -> Work:
    named = (TopicPartition(topic.name, one.partition_index) for topic, one in elements(message.topics))
    keys = yield from slowly(named, 128)
    codes = yield from unknown_partitions(node.topics, keys)
    known = yield from counted((yield from picked(keys, lambda key: key not in codes)))
    code = yield from _delete(node, message.group_id, known, codes)
    if code:
        return OffsetDeleteResponse(error_code=code)
    topics = yield from by_topic(codes, OffsetDeleteResponseTopic, OffsetDeleteResponsePartition)
    yield from discarded(None, keys, codes)
    return OffsetDeleteResponse(topics=topics)


def _delete(
    node: Node, group_id: str, keys: Iterable[TopicPartition], codes: Codes
) -> Generator[Elsewhere | None, frozenset[str] | None, ErrorCode]:
    """Delete offsets, and store each result in `codes`; return the error code of the whole request. Runs in slices."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    read: list[bytes] | None = None
    topics: frozenset[str] | None = None
    while True:
        group = node.groups.existing(group_id)
        if isinstance(group, ErrorCode):
            return group
        if group.is_empty:
            going = list(keys)
            break
        if group.consumer is not None:
            subscribed = group.consumer.is_subscribed
            going = [key for key in keys if not subscribed(key.topic)]
            codes.update((key, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) for key in keys)
            break
        if group.protocol_type != PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP
        metadata = subscriptions(group)
        if metadata is None or metadata == read or is_short(metadata):
            if metadata != read:
                topics = None if metadata is None else topics_in(metadata)
            going = [key for key in keys if topics is not None and key.topic not in topics]
            codes.update((key, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) for key in keys)
            break
        read = metadata
        topics = yield Elsewhere(partial(topics_in, metadata))  # The group may have changed in the meantime.
    if going:
        code = yield from node.groups.remove_offsets(group, going)
        codes.update(dict.fromkeys(going, code))
    return ErrorCode.NONE


API = Api(OffsetDeleteRequest, OffsetDeleteResponse, Versions(0, 0), ACCESS, by_groups(handle))
