"""The partitions that are followed from one leader: which of them need work, which are paused, and what to fetch next.

Only a few of a thousand partitions change between two fetches, so the cost of a round depends on the number of changes.

Use only on the event loop's thread. `now_s` returns the loop's time.
"""

from __future__ import annotations

import heapq
import logging

from tidelog.broker.replicas.following.fetch_session_client import FetchSessionClient
from tidelog.broker.replicas.following.followed_partition import Followed, FollowedPartition, FollowerState
from tidelog.broker.replicas.replication_quota import ReplicationQuota
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode

logger = logging.getLogger("tidelog.broker")

HELD_S = 0.1
"""A throttled partition is checked again after this many seconds, if there is nothing else to do."""


class FollowedPartitions:
    """The partitions that are followed from one leader."""

    def __init__(self, quota: ReplicationQuota, backoff_s: float) -> None:
        self.by_key: dict[TopicPartition, FollowedPartition] = {}
        self._quota = quota
        self._backoff_s = backoff_s
        self._touched: dict[TopicPartition, None] = {}
        """Partitions whose next request may differ from the last one."""
        self._unsettled: dict[TopicPartition, None] = {}
        """Partitions that cannot fetch until they are truncated or know the range of the leader's log."""
        self._held: dict[TopicPartition, None] = {}
        """Partitions that are left out of requests now because of a throttle."""
        self._delays: list[tuple[float, TopicPartition]] = []

    @property
    def has_unsettled(self) -> bool:
        """Whether any partition cannot fetch until it is truncated or knows the range of the leader's log."""
        return bool(self._unsettled)

    def follow(self, followed: Followed) -> bool:
        """Follow a partition, or follow it in a different epoch. Return False if nothing changes."""
        before = self.by_key.get(followed.key)
        if before is not None:
            same = (before.leader_epoch, before.topic_id) == (followed.leader_epoch, followed.topic_id)
            if same and before.log is followed.log and before.state is not FollowerState.FAILED:
                return False
            before.leave()
        self.by_key[followed.key] = FollowedPartition(followed)
        self._unsettled[followed.key] = self._touched[followed.key] = None
        return True

    def leave(self, key: TopicPartition) -> bool:
        """Stop following a partition. Return False if it was not followed."""
        one = self.by_key.pop(key, None)
        if one is None:
            return False
        one.leave()
        self._touched[key] = None
        return True

    # --- moves

    def fetch(self, one: FollowedPartition) -> None:
        """Set a partition's state to Fetching: it fetches from its log end."""
        one.move(FollowerState.FETCHING)
        self._unsettled.pop(one.key, None)
        self._touched[one.key] = None

    def look_for_range(self, one: FollowedPartition) -> None:
        """Set a partition's state to OutOfRange: the leader is asked where its log starts and ends."""
        one.move(FollowerState.OUT_OF_RANGE)
        self._unsettled[one.key] = self._touched[one.key] = None

    def touch(self, one: FollowedPartition) -> None:
        """Include the partition in the next `choose`, because its parameters may have changed."""
        self._touched[one.key] = None

    def delay(self, one: FollowedPartition, now_s: float, error_code: int = ErrorCode.UNKNOWN_SERVER_ERROR) -> None:
        """Pause a partition after an error."""
        heapq.heappush(self._delays, (one.delay(now_s, self._backoff_s, error_code), one.key))
        self._touched[one.key] = None

    def fail(self, one: FollowedPartition, reason: str, *, level: int = logging.WARNING) -> None:
        """Stop fetching a partition until its next leader epoch."""
        if one.state not in (None, FollowerState.FAILED):
            logger.log(level, "%s: this replica does not fetch until the next leader epoch: %s", one.log.directory, reason)
            one.fail(reason)
            self._unsettled.pop(one.key, None)
            self._touched[one.key] = None

    # --- the next requests

    def waiting(self, state: FollowerState, now_s: float) -> list[FollowedPartition]:
        """Return the partitions in `state` that are not paused; `state` is Truncating or OutOfRange."""
        found = []
        for key in tuple(self._unsettled):
            one = self.by_key.get(key)
            if one is None or one.state not in (FollowerState.TRUNCATING, FollowerState.OUT_OF_RANGE):
                del self._unsettled[key]
            elif one.state is state and one.delayed_until_s <= now_s:
                found.append(one)
        return found

    def choose(self, session: FetchSessionClient, now_s: float) -> None:
        """Update the fetch session with the partitions whose parameters may have changed."""
        touched = self._touched
        while self._delays and self._delays[0][0] <= now_s:
            touched[heapq.heappop(self._delays)[1]] = None
        is_exceeded = self._quota.is_exceeded(now_s)
        if is_exceeded:
            touched.update((key, None) for key, one in self.by_key.items() if self.is_throttled(one))
        touched.update(self._held)
        self._held.clear()
        for key in touched:
            one = self.by_key.get(key)
            if one is None or one.state is not FollowerState.FETCHING or one.delayed_until_s > now_s:
                session.drop(key)
            elif is_exceeded and one.lag != 0 and self.is_throttled(one):
                session.drop(key)
                self._held[key] = None
            else:
                session.want(key, one.wanted())
        touched.clear()

    def is_throttled(self, one: FollowedPartition) -> bool:
        """Whether the bytes of a partition count towards the follower's throttle."""
        return self._quota.is_throttled(one.key, one.log.config.follower_replication_throttled_replicas)

    def due_s(self, now_s: float) -> float | None:
        """Return the number of seconds until a paused or throttled partition is due, or None if there is no such partition."""
        if any(self.by_key[key].delayed_until_s <= now_s for key in self._unsettled if key in self.by_key):
            return 0
        waits = [self._delays[0][0] - now_s] if self._delays else []
        if self._held:
            waits.append(min(self._backoff_s, HELD_S))
        return max(min(waits), 0) if waits else None
