"""The two compared brokers, each in its own process: Apache Kafka 3.9.1 and `tidelog serve`.

Each has its own data folder on the same disk. Both free a deleted topic's files at once: fresh memory is slower than recycled
memory, and the broker that got it would be at a disadvantage.

Both belong to the session of the bench. A busy Linux divides the processors among sessions (autogroup), and gives a session in
which many threads wake up briefly, as in any Java program, a larger share: a thread that only computes got 0.2 to 0.3 of a
processor alone, and 0.6 to 0.8 beside four threads that woke up every millisecond. In one session, that helps both brokers alike.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from confluent_kafka.admin import AdminClient, NewTopic
from tests.kafka.brokers import Kafka391
from tests.kafka.java import free_port, wait_until

from bench.broker.requests import list_offsets_request, metadata_request
from tidelog.wire.codec import Message
from tidelog.wire.headers import read_response, request_chunks
from tidelog.wire.messages.list_offsets import ListOffsetsResponse
from tidelog.wire.messages.metadata import MetadataResponse

M = TypeVar("M", bound=Message)

TIMEOUT_S = 60
TURNS_CHILD = Path(__file__).parents[1] / "children" / "turns_child.py"
STOP_TIMEOUT_S = 600
TICKS = os.sysconf("SC_CLK_TCK")
PROPERTIES = {"log.segment.delete.delay.ms": "0", "log.retention.ms": "-1", "num.partitions": "1"}
# The options that Kafka's start script passes to a broker.
KAFKA_OPTIONS = (
    "-server",
    "-Xms1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


class KafkaProcess:
    """Kafka 3.9.1 with one broker, KRaft, 1 GB of heap."""

    def __init__(self, folder: Path, properties: Mapping[str, str]) -> None:
        self._broker = Kafka391(folder, {**PROPERTIES, **properties}, heap_mb=1024, java_options=KAFKA_OPTIONS)
        self._broker.has_session = False  # See `peers`.
        self.port = self._broker.port

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        self._broker.stop()

    @property
    def pid(self) -> int:
        assert self._broker.process is not None
        return self._broker.process.pid


class TidelogProcess:
    """`tidelog serve`."""

    def __init__(self, folder: Path, properties: Mapping[str, str], more: Sequence[str] = (), turns: Path | None = None) -> None:
        """`more` are further options of the command. `turns` gets the turns of its loop (`children.turns_child`)."""
        self.port = free_port()
        settings = [f"--property={name}={value}" for name, value in {**PROPERTIES, **properties}.items()]
        program = ["-m", "tidelog"] if turns is None else [str(TURNS_CHILD), str(turns)]
        self._command = [sys.executable, *program, "serve", "--data", str(folder), "--listen", f"127.0.0.1:{self.port}"]
        self._command += [*settings, *more]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Run it with compiled modules, as installed.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with (self._folder.parent / "tidelog.out").open("ab") as sink:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=environment, process_group=0
            )

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the broker, as if by a power cut."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_TIMEOUT_S)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


class Peer:
    """A running broker, and the measurements of its process."""

    def __init__(
        self,
        name: str,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        more: Sequence[str] = (),
        turns: Path | None = None,
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.name = name
        self.process: KafkaProcess | TidelogProcess
        if name == "kafka":
            self.process = KafkaProcess(folder / "kafka", properties or {})
        else:
            self.process = TidelogProcess(folder / "data", properties or {}, more, turns)
        self.data = folder / ("kafka/data" if name == "kafka" else "data")
        self._folder = folder
        self._admin: AdminClient | None = None

    @property
    def port(self) -> int:
        return self.process.port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Peer:
        self.process.start()
        wait_until(self.answers_metadata, f"{self.name} to answer", TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._admin = None
        self.process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def cpu_seconds(self) -> float:
        """Processor time that the process has used, user and system."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def private_mb(self) -> float:
        """The process's private memory: anonymous pages, without mapped files."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no RssAnon in the process's status")

    # --- topics

    @property
    def admin(self) -> AdminClient:
        """A client of this broker, which is kept for later calls."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        topic = NewTopic(name, partitions, 1, config=dict(config or {}))
        self.admin.create_topics([topic], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
        wait_until(lambda: self._is_led(name, partitions), f"the leaders of {name}", TIMEOUT_S)

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
        wait_until(lambda: not any(self.data.glob(f"**/{name}-*")), f"the folders of {name} to go", TIMEOUT_S)

    def _is_led(self, name: str, partitions: int) -> bool:
        topics = self.ask(metadata_request([name]), 8, MetadataResponse).topics
        return sum(one.error_code == 0 and one.leader_id >= 0 for one in topics[0].partitions) == partitions

    def high_watermark(self, topic: str, partition: int = 0, port: int | None = None) -> int:
        """Return a partition's high watermark, from the broker at `port` (default: the first)."""
        answer = self.ask(list_offsets_request(topic, {partition: -1}), 7, ListOffsetsResponse, port)
        return int(answer.topics[0].partitions[0].offset)

    # --- asking

    def answers_metadata(self) -> bool:
        """Whether the broker answers, and lists itself in the metadata."""
        try:
            return bool(self.ask(metadata_request([]), 8, MetadataResponse).brokers)
        except OSError:
            return False

    def ask(self, message: Message, version: int, response: type[M], port: int | None = None) -> M:
        with socket.create_connection(("127.0.0.1", port or self.port), timeout=10) as connection:
            connection.sendall(b"".join(bytes(chunk) for chunk in request_chunks(message, version, 1, "bench")))
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            return read_response(response, version, memoryview(_exactly(connection, size)))[1]


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("closed by the broker")
        data += more
    return data


def seconds_to_first_metadata(peer: Peer) -> float:
    """Start a stopped broker; return the time until it has answered the first Metadata request."""
    began = time.monotonic()
    peer.process.start()
    while not peer.answers_metadata():
        time.sleep(0.005)
        if time.monotonic() - began > TIMEOUT_S:
            raise TimeoutError(f"{peer.name} does not answer")
    return time.monotonic() - began
