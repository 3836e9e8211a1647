"""Throttles of replication: rates by windows, and which replicas they are for."""

from __future__ import annotations

import pytest

from tidelog.broker.replicas.replication_quota import NO_LIMIT, ReplicationQuota, throttled_partitions
from tidelog.model import TopicPartition


def test_without_a_rate_nothing_waits() -> None:
    quota = ReplicationQuota(1)
    quota.record(1 << 50, 0)
    assert quota.bytes_per_second() == NO_LIMIT and not quota.is_exceeded(0)


def test_the_rate_is_over_the_time_since_the_oldest_window() -> None:
    quota = ReplicationQuota(1, lambda: 100)
    assert quota.rate(5) == 0 and not quota.is_exceeded(5)
    quota.record(100, 10)
    assert quota.rate(10) == 100 and not quota.is_exceeded(10), "a second at least, and at the rate is not above it"
    quota.record(1, 10.5)
    assert quota.rate(10.5) == 101 and quota.is_exceeded(10.5)
    assert quota.rate(12) == 50.5 and not quota.is_exceeded(12)
    quota.record(300, 12)
    assert quota.rate(14) == pytest.approx(401 / 4) and quota.is_exceeded(14)
    assert quota.rate(21.49) == pytest.approx(401 / 11.49), "it reaches into the eleven seconds"
    assert quota.rate(21.5) == pytest.approx(300 / 9.5)
    assert quota.rate(23) == 0


def test_it_is_held() -> None:
    """Who asks only while the rate is not exceeded gets the rate, but for one answer too much."""
    quota, got = ReplicationQuota(1, lambda: 1000, windows=5, window_s=2), 0
    for step in range(2000):
        if not quota.is_exceeded(step / 10):
            quota.record(700, step / 10)
            got += 700
    assert got / 200 == pytest.approx(1000, rel=0.05)


def test_which_replicas() -> None:
    key = TopicPartition("orders", 3)
    quota = ReplicationQuota(7)
    listed = {"": False, "*": True, "3:7": True, "0:7,3:1": False, "0:1, 3:7": True, "13:7": False}
    assert {text: quota.is_throttled(key, text) for text in listed} == listed
    assert throttled_partitions("0:1,1:2,2:1,", 1) == {0, 2}
