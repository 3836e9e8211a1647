"""Handles heartbeats of a consumer group (KIP-848): computes the records to write, and the response.

| a heartbeat | |
|---|---|
| epoch 0 | joins; a known member joins again, without partitions |
| the member's epoch | keeps its session; it may change its subscription and report revoked partitions |
| the previous epoch, and only partitions of the current assignment | as for the member's epoch: the last response was lost |
| any other epoch | FENCED_MEMBER_EPOCH: the member must give up its partitions and join again |
| -1 | leaves |
| -2, of a static member | leaves for now: its partitions stay until it returns or its session ends |

| instance id | member id | |
|---|---|---|
| new | | joins |
| known | a different one, epoch 0 | replaces a member that has left for now; else UNRELEASED_INSTANCE_ID |
| known | a different one, any other epoch | FENCED_INSTANCE_ID |
| unknown, not joining | | UNKNOWN_MEMBER_ID |

The rules are those of Kafka 4.2, and for version 0 those of 3.9.1. Records are in the order in which Kafka writes them.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from tidelog.broker.coordinators.consumer_groups.consumer_group import (
    JOINING,
    LEAVING,
    LEAVING_FOR_NOW,
    NOTHING,
    Assignment,
    Change,
    ConsumerGroup,
    ConsumerMember,
    RefusedError,
    Subscription,
    TopicFacts,
    current_record,
    names_of,
    removal,
    subscription_record,
    target_record,
)
from tidelog.broker.coordinators.consumer_groups.reconciliation import Owned, reconcile
from tidelog.broker.coordinators.consumer_groups.target_assignment import Planned, planned, target_changes
from tidelog.wire.coordinator import consumer_group as records
from tidelog.wire.error_codes import ErrorCode


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request. A field is None, and the timeout -1, if it has not changed."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    names: tuple[str, ...] | None = None
    regex: str | None = None
    server_assignor: str | None = None
    owned: Owned = None

    @property
    def is_full(self) -> bool:
        """Whether the member sends all fields, as it does after an error. The response then repeats its assignment."""
        has_subscription = self.names is not None or self.regex is not None
        return self.member_epoch == JOINING or (self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None)


class Surroundings(Protocol):
    """The facts about the broker that the rules use."""

    max_size: int
    """The most members that a group may have."""
    assignors: tuple[str, ...]
    """The broker's assignors, the default first."""
    topics_seen: object
    """Identifies the state of the broker's topics: equal as long as no topic changes."""

    def facts(self, name: str) -> TopicFacts | None:
        """Return the facts about a topic, or None if the topic does not exist."""

    def matching(self, regex: str) -> frozenset[str]:
        """Return the topics that match a regular expression. Raises RefusedError (INVALID_REGULAR_EXPRESSION)."""

    def is_large(self, members: int, partitions: int) -> bool:
        """Whether an assignment must be computed on another thread."""


class Result(NamedTuple):
    """The changes of a heartbeat, to be written and then applied, and its response."""

    changes: list[Change]
    member: ConsumerMember
    sends_assignment: bool = False
    replaced: str | None = None
    """The id of the static member whose place the member takes."""
    needs_assignment: bool = False
    """Whether another thread must compute the target assignment, because the group is large."""


def heartbeat(group: ConsumerGroup, beat: Heartbeat, around: Surroundings) -> Result:
    """Return the result of a heartbeat. Raises RefusedError."""
    check_room(group, beat.member_id, around)
    if beat.server_assignor is not None and beat.server_assignor not in around.assignors:
        known = ", ".join(around.assignors)
        raise RefusedError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"unknown assignor {beat.server_assignor!r}: this broker has {known}")
    member, replaced = _member(group, beat)
    return advanced(group, around, Update(member, _updated(member, beat), replaced, beat.owned), is_full=beat.is_full)


def check_room(group: ConsumerGroup, member_id: str, around: Surroundings) -> None:
    """Raise RefusedError (GROUP_MAX_SIZE_REACHED) if the group is full and the member is not in it."""
    if len(group.members) >= around.max_size and member_id not in group.members:
        raise RefusedError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the group already has {len(group.members)} members: at most {around.max_size} are allowed",
        )


class Update(NamedTuple):
    """A member before and after a request, not including changes of its assignment."""

    before: ConsumerMember
    after: ConsumerMember
    replaced: str | None
    """The id of the static member whose place the member takes."""
    owned: Owned


