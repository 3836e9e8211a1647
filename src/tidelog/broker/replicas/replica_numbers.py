"""Metrics of a member's replicas: lag, failed replicas, and under-replicated partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidelog.broker.replicas.fetchers import Fetchers
from tidelog.broker.replicas.following.followed_partition import FollowerState
from tidelog.broker.replicas.partition import Partition

AT_ONCE = 1000


@dataclass
class ReplicaNumbers:
    """Current numbers of partitions, and bytes since the start."""

    led: int = 0
    followed: int = 0
    under_replicated: int = 0
    """Partitions led here with fewer in-sync replicas than replicas."""
    under_min_isr: int = 0
    """Partitions led here with fewer in-sync replicas than `min.insync.replicas`, so that acks=all is refused."""
    failed: int = 0
    """Partitions that have failed, and are not followed until their next leader epoch."""
    max_lag: int = 0
    """The largest lag of a followed partition: the number of offsets below its leader's high watermark that are missing here."""
    copied_bytes: int = 0
    """Bytes of records fetched from leaders."""


def counted(partitions: Iterable[Partition], fetchers: Fetchers) -> Iterator[ReplicaNumbers]:
    """Count the partitions, some per step. Each step yields the same object, whose numbers are complete after the last step."""
    numbers = ReplicaNumbers(copied_bytes=fetchers.appended_bytes)
    for count, partition in enumerate(tuple(partitions), start=1):
        if partition.is_leader:
            numbers.led += 1
            numbers.under_replicated += len(partition.isr) <= len(partition.followers)
            numbers.under_min_isr += partition.is_under_min_isr
        else:
            one = fetchers.partition(partition.key)
            if one is not None:
                numbers.followed += 1
                numbers.failed += one.state is FollowerState.FAILED
                numbers.max_lag = max(numbers.max_lag, one.lag or 0)
        if not count % AT_ONCE:
            yield numbers
    yield numbers
