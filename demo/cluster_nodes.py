"""Brokers of a cluster whose controllers are Apache Kafka's: Tidelog's or Kafka's own, each a process that can be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests import orphans
from tests.kafka.clusters import KafkaCluster, KafkaNode
from tests.kafka.java import free_port, wait_until

TIDELOG = str(Path(sys.executable).with_name("tidelog"))
START_S = 60
STOP_S = 60


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


class TidelogNode:
    """A broker of Tidelog: `tidelog format` once, then `tidelog serve --config server.properties`."""

    def __init__(self, cluster: KafkaCluster, node_id: int) -> None:
        self.node_id = node_id
        self.port = free_port()
        self.folder = cluster.folder / f"broker-{node_id}"
        self.data = self.folder / "data"
        self.process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(parents=True)
        self.config = self.folder / "server.properties"
        properties = cluster.member_properties(node_id, self.port, self.data)
        self.config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [TIDELOG, "format", "--cluster-id", cluster.cluster_id, "--config", str(self.config)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self._ready = KafkaNode(cluster.release, self.folder, node_id, self.port, properties, 0).is_ready

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *, waits: bool = True) -> None:
        with (self.folder / "node.out").open("ab") as out:
            self.process = subprocess.Popen([TIDELOG, "serve", "--config", str(self.config)], stdout=out, stderr=out)
        orphans.watch(self.process)
        if waits:
            self.wait()

    def wait(self) -> None:
        wait_until(self._is_ready_or_ended, f"broker {self.node_id}", START_S)

    def _is_ready_or_ended(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            last = (self.folder / "node.out").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"broker {self.node_id} ended with {self.process.returncode}:\n{last}")
        return self._ready()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
        self._end(STOP_S)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
        self._end(STOP_S)

    def _end(self, timeout_s: float) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        try:
            process.wait(timeout_s)
        finally:
            process.kill()
            process.wait()
            orphans.ended(process)


@contextmanager
def brokers(cluster: KafkaCluster, kinds: list[str]) -> Iterator[dict[int, Node]]:
    """Start brokers 1, 2, ... of these kinds, "tidelog" or "kafka", at once; all of them end with the block."""
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
