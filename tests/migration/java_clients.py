"""Producers and consumers of Apache Kafka's own releases that go on while brokers change.

Those of 0.9.0.1 have two peculiarities, with brokers of Kafka's as with ours. Its producer throws `Memory records is not
writable` at callers that send while a batch waits to be sent again (KAFKA-3594): they send once more, as `RecordWriter` does.
Its consumer asks for its group's coordinator although it is given partitions and commits nothing, and waits until there is one:
the offsets topic has to be replicated, else it waits for the one broker that has it.

And brokers of 0.10.0.1 send v1 to them, where their own format is v0 again and their logs have v1: such a consumer takes parts of
the timestamp for lengths, and reads null, or waits forever. They have to be through with it before (`Play.way_back`).

Clients of 0.10.0.1 cannot read what brokers of 0.9.0.1 answer: brokers first. From 0.10.2 on clients ask for versions first.
"""

from __future__ import annotations

import threading
from collections import Counter

from tests.kafka.java_members import JavaClients
from tests.migration.clients import Place
from tests.patience import PATIENCE_S

REQUEST_TIMEOUT_MS = 10_000
COMMON = {"request.timeout.ms": str(REQUEST_TIMEOUT_MS), "retry.backoff.ms": "100", "metadata.max.age.ms": "5000"}


class JavaClient:
    """One of them, in the JVM of `clients`. `release` is as `classpath` knows it, `program` one of `java_sources`."""

    def __init__(
        self, clients: JavaClients, name: str, release: str, program: str, settings: dict[str, str], topic: str, partitions: int
    ) -> None:
        self.name = name
        self.release = release
        self.error: BaseException | None = None
        """What has ended it."""
        self._clients = clients
        self._is_over = threading.Event()
        self._is_told = False
        self._key = f"{name} {id(self)}"
        clients.open(self, self._key, release, program, settings, (topic, str(partitions)))

    def stop(self) -> None:
        """Have it end soon. Idempotent."""
        if not self._is_told:
            self._is_told = True
            self._clients.say("do", self._key, "close")

    def close(self) -> None:
        """End it, and wait until all that it has begun is answered."""
        self.stop()
        if not self._is_over.wait(PATIENCE_S):
            raise TimeoutError(f"{self.name} does not end; {self._clients.log()}")
        if self.error is not None:
            raise self.error

    def hear(self, fields: list[str]) -> None:
        """Take what the program says. On the thread of the JVM's reader."""
        if fields[0] == "error":
            self.error = RuntimeError(f"{self.name}: {' '.join(fields[1:])}")
        elif fields[0] == "ended":
            self._is_over.set()


class JavaWriter(JavaClient):
    """A producer with acks=all, which sends again what was not acknowledged: twice is allowed, lost is not.

    One that `is_idempotent` waits as long as it takes, and has each record once.
    """

    def __init__(
        self, clients: JavaClients, release: str, bootstrap: str, topic: str, partitions: int, *, is_idempotent: bool = False
    ) -> None:
        self.is_idempotent = is_idempotent
        self.acknowledged: dict[Place, bytes] = {}
        self.failures: Counter[str] = Counter()
        """What its callers saw, and how often; each time they sent once more."""
        self._counts = [0] * partitions
        name = f"Kafka's {'idempotent ' if is_idempotent else ''}producer of {release.removeprefix('kafka-')}"
        settings = {"bootstrap.servers": bootstrap, "client.id": name, "acks": "all", "retries": "100000", **COMMON}
        if not release.removeprefix("kafka-").startswith("0."):
            # A protocol before 0.11 has no producers' ids.
            settings["enable.idempotence"] = str(is_idempotent).lower()
        super().__init__(clients, name, release, "RecordWriter", settings, topic, partitions)

    def counts(self) -> list[int]:
        """Return how many records of each partition are acknowledged."""
        return list(self._counts)

    def hear(self, fields: list[str]) -> None:
        if fields[0] == "acked":
            partition = int(fields[1])
            self.acknowledged[partition, int(fields[2])] = fields[3].encode()
            self._counts[partition] += 1
        elif fields[0] == "failed":
            self.failures[" ".join(fields[1:])] += 1
        else:
            super().hear(fields)


class JavaReader(JavaClient):
    """A consumer that reads partitions from their beginnings. One `through` ZooKeeper is the consumer before KafkaConsumer."""

    def __init__(
        self, clients: JavaClients, release: str, bootstrap: str, topic: str, partitions: int, *, through: str | None = None
    ) -> None:
        self.read: dict[Place, bytes] = {}
        self.wrong: list[str] = []
        self.next = [0] * partitions
        self._may_repeat = through is not None
        name = f"Kafka's {'old ' if through else ''}consumer of {release.removeprefix('kafka-')}"
        if through is None:
            program = "RecordReader"
            settings = {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "enable.auto.commit": "false",
                "auto.offset.reset": "none",
                "fetch.max.wait.ms": "100",
                "session.timeout.ms": str(REQUEST_TIMEOUT_MS - 2000),
                **COMMON,
            }
        else:
            program = "OldConsumer"
            settings = {
                "zookeeper.connect": through,
                "zookeeper.session.timeout.ms": "30000",
                "group.id": "old",
                "auto.commit.enable": "false",
                "auto.offset.reset": "smallest",
                "consumer.timeout.ms": "200",
                "fetch.wait.max.ms": "100",
                "refresh.leader.backoff.ms": "100",
            }
        super().__init__(clients, name, release, program, settings, topic, partitions)

    def hear(self, fields: list[str]) -> None:
        if fields[0] != "read":
            super().hear(fields)
            return
        partition, offset, value = int(fields[1]), int(fields[2]), fields[4].encode()
        if self._may_repeat and self.read.get((partition, offset)) == value:
            return  # It commits nothing, and begins again where it has got its partitions once more.
        if offset != self.next[partition]:
            self.wrong.append(f"{partition}: offset {offset} comes where {self.next[partition]} was to come")
        self.next[partition] = offset + 1
        self.read[partition, offset] = value
