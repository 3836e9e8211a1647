"""A metadata plane of ours under controllers of Apache Kafka: what it replays is what they say, whatever becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.interop.gate import first_of
from tests.kafka.clients import make_topics, metadata
from tests.kafka.clusters import KafkaCluster
from tests.kafka.java import free_port, wait_until
from tests.kafka.members import TidelogMember
from tests.patience import PATIENCE_S
from tidelog.broker.cluster.kraft.kraft_plane import KraftPlane
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.errors import BrokerUnreachableError, InvalidArgumentError
from tidelog.metadata.directory_ids import directory_of
from tidelog.storage.folder.data_folder import new_topic_id
from tidelog.storage.folder.meta_properties import read_meta_properties
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.headers import read_response, request_chunks
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

SMALL_LOG = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.log.segment.min.bytes": "1024",
    "metadata.log.segment.bytes": "32768",
    "metadata.max.retention.bytes": "32768",
}
"""So that the log soon begins after a snapshot; 4.2 takes no segments of less than 8 MiB."""


@pytest.fixture(
    scope="module", params=first_of("3.9.1", "4.2.0", why="controllers of 4.2: test_cluster_admin, test_metadata_rounds")
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three controllers, and a broker of Kafka's. Snapshots come often."""
    folder = tmp_path_factory.mktemp("cluster")
    properties = SMALL_LOG if request.param == "3.9.1" else {}
    with KafkaCluster(folder, controllers=3, release=request.param, properties=properties) as running:
        running.broker(1)
        for some in range(5 if properties else 0):
            create(running, *(f"many-{some}-{number}" for number in range(50)))
        yield running


@contextlib.asynccontextmanager
async def plane_of(
    cluster: KafkaCluster, folder: Path, node_id: int = 9, *, by_bootstrap: bool = False, **given: str
) -> AsyncIterator[KraftPlane]:
    properties = cluster.member_properties(node_id, free_port(), folder)
    if by_bootstrap:
        voters = properties.pop("controller.quorum.voters")
        properties["controller.quorum.bootstrap.servers"] = voters.split(",")[0].partition("@")[2]
    config = BrokerConfig.from_properties({**properties, **{name.replace("_", "."): value for name, value in given.items()}})
    assert config.cluster is not None
    plane = KraftPlane(
        config.cluster,
        cluster_id=given.get("cluster_id", cluster.cluster_id),
        directory_id=new_topic_id(),
        data_dir=folder,
        listeners=config.listeners,
        rack=None,
    )
    try:
        yield plane
    finally:
        await plane.stop()


async def until(plane: KraftPlane, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            if plane.failure.done():
                plane.failure.result()
            await asyncio.sleep(0.01)


async def caught_up(plane: KraftPlane) -> None:
    """Registered, and fenced: clients find no address of it, where nobody listens."""
    plane.start()
    await until(plane, plane.lifecycle.caught_up.done)


async def unfenced(plane: KraftPlane) -> None:
    if plane.lifecycle.state is None:
        await caught_up(plane)
    plane.lifecycle.ready_to_unfence()
    await until(plane, plane.lifecycle.unfenced.done)


def create(cluster: KafkaCluster, *names: str, partitions: int = 3) -> None:
    topics = [NewTopic(name, partitions, 1, config={"retention.ms": "1234"}) for name in names]
    make_topics(cluster.brokers[1].bootstrap, topics)


def check_topics(cluster: KafkaCluster, plane: KraftPlane) -> None:
    """What was replayed is what a broker of Kafka's answers, as soon as that one has replayed it, too."""
    admin = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap, "log_level": 0})

    def theirs() -> dict[str, set[object]]:
        topics = metadata(admin).topics
        return {
            name: {(p.id, p.leader, tuple(p.replicas), tuple(p.isrs)) for p in topic.partitions.values()}
            for name, topic in topics.items()
        }

    def ours() -> dict[str, set[object]]:
        return {
            name: {(number, one.leader, tuple(one.replicas), tuple(one.isr)) for number, one in topic.partitions.items()}
            for name, topic in plane.image.topics.items()
        }

    wait_until(lambda: theirs() == ours(), "both to have the same metadata", PATIENCE_S)


def test_the_leader_of_the_controllers_dies(cluster: KafkaCluster, tmp_path: Path) -> None:
    async def go() -> None:
        async with plane_of(cluster, tmp_path) as plane:
            await caught_up(plane)
            before = plane._quorum.leader_id
            (leader,) = (one for one in cluster.controllers if one.node_id == before)
            request = CreateTopicsRequest([CreatableTopic("forwarded", 1, 1)])
            frame = b"".join(request_chunks(request, 5, 7, "an admin"))[4:]
            forwarding = asyncio.create_task(
                plane.forward(frame, client_host="127.0.0.1", principal=("User", "ANONYMOUS"), timeout_s=PATIENCE_S)
            )
            await asyncio.to_thread(leader.kill)
            ids = await plane.producer_ids()
            assert len(ids) == 1000, "asked of the next one"
            correlation_id, answer = read_response(CreateTopicsResponse, 5, memoryview(await forwarding))
            # The former one may have done it without an answer.
            assert correlation_id == 7 and answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            await until(plane, lambda: "forwarded" in plane.image.topics)
            assert plane._quorum.leader_id != before
            await asyncio.to_thread(leader.start)
            await asyncio.to_thread(create, cluster, "failover")
            await until(plane, lambda: "failover" in plane.image.topics)
            # One that does not answer, and whose connections stay.
            before = plane._quorum.leader_id
            (leader,) = (one for one in cluster.controllers if one.node_id == before)
            leader.pause()
            try:
                await plane.producer_ids()
                assert plane._quorum.leader_id != before
            finally:
                leader.go_on()
            await asyncio.to_thread(check_topics, cluster, plane)

    asyncio.run(go())


