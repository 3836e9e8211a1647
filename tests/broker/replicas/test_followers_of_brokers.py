"""Followers of brokers of ours, over real sockets: throttles, append times over a change of the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.broker.replicas.small_cluster import SmallCluster, only
from tidelog.broker.replicas.replica_numbers import ReplicaNumbers, counted
from tidelog.broker.settings.dynamic_settings import FOLLOWER_RATE, LEADER_RATE
from tidelog.metadata import records as r
from tidelog.model import TopicPartition
from tidelog.records.batch import LOG_APPEND_TIME, iter_headers

KEY = TopicPartition("orders", 0)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


async def throttled(folder: Path, rate_name: str, replicas_name: str) -> None:
    """A replica that lags gets its records at the rate; one in sync is not held up; without the rate it catches up at once."""
    async with SmallCluster(folder, 2, replica_fetch_max_bytes=2000, replica_lag_time_max_ms=300) as cluster:
        await cluster.create_topic("orders", [1, 2], **{replicas_name: "0:1,0:2"})
        for _ in range(3):
            assert only(await cluster.produce(KEY, b"a" * 1000)).error_code == 0
        await cluster.kill(2, is_noticed=False)
        for _ in range(30):
            await cluster.produce(KEY, b"b" * 1000, acks=1)
        await cluster.until_isr(KEY, 1)
        await cluster.start(2)
        await set_rate(cluster, rate_name, "5000")
        follower = cluster.members[2].log(KEY)
        await cluster.until(lambda: follower.log_end_offset > 3)
        began, end = asyncio.get_running_loop().time(), follower.log_end_offset
        await asyncio.sleep(0.5)
        lasted_s = asyncio.get_running_loop().time() - began
        copied = follower.log_end_offset - end
        assert copied * 1000 <= 5000 * (lasted_s + 1) + 4000, "no faster than the rate, but for an answer or two"
        assert follower.log_end_offset < 33
        await set_rate(cluster, rate_name, None)
        await cluster.until_isr(KEY, 1, 2)
        await set_rate(cluster, rate_name, "1")
        for _ in range(3):
            assert only(await cluster.produce(KEY, b"c" * 1000)).error_code == 0


async def set_rate(cluster: SmallCluster, name: str, value: str | None) -> None:
    cluster.controller.write(r.ConfigRecord(r.BROKER_RESOURCE, "", name, value))
    expected = 2**63 - 1 if value is None else int(value)
    await cluster.until(
        lambda: all(member.node.dynamic_settings.throttled_rate(name) == expected for member in cluster.members.values())
    )


def test_what_an_operator_sees(tmp_path: Path) -> None:
    async def work() -> None:
        async with SmallCluster(tmp_path, 2, replica_lag_time_max_ms=300) as cluster:
            await cluster.create_topic("orders", [1, 2], [2, 1], min_insync_replicas="2")
            await cluster.produce(KEY, b"a" * 1000)
            assert numbers(cluster, 1) == ReplicaNumbers(led=1, followed=1)
            found = numbers(cluster, 2)
            assert 1000 < found.copied_bytes < 1200
            assert found == ReplicaNumbers(led=1, followed=1, copied_bytes=found.copied_bytes)
            await cluster.kill(2)
            await cluster.until(lambda: numbers(cluster, 1).led == 2)
            assert numbers(cluster, 1) == ReplicaNumbers(led=2, under_replicated=2, under_min_isr=2)

    run(work())


def numbers(cluster: SmallCluster, node_id: int) -> ReplicaNumbers:
    node = cluster.members[node_id].node
    assert node.replicas is not None and node.fetchers is not None
    return list(counted(node.replicas.partitions, node.fetchers))[-1]


def test_a_leaders_throttle(tmp_path: Path) -> None:
    run(throttled(tmp_path, LEADER_RATE, "leader_replication_throttled_replicas"))


def test_a_followers_throttle(tmp_path: Path) -> None:
    run(throttled(tmp_path, FOLLOWER_RATE, "follower_replication_throttled_replicas"))


def test_append_times_do_not_go_back_when_the_leader_changes(tmp_path: Path) -> None:
    """KIP-32: the new leader's clock is behind, and it goes on with the times that the old one gave."""

    async def work() -> None:
        async with SmallCluster(tmp_path, 2) as cluster:
            await cluster.create_topic("orders", [1, 2], message_timestamp_type="LogAppendTime")
            await cluster.produce(KEY, b"a")
            ahead_ms = cluster.members[1].node.clock.now_ms() + 3_600_000
            log = cluster.members[1].log(KEY)
            log.clock = log._appends._clock = type("Ahead", (), {"now_ms": lambda self: ahead_ms})()  # type: ignore[assignment]
            assert only(await cluster.produce(KEY, b"b")).log_append_time_ms == ahead_ms
            cluster.controller.elect(KEY, 2)
            await cluster.until(lambda: cluster.leads(2, KEY))
            assert only(await cluster.produce(KEY, b"c")).log_append_time_ms == ahead_ms
            await cluster.until(lambda: cluster.members[1].log(KEY).log_end_offset == 3)
            for member in cluster.members.values():
                found = list(iter_headers(member.log(KEY).read(0, 10_000).data))
                assert [header.timestamp_type for header in found] == [LOG_APPEND_TIME] * 3
                assert found[1].max_timestamp == found[2].max_timestamp == ahead_ms > found[0].max_timestamp

    run(work())
