"""Groups and transactions of a cluster of brokers: kept where their partition is led, and shown once that is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.broker.replicas.small_cluster import LONG_MS, SmallCluster, only
from tests.patience import PATIENCE_S
from tidelog.errors import BrokerUnreachableError
from tidelog.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.kernel import COMPILED
from tidelog.records.records import Record
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages import offset_commit, offset_fetch
from tidelog.wire.messages import produce as wire_produce
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

KEY = TopicPartition("orders", 0)
PROPERTIES = {
    "offsets_topic_num_partitions": 3,
    "offsets_topic_replication_factor": 3,
    "transaction_state_log_num_partitions": 3,
    "transaction_state_log_replication_factor": 3,
    "transaction_state_log_min_isr": 1,
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 100,
    "offsets_commit_timeout_ms": LONG_MS,
}
GROUP, TRANSACTION = 0, 1
RETRIABLE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def cluster_of(folder: Path, count: int = 3, **properties: Any) -> SmallCluster:
    return SmallCluster(folder, count, **{**PROPERTIES, **properties})


def a_living(cluster: SmallCluster) -> int:
    return min(cluster.members)


async def coordinator_of(cluster: SmallCluster, name: str, kind: int = GROUP) -> int:
    """Ask a broker until it knows."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await cluster.ask(a_living(cluster), FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]), 4)
            (found,) = answer.coordinators
            if found.error_code == 0 and found.node_id in cluster.members:
                log = log_of(cluster, found.node_id, kind)
                if log.readiness(log.partition_of(name)) is ErrorCode.NONE:
                    assert (found.host, found.port) == ("127.0.0.1", cluster.members[found.node_id].port)
                    return int(found.node_id)
            assert found.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            await asyncio.sleep(0.01)


def log_of(cluster: SmallCluster, node_id: int, kind: int) -> Any:
    node = cluster.members[node_id].node
    return node.groups.log if kind == GROUP else node.transactions.log


def kept_in(cluster: SmallCluster, name: str, kind: int = GROUP) -> TopicPartition:
    log = log_of(cluster, a_living(cluster), kind)
    key = log.key(log.partition_of(name))
    assert isinstance(key, TopicPartition)
    return key


async def commit(cluster: SmallCluster, node_id: int, group: str, offset: int, generation: int = -1, member: str = "") -> int:
    partition = offset_commit.OffsetCommitRequestPartition(0, committed_offset=offset, committed_leader_epoch=-1)
    topic = offset_commit.OffsetCommitRequestTopic("orders", partitions=[partition])
    request = offset_commit.OffsetCommitRequest(group, generation, member, topics=[topic])
    answer = await cluster.ask(node_id, request, 8)
    return int(answer.topics[0].partitions[0].error_code)


async def fetched(cluster: SmallCluster, node_id: int, group: str) -> tuple[int, int]:
    """The group's error, and its offset in the one partition."""
    topics = [offset_fetch.OffsetFetchRequestTopics("orders", partition_indexes=[0])]
    request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group, topics=topics)])
    (found,) = (await cluster.ask(node_id, request, 8)).groups
    return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else -1


