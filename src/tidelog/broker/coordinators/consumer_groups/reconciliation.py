"""How a member gets from the partitions that it has to those of its target assignment (KIP-848), one heartbeat at a time.

1. What it has and should not have, it must revoke. Until its heartbeats no longer list that, it gets nothing new.
2. Then its epoch becomes that of the target assignment, and it gets all partitions of it that no member has.
3. While others still have some of them, each heartbeat asks again.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable
from typing import TypeAlias

from tidelog.broker.coordinators.consumer_groups.consumer_group import NOTHING, Assignment, ConsumerMember, MemberState
from tidelog.broker.coordinators.consumer_groups.refused import RefusedError
from tidelog.wire.error_codes import ErrorCode

Owned: TypeAlias = "Iterable[tuple[uuid.UUID, Iterable[int]]] | None"
"""The partitions that a member's heartbeat lists; None if it lists none because they are the same as before."""


def reconcile(
    member: ConsumerMember, target_epoch: int, target: Assignment, taken: Container[tuple[uuid.UUID, int]], owned: Owned
) -> ConsumerMember:
    """Return the member after a heartbeat that reports `owned`, perhaps unchanged. `taken` has the partitions that a member has.

    Raises RefusedError (FENCED_MEMBER_EPOCH) if the member's state is unknown and it has partitions.
    """
    if member.is_reconciled_to(target_epoch):
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _has_any(owned, member.pending):
        return member
    if member.state is MemberState.UNKNOWN and (owned is None or any(partitions for _, partitions in owned)):
        raise RefusedError(
            ErrorCode.FENCED_MEMBER_EPOCH, "the member's state is unknown: it must give up its partitions and rejoin"
        )
    kept, revoked, free, must_wait = {}, {}, {}, False
    for topic_id, partitions in member.assigned.items():
        wanted = target.get(topic_id, frozenset())
        if partitions & wanted:
            kept[topic_id] = partitions & wanted
        if partitions - wanted:
            revoked[topic_id] = partitions - wanted
    if revoked and _has_any(owned, revoked):
        return member.reconciled(MemberState.UNREVOKED_PARTITIONS, member.epoch, kept or NOTHING, revoked)
    for topic_id, wanted in target.items():
        missing = wanted - kept.get(topic_id, frozenset())
        ready = frozenset(partition for partition in missing if (topic_id, partition) not in taken)
        must_wait = must_wait or len(ready) < len(missing)
        if ready:
            free[topic_id] = ready
    assigned = {topic_id: kept.get(topic_id, frozenset()) | free.get(topic_id, frozenset()) for topic_id in {**kept, **free}}
    state = MemberState.UNRELEASED_PARTITIONS if must_wait else MemberState.STABLE
    return member.reconciled(state, target_epoch, assigned or NOTHING)


def _has_any(owned: Owned, partitions: Assignment) -> bool:
    """Whether a heartbeat lists any of the partitions. One that lists nothing has not changed, and may still have them."""
    if owned is None:
        return True
    return any(not partitions.get(topic_id, frozenset()).isdisjoint(held) for topic_id, held in owned)
