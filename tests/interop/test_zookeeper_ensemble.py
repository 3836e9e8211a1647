"""Three servers of ZooKeeper and a chroot in `zookeeper.connect`, one broker of Kafka 2.4.1 and one of ours.

Servers of ZooKeeper die one after the other, so that each session loses its server once: nobody is registered again, and in-sync
replicas go on being changed. Without a majority what is led is served on.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.kafka import old_wire
from tests.kafka.java import wait_until
from tests.kafka.members import TidelogMember
from tests.kafka.zookeeper_admin import ROOT, ZookeeperAdmin
from tests.kafka.zookeepers import ZookeeperCluster
from tests.patience import PATIENCE_S

TOPIC = "orders"
KAFKAS, OURS = 1, 2


def test_an_ensemble(tmp_path: Path) -> None:
    # A session is to outlive the election of another leader among servers that have little processor time.
    properties = {"inter.broker.protocol.version": "2.4", "zookeeper.session.timeout.ms": "60000", "log.retention.ms": "-1"}
    cluster = ZookeeperCluster(tmp_path, release="2.4.1", zookeeper="2.4.1", properties=properties, servers=3)
    member = TidelogMember(cluster, OURS)
    try:
        # One of three servers is no majority: it answers nobody, and the broker says what it waits for.
        member.begin()
        cluster.start_server(0)
        member.wait_for(f"broker {OURS} waits: no server of ZooKeeper ({cluster.servers}{ROOT}) answers yet")
        cluster.start_server(1)
        cluster.start_server(2)
        kafka = cluster.broker(KAFKAS)  # Who comes first makes the chroot.
        member.wait_for("is RUNNING")
        with cluster.client() as client:
            admin = ZookeeperAdmin(client)
            admin.create(TOPIC, [[OURS, KAFKAS]])
            admin.wait_for(TOPIC, [KAFKAS, OURS], OURS)
            sent: list[bytes] = []

            def produce(text: str) -> None:
                values = [f"{text} {i}".encode() for i in range(20)]
                old_wire.produce(lambda: member.port, TOPIC, values, magic=2)
                sent.extend(values)

            produce("all servers")
            registered = json.loads(client.get(f"{ROOT}/brokers/ids/{OURS}")[0])
            for number in range(3):
                cluster.stop_server(number)
                produce(f"without server {number}")
                # Ours leads, and writes in-sync replicas into what is left of ZooKeeper.
                kafka.pause()
                try:
                    produce(f"alone, without server {number}")
                    admin.wait_for(TOPIC, [OURS], OURS)
                finally:
                    kafka.go_on()
                admin.wait_for(TOPIC, [KAFKAS, OURS], OURS)
                cluster.start_server(number)
            assert member.said().count("registered as broker") == 1
            assert json.loads(client.get(f"{ROOT}/brokers/ids/{OURS}")[0]) == registered

            # No majority: what is led is served on.
            cluster.stop_server(0)
            cluster.stop_server(1)
            # A server without a majority closes all connections. What the member logs of it is limited to some lines a minute.
            wait_until(lambda: not client.connected, "the loss", PATIENCE_S)
            produce("no majority")
            cluster.start_server(0)
            cluster.start_server(1)
            produce("a majority")
            read = old_wire.read_all(lambda: member.port, TOPIC, version=4)
            assert [record.value for record in read] == sent
            admin.wait_for(TOPIC, [KAFKAS, OURS], OURS)
    finally:
        member.kill()
        cluster.__exit__(None, None, None)
