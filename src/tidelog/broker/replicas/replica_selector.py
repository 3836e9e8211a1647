"""Chooses the replica that a consumer should read from: one in its own rack, if possible (KIP-392).

| | |
|---|---|
| ``replica.selector.class`` is not Kafka's RackAwareReplicaSelector | the leader |
| the consumer sends no rack (``client.rack``) | the leader |
| no replica in its rack can serve it | the leader |
| the leader is in its rack | the leader |
| otherwise | the replica in its rack with the largest log end; among equals, the one caught up last, then the largest id |

A replica can serve a consumer if it is in the ISR, reachable by the consumer, and has the requested offset. Consumers of an
out-of-sync replica might never reach the end.

A leader calls `preferred_replica` for a consumer's fetch (version 11 and later) before it reads records. If there is a
preferred replica, the response names it and contains no records. A follower serves records up to its own high watermark. See
Kafka's RackAwareReplicaSelector and ReplicaManager.findPreferredReadReplica. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class ReplicaView(NamedTuple):
    """A follower as its leader sees it. `rack` is the rack of the follower's broker."""

    broker_id: int
    rack: str | None
    log_start_offset: int
    log_end_offset: int
    caught_up_s: float
    """When the follower was last caught up with the leader (monotonic clock)."""


def preferred_replica(
    client_rack: str | None, leader_rack: str | None, in_sync: Iterable[ReplicaView], fetch_offset: int
) -> int | None:
    """Return the broker that a consumer should read from, or None if that is the leader.

    `in_sync` are the live followers in the ISR, as the leader sees them.
    """
    if not client_rack or client_rack == leader_rack:
        return None
    found = [one for one in in_sync if one.rack == client_rack and one.log_start_offset <= fetch_offset <= one.log_end_offset]
    if not found:
        return None
    return max(found, key=lambda one: (one.log_end_offset, one.caught_up_s, one.broker_id)).broker_id
