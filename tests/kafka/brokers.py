"""Apache Kafka brokers, each in its own folder, listening on 127.0.0.1 only.

    folder/data          Kafka's data folder (log.dirs)
    folder/*.properties  its configuration, written at each start
    folder/*.out         what the processes printed

`with Kafka391(folder) as broker:` starts it, waits until it serves, and stops it cleanly. Between, `stop()`, `kill()` and
`start()` may be called in any order; the data folder, the ports and the cluster id stay. Server properties (Kafka's names)
given at creation win over those set here.
"""

from __future__ import annotations

import abc
import base64
import random
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from tests.kafka.clients import make_topics
from tests.kafka.jars import MADE, class_archive, classpath, jars, made_once
from tests.kafka.java import JavaProcess, free_port, is_listening, run_java, wait_until
from tests.patience import PATIENCE_S

ADMIN_TIMEOUT_S = 60

# A short-lived broker with a small heap starts sooner if the JVM compiles fast instead of optimizing.
SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
LONG_LIVED = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:-UsePerfData")

_COMMON = {
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.retention.ms": "-1",
}


BOOTSTRAP = "bootstrap.checkpoint"
"""The file of Kafka's that holds a new cluster's features: it has no id of the cluster's."""


def random_id() -> str:
    """Return a new cluster or directory id in Kafka's form."""
    return base64.urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=").replace("-", "A").replace("_", "B")


