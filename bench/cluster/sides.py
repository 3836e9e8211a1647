"""The two sides that are compared: three brokers of each kind, all in one cluster of Apache Kafka's controllers.

Each side's topics have all of their replicas on its own brokers, so an idle side costs only its heartbeats. The times of events
are read from the controllers' log, whose clock is the same for both sides.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from confluent_kafka.admin import AdminClient, NewTopic
from tests.kafka.clients import make_topics
from tests.kafka.clusters import KafkaCluster, KafkaNode
from tests.kafka.java import free_port, wait_until
from tests.kafka.tidelog_node import TidelogNode

from bench.broker.peers import KAFKA_OPTIONS
from bench.broker.prober import exactly
from bench.broker.processor_time import own_seconds
from bench.broker.requests import frame, metadata_request
from tidelog.metadata.batches import ValueReader
from tidelog.metadata.frame import UnknownRecord, decode_record
from tidelog.metadata.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from tidelog.records.batch import iter_headers
from tidelog.wire.codec import Message
from tidelog.wire.headers import read_response
from tidelog.wire.messages.metadata import MetadataResponse, MetadataResponsePartition

M = TypeVar("M", bound=Message)
Node = KafkaNode | TidelogNode

KAFKA, TIDELOG = "kafka", "tidelog"
FIRST_ID = {KAFKA: 11, TIDELOG: 1}
BROKERS = 3
PATIENCE_S = 120
METADATA_VERSION = 12
FENCED, UNFENCED = 1, -1

PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "log.segment.delete.delay.ms": "0",
    "log.retention.ms": "-1",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Leaders must stay on the brokers on which a case has placed them.
    "auto.leader.rebalance.enable": "false",
}


class Side:
    """Three brokers of one kind."""

    def __init__(self, name: str, cluster: KafkaCluster) -> None:
        self.name = name
        self.cluster = cluster
        self.ids = list(range(FIRST_ID[name], FIRST_ID[name] + BROKERS))
        self.nodes: dict[int, Node] = {node_id: self._made(node_id) for node_id in self.ids}

    def _made(self, node_id: int) -> Node:
        if self.name == TIDELOG:
            return TidelogNode(self.cluster, node_id)
        folder = self.cluster.folder / f"broker-{node_id}"
        port = free_port()
        properties = self.cluster.member_properties(node_id, port, folder / "data")
        node = KafkaNode("3.9.1", folder, node_id, port, properties, 1024, options=KAFKA_OPTIONS)
        self.cluster.format(node.data, node_id)
        return node

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def first(self) -> Node:
        return self.nodes[self.ids[0]]

    def cpu_seconds(self) -> float:
        """Processor time that the three processes have used, user and system."""
        return sum(own_seconds(node.process.pid) for node in self.nodes.values() if node.process is not None)

    # --- topics

    def create(self, topic: str, assignment: list[list[int]], config: Mapping[str, str] | None = None) -> None:
        """Create a topic. `assignment` lists the brokers of each partition by their index in the side: 0, 1, 2."""
        brokers = [[self.ids[place] for place in places] for places in assignment]
        wanted = NewTopic(topic, len(brokers), replica_assignment=brokers, config=dict(config or {}))
        make_topics(self.bootstrap, [wanted])
        wait_until(lambda: self.in_sync(topic, len(brokers)) == len(assignment[0]), f"replicas of {topic}", PATIENCE_S)

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until its folders are gone."""
        admin = self.admin()
        admin.delete_topics([topic], request_timeout=PATIENCE_S)[topic].result(PATIENCE_S)
        nodes = self.nodes.values()
        wait_until(lambda: not any(any(one.data.glob(f"{topic}-*")) for one in nodes), f"{topic} to go", PATIENCE_S)

    def admin(self) -> AdminClient:
        """Return a separate admin client, which must live as long as the futures that it returns."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def partitions(self, topic: str, node: Node | None = None) -> list[MetadataResponsePartition]:
        """Return a topic's metadata from a broker, by default the first one."""
        answer = ask(node or self.first, metadata_request([topic]), METADATA_VERSION, MetadataResponse)
        return answer.topics[0].partitions

    def in_sync(self, topic: str, partitions: int) -> int:
        """Return the smallest number of in-sync replicas of any partition; 0 while not all have leaders."""
        try:
            known = self.partitions(topic)
        except OSError:
            return 0
        is_led = len(known) == partitions and all(one.leader_id >= 0 for one in known)
        return min(len(one.isr_nodes) for one in known) if is_led else 0

    # --- from the controllers' log

    def registered(self, node_id: int) -> tuple[int, int]:
        """Return the times (epoch ms) at which a broker's newest registration, and its first unfencing after that, were
        written.
        """
        registered, unfenced = -1, -1
        for timestamp, record in self._metadata():
            if isinstance(record, RegisterBrokerRecord) and record.broker_id == node_id:
                registered, unfenced = timestamp, -1
            elif _fences(record, node_id, UNFENCED) and unfenced < 0:
                unfenced = timestamp
        return registered, unfenced

    def fenced_ms(self, node_id: int, since_ms: int) -> int:
        """Return the time (epoch ms) at which a broker was first fenced after `since_ms`, which also moves its leaders;
        -1 if it was not.
        """
        times = (at for at, record in self._metadata() if at >= since_ms and _fences(record, node_id, FENCED))
        return next(times, -1)

    def _metadata(self) -> Iterator[tuple[int, Message | UnknownRecord]]:
        values = ValueReader()
        for path in sorted(self.cluster.controllers[0].data.glob("__cluster_metadata-0/*.log")):
            data = path.read_bytes()
            for header in iter_headers(data):
                if not header.is_control:
                    for value in values.values(header, memoryview(data)[header.position : header.end_position]):
                        yield header.max_timestamp, decode_record(bytes(value))


def _fences(record: Message | UnknownRecord, node_id: int, how: int) -> bool:
    return isinstance(record, BrokerRegistrationChangeRecord) and (record.broker_id, record.fenced) == (node_id, how)


def ask(node: Node, message: Message, version: int, response: type[M]) -> M:
    """Send a request to a broker on a separate connection. Raises OSError."""
    with socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE_S) as connection:
        connection.sendall(frame(message, version))
        (size,) = struct.unpack(">i", exactly(connection, 4))
        return read_response(response, version, memoryview(exactly(connection, size)))[1]


@contextmanager
def both_sides(folder: Path, controllers: int, names: list[str]) -> Iterator[dict[str, Side]]:
    """Start the controllers and the brokers of each side; stop all at the end of the block."""
    with KafkaCluster(folder, controllers=controllers, properties=PROPERTIES, heap_mb=512) as cluster:
        sides = {name: Side(name, cluster) for name in names}
        nodes = [node for side in sides.values() for node in side.nodes.values()]
        try:
            for node in nodes:
                node.start(waits=False)
            for node in nodes:
                node.wait()
            yield sides
        finally:
            for node in nodes:
                node.kill()


def waited(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, at most two minutes."""
    wait_until(condition, what, PATIENCE_S)
