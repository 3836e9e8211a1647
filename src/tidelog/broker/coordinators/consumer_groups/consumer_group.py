"""The data of a consumer group (KIP-848). Only Kafka's records change it (`ConsumerGroup.apply`).

| epoch | grows when |
|---|---|
| the group's | a member joins, leaves or changes its subscription, or a subscribed topic changes |
| the target assignment's | the assignor has run: set to the group's epoch at that time |
| a member's | the member has revoked the partitions that it must give up: set to the target assignment's epoch |

| a member's state | it |
|---|---|
| STABLE | has its target assignment, or the part of it that the last heartbeat assigned |
| UNREVOKED_PARTITIONS | still has to report that it has revoked partitions, within its rebalance timeout |
| UNRELEASED_PARTITIONS | has nothing left to revoke, and waits for partitions that others have not released |
| UNKNOWN | has a state of a later Kafka release |

Once a partition is assigned to a member, the member owns it until the member's heartbeats no longer list it. So a partition has
at most one owner.
"""

from __future__ import annotations

import enum
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from tidelog.errors import TidelogError
from tidelog.transitions import Transitions, checked
from tidelog.wire.codec import Message
from tidelog.wire.coordinator import consumer_group as records
from tidelog.wire.error_codes import ErrorCode

Assignment: TypeAlias = "Mapping[uuid.UUID, frozenset[int]]"
"""Partitions by topic id."""

NOTHING: Final[Assignment] = {}

JOINING = 0
"""The member epoch in the heartbeat of a member that joins."""
LEAVING = -1
"""The member epoch of a member that leaves."""
LEAVING_FOR_NOW = -2
"""The member epoch of a static member that leaves and will return."""


def united(one: Assignment, other: Assignment) -> Assignment:
    both = dict(one)
    for topic_id, partitions in other.items():
        both[topic_id] = both.get(topic_id, frozenset()) | partitions
    return both


class RefusedError(TidelogError):
    """A member's request is refused with an error code and a reason, which the client logs."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class MemberState(enum.Enum):
    """A member's state; the value is Kafka's name for it."""

    STABLE = "STABLE"
    UNREVOKED_PARTITIONS = "UNREVOKED_PARTITIONS"
    UNRELEASED_PARTITIONS = "UNRELEASED_PARTITIONS"
    UNKNOWN = "UNKNOWN"


NUMBERS: Final = {
    MemberState.STABLE: 0,
    MemberState.UNREVOKED_PARTITIONS: 1,
    MemberState.UNRELEASED_PARTITIONS: 2,
    MemberState.UNKNOWN: 127,
}
_STATES: Final = {number: state for state, number in NUMBERS.items()}

_FROM_ANY = {
    MemberState.STABLE: "its target assignment takes no partition from it, and the added partitions are free",
    MemberState.UNREVOKED_PARTITIONS: "a target assignment takes partitions from it that it still reports",
    MemberState.UNRELEASED_PARTITIONS: "it has nothing to revoke, and others still have partitions of its target assignment",
    None: "it leaves, its session ends, or it revokes too late",
}
TRANSITIONS: Transitions[MemberState | None] = {
    None: {
        MemberState.STABLE: "it joins, without partitions",
        MemberState.UNKNOWN: "it is loaded, and a later release of Kafka has written a state that is not known here",
    },
    MemberState.STABLE: _FROM_ANY,
    MemberState.UNREVOKED_PARTITIONS: _FROM_ANY,
    MemberState.UNRELEASED_PARTITIONS: _FROM_ANY,
    MemberState.UNKNOWN: _FROM_ANY,
}


class GroupState(enum.Enum):
    """A group's state, which follows from its members; the value is Kafka's name for it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class Change(NamedTuple):
    """A record of ``__consumer_offsets``; a value of None deletes the key."""

    key: Message
    value: Message | None


class TopicFacts(NamedTuple):
    """The facts about a topic that an assignor uses."""

    topic_id: uuid.UUID
    partitions: int


