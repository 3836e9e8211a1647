"""Followers of brokers of ours, over real sockets: throttles, append times over a change of the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.broker.replicas.small_cluster import LONG_MS, SmallCluster, only
from tests.patience import PATIENCE_S
from tidelog.broker.replicas.replica_numbers import ReplicaNumbers, counted
from tidelog.broker.settings.dynamic_settings import FOLLOWER_RATE, LEADER_RATE
from tidelog.metadata import records as r
from tidelog.model import EARLIEST, LATEST, MAX_TIMESTAMP, TopicPartition
from tidelog.records.batch import LOG_APPEND_TIME, iter_headers
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

KEY = TopicPartition("orders", 0)
TIME_MS = 1_700_000_000_000


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 2 * PATIENCE_S))


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
        await set_rate(cluster, rate_name, "1000")
        began = asyncio.get_running_loop().time()
        await cluster.start(2)
        follower = cluster.members[2].log(KEY)
        await cluster.until(lambda: follower.log_end_offset > 3)
        await asyncio.sleep(0.5)
        copied = follower.log_end_offset - 3
        lasted_s = asyncio.get_running_loop().time() - began
        assert copied * 1000 <= 1000 * (lasted_s + 1) + 4000, "no faster than the rate, but for an answer or two"
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
        async with SmallCluster(tmp_path, 2) as cluster:
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


async def end_of(cluster: SmallCluster, node_id: int, replica_id: int) -> tuple[int, int]:
    """Error and offset that a broker answers when it is asked for the end."""
    topic = ListOffsetsTopic(KEY.topic, [ListOffsetsPartition(KEY.partition, timestamp=LATEST)])
    response = await cluster.ask(node_id, ListOffsetsRequest(replica_id=replica_id, topics=[topic]), 5)
    (answer,) = response.topics[0].partitions
    return answer.error_code, answer.offset


def test_the_leader_answers_for_the_log(tmp_path: Path) -> None:
    """Followers get the log's end, clients what is committed; a follower answers nobody but who debugs."""

    async def work() -> None:
        async with SmallCluster(tmp_path, 2, replica_lag_time_max_ms=LONG_MS) as cluster:
            await cluster.create_topic("orders", [1, 2])
            await cluster.produce(KEY, b"a")
            await cluster.until(lambda: all(one.log(KEY).high_watermark == 1 for one in cluster.members.values()))
            await cluster.kill(2, is_noticed=False)
            await cluster.produce(KEY, b"b", acks=1)
            assert await end_of(cluster, 1, -1) == (0, 1)
            assert await end_of(cluster, 1, 2) == (0, 2)
            await cluster.start(2)
            await cluster.until(lambda: cluster.members[2].log(KEY).log_end_offset == 2)
            assert await end_of(cluster, 2, -1) == await end_of(cluster, 2, 1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            assert await end_of(cluster, 2, -2) == (0, 2)

    run(work())


def test_a_replica_whose_records_are_gone_starts_over(tmp_path: Path) -> None:
    """It was away while the leader has deleted what it lacks: it asks where the leader's log starts."""

    async def work() -> None:
        async with SmallCluster(tmp_path, 2, replica_lag_time_max_ms=300) as cluster:
            await cluster.create_topic("orders", [1, 2], segment_bytes="2000", retention_ms="-1")
            await cluster.produce(KEY, b"a")
            await cluster.until(lambda: cluster.members[2].log(KEY).log_end_offset == 1)
            await cluster.kill(2)
            for _ in range(8):
                await cluster.produce(KEY, b"b" * 900)
            log = cluster.members[1].log(KEY)
            assert log.high_watermark == 9
            log.maybe_increment_log_start_offset(6)
            log.delete_old_segments()
            await cluster.start(2)
            await cluster.until_isr(KEY, 1, 2)
            copy = cluster.members[2].log(KEY)
            assert (copy.log_start_offset, copy.log_end_offset) == (6, 9)
            assert bytes(copy.read(6, 10_000).data) == bytes(log.read(6, 10_000).data)
            assert copy.leader_epochs.entries == log.leader_epochs.entries

    run(work())


CONSUMER, DEBUGGER = -1, -2


async def codes(cluster: SmallCluster, node_id: int, replica_id: int, epoch: int = -1, topic: str = KEY.topic) -> set[int]:
    """What a broker answers ListOffsets, and OffsetForLeaderEpoch but for who debugs, which is asked of the leader only."""
    wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(0, epoch, LATEST)])
    response = await cluster.ask(node_id, ListOffsetsRequest(replica_id=replica_id, topics=[wanted]), 5)
    found = {response.topics[0].partitions[0].error_code}
    if replica_id != DEBUGGER:
        asked = OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, epoch, 0)])
        ends = await cluster.ask(node_id, OffsetForLeaderEpochRequest(replica_id=-2, topics=[asked]), 3)
        found.add(ends.topics[0].partitions[0].error_code)
    return found


