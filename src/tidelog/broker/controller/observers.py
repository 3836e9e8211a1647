"""The brokers that read the metadata log, as DescribeQuorum lists them (KIP-595, KIP-836)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.wire.messages.describe_quorum import ReplicaState

if TYPE_CHECKING:
    import uuid

SESSION_MS = 300_000
"""How long a broker is listed after its last fetch: what Kafka's controllers take."""


@dataclass(slots=True)
class _Observer:
    directory_id: uuid.UUID
    end_offset: int
    fetched_ms: int
    caught_up_ms: int = -1


class Observers:
    """The last fetch of each broker. Not thread-safe."""

    def __init__(self) -> None:
        self._by_id: dict[int, _Observer] = {}

    def fetched(self, broker_id: int, directory_id: uuid.UUID, offset: int, log_end: int, now_ms: int) -> None:
        """Note a fetch from `offset` at the time `now_ms`, when the metadata log ended at `log_end`."""
        one = self._by_id.setdefault(broker_id, _Observer(directory_id, offset, now_ms))
        one.directory_id, one.end_offset, one.fetched_ms = directory_id, offset, now_ms
        if offset >= log_end:
            one.caught_up_ms = now_ms

    def states(self, now_ms: int) -> list[ReplicaState]:
        """Return the brokers that have fetched in the last `SESSION_MS`, by id."""
        recent = [(key, one) for key, one in sorted(self._by_id.items()) if now_ms - one.fetched_ms < SESSION_MS]
        return [ReplicaState(key, one.directory_id, one.end_offset, one.fetched_ms, one.caught_up_ms) for key, one in recent]