class Subscription(NamedTuple):
    """Topics by name, sorted, and by a regular expression (RE2's syntax)."""

    names: tuple[str, ...] = ()
    regex: str | None = None


class ConsumerMember(NamedTuple):
    """A member. Immutable: a record replaces it."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscription: Subscription = Subscription()
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: records.ClassicMemberMetadata | None = None
    """The member's JoinGroup data if it uses the classic protocol, otherwise None."""
    state: MemberState = MemberState.STABLE
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = NOTHING
    pending: Assignment = NOTHING
    """The partitions that the member must revoke."""

    def reconciled(self, state: MemberState, epoch: int, assigned: Assignment, pending: Assignment = NOTHING) -> ConsumerMember:
        """Return the member in the given state, with the given epoch and partitions. Raises IllegalStateError if `TRANSITIONS`
        does not allow the change.
        """
        checked(TRANSITIONS, self.state, state, f"member {self.member_id!r}")
        return self._replace(state=state, epoch=epoch, previous_epoch=self.epoch, assigned=assigned, pending=pending)

    @property
    def said(self) -> tuple[int, str | None, str, str]:
        """The values that the member's heartbeats repeat while nothing changes: epoch, instance id, client id and host."""
        return self.epoch, self.instance_id, self.client_id, self.client_host

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has the whole target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch


