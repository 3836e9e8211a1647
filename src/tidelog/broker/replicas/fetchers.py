"""All partitions that this broker follows, and the fetchers that fetch from their leaders (Kafka's ReplicaFetcherManager).

Each leader has ``num.replica.fetchers`` connections (default 1); a partition always uses the same one. A fetcher starts with its
first partition and stops with its last.

Use only on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from tidelog.broker.core import Core
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.peers.channel import Channel
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.replicas.following.followed_partition import Followed, FollowedPartition
from tidelog.broker.replicas.following.leader_fetcher import FollowerSlices, LeaderFetcher, Shared, logger
from tidelog.broker.replicas.replication_quota import ReplicationQuota
from tidelog.broker.settings.dynamic_settings import FOLLOWER_RATE
from tidelog.model import TopicPartition
from tidelog.security.access import Access

__all__ = ["Fetchers", "Followed"]

LINES = 20
"""The most log lines per minute about failures of single partitions."""


class Fetchers:
    """All fetchers of a broker. `quota` is the follower's replication throttle."""

    def __init__(self, core: Core, plane: MetadataPlane, *, connect: Callable[..., Channel] = Channel) -> None:
        config = core.config.cluster
        assert config is not None, "a standalone broker cannot follow a leader"
        if connect is Channel:
            versions = None if config.zookeeper is None else config.zookeeper.protocol.versions
            connect = partial(
                Channel,
                versions=versions,
                connect_timeouts_s=config.connect_timeouts_s,
                access=Access(config.inter_broker_access),
            )
        self.quota = ReplicationQuota.of(config, lambda: core.dynamic_settings.throttled_rate(FOLLOWER_RATE))
        self._shared = Shared(
            plane,
            config,
            self.quota,
            FollowerSlices(),
            core.delayed_fetches.appended,
            RetryLog(logger, LINES),
            connect,
        )
        self._fetchers: dict[tuple[int, int], LeaderFetcher] = {}
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        """The fetcher that follows each partition, as the leader's id and the number of the connection."""
        self._stopping: set[asyncio.Task[None]] = set()
        self._is_started = False
        self._ended_bytes = 0
        """Bytes appended by fetchers that have stopped."""

    def follow(self, leader_id: int, partitions: Iterable[Followed]) -> None:
        """Follow partitions from this leader, and stop following them from any previous one. No-op if nothing changes."""
        for followed in partitions:
            where = leader_id, self._index(followed.key)
            before = self._leaders.get(followed.key)
            if before is not None and before != where:
                self._fetchers[before].leave(followed.key)
            fetcher = self._fetchers.get(where)
            if fetcher is None:
                fetcher = self._fetchers[where] = LeaderFetcher(*where, self._shared)
                if self._is_started:
                    fetcher.start()
            self._leaders[followed.key] = where
            fetcher.follow(followed)
        self._end_idle()

    def leave(self, keys: Iterable[TopicPartition]) -> None:
        """Stop following partitions; responses that arrive later for them are ignored. Idempotent."""
        for key in keys:
            where = self._leaders.pop(key, None)
            if where is not None:
                self._fetchers[where].leave(key)
        self._end_idle()

    def start(self) -> None:
        """Start fetching. Idempotent."""
        self._is_started = True
        for fetcher in self._fetchers.values():
            fetcher.start()

    async def stop(self) -> None:
        """Stop all fetchers. Nothing is appended afterwards."""
        self._leaders.clear()
        fetchers, self._fetchers = self._fetchers, {}
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers.values()), *self._stopping)

    # --- asking

    def partition(self, key: TopicPartition) -> FollowedPartition | None:
        """Return a followed partition, or None if it is not followed."""
        where = self._leaders.get(key)
        return None if where is None else self._fetchers[where].partitions[key]

    def partitions(self) -> Iterator[FollowedPartition]:
        for fetcher in self._fetchers.values():
            yield from fetcher.partitions.values()

    @property
    def appended_bytes(self) -> int:
        """Bytes of records fetched from leaders."""
        return self._ended_bytes + sum(fetcher.appended_bytes for fetcher in self._fetchers.values())

    # --- inside

    def _index(self, key: TopicPartition) -> int:
        count = self._shared.config.num_replica_fetchers
        return (zlib.crc32(key.topic.encode()) + key.partition) % count if count > 1 else 0

    def _end_idle(self) -> None:
        for where, fetcher in tuple(self._fetchers.items()):
            if not fetcher.partitions:
                del self._fetchers[where]
                self._ended_bytes += fetcher.appended_bytes
                if self._is_started:
                    task = asyncio.get_running_loop().create_task(fetcher.stop(), name=f"ending fetches from broker {where[0]}")
                    self._stopping.add(task)
                    task.add_done_callback(self._stopping.discard)
