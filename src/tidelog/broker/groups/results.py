"""What joining and syncing come to, before an API's version gives it its form."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.broker.groups.group import NO_GENERATION, Member
from tidelog.wire.error_codes import ErrorCode

UNKNOWN_MEMBER = ""
"""The member id of who has none yet."""


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


class Joining(NamedTuple):
    """A JoinGroup. Timeouts in ms; `protocols` by name, with the member's metadata, the best-liked first."""

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
    """Whether a new member gets its id, and joins with that (KIP-394)."""
    can_skip_assignment: bool
    """Whether a leader that is back knows what to do with assignments that stay (KIP-814)."""
    answer: Callable[[JoinResult], None]
    """Answers it, if it has to wait."""


class Syncing(NamedTuple):
    """A SyncGroup; `assignments` by member id, from the leader."""

    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]
    answer: Callable[[SyncResult], None]


class Leaving(NamedTuple):
    """A member that is to leave: by its id, by its instance's, or both."""

    member_id: str
    group_instance_id: str | None
    reason: str
