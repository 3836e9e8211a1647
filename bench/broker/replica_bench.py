"""Catching up: a restarted follower copies the records that it has missed; a Tidelog broker compared with an Apache Kafka broker.

    python -m bench.broker.replica_bench [--mb 200] [--rounds 3] [--zookeeper] [--json]

One controller and one leader, both Kafka 3.9.1 (one broker is both with --zookeeper), and two followers, Kafka's and ours, of the
same six partitions. In turn, each follower is stopped, the leader gets the given MB of records of 1,000 bytes from librdkafka
(acks=1), and the follower starts. The bench measures the time from the follower's first byte of records until it is in sync with
all partitions, and its processor time in between. The time of the start is shown separately. Also shown: the follower's peak
memory with mapped files, and the longest wait of a client that asks the follower for an offset of another partition every 5 ms,
from when it serves clients. At the end the replicas are compared, byte for byte. The page cache is warm for both.

Needs Java and Maven.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.kafka.clients import make_topics
from tests.kafka.clusters import KafkaCluster, KafkaNode
from tests.kafka.java import is_listening, wait_until
from tests.kafka.members import TidelogMember
from tests.kafka.zookeepers import ZookeeperCluster

from bench.broker.processor_time import own_seconds
from bench.broker.requests import LIST_OFFSETS_VERSION, frame, list_offsets_request
from tidelog.check.replicas.replicas_verify import verify_replicas

LEADER, THEIRS, OURS = 1, 2, 3
TOPIC, PARTITIONS = "orders", 6
PROBED = "probed-{}"
PATIENCE_S = 600
MIN_RATIO = 1.0

Figures = dict[str, float]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="catching up of a replica, against Kafka 3.9.1")
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3, help="the medians count")
    parser.add_argument("--zookeeper", action="store_true", help="a cluster under ZooKeeper instead of KRaft")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    kind = ZookeeperCluster if options.zookeeper else KafkaCluster
    with tempfile.TemporaryDirectory(prefix="replica-bench-") as folder, kind(Path(folder), heap_mb=512) as cluster:
        found = measure(cluster, options.mb, options.rounds)
    medians = {who: {name: statistics.median(one[name] for one in runs) for name in runs[0]} for who, runs in found.items()}
    ratio = medians["Kafka"]["catch_up_s"] / medians["Tidelog"]["catch_up_s"]
    if options.json:
        print(json.dumps({"runs": found, "medians": medians, "speed": ratio}, indent=2))
    else:
        for who, figures in medians.items():
            print(f"{who:8}", *(f"{name} {value:.2f}" for name, value in figures.items()))
        print(f"catching up: {ratio:.2f} × Kafka's speed ({MIN_RATIO:g} wanted)")
    return ratio < MIN_RATIO


def measure(cluster: Any, megabytes: int, rounds: int) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {"Kafka": [], "Tidelog": []}
    leader = cluster.broker(LEADER)
    theirs = cluster.broker(THEIRS)
    ours = TidelogMember(cluster, OURS)
    ours.start()
    nodes: dict[str, tuple[int, Any]] = {"Kafka": (THEIRS, theirs), "Tidelog": (OURS, ours)}
    admin = AdminClient({"bootstrap.servers": leader.bootstrap, "log_level": 0})
    try:
        topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=[[LEADER, THEIRS, OURS]] * PARTITIONS)
        probed = [NewTopic(PROBED.format(node_id), 1, replica_assignment=[[node_id]]) for node_id in (THEIRS, OURS)]
        make_topics(leader.bootstrap, [topic, *probed])
        for node_id, _ in nodes.values():
            wait_until(lambda node_id=node_id: in_sync(admin, node_id), "all in sync", PATIENCE_S)  # type: ignore[misc]
        for _ in range(rounds):
            for who, (node_id, node) in nodes.items():
                node.stop()
                wait_until(lambda node_id=node_id: is_out(admin, node_id), "out of sync", PATIENCE_S)  # type: ignore[misc]
                load(leader.bootstrap, megabytes)
                found[who].append(caught_up(admin, node_id, node))
        report = verify_replicas([leader.data, theirs.data, ours.data], [TOPIC], threads=2)
        assert report.is_equal and len(report.partitions) == PARTITIONS
    finally:
        ours.kill()
    return found


def load(bootstrap: str, megabytes: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 20, "batch.size": 200_000})
    value = os.urandom(1000)
    for number in range(megabytes * 1000):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(PATIENCE_S) == 0


def caught_up(admin: AdminClient, node_id: int, node: Any) -> Figures:
    """Start a follower and wait until it is in sync."""
    began, before = time.monotonic(), stored(node.data)
    if isinstance(node, TidelogMember):
        node.begin()
    elif isinstance(node, KafkaNode):
        node.start(waits=False)
    else:
        threading.Thread(target=node.start).start()
        wait_until(lambda: node.process is not None, "a process", PATIENCE_S)
    pid = node.process.pid
    while stored(node.data) == before:
        time.sleep(0.01)
    first, spent = time.monotonic(), own_seconds(pid)
    with prober(node_id, node.port) as stalls:
        while not in_sync(admin, node_id):
            time.sleep(0.02)
        end = time.monotonic()
    return {
        "start_s": first - began,
        "catch_up_s": end - first,
        "processor_s": own_seconds(pid) - spent,
        "peak_mb": peak_mb(pid),
        "longest_wait_ms": stalls["longest_ms"],
    }


@contextmanager
def prober(node_id: int, port: int) -> Iterator[Figures]:
    """Ask a broker for an offset every 5 ms, once it serves clients; the figures are complete at the end."""
    found: Figures = {}
    wait_until(lambda: is_listening(port), "clients to be served", PATIENCE_S)
    asked = frame(list_offsets_request(PROBED.format(node_id), {0: -1}), LIST_OFFSETS_VERSION)
    command = [sys.executable, "-m", "bench.broker.prober", str(port), asked.hex()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield found
        printed, _ = process.communicate(timeout=PATIENCE_S)
        found |= json.loads(printed.splitlines()[-1])


def peak_mb(pid: int) -> float:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


def stored(data: Path) -> int:
    return sum(path.stat().st_size for path in data.glob(f"{TOPIC}-*/*.log"))


def isrs(admin: AdminClient) -> list[list[int]]:
    return [one.isrs for one in admin.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions.values()]


def in_sync(admin: AdminClient, node_id: int) -> bool:
    found = isrs(admin)
    return len(found) == PARTITIONS and all(node_id in isr for isr in found)


def is_out(admin: AdminClient, node_id: int) -> bool:
    return all(node_id not in isr for isr in isrs(admin))


if __name__ == "__main__":
    sys.exit(main())
