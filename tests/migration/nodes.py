"""A broker of a cluster that is of another release, or speaks another protocol, after its next start; its folder stays."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.kafka.java import free_port
from tests.kafka.members import TidelogMember
from tests.kafka.zookeepers import KafkaBroker, ZookeeperCluster

TIDELOG = "tidelog"
OLD, NEW, NEWEST = "kafka-0.9.0.1", "kafka-0.10.0.1", "2.4.1"
MODERN = "3.9.1"
"""Of clients."""


class Node:
    """Broker `node_id`. `kind` is a release of Kafka's, as `classpath` knows it, or TIDELOG."""

    def __init__(self, cluster: ZookeeperCluster, node_id: int) -> None:
        self.node_id = node_id
        self.port = free_port()
        self.folder = cluster.folder / f"broker-{node_id}"
        self.data = self.folder / "data"
        self.kind = ""
        self.protocol = ""
        self.format = ""
        self._cluster = cluster
        self._running: KafkaBroker | TidelogMember | None = None

    def __str__(self) -> str:
        name = self.kind.removeprefix("kafka-")
        return f"{self.node_id}: {name if self.kind == TIDELOG else f'Kafka {name}'}"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._running is not None and self._running.process is not None
        return self._running.process.pid

    def start(self, kind: str, protocol: str, message_format: str) -> None:
        """Start it, and wait until it serves."""
        self.kind, self.protocol, self.format = kind, protocol, message_format
        properties = {"inter.broker.protocol.version": protocol, "log.message.format.version": message_format}
        if kind == TIDELOG:
            member = TidelogMember(
                self._cluster,  # type: ignore[arg-type]
                self.node_id,
                properties,
                folder=self.folder,
                port=self.port,
            )
            self._running = member
            member.start()
        else:
            common = self._cluster.member_properties(self.node_id, self.port, self.data)
            broker = KafkaBroker(kind, self.folder, self.node_id, self.port, {**common, **properties}, 256)
            self._running = broker
            broker.start()

    def stop(self) -> None:
        """End in order: leaders move before."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def kill(self) -> None:
        """End as by a power cut."""
        running, self._running = self._running, None
        if running is not None:
            running.kill()

    def delete(self, topic: str) -> None:
        """Delete the replicas of a topic, by hand."""
        for folder in self.data.glob(f"{topic}-*"):
            shutil.rmtree(folder)
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            self._forget(self.data / name, topic)

    def _forget(self, path: Path, topic: str) -> None:
        """Take a topic out of a checkpoint: it says where a log is committed that is not there any more."""
        if path.exists():
            version, _, *lines = path.read_text().splitlines()
            left = [line for line in lines if not line.startswith(f"{topic} ")]
            path.write_text("\n".join([version, str(len(left)), *left, ""]))