class _Broker(abc.ABC):
    """The common part of both releases."""

    RELEASE = ""

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        *,
        heap_mb: int = 384,
        java_options: tuple[str, ...] = SHORT_LIVED,
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.properties = dict(properties or {})
        self.heap_mb = heap_mb
        self.java_options = java_options
        self.has_session = True
        """Whether it starts in a session of its own."""
        self.port = free_port()
        self.process: JavaProcess | None = None
        self.topics: dict[str, int] = {}  # name -> partitions, as created here
        self.was_killed = False
        self._admin: AdminClient | None = None
        self.data.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    @abc.abstractmethod
    def start(self) -> None:
        """Write the configuration, start, and wait until each partition of each topic has a leader."""

    def _share_classes(self) -> None:
        """Keep the classes that a broker loads for all JVMs to come, once: a broker is started and stopped for that."""
        archive = class_archive(jars(self.RELEASE))

        def make(path: Path) -> None:
            with tempfile.TemporaryDirectory(prefix="classes-") as folder:
                options = ("-XX:+IgnoreUnrecognizedVMOptions", f"-XX:ArchiveClassesAtExit={path}", "-Xlog:disable")
                with type(self)(Path(folder), java_options=(*SHORT_LIVED, *options)) as broker:
                    broker.create_topic("any")
                path.touch()  # Java before 13 does not create one.

        if not any(option.startswith("-XX:ArchiveClassesAtExit") for option in self.java_options):
            made_once(archive, make)

    def stop(self) -> None:
        """Shut down cleanly: indexes are trimmed, producer snapshots and checkpoints are written."""
        self._admin = None
        if self.process is not None:
            self.process.stop()
            self.process = None
            self.was_killed = False

    def kill(self) -> None:
        """Kill it, as by a power failure."""
        self._admin = None
        if self.process is not None:
            self.process.kill()
            self.process = None
            self.was_killed = True

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            # `log_level` 0: do not log that a broker is still starting.
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 10_000})
        return self._admin

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, **settings: object) -> None:
        """Create a topic and wait for its leaders. Settings are Kafka's names, with `_` for `.` where given as keywords."""
        self.create_topics(
            {name: {key.replace("_", "."): str(value) for key, value in settings.items()} | dict(config or {})}, partitions
        )

    def create_topics(self, configs: Mapping[str, Mapping[str, str]], partitions: int = 1) -> None:
        """Create topics with these settings in one request, and wait for their leaders."""
        wanted = [NewTopic(name, partitions, 1, config=dict(config)) for name, config in configs.items()]
        make_topics(self.bootstrap, wanted)
        self.topics |= dict.fromkeys(configs, partitions)
        wait_until(self._serves, f"the leaders of {', '.join(configs)}", ADMIN_TIMEOUT_S)

    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        """Change settings of a topic; None resets one to the broker's default. Other settings are unchanged."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(ADMIN_TIMEOUT_S)

    def partition_folder(self, topic: str, partition: int = 0) -> Path:
        return self.data / f"{topic}-{partition}"

    def _serves(self) -> bool:
        """Whether the broker answers, counts itself in, and leads each partition that was created here."""
        if not is_listening(self.port):
            return False
        try:
            metadata = self.admin.list_topics(timeout=ADMIN_TIMEOUT_S)
        except KafkaException:
            return False
        if not metadata.brokers:
            return False
        led = {name: sum(p.leader >= 0 for p in topic.partitions.values()) for name, topic in metadata.topics.items()}
        if any(led.get(name) != partitions for name, partitions in self.topics.items()):
            return False
        # A broker of KRaft reports its leaders before it is ready to be one.
        ends = {TopicPartition(name, p): OffsetSpec.latest() for name, count in self.topics.items() for p in range(count)}  # type: ignore[no-untyped-call]
        try:
            for end in self.admin.list_offsets(ends, request_timeout=ADMIN_TIMEOUT_S).values() if ends else ():
                end.result(ADMIN_TIMEOUT_S)
        except KafkaException:
            return False
        return True

    def _write_properties(self, name: str, properties: Mapping[str, str]) -> Path:
        path = self.folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path


class Kafka391(_Broker):
    """Apache Kafka 3.9.1, KRaft mode: controller and broker in one process."""

    RELEASE = "3.9.1"

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        *,
        heap_mb: int = 384,
        java_options: tuple[str, ...] = SHORT_LIVED,
    ) -> None:
        super().__init__(folder, properties, heap_mb=heap_mb, java_options=java_options)
        self.controller_port = free_port()
        self.cluster_id = random_id()

    def start(self) -> None:
        defaults = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "metadata.log.dir": str(self.folder / "metadata"),
            # A pause that is longer costs the broker its leaders and coordinators: clients see errors, batches new epochs.
            # But one that was killed must wait so long at its next start, for the controller to give up its former self.
            "broker.session.timeout.ms": "6000" if self.was_killed else "30000",
            "broker.heartbeat.interval.ms": "200",
            **_COMMON,
        }
        properties = self._write_properties("server.properties", defaults | self.properties)
        if not (self.data / "meta.properties").exists():
            self._format(defaults | self.properties)
        self._share_classes()
        self.process = JavaProcess(
            self.classpath(),
            "kafka.Kafka",
            [properties],
            output=self.folder / "broker.out",
            heap_mb=self.heap_mb,
            options=self.java_options,
            has_session=self.has_session,
        )
        self.process.wait_ready(self._serves)

    def classpath(self) -> str:
        """Return the broker's class path."""
        return classpath(self.RELEASE)

    def _format(self, properties: Mapping[str, str]) -> None:
        """Format the folder like `kafka-storage.sh format`: the ids, and the initial features as recorded from that tool."""

        def make(path: Path) -> None:
            with tempfile.TemporaryDirectory(prefix="formatted-") as name:
                data, written = Path(name, "data"), Path(name, "server.properties")
                written.write_text("".join(f"{key}={value}\n" for key, value in (properties | {"log.dirs": str(data)}).items()))
                arguments = ["format", "-t", self.cluster_id, "-c", str(written)]
                run_java(classpath(self.RELEASE), "kafka.tools.StorageTool", arguments)
                shutil.copyfile(data / BOOTSTRAP, path)

        bootstrap = made_once(MADE / f"{self.RELEASE}-{BOOTSTRAP}", make)
        for folder in {*properties["log.dirs"].split(","), properties["metadata.log.dir"]}:
            Path(folder).mkdir(parents=True, exist_ok=True)
            ids = {"version": "1", "cluster.id": self.cluster_id, "node.id": properties["node.id"], "directory.id": random_id()}
            Path(folder, "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in ids.items()))
            shutil.copyfile(bootstrap, Path(folder, BOOTSTRAP))


class Kafka420(Kafka391):
    """Apache Kafka 4.2.0, otherwise the same."""

    RELEASE = "4.2.0"


class Kafka241(_Broker):
    """Apache Kafka 2.4.1 beside its ZooKeeper; `message.format.version` still reaches back to v0."""

    RELEASE = "2.4.1"

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        *,
        heap_mb: int = 384,
        java_options: tuple[str, ...] = SHORT_LIVED,
    ) -> None:
        super().__init__(folder, properties, heap_mb=heap_mb, java_options=java_options)
        self.zookeeper_port = free_port()
        self.zookeeper: JavaProcess | None = None

    def start(self) -> None:
        if self.zookeeper is None:
            self._share_classes()
            self._start_zookeeper()
        wait_until(self._is_forgotten, "ZooKeeper to give up the broker's former session")
        defaults = {
            "broker.id": "0",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper_port}",
            # The longest that ZooKeeper allows here. A pause that is longer costs the broker its leaders and coordinators.
            "zookeeper.session.timeout.ms": "10000",
            "zookeeper.connection.timeout.ms": "60000",
            "log.dirs": str(self.data),
            **_COMMON,
        }
        self.process = JavaProcess(
            classpath(self.RELEASE),
            "kafka.Kafka",
            [self._write_properties("server.properties", defaults | self.properties)],
            output=self.folder / "broker.out",
            heap_mb=self.heap_mb,
            options=self.java_options,
        )
        self.process.wait_ready(self._serves)

    def _start_zookeeper(self) -> None:
        settings = {
            "dataDir": str(self.folder / "zookeeper"),
            "clientPort": str(self.zookeeper_port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "tickTime": "500",
            "4lw.commands.whitelist": "dump",
        }
        self.zookeeper = JavaProcess(
            classpath(self.RELEASE),
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            [self._write_properties("zookeeper.properties", settings)],
            output=self.folder / "zookeeper.out",
            heap_mb=128,
            options=[*SHORT_LIVED, "-Dzookeeper.jmx.log4j.disable=true"],
        )
        self.zookeeper.wait_ready(lambda: is_listening(self.zookeeper_port))

    def _is_forgotten(self) -> bool:
        """Whether no session of a killed broker holds its id any more; a new one could not register beside it."""
        with socket.create_connection(("127.0.0.1", self.zookeeper_port), timeout=PATIENCE_S) as connection:
            connection.sendall(b"dump")
            with connection.makefile("rb") as answer:
                try:
                    told = answer.read()
                except TimeoutError:
                    return False  # The machine is busy: retry.
                return b"SessionTracker" in told and b"/brokers/ids/0" not in told

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            if self.zookeeper is not None:
                self.zookeeper.kill()
                self.zookeeper = None
