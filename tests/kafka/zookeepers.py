"""A ZooKeeper-based cluster: ZooKeeper, and Apache Kafka brokers of releases up to 3.9, each in its own folder and process.

    with ZookeeperCluster(folder) as cluster:
        cluster.broker(1)                           # one of Kafka 3.9.1, started: it is the controller
        TidelogMember(cluster, 2).start()           # one of ours beside it

All listen on 127.0.0.1. Each node can be killed, paused and started again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]
from kazoo.client import KazooClient

from tests.kafka import pausing
from tests.kafka.brokers import ADMIN_TIMEOUT_S, SHORT_LIVED
from tests.kafka.jars import classpath
from tests.kafka.java import JavaProcess, free_port, is_listening, wait_until
from tests.kafka.zookeeper_admin import ROOT


class KafkaBroker:
    """A Kafka broker."""

    def __init__(self, release: str, folder: Path, node_id: int, port: int, properties: Mapping[str, str], heap_mb: int) -> None:
        self.release = release
        self.node_id = node_id
        self.port = port
        self.folder = folder
        self.data = folder / "data"
        self.properties = dict(properties)
        self._heap_mb = heap_mb
        self.process: JavaProcess | None = None
        self.data.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        output = self.folder / "node.out"
        self.process = JavaProcess(
            classpath(self.release), "kafka.Kafka", [path], output=output, heap_mb=self._heap_mb, options=SHORT_LIVED
        )
        self.process.wait_ready(self.is_ready)

    def is_ready(self) -> bool:
        """Whether it serves clients and is registered."""
        if not is_listening(self.port):
            return False
        if self.release.startswith("kafka-0."):
            return True  # Too old for this client; what is asked of it comes later.
        try:
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            return self.node_id in admin.list_topics(timeout=ADMIN_TIMEOUT_S).brokers
        except KafkaException:
            return False

    def said(self) -> str:
        return (self.folder / "node.out").read_text(errors="replace")

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


class ZookeeperCluster:
    """A ZooKeeper of `zookeeper` (a release of Kafka's that brings one along), and brokers where they are asked for."""

    def __init__(
        self,
        folder: Path,
        *,
        release: str = "3.9.1",
        zookeeper: str = "3.9.1",
        properties: Mapping[str, str] | None = None,
        heap_mb: int = 256,
        servers: int = 1,
    ) -> None:
        self.folder = folder
        self.release = release
        self.brokers: dict[int, KafkaBroker] = {}
        self.ports = [free_port() for _ in range(servers)]
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        """Of ZooKeeper."""
        self._zookeeper_release = zookeeper
        self._heap_mb = heap_mb
        self._peers = [(free_port(), free_port()) for _ in range(servers)]
        self._processes: dict[int, JavaProcess] = {}
        self.common = {
            "zookeeper.connect": f"{self.servers}{ROOT}",
            "zookeeper.session.timeout.ms": "6000",
            "zookeeper.connection.timeout.ms": "60000",
            "auto.create.topics.enable": "false",
            "auto.leader.rebalance.enable": "false",
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "2097152",
            "log.retention.ms": "-1",  # Records of tests are years old.
            "replica.lag.time.max.ms": "4000",
            "replica.high.watermark.checkpoint.interval.ms": "500",
            **(properties or {}),
        }

    def __enter__(self) -> Self:
        self.start_zookeeper()
        with self.client() as client:
            client.ensure_path(ROOT)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for one in self.brokers.values():
            one.kill()
        self.stop_zookeeper()

    @contextmanager
    def client(self) -> Iterator[KazooClient]:
        """A ZooKeeper client, inside the `with` block."""
        client = KazooClient(self.servers, timeout=30)
        try:
            client.start(60)
            yield client
        finally:
            client.stop()
            client.close()

    def start_zookeeper(self) -> None:
        """Start all its servers, and wait until they answer."""
        for number in range(len(self.ports)):
            self.start_server(number)
        for number, port in enumerate(self.ports):
            self._processes[number].wait_ready(lambda port=port: is_listening(port))  # type: ignore[misc]

    def start_server(self, number: int) -> None:
        """Start one of its servers; several are an ensemble, of which a majority has to run."""
        folder = self.folder / f"zookeeper-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "dataDir": str(folder),
            "clientPort": str(self.ports[number]),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "tickTime": "500",
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
        }
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        if len(self.ports) > 1:
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            peers = {f"server.{i}": f"127.0.0.1:{data}:{election}" for i, (data, election) in enumerate(self._peers, 1)}
            settings |= {"initLimit": "60", "syncLimit": "60", **peers}
            (folder / "myid").write_text(f"{number + 1}\n")
        path = folder / "zookeeper.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._processes[number] = JavaProcess(
            classpath(self._zookeeper_release),
            main,
            [path],
            output=folder / "zookeeper.out",
            heap_mb=128,
            options=[*SHORT_LIVED, "-Dzookeeper.jmx.log4j.disable=true"],
        )

    def stop_zookeeper(self) -> None:
        for number in list(self._processes):
            self.stop_server(number)

    def stop_server(self, number: int) -> None:
        self._processes.pop(number).kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self.brokers.values())

    def broker(self, node_id: int, properties: Mapping[str, str] | None = None, *, release: str | None = None) -> KafkaBroker:
        """Start a Kafka broker and return it."""
        port = free_port()
        folder = self.folder / f"broker-{node_id}"
        node = KafkaBroker(
            release or self.release,
            folder,
            node_id,
            port,
            {**self.member_properties(node_id, port, folder / "data"), **(properties or {})},
            self._heap_mb,
        )
        self.brokers[node_id] = node
        node.start()
        return node

    def member_properties(self, node_id: int, port: int, data: Path) -> dict[str, str]:
        """Return the properties of a broker in this cluster."""
        return {
            **self.common,
            "broker.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(data),
        }

    def format(self, data: Path, node_id: int, cluster_id: str | None = None) -> None:
        """Do nothing: brokers create their folders themselves."""
        data.parent.mkdir(parents=True, exist_ok=True)

    def controller(self) -> int:
        """Return the id of the controller broker."""
        with self.client() as client:
            wait_until(lambda: client.exists(f"{ROOT}/controller") is not None, "a controller")
            return int(json.loads(client.get(f"{ROOT}/controller")[0])["brokerid"])
