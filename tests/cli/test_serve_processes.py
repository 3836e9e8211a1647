"""`tidelog serve --processes`: several brokers of one folder, as clients and operators meet them."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.broker.eos.processes import broker_pids
from tests.broker.raw import RawClient
from tests.cli.conftest import run, run_ok
from tests.cli.test_serve import Server, serving
from tests.examples import IS_SOAK
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.clock import SystemClock
from tidelog.storage.log_manager import LogManager
from tidelog.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

KILLS = 200 if IS_SOAK else 2
PARTITIONS = 6


@contextmanager
def processes(folder: Path, count: int, *more: object) -> Iterator[Server]:
    with serving(folder, "--processes", count, "--listen", "0", *more) as server:
        yield server
        server.signal(signal.SIGTERM)
        assert server.wait() == 0, server.log


def admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})


def leaders(server: Server, topic: str) -> dict[int, int]:
    """Return the leader of each partition, once all have one."""
    client, until = admin(server), monotonic() + PATIENCE_S
    while monotonic() < until:
        found = client.list_topics(timeout=PATIENCE_S).topics.get(topic)
        if found is not None and found.partitions and all(one.leader >= 0 for one in found.partitions.values()):
            return {one.id: one.leader for one in found.partitions.values()}
    raise AssertionError(server.log)


def test_a_folder_with_more_and_fewer_processes(tmp_path: Path) -> None:
    """A folder of one broker is divided, grows and shrinks; nothing is lost, and tools see one folder."""
    folder = tmp_path / "data"
    written = 0
    for count in (0, 2, 3, 1):
        with processes(folder, count) if count else serving(folder, "--listen", "0") as server:
            if not count:
                client = admin(server)
                client.create_topics([NewTopic("orders", PARTITIONS, 1, config={"retention.ms": "-1"})])["orders"].result()
            assert len(server.bootstrap.split(",")) == max(count, 1)
            shares = Counter(leaders(server, "orders").values())
            assert len(shares) == max(count, 1) and max(shares.values()) - min(shares.values()) <= 1
            producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
            for number in range(60):
                producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
            assert producer.flush(PATIENCE_S) == 0
            written += 60
            client = admin(server)
            found = client.describe_configs([ConfigResource("topic", "orders")])
            (entries,) = (one.result(PATIENCE_S) for one in found.values())
            assert entries["retention.ms"].value == "-1"
            if not count:
                server.signal(signal.SIGTERM)
                assert server.wait() == 0
        listed = [json.loads(line) for line in run_ok("ls", folder, "--json").stdout.splitlines()]
        assert [(one["topic"], one["offsets"]) for one in listed if one["topic"] == "orders"] == [("orders", written)]
        assert int(run_ok("cat", folder, "orders", "--count").stdout.split()[-1].replace(",", "")) == written
    refused = run("serve", "--data", folder)
    assert refused.exit_code == 2 and "serve it with --processes" in refused.stderr


def test_its_parts_as_one(tmp_path: Path) -> None:
    """Metrics as one page; settings of one broker; groups and transactions over several brokers."""
    with processes(tmp_path / "data", 2, "--metrics", "127.0.0.1:0") as server:
        client = admin(server)
        client.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result()
        leaders(server, "orders")
        producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "t", "log_level": 0})
        producer.init_transactions(PATIENCE_S)
        for outcome in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for number in range(60):
                producer.produce("orders", outcome.__name__.encode(), partition=number % PARTITIONS)
            producer.flush(PATIENCE_S)
            outcome(PATIENCE_S)
        consumer = Consumer(
            {"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
        )
        consumer.subscribe(["orders"])
        values = [message.value() for message in received(consumer, 60)]
        assert values == [b"commit_transaction"] * 60
        consumer.commit(asynchronous=False)
        consumer.close()
        found = re.search(r"metrics of all brokers at http://(\S+)/metrics", server.log)
        assert found is not None
        page = urllib.request.urlopen(f"http://{found[1]}/metrics", timeout=PATIENCE_S).read().decode()
        shares = dict(re.findall(r'tidelog_partitions{broker="(\d)",topic="orders"} (\S+)', page))
        assert shares == {"1": "3.0", "2": "3.0"}
        assert page.count("# TYPE tidelog_connections gauge") == 1
        assert urllib.request.urlopen(f"http://{found[1]}/healthz", timeout=PATIENCE_S).read() == b"ok\n"
        asked = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
        with RawClient(("127.0.0.1", server.port)) as asking:

            def observers() -> list[int]:
                return [one.replica_id for one in asking.ask(asked, 2).topics[0].partitions[0].observers]

            wait_until(lambda: observers() == [1, 2], "both brokers to follow", PATIENCE_S)


def received(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    until = monotonic() + PATIENCE_S
    while len(found) < count and monotonic() < until:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message)
    return found


def test_a_broker_that_is_killed_again_and_again(tmp_path: Path) -> None:
    """Every acknowledged record is there once, in the order of its partition, and every transaction is whole."""
    with processes(tmp_path / "data", 2) as server:
        client = admin(server)
        for one in client.create_topics([NewTopic("sent", PARTITIONS, 1), NewTopic("copied", PARTITIONS, 1)]).values():
            one.result(PATIENCE_S)
        leaders(server, "sent")
        acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        is_over = threading.Event()

        def send() -> None:
            config = {"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "log_level": 0}
            producer = Producer({**config, "delivery.timeout.ms": PATIENCE_S * 1000, "linger.ms": 1})

            def delivered(error: KafkaError | None, message: Any) -> None:
                assert error is None, error
                acknowledged[message.partition()].append(int(message.value()))

            number = 0
            while not is_over.is_set():
                producer.produce("sent", b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered)
                number += 1
                producer.poll(0.002)
            assert producer.flush(PATIENCE_S) == 0

        sending = threading.Thread(target=send)
        sending.start()
        for round_ in range(KILLS):
            pids = broker_pids(server.process.pid)
            os.kill(pids[round_ % len(pids)], signal.SIGKILL)
            before = sum(map(len, acknowledged))
            until = monotonic() + PATIENCE_S
            while monotonic() < until and (
                len(broker_pids(server.process.pid)) < 2 or sum(map(len, acknowledged)) < before + 500
            ):
                is_over.wait(0.05)
            leaders(server, "sent")
        is_over.set()
        sending.join(2 * PATIENCE_S)
        assert not sending.is_alive()
        read: list[list[int]] = [[] for _ in range(PARTITIONS)]
        consumer = Consumer(
            {"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
        )
        consumer.subscribe(["sent"])
        for message in received(consumer, sum(map(len, acknowledged))):
            read[message.partition()].append(int(message.value()))
        consumer.close()
        assert read == acknowledged
        assert server.log.count("; restarting it in ") == KILLS


def test_a_killed_supervisor_leaves_no_broker(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--processes", 2, "--listen", "0") as server:
        pids = broker_pids(server.process.pid)
        server.process.kill()
        server.wait()
        until = monotonic() + PATIENCE_S
        while monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in pids):
            threading.Event().wait(0.05)
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    with processes(tmp_path / "data", 2) as server:
        assert len(server.bootstrap.split(",")) == 2


def test_arguments(tmp_path: Path) -> None:
    for text in ("0", "65", "two", "-1"):
        refused = run("serve", "--data", tmp_path, "--processes", text)
        assert refused.exit_code == 2 and "--processes" in refused.stderr, refused.stderr
    refused = run("serve", "--data", tmp_path, "--processes", "2", "--read-only")
    assert refused.exit_code == 2


def test_brokers_begin_with_a_snapshot(tmp_path: Path) -> None:
    """The metadata log no longer has its first records: new brokers fetch its snapshot."""
    folder = tmp_path / "data"
    with LogManager(folder, SystemClock()) as manager:
        for number in range(20):
            manager.create_topic(f"topic-{number}", 2)
        manager.metadata.take_snapshot()
    assert not (folder / "__cluster_metadata-0" / f"{0:020}.log").exists()
    with processes(folder, 2) as server:
        assert Counter(leaders(server, "topic-19").values()) == {1: 1, 2: 1}
        assert len(admin(server).list_topics(timeout=PATIENCE_S).topics) == 20
