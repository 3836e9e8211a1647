"""A consumer group and its members, as data. State changes: `TRANSITIONS`.

| state | members | what it waits for |
|---|---|---|
| EMPTY | none; it may have offsets | a member to join |
| PREPARING_REBALANCE | join, or join again | the known members, or their rebalance timeout |
| COMPLETING_REBALANCE | know the generation, not what they are to read | the leader's assignment |
| STABLE | read | |
| DEAD | none, and never again | |
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.groups.group_offsets import GroupOffsets
from tidelog.transitions import Transitions, checked
from tidelog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.delays import Delay
    from tidelog.broker.timers import Timer

NO_GENERATION = -1

UNKNOWN_MEMBER = ""
"""The id of a member that has none yet."""


class GroupState(enum.Enum):
    """A group's state; the value is Kafka's word for it."""

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
        GroupState.DEAD: "it or its last offset is deleted; its partition of `__consumer_offsets` moves away",
    },
    GroupState.PREPARING_REBALANCE: {
        GroupState.COMPLETING_REBALANCE: "all members have rejoined, or the rebalance timeout has passed",
        GroupState.EMPTY: "the same, and no member is left",
        GroupState.DEAD: "its partition of `__consumer_offsets` moves away",
    },
    GroupState.COMPLETING_REBALANCE: {
        GroupState.STABLE: "the leader's assignment is stored",
        GroupState.PREPARING_REBALANCE: "a member joins, leaves or times out; no assignment arrives, or it cannot be stored",
        GroupState.DEAD: "its partition of `__consumer_offsets` moves away",
    },
    GroupState.STABLE: {
        GroupState.PREPARING_REBALANCE: "a member joins, leaves, times out or changes its metadata",
        GroupState.DEAD: "its partition of `__consumer_offsets` moves away",
    },
    GroupState.DEAD: {},
}


class JoinResult(NamedTuple):
    """The answer to a JoinGroup. `members` are told to the leader only, each with its metadata for `protocol_name`."""

    member_id: str
    error_code: ErrorCode = ErrorCode.NONE
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = UNKNOWN_MEMBER
    members: tuple[Member, ...] = ()
    skip_assignment: bool = False


class SyncResult(NamedTuple):
    """The answer to a SyncGroup: what the member is to read."""

    error_code: ErrorCode = ErrorCode.NONE
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class Member:
    """A member of a group. Timeouts in ms; `protocols` by name, in the order of the member's liking, with its metadata."""

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
        """Whether it waits for its first generation: then it cannot send heartbeats, and its join itself may time out."""
        self.answer_join: Callable[[JoinResult], None] | None = None
        """Answers its JoinGroup, which waits; None if it has none."""
        self.answer_sync: Callable[[SyncResult], None] | None = None
        """The same for SyncGroup."""
        self.deadline_ms = 0
        """When its session ends, by `node.delays`."""
        self.delay: Delay | None = None
        """Timer that checks whether it has ended: not before `looks_at_ms`, however often the deadline moves."""
        self.looks_at_ms = 0

    @property
    def is_static(self) -> bool:
        """Whether it has an id of its own that outlives it (KIP-345)."""
        return self.group_instance_id is not None


class Group:
    """A group. Belongs to the loop's thread."""

    __slots__ = (
        "_state",
        "awaiting_join",
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
        "state_timestamp_ms",
        "static_members",
        "sync_timeout",
        "waits_for_more",
    )

    def __init__(self, group_id: str, now_ms: int, state: GroupState = GroupState.EMPTY) -> None:
        self.group_id = group_id
        self._state: GroupState = checked(TRANSITIONS, None, state, "a group")  # type: ignore[assignment]
        self.state_timestamp_ms = now_ms
        """When it came into its state (epoch ms)."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by group instance id."""
        self.pending_members: dict[str, Delay] = {}
        """Ids that were handed out, and have not joined yet (KIP-394), with what forgets them."""
        self.rebalance: Timer | None = None
        """Timer that ends a rebalance that takes too long."""
        self.reason = ""
        """Why it rebalances, for the log."""
        self.waits_for_more = False
        """Whether the rebalance is an empty group's first, which is not over when all have joined: more may come."""
        self.is_joined_by_more = False
        """Whether more came during such a wait."""
        self.awaiting_join = 0
        """How many members have a join that waits."""
        self.pending_syncs: set[str] = set()
        """Members that know the generation and have not asked for their assignment yet."""
        self.sync_timeout: Delay | None = None
        """Timer that removes them."""
        self.protocol_counts: dict[str, int] | None = None
        """The number of members with each protocol; None until it is needed (`membership`)."""
        self.offsets = GroupOffsets()

    @property
    def state(self) -> GroupState:
        """Where it stands: `move` alone changes that."""
        return self._state

    def move(self, state: GroupState, now_ms: int) -> None:
        """Bring the group into another state, at `now_ms` (epoch ms). Raises IllegalStateError: see `TRANSITIONS`."""
        checked(TRANSITIONS, self._state, state, f"group {self.group_id!r}")
        self._state = state
        self.state_timestamp_ms = now_ms