class Group:
    """A member alone in its group."""

    def __init__(self, cluster: SmallCluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.member = ""
        self.generation = -1

    def join_request(self) -> JoinGroupRequest:
        protocols = [JoinGroupRequestProtocol("range", b"mine")]
        return JoinGroupRequest(self.name, LONG_MS, LONG_MS, self.member, None, "consumer", protocols)

    async def join(self, node_id: int) -> None:
        answer = await self.cluster.ask(node_id, self.join_request(), 3)
        assert answer.error_code == 0
        self.member, self.generation = answer.member_id, answer.generation_id
        assignments = [SyncGroupRequestAssignment(self.member, b"all")]
        request = SyncGroupRequest(self.name, self.generation, self.member, None, "consumer", "range", assignments)
        answer = await self.cluster.ask(node_id, request, 3)
        assert (answer.error_code, bytes(answer.assignment)) == (0, b"all")

    async def heartbeat(self, node_id: int) -> int:
        return int((await self.cluster.ask(node_id, HeartbeatRequest(self.name, self.generation, self.member), 3)).error_code)


class Transactional:
    """A transactional producer."""

    def __init__(self, cluster: SmallCluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.producer_id, self.epoch, self.sequence = -1, -1, 0

    async def coordinator(self) -> int:
        return await coordinator_of(self.cluster, self.name, TRANSACTION)

    async def until_done(self, request: Any, version: int) -> Any:
        """Ask the coordinator, wherever it is, until it has nothing to wait for."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self.cluster.ask(await self.coordinator(), request, version)
                code = getattr(answer, "error_code", 0)
                if code not in (*RETRIABLE, ErrorCode.CONCURRENT_TRANSACTIONS):
                    return answer
                await asyncio.sleep(0.01)

    async def begin(self) -> None:
        answer = await self.until_done(InitProducerIdRequest(self.name, LONG_MS), 4)
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def add(self, *keys: TopicPartition) -> set[int]:
        topics = [AddPartitionsToTxnTopic(key.topic, [key.partition]) for key in keys]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self.cluster.ask(await self.coordinator(), request, 3)
                codes = {
                    one.partition_error_code
                    for topic in answer.results_by_topic_v3_and_below
                    for one in topic.results_by_partition
                }
                if not codes & {*RETRIABLE, ErrorCode.CONCURRENT_TRANSACTIONS}:
                    return codes
                await asyncio.sleep(0.01)

    async def send(
        self, key: TopicPartition, *values: bytes, node_id: int | None = None
    ) -> wire_produce.PartitionProduceResponse:
        records = [Record(index, 1_700_000_000_000, 0, b"key", value) for index, value in enumerate(values)]
        producer = Producer(self.producer_id, self.epoch, self.sequence)
        batch = bytes(build_batch_v2(records, producer=producer, is_transactional=True))
        data = [wire_produce.PartitionProduceData(key.partition, batch)]
        request = wire_produce.ProduceRequest(
            self.name, -1, LONG_MS, [wire_produce.TopicProduceData(key.topic, partition_data=data)]
        )
        answer = only(await self.cluster.ask(node_id or self.cluster.record(key).leader, request, 10))
        if not answer.error_code:
            self.sequence += len(values)
        return answer

    async def end(self, *, is_commit: bool = True) -> int:
        request = EndTxnRequest(self.name, self.producer_id, self.epoch, is_commit)
        return int((await self.until_done(request, 3)).error_code)


class TestGroups:
    def test_a_group_survives_its_coordinator(self, tmp_path: Path) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path) as cluster:
                await cluster.create_topic("orders", [1, 2, 3])
                first = await coordinator_of(cluster, "g")
                group = Group(cluster, "g")
                await group.join(first)
                assert await commit(cluster, first, "g", 7, group.generation, group.member) == 0
                assert await fetched(cluster, first, "g") == (0, 7)
                await cluster.kill(first)
                second = await coordinator_of(cluster, "g")
                assert second != first
                assert await fetched(cluster, second, "g") == (0, 7)
                assert await group.heartbeat(second) == 0, "nobody rebalances"
                assert await commit(cluster, second, "g", 9, group.generation, group.member) == 0
                await cluster.start(first)
                key = kept_in(cluster, "g")
                await cluster.until_isr(key, 1, 2, 3)
                cluster.controller.elect(key, first)
                await cluster.until(lambda: cluster.leads(first, key))
                assert await coordinator_of(cluster, "g") == first
                assert await fetched(cluster, first, "g") == (0, 9)
                assert await group.heartbeat(first) == 0

        run(work())

    def test_who_is_no_coordinator_says_so(self, tmp_path: Path) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path) as cluster:
                await cluster.create_topic("orders", [1, 2, 3])
                there = await coordinator_of(cluster, "g")
                assert await commit(cluster, there, "g", 1) == 0
                for other in {1, 2, 3} - {there}:
                    assert await commit(cluster, other, "g", 2) == ErrorCode.NOT_COORDINATOR
                    assert (await fetched(cluster, other, "g"))[0] == ErrorCode.NOT_COORDINATOR
                    assert (await cluster.ask(other, ListGroupsRequest(), 4)).groups == []
                (listed,) = (await cluster.ask(there, ListGroupsRequest(), 4)).groups
                assert listed.group_id == "g"

        run(work())

    def test_a_new_leader_drops_what_waits_at_the_old_one(self, tmp_path: Path) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path, group_initial_rebalance_delay_ms=60_000) as cluster:
                there = await coordinator_of(cluster, "g")
                group = Group(cluster, "g")
                waiting = asyncio.create_task(cluster.ask(there, group.join_request(), 3))
                groups = cluster.members[there].node.groups
                await cluster.until(lambda: groups.get("g") is not None)
                key = kept_in(cluster, "g")
                cluster.controller.elect(key, next(iter({1, 2, 3} - {there})))
                async with asyncio.timeout(PATIENCE_S):
                    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
                assert groups.get("g") is None and not groups.all()
                assert await group.heartbeat(there) == ErrorCode.NOT_COORDINATOR

        run(work())

    def test_nothing_is_answered_before_it_is_committed(self, tmp_path: Path) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path, replica_lag_time_max_ms=600_000) as cluster:
                await cluster.create_topic("orders", [1, 2, 3])
                there = await coordinator_of(cluster, "g")
                assert await commit(cluster, there, "g", 1) == 0
                others = sorted({1, 2, 3} - {there})
                for other in others:
                    await cluster.kill(other, is_noticed=False)
                log = cluster.members[there].node.groups.log
                log.wanted = log.wanted._replace(commit_timeout_ms=300)
                assert await commit(cluster, there, "g", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert (await fetched(cluster, there, "g"))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE, "it may be lost yet"
                waiting = asyncio.create_task(commit(cluster, there, "g", 3))
                log.wanted = log.wanted._replace(commit_timeout_ms=LONG_MS)
                await asyncio.sleep(0)
                for other in others:
                    await cluster.start(other)
                await waiting
                assert await fetched(cluster, there, "g") == (0, 3)

        run(work())

    def test_a_commit_is_written_once(self, tmp_path: Path) -> None:
        """Also where the short way may not be taken, because other replicas must have the record first."""

        async def work() -> None:
            async with cluster_of(tmp_path) as cluster:
                await cluster.create_topic("orders", [1, 2, 3])
                there = await coordinator_of(cluster, "g")
                log = cluster.members[there].log(kept_in(cluster, "g"))
                for number in range(5):
                    assert await commit(cluster, there, "g", number) == 0
                    assert log.log_end_offset == number + 1
                    assert await fetched(cluster, there, "g") == (0, number)

        run(work())

    @pytest.mark.skipif(not COMPILED, reason="interpreted, there is one way")
    def test_the_only_replica_takes_the_short_way(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path, 1, offsets_topic_replication_factor=1) as cluster:
                await cluster.create_topic("orders", [1])
                there = await coordinator_of(cluster, "g")
                assert await commit(cluster, there, "g", 1) == 0
                assert await fetched(cluster, there, "g") == (0, 1)
                for served in cluster.members[there].server.dispatcher._served.values():
                    monkeypatch.setattr(served, "decode", None)
                assert await commit(cluster, there, "g", 2) == 0
                assert await fetched(cluster, there, "g") == (0, 2)

        run(work())

    def test_many_offsets_that_are_not_committed(self, tmp_path: Path) -> None:
        """A request of so many elements that another thread takes it apart: it is told, or its connection ends, never less."""

        async def work() -> None:
            async with cluster_of(tmp_path, replica_lag_time_max_ms=600_000) as cluster:
                await cluster.create_topic("orders", [1, 2, 3])
                there = await coordinator_of(cluster, "g")
                assert await commit(cluster, there, "g", 1) == 0
                for other in sorted({1, 2, 3} - {there}):
                    await cluster.kill(other, is_noticed=False)
                log = cluster.members[there].node.groups.log
                log.wanted = log.wanted._replace(commit_timeout_ms=300)
                partition = offset_commit.OffsetCommitRequestPartition(0, committed_offset=2, committed_leader_epoch=-1)
                topic = offset_commit.OffsetCommitRequestTopic("orders", partitions=[partition] * 3000)
                with pytest.raises(BrokerUnreachableError):
                    await cluster.ask(there, offset_commit.OffsetCommitRequest("g", topics=[topic]), 8)

        run(work())

    def test_too_few_in_sync_change_nothing(self, tmp_path: Path) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path, min_insync_replicas=2) as cluster:
                await cluster.create_topic("orders", [1, 2, 3])
                there = await coordinator_of(cluster, "g")
                assert await commit(cluster, there, "g", 1) == 0
                others = sorted({1, 2, 3} - {there})
                for other in others:
                    await cluster.kill(other)
                await cluster.until_isr(kept_in(cluster, "g"), there)
                await cluster.until(lambda: commit_code(cluster, there) is ErrorCode.NOT_ENOUGH_REPLICAS)
                assert await commit(cluster, there, "g", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert await fetched(cluster, there, "g") == (0, 1)
                await cluster.start(others[0])
                await cluster.until(lambda: commit_code(cluster, there) is ErrorCode.NONE)
                assert await commit(cluster, there, "g", 3) == 0

        def commit_code(cluster: SmallCluster, there: int) -> ErrorCode:
            member = cluster.members[there]
            return member.node.leadership.check_in_sync(member.log(kept_in(cluster, "g")))

        run(work())

    def test_a_load_of_an_older_epoch_counts_for_nothing(self, tmp_path: Path) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path, 1, offsets_topic_replication_factor=1) as cluster:
                there = await coordinator_of(cluster, "g")
                assert await commit(cluster, there, "g", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                node = cluster.members[there].node
                log, key = node.groups.log, kept_in(cluster, "g")
                loads: list[tuple[Any, Any]] = []
                node.groups.log._core = _Blocked(node, loads)  # type: ignore[assignment]
                epoch = node.leadership.epoch_of(key)
                log.lead(node.manager.logs[key], epoch)
                assert log.readiness(key.partition) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                log.resign(key)
                assert log.readiness(key.partition) is ErrorCode.NOT_COORDINATOR
                log.lead(node.manager.logs[key], epoch)
                (_, first), (_, second) = loads
                first({})
                assert log.readiness(key.partition) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "that was the older one's"
                second({})
                assert log.readiness(key.partition) is ErrorCode.NONE

        run(work())


class _Blocked:
    """A node of which other threads never come to an end."""

    def __init__(self, node: Any, loads: list[tuple[Any, Any]]) -> None:
        self._node = node
        self.blocking = type("Blocking", (), {"run": staticmethod(lambda work, done: loads.append((work, done)))})()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


class TestTransactions:
    @pytest.mark.parametrize("is_commit", [True, False])
    def test_markers_go_to_the_leaders_of_all_partitions(self, tmp_path: Path, is_commit: bool) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path) as cluster:
                await cluster.create_topic("orders", [1, 2, 3], [2, 3, 1], [3, 1, 2])
                keys = [TopicPartition("orders", number) for number in range(3)]
                producer = Transactional(cluster, "t")
                await producer.begin()
                assert await producer.add(*keys) == {0}
                for key in keys:
                    assert (await producer.send(key, b"value")).error_code == 0
                    producer.sequence = 0
                assert [cluster.leader(key).log(key).last_stable_offset for key in keys] == [0, 0, 0]
                assert await producer.end(is_commit=is_commit) == 0
                await cluster.until(lambda: all(cluster.leader(key).log(key).last_stable_offset == 2 for key in keys))
                epochs = set()
                for key in keys:
                    entry = cluster.leader(key).log(key).producer_state.last_entry(producer.producer_id)
                    assert entry is not None
                    epochs.add(entry.coordinator_epoch)
                assert epochs == {cluster.record(kept_in(cluster, "t", TRANSACTION)).leader_epoch}
                await producer.begin()
                assert producer.epoch == 1

        run(work())

    def test_a_decision_is_carried_out_by_the_next_coordinator(self, tmp_path: Path) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path) as cluster:
                producer = Transactional(cluster, "t")
                coordinator = await producer.coordinator()
                one, two = sorted({1, 2, 3} - {coordinator})
                await cluster.create_topic("orders", [one, two, coordinator])
                await producer.begin()
                assert await producer.add(KEY) == {0}
                assert (await producer.send(KEY, b"value")).error_code == 0
                # Its markers do not get through.
                node = cluster.members[coordinator].node
                assert node.peers is not None
                node.peers.close()
                assert await producer.end() == 0
                assert cluster.leader(KEY).log(KEY).last_stable_offset == 0
                await cluster.kill(coordinator)
                await cluster.until(lambda: cluster.leader(KEY).log(KEY).last_stable_offset == 2)
                assert await producer.coordinator() != coordinator
                await producer.begin()
                assert producer.epoch == 1

        run(work())

    def test_what_the_coordinator_does_not_know_is_refused(self, tmp_path: Path) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path) as cluster:
                producer = Transactional(cluster, "t")
                coordinator = await producer.coordinator()
                one, two = sorted({1, 2, 3} - {coordinator})
                await cluster.create_topic("orders", [one, two, coordinator], [two, one, coordinator])
                await producer.begin()
                assert (await producer.send(KEY, b"value")).error_code == ErrorCode.INVALID_TXN_STATE
                other = TopicPartition("orders", 1)
                assert await producer.add(other) == {0}
                assert (await producer.send(KEY, b"value")).error_code == ErrorCode.INVALID_TXN_STATE
                assert (await producer.send(other, b"value")).error_code == 0
                for follower in (two, coordinator):
                    answer = await producer.send(KEY, b"value", node_id=follower)
                    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, (
                        "clients look for the leader then, and only then"
                    )
                assert cluster.leader(KEY).log(KEY).log_end_offset == 0
                peers = cluster.leader(KEY).node.peers
                assert peers is not None
                peers.close()
                assert (await producer.send(KEY, b"value")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "to be tried again"

        run(work())

    def test_a_group_in_a_transaction(self, tmp_path: Path) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path) as cluster:
                await cluster.create_topic("orders", [1, 2, 3])
                producer = Transactional(cluster, "t")
                await producer.begin()
                await coordinator_of(cluster, "g")
                partition = TxnOffsetCommitRequestPartition(0, 5, -1)
                topics = [TxnOffsetCommitRequestTopic("orders", partitions=[partition])]
                request = TxnOffsetCommitRequest("t", "g", producer.producer_id, producer.epoch, topics=topics)

                async def committed() -> int:
                    answer = await cluster.ask(await coordinator_of(cluster, "g"), request, 3)
                    return int(answer.topics[0].partitions[0].error_code)

                assert await committed() == ErrorCode.INVALID_TXN_STATE
                adding = AddOffsetsToTxnRequest("t", producer.producer_id, producer.epoch, "g")
                assert (await producer.until_done(adding, 3)).error_code == 0
                assert await committed() == 0
                assert await fetched(cluster, await coordinator_of(cluster, "g"), "g") == (0, -1)
                # The group's coordinator dies in the middle of the transaction.
                await cluster.kill(await coordinator_of(cluster, "g"))
                assert await producer.end() == 0
                there = await coordinator_of(cluster, "g")
                async with asyncio.timeout(PATIENCE_S):
                    while await fetched(cluster, there, "g") != (0, 5):
                        await asyncio.sleep(0.01)

        run(work())

    def test_a_coordinator_of_an_older_epoch_is_fenced(self, tmp_path: Path) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path) as cluster:
                await cluster.create_topic("orders", [1, 2, 3])
                producer = Transactional(cluster, "t")
                await producer.begin()
                await producer.add(KEY)
                await producer.send(KEY, b"value")

                async def marked(coordinator_epoch: int) -> int:
                    topics = [WritableTxnMarkerTopic("orders", [0])]
                    marker = WritableTxnMarker(producer.producer_id, producer.epoch, True, topics, coordinator_epoch)
                    answer = await cluster.ask(cluster.record(KEY).leader, WriteTxnMarkersRequest([marker]), 1)
                    return int(answer.markers[0].topics[0].partitions[0].error_code)

                assert await marked(7) == 0
                assert await marked(6) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
                assert cluster.leader(KEY).log(KEY).log_end_offset == 2

        run(work())

    def test_no_two_brokers_give_the_same_id(self, tmp_path: Path) -> None:
        async def work() -> None:
            async with cluster_of(tmp_path, 2) as cluster:
                asked = [cluster.ask(node_id, InitProducerIdRequest(None, 60_000), 4) for node_id in (1, 2) * 15]
                ids = [one.producer_id for one in await asyncio.gather(*asked)]
                assert len(set(ids)) == 30 and min(ids) >= 0
                blocks = cluster.controller.image.next_producer_id // 10
                assert blocks <= 6, "who asks meanwhile waits for the same block"

        run(work())


def test_internal_topics_are_made_as_kafka_makes_them(tmp_path: Path) -> None:
    async def work() -> None:
        async with cluster_of(tmp_path) as cluster:
            await coordinator_of(cluster, "g")
            await coordinator_of(cluster, "t", TRANSACTION)
            image = cluster.controller.image
            assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {
                OFFSETS_TOPIC: 3,
                TRANSACTIONS_TOPIC: 3,
            }
            assert image.topic_config(OFFSETS_TOPIC)["cleanup.policy"] == "compact"
            assert {len(one.replicas) for topic in image.topics.values() for one in topic.partitions.values()} == {3}

    run(work())
