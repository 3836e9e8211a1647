"""Replication throttles: ``leader/follower.replication.throttled.rate`` and ``….throttled.replicas`` (KIP-73).

| | leader | follower |
|---|---|---|
| rate, bytes per second | `leader.replication.throttled.rate` | `follower.replication.throttled.rate` |
| replicas: `partition:broker,…` or `*` | `leader.replication.throttled.replicas` | `follower.replication.throttled.replicas` |
| counts | bytes sent to followers of throttled partitions | bytes received of throttled partitions |
| above the rate | responses have no records of these partitions | these partitions are not requested |
| except | a follower in the ISR | a follower that has reached the leader's high watermark |

All bytes of throttled partitions count, including those of exempt replicas, so that traffic stays at the rate. An in-sync replica
is never throttled, because it would leave the ISR.

The rate is the bytes of the last ``replication.quota.window.num`` windows of ``replication.quota.window.size.seconds``,
divided by the time since the oldest of these windows began (at least one window). All bytes of the oldest window count, even
if a part of it is older. See Kafka's ReplicationQuotaManager and SimpleRate. `now_s` is the time of a monotonic clock, in
seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache

from tidelog.broker.settings.cluster_config import ClusterConfig
from tidelog.config import INT64_MAX
from tidelog.model import TopicPartition

ALL = "*"
"""The value with which every replica of a topic is throttled."""

NO_LIMIT = INT64_MAX
"""The default rate."""


class ReplicationQuota:
    """Counts recently replicated bytes against a limit. `bytes_per_second` returns the limit, which may change."""

    def __init__(
        self, node_id: int, bytes_per_second: Callable[[], int] = lambda: NO_LIMIT, *, windows: int = 11, window_s: float = 1
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self._node_id = node_id
        self._windows = windows
        self._window_s = window_s
        self._samples: deque[list[float]] = deque()
        """For each window: its start, the time when bytes were last counted, and the number of bytes."""

    @classmethod
    def of(cls, config: ClusterConfig, bytes_per_second: Callable[[], int]) -> ReplicationQuota:
        window_s = config.replication_quota_window_size_seconds
        return cls(config.node_id, bytes_per_second, windows=config.replication_quota_window_num, window_s=window_s)

    def is_throttled(self, key: TopicPartition, replicas: str) -> bool:
        """Whether `replicas`, the value of the topic's `….throttled.replicas`, lists this broker's replica of the partition."""
        return bool(replicas) and (replicas == ALL or key.partition in throttled_partitions(replicas, self._node_id))

    def record(self, size_bytes: int, now_s: float) -> None:
        """Count bytes of a throttled partition."""
        self._forget(now_s)
        samples = self._samples
        if not samples or now_s - samples[-1][0] >= self._window_s:
            samples.append([now_s, now_s, 0])
        samples[-1][1] = now_s
        samples[-1][2] += size_bytes

    def rate(self, now_s: float) -> float:
        """Return the recent rate in bytes per second."""
        self._forget(now_s)
        if not self._samples:
            return 0.0
        return sum(size for _, _, size in self._samples) / max(now_s - self._samples[0][0], self._window_s)

    def is_exceeded(self, now_s: float) -> bool:
        """Whether throttled partitions must wait."""
        return self.rate(now_s) > self.bytes_per_second()

    def _forget(self, now_s: float) -> None:
        samples, oldest_s = self._samples, now_s - self._windows * self._window_s
        while samples and samples[0][1] <= oldest_s:
            samples.popleft()


@lru_cache(maxsize=1024)
def throttled_partitions(replicas: str, node_id: int) -> frozenset[int]:
    """Return the partitions whose replica on a node is listed in ``partition:broker,partition:broker,…``."""
    pairs = (part.strip().split(":") for part in replicas.split(",") if part.strip())
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == node_id)
