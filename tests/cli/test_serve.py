"""`tidelog serve` as an operator meets it: a process, its configuration, its signals, its log lines, its metrics."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cli.conftest import KAFKA_3, ROOT, run, start
from tests.patience import PATIENCE_S
from tidelog.formats.names import CLEAN_SHUTDOWN_FILE
from tidelog.reader.log_dir import LogDir


class Server:
    """A broker's process that serves."""

    def __init__(self, data_dir: Path, *arguments: object) -> None:
        self.data_dir = data_dir
        self.stderr = data_dir.parent / f"{data_dir.name}.err"
        with self.stderr.open("ab") as stderr:
            self.process = start("serve", "--data", data_dir, *arguments, stderr=stderr)
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        line = self.process.stdout.readline().decode() if readable else ""
        assert line.startswith("bootstrap.servers="), self.log
        self.bootstrap = line.strip().partition("=")[2]

    @property
    def log(self) -> str:
        return self.stderr.read_text()

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(PATIENCE_S)


@contextmanager
def serving(data_dir: Path, *arguments: object) -> Iterator[Server]:
    server = Server(data_dir, *arguments)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.wait()


SERVER_PROPERTIES = r"""
# A file as Kafka ships it.
process.roles=broker,controller
node.id=7
controller.quorum.voters=7@localhost:9093
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093
controller.listener.names=CONTROLLER
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.partitions=2
log.retention.hours=168
create.topic.policy.class.name=com.example.Policy
no.such.property=1
retention.ms=1
"""


