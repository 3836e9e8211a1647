"""Time in a real cluster, one broker of Kafka's and one of ours: who answers, whose clock counts, what moves with a replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic  # type: ignore[attr-defined]

from tests.broker.raw import RawClient
from tests.kafka.clients import make_topics, metadata
from tests.kafka.clusters import KafkaCluster
from tests.kafka.java import wait_until
from tests.kafka.members import TidelogMember
from tests.kafka.shifted_clock import ShiftedClock
from tests.patience import PATIENCE_S
from tidelog.clock import SystemClock
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages import alter_partition_reassignments as moves
from tidelog.wire.messages import elect_leaders as elections
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

THEIRS, OURS = 1, 2
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LATEST, EARLIEST, LARGEST = -1, -2, -3
CONSUMER, DEBUGGER = -1, -2
QUIET = {"log_level": 0}
PROPERTIES = {
    "broker.session.timeout.ms": "30000",
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}


class Cluster:
    """A controller and two brokers. `clock` is that of ours."""

    def __init__(self, folder: Path) -> None:
        self.kafka = KafkaCluster(folder, properties=PROPERTIES)
        self.kafka.__enter__()
        self.clock = ShiftedClock(folder / "clock")
        self.theirs = self.kafka.broker(THEIRS)
        self.ours = TidelogMember(self.kafka, OURS)
        self.ours.program = self.clock.arguments
        self.ours.start()
        self.bootstrap = f"{self.theirs.bootstrap},{self.ours.bootstrap}"
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})

    def close(self) -> None:
        self.ours.kill()
        self.kafka.kill()

    def address(self, node_id: int) -> tuple[str, int]:
        return "127.0.0.1", (self.ours if node_id == OURS else self.theirs).port

    def folder(self, node_id: int, topic: str, partition: int = 0) -> Path:
        return (self.ours if node_id == OURS else self.theirs).data / f"{topic}-{partition}"

    def create(self, name: str, *replicas: list[int], **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        make_topics(self.bootstrap, [NewTopic(name, len(replicas), replica_assignment=list(replicas), config=settings)])
        self.wait(name, lambda number, leader, isr: leader == replicas[number][0] and isr == set(replicas[number]))

    def wait(self, topic: str, condition: Callable[[int, int, set[int]], bool]) -> None:
        """Wait until both brokers say so of each partition: its number, leader and in-sync replicas."""
        admins = [AdminClient({"bootstrap.servers": one, **QUIET}) for one in self.bootstrap.split(",")]

        def is_so() -> bool:
            seen = [metadata(admin, topic).topics[topic].partitions.values() for admin in admins]
            return all(one and all(condition(part.id, part.leader, set(part.isrs)) for part in one) for one in seen)

        wait_until(is_so, topic, PATIENCE_S)

    def produce(self, topic: str, partition: int, value: bytes, time_ms: int | None = None) -> tuple[int, int]:
        """Append a record, and return its offset and timestamp as they were acknowledged."""
        done: list[Message] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", **QUIET})
        times = {} if time_ms is None else {"timestamp": time_ms}
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, message: done.append(message), **times)
        assert producer.flush(PATIENCE_S) == 0
        (message,) = done
        assert message.error() is None
        return message.offset() or 0, message.timestamp()[1]

    def ask(self, node_id: int, topic: str, partition: int, time_ms: int, replica_id: int = CONSUMER) -> tuple[int, int, int]:
        """Error, offset and timestamp that a broker answers."""
        request = ListOffsetsRequest(replica_id, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, time_ms)])])
        with RawClient(self.address(node_id)) as client:
            (answer,) = client.ask(request, 7).topics[0].partitions
        return answer.error_code, answer.offset, answer.timestamp

    def wait_for_leader(self, topic: str, leader: int) -> None:
        """Wait until it leads all partitions: the other broker need not run."""

        def is_so() -> bool:
            found = metadata(self.admin, topic).topics[topic].partitions.values()
            return {one.leader for one in found} == {leader}

        wait_until(is_so, f"{leader} to lead {topic}", PATIENCE_S)

    def move(self, topic: str, *replicas: list[int]) -> None:
        """Have these replicas; the first ones lead."""
        wanted = [moves.ReassignablePartition(number, ids) for number, ids in enumerate(replicas)]
        preferred = [elections.TopicPartitions(topic, list(range(len(replicas))))]
        with RawClient(self.address(OURS)) as client:
            request = moves.AlterPartitionReassignmentsRequest(topics=[moves.ReassignableTopic(topic, wanted)])
            assert client.ask(request, 0).error_code == 0
            self.wait(topic, lambda number, leader, isr: isr == set(replicas[number]))
            client.ask(elections.ElectLeadersRequest(0, preferred), 2)
        self.wait(topic, lambda number, leader, isr: leader == replicas[number][0])

    def coordinate_at(self, node_id: int) -> None:
        """Have all groups coordinated there."""
        with RawClient(self.address(OURS)) as client:
            wait_until(lambda: not client.ask(FindCoordinatorRequest("any"), 1).error_code, "a coordinator", PATIENCE_S)
        self.move("__consumer_offsets", [node_id], [node_id])

    def state(self, topic: str) -> list[tuple[int, int, list[int]]]:
        """Leader, leader epoch and in-sync replicas of each partition."""
        with RawClient(self.address(OURS)) as client:
            (found,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
        return [(one.leader_id, one.leader_epoch, sorted(one.isr_nodes)) for one in found.partitions]

    def read(self, topic: str, offset: int) -> list[bytes]:
        """Read a partition from there to its end."""
        settings = {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **settings, **QUIET})
        consumer.assign([TopicPartition(topic, 0, offset)])
        values = []
        while (message := consumer.poll(PATIENCE_S)) is not None and not message.error():
            values.append(message.value() or b"")
        consumer.close()
        return values

    def configure(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("times"))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(autouse=True)
def _by_the_machines_clock(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.clock.set(0)


def now_ms() -> int:
    return SystemClock().now_ms()


def test_the_leader_answers_for_times(cluster: Cluster) -> None:
    """LOOK-4 to LOOK-6: a leader, a follower and a broker without a replica, in turn; ours answers as Kafka's."""
    cluster.create("asked", [THEIRS, OURS], [OURS, THEIRS])
    cluster.create("alone", [THEIRS], [OURS])
    base = now_ms() - DAY_MS
    for topic in ("asked", "alone"):
        for partition in range(2):
            for number in range(3):
                cluster.produce(topic, partition, b"%d" % number, base + number * 10)
    not_here = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1
    expected = {base + 5: (0, 1, base + 10), LATEST: (0, 3, -1), EARLIEST: (0, 0, -1), LARGEST: (0, 2, base + 20)}
    for node_id, partition in ((OURS, 0), (THEIRS, 1)):  # Followers learn with their next fetch what is committed.
        wait_until(
            lambda: cluster.ask(node_id, "asked", partition, LATEST, DEBUGGER) == expected[LATEST],  # noqa: B023
            "what the followers know",
            PATIENCE_S,
        )
    for time_ms, answer in expected.items():
        for partition, leader, other in ((0, THEIRS, OURS), (1, OURS, THEIRS)):
            for topic in ("asked", "alone"):
                assert cluster.ask(leader, topic, partition, time_ms) == answer
                assert cluster.ask(other, topic, partition, time_ms) == not_here
            assert cluster.ask(other, "asked", partition, time_ms, DEBUGGER) == answer
            assert cluster.ask(other, "alone", partition, time_ms, DEBUGGER) == not_here
            assert cluster.ask(other, "asked", 9, time_ms)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_new_leader_whose_clock_is_slow(cluster: Cluster) -> None:
    """KIP32-17 to KIP32-22, with both kinds of brokers: broker 0 gives a time and ends, broker 1 is an hour behind it.

    Ours goes on with the last time; Kafka's takes its own clock, and times go back. Searches are right on both logs.
    """
    cluster.create("appended", [THEIRS, OURS], [OURS, THEIRS], message_timestamp_type="LogAppendTime")
    _, t0 = cluster.produce("appended", 0, b"m0")
    cluster.clock.set(-HOUR_MS)
    cluster.theirs.stop()
    cluster.wait_for_leader("appended", OURS)
    assert cluster.produce("appended", 0, b"m1") == (1, t0), "the later of its clock and the last time"
    cluster.clock.set(HOUR_MS)
    _, ahead = cluster.produce("appended", 0, b"m2")
    assert ahead > t0 + HOUR_MS // 2, "its own clock has passed it"
    cluster.theirs.start()
    cluster.wait("appended", lambda number, leader, isr: len(isr) == 2)

    assert cluster.ours.stop() == 0
    cluster.wait_for_leader("appended", THEIRS)
    offset, behind = cluster.produce("appended", 0, b"m3")
    assert offset == 3 and t0 < behind < ahead
    cluster.clock.set(0)
    cluster.ours.start()
    cluster.wait("appended", lambda number, leader, isr: len(isr) == 2)
    times = [t0, t0, ahead, behind]
    logs = [cluster.folder(node_id, "appended") / f"{0:020}.log" for node_id in (THEIRS, OURS)]
    wait_until(lambda: logs[0].read_bytes() == logs[1].read_bytes(), "followers keep the leader's bytes", PATIENCE_S)
    for leader in (THEIRS, OURS):
        cluster.move("appended", [leader, THEIRS + OURS - leader], [leader, THEIRS + OURS - leader])
        for asked in (t0, t0 + 1, behind, behind + 1, ahead, ahead + 1):
            first = next(((0, number, one) for number, one in enumerate(times) if one >= asked), (0, -1, -1))
            wait_until(
                lambda asked=asked, leader=leader, first=first: cluster.ask(leader, "appended", 0, asked) == first, f"{asked}"
            )
    cluster.clock.set(-HOUR_MS)
    assert cluster.produce("appended", 0, b"m4") == (4, behind), "the last time in the log, whoever gave it"


