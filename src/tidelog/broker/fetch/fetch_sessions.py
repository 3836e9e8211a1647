"""Fetch sessions: a client names each of its partitions once, and later sends only changes (KIP-227).

| session id and epoch of a request | meaning |
|---|---|
| any id, epoch 0 | a full request with all partitions; drop that session, and create a new one if there is room |
| any id, epoch -1; requests before version 7 | a full request with all partitions; drop that session, and create none |
| n, the next epoch | an incremental request: all partitions of session n, with the request's changes |
| n, a different epoch, or an unknown n | refused: the response has only an error code |

A session's response contains a partition only if it has records, an error, or a changed high watermark or log start offset. A
partition that returned records moves to the end of the session's order, so that no partition is starved.

If the cache is full, a session unused for two minutes is evicted. If there is no such session, the smallest session created more
than two minutes ago is evicted, provided that the new one has more partitions. The cache has room for
`max.incremental.fetch.session.cache.slots` sessions. A follower's session may also replace a consumer's session of any age and
size; a consumer's session replaces a follower's only after two minutes without use. A client that gets no session sends full
requests.

The rules are Kafka 3.9's, with two differences: Kafka divides the sessions into eight shards, and only Tidelog limits the total
number of partitions in sessions (`MAX_CACHED_PARTITIONS`). Everything runs on the event loop's thread.
"""

from __future__ import annotations

import random
import uuid
from typing import TypeAlias

from tidelog.clock import Clock
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import FetchPartition, PartitionData

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1

EVICTION_MS = 120_000
MAX_CACHED_PARTITIONS = 1_000_000
TOPIC_ID_VERSION = 13
"""Since this version, requests identify topics by id."""

NO_ID = uuid.UUID(int=0)

PartitionName: TypeAlias = tuple[str | uuid.UUID, int]
"""A partition as a request identifies it: by topic name or topic id, with the partition number."""


class FetchedPartition:
    """The fetch parameters of one partition, and the values that the client last received for it."""

    __slots__ = (
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "last_high_watermark",
        "last_log_start_offset",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "name",
        "topic_id",
    )

    def __init__(self, name: PartitionName, key: TopicPartition | None, topic_id: uuid.UUID, wanted: FetchPartition) -> None:
        self.name = name
        self.key = key
        """The topic's name and the partition; None while no topic with the requested id is known."""
        self.topic_id = topic_id
        self.last_high_watermark = -1
        self.last_log_start_offset = -1
        self.max_bytes = wanted.partition_max_bytes
        self.fetch_offset = wanted.fetch_offset
        self.log_start_offset = wanted.log_start_offset
        self.leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch

    def take_over(self, other: FetchedPartition) -> None:
        """Adopt the fetch parameters of a later request for the same partition."""
        self.max_bytes = other.max_bytes
        self.fetch_offset = other.fetch_offset
        self.log_start_offset = other.log_start_offset
        self.leader_epoch = other.leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch

    def answered(self, answer: PartitionData) -> None:
        """Remember the high watermark and log start offset of a session's first response."""
        self.last_high_watermark = answer.high_watermark
        self.last_log_start_offset = answer.log_start_offset

    def is_news(self, answer: PartitionData, size_bytes: int) -> bool:
        """Return whether an incremental response must contain this partition. If so, remember the result as sent."""
        is_news = size_bytes > 0
        if answer.high_watermark != self.last_high_watermark:
            is_news = True
            self.last_high_watermark = answer.high_watermark
        if answer.log_start_offset != self.last_log_start_offset:
            is_news = True
            self.last_log_start_offset = answer.log_start_offset
        if answer.error_code:
            # After an error the partition must be sent again once the error is gone.
            self.last_high_watermark = -1
            is_news = True
        if answer.preferred_read_replica >= 0:
            is_news = True
        return is_news or answer.diverging_epoch.end_offset >= 0 or answer.diverging_epoch.epoch >= 0


class FetchSession:
    """One client's fetch session: its partitions, in the order in which they are read."""

    __slots__ = ("created_ms", "epoch", "id", "is_privileged", "last_used_ms", "partitions", "size", "uses_topic_ids")

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionName, FetchedPartition],
        now_ms: int,
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
    ) -> None:
        self.id = session_id
        self.partitions = partitions
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.size = len(partitions)


class FetchSessions:
    """The sessions of all clients, ordered by last use, the least recently used first."""

    def __init__(self, clock: Clock, max_sessions: int, *, max_partitions: int = MAX_CACHED_PARTITIONS) -> None:
        self._clock = clock
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self._sessions: dict[int, FetchSession] = {}
        self.cached_partitions = 0
        self._removed: list[list[FetchedPartition]] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession | ErrorCode:
        """Return the session that an incremental request continues, or the error if there is none."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def touch(self, session: FetchSession) -> None:
        """Note that a request continues the session, and advance its epoch."""
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = self._clock.now_ms()
        self._sessions[session.id] = self._sessions.pop(session.id)

    def count(self, session: FetchSession) -> None:
        """Update the stored number of the session's partitions, if the session still exists."""
        if self._sessions.get(session.id) is not session:
            return
        size = len(session.partitions)
        self.cached_partitions += size - session.size
        session.size = size

    def remove(self, session_id: int) -> None:
        """Forget a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.cached_partitions -= session.size
            self._removed.append(list(session.partitions.values()))  # Another request may still use the session's partitions.

    def take_removed(self) -> list[list[FetchedPartition]]:
        """Return the partitions of the sessions that were removed since the last call. The caller frees them in slices, because
        that may take long.
        """
        removed, self._removed = self._removed, []
        return removed

    def create(self, by_name: dict[PartitionName, FetchedPartition], *, is_privileged: bool, uses_topic_ids: bool) -> int:
        """Create a session from the partitions of a full request that was just answered. Return its id, 0 if there is no room."""
        now_ms = self._clock.now_ms()
        if len(self._sessions) >= self._max_sessions and not self._evict(is_privileged, len(by_name), now_ms):
            return NO_SESSION
        if self.cached_partitions + len(by_name) > self._max_partitions:
            return NO_SESSION
        session_id = random.randrange(1, MAX_EPOCH)
        while session_id in self._sessions:
            session_id = random.randrange(1, MAX_EPOCH)
        session = FetchSession(session_id, by_name, now_ms, is_privileged=is_privileged, uses_topic_ids=uses_topic_ids)
        self._sessions[session_id] = session
        self.cached_partitions += session.size
        return session_id

    def _evict(self, is_privileged: bool, size: int, now_ms: int) -> bool:
        """Make room for a session of `size` partitions, by evicting an existing one if the rules allow it."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms <= EVICTION_MS:
            candidates = [
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > EVICTION_MS or (is_privileged and not session.is_privileged)
            ]
            oldest = min(candidates, key=_worth, default=None)
            if oldest is None or (is_privileged, size, 0) < _worth(oldest):
                return False
        self.remove(oldest.id)
        return True


def next_epoch(epoch: int) -> int:
    """Return the epoch after `epoch`: 1 after the largest one, `FINAL_EPOCH` after a negative one."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_EPOCH else epoch + 1


def _worth(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_privileged, session.size, session.id
