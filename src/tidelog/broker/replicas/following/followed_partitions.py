"""The partitions that are followed of one leader: which of them have something to do, which wait, what is to be asked for.

Of a thousand partitions few change between two fetches; a round costs what has changed, not how many there are.

Belongs to the loop's thread. `now_s` is the loop's time.
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
"""How soon a partition that a throttle holds up is checked again, where nothing else is to be done."""


class FollowedPartitions:
    """Those of one leader."""

    def __init__(self, quota: ReplicationQuota, backoff_s: float) -> None:
        self.by_key: dict[TopicPartition, FollowedPartition] = {}
        self._quota = quota
        self._backoff_s = backoff_s
        self._touched: dict[TopicPartition, None] = {}
        """Those that may have something else to ask for than with the last request."""
        self._unsettled: dict[TopicPartition, None] = {}
        """Those with something to do before they fetch."""
        self._held: dict[TopicPartition, None] = {}
        """Those that a throttle keeps from being asked for."""
        self._delays: list[tuple[float, TopicPartition]] = []

    @property
    def has_unsettled(self) -> bool:
        """Whether any has something to do before it fetches."""
        return bool(self._unsettled)

    def follow(self, followed: Followed) -> bool:
        """Follow a partition, or follow it in another epoch; False if it is followed like that."""
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
        """Stop following a partition; False if it is not followed."""
        one = self.by_key.pop(key, None)
        if one is None:
            return False
        one.leave()
        self._touched[key] = None
        return True

    # --- moves

    def fetch(self, one: FollowedPartition) -> None:
        """Fetch from its log end from now on."""
        one.move(FollowerState.FETCHING)
        self._unsettled.pop(one.key, None)
        self._touched[one.key] = None

    def look_for_range(self, one: FollowedPartition) -> None:
        """Ask where the leader's log starts and ends."""
        one.move(FollowerState.OUT_OF_RANGE)
        self._unsettled[one.key] = self._touched[one.key] = None

    def touch(self, one: FollowedPartition) -> None:
        """Note that there may be something else to ask for."""
        self._touched[one.key] = None

    def delay(self, one: FollowedPartition, now_s: float, error_code: int = ErrorCode.UNKNOWN_SERVER_ERROR) -> None:
        """Ask nothing for a while, after an error."""
        heapq.heappush(self._delays, (one.delay(now_s, self._backoff_s, error_code), one.key))
        self._touched[one.key] = None

    def fail(self, one: FollowedPartition, reason: str) -> None:
        """Give it up until its next epoch."""
        if one.state not in (None, FollowerState.FAILED):
            logger.warning("%s: not followed until its next epoch: %s", one.log.directory, reason)
            one.fail(reason)
            self._unsettled.pop(one.key, None)
            self._touched[one.key] = None

    # --- what is to be done

    def waiting(self, state: FollowerState, now_s: float) -> list[FollowedPartition]:
        """Return those in a state before fetching that may do something about it now."""
        found = []
        for key in tuple(self._unsettled):
            one = self.by_key.get(key)
            if one is None or one.state not in (FollowerState.TRUNCATING, FollowerState.OUT_OF_RANGE):
                del self._unsettled[key]
            elif one.state is state and one.delayed_until_s <= now_s:
                found.append(one)
        return found

    def choose(self, session: FetchSessionClient, now_s: float) -> None:
        """Say in the session what is to be asked for: of the partitions that may have changed."""
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
        """Whether its bytes count for the throttle."""
        return self._quota.is_throttled(one.key, one.log.config.follower_replication_throttled_replicas)

    def due_s(self, now_s: float) -> float | None:
        """Return how long nothing is to be done, unless partitions come; None: for good."""
        if any(self.by_key[key].delayed_until_s <= now_s for key in self._unsettled if key in self.by_key):
            return 0
        waits = [self._delays[0][0] - now_s] if self._delays else []
        if self._held:
            waits.append(min(self._backoff_s, HELD_S))
        return max(min(waits), 0) if waits else None
