"""From which replica a consumer should read: one in its own rack, if there is one (KIP-392).

| | |
|---|---|
| ``replica.selector.class`` is not Kafka's RackAwareReplicaSelector | the leader: consumers are sent nowhere |
| the consumer tells no rack (``client.rack``) | the leader |
| no replica in its rack that can serve it | the leader |
| the leader is in its rack | the leader |
| else | the one in its rack that has most; of several, the one caught up last, then the one with the largest id |

A replica can serve a consumer if it is in the ISR, can be reached by the consumer, and has the offset that is asked for. One
that is out of sync would keep its consumers from ever reaching the end.

A leader calls `preferred_replica` for a consumer's fetch (version 11 and later) before it reads; if there is one, the answer
names it, and has no records. A follower that is asked answers up to its own high watermark. Kafka's RackAwareReplicaSelector
and ReplicaManager.findPreferredReadReplica. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicaView(NamedTuple):
    """A follower as its leader sees it. `rack` is that of its broker."""

    broker_id: int
    rack: str | None
    log_start_offset: int
    log_end_offset: int
    caught_up_s: float
    """When it last had all that the leader had (monotonic clock)."""


def preferred_replica(
    client_rack: str | None, leader_rack: str | None, in_sync: Iterable[ReplicaView], fetch_offset: int
) -> int | None:
    """Return the broker that a consumer should read from instead, None if that is the leader.

    `in_sync` are the followers in the ISR that are alive, each with what the leader knows of it.
    """
    if not client_rack or client_rack == leader_rack:
        return None
    found = [one for one in in_sync if one.rack == client_rack and one.log_start_offset <= fetch_offset <= one.log_end_offset]
    if not found:
        return None
    return max(found, key=lambda one: (one.log_end_offset, one.caught_up_s, one.broker_id)).broker_id
