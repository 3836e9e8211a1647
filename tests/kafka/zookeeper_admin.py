"""What Kafka's tools of ZooKeeper's days did to a cluster, by znodes: they work with controllers of any release up to 3.9.

with cluster.client() as client:
    admin = ZookeeperAdmin(client)
    admin.create("orders", [[1, 2], [2, 1]])
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from tests.broker.raw import RawClient
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.wire.messages.metadata import MetadataRequest

ROOT = "/kafka"


class State(NamedTuple):
    """A partition's leader (-1: none) and in-sync replicas."""

    leader: int
    isr: list[int]
    leader_epoch: int


class ZookeeperAdmin:
    """Does it; `client` is connected."""

    def __init__(self, client: KazooClient, root: str = ROOT) -> None:
        self._client = client
        self._root = root

    def create(self, topic: str, assignment: Sequence[Sequence[int]], **config: str) -> None:
        """Make a topic; its leaders come later. Properties are Kafka's names with `_` for `.`."""
        self._write_config(topic, {name.replace("_", "."): value for name, value in config.items()})
        partitions = {str(number): list(replicas) for number, replicas in enumerate(assignment)}
        self._client.create(f"{self._root}/brokers/topics/{topic}", _json({"version": 1, "partitions": partitions}))

    def delete(self, topic: str) -> None:
        """Delete a topic (delete.topic.enable)."""
        self._client.ensure_path(f"{self._root}/admin/delete_topics")
        self._client.create(f"{self._root}/admin/delete_topics/{topic}")

    def alter(self, topic: str, **config: str) -> None:
        """Set a topic's properties, all of them."""
        self._write_config(topic, {name.replace("_", "."): value for name, value in config.items()})
        note = {"version": 1, "entity_type": "topics", "entity_name": topic}
        self._client.create(f"{self._root}/config/changes/config_change_", _json(note), sequence=True)

    def _write_config(self, topic: str, config: dict[str, str]) -> None:
        path, data = f"{self._root}/config/topics/{topic}", _json({"version": 1, "config": config})
        try:
            self._client.create(path, data, makepath=True)
        except NodeExistsError:
            self._client.set(path, data)

    def reassign(self, topic: str, replicas: Sequence[int], partition: int = 0) -> None:
        """Reassign a partition's replicas, and wait for completion."""
        path = f"{self._root}/admin/reassign_partitions"
        plan = {"version": 1, "partitions": [{"topic": topic, "partition": partition, "replicas": list(replicas)}]}
        wait_until(lambda: self._client.exists(path) is None, "the last reassignment", PATIENCE_S)
        self._client.create(path, _json(plan), makepath=True)
        wait_until(lambda: self._client.exists(path) is None, "the reassignment", PATIENCE_S)

    def elect(self, topic: str, partition: int = 0) -> None:
        """Elect the preferred leader."""
        path = f"{self._root}/admin/preferred_replica_election"
        wanted = {"version": 1, "partitions": [{"topic": topic, "partition": partition}]}
        wait_until(lambda: self._client.exists(path) is None, "the last election", PATIENCE_S)
        self._client.create(path, _json(wanted), makepath=True)

    def move(self, topic: str, replicas: Sequence[int], partition: int = 0) -> None:
        """Have other replicas, led by the first of them, all in sync."""
        self.reassign(topic, replicas, partition)
        self.elect(topic, partition)
        self.wait_for(topic, replicas, replicas[0], partition)

    # --- asking

    def state(self, topic: str, partition: int = 0) -> State | None:
        """Return a partition's state; None while the controller has not made it."""
        try:
            value = json.loads(self._client.get(f"{self._root}/brokers/topics/{topic}/partitions/{partition}/state")[0])
        except NoNodeError:
            return None
        return State(int(value["leader"]), sorted(value["isr"]), int(value["leader_epoch"]))

    def wait_for(self, topic: str, isr: Sequence[int], leader: int | None = None, partition: int = 0) -> None:
        """Wait for these in-sync replicas, and that leader."""

        def is_so() -> bool:
            found = self.state(topic, partition)
            return found is not None and found.isr == sorted(isr) and leader in (None, found.leader)

        try:
            wait_until(is_so, "that", PATIENCE_S)
        except TimeoutError:
            found = self.state(topic, partition)
            raise TimeoutError(f"{topic}-{partition} has {found}, and not {sorted(isr)} led by {leader}") from None

    def is_registered(self, node_id: int) -> bool:
        """Whether a broker has its znode."""
        return self._client.exists(f"{self._root}/brokers/ids/{node_id}") is not None

    def wait_until_missed(self, node_id: int, port: Callable[[int], int]) -> None:
        """Wait until the controller knows that a broker has left; `port` returns where a broker listens.

        A controller before Kafka 2.2 misses a broker that is back before it looks (KAFKA-1120), and takes it to be shutting down
        for ever.
        """

        def is_missed() -> bool:
            controller = self.controller()
            if controller in (-1, node_id):
                return False
            try:
                with RawClient(("127.0.0.1", port(controller)), timeout_s=PATIENCE_S) as client:
                    return node_id not in {one.node_id for one in client.ask(MetadataRequest(topics=[]), 0).brokers}
            except OSError:
                return False

        wait_until(is_missed, f"the controller to miss broker {node_id}", PATIENCE_S)

    def controller(self) -> int:
        """Return the controller's broker id, -1 if there is none."""
        try:
            return int(json.loads(self._client.get(f"{self._root}/controller")[0])["brokerid"])
        except NoNodeError:
            return -1


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
