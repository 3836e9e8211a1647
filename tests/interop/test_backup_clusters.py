"""Three brokers of Kafka that clients reach by TLS and SASL, backed up, and restored into the same cluster and into a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

import tidelog
from tests.certificates import PASSWORD, Authority
from tests.cli.conftest import run, run_ok
from tests.interop.gate import first_of
from tests.interop.test_secured_cluster import SecuredCluster, secured_properties
from tests.kafka import why_not
from tests.kafka.clients import NewRow, commit_offsets, create_topics, produce

pytestmark = [pytest.mark.interop, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

NOON = 1_700_000_000_000
PARTITIONS = 4


def inside(cluster: SecuredCluster) -> str:
    """The brokers' addresses for TLS and SASL."""
    ends = [one.properties["listeners"].rpartition("//")[2] for one in cluster.brokers.values()]
    return ",".join(ends)


@pytest.mark.parametrize("release", first_of("3.9.1", "4.2.0", why="the protocol is the same: the other release's test"))
def test_three_secured_brokers(tmp_path: Path, release: str) -> None:
    """One is killed between two points; its leaders move."""
    authority = Authority(tmp_path / "tls")
    authority.sign("broker", hosts=("localhost", "127.0.0.1"))
    client = authority.sign("client")
    config = tmp_path / "client.properties"
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="{PASSWORD}";'
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={authority.ca}\nssl.keystore.location={client}\nsasl.jaas.config={login}\n"
    )
    properties = secured_properties(authority) | {"offsets.topic.replication.factor": "3"}
    with SecuredCluster(tmp_path / "cluster", release=release, properties=properties) as cluster:
        for number in (1, 2, 3):
            cluster.broker(number)
        create_topics(cluster.bootstrap, {"orders": {"min.insync.replicas": "2"}}, PARTITIONS, 3)

        def send(first: int) -> None:
            for number in range(PARTITIONS):
                rows = [NewRow(b"k%d" % at, b"%d" % at * 20, NOON + at) for at in range(first, first + 300)]
                produce(cluster.bootstrap, "orders", rows, number, acks="all")

        send(0)
        commit_offsets(cluster.bootstrap, "readers", [TopicPartition("orders", 2, 123)])
        backup, brokers = tmp_path / "backup", inside(cluster)
        assert run("backup", brokers, backup).exit_code == 1  # Without the login.
        run_ok("backup", brokers, backup, "--config", config)
        cluster.brokers[2].kill()
        send(300)
        run_ok("backup", brokers, backup, "--config", config)
        run_ok("backup", "verify", backup)

        restored = ["restore", backup, "--to", brokers, "--to-config", config, "--work", tmp_path / "work"]
        ran = run_ok(*restored, "--rename", "orders=again", "--partitions", "orders=7")
        assert ran.stdout.count("as in the backup") == PARTITIONS
        assert len(cluster_rows(cluster, "again")) == 600 * PARTITIONS
    run_ok("restore", backup, "--to", tmp_path / "folder")
    folder = tidelog.scan(tmp_path / "folder", "orders").read_all()
    assert folder.num_rows == 600 * PARTITIONS
    assert "readers" in run_ok("groups", "list", tmp_path / "folder").stdout


def cluster_rows(cluster: SecuredCluster, topic: str) -> list[dict[str, object]]:
    alive = ",".join(one.bootstrap for one in cluster.brokers.values() if one.process is not None)
    return tidelog.scan(alive, topic, isolation="read_committed").read_all().to_pylist()
