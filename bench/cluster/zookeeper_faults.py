"""Faults in a cluster with ZooKeeper: how long producers wait for leaders of Kafka 2.4.1 and for Tidelog's, in one run.

    python -m bench.cluster.zookeeper_faults [--away 60] [--only FAULT …]

Needs Java and Maven. Two brokers of Kafka 2.4.1 and one of Tidelog have three replicas of each partition; each leads one, and an
idempotent producer (librdkafka, acks=all) writes to each continuously. The result is the longest time between two
acknowledgements. At the end each acknowledged record must be stored once and in order, and replicas must be equal, byte for byte.

| fault | |
|---|---|
| ZooKeeper is down | its process is killed, and started again after `--away` seconds |
| a session expires, a broker is killed | Tidelog's; then, for comparison, Kafka's broker that is not the controller |
| the controller is killed | another of Kafka's brokers becomes the controller |
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

from confluent_kafka import Producer
from tests.kafka import old_wire
from tests.kafka.jars import why_not
from tests.kafka.java import wait_until
from tests.kafka.members import TidelogMember
from tests.kafka.zookeeper_admin import ZookeeperAdmin
from tests.kafka.zookeepers import KafkaBroker, ZookeeperCluster
from tests.migration import judge
from tests.patience import PATIENCE_S

from bench.children.scratch import scratch

OUT = scratch("zookeeper")
TOPIC, OURS = "orders", 3
LED = {1: 0, 2: 1, OURS: 2}
"""The partition that each broker leads."""
PAUSE_S = 0.02
SETTLE_S = 3.0


class Sender:
    """Writes numbers to one partition, and records when each was acknowledged."""

    def __init__(self, bootstrap: str, partition: int) -> None:
        self.partition = partition
        self.acknowledged: dict[int, bytes] = {}
        self.failed: list[str] = []
        self.times: list[float] = []
        settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "delivery.timeout.ms": 300_000,
            "topic.metadata.refresh.interval.ms": 5000,
            "log_level": 0,
        }
        self._producer = Producer(settings)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            with suppress(BufferError):
                self._producer.produce(TOPIC, f"{self.partition} {number}", partition=self.partition, on_delivery=self._told)
                number += 1
            self._producer.poll(PAUSE_S)
            self._is_over.wait(PAUSE_S)
        self._producer.flush(PATIENCE_S)

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        self.acknowledged[message.offset()] = message.value()
        self.times.append(time.monotonic())

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def longest_s(self, since: float, until: float) -> float:
        """The longest time without an acknowledgement."""
        places = [since, *(at for at in list(self.times) if since < at < until), until]
        return max(after - before for before, after in pairwise(places))


class Setting:
    """The cluster and its producers."""

    def __init__(
        self, cluster: ZookeeperCluster, member: TidelogMember, admin: ZookeeperAdmin, senders: dict[int, Sender]
    ) -> None:
        self.cluster = cluster
        self.member = member
        self.admin = admin
        self.senders = senders

    def broker(self, node_id: int) -> KafkaBroker | TidelogMember:
        return self.member if node_id == OURS else self.cluster.brokers[node_id]

    def other_of_kafkas(self) -> int:
        """The Kafka broker that is not the controller."""
        return 3 - self.admin.controller()

    def in_order(self) -> None:
        """Wait until all replicas are in sync, and each broker leads its partition."""
        for node_id, partition in LED.items():
            self.admin.wait_for(TOPIC, list(LED), partition=partition)
            state = self.admin.state(TOPIC, partition)
            if state is not None and state.leader != node_id:
                self.admin.elect(TOPIC, partition)
                self.admin.wait_for(TOPIC, list(LED), node_id, partition)
        self.flows()

    def flows(self) -> None:
        before = {one: len(sender.times) for one, sender in self.senders.items()}
        wait_until(lambda: all(len(sender.times) > before[one] + 5 for one, sender in self.senders.items()), "all", PATIENCE_S)


def zookeeper_is_away(setting: Setting, away_s: float) -> None:
    setting.cluster.stop_zookeeper()
    time.sleep(away_s)
    setting.cluster.start_zookeeper()
    time.sleep(SETTLE_S)


def killed(setting: Setting, node_id: int) -> None:
    """Kill a broker with kill -9, wait until others lead, and start it again."""
    broker = setting.broker(node_id)
    broker.kill()
    setting.admin.wait_for(TOPIC, [one for one in LED if one != node_id], partition=LED[node_id])
    setting.flows()
    broker.start()


def session_expires(setting: Setting, node_id: int) -> None:
    """Stop a broker by SIGSTOP until others lead, and let it continue."""
    broker = setting.broker(node_id)
    broker.pause()
    try:
        setting.admin.wait_for(TOPIC, [one for one in LED if one != node_id], partition=LED[node_id])
        setting.flows()
    finally:
        broker.go_on()


@contextmanager
def running() -> Iterator[Setting]:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    properties = {"inter.broker.protocol.version": "2.4", "log.retention.ms": "-1", "min.insync.replicas": "2"}
    properties |= {"controller.socket.timeout.ms": "5000", "replica.lag.time.max.ms": "6000"}
    with ZookeeperCluster(OUT, release="2.4.1", zookeeper="2.4.1", properties=properties) as cluster:
        for node_id in (1, 2):
            cluster.broker(node_id)
        member = TidelogMember(cluster, OURS)
        senders: dict[int, Sender] = {}
        try:
            member.start()
            with cluster.client() as client:
                admin = ZookeeperAdmin(client)
                admin.create(TOPIC, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
                bootstrap = f"{cluster.bootstrap},{member.bootstrap}"
                senders.update({node_id: Sender(bootstrap, partition) for node_id, partition in LED.items()})
                setting = Setting(cluster, member, admin, senders)
                setting.in_order()
                yield setting
        finally:
            for sender in senders.values():
                sender.close()
            member.kill()


def checked(setting: Setting) -> list[str]:
    """Close the producers, and return the errors found: lost, repeated or reordered records, and differences of replicas."""
    wrong = []
    folders = {node_id: setting.broker(node_id).data for node_id in LED}
    for node_id, sender in setting.senders.items():
        sender.close()
        partition = sender.partition
        wrong += [f"{partition}: {one}" for one in sender.failed[:3]]
        wait_until(
            lambda partition=partition: len({judge.bytes_of(one, TOPIC, partition) for one in folders.values()}) == 1,  # type: ignore[misc]
            f"equal replicas of {TOPIC}-{partition}",
            PATIENCE_S,
        )
        port = setting.broker(node_id).port
        setting.admin.wait_for(TOPIC, list(LED), node_id, partition)
        read = old_wire.read_all(lambda port=port: port, TOPIC, version=4, partition=partition)  # type: ignore[misc]
        values = [record.value for record in read]
        if values != [f"{partition} {number}".encode() for number in range(len(values))]:
            wrong.append(f"{partition}: records are not there once, in their order")
        wrong += [f"{partition}: {offset} is lost" for offset, value in sender.acknowledged.items() if values[offset] != value]
    return wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="what producers see of a ZooKeeper cluster in which things fail")
    parser.add_argument("--away", type=float, default=60.0, help="seconds without ZooKeeper")
    parser.add_argument("--only", nargs="+", default=[], metavar="FAULT", help="faults whose names contain one of these")
    options = parser.parse_args(arguments)
    reason = why_not()
    if reason:
        print(reason, file=sys.stderr)
        return 0
    faults: dict[str, Callable[[Setting], None]] = {
        "nothing": lambda setting: time.sleep(10),
        f"ZooKeeper away, {options.away:g} s": lambda setting: zookeeper_is_away(setting, options.away),
        "session expires, ours": lambda setting: session_expires(setting, OURS),
        "session expires, Kafka's": lambda setting: session_expires(setting, setting.other_of_kafkas()),
        "kill -9, ours": lambda setting: killed(setting, OURS),
        "kill -9, Kafka's": lambda setting: killed(setting, setting.other_of_kafkas()),
        "kill -9, the controller": lambda setting: killed(setting, setting.admin.controller()),
    }
    print(
        f"{'longest wait for an acknowledgement, s':34} {'Kafka leads':>13} {'Kafka leads':>13} {'Tidelog leads':>13}", flush=True
    )
    with running() as setting:
        for name, fault in faults.items():
            if options.only and not any(one in name for one in options.only):
                continue
            began = time.monotonic()
            fault(setting)
            setting.in_order()
            waits = {one: sender.longest_s(began, time.monotonic()) for one, sender in setting.senders.items()}
            controller = setting.admin.controller()
            said = [f"{wait:.2f}{' c' if node_id == controller else ''}" for node_id, wait in waits.items()]
            print(f"{name:34} {said[0]:>13} {said[1]:>13} {said[2]:>13}", flush=True)
        wrong = checked(setting)
        count = sum(len(sender.acknowledged) for sender in setting.senders.values())
    print(f"c: the controller, at the end of the fault. {count} records acknowledged, {len(wrong)} things are wrong")
    for line in wrong:
        print(line)
    shutil.rmtree(OUT, ignore_errors=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