def test_a_node_id_that_is_taken(cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker waits, as the other may just have ended, and ends with that reason once its time is up."""
    taken = "another broker with node.id=1 is running"

    async def go() -> None:
        async with plane_of(
            cluster, tmp_path, node_id=1, initial_broker_registration_timeout_ms=str(2_000 * PATIENCE_S)
        ) as plane:
            plane.start()
            await until(plane, lambda: taken in plane.lifecycle.waits_for)
            monkeypatch.setattr("tidelog.broker.cluster.kraft.broker_lifecycle.monotonic", lambda: float("inf"))
            with pytest.raises(BrokerUnreachableError, match=re.escape(taken)):
                await until(plane, plane.lifecycle.caught_up.done)

    asyncio.run(go())


def test_controllers_of_another_cluster(cluster: KafkaCluster, tmp_path: Path) -> None:
    async def go() -> None:
        async with plane_of(cluster, tmp_path, cluster_id="AAAAAAAAQQCQAAAAAAAAAg") as plane:
            with pytest.raises(InvalidArgumentError, match="a different cluster"):
                await unfenced(plane)

    asyncio.run(go())


def test_a_life_in_a_cluster(cluster: KafkaCluster, tmp_path: Path) -> None:
    async def go() -> None:
        async with plane_of(cluster, tmp_path) as plane:
            await caught_up(plane)
            assert plane.is_alive(1)
            assert plane.endpoint(1) == ("127.0.0.1", cluster.brokers[1].port)
            await asyncio.to_thread(create, cluster, "orders")
            await until(plane, lambda: "orders" in plane.image.topics)
            assert plane.image.topic_config("orders")["retention.ms"] == "1234"
            await asyncio.to_thread(check_topics, cluster, plane)
            first, second = await plane.producer_ids(), await plane.producer_ids()
            assert len(first) == len(second) == 1000
            assert not set(first) & set(second)
            await unfenced(plane)
            assert await plane.lifecycle.shut_down_controlled(PATIENCE_S)

    asyncio.run(go())


def test_a_member_whose_disk_was_replaced(cluster: KafkaCluster, tmp_path: Path) -> None:
    """What it had, what it got meanwhile, and what is of an internal topic is assigned to the new folder: it leads again."""
    member = TidelogMember(cluster, 2)
    admin = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap, "log_level": 0})
    topics = ("replaced", "__consumer_offsets", "meanwhile")

    def created(name: str, *assignment: list[int]) -> None:
        make_topics(cluster.brokers[1].bootstrap, [NewTopic(name, len(assignment), replica_assignment=list(assignment))])

    def leaders_and_replicas() -> list[tuple[int, list[int], list[int]]]:
        found = metadata(admin).topics
        return [(p.leader, p.replicas, sorted(p.isrs)) for name in topics for p in found[name].partitions.values()]

    async def assigned_to(folder: uuid.UUID | None) -> None:
        async with plane_of(cluster, tmp_path) as plane:
            await caught_up(plane)
            partitions = [one for name in topics for one in plane.image.topics[name].partitions.values()]
            await until(plane, lambda: all(directory_of(one, 2) == folder for one in partitions))

    try:
        member.start()
        created("replaced", [2, 1], [1, 2])
        created("__consumer_offsets", [2, 1], [1, 2])
        assert member.stop() == 0
        created("meanwhile", [1, 2])
        shutil.rmtree(member.data)
        cluster.format(member.data, 2)
        member.start()
        wait_until(lambda: all(isr == [1, 2] for _, _, isr in leaders_and_replicas()), "2 to be in sync", PATIENCE_S)
        owner = read_meta_properties(member.data)
        assert owner is not None
        asyncio.run(assigned_to(owner.directory_uuid))
        admin.elect_leaders(ElectionType.PREFERRED).result(PATIENCE_S)
        wait_until(lambda: all(leader == of[0] for leader, of, _ in leaders_and_replicas()), "preferred leaders", PATIENCE_S)
    finally:
        member.kill()


def test_a_snapshot_and_the_log_after_it(cluster: KafkaCluster, tmp_path: Path) -> None:
    """Kafka looks once a minute which part of the log its snapshots make needless."""
    if cluster.release != "3.9.1":
        pytest.skip("the log keeps its beginning")
    logs = [one.data / "__cluster_metadata-0" for one in cluster.controllers]
    is_shorter = lambda: all(not (log / f"{0:020}.log").exists() for log in logs)  # noqa: E731
    wait_until(is_shorter, "the controllers to drop the log's beginning", 60 + PATIENCE_S)

    async def go() -> None:
        async with plane_of(cluster, tmp_path, by_bootstrap=True) as plane:
            await caught_up(plane)
            await asyncio.to_thread(create, cluster, "after")
            await until(plane, lambda: "after" in plane.image.topics)
            await asyncio.to_thread(check_topics, cluster, plane)

    asyncio.run(go())
    assert list(tmp_path.glob("__cluster_metadata-0/*.checkpoint")), "it began with a snapshot"
