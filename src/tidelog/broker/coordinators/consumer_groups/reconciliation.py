"""Moves a member from its present partitions to its target assignment (KIP-848), one heartbeat at a time.

1. The member must revoke the partitions that are not in its target assignment. Until its heartbeats no longer list these
   partitions, the member gets no new ones.
2. Then the member gets the epoch of the target assignment, and all of its target partitions that no other member owns.
3. While other members still own some of its target partitions, each heartbeat tries again.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Mapping
from typing import TypeAlias

from tidelog.broker.coordinators.consumer_groups.consumer_group import (
    NOTHING,
    Assignment,
    ConsumerMember,
    MemberState,
    RefusedError,
    united,
)
from tidelog.wire.error_codes import ErrorCode

Owned: TypeAlias = "Iterable[tuple[uuid.UUID, Iterable[int]]] | None"
"""The partitions that a member's heartbeat lists; None if it lists none because they are the same as before."""


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owners: Mapping[tuple[uuid.UUID, int], str],
    owned: Owned,
    *,
    subscribed: Container[uuid.UUID] | None = None,
    replaced: str | None = None,
) -> ConsumerMember:
    """Return the member after a heartbeat that reports `owned`; it may be unchanged. `owners` has the owner of each partition.

    If the member's subscription has changed, `subscribed` has the ids of its topics. The member loses all other topics, even
    those in its target assignment.
    `replaced` is the id of the static member whose place the member takes, and whose partitions it inherits.
    Raises RefusedError (FENCED_MEMBER_EPOCH) if the member's state is unknown and it has partitions.
    """
    is_waiting = member.state is MemberState.UNREVOKED_PARTITIONS and _has_any(owned, member.pending)
    if is_waiting or member.is_reconciled_to(target_epoch):
        return member if subscribed is None else _without_others(member, owned, subscribed)
    if member.state is MemberState.UNKNOWN and (owned is None or any(partitions for _, partitions in owned)):
        reason = "the member's state is unknown: it must give up its partitions and rejoin"
        raise RefusedError(ErrorCode.FENCED_MEMBER_EPOCH, reason)
    if subscribed is not None:
        target = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed}
    kept: dict[uuid.UUID, frozenset[int]] = {}
    revoked: dict[uuid.UUID, frozenset[int]] = {}
    for topic_id, partitions in member.assigned.items():
        wanted = target.get(topic_id, frozenset())
        if partitions & wanted:
            kept[topic_id] = partitions & wanted
        if partitions - wanted:
            revoked[topic_id] = partitions - wanted
    if revoked and _has_any(owned, revoked):
        return member.reconciled(MemberState.UNREVOKED_PARTITIONS, member.epoch, kept or NOTHING, revoked)
    assigned = dict(kept)
    must_wait = False
    own = (None, member.member_id, replaced)
    for topic_id, wanted in target.items():
        missing = wanted - kept.get(topic_id, frozenset())
        free = frozenset(one for one in missing if owners.get((topic_id, one)) in own)
        must_wait = must_wait or len(free) < len(missing)
        if free:
            assigned[topic_id] = kept.get(topic_id, frozenset()) | free
    state = MemberState.UNRELEASED_PARTITIONS if must_wait else MemberState.STABLE
    return member.reconciled(state, target_epoch, assigned or NOTHING)


def _without_others(member: ConsumerMember, owned: Owned, subscribed: Container[uuid.UUID]) -> ConsumerMember:
    """Return the member with an unchanged epoch. It must revoke its partitions of topics that are not in `subscribed`."""
    kept = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id in subscribed}
    if len(kept) == len(member.assigned):
        return member
    lost = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id not in subscribed}
    pending = united(member.pending, lost)
    if _has_any(owned, pending):
        return member.reconciled(MemberState.UNREVOKED_PARTITIONS, member.epoch, kept or NOTHING, pending)
    return member._replace(previous_epoch=member.epoch, assigned=kept or NOTHING)


def _has_any(owned: Owned, partitions: Assignment) -> bool:
    """Whether a heartbeat lists any of the partitions. A heartbeat without a list means that nothing has changed, so the member
    may still own the partitions, and the result is True.
    """
    if owned is None:
        return True
    return any(not partitions.get(topic_id, frozenset()).isdisjoint(held) for topic_id, held in owned)
