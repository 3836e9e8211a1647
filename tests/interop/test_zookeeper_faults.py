"""What can go wrong around a broker of ours in a ZooKeeper cluster of Kafka 2.4.1: no controller, no ZooKeeper, lost sessions.

A producer with acks=all and a consumer go on meanwhile; at the end each acknowledged record is where it was promised to be, and
replicas are equal. `make soak` has ZooKeeper away for a minute.
"""

from __future__ import annotations

import time
from pathlib import Path

from kazoo.exceptions import KazooException

from tests.examples import IS_SOAK
from tests.kafka.java import wait_until
from tests.kafka.members import TidelogMember
from tests.kafka.zookeeper_admin import ZookeeperAdmin
from tests.kafka.zookeepers import ZookeeperCluster
from tests.migration import judge
from tests.migration.clients import Reader, Writer
from tests.patience import PATIENCE_S

TOPIC, OURS = "orders", 3
ASSIGNMENT = [[1, 2, OURS], [OURS, 1, 2], [2, OURS, 1]]
AWAY_S = 60 if IS_SOAK else 5


class Flow:
    """A cluster of three brokers, a producer and a consumer."""

    def __init__(self, cluster: ZookeeperCluster, member: TidelogMember, admin: ZookeeperAdmin) -> None:
        self.cluster = cluster
        self.member = member
        self.admin = admin
        self.writer = Writer(2, TOPIC, len(ASSIGNMENT), self.port)
        self.reader = Reader(2, TOPIC, len(ASSIGNMENT), self.port)

    def port(self, partition: int) -> int:
        """Where the leader listens. Raises OSError where nobody knows."""
        try:
            state = self.admin.state(TOPIC, partition)
        except KazooException as error:
            raise OSError(str(error)) from None
        if state is None or state.leader < 0:
            raise OSError("no leader")
        return self.member.port if state.leader == OURS else self.cluster.brokers[state.leader].port

    def goes_on(self) -> None:
        """Wait until records of each partition are acknowledged once more, and read."""
        before = self.writer.counts()
        wait_until(
            lambda: all(now > then + 5 for now, then in zip(self.writer.counts(), before, strict=True)),
            f"more than {before} records",
            PATIENCE_S,
        )
        judge.wait_until_read([self.writer], [self.reader], len(ASSIGNMENT))

    def wait_for(self, isr: list[int]) -> None:
        for partition in range(len(ASSIGNMENT)):
            self.admin.wait_for(TOPIC, isr, partition=partition)

    def end(self) -> None:
        self.writer.close()
        judge.wait_until_read([self.writer], [self.reader], len(ASSIGNMENT))
        self.reader.close()


def test_faults(tmp_path: Path) -> None:
    properties = {"inter.broker.protocol.version": "2.4", "log.retention.ms": "-1", "min.insync.replicas": "2"}
    with ZookeeperCluster(tmp_path, release="2.4.1", zookeeper="2.4.1", properties=properties) as cluster:
        member = TidelogMember(cluster, OURS)
        try:
            # Without a controller it says what it waits for, and does when there is one.
            member.begin()
            member.wait_for("the cluster has no active controller; only a broker of Apache Kafka can become the controller")
            assert "is RUNNING" not in member.said()
            for node_id in (1, 2):
                cluster.broker(node_id)
            member.wait_for("is RUNNING")
            with cluster.client() as client:
                flow = Flow(cluster, member, ZookeeperAdmin(client))
                try:
                    flow.admin.create(TOPIC, ASSIGNMENT)
                    flow.wait_for([1, 2, OURS])
                    flow.goes_on()
                    zookeeper_is_away(flow)
                    the_controller_dies(flow)
                    our_session_expires(flow)
                    flow.end()
                finally:
                    flow.writer.stop()
                    flow.reader.stop()
            assert judge.wrong([flow.writer], [flow.reader]) == []
            folders = [*(one.data for one in cluster.brokers.values()), member.data]
            for partition in range(len(ASSIGNMENT)):
                wait_until(
                    lambda partition=partition: len({judge.bytes_of(one, TOPIC, partition) for one in folders}) == 1,  # type: ignore[misc]
                    f"equal replicas of {TOPIC}-{partition}",
                    PATIENCE_S,
                )
        finally:
            member.kill()


def zookeeper_is_away(flow: Flow) -> None:
    """Leaders of Kafka's and ours serve on, and so they do when it is back."""
    flow.cluster.stop_zookeeper()
    until = time.monotonic() + AWAY_S
    flow.goes_on()
    while time.monotonic() < until:
        flow.goes_on()
    flow.cluster.start_zookeeper()
    flow.goes_on()
    flow.wait_for([1, 2, OURS])


def the_controller_dies(flow: Flow) -> None:
    """Another broker of Kafka's is it then; what the dead one led moves, and comes back into sync."""
    dead = flow.admin.controller()
    flow.cluster.brokers[dead].kill()
    others = sorted({1, 2, OURS} - {dead})
    wait_until(lambda: flow.admin.controller() not in (-1, dead), "another controller", PATIENCE_S)
    flow.wait_for(others)
    flow.goes_on()
    flow.cluster.brokers[dead].start()
    flow.wait_for([1, 2, OURS])
    flow.goes_on()


def our_session_expires(flow: Flow) -> None:
    """The others go on without it; it registers again by itself."""
    before = flow.member.said().count("registered as broker")
    flow.member.pause()
    try:
        wait_until(lambda: not flow.admin.is_registered(OURS), "the session's end", PATIENCE_S)
        flow.wait_for([1, 2])
    finally:
        flow.member.go_on()
    flow.wait_for([1, 2, OURS])
    flow.goes_on()
    # It follows before it is registered again.
    wait_until(lambda: flow.member.said().count("registered as broker") > before, "another registration", PATIENCE_S)
