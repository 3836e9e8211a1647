"""Handles the requests of members: join, sync, heartbeat, leave. The rules are those of Kafka's classic protocol.

JoinGroup is answered when the next generation begins, or at once:

| state | member | |
|---|---|---|
| any | new, and must rejoin with a member id (KIP-394) | at once: MEMBER_ID_REQUIRED, with an id to rejoin with |
| any | new, or rejoining with the id from MEMBER_ID_REQUIRED | waits; the group rebalances |
| STABLE | static, returning without its member id; same protocol | at once: it keeps its assignment; no rebalance |
| STABLE | known, not the leader, unchanged | at once: the current generation |
| STABLE | the leader, or a member whose metadata has changed | waits; the group rebalances |
| COMPLETING_REBALANCE | known, unchanged | at once: the current generation, because the first response may be lost |
| COMPLETING_REBALANCE | any other | waits; the group rebalances, and pending SyncGroups are answered |
| PREPARING_REBALANCE | | waits |

A member that leaves or times out also causes a rebalance. A static leader that returns must not send assignments, because a
stable group would ignore them. So before version 9 its response names its old member id as the leader (KIP-345, KIP-814).
"""

from __future__ import annotations

from tidelog.broker.coordinators.groups import classic_requests
from tidelog.broker.coordinators.groups.group import (
    UNKNOWN_MEMBER,
    Group,
    GroupState,
    Joining,
    JoinResult,
    Leaving,
    Member,
    Syncing,
    SyncResult,
)
from tidelog.broker.coordinators.groups.groups import Groups
from tidelog.broker.coordinators.groups.membership import (
    add,
    await_join,
    change,
    check_member,
    choose_protocol,
    forget_pending,
    has_protocols,
    new_member_id,
    remove,
    replace_static,
    supports,
)
from tidelog.broker.coordinators.groups.rebalance import NEW_MEMBER_TIMEOUT_MS, forget_pending_sync, generation_of
from tidelog.wire.error_codes import ErrorCode

# --- join


