"""An Apache Kafka cluster under KRaft: dedicated controllers, and brokers, each in its own folder and process.

    with KafkaCluster(folder, controllers=3) as cluster:
        broker = cluster.broker(1)          # a Kafka broker, started
        cluster.member_properties(2)        # what a broker of ours is started with

Controllers have the ids 3000, 3001, ...; all listen on 127.0.0.1. Each node can be killed, paused and started again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from tests.kafka import pausing
from tests.kafka.brokers import ADMIN_TIMEOUT_S, BOOTSTRAP, SHORT_LIVED, random_id
from tests.kafka.jars import MADE, classpath, made_once
from tests.kafka.java import JavaProcess, free_port, is_listening, run_java

FIRST_CONTROLLER = 3000


class KafkaNode:
    """A Kafka controller or broker."""

    def __init__(
        self,
        release: str,
        folder: Path,
        node_id: int,
        port: int,
        properties: Mapping[str, str],
        heap_mb: int,
        *,
        options: Sequence[str] = SHORT_LIVED,
        jars: Sequence[str] = (),
    ) -> None:
        self._classpath = os.pathsep.join(map(classpath, (release, *jars)))
        self.node_id = node_id
        self.port = port
        self.folder = folder
        self.data = folder / "data"
        self.properties = dict(properties)
        self._heap_mb = heap_mb
        self._options = options
        self.process: JavaProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *, waits: bool = True) -> None:
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        self.process = JavaProcess(
            self._classpath,
            "kafka.Kafka",
            [path],
            output=self.folder / "node.out",
            heap_mb=self._heap_mb,
            options=self._options,
        )
        if waits:
            self.wait()

    def wait(self) -> None:
        assert self.process is not None
        self.process.wait_ready(self.is_ready)

    def is_ready(self) -> bool:
        if not is_listening(self.port):
            return False
        if self.properties["process.roles"] == "controller":
            return True
        try:
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            return self.node_id in admin.list_topics(timeout=ADMIN_TIMEOUT_S).brokers
        except KafkaException:
            return False

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.stop()

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()

    def pause(self) -> None:
        assert self.process is not None
        pausing.pause(self.process.pid)

    def go_on(self) -> None:
        assert self.process is not None
        pausing.go_on(self.process.pid)


class KafkaCluster:
    """Apache Kafka controllers, and brokers on request. Leaving the context stops all of them."""

    def __init__(
        self,
        folder: Path,
        *,
        controllers: int = 1,
        release: str = "3.9.1",
        properties: Mapping[str, str] | None = None,
        heap_mb: int = 256,
        jars: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.release = release
        self._jars = jars
        """What the brokers need besides the release."""
        self.cluster_id = random_id()
        self.brokers: dict[int, KafkaNode] = {}
        self._heap_mb = heap_mb
        ports = {FIRST_CONTROLLER + number: free_port() for number in range(controllers)}
        self.voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
        self.common = {
            "controller.quorum.voters": self.voters,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "2097152",
            "log.retention.ms": "-1",  # Records of tests are years old.
            "broker.session.timeout.ms": "6000",
            "broker.heartbeat.interval.ms": "500",
            **(properties or {}),
        }
        self.controllers = [self._controller(node_id, port) for node_id, port in ports.items()]

    def __enter__(self) -> Self:
        try:
            for one in self.controllers:
                one.start(waits=False)
            for one in self.controllers:
                one.wait()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        for one in (*self.brokers.values(), *self.controllers):
            one.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self.brokers.values())

    def broker(self, node_id: int, properties: Mapping[str, str] | None = None) -> KafkaNode:
        """Start a Kafka broker and return it."""
        port = free_port()
        folder = self.folder / f"broker-{node_id}"
        node = KafkaNode(
            self.release,
            folder,
            node_id,
            port,
            {**self.member_properties(node_id, port, folder / "data"), **(properties or {})},
            self._heap_mb,
            jars=self._jars,
        )
        self.format(node.data, node_id)
        self.brokers[node_id] = node
        node.start()
        return node

    def member_properties(self, node_id: int, port: int, data: Path) -> dict[str, str]:
        """Return the properties of a broker in this cluster."""
        return {
            **self.common,
            "process.roles": "broker",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(data),
        }

    def format(self, data: Path, node_id: int, cluster_id: str | None = None) -> None:
        """Format the folder like Kafka's storage tool, unless it is formatted."""
        data.mkdir(parents=True, exist_ok=True)
        if (data / "meta.properties").exists():
            return
        ids = {
            "version": "1",
            "cluster.id": cluster_id or self.cluster_id,
            "node.id": str(node_id),
            "directory.id": random_id(),
        }
        (data / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in ids.items()))
        shutil.copyfile(self._bootstrap_checkpoint(), data / BOOTSTRAP)

    def _controller(self, node_id: int, port: int) -> KafkaNode:
        folder = self.folder / f"controller-{node_id}"
        properties = {
            **self.common,
            "process.roles": "controller",
            "node.id": str(node_id),
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "log.dirs": str(folder / "data"),
        }
        node = KafkaNode(self.release, folder, node_id, port, properties, self._heap_mb)
        self.format(node.data, node_id)
        return node

    def _bootstrap_checkpoint(self) -> Path:
        """The initial features, as recorded from the release's storage tool."""

        def make(path: Path) -> None:
            with tempfile.TemporaryDirectory(prefix="formatted-") as name:
                data, written = Path(name, "data"), Path(name, "server.properties")
                settings = {
                    "process.roles": "controller",
                    "node.id": "3000",
                    "controller.quorum.voters": "3000@127.0.0.1:1",
                    "controller.listener.names": "CONTROLLER",
                    "listeners": "CONTROLLER://127.0.0.1:1",
                    "log.dirs": str(data),
                }
                written.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
                run_java(
                    classpath(self.release), "kafka.tools.StorageTool", ["format", "-t", self.cluster_id, "-c", str(written)]
                )
                shutil.copyfile(data / BOOTSTRAP, path)

        return made_once(MADE / f"{self.release}-{BOOTSTRAP}", make)