def test_who_answers_what(tmp_path: Path) -> None:
    """Kafka's ListOffsetsRequestTest and OffsetsForLeaderEpochRequestTest: the leader, a follower, a broker without a replica."""

    async def work() -> None:
        async with SmallCluster(tmp_path, 3) as cluster:
            await cluster.create_topic("orders", [1, 2])
            cluster.controller.elect(KEY, 2)
            cluster.controller.elect(KEY, 1)
            await cluster.until(lambda: cluster.leads(1, KEY))
            await cluster.produce(KEY, b"a")
            epoch = cluster.record(KEY).leader_epoch
            not_here = {ErrorCode.NOT_LEADER_OR_FOLLOWER}
            for node_id in (1, 2, 3):
                for replica_id in (CONSUMER, DEBUGGER):
                    assert await codes(cluster, node_id, replica_id, topic="unknown") == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert await codes(cluster, 1, CONSUMER) == await codes(cluster, 1, DEBUGGER) == {0}
            assert await codes(cluster, 2, CONSUMER) == not_here and await codes(cluster, 2, DEBUGGER) == {0}
            assert await codes(cluster, 3, CONSUMER) == await codes(cluster, 3, DEBUGGER) == not_here
            for node_id, with_its_epoch in ((1, {0}), (2, not_here)):
                assert await codes(cluster, node_id, CONSUMER, epoch) == with_its_epoch
                assert await codes(cluster, node_id, CONSUMER, epoch - 1) == {ErrorCode.FENCED_LEADER_EPOCH}
                assert await codes(cluster, node_id, CONSUMER, epoch + 1) == {ErrorCode.UNKNOWN_LEADER_EPOCH}

    run(work())


def test_answers_by_time_are_the_same_from_each_leader(tmp_path: Path) -> None:
    async def work() -> None:
        async with SmallCluster(tmp_path, 2) as cluster:
            await cluster.create_topic("orders", [1, 2])
            for step in range(6):
                leader = 1 + step % 2
                if step:
                    cluster.controller.elect(KEY, leader)
                    await cluster.until(lambda leader=leader: cluster.leads(leader, KEY))  # type: ignore[misc]
                await cluster.produce(KEY, b"%d" % step, b"more")
            answers = []
            for leader in (1, 2):
                cluster.controller.elect(KEY, leader)
                await cluster.until(lambda leader=leader: cluster.leads(leader, KEY))  # type: ignore[misc]
                times = (LATEST, EARLIEST, MAX_TIMESTAMP, 0, TIME_MS, TIME_MS + 1, TIME_MS + 2)
                found = []
                for time_ms in times:
                    topic = ListOffsetsTopic(KEY.topic, [ListOffsetsPartition(0, -1, time_ms)])
                    response = await cluster.ask(leader, ListOffsetsRequest(replica_id=2, topics=[topic]), 7)
                    one = response.topics[0].partitions[0]
                    found.append((one.error_code, one.timestamp, one.offset, one.leader_epoch if time_ms != LATEST else None))
                answers.append(found)
            assert answers[0] == answers[1]
            first = (0, TIME_MS, 0, 0)
            assert answers[0] == [(0, -1, 12, None), (0, -1, 0, 0), first, first, first, (0, -1, -1, -1), (0, -1, -1, -1)]

    run(work())