def join(groups: Groups, group_id: str, joining: Joining) -> JoinResult | None:
    """Let a member join. Return the result, or None if the result is passed to `joining.answer`, now or later. The coordinator
    must be ready.
    """
    config = groups.config
    if not config.group_min_session_timeout_ms <= joining.session_timeout_ms <= config.group_max_session_timeout_ms:
        return JoinResult(joining.member_id, ErrorCode.INVALID_SESSION_TIMEOUT)
    is_new = joining.member_id == UNKNOWN_MEMBER
    group = groups.get_or_create(group_id) if is_new else groups.get(group_id)
    if group is None:
        return JoinResult(joining.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    result: JoinResult | None
    if group.consumer is not None:
        if not group.is_empty:
            return classic_requests.join(groups.consumers, group, joining)
        if not is_new:
            return JoinResult(joining.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        code = groups.consumers.end_for_classic(group)
        if code:
            return JoinResult(joining.member_id, code)
    if not _has_room(group, joining.member_id, config.group_max_size):
        remove(group, joining.member_id)
        result = JoinResult(UNKNOWN_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif group.state is GroupState.DEAD:
        result = JoinResult(joining.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elif not supports(group, joining.protocol_type, joining.protocols):
        result = JoinResult(joining.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif is_new:
        result = _join_new(groups, group, joining)
    else:
        result = _join_known(groups, group, joining)
    groups.rebalance.try_complete(group)
    return result


def _has_room(group: Group, member_id: str, max_size: int) -> bool:
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        # If there are too many members, e.g. after a restart with a smaller limit, those that join first stay.
        return (member is not None and member.answer_join is not None) or group.awaiting_join < max_size
    return member is not None or len(group.members) < max_size


def _join_new(groups: Groups, group: Group, joining: Joining) -> JoinResult | None:
    instance_id = joining.group_instance_id
    member_id = new_member_id(joining.client_id, instance_id)
    if instance_id is not None:
        current = group.static_members.get(instance_id)
        if current is not None:
            return _join_again_static(groups, group, group.members[current], member_id, joining)
    elif joining.is_member_id_required:
        groups.rebalance.await_pending(group, member_id, joining.session_timeout_ms)
        return JoinResult(member_id, ErrorCode.MEMBER_ID_REQUIRED)
    _add(groups, group, member_id, joining)
    return None


def _join_known(groups: Groups, group: Group, joining: Joining) -> JoinResult | None:
    member_id = joining.member_id
    if member_id in group.pending_members:
        if joining.group_instance_id is not None:
            # Only dynamic members must rejoin with a member id.
            return JoinResult(UNKNOWN_MEMBER, ErrorCode.UNKNOWN_SERVER_ERROR)
        _add(groups, group, member_id, joining)
        return None
    code = check_member(group, member_id, joining.group_instance_id)
    if code:
        return JoinResult(member_id, code)
    member = group.members[member_id]
    is_leader = group.leader_id == member_id
    has_changed = not has_protocols(member, joining.protocols)
    if group.state is GroupState.COMPLETING_REBALANCE and not has_changed:
        return generation_of(group, member, tuple(group.members.values()) if is_leader else ())
    if group.state is GroupState.STABLE and not has_changed and not is_leader:
        return generation_of(group, member)
    what = "the leader rejoins" if is_leader and not has_changed else "a member rejoins"
    change(group, member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms)
    await_join(group, member, joining.answer)
    groups.rebalance.may_prepare(group, f"{what}: {joining.reason}")
    return None


def _add(groups: Groups, group: Group, member_id: str, joining: Joining) -> None:
    member = Member(
        member_id,
        group_instance_id=joining.group_instance_id,
        client_id=joining.client_id,
        client_host=joining.client_host,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        session_timeout_ms=joining.session_timeout_ms,
        protocol_type=joining.protocol_type,
        protocols=joining.protocols,
    )
    member.is_new = True
    if group.state is GroupState.PREPARING_REBALANCE and group.generation_id == 0:
        group.is_joined_by_more = True
    add(group, member)
    await_join(group, member, joining.answer)
    groups.rebalance.touch(group, member, NEW_MEMBER_TIMEOUT_MS)
    groups.rebalance.may_prepare(group, f"a member joins: {joining.reason}")


def _join_again_static(groups: Groups, group: Group, member: Member, member_id: str, joining: Joining) -> JoinResult | None:
    """Give a new member id to a static member that rejoins without its old one."""
    old_member_id, old_leader_id = member.member_id, group.leader_id
    old = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    replace_static(group, member, member_id)
    groups.rebalance.touch(group, member)
    change(group, member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms)
    if group.state is GroupState.STABLE and choose_protocol(group) == group.protocol_name:
        code = groups.store(group)
        if code:
            change(group, member, *old)
            replace_static(group, member, old_member_id)
            groups.rebalance.touch(group, member)
            return generation_of(group, member)._replace(member_id=UNKNOWN_MEMBER, error_code=code)
        if joining.can_skip_assignment:
            is_leader = group.leader_id == member_id
            members = tuple(group.members.values()) if is_leader else ()
            return generation_of(group, member, members, skip_assignment=is_leader)
        assert old_leader_id is not None
        return generation_of(group, member)._replace(leader_id=old_leader_id)
    await_join(group, member, joining.answer)
    if group.state is GroupState.STABLE:
        groups.rebalance.may_prepare(group, f"a static member returns and changes the protocol: {joining.reason}")
    elif group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may already have the old id, and would assign partitions to it.
        groups.rebalance.prepare(group, f"a static member returns: {joining.reason}")
    return None


# --- sync


def sync(groups: Groups, group: Group, syncing: Syncing) -> SyncResult | None:
    """Return a member's assignment. The leader's request contains all assignments. Return None if the result is passed to
    `syncing.answer`, now or later.
    """
    if group.consumer is not None:
        return classic_requests.sync(groups.consumers, group, syncing)
    code = _check_sync(group, syncing)
    if code:
        return SyncResult(code)
    member = group.members[syncing.member_id]
    if group.state is GroupState.COMPLETING_REBALANCE:
        member.answer_sync = syncing.answer
        forget_pending_sync(group, member.member_id)
        if group.leader_id == member.member_id:
            groups.rebalance.assign(group, syncing.assignments)
        return None
    forget_pending_sync(group, member.member_id)
    groups.rebalance.touch(group, member)
    return SyncResult(ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol_name)


def _check_sync(group: Group, syncing: Syncing) -> ErrorCode:
    code = check_generation(group, syncing.member_id, syncing.group_instance_id, syncing.generation_id)
    if code:
        return code
    if syncing.protocol_type not in (None, group.protocol_type) or syncing.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def check_generation(group: Group, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
    """Return NONE if the request comes from a member of the current generation, otherwise the error code."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = check_member(group, member_id, group_instance_id)
    if code:
        return code
    return ErrorCode.NONE if generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION


# --- heartbeat


def heartbeat(groups: Groups, group: Group, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
    """Restart the member's session timeout. Return NONE or an error code; REBALANCE_IN_PROGRESS means that the member must
    rejoin.
    """
    if group.consumer is not None:
        return classic_requests.heartbeat(groups.consumers, group, member_id, group_instance_id, generation_id)
    code = check_generation(group, member_id, group_instance_id, generation_id)
    if code:
        return code
    groups.rebalance.touch(group, group.members[member_id])
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE


# --- leave


def leave(groups: Groups, group: Group, leaving: Leaving) -> ErrorCode:
    """Remove a member. A static member may be identified by its instance id alone. The group must not be DEAD."""
    member_id = leaving.member_id
    if member_id == UNKNOWN_MEMBER:
        current = None if leaving.group_instance_id is None else group.static_members.get(leaving.group_instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = current
    elif member_id in group.pending_members:
        forget_pending(group, member_id)
        groups.rebalance.try_complete(group)
        return ErrorCode.NONE
    else:
        code = check_member(group, member_id, leaving.group_instance_id)
        if code:
            return code
    groups.rebalance.remove_member(group, group.members[member_id], f"a member leaves: {leaving.reason}")
    return ErrorCode.NONE
