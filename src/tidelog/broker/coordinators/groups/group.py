"""The data of a consumer group and its members, and the members' requests. `TRANSITIONS` lists the state changes.

| state | members | waits for |
|---|---|---|
| EMPTY | none; the group may have committed offsets | a member to join |
| PREPARING_REBALANCE | are joining or rejoining | all known members to rejoin, or the rebalance timeout |
| COMPLETING_REBALANCE | know the generation, not yet their assignment | the leader's assignment |
| STABLE | have their assignment | |
| DEAD | none; final | |
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from tidelog.broker.loop.delays import Delay
from tidelog.broker.loop.timers import Timer
from tidelog.groups.group_offsets import GroupOffsets
from tidelog.transitions import Transitions, checked
from tidelog.wire.error_codes import ErrorCode

NO_GENERATION = -1

UNKNOWN_MEMBER = ""
"""The member id in requests of a member that has no id yet."""


class GroupState(enum.Enum):
    """A group's state; the value is Kafka's name for it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final[Transitions[GroupState | None]] = {
    None: {
        GroupState.EMPTY: "a member joins, or a first offset is committed; it is loaded without members",
        GroupState.STABLE: "it is loaded with members",
    },
    GroupState.EMPTY: {
        GroupState.PREPARING_REBALANCE: "a member joins",
        GroupState.STABLE: "it was a consumer group, and only classic members are left",
        GroupState.DEAD: "it or its last offset is deleted; its partition of `__consumer_offsets` moves away",
    },
    GroupState.PREPARING_REBALANCE: {
        GroupState.COMPLETING_REBALANCE: "all members have rejoined, or the rebalance timeout has passed",
        GroupState.EMPTY: "the same, and no member is left; a member of the new protocol joins",
        GroupState.DEAD: "its partition of `__consumer_offsets` moves away",
    },
    GroupState.COMPLETING_REBALANCE: {
        GroupState.STABLE: "the leader's assignment is stored",
        GroupState.PREPARING_REBALANCE: "a member joins, leaves or times out; no assignment arrives, or it cannot be stored",
        GroupState.EMPTY: "a member of the new protocol joins: the others continue in the consumer group",
        GroupState.DEAD: "its partition of `__consumer_offsets` moves away",
    },
    GroupState.STABLE: {
        GroupState.PREPARING_REBALANCE: "a member joins, leaves, times out or changes its metadata",
        GroupState.EMPTY: "a member of the new protocol joins: the others continue in the consumer group",
        GroupState.DEAD: "its partition of `__consumer_offsets` moves away",
    },
    GroupState.DEAD: {},
}


class JoinResult(NamedTuple):
    """The result of a JoinGroup. Only the leader gets `members`, each with its metadata for `protocol_name`."""

    member_id: str
    error_code: ErrorCode = ErrorCode.NONE
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = UNKNOWN_MEMBER
    members: tuple[Member, ...] = ()
    skip_assignment: bool = False


