"""A group's members, their common protocol and their leader, without timers and requests.

| | |
|---|---|
| protocol | one that all members support; if several, the one that most members prefer; on a tie, the first to get a vote |
| leader | the first member to join; if the leader does not join a generation, any member that has joined |
| static member | identified by its instance id; a join with the instance id but no member id replaces it (KIP-345) |

A request names a member by its id, and perhaps by its instance id. The instance id is checked first:

| instance id | member id | |
|---|---|---|
| unknown | | UNKNOWN_MEMBER_ID |
| known | not the current owner's | FENCED_INSTANCE_ID |
| known, or none | unknown | UNKNOWN_MEMBER_ID |

A protocol that a member names twice counts once, with its first metadata.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

from tidelog.broker.coordinators.groups.group import Group, GroupState, JoinResult, Member, SyncResult
from tidelog.wire.error_codes import ErrorCode

MAX_PREFIX = 249
"""A member id begins with at most this many characters of the instance id or client id. Responses limit a member id to 32,767
bytes, and a client id may already be that long.
"""


def new_member_id(client_id: str, group_instance_id: str | None) -> str:
    """Return a new member id: the beginning of the instance id or client id, and a random UUID."""
    return f"{(client_id if group_instance_id is None else group_instance_id)[:MAX_PREFIX]}-{uuid.uuid4()}"


def check_member(group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Return NONE if a request's ids identify a member, otherwise the error code from the module's table."""
    if group_instance_id is not None:
        current = group.static_members.get(group_instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def rebalance_timeout_ms(group: Group) -> int:
    """Return the longest rebalance timeout of the members."""
    return max((member.rebalance_timeout_ms for member in group.members.values()), default=0)


# --- protocols


def supports(group: Group, protocol_type: str, protocols: Iterable[str]) -> bool:
    """Whether the group would still have a common protocol if a member with these protocols joined."""
    if group.state is GroupState.EMPTY:
        return bool(protocol_type) and any(True for _ in protocols)
    if protocol_type != group.protocol_type:
        return False
    counts, everybody = _counts(group), len(group.members)
    return any(counts.get(name, 0) == everybody for name in protocols)


def choose_protocol(group: Group) -> str:
    """Return the protocol that the members vote for. There must be members with a common protocol."""
    counts, everybody = _counts(group), len(group.members)
    votes: dict[str, int] = {}
    for member in group.members.values():
        choice = next(name for name in member.protocols if counts[name] == everybody)
        votes[choice] = votes.get(choice, 0) + 1
    return max(votes, key=votes.__getitem__)


def has_protocols(member: Member, protocols: dict[str, bytes]) -> bool:
    """Whether a member has exactly these protocols, in the same order and with the same metadata."""
    return member.protocols == protocols and list(member.protocols) == list(protocols)


def _counts(group: Group) -> dict[str, int]:
    if group.protocol_counts is None:
        group.protocol_counts = {}
        for member in group.members.values():
            _count(group, member, 1)
    return group.protocol_counts


def _count(group: Group, member: Member, step: int) -> None:
    counts = group.protocol_counts
    if counts is not None:
        for name in member.protocols:
            count = counts.get(name, 0) + step
            if count:
                counts[name] = count
            else:
                del counts[name]


# --- members


def add(group: Group, member: Member) -> None:
    """Add a member. Its instance id, if any, must be unused."""
    if member.group_instance_id is not None:
        group.static_members[member.group_instance_id] = member.member_id
    if not group.members:
        group.protocol_type = member.protocol_type
    if group.leader_id is None:
        group.leader_id = member.member_id
    group.members[member.member_id] = member
    _count(group, member, 1)
    forget_pending(group, member.member_id)


def remove(group: Group, member_id: str) -> None:
    """Remove a member, or a member id that has been assigned but has not joined yet. The member must not have pending requests.
    An unknown id is ignored.
    """
    member = group.members.pop(member_id, None)
    if member is not None:
        _count(group, member, -1)
        if member.group_instance_id is not None:
            group.static_members.pop(member.group_instance_id, None)
        if member.delay is not None:
            member.delay.cancel()
            member.delay = None
    if group.leader_id == member_id:
        group.leader_id = next(iter(group.members), None)
    forget_pending(group, member_id)
    group.pending_syncs.discard(member_id)


def drop_all(group: Group, code: ErrorCode) -> None:
    """Remove all members, because this group no longer has them. Pending requests get `code`."""
    for member in list(group.members.values()):
        answer_join(group, member, JoinResult(member.member_id, code))
        answer_sync(member, SyncResult(code))
        remove(group, member.member_id)
    for member_id in list(group.pending_members):
        forget_pending(group, member_id)


def forget_pending(group: Group, member_id: str) -> None:
    """Stop expecting a member with this id to join."""
    delay = group.pending_members.pop(member_id, None)
    if delay is not None:
        delay.cancel()


def change(group: Group, member: Member, protocols: dict[str, bytes], rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
    """Update a member with the content of its new JoinGroup."""
    _count(group, member, -1)
    member.protocols = protocols
    _count(group, member, 1)
    member.rebalance_timeout_ms = rebalance_timeout_ms
    member.session_timeout_ms = session_timeout_ms


def replace_static(group: Group, member: Member, new_member_id: str) -> None:
    """Give a static member a new member id. Pending requests with the old id get FENCED_INSTANCE_ID."""
    old_member_id = member.member_id
    answer_join(group, member, JoinResult(old_member_id, ErrorCode.FENCED_INSTANCE_ID))
    answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
    group.members.pop(old_member_id, None)
    member.member_id = new_member_id
    group.members[new_member_id] = member
    if old_member_id in group.pending_syncs:
        group.pending_syncs.remove(old_member_id)
        group.pending_syncs.add(new_member_id)
    if group.leader_id == old_member_id:
        group.leader_id = new_member_id
    if member.group_instance_id is not None:
        group.static_members[member.group_instance_id] = new_member_id


def elect_leader(group: Group) -> bool:
    """Ensure that the leader is a member that has joined. Return False if no member has joined."""
    if group.leader_id is None:
        return False
    if group.members[group.leader_id].answer_join is None:
        joined = next((one for one in group.members.values() if one.answer_join is not None), None)
        if joined is None:
            return False
        group.leader_id = joined.member_id
    return True


# --- states


def begin_generation(group: Group, now_ms: int) -> None:
    """Begin the next generation with the current members. A group without members becomes EMPTY."""
    group.generation_id += 1
    group.pending_syncs.clear()
    if group.members:
        group.protocol_name = choose_protocol(group)
        group.move(GroupState.COMPLETING_REBALANCE, now_ms)
    else:
        group.protocol_name = None
        group.move(GroupState.EMPTY, now_ms)


def has_joined(group: Group) -> bool:
    """Whether all members have joined."""
    return len(group.members) == group.awaiting_join and not group.pending_members


# --- pending requests


def await_join(group: Group, member: Member, answer: Callable[[JoinResult], None]) -> None:
    """Set a member's pending join. An earlier pending join is never answered, because its client no longer waits for a
    response.
    """
    if member.answer_join is None:
        group.awaiting_join += 1
    member.answer_join = answer


def answer_join(group: Group, member: Member, result: JoinResult) -> None:
    """Answer a member's pending join, if it has one."""
    answer, member.answer_join = member.answer_join, None
    if answer is not None:
        group.awaiting_join -= 1
        answer(result)


def answer_sync(member: Member, result: SyncResult) -> bool:
    """Answer a member's pending sync; return whether it had one."""
    answer, member.answer_sync = member.answer_sync, None
    if answer is None:
        return False
    answer(result)
    return True