def test_a_replica_that_moves_keeps_its_times(cluster: Cluster) -> None:
    """KIP33-2 to KIP33-4: its files are new, and search, rolling and retention go by its records; as Kafka's."""
    cluster.create("moved", [THEIRS], [OURS], segment_bytes="1000", retention_ms="-1")
    base, padding = now_ms() - 10 * DAY_MS, b"x" * 400
    times = [base + number * DAY_MS for number in range(9)]
    for partition in range(2):
        for time_ms in times:
            cluster.produce("moved", partition, padding, time_ms)
    asked = [base - 1, *(time_ms + 1 for time_ms in times), LATEST, EARLIEST, LARGEST]
    before = {(number, one): cluster.ask((THEIRS, OURS)[number], "moved", number, one) for number in range(2) for one in asked}
    assert [answer for (number, _), answer in before.items() if number == 0] == [
        answer for (number, _), answer in before.items() if number == 1
    ]
    cluster.move("moved", [OURS], [THEIRS])
    for (number, one), answer in before.items():
        assert cluster.ask((OURS, THEIRS)[number], "moved", number, one) == answer
    # The active segment's first record is days old: once the change is there, a record of today rolls it, though the file is new.
    cluster.configure("moved", "segment.bytes", "1000000")
    cluster.configure("moved", "segment.ms", str(DAY_MS))
    for number, node_id in ((0, OURS), (1, THEIRS)):

        def is_rolled(number: int = number, node_id: int = node_id) -> bool:
            cluster.produce("moved", number, padding)
            return any(int(path.stem) >= len(times) for path in cluster.folder(node_id, "moved", number).glob("*.log"))

        wait_until(is_rolled, f"a segment of its own for what is of today at broker {node_id}", PATIENCE_S)
    # Segments of two records: what is older than five days and a half is deleted as a whole.
    cluster.configure("moved", "retention.ms", str(11 * DAY_MS // 2))
    starts = {}
    for number, node_id in ((0, OURS), (1, THEIRS)):
        wait_until(lambda: cluster.ask(node_id, "moved", number, EARLIEST)[1] > 0, "old records to be deleted", PATIENCE_S)  # noqa: B023
        starts[node_id] = cluster.ask(node_id, "moved", number, EARLIEST)
    assert starts[OURS] == starts[THEIRS] == (0, 4, -1)
    assert cluster.ask(OURS, "moved", 0, base) == cluster.ask(THEIRS, "moved", 1, base) == (0, 4, times[4])


def test_a_consumer_that_goes_on_in_another_cluster(cluster: Cluster) -> None:
    """KIP33-74 to KIP33-80, by the text's own case: a topic of each broker for the two clusters, and back.

    m1 is made at 0 s and m2 at 10 s. Cluster 1 gets them at 1 s and 11 s, cluster 2 at 31 s and 21 s. Who read m2 at one of them
    goes on at the other by a time.
    """
    base = now_ms() - DAY_MS
    made, one, two = {b"m1": 0, b"m2": 10}, {b"m1": 1, b"m2": 11}, {b"m1": 31, b"m2": 21}
    latency_s = max(max(one[name] - at, two[name] - at) for name, at in made.items())
    for first, second in ((THEIRS, OURS), (OURS, THEIRS)):
        topics = {first: f"cluster-1-{first}", second: f"cluster-2-{first}"}
        for node_id, arrivals in ((first, one), (second, two)):
            cluster.create(topics[node_id], [node_id])
            for name in sorted(arrivals, key=arrivals.__getitem__):
                cluster.produce(topics[node_id], 0, name, base + made[name] * 1000)

        def read_after(node_id: int, seconds: float, topics: dict[int, str] = topics) -> list[bytes]:
            """What is read there from the first record of that time or later."""
            code, offset, _ = cluster.ask(node_id, topics[node_id], 0, base + int(seconds * 1000))
            assert code == 0
            return cluster.read(topics[node_id], offset)

        assert read_after(second, 10) == [b"m2", b"m1"], "from 1 to 2 by m2's time: nothing is missed, m2 is read twice"
        assert read_after(first, 10) == [b"m2"], "from 2 to 1 by m2's time: m1 is missed"
        assert read_after(first, 10 - latency_s) == [b"m1", b"m2"], "the largest latency is subtracted"
        assert read_after(second, 10 - latency_s) == [b"m2", b"m1"]


def test_clocks_that_jump(cluster: Cluster) -> None:
    """Ours leads, and coordinates a group, while its clock is set an hour ahead and an hour back: nobody loses anything by it."""
    cluster.create("steady", [OURS, THEIRS], message_timestamp_type="LogAppendTime")
    cluster.coordinate_at(OURS)
    lost: list[Any] = []
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "steady", "auto.offset.reset": "earliest", **QUIET})
    reader.subscribe(["steady"], on_revoke=lambda _, partitions: lost.append(partitions))
    before = cluster.state("steady")
    offsets, times = [], []
    for shift_ms in (0, HOUR_MS, 0, -HOUR_MS, 0):
        cluster.clock.set(shift_ms)
        for _ in range(15):
            offset, time_ms = cluster.produce("steady", 0, b"x")
            offsets.append(offset)
            times.append(time_ms)
            message = reader.poll(PATIENCE_S)
            assert message is not None and message.error() is None and message.offset() == offset
            reader.commit(message, asynchronous=False)
    assert lost == []
    reader.close()
    assert offsets == list(range(75))
    assert times == sorted(times) and times[15] - times[14] > HOUR_MS // 2, "append times follow the clock, and never go back"
    assert cluster.state("steady") == before, "leader, epoch and in-sync replicas"
    assert "is fenced" not in cluster.ours.said().rpartition("is RUNNING")[2]
