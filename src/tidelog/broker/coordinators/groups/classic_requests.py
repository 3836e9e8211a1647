"""Handles the requests of classic members of a consumer group (KIP-848, online migration). The rules are in
`consumer_groups.classic_members`.

A member that must rejoin has to do so within its rebalance timeout, and then to send SyncGroup within the same time. A member
that misses one of these deadlines is removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from tidelog.broker.coordinators.consumer_groups.classic_members import (
    ClassicJoin,
    assignment_bytes,
    check_protocols,
    join_result,
    must_rejoin,
    must_rejoin_first,
    update_of,
)
from tidelog.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup, ConsumerMember, RefusedError
from tidelog.broker.coordinators.consumer_groups.heartbeats import check_room, known
from tidelog.broker.coordinators.groups.consumer_coordinator import ConsumerCoordinator
from tidelog.broker.coordinators.groups.consumer_sessions import forget_session
from tidelog.broker.coordinators.groups.group import UNKNOWN_MEMBER, Group, Joining, JoinResult, Leaving, Syncing, SyncResult
from tidelog.broker.coordinators.groups.migration import may_downgrade
from tidelog.errors import ProtocolError
from tidelog.wire.coordinator.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolSubscription, read_subscription
from tidelog.wire.error_codes import ErrorCode


def join(consumers: ConsumerCoordinator, group: Group, joining: Joining) -> JoinResult:
    """Handle a classic member's JoinGroup to a consumer group that has members: it joins, or advances towards its target
    assignment. Return the result.
    """
    consumer = group.consumer
    assert consumer is not None
    is_new = joining.member_id == UNKNOWN_MEMBER
    member_id = str(uuid.uuid4()) if is_new else joining.member_id
    around = consumers.around(joining.may_describe)
    try:
        check_room(consumer, member_id, around)
        check_protocols(consumer, joining.protocol_type, joining.protocols)
        if is_new and joining.is_member_id_required:
            return JoinResult(member_id, ErrorCode.MEMBER_ID_REQUIRED)
        wanted = ClassicJoin(
            member_id,
            is_new,
            joining.group_instance_id,
            joining.client_id,
            joining.client_host,
            joining.rebalance_timeout_ms,
            joining.session_timeout_ms,
            joining.protocols,
            _subscription(joining),
        )
        update = update_of(consumer, wanted, consumers.id_of)
        # If a static member takes the place of the last member of the new protocol, the group becomes a classic group.
        is_last = update.replaced is not None and may_downgrade(consumer, {update.replaced}, consumers.config, is_replaced=True)
        result = join_result(consumer, update, around, is_last=is_last)
        consumers.commit(group, consumer, result.changes)
        if update.replaced is not None and update.replaced != member_id:
            forget_session(group, update.replaced)
        if is_last:
            has_changed = update.before.subscription != update.after.subscription
            why = "a classic member with a different subscription replaces the last member of the new protocol"
            consumers.downgrade(group, consumer, frozenset(), why if has_changed else None)
        else:
            consumer.topics_seen = around.topics_seen
            consumers.sessions.touch(group, member_id, joining.session_timeout_ms)
            consumers.sessions.await_request(group, result.member, "it has not sent SyncGroup in time", restarts=True)
            if result.needs_assignment:
                consumers.assign(group, consumer)
    except RefusedError as error:
        return JoinResult(joining.member_id, error.code)
    return JoinResult(
        member_id,
        generation_id=result.member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=next(iter(joining.protocols)),
    )


def _subscription(joining: Joining) -> ConsumerProtocolSubscription:
    """Return a member's subscription, from its first protocol. Raises RefusedError (INCONSISTENT_GROUP_PROTOCOL)."""
    try:
        return read_subscription(next(iter(joining.protocols.values())))
    except ProtocolError as error:
        raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the member's metadata is not a consumer's: {error}") from None


def sync(consumers: ConsumerCoordinator, group: Group, syncing: Syncing) -> SyncResult:
    """Return a classic member's assignment, or an error."""
    consumer = group.consumer
    assert consumer is not None
    try:
        member = _classic(consumer, syncing.member_id, syncing.group_instance_id, syncing.generation_id)
    except RefusedError as error:
        return SyncResult(error.code)
    assert member.classic is not None
    protocol = member.classic.supported_protocols[0]
    if syncing.protocol_type not in (None, PROTOCOL_TYPE) or syncing.protocol_name not in (None, protocol.name):
        return SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if must_rejoin_first(member, consumers.epoch_of(consumer)):
        consumers.sessions.await_request(group, member, "it has not joined again in time")
        return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    consumers.sessions.stop_awaiting(group, member.member_id)
    consumers.sessions.touch(group, member.member_id, member.classic.session_timeout_ms)
    assignment = assignment_bytes(member.assigned, protocol.metadata, consumers.name_of)
    return SyncResult(ErrorCode.NONE, assignment, PROTOCOL_TYPE, protocol.name)


def heartbeat(
    consumers: ConsumerCoordinator, group: Group, member_id: str, group_instance_id: str | None, generation_id: int
) -> ErrorCode:
    """Restart a classic member's session. Return NONE or an error code."""
    consumer = group.consumer
    assert consumer is not None
    try:
        member = _classic(consumer, member_id, group_instance_id, generation_id)
    except RefusedError as error:
        return error.code
    assert member.classic is not None
    consumers.sessions.touch(group, member_id, member.classic.session_timeout_ms)
    if not must_rejoin(consumer, member, consumers.epoch_of(consumer)):
        return ErrorCode.NONE
    consumers.sessions.await_request(group, member, "it has not joined again in time")
    return ErrorCode.REBALANCE_IN_PROGRESS


def leave(consumers: ConsumerCoordinator, group: Group, leaving: Sequence[Leaving]) -> list[ErrorCode]:
    """Remove members, all at once. Return an error code for each element of `leaving`."""
    consumer = group.consumer
    assert consumer is not None
    going: dict[str, ConsumerMember] = {}
    codes = []
    for one in leaving:
        member_id = one.member_id
        if member_id == UNKNOWN_MEMBER and one.group_instance_id is not None:
            member_id = consumer.static_members.get(one.group_instance_id, UNKNOWN_MEMBER)
        try:
            going[member_id] = known(consumer, member_id, one.group_instance_id)
            codes.append(ErrorCode.NONE)
        except RefusedError as error:
            codes.append(error.code)
    try:
        if going:
            consumers.remove(group, consumer, list(going.values()), "it has left by LeaveGroup")
    except RefusedError as error:
        return [code or error.code for code in codes]
    return codes


def _classic(consumer: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int) -> ConsumerMember:
    """Return a classic member. Raises RefusedError (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION)."""
    member = known(consumer, member_id, instance_id)
    if member.classic is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id!r} uses the new protocol")
    if member.epoch != generation_id:
        raise RefusedError(ErrorCode.ILLEGAL_GENERATION, f"the generation of member {member_id!r} is {member.epoch}")
    return member