class SyncResult(NamedTuple):
    """The result of a SyncGroup: the member's assignment."""

    error_code: ErrorCode = ErrorCode.NONE
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class Member:
    """A member of a group. Timeouts in ms; `protocols` maps names to metadata, in the member's order of preference."""

    __slots__ = (
        "answer_join",
        "answer_sync",
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "delay",
        "group_instance_id",
        "is_new",
        "looks_at_ms",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        *,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: dict[str, bytes],
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = b""
        self.is_new = False
        """Whether the member waits for its first generation. It cannot send heartbeats while it waits, so a separate timeout
        applies to its join.
        """
        self.answer_join: Callable[[JoinResult], None] | None = None
        """The function that answers the member's pending JoinGroup; None if no JoinGroup is pending."""
        self.answer_sync: Callable[[SyncResult], None] | None = None
        """The function that answers the member's pending SyncGroup; None if no SyncGroup is pending."""
        self.deadline_ms = 0
        """The time when the member's session ends, in ms on the clock of `Core.delays`."""
        self.delay: Delay | None = None
        """The timer that checks whether the session has ended. It fires at `looks_at_ms`, and is not moved each time the
        deadline moves.
        """
        self.looks_at_ms = 0

    @property
    def is_static(self) -> bool:
        """Whether the member has a group instance id (KIP-345)."""
        return self.group_instance_id is not None


class Session:
    """The timers of a member of the new protocol: see `consumer_sessions`. Times in ms, on the clock of `Core.delays`."""

    __slots__ = ("deadline_ms", "delay", "looks_at_ms", "rebalance")

    def __init__(self) -> None:
        self.deadline_ms = 0
        self.looks_at_ms = 0
        self.delay: Delay | None = None
        self.rebalance: Delay | None = None


class Group:
    """A consumer group. Use only on the event loop's thread."""

    __slots__ = (
        "_state",
        "awaiting_join",
        "consumer",
        "generation_id",
        "group_id",
        "is_joined_by_more",
        "leader_id",
        "members",
        "offsets",
        "pending_members",
        "pending_syncs",
        "protocol_counts",
        "protocol_name",
        "protocol_type",
        "reason",
        "rebalance",
        "sessions",
        "state_timestamp_ms",
        "static_members",
        "sync_timeout",
        "waits_for_more",
    )

    def __init__(self, group_id: str, now_ms: int, state: GroupState = GroupState.EMPTY) -> None:
        self.group_id = group_id
        self._state: GroupState = checked(TRANSITIONS, None, state, "a group")  # type: ignore[assignment]
        self.state_timestamp_ms = now_ms
        """When the group entered its state (epoch ms)."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by group instance id."""
        self.pending_members: dict[str, Delay] = {}
        """Member ids that have been assigned but have not joined yet (KIP-394), each with its expiry timer."""
        self.rebalance: Timer | None = None
        """The timer that ends the joining phase."""
        self.reason = ""
        """The reason for the group's current rebalance, for the log."""
        self.waits_for_more = False
        """Whether the group was empty before this rebalance and now waits for more members, even if all known members have
        joined.
        """
        self.is_joined_by_more = False
        """Whether more members have joined during that wait."""
        self.awaiting_join = 0
        """The number of members with a pending join."""
        self.pending_syncs: set[str] = set()
        """Ids of members that know the generation but have not sent SyncGroup yet."""
        self.sync_timeout: Delay | None = None
        """The timer after which members that have not sent SyncGroup are removed."""
        self.protocol_counts: dict[str, int] | None = None
        """The number of members that support each protocol; None until `membership` needs the numbers."""
        self.offsets = GroupOffsets()
        self.consumer: ConsumerGroup | None = None
        """The group's data if it uses the new protocol (KIP-848), otherwise None. If set, it has all of the group's members,
        and `state` is EMPTY.
        """
        self.sessions: dict[str, Session] = {}
        """The timers of `consumer`'s members, by member id."""

    @property
    def is_empty(self) -> bool:
        """Whether the group exists and has no members of either protocol."""
        return self._state is GroupState.EMPTY and (self.consumer is None or not self.consumer.members)

    @property
    def state_name(self) -> str:
        """Kafka's name for the group's state, in either protocol."""
        return str((self._state if self.consumer is None else self.consumer.state).value)

    @property
    def member_count(self) -> int:
        """The number of members of either protocol."""
        return len(self.members) if self.consumer is None else len(self.consumer.members)

    @property
    def state(self) -> GroupState:
        """The current state; only `move` changes it."""
        return self._state

    def move(self, state: GroupState, now_ms: int) -> None:
        """Change the group's state at `now_ms` (epoch ms). Raises IllegalStateError if `TRANSITIONS` does not allow the
        change.
        """
        checked(TRANSITIONS, self._state, state, f"group {self.group_id!r}")
        self._state = state
        self.state_timestamp_ms = now_ms


class Joining(NamedTuple):
    """A JoinGroup request. Timeouts in ms; `protocols` maps names to metadata, in the member's order of preference."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: dict[str, bytes]
    reason: str
    is_member_id_required: bool
    """Whether a new member first gets an id with which it must rejoin (KIP-394)."""
    can_skip_assignment: bool
    """Whether a returning leader understands that it need not send assignments (KIP-814)."""
    answer: Callable[[JoinResult], None]
    """The function that sends the response if the request has to wait."""
    may_describe: Callable[[str], bool] | None = None
    """Returns whether the client may see a topic; None if it may see all topics."""


class Syncing(NamedTuple):
    """A SyncGroup request. Only the leader sends `assignments`, by member id."""

    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]
    answer: Callable[[SyncResult], None]


class Leaving(NamedTuple):
    """A member to remove, identified by its member id, its group instance id, or both."""

    member_id: str
    group_instance_id: str | None
    reason: str
