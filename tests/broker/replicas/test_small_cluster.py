"""Brokers of a cluster in one process: records are committed when the in-sync replicas have them, whatever happens to brokers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.broker.replicas.small_cluster import LONG_MS, SmallCluster, only
from tidelog.errors import BrokerUnreachableError
from tidelog.metadata.records import PartitionChangeRecord, RemoveTopicRecord, UnfenceBrokerRecord
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Message
from tidelog.wire.messages.alter_partition import AlterPartitionResponse
from tidelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

KEY = TopicPartition("orders", 0)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def same_everywhere(cluster: SmallCluster, key: TopicPartition = KEY) -> bool:
    logs = [member.log(key) for member in cluster.members.values()]
    ends = {log.log_end_offset for log in logs}
    return len(ends) == 1 and len({bytes(log.read(0, 1 << 20).data) for log in logs}) == 1


def test_acks_all_waits_for_the_in_sync_replicas(tmp_path: Path) -> None:
    async def work() -> None:
        async with SmallCluster(tmp_path, 3) as cluster:
            await cluster.create_topic("orders", [1, 2, 3])
            answer = only(await cluster.produce(KEY, b"a", b"b"))
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert [member.log(KEY).log_end_offset for member in cluster.members.values()] == [2, 2, 2]
            assert cluster.members[1].log(KEY).high_watermark == 2
            await cluster.until(lambda: all(member.log(KEY).high_watermark == 2 for member in cluster.members.values()))
            assert same_everywhere(cluster)

    run(work())


def test_a_dead_follower_leaves_and_comes_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with SmallCluster(tmp_path, 3, replica_lag_time_max_ms=300) as cluster:
            await cluster.create_topic("orders", [1, 2, 3])
            await cluster.produce(KEY, b"a")
            await cluster.kill(3, is_noticed=False)
            answer = only(await cluster.produce(KEY, b"b"))
            assert answer.error_code == 0 and 3 not in cluster.record(KEY).isr, "the leader has dropped it"
            await cluster.start(3)
            await cluster.until_isr(KEY, 1, 2, 3)
            assert only(await cluster.produce(KEY, b"c")).base_offset == 2
            await cluster.until(lambda: same_everywhere(cluster))

    run(work())


def test_another_leads_when_the_leader_is_dead(tmp_path: Path) -> None:
    async def work() -> None:
        async with SmallCluster(tmp_path, 3) as cluster:
            await cluster.create_topic("orders", [1, 2, 3])
            await cluster.produce(KEY, b"a")
            await cluster.kill(1)
            await cluster.until(lambda: cluster.leads(2, KEY))
            assert only(await cluster.produce(KEY, b"b")).base_offset == 1
            await cluster.start(1)
            await cluster.until_isr(KEY, 1, 2, 3)
            assert only(await cluster.produce(KEY, b"c")).base_offset == 2
            await cluster.until(lambda: same_everywhere(cluster))
            epochs = [member.log(KEY).leader_epochs.entries for member in cluster.members.values()]
            assert epochs[0] == epochs[1] == epochs[2]

    run(work())


def test_who_does_not_lead_says_who_does(tmp_path: Path) -> None:
    async def work() -> None:
        async with SmallCluster(tmp_path, 2) as cluster:
            await cluster.create_topic("orders", [1, 2])
            response = await cluster.produce(KEY, b"a", node_id=2)
            answer = only(response)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 0)
            (endpoint,) = response.node_endpoints
            assert (endpoint.node_id, endpoint.port, endpoint.rack) == (1, cluster.members[1].port, "rack-1")
            unknown = only(await cluster.produce(TopicPartition("nobody", 0), b"a", node_id=2))
            assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(work())


def test_min_insync_replicas(tmp_path: Path) -> None:
    async def work() -> None:
        async with SmallCluster(tmp_path, 2) as cluster:
            await cluster.create_topic("orders", [1, 2], min_insync_replicas="2")
            assert only(await cluster.produce(KEY, b"a")).error_code == 0
            await cluster.kill(2)
            await cluster.until(lambda: len(cluster.members[1].node.replicas.get(KEY).isr) == 1)  # type: ignore[union-attr]
            refused = only(await cluster.produce(KEY, b"b"))
            assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert only(await cluster.produce(KEY, b"c", acks=1)).base_offset == 1
            assert cluster.members[1].log(KEY).high_watermark == 1, "what too few have is not committed"
            await cluster.start(2)
            await cluster.until(lambda: cluster.members[1].log(KEY).high_watermark == 2)

    run(work())


def test_acks_all_times_out(tmp_path: Path) -> None:
    """The records stay in the log; the follower is still in sync, as far as anybody knows."""

    async def work() -> None:
        async with SmallCluster(tmp_path, 2) as cluster:
            await cluster.create_topic("orders", [1, 2])
            await cluster.kill(2, is_noticed=False)
            answer = only(await cluster.produce(KEY, b"a", timeout_ms=50))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
            assert cluster.members[1].log(KEY).log_end_offset == 1

    run(work())


def test_a_producer_that_waits_hears_of_another_leader(tmp_path: Path) -> None:
    async def work() -> None:
        async with SmallCluster(tmp_path, 3) as cluster:
            await cluster.create_topic("orders", [1, 2, 3])
            await cluster.kill(3, is_noticed=False)
            waiting = asyncio.create_task(cluster.produce(KEY, b"a"))
            await cluster.until(lambda: cluster.members[1].log(KEY).log_end_offset == 1)
            cluster.controller.elect(KEY, 2)
            response = await waiting
            assert only(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert only(response).current_leader.leader_id == 2

    run(work())


def test_a_deleted_topic_is_gone_everywhere(tmp_path: Path) -> None:
    async def work() -> None:
        async with SmallCluster(tmp_path, 2) as cluster:
            await cluster.create_topic("orders", [1, 2])
            await cluster.produce(KEY, b"a")
            cluster.controller.write(RemoveTopicRecord(cluster.controller.image.topics["orders"].topic_id))
            await cluster.until(lambda: all(KEY not in member.manager.logs for member in cluster.members.values()))
            await cluster.create_topic("orders", [2, 1])
            assert only(await cluster.produce(KEY, b"b")).base_offset == 0

    run(work())


def test_delete_records_waits_for_all_replicas(tmp_path: Path) -> None:
    async def work() -> None:
        async with SmallCluster(tmp_path, 2) as cluster:
            await cluster.create_topic("orders", [1, 2])
            for _ in range(3):
                await cluster.produce(KEY, b"a")
            request = DeleteRecordsRequest([DeleteRecordsTopic("orders", [DeleteRecordsPartition(0, 2)])], LONG_MS)
            answer = (await cluster.ask(1, request)).topics[0].partitions[0]
            assert (answer.error_code, answer.low_watermark) == (0, 2)
            assert cluster.members[2].log(KEY).log_start_offset == 2

    run(work())


def test_delete_records_times_out(tmp_path: Path) -> None:
    """A replica that is alive, as far as anybody knows, and does not fetch."""

    async def work() -> None:
        async with SmallCluster(tmp_path, 2) as cluster:
            await cluster.create_topic("orders", [1, 2])
            await cluster.produce(KEY, b"a", b"b")
            await cluster.until(lambda: cluster.members[1].log(KEY).high_watermark == 2)
            await cluster.kill(2, is_noticed=False)
            request = DeleteRecordsRequest([DeleteRecordsTopic("orders", [DeleteRecordsPartition(0, 1)])], 50)
            answer = (await cluster.ask(1, request)).topics[0].partitions[0]
            assert (answer.error_code, answer.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
            waiting = asyncio.create_task(cluster.ask(1, DeleteRecordsRequest(request.topics, LONG_MS)))
            await cluster.until(lambda: KEY in cluster.members[1].node.replicas.deleted)  # type: ignore[union-attr]
            cluster.controller.fence(2)
            answer = (await waiting).topics[0].partitions[0]
            assert (answer.error_code, answer.low_watermark) == (0, 1), "those that are dead do not count"

    run(work())


def consumer_fetch(offset: int, *, rack: str = "", replica_id: int = -1, leader_epoch: int = -1) -> FetchRequest:
    partition = FetchPartition(0, leader_epoch, offset, partition_max_bytes=1 << 20)
    request = FetchRequest(replica_id=replica_id, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, rack_id=rack)
    request.topics = [FetchTopic("orders", partitions=[partition])]
    request.session_epoch = -1
    return request


def test_consumers_read_from_their_rack(tmp_path: Path) -> None:
    async def work() -> None:
        selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        async with SmallCluster(tmp_path, 2, replica_selector_class=selector) as cluster:
            await cluster.create_topic("orders", [1, 2])
            await cluster.produce(KEY, b"a")
            await cluster.until(lambda: cluster.members[2].log(KEY).high_watermark == 1)
            answer = (await cluster.ask(1, consumer_fetch(0, rack="rack-2"), 12)).responses[0].partitions[0]
            assert (answer.error_code, answer.preferred_read_replica, bytes(answer.records)) == (0, 2, b"")
            answer = (await cluster.ask(1, consumer_fetch(0, rack="rack-1"), 12)).responses[0].partitions[0]
            assert answer.preferred_read_replica == -1 and answer.records
            answer = (await cluster.ask(2, consumer_fetch(0, rack="rack-2"), 12)).responses[0].partitions[0]
            assert (answer.error_code, answer.high_watermark) == (0, 1) and answer.records
            old = (await cluster.ask(2, consumer_fetch(0), 10)).responses[0].partitions[0]
            assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "older ones are answered by the leader only"

    run(work())


def test_stale_epochs_and_strangers(tmp_path: Path) -> None:
    async def work() -> None:
        async with SmallCluster(tmp_path, 3) as cluster:
            await cluster.create_topic("orders", [1, 2])
            cluster.controller.elect(KEY, 2)
            await cluster.until(lambda: cluster.leads(2, KEY))

            async def code(node_id: int, **fetch: int) -> ErrorCode:
                answer = await cluster.ask(node_id, consumer_fetch(0, **fetch), 12)  # type: ignore[arg-type]
                return ErrorCode(answer.responses[0].partitions[0].error_code)

            assert await code(2, leader_epoch=0) is ErrorCode.FENCED_LEADER_EPOCH
            assert await code(2, leader_epoch=2) is ErrorCode.UNKNOWN_LEADER_EPOCH
            assert await code(2, leader_epoch=1) is ErrorCode.NONE
            assert await code(2, leader_epoch=1, replica_id=3) is ErrorCode.UNKNOWN_LEADER_EPOCH
            assert await code(2, replica_id=3) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert await code(3, leader_epoch=1) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(work())


def test_a_new_leader_does_not_know_the_latest_offset_at_once(tmp_path: Path) -> None:
    """KIP-207: until it knows that what it has from the leader before is committed."""

    async def work() -> None:
        async with SmallCluster(tmp_path, 3) as cluster:
            await cluster.create_topic("orders", [1, 2, 3])
            await cluster.kill(3, is_noticed=False)
            await cluster.produce(KEY, b"a", acks=1)
            await cluster.until(lambda: cluster.members[2].log(KEY).log_end_offset == 1)
            cluster.controller.elect(KEY, 2)
            await cluster.until(lambda: cluster.leads(2, KEY))

            async def latest(version: int) -> Any:
                wanted = ListOffsetsTopic("orders", [ListOffsetsPartition(0, timestamp=-1)])
                return (await cluster.ask(2, ListOffsetsRequest(-1, 0, [wanted]), version)).topics[0].partitions[0]

            assert (await latest(5)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            assert (await latest(4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
            cluster.controller.fence(3)
            await cluster.until(lambda: cluster.members[2].log(KEY).high_watermark == 1)
            assert (await latest(5)).offset == 1

    run(work())


def test_a_leader_that_has_lost_records_does_not_lead_on(tmp_path: Path) -> None:
    """Its followers would be cut to what it has."""

    async def work() -> None:
        async with SmallCluster(tmp_path, 2) as cluster:
            await cluster.create_topic("orders", [1, 2])
            await cluster.produce(KEY, b"a", b"b")
            replicas = cluster.members[1].node.replicas
            assert replicas is not None
            replicas.on_return(cluster.members[1].log(KEY), has_lost=True)
            assert only(await cluster.produce(KEY, b"c")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            cluster.controller.elect(KEY, 2)
            await cluster.until(lambda: cluster.leads(2, KEY))
            assert only(await cluster.produce(KEY, b"c")).base_offset == 2
            await cluster.until(lambda: same_everywhere(cluster))

    run(work())


def test_a_leader_whose_disk_was_full_over_several_elections(tmp_path: Path) -> None:
    """It is the only one in sync, so that nobody else can be elected; it leads again once its log is back."""

    async def work() -> None:
        async with SmallCluster(tmp_path, 2, replica_lag_time_max_ms=300) as cluster:
            await cluster.create_topic("orders", [1, 2])
            await cluster.produce(KEY, b"a")
            await cluster.kill(2)
            await cluster.until_isr(KEY, 1)
            first = cluster.members[1]
            assert first.node.replicas is not None
            first.log(KEY).go_offline("append", OSError("no"))
            for _ in range(3):
                cluster.controller.elect(KEY, 1)
                epoch = cluster.record(KEY).leader_epoch
                await cluster.until(lambda epoch=epoch: first.plane.image.partition(*KEY).leader_epoch == epoch)  # type: ignore
                assert only(await cluster.produce(KEY, b"b")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            first.node.replicas.on_return(first.manager.bring_online(*KEY), has_lost=False)
            assert only(await cluster.produce(KEY, b"b")).base_offset == 1

    run(work())


def test_in_sync_replicas_are_proposed_until_the_controller_answers(tmp_path: Path) -> None:
    """A controller that does not answer, then one that refuses, then one that agrees."""

    async def work() -> None:
        async with SmallCluster(tmp_path, 2) as cluster:
            await cluster.create_topic("orders", [1, 2])
            await cluster.kill(2)
            plane = cluster.members[1].plane
            answers: list[Any] = [BrokerUnreachableError("nobody"), AlterPartitionResponse(0, ErrorCode.STALE_BROKER_EPOCH)]
            asked = plane.call

            async def call(request: Message, *, timeout_s: float | None = None) -> Any:
                if not answers:
                    return await asked(request)
                answer = answers.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer

            plane.call = call  # type: ignore[method-assign]
            await cluster.start(2)
            await cluster.until_isr(KEY, 1, 2)
            assert not answers and only(await cluster.produce(KEY, b"a")).error_code == 0

    run(work())


def test_who_cannot_write_what_it_leads_knows_it(tmp_path: Path) -> None:
    """Where others could lead it, and until they do."""

    async def work() -> None:
        async with SmallCluster(tmp_path, 3, replica_lag_time_max_ms=600_000) as cluster:
            await cluster.create_topic("orders", [1, 2, 3])
            await cluster.produce(KEY, b"a")
            replicas = {node_id: member.node.replicas for node_id, member in cluster.members.items()}
            assert all(one is not None and one.unwritable(True) is None for one in replicas.values())
            failed = cluster.members[1].log(KEY)
            failed.go_offline("append", OSError("no"))
            assert replicas[1] is not None and replicas[1].unwritable(True) == KEY
            assert replicas[2] is not None and replicas[2].unwritable(False) is None
            cluster.controller.fence(1)
            epoch = cluster.members[1].plane.broker_epoch
            cluster.controller.write(UnfenceBrokerRecord(1, epoch))
            await cluster.until(lambda: cluster.leads(2, KEY) and replicas[1].unwritable(True) is None)  # type: ignore[union-attr]
            assert replicas[1].unwritable(False) == KEY, "it is not well yet"
            assert only(await cluster.produce(KEY, b"b")).base_offset == 1

    run(work())


def test_who_leads_alone_has_nobody_to_leave_it_to(tmp_path: Path) -> None:
    async def work() -> None:
        async with SmallCluster(tmp_path, 2) as cluster:
            await cluster.create_topic("orders", [1])
            cluster.members[1].log(KEY).go_offline("append", OSError("no"))
            replicas = cluster.members[1].node.replicas
            assert replicas is not None and replicas.unwritable(True) is replicas.unwritable(False) is None

    run(work())


def test_a_replica_whose_disk_has_failed_is_not_in_sync(tmp_path: Path) -> None:
    """Though it has all records, and its leader has no more of them: it could not lead."""

    async def work() -> None:
        async with SmallCluster(tmp_path, 3, replica_lag_time_max_ms=300) as cluster:
            await cluster.create_topic("orders", [1, 2, 3])
            await cluster.produce(KEY, b"a")
            await cluster.until(lambda: same_everywhere(cluster))
            third = cluster.members[3]
            assert third.node.fetchers is not None and third.node.replicas is not None
            third.log(KEY).go_offline("append", OSError("no"))
            await cluster.until(lambda: third.node.fetchers.partition(KEY) is None)  # type: ignore[union-attr]
            for leader in (1, 2):
                cluster.controller.elect(KEY, leader) if leader == 2 else cluster.controller.fence(3)
                cluster.controller.write(UnfenceBrokerRecord(3, third.plane.broker_epoch))
                epoch = cluster.record(KEY).partition_epoch
                await cluster.until(lambda epoch=epoch: third.node.replicas.get(KEY).partition_epoch >= epoch)  # type: ignore
                assert third.node.fetchers.partition(KEY) is None, "whatever the metadata says"
            assert only(await cluster.produce(KEY, b"b", node_id=2)).base_offset == 1
            assert 3 not in cluster.record(KEY).isr
            await cluster.until_isr(KEY, 1, 2)

    run(work())


def test_where_a_replica_is_counts_once_its_log_is_open(tmp_path: Path) -> None:
    """Of each of this broker's, when it comes and when its record changes; not while its disk fails."""
    here, there = uuid.uuid4(), uuid.uuid4()

    async def work() -> None:
        async with SmallCluster(tmp_path, 2) as cluster:
            member = cluster.members[1]
            replicas, noted = member.node.replicas, list[tuple[uuid.UUID, list[uuid.UUID]]]()
            assert replicas is not None
            replicas.on_placed = lambda topic_id, record: noted.append((topic_id, record.directories))

            async def assigned(*directories: uuid.UUID) -> None:
                cluster.controller.write(PartitionChangeRecord(0, topic_id, directories=list(directories)))
                epoch = cluster.record(KEY).partition_epoch
                await cluster.until(lambda: replicas.get(KEY).partition_epoch >= epoch)  # type: ignore[union-attr]

            await cluster.create_topic("others", [2])
            await cluster.create_topic("orders", [1, 2])
            topic_id = cluster.controller.image.topics["orders"].topic_id
            assert {one for one, _ in noted} == {topic_id}
            await assigned(here, there)
            assert noted[-1] == (topic_id, [here, there])
            member.log(KEY).go_offline("append", OSError("no"))
            noted.clear()
            await assigned(there, here)
            assert not noted

    run(work())
