"""The requests of members of the classic protocol, as the coordinator sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.broker.coordinators.groups.group import JoinResult, SyncResult
from tidelog.wire.coordinator.consumer_protocol import ConsumerProtocolSubscription


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
    subscription: ConsumerProtocolSubscription | None = None
    """The subscription in the first protocol's metadata, if it has already been read."""
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