def test_a_broker_from_its_start_to_its_end(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(SERVER_PROPERTIES)
    with serving(
        tmp_path / "data", "--config", config, "--listen", "0", "--metrics", "0", "--property", "num.partitions=3"
    ) as one:
        assert re.fullmatch(r"127\.0\.0\.1:[0-9]+", one.bootstrap)
        producer = Producer({"bootstrap.servers": one.bootstrap, "log_level": 0, "partitioner": "consistent"})
        for number in range(9):
            producer.produce("orders", b"%d" % number, partition=number % 3, timestamp=1373450400000)
        assert producer.flush(PATIENCE_S) == 0
        metrics = scrape(one)
        assert metrics['tidelog_topic_records_total{topic="orders"}'] == 9
        appends = metrics['tidelog_topic_appends_total{topic="orders"}']
        assert 3 <= appends <= 9
        assert metrics['tidelog_append_latency_seconds_count{topic="orders"}'] == appends
        assert metrics['tidelog_append_latency_seconds_bucket{le="+Inf",topic="orders"}'] == appends
        assert metrics['tidelog_append_latency_seconds_bucket{le="4294967.296",topic="orders"}'] == 0, "2013 is longer ago"
        assert metrics['tidelog_partitions{topic="orders"}'] == 3
        assert metrics["tidelog_group_partitions_left_out"] == 0
        assert metrics['tidelog_log_bytes{topic="orders"}'] > 9
        assert metrics["tidelog_connections"] >= 1
        assert 0 <= metrics["tidelog_unsent_bytes"] < metrics["tidelog_unsent_budget_bytes"] == 128 << 20
        assert 1 <= metrics['tidelog_requests_total{api="Produce"}'] <= 9
        assert metrics['tidelog_requests_total{api="Produce"}'] == metrics['tidelog_request_seconds_count{api="Produce"}']
        one.signal(signal.SIGTERM)
        assert one.wait() == 0
    assert (one.data_dir / CLEAN_SHUTDOWN_FILE).exists()
    assert LogDir(one.data_dir).topics() == {"orders": [0, 1, 2]}
    (unknown,) = [line for line in one.log.splitlines() if "unknown" in line]
    assert unknown.endswith("ignoring unknown properties: no.such.property, retention.ms (did you mean log.retention.ms?)")
    assert "node 7 of cluster" in one.log
    assert (
        "ignoring properties that Tidelog does not use: controller.quorum.voters, num.network.threads, process.roles" in one.log
    )
    assert "warning serve" in next(line for line in one.log.splitlines() if "create.topic.policy" in line)
    assert "ended cleanly" in one.log.splitlines()[-1]


def scrape(server: Server) -> dict[str, float]:
    found = re.search(r"metrics at (http://\S+)", server.log)
    assert found is not None
    with urllib.request.urlopen(found[1], timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: dict[int, bytes] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None
        acknowledged[message.offset()] = message.value()

    with serving(tmp_path / "data", "--listen", "0") as first:
        settings = {"bootstrap.servers": first.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        producer = Producer({**settings, "reconnect.backoff.max.ms": 100, "batch.num.messages": 20, "retry.backoff.ms": 10})
        sent = 0
        while len(acknowledged) < 500:
            producer.produce("orders", b"%d" % sent, partition=0, on_delivery=delivered)
            sent += 1
            # Its queue has room for 100,000, and a broker that starts slowly answers late.
            producer.poll(0.1 if len(producer) > 2000 else 0.001 if sent % 100 == 0 else 0)
        producer.produce("orders", b"%d" % sent, partition=0, on_delivery=delivered)
        sent += 1
        first.signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
    assert not (first.data_dir / CLEAN_SHUTDOWN_FILE).exists()
    before = dict(acknowledged)
    assert len(before) < sent, "it was in the middle of it"
    with serving(tmp_path / "data", "--listen", str(first.port)) as second:
        assert "recovered after an unclean shutdown" in second.log
        assert producer.flush(PATIENCE_S) == 0
        read = consume(second.bootstrap, sent)
        assert [read[offset] for offset in before] == list(before.values())
        assert list(read.values()) == [b"%d" % number for number in range(sent)], "each once, in order"
        second.signal(signal.SIGINT)
        assert second.wait() == 0


def consume(bootstrap: str, count: int) -> dict[int, bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0})
    consumer.assign([TopicPartition("orders", 0, 0)])
    messages = consumer.consume(count, PATIENCE_S)
    extra = consumer.consume(1, 0.2)
    consumer.close()
    assert extra == []
    return {message.offset(): message.value() for message in messages}


def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """Tried again where this process stood still between the two for as long as the broker waits after the first."""
    assert any(is_ended_by_the_second(tmp_path / str(number)) for number in range(5))


def is_ended_by_the_second(folder: Path) -> bool:
    """Send both. Return False if the broker has ended by the first: a client that does not take its answers keeps it for five
    seconds.
    """
    with serving(folder, "--listen", "0", "--metrics", "0") as server, socket.socket() as slow:
        # ApiVersions, over and over, and no answer is ever read: the broker owes the rest, and waits.
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        slow.setblocking(False)
        request = struct.pack(">ihhih", 10, 18, 0, 7, -1)
        unfinished = b""
        while not scrape(server)["tidelog_unsent_bytes"]:
            requests = unfinished + request * 5000
            with suppress(BlockingIOError):
                sent = slow.send(requests)
                unfinished = requests[sent:][: (len(unfinished) - sent) % len(request)]
        server.signal(signal.SIGTERM)
        wait_for_line(server, "send it again to stop at once")
        server.signal(signal.SIGTERM)
        status = server.wait()
    if status == 0 and "the next start runs recovery" not in server.log:
        return False
    assert status == 128 + signal.SIGTERM
    assert not (server.data_dir / CLEAN_SHUTDOWN_FILE).exists()
    assert "the next start runs recovery" in server.log
    return True


def wait_for_line(server: Server, text: str) -> None:
    with subprocess.Popen(["tail", "-c", "+1", "-f", server.stderr], stdout=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        for line in tail.stdout:
            if text in line.decode():
                break
        tail.kill()


def test_a_start_loads_nothing_that_serving_does_not_need() -> None:
    unwanted = (
        "numpy",
        "pyarrow",
        "rich",
        "prometheus_client",
        "tidelog.sources",
        "tidelog.client",
        "tidelog.reader.log",
    )
    imports = "sys, tidelog.cli.commands.serve, tidelog.cli.serving.process"
    code = f"import {imports}; print([name for name in {unwanted!r} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no data folder: give --data"),
        (["--property", "num.partitions"], "is not NAME=VALUE"),
        (["--property", "no.such=1"], "unknown property no.such"),
        (["--data", "data", "--listen", "host:port"], "--listen: not an address: found 'host:port', expected host:port"),
        (["--data", "data", "--listen", "0.0.0.0:9092"], "--listen: clients cannot connect to 0.0.0.0"),
        (["--data", "data", "--advertise", "x"], "--advertise: not an address"),
        (["--data", "data", "--metrics", "x"], "--metrics: not an address"),
    ],
)
def test_usage(arguments: list[str], message: str) -> None:
    ran = run("serve", *arguments)
    assert ran.exit_code == 2
    assert message in ran.error
    assert not Path("data").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "none.properties"], "cannot read the properties: No such file"),
        (["--property", "listeners=SSL://:9093"], "a listener with TLS needs ssl.keystore.location"),
        (["--property", "num.partitions=0"], "num.partitions is out of range"),
    ],
)
def test_errors(tmp_path: Path, arguments: list[str], message: str) -> None:
    ran = run("serve", "--data", tmp_path / "data", *arguments)
    assert ran.exit_code == 1
    assert message in ran.error
    assert not (tmp_path / "data").exists()


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("serve", "--data", tmp_path / "data", "--listen", port)
        assert ran.exit_code == 1
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in ran.error
        assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()
        ran = run("serve", "--data", tmp_path / "data", "--listen", 0, "--metrics", port)
        assert f"cannot serve metrics at 127.0.0.1:{port}: Address already in use" in ran.error


@pytest.mark.parametrize("how", [(), ("--read-only",)])
def test_a_log_with_a_hole_is_served_with_a_warning(how: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for topic in ("v2-none-ct", "v2-lz4-ct"):
        shutil.copytree(KAFKA_3 / f"{topic}-0", folder / f"{topic}-0")
    for path in (folder / "v2-none-ct-0").glob("00000000000000000160.*"):
        path.unlink()
    server = Server(folder, *how)
    said = "v2-none-ct-0: offsets [160, 325) missing: no segment holds them"
    until = time.monotonic() + PATIENCE_S
    while said not in server.log and time.monotonic() < until:
        time.sleep(0.05)
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert server.log.count(said) == 1 and server.log.count(" missing: ") == 1
