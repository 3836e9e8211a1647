"""Handles requests of members that use the classic protocol in a consumer group (KIP-848, online migration).

| request | |
|---|---|
| JoinGroup | the member joins, or advances towards its target assignment. No member is the leader: the coordinator assigns |
| SyncGroup | returns the member's assignment, and changes nothing |
| Heartbeat | returns REBALANCE_IN_PROGRESS if the member has an old epoch, must revoke partitions, or can get missing ones |
| LeaveGroup | removes members of either protocol |

A member's generation is its epoch. Its subscription and owned partitions are in the metadata of its first protocol. The rules
are those of Kafka 4.2.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from tidelog.broker.coordinators.consumer_groups.consumer_group import (
    NOTHING,
    Assignment,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    RefusedError,
    Subscription,
    subscription_record,
)
from tidelog.broker.coordinators.consumer_groups.heartbeats import (
    Result,
    Surroundings,
    Update,
    advanced,
    joining_member,
    known,
    replacement,
)
from tidelog.errors import ProtocolError
from tidelog.wire.coordinator.consumer_group import ClassicMemberMetadata, ClassicProtocol
from tidelog.wire.coordinator.consumer_protocol import (
    PROTOCOL_TYPE,
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tidelog.wire.coordinator.versioned import encode_versioned, version_of
from tidelog.wire.error_codes import ErrorCode

IdOf: TypeAlias = "Callable[[str], uuid.UUID | None]"
"""Returns the id of a topic, or None if the topic does not exist."""
NameOf: TypeAlias = "Callable[[uuid.UUID], str | None]"
"""Returns the name of a topic, or None if the topic does not exist."""


class ClassicJoin(NamedTuple):
    """A JoinGroup request. Timeouts in ms; `protocols` are in the member's order of preference."""

    member_id: str
    """The member's id; a new id if the request has none."""
    is_new: bool
    """Whether the request has no member id."""
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Mapping[str, bytes]
    subscription: ConsumerProtocolSubscription


def check_protocols(group: ConsumerGroup, protocol_type: str, protocols: Iterable[str]) -> None:
    """Raise RefusedError (INCONSISTENT_GROUP_PROTOCOL) unless one of the protocols is supported by all classic members."""
    others = [{one.name for one in member.classic.supported_protocols} for member in group.members.values() if member.classic]
    if protocol_type != PROTOCOL_TYPE or not any(all(name in other for other in others) for name in protocols):
        raise RefusedError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "none of the member's protocols is supported by all other members that use the classic protocol",
        )


def update_of(group: ConsumerGroup, joining: ClassicJoin, id_of: IdOf) -> Update:
    """Return a member as it was before its JoinGroup, and as the request changes it. Raises RefusedError (UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID).
    """
    instance_id, wanted = joining.instance_id, joining.subscription
    if instance_id is None or joining.is_new:
        member, replaced = joining_member(group, joining.member_id, instance_id)
    else:
        member, replaced = known(group, joining.member_id, instance_id), None
    updated = member._replace(
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=member.rack_id if wanted.rack_id is None else wanted.rack_id,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        subscription=Subscription(tuple(sorted(set(wanted.topics))), member.subscription.regex),
        client_id=joining.client_id,
        client_host=joining.client_host,
        classic=ClassicMemberMetadata(
            joining.session_timeout_ms, [ClassicProtocol(name, data) for name, data in joining.protocols.items()]
        ),
    )
    owned = ids(wanted.owned_partitions, id_of)
    return Update(member, updated, replaced, list(owned.items()))


def join_result(group: ConsumerGroup, update: Update, around: Surroundings, *, is_last: bool = False) -> Result:
    """Return what a JoinGroup changes. Raises RefusedError. With `is_last`, this request makes the group a classic group. A
    changed subscription then needs no new assignment, because the members rebalance.
    """
    if is_last and update.before.subscription != update.after.subscription:
        changes = replacement(group, update.before, update.replaced)
        return Result([*changes, subscription_record(group.group_id, update.after)], update.after)
    return advanced(group, around, update)


def must_rejoin(group: ConsumerGroup, member: ConsumerMember, epoch: int) -> bool:
    """Whether a heartbeat is answered with REBALANCE_IN_PROGRESS. `epoch` is the epoch that members should reach."""
    if member.epoch < epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    wanted = group.targets.get(member.member_id, NOTHING)
    missing = ((topic_id, one) for topic_id, some in wanted.items() for one in some - member.assigned.get(topic_id, frozenset()))
    return not any(partition in group.owners for partition in missing)


def must_rejoin_first(member: ConsumerMember, epoch: int) -> bool:
    """Whether a SyncGroup is answered with REBALANCE_IN_PROGRESS. A member that must revoke partitions gets its reduced
    assignment first.
    """
    return member.epoch < epoch and member.state is not MemberState.UNREVOKED_PARTITIONS


# --- the consumer protocol


def ids(topics: Iterable[AssignedTopic], id_of: IdOf) -> Assignment:
    """Return the partitions by topic id. Topics that do not exist are left out."""
    found = ((id_of(one.topic), one.partitions) for one in topics)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found if topic_id is not None and partitions}


def assignment_bytes(assigned: Assignment, metadata: bytes, name_of: NameOf) -> bytes:
    """Return an assignment encoded for a member's client, in the version of the member's `metadata`."""
    try:
        version = min(max(version_of(metadata), 0), ConsumerProtocolAssignment.VERSIONS[-1])
    except ProtocolError:
        version = 0
    named = ((name_of(topic_id), sorted(partitions)) for topic_id, partitions in assigned.items())
    topics = [AssignedTopic(name, partitions) for name, partitions in named if name is not None]
    return encode_versioned(ConsumerProtocolAssignment(topics), version)