def advanced(group: ConsumerGroup, around: Surroundings, update: Update, *, is_full: bool = False) -> Result:
    """Return the changes that a member's update makes to the group's epoch, its target assignment and the member's assignment."""
    group_id = group.group_id
    member, updated, replaced, owned = update
    changes = replacement(group, member, replaced)
    if updated != member:
        changes.append(subscription_record(group_id, updated))
    has_changed = updated.subscription != member.subscription or not group.epoch
    before = group.members.get(replaced or member.member_id)
    subscriptions = group.subscriptions
    if before is None or has_changed:
        subscriptions = _moved(group.subscriptions, before, updated)
    topics, regexes, epoch = group.topics, group.regexes, group.epoch
    if has_changed or group.topics_seen != around.topics_seen:
        topics, regexes = _looked_up(group, subscriptions, around, changes)
        # If a regular expression matches only topics that the group already has, no subscription changes.
        if has_changed or topics != group.topics or regexes != group.regexes:
            epoch = _next_epoch(group, changes)
    target_epoch = group.assignment_epoch
    target = group.targets.get(replaced or member.member_id, NOTHING)
    needs_assignment = False
    if epoch > group.assignment_epoch:
        members = dict(group.members)
        targets: Mapping[str, Assignment] = group.targets
        if replaced is not None:
            del members[replaced]
            targets = {**targets, updated.member_id: target}
        members[updated.member_id] = updated
        if group.assignment_epoch and around.is_large(len(members), sum(one.partitions for one in topics.values())):
            needs_assignment = True
        else:
            plan = planned(members, targets, topics, regexes, epoch=epoch, known=around.assignors)
            made = plan.run()
            changes += target_changes(group_id, targets, made, epoch)
            target_epoch, target = epoch, made.get(updated.member_id, NOTHING)
    subscribed = None
    if updated.subscription != member.subscription:
        subscribed = {topics[name].topic_id for name in names_of(updated.subscription, regexes) if name in topics}
    reconciled = reconcile(updated, target_epoch, target, group.owners, owned, subscribed=subscribed, replaced=replaced)
    if reconciled != updated:
        changes.append(current_record(group_id, reconciled))
    return Result(changes, reconciled, is_full or reconciled.assigned != member.assigned, replaced, needs_assignment)


def replacement(group: ConsumerGroup, member: ConsumerMember, replaced: str | None) -> list[Change]:
    """Return the records with which `member` replaces the static member `replaced`; none if `replaced` is None."""
    if replaced is None:
        return []
    return [
        *removal(group.group_id, replaced),
        subscription_record(group.group_id, member),
        target_record(group.group_id, member.member_id, group.targets.get(replaced, NOTHING)),
        current_record(group.group_id, member),
    ]


def leave(group: ConsumerGroup, beat: Heartbeat, around: Surroundings) -> Result:
    """Return the result of a heartbeat with epoch -1 or -2, with which a member leaves. Raises RefusedError."""
    member = known(group, beat.member_id, beat.instance_id)
    if beat.member_epoch == LEAVING_FOR_NOW:
        left = member._replace(epoch=LEAVING_FOR_NOW, pending=NOTHING)
        return Result([current_record(group.group_id, left)], left)
    return Result(removed(group, [member], around), member._replace(epoch=LEAVING))


def removed(group: ConsumerGroup, members: Iterable[ConsumerMember], around: Surroundings) -> list[Change]:
    """Return the records that remove members that have left or whose sessions have ended."""
    changes: list[Change] = []
    subscriptions = group.subscriptions
    for member in members:
        changes += removal(group.group_id, member.member_id)
        subscriptions = _moved(subscriptions, member, None)
    _looked_up(group, subscriptions, around, changes)
    _next_epoch(group, changes)
    return changes


def plan_of(group: ConsumerGroup, around: Surroundings) -> Planned:
    """Return the computation of the target assignment that the group now needs. It works on copies, so another thread can run
    it.
    """
    return planned(group.members, dict(group.targets), group.topics, group.regexes, epoch=group.epoch, known=around.assignors)


# --- members


