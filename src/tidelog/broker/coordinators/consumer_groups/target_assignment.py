"""A group's target assignment: the input of the assignor, and the records of its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.broker.coordinators.consumer_groups.assignors import ASSIGNORS, Assignee, Assigning, Assignments
from tidelog.broker.coordinators.consumer_groups.consumer_group import (
    NOTHING,
    Assignment,
    Change,
    ConsumerGroup,
    ConsumerMember,
    TopicFacts,
    names_of,
    target_record,
)
from tidelog.wire.coordinator.consumer_group import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)


class Planned(NamedTuple):
    """An assignment to be computed. Any thread may call `run`."""

    epoch: int
    assignor: str
    assigning: Assigning

    def run(self) -> Assignments:
        return ASSIGNORS[self.assignor](self.assigning)


def preferred_assignor(members: Iterable[ConsumerMember], known: tuple[str, ...]) -> str:
    """Return the assignor that most members request, or the broker's first assignor if none is requested."""
    votes = Counter(one.server_assignor or "" for one in members)
    named = [name for name in known if name in votes]
    return max(named, key=lambda name: votes[name]) if named else known[0]


def planned(
    members: Mapping[str, ConsumerMember],
    targets: Mapping[str, Assignment],
    topics: Mapping[str, TopicFacts],
    regexes: Mapping[str, frozenset[str]],
    *,
    epoch: int,
    known: tuple[str, ...],
) -> Planned:
    """Return the assignment to compute for an epoch. It contains copies, so the group may change in the meantime."""
    ids = {
        one: frozenset(topics[name].topic_id for name in names_of(one, regexes) if name in topics)
        for one in {member.subscription for member in members.values()}
    }
    assignees = {
        member_id: Assignee(member.instance_id, ids[member.subscription], targets.get(member_id, NOTHING))
        for member_id, member in members.items()
    }
    wanted = frozenset[object]().union(*ids.values())
    partitions = {one.topic_id: one.partitions for one in topics.values() if one.topic_id in wanted}
    return Planned(epoch, preferred_assignor(members.values(), known), Assigning(assignees, partitions))


def target_changes(group_id: str, before: Mapping[str, Assignment], after: Assignments, epoch: int) -> list[Change]:
    """Return the records of a new target assignment: one for each member whose target changes, then one for the epoch."""
    return [
        *(target_record(group_id, one, target) for one, target in after.items() if target != before.get(one)),
        Change(ConsumerGroupTargetAssignmentMetadataKey(group_id), ConsumerGroupTargetAssignmentMetadataValue(epoch)),
    ]


def renamed(group: ConsumerGroup, plan: Planned, made: Assignments) -> Assignments:
    """Adapt an assignment to changes of the group while it was being computed: drop members that have left, and use the new ids
    of static members that have returned.
    """
    found: Assignments = {}
    for member_id, target in made.items():
        instance_id = plan.assigning.members[member_id].instance_id
        now = member_id if instance_id is None else group.static_members.get(instance_id, member_id)
        if now in group.members:
            found[now] = target
    return found