class ConsumerGroup:
    """A consumer group. Use only on the event loop's thread."""

    __slots__ = (
        "assignment_epoch",
        "epoch",
        "group_id",
        "members",
        "owners",
        "regexes",
        "static_members",
        "subscriptions",
        "targets",
        "topics",
        "topics_seen",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by group instance id."""
        self.subscriptions: Counter[Subscription] = Counter()
        """The number of members with each subscription."""
        self.targets: dict[str, Assignment] = {}
        """The target assignment, by member id."""
        self.owners: dict[tuple[uuid.UUID, int], str] = {}
        """The owner of each partition, including partitions that the owner must revoke."""
        self.topics: dict[str, TopicFacts] = {}
        """The subscribed topics that exist, as of the group's epoch."""
        self.regexes: dict[str, frozenset[str]] = {}
        """The topics that match each regular expression."""
        self.topics_seen: object = None
        """Identifies the state of the broker's topics with which `topics` and `regexes` were last compared."""

    @property
    def state(self) -> GroupState:
        """The group's state, derived as in Kafka."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def is_subscribed(self, topic: str) -> bool:
        return any(topic in names_of(one, self.regexes) for one in self.subscriptions)

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply records that have been written to the log, in log order."""
        for key, value in changes:
            _APPLY[type(key)](self, key, value)

    def tombstones(self) -> list[Change]:
        group_id = self.group_id
        return [
            *(change for member_id in self.members for change in removal(group_id, member_id)),
            *(Change(records.ConsumerGroupRegularExpressionKey(group_id, regex), None) for regex in self.regexes),
            Change(records.ConsumerGroupTargetAssignmentMetadataKey(group_id), None),
            Change(records.ConsumerGroupPartitionMetadataKey(group_id), None),
            Change(records.ConsumerGroupMetadataKey(group_id), None),
        ]

    # --- records

    def _set_epoch(self, key: Any, value: records.ConsumerGroupMetadataValue | None) -> None:
        self.epoch = 0 if value is None else value.epoch

    def _set_topics(self, key: Any, value: records.ConsumerGroupPartitionMetadataValue | None) -> None:
        topics = () if value is None else value.topics
        self.topics = {one.topic_name: TopicFacts(one.topic_id, one.num_partitions) for one in topics}

    def _set_member(
        self, key: records.ConsumerGroupMemberMetadataKey, value: records.ConsumerGroupMemberMetadataValue | None
    ) -> None:
        before = self.members.get(key.member_id)
        if before is not None:
            self._uncount(before)
        if value is None:
            if before is not None:
                self._release(before)
                del self.members[key.member_id]
            return
        member = (before or ConsumerMember(key.member_id))._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscription=Subscription(tuple(value.subscribed_topic_names), value.subscribed_topic_regex or None),
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )
        self.members[key.member_id] = member
        self.subscriptions[member.subscription] += 1
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def _uncount(self, member: ConsumerMember) -> None:
        self.subscriptions[member.subscription] -= 1
        if not self.subscriptions[member.subscription]:
            del self.subscriptions[member.subscription]
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def _set_assignment_epoch(self, key: Any, value: records.ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        self.assignment_epoch = 0 if value is None else value.assignment_epoch

    def _set_target(
        self,
        key: records.ConsumerGroupTargetAssignmentMemberKey,
        value: records.ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = _assignment(value.topic_partitions)

    def _set_current(
        self,
        key: records.ConsumerGroupCurrentMemberAssignmentKey,
        value: records.ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        member = self.members.get(key.member_id)
        if member is None:
            return
        self._release(member)
        if value is None:
            member = member._replace(
                state=MemberState.STABLE, epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING, pending=NOTHING
            )
        else:
            member = member._replace(
                state=_STATES.get(value.state, MemberState.UNKNOWN),
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned=_assignment(value.assigned_partitions),
                pending=_assignment(value.partitions_pending_revocation),
            )
        self.members[key.member_id] = member
        for held in (member.assigned, member.pending):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    self.owners[topic_id, partition] = key.member_id

    def _release(self, member: ConsumerMember) -> None:
        for held in (member.assigned, member.pending):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    if self.owners.get((topic_id, partition)) == member.member_id:
                        del self.owners[topic_id, partition]

    def _set_regex(
        self, key: records.ConsumerGroupRegularExpressionKey, value: records.ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = frozenset(value.topics)


_APPLY: Final[Mapping[type[Message], Callable[[ConsumerGroup, Any, Any], None]]] = {
    records.ConsumerGroupMetadataKey: ConsumerGroup._set_epoch,
    records.ConsumerGroupPartitionMetadataKey: ConsumerGroup._set_topics,
    records.ConsumerGroupMemberMetadataKey: ConsumerGroup._set_member,
    records.ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._set_assignment_epoch,
    records.ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._set_target,
    records.ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._set_current,
    records.ConsumerGroupRegularExpressionKey: ConsumerGroup._set_regex,
}


def names_of(subscription: Subscription, regexes: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the names of a subscription's topics, whether or not they exist."""
    names = frozenset(subscription.names)
    return names if subscription.regex is None else names | regexes.get(subscription.regex, frozenset())


def removal(group_id: str, member_id: str) -> list[Change]:
    return [
        Change(records.ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        Change(records.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        Change(records.ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def subscription_record(group_id: str, member: ConsumerMember) -> Change:
    return Change(
        records.ConsumerGroupMemberMetadataKey(group_id, member.member_id),
        records.ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.subscription.names),
            subscribed_topic_regex=member.subscription.regex or "",
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=member.classic,
        ),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> Change:
    partitions = [records.TopicPartition(topic_id, sorted(held)) for topic_id, held in target.items()]
    return Change(
        records.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id),
        records.ConsumerGroupTargetAssignmentMemberValue(partitions),
    )


def current_record(group_id: str, member: ConsumerMember) -> Change:
    """Return the record of a member's epoch, state and partitions."""
    return Change(
        records.ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id),
        records.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=NUMBERS[member.state],
            assigned_partitions=_held(member.assigned),
            partitions_pending_revocation=_held(member.pending),
        ),
    )


def _held(assignment: Assignment) -> list[records.TopicPartitions]:
    return [records.TopicPartitions(topic_id, sorted(partitions)) for topic_id, partitions in assignment.items()]


def _assignment(topics: Iterable[records.TopicPartition | records.TopicPartitions]) -> Assignment:
    return {one.topic_id: frozenset(one.partitions) for one in topics if one.partitions} or NOTHING
