"""ConsumerGroupHeartbeat (68): a member of a consumer group (KIP-848) joins, reports its partitions, gets its assignment, or
leaves.

`coordinators.consumer_groups.heartbeats` has the rules. As in Kafka 3.9, the protocol is off by default, and every request gets
UNSUPPORTED_VERSION. To turn it on, set ``group.coordinator.rebalance.protocols=classic,consumer``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tidelog.broker.coordinators.consumer_groups.consumer_group import JOINING, LEAVING, LEAVING_FOR_NOW, Assignment, RefusedError
from tidelog.broker.coordinators.consumer_groups.heartbeats import Heartbeat
from tidelog.broker.coordinators.groups.topic_patterns import check_pattern
from tidelog.broker.handling.access import Access, Asker, allows
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_groups, usual_by_groups
from tidelog.broker.node import Node
from tidelog.broker.requests.listeners import java_address
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.requests.wide_requests import discarded
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

_FIRST_WITH_MEMBER_ID = 1

_UNCHANGED: Final = [None, -1, None, None, None, None]
"""The fields that follow the instance id in a heartbeat without changes: rack, timeout, topics, pattern, assignor, partitions."""


def _gate(asker: Asker, message: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
    if not asker.node.groups.consumers.is_enabled:
        return None
    if not asker.may(Operation.READ, ResourceType.GROUP, message.group_id):
        return _refused(asker.code(ResourceType.GROUP))
    named = message.subscribed_topic_names or ()
    if not all(asker.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in dict.fromkeys(named)):
        return _refused(asker.code(ResourceType.TOPIC))
    return None


ACCESS = Access(
    "READ on GROUP (group_id), DESCRIBE on each TOPIC (subscribed_topic_names): patterns match permitted topics only", _gate
)


def handle(node: Node, message: ConsumerGroupHeartbeatRequest, request: Request) -> ConsumerGroupHeartbeatResponse | Work:
    """Answer a member's heartbeat. Most heartbeats change nothing, and are answered at once."""
    interval_ms = _idle_ms(node, request, [getattr(message, field.name) for field in message.FIELDS])
    if interval_ms is None:
        return _work(node, message, request)
    return ConsumerGroupHeartbeatResponse(
        member_id=message.member_id, member_epoch=message.member_epoch, heartbeat_interval_ms=interval_ms
    )


def answer_usual(node: Node, request: Request, row: list[Any]) -> list[Any] | None:
    """Answer an authorized heartbeat that changes nothing. Return None for any other."""
    if not allows(node, request, (Operation.READ, ResourceType.GROUP, row[:1])):
        return None
    interval_ms = _idle_ms(node, request, row)
    return None if interval_ms is None else [0, 0, None, row[1], row[2], interval_ms, None]


def _idle_ms(node: Node, request: Request, row: list[Any]) -> int | None:
    """If a heartbeat changes nothing, restart the member's session and return the heartbeat interval in ms. Return None if the
    heartbeat may change something or is refused. `row` has the heartbeat's fields.
    """
    group_id, member_id, epoch, instance_id, *rest = row
    consumers = node.groups.consumers
    if rest != _UNCHANGED or epoch <= JOINING or not consumers.is_enabled or node.groups.code_for(group_id):
        return None
    group = node.groups.get(group_id)
    if group is None or not consumers.stays(group, member_id, epoch, instance_id, request.client_id or "", _host(request)):
        return None
    return consumers.heartbeat_interval_ms(group_id)


def _work(node: Node, message: ConsumerGroupHeartbeatRequest, request: Request) -> Work:
    if node.slices.is_round_full:
        yield None  # If a thousand members join at the same moment, they are not all handled in one round.
    try:
        if node.groups.consumers.is_enabled:
            yield from node.groups.consumers.matching_elsewhere(message.group_id, message.subscribed_topic_regex)
    except RefusedError as error:
        return _refused(error.code, str(error))
    answer = _answer(node, message, request)
    yield from discarded(message)
    return answer


def _answer(node: Node, message: ConsumerGroupHeartbeatRequest, request: Request) -> ConsumerGroupHeartbeatResponse:
    groups = node.groups
    if not groups.consumers.is_enabled:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    try:
        _check(message, request.api_version)
        code = groups.code_for(message.group_id)
        if code:
            return _refused(code)
        group = groups.get_or_create(message.group_id) if message.member_epoch == JOINING else groups.get(message.group_id)
        if group is None or (group.consumer is None and message.member_epoch != JOINING):
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {message.group_id!r}")
        result = groups.consumers.heartbeat(group, _heartbeat(message, request), may_describe(node, request))
    except RefusedError as error:
        return _refused(error.code, str(error))
    member = result.member
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=member.member_id,
        member_epoch=message.member_epoch if message.member_epoch in (LEAVING, LEAVING_FOR_NOW) else member.epoch,
        heartbeat_interval_ms=0 if message.member_epoch < 0 else groups.consumers.heartbeat_interval_ms(message.group_id),
        assignment=_assignment(member.assigned) if result.sends_assignment else None,
    )


def may_describe(node: Node, request: Request) -> Callable[[str], bool] | None:
    """Return a function that returns whether the client may see a topic. Return None if it may see all topics."""
    if node.permissions is None:
        return None
    return partial(node.permissions.may, request, Operation.DESCRIBE, ResourceType.TOPIC, log_denied=False)


def _check(message: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raise RefusedError (INVALID_REQUEST, INVALID_REGULAR_EXPRESSION) for an invalid request."""
    epoch, names, regex = message.member_epoch, message.subscribed_topic_names, message.subscribed_topic_regex
    is_joining = epoch == JOINING
    wrong = {
        "GroupId is empty": not message.group_id,
        "InstanceId is empty": message.instance_id == "",
        "RackId is empty": message.rack_id == "",
        "MemberId is empty": not message.member_id and (not is_joining or version >= _FIRST_WITH_MEMBER_ID),
        "MemberEpoch is below -2": epoch < LEAVING_FOR_NOW,
        "InstanceId is missing, and MemberEpoch is -2": epoch == LEAVING_FOR_NOW and message.instance_id is None,
        "RebalanceTimeoutMs is missing in a join": is_joining and message.rebalance_timeout_ms == -1,
        "TopicPartitions must be empty in a join": is_joining and message.topic_partitions != [],
        "SubscribedTopicNames and SubscribedTopicRegex are missing in a join": is_joining and names is None and regex is None,
    }
    for reason, is_wrong in wrong.items():
        if is_wrong:
            raise RefusedError(ErrorCode.INVALID_REQUEST, reason)
    if regex:
        check_pattern(regex)


def _heartbeat(message: ConsumerGroupHeartbeatRequest, request: Request) -> Heartbeat:
    names, owned = message.subscribed_topic_names, message.topic_partitions
    return Heartbeat(
        member_id=message.member_id or str(uuid.uuid4()),
        member_epoch=message.member_epoch,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        client_id=request.client_id or "",
        client_host=_host(request),
        names=None if names is None else tuple(names),
        regex=message.subscribed_topic_regex,
        server_assignor=message.server_assignor,
        owned=None if owned is None else [(one.topic_id, one.partitions) for one in owned],
    )


def _host(request: Request) -> str:
    return f"/{java_address(request.peer_host)}"


def _assignment(assigned: Assignment) -> HeartbeatAssignment:
    return HeartbeatAssignment([HeartbeatTopicPartitions(topic_id, sorted(held)) for topic_id, held in assigned.items()])


def _refused(code: ErrorCode, reason: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=reason)


API = Api(
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    Versions(0, 1),
    ACCESS,
    by_groups(handle),
    usual_by_groups(answer_usual),
)
