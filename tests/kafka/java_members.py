"""Members of groups, and transactional producers, of Apache Kafka's own releases from 0.9 on: all of a test in one JVM.

    with JavaClients() as clients:
        member = clients.member("0.9.0.1", bootstrap, "group", ["topic"])
        producer = clients.producer("2.4.1", bootstrap, "transactional-id")

The programs are `java_sources/GroupProgram.java` and what it names. A `JavaMember` is seen as those of `group_members` are.
"""

from __future__ import annotations

import base64
import queue
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from tests.kafka.group_members import HEARTBEAT_MS, Member, Place, Read
from tests.kafka.jars import classpath
from tests.kafka.java import end_input, java_command
from tests.patience import PATIENCE_S

SOURCES = Path(__file__).parent / "java_sources"
MEMBER_RELEASES = ("0.9.0.1", "0.10.2.2", "0.11.0.3", "2.4.1", "3.9.1", "4.4.0")
TRANSACTION_RELEASES = MEMBER_RELEASES[2:]

_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class Heard(Protocol):
    """A program in the JVM, as it is seen from here."""

    def hear(self, fields: list[str]) -> None:
        """Take what the program says. On the thread of the JVM's reader."""


class JavaClients:
    """See the module."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="java-clients-")
        self._log = Path(self._folder.name, "log")
        self._clients: dict[str, Heard] = {}
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        arguments = [str(SOURCES), self._folder.name]
        command = java_command("", str(SOURCES / "GroupProgram.java"), arguments, heap_mb=384, options=options)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self._reader = threading.Thread(target=self._read, name="java clients")
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        assert self._process.stdout is not None
        try:
            end_input(self._process)
        finally:
            self._reader.join(PATIENCE_S)
            self._process.stdout.close()
            self._folder.cleanup()

    def member(self, release: str, bootstrap: str, group: str, topics: Sequence[str], **options: Any) -> JavaMember:
        """A member of a group; options are `Member`'s."""
        client_id = options.pop("client_id", f"java-{release}")
        return JavaMember(self, release, bootstrap, group, topics, client_id=client_id, **options)

    def producer(self, release: str, bootstrap: str, transactional_id: str, **settings: object) -> JavaProducer:
        """A transactional producer; settings are Kafka's, `_` for `.`."""
        return JavaProducer(self, release, bootstrap, transactional_id, settings)

    def open(
        self,
        client: Heard,
        name: str,
        release: str,
        kind: str,
        settings: dict[str, str],
        topics: Sequence[str],
    ) -> None:
        """Start one; what it says goes to its `hear`."""
        assert name not in self._clients, name
        self._clients[name] = client
        jars = classpath(release).removesuffix("/*")
        self.say("open", name, jars, kind, ";".join(f"{key}={value}" for key, value in settings.items()), ",".join(topics))

    def say(self, *fields: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(fields) + "\n")
        self._process.stdin.flush()

    def log(self) -> str:
        """The end of what they logged."""
        return self._log.read_text(errors="replace")[-4000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, *fields = line.rstrip("\n").split("\t")
            self._clients[name].hear(fields)
        for client in self._clients.values():
            client.hear(["ended"])


class JavaMember(Member):
    """See `Member`; it lives in the JVM."""

    library = "java"
    assignors = tuple(_ASSIGNORS)

    def __init__(self, clients: JavaClients, release: str, *arguments: Any, **options: Any) -> None:
        self.clients = clients
        self.release = release
        self._done = threading.Semaphore(0)
        self._ended = threading.Event()
        super().__init__(*arguments, **options)

    def _start(self) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.id": self.client_id,
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "fetch.max.wait.ms": "100",
            "metadata.max.age.ms": "5000",
        }
        if self.protocol == "classic":
            settings["partition.assignment.strategy"] = ",".join(_ASSIGNORS[name] for name in self.wanted_assignors)
            settings["session.timeout.ms"] = str(self.session_timeout_ms)
            settings["heartbeat.interval.ms"] = str(HEARTBEAT_MS)
        else:
            settings["group.protocol"] = self.protocol
            settings["group.remote.assignor"] = self.wanted_assignors[0]
        if self.instance_id is not None:
            settings["group.instance.id"] = self.instance_id
        if self.isolation != "read_uncommitted":
            settings["isolation.level"] = self.isolation
        self._name = f"{self.client_id} {id(self)}"
        self.clients.open(self, self._name, self.release, "GroupMember", settings, self.topics)

    def hear(self, fields: list[str]) -> None:
        """Take what the program says. On the thread of the JVM's reader."""
        if fields[0] in ("assigned", "revoked", "lost"):
            places = [place.rsplit(":", 1) for place in fields[1].split(",") if place]
            self._note(fields[0], [(topic, int(partition)) for topic, partition in places])
        elif fields[0] == "record":
            value = None if fields[4] == "-" else base64.b64decode(fields[4])
            self._add([Read(Place(fields[1], int(fields[2])), int(fields[3]), value)])
        elif fields[0] == "done":
            self._done.release()
        elif fields[0] == "error":
            with self.changed:
                self.error = RuntimeError(f"{self}: {' '.join(fields[1:])}")
                self.changed.notify_all()
        elif fields[0] == "ended":
            self._ended.set()
            self._note("lost", list(self.assigned))
            self._done.release()

    def commit(self) -> None:
        self.clients.say("do", self._name, "commit")
        if not self._done.acquire(timeout=PATIENCE_S):
            raise TimeoutError(f"{self} does not commit")
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        if not self._ended.is_set():
            self.clients.say("do", self._name, "close")
            if not self._ended.wait(PATIENCE_S):
                raise TimeoutError(f"{self} does not end")

    def committed(self) -> dict[Place, int]:
        raise NotImplementedError("ask an admin client")

    def seek_to_time(self, timestamp: int) -> dict[Place, int]:
        raise NotImplementedError("see `java_clients` for what they say of times")

    def _consume(self) -> None:
        raise NotImplementedError("the JVM does")

    def _subscribe(self, consumer: Any) -> None:
        raise NotImplementedError("the JVM does")

    def _commit(self, consumer: Any) -> None:
        raise NotImplementedError("the JVM does")


