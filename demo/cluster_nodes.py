"""Brokers of a cluster with Apache Kafka's controllers. Each broker, Tidelog's or Kafka's, is a process that can be killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.kafka.clusters import KafkaCluster, KafkaNode
from tests.kafka.java import free_port
from tests.kafka.tidelog_node import TidelogNode


class Node(Protocol):
    """A broker's process."""

    node_id: int
    data: Path

    @property
    def bootstrap(self) -> str: ...

    def start(self, *, waits: bool = True) -> None: ...

    def wait(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


@contextmanager
def brokers(cluster: KafkaCluster, kinds: list[str]) -> Iterator[dict[int, Node]]:
    """Start brokers 1, 2, ... in parallel, each of the given kind, "tidelog" or "kafka"; stop all at the end of the block."""
    nodes: dict[int, Node] = {}
    try:
        for node_id, kind in enumerate(kinds, 1):
            nodes[node_id] = _kafka(cluster, node_id) if kind == "kafka" else TidelogNode(cluster, node_id)
        for node in nodes.values():
            node.start(waits=False)
        for node in nodes.values():
            node.wait()
        yield nodes
    finally:
        for node in nodes.values():
            node.kill()


def _kafka(cluster: KafkaCluster, node_id: int) -> KafkaNode:
    folder = cluster.folder / f"broker-{node_id}"
    port = free_port()
    properties = cluster.member_properties(node_id, port, folder / "data")
    node = KafkaNode(cluster.release, folder, node_id, port, properties, 384)
    cluster.format(node.data, node_id)
    return node