def known(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the member that a request names. Raises RefusedError (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID)."""
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of the group")
        return member
    current = group.static_members.get(instance_id)
    if current is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member of the group has the instance id {instance_id!r}")
    if current != member_id:
        raise RefusedError(ErrorCode.FENCED_INSTANCE_ID, f"the instance id {instance_id!r} now belongs to the member {current!r}")
    return group.members[current]


def _member(group: ConsumerGroup, beat: Heartbeat) -> tuple[ConsumerMember, str | None]:
    """Return the member before the heartbeat (a new member if it joins), and the id of the static member that it replaces."""
    if beat.member_epoch != JOINING:
        member = known(group, beat.member_id, beat.instance_id)
        _check_epoch(member, beat)
        return member, None
    member, replaced = joining_member(group, beat.member_id, beat.instance_id)
    if replaced is not None and group.members[replaced].epoch != LEAVING_FOR_NOW and member.classic is None:
        raise RefusedError(
            ErrorCode.UNRELEASED_INSTANCE_ID, f"the instance id {beat.instance_id!r} still belongs to the member {replaced!r}"
        )
    return member, replaced


def joining_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[ConsumerMember, str | None]:
    """Return the joining member's state before its request, and the id of the static member that it replaces, or None."""
    current = None if instance_id is None else group.static_members.get(instance_id)
    if current is None:
        return group.members.get(member_id) or ConsumerMember(member_id), None
    return group.members[current]._replace(member_id=member_id, epoch=0, previous_epoch=0), current


def _check_epoch(member: ConsumerMember, beat: Heartbeat) -> None:
    if beat.member_epoch == member.epoch:
        return
    is_lost = beat.member_epoch < member.epoch and beat.member_epoch == member.previous_epoch
    if not is_lost or beat.owned is None or not _are_among(beat.owned, member.assigned):
        reason = f"the member's epoch is {member.epoch}, not {beat.member_epoch}: it must give up its partitions and rejoin"
        raise RefusedError(ErrorCode.FENCED_MEMBER_EPOCH, reason)


def _are_among(owned: Iterable[tuple[uuid.UUID, Iterable[int]]], assigned: Assignment) -> bool:
    return all(topic_id in assigned and assigned[topic_id].issuperset(partitions) for topic_id, partitions in owned)


def _updated(member: ConsumerMember, beat: Heartbeat) -> ConsumerMember:
    named, regex = member.subscription
    if beat.names is not None:
        named = tuple(sorted(set(beat.names)))
    if beat.regex is not None:
        regex = beat.regex or None
    return member._replace(
        instance_id=_given(beat.instance_id, member.instance_id),
        rack_id=_given(beat.rack_id, member.rack_id),
        rebalance_timeout_ms=member.rebalance_timeout_ms if beat.rebalance_timeout_ms == -1 else beat.rebalance_timeout_ms,
        server_assignor=_given(beat.server_assignor, member.server_assignor),
        subscription=Subscription(named, regex),
        client_id=beat.client_id,
        client_host=beat.client_host,
        classic=None,
    )


def _given(value: str | None, before: str | None) -> str | None:
    return before if value is None else value


# --- topics


def _moved(
    subscriptions: Counter[Subscription], before: ConsumerMember | None, after: ConsumerMember | None
) -> Counter[Subscription]:
    moved = Counter(subscriptions)
    if before is not None:
        moved[before.subscription] -= 1
    if after is not None:
        moved[after.subscription] += 1
    return +moved


def _looked_up(
    group: ConsumerGroup, subscriptions: Iterable[Subscription], around: Surroundings, changes: list[Change]
) -> tuple[dict[str, TopicFacts], dict[str, frozenset[str]]]:
    """Return the existing topics of the subscriptions, and the topics that match each regular expression. Add records for their
    changes to `changes`.
    """
    wanted = {one.regex for one in subscriptions if one.regex is not None}
    is_seen = group.topics_seen == around.topics_seen
    regexes = {
        regex: group.regexes[regex] if is_seen and regex in group.regexes else around.matching(regex) for regex in sorted(wanted)
    }
    gone = sorted(group.regexes.keys() - regexes.keys())
    changes += [Change(records.ConsumerGroupRegularExpressionKey(group.group_id, regex), None) for regex in gone]
    for regex, found in regexes.items():
        if found != group.regexes.get(regex):
            key = records.ConsumerGroupRegularExpressionKey(group.group_id, regex)
            changes.append(Change(key, records.ConsumerGroupRegularExpressionValue(sorted(found), version=0, timestamp=0)))
    names = set[str]().union(*(names_of(one, regexes) for one in subscriptions))
    described = ((name, around.facts(name)) for name in sorted(names))
    facts = {name: one for name, one in described if one is not None}
    if facts != group.topics:
        of_topics = records.ConsumerGroupPartitionMetadataKey(group.group_id)
        topics = [records.TopicMetadata(one.topic_id, name, one.partitions) for name, one in facts.items()]
        changes.append(Change(of_topics, records.ConsumerGroupPartitionMetadataValue(topics)))
    return facts, regexes


def _next_epoch(group: ConsumerGroup, changes: list[Change]) -> int:
    epoch = group.epoch + 1
    key = records.ConsumerGroupMetadataKey(group.group_id)
    changes.append(Change(key, records.ConsumerGroupMetadataValue(epoch)))
    return epoch
