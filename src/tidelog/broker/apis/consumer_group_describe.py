"""ConsumerGroupDescribe (69): describes consumer groups (KIP-848): members, subscriptions, assignments, and target assignments.

As in Kafka 4, a group gets TOPIC_AUTHORIZATION_FAILED if its members have partitions of a topic that the client may not describe.
A classic or unknown group gets GROUP_ID_NOT_FOUND; admin clients then send DescribeGroups. While the protocol is off
(`consumer_group_heartbeat`), every group gets UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from tidelog.broker.apis.consumer_group_heartbeat import may_describe
from tidelog.broker.apis.metadata import NOT_ASKED_FOR
from tidelog.broker.coordinators.consumer_groups.consumer_group import NOTHING, ConsumerMember
from tidelog.broker.coordinators.consumer_groups.consumer_group import Assignment as Held
from tidelog.broker.coordinators.consumer_groups.target_assignment import preferred_assignor
from tidelog.broker.handling.access import each, operations_of
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_groups
from tidelog.broker.node import Node
from tidelog.broker.quotas.answer_room import AnswerRoom, no_room
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)


def _refused(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(error_code=code, group_id=group_id)


ACCESS = each(
    Operation.DESCRIBE,
    ResourceType.GROUP,
    of="group_ids",
    refused=_refused,
    response=ConsumerGroupDescribeResponse,
    into="groups",
)

MEMBER_BYTES = 200
"""The size in bytes of a member's fixed-size and short fields."""
PARTITION_BYTES = 4

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def handle(node: Node, message: ConsumerGroupDescribeRequest, request: Request) -> Work:
    """Describe the groups in the order of the request, repeated ones too, until the response is full."""
    room = AnswerRoom()
    described: list[DescribedGroup] = []
    for count, group_id in enumerate(message.group_ids):
        if not node.groups.consumers.is_enabled:
            described.append(_refused(group_id, ErrorCode.UNSUPPORTED_VERSION))
        elif room.is_used_up:
            refusal = no_room()
            described.append(DescribedGroup(error_code=refusal.code, error_message=refusal.reason, group_id=group_id))
        else:
            one = _visible((yield from _described(node, group_id)), may_describe(node, request))
            if message.include_authorized_operations and not one.error_code:
                one.authorized_operations = operations_of(node, request, ResourceType.GROUP, group_id)
            described.append(one)
            room.use(sum(map(_size, one.members)))
        if count % 16 == 15:
            yield None
    yield from discarded(message)
    return ConsumerGroupDescribeResponse(groups=described)


def _visible(group: DescribedGroup, may_see: Callable[[str], bool] | None) -> DescribedGroup:
    """Return a group, or TOPIC_AUTHORIZATION_FAILED if its members have partitions of a topic that the client may not see."""
    held = (part for one in group.members for part in (one.assignment, one.target_assignment))
    names = {topic.topic_name for part in held for topic in part.topic_partitions}
    if may_see is None or all(map(may_see, names)):
        return group
    reason = "the group's members have partitions of topics that the client may not describe"
    return DescribedGroup(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=reason, group_id=group.group_id)


def _described(node: Node, group_id: str) -> Generator[None, None, DescribedGroup]:
    code = node.groups.code_for(group_id)
    if code:
        return _refused(group_id, code)
    group = node.groups.get(group_id)
    if group is None or group.consumer is None:
        return _refused(group_id, ErrorCode.GROUP_ID_NOT_FOUND)
    consumer = group.consumer
    one = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=consumer.state.value,
        group_epoch=consumer.epoch,
        assignment_epoch=consumer.assignment_epoch,
        assignor_name=preferred_assignor(consumer.members.values(), node.config.group_consumer_assignors),
        authorized_operations=NOT_ASKED_FOR,
    )
    # The members are immutable, so a description computed in several slices still shows the group at one moment.
    targets = dict(consumer.targets)
    members = list(consumer.members.values())
    one.members = yield from slowly((_member(node, each, targets.get(each.member_id, NOTHING)) for each in members), 16)
    return one


def _member(node: Node, member: ConsumerMember, target: Held) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscription.names),
        subscribed_topic_regex=member.subscription.regex or "",
        assignment=_named(node, member.assigned),
        target_assignment=_named(node, target),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _named(node: Node, held: Held) -> Assignment:
    found = ((topic_id, node.topics.by_id(topic_id), partitions) for topic_id, partitions in held.items())
    return Assignment([TopicPartitions(topic_id, view.name, sorted(some)) for topic_id, view, some in found if view is not None])


def _size(member: Member) -> int:
    """Return the approximate size of a member in bytes."""
    held = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    names = sum(map(len, member.subscribed_topic_names)) + len(member.subscribed_topic_regex or "")
    return MEMBER_BYTES + names + sum(len(one.topic_name) + PARTITION_BYTES * len(one.partitions) for one in held)


API = Api(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, Versions(0, 1), ACCESS, by_groups(handle, waits=False))
