"""The brokers that read the metadata log, as DescribeQuorum lists them (KIP-595, KIP-836)."""

from __future__ import annotations

import uuid

from tidelog.wire.messages.describe_quorum import ReplicaState

SESSION_MS = 300_000
"""How long a broker is listed after its last fetch, in ms, as in Kafka's controllers."""


class Observers:
    """The last fetch of each broker. Not thread-safe."""

    def __init__(self) -> None:
        self._states: dict[int, ReplicaState] = {}

    def fetched(self, broker_id: int, directory_id: uuid.UUID, offset: int, log_end: int, now_ms: int) -> None:
        """Record a fetch from `offset` at the time `now_ms`, when the metadata log ended at `log_end`."""
        before = self._states.get(broker_id)
        if offset >= log_end:
            caught_up_ms = now_ms
        else:
            caught_up_ms = -1 if before is None else before.last_caught_up_timestamp
        self._states[broker_id] = ReplicaState(broker_id, directory_id, offset, now_ms, caught_up_ms)

    def states(self, now_ms: int) -> list[ReplicaState]:
        """Return the brokers that have fetched in the last `SESSION_MS`, by id."""
        return [one for _, one in sorted(self._states.items()) if now_ms - one.last_fetch_timestamp < SESSION_MS]