class JavaClientError(Exception):
    """What a producer raised: its class, its message."""


class JavaProducer:
    """A transactional producer; each method waits for its end, and raises JavaClientError."""

    def __init__(
        self, clients: JavaClients, release: str, bootstrap: str, transactional_id: str, settings: dict[str, object]
    ) -> None:
        self.clients = clients
        self._name = f"{release} {transactional_id} {id(self)}"
        self._answers: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        given = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "enable.idempotence": "true"}
        if release.startswith("0.11."):  # what it asks of an idempotent producer; 2.4.1 hangs of it: it waits without reading
            given["max.in.flight.requests.per.connection"] = "1"
        given |= {key.replace("_", "."): str(value) for key, value in settings.items()}
        clients.open(self, self._name, release, "TransactionMember", given, ())

    def hear(self, fields: list[str]) -> None:
        """Take what the program says. On the thread of the JVM's reader."""
        self._answers.put(fields)

    def init(self) -> None:
        self._do("init")

    def begin(self) -> None:
        self._do("begin")

    def send(self, topic: str, partition: int, value: str) -> None:
        self._do("send", topic, str(partition), value)

    def send_offsets(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._do("offsets", group, topic, str(partition), str(offset))

    def flush(self) -> list[int]:
        """The offsets of what was sent since the last."""
        return [int(offset) for offset in self._do("flush")]

    def commit(self) -> list[int]:
        """The same."""
        return [int(offset) for offset in self._do("commit")]

    def abort(self) -> None:
        self._do("abort")

    def close(self) -> None:
        self.clients.say("do", self._name, "close")
        while self._answers.get(timeout=PATIENCE_S)[0] != "ended":
            pass

    def _do(self, *command: str) -> list[str]:
        self.clients.say("do", self._name, *command)
        fields = self._answers.get(timeout=PATIENCE_S)
        if fields[0] == "done":
            return fields[2:]
        raise JavaClientError(" ".join(fields[1:]) + ("" if fields[0] == "failed" else self.clients.log()))
