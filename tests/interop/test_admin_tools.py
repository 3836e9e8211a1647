"""Kafka 3.9.1's command-line tools for admins, against the broker: topics, properties, records, folders, the cluster.

Run as their shell scripts do, with a user's options. `TIDELOG_CLIENTS_AGAINST=3.9.1` points them at Kafka instead.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.peers import AGAINST, Peer, served
from tests.kafka.clients import NewRow, produce, watermarks
from tests.kafka.java_tools import run_tool
from tidelog.broker.apis.api_versions import LAST_OF_3_9
from tidelog.broker.dispatch.dispatcher import APIS

RELEASE = "3.9.1"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
API_VERSIONS = "kafka.admin.BrokerApiVersionsCommand"

FIRST_MS = int(time.time() * 1000) - 3_600_000


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with served(tmp_path_factory.mktemp("admin-tools")) as peer:
        yield peer


def tool(peer: Peer, main: str, *arguments: str, check: bool = True) -> str:
    return run_tool(RELEASE, main, (*arguments, "--bootstrap-server", peer.bootstrap), check=check)


def test_topics(peer: Peer) -> None:
    """kafka-topics: create, describe, alter, list, delete."""
    create = ("--create", "--topic", "orders", "--partitions", "2", "--replication-factor", "1")
    assert "Created topic orders." in tool(peer, TOPICS, *create, "--config", "retention.ms=5000")
    refused = tool(peer, TOPICS, "--create", "--topic", "or.ders", "--replication-factor", "3", check=False)
    assert "InvalidReplicationFactorException" in refused
    tool(peer, TOPICS, "--alter", "--topic", "orders", "--partitions", "3")
    described = tool(peer, TOPICS, "--describe", "--topic", "orders")
    (first, *partitions) = [re.split(r"\t+", line.strip()) for line in described.splitlines() if line.strip()]
    assert first[0] == "Topic: orders"
    assert first[2:] == ["PartitionCount: 3", "ReplicationFactor: 1", "Configs: retention.ms=5000"]
    assert [line[1:5] for line in partitions] == [[f"Partition: {p}", "Leader: 1", "Replicas: 1", "Isr: 1"] for p in range(3)]
    tool(peer, TOPICS, "--create", "--topic", "going")
    tool(peer, TOPICS, "--delete", "--topic", "going")
    listed = tool(peer, TOPICS, "--list").split()
    assert ("orders" in listed, "going" in listed) == (True, False)


def test_configs(peer: Peer) -> None:
    """kafka-configs: of a topic, of the broker, of its loggers."""
    peer.create_topics({"set": {"retention.ms": "5000"}})
    change = ("--add-config", "segment.bytes=100000,cleanup.policy=[compact,delete]", "--delete-config", "retention.ms")
    assert "Completed updating config for topic set." in tool(peer, CONFIGS, "--alter", "--topic", "set", *change)
    changed = tool(peer, CONFIGS, "--describe", "--topic", "set")
    assert sorted(re.findall(r"(?m)^  (\S+) sensitive=false synonyms=\{(\S+?)[,}]", changed)) == [
        ("cleanup.policy=compact,delete", "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact"),
        ("segment.bytes=100000", "DYNAMIC_TOPIC_CONFIG:segment.bytes=100000"),
    ]
    of_broker = tool(peer, CONFIGS, "--describe", "--broker", "1", "--all")
    assert re.search(r"(?m)^  log.segment.bytes=1073741824 sensitive=false synonyms=\{DEFAULT_CONFIG:", of_broker)
    refused = tool(peer, CONFIGS, "--alter", "--broker", "1", "--add-config", "num.partitions=5", check=False)
    assert "InvalidRequestException" in refused


def test_loggers(peer: Peer) -> None:
    logger = "kafka.server.KafkaApis" if AGAINST == RELEASE else "tidelog.broker"
    tool(peer, CONFIGS, "--alter", "--broker-logger", "1", "--add-config", f"{logger}=ERROR")
    assert f"  {logger}=ERROR " in tool(peer, CONFIGS, "--describe", "--broker-logger", "1")


def test_offsets_and_records(peer: Peer, tmp_path: Path) -> None:
    """kafka-get-offsets and kafka-delete-records."""
    peer.create_topics({"kept": {}}, partitions=2)
    produce(peer.bootstrap, "kept", [NewRow(None, b"value", FIRST_MS + row) for row in range(10)])
    assert tool(peer, GET_OFFSETS, "--topic", "kept").split() == ["kept:0:10", "kept:1:0"]
    wanted = [{"topic": "kept", "partition": 0, "offset": 4}, {"topic": "kept", "partition": 1, "offset": -1}]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))
    deleted = tool(peer, DELETE_RECORDS, "--offset-json-file", str(file))
    assert sorted(re.findall(r"partition: (\S+)\s+low_watermark: (\d+)", deleted)) == [("kept-0", "4"), ("kept-1", "0")]
    assert watermarks(peer.bootstrap, "kept", 0) == (4, 10)


def test_folders(peer: Peer) -> None:
    """kafka-log-dirs."""
    peer.create_topics({"sized": {}})
    produce(peer.bootstrap, "sized", [NewRow(None, b"x" * 1000, FIRST_MS)])
    (line,) = [one for one in tool(peer, LOG_DIRS, "--describe", "--topic-list", "sized").splitlines() if one.startswith("{")]
    ((broker,), stored) = json.loads(line)["brokers"], peer.data / "sized-0" / "00000000000000000000.log"
    (folder,) = broker["logDirs"]
    assert (folder["error"], Path(folder["logDir"])) == (None, peer.data)
    assert folder["partitions"] == [{"partition": "sized-0", "size": stored.stat().st_size, "offsetLag": 0, "isFuture": False}]


def test_cluster_and_versions(peer: Peer) -> None:
    """kafka-cluster and kafka-broker-api-versions: each API here is usable, in the newest version that the tool knows."""
    (said,) = re.findall(r"(?m)^cluster\.id=(\S+)$", (peer.data / "meta.properties").read_text())
    assert tool(peer, CLUSTER, "cluster-id").strip() == f"Cluster ID: {said}"
    usable = re.findall(r"(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[usable: (\d+)\]", tool(peer, API_VERSIONS))
    told = {int(key): (int(low), int(high or low), int(best)) for _, key, low, high, best in usable}
    listed = {api.request.API_KEY: (api.served.first, LAST_OF_3_9.get(api.name, api.served.last)) for api in APIS}
    assert {key: told[key][:2] for key in listed} == listed
    assert [key for key, (_, last, best) in told.items() if best < last] == []


def test_the_tools_of_clusters(peer: Peer, tmp_path: Path) -> None:
    """kafka-metadata-quorum, kafka-leader-election, kafka-reassign-partitions: one node is a cluster, too."""
    tool(peer, TOPICS, "--create", "--topic", "alone")
    status = run_tool(RELEASE, QUORUM, ("--bootstrap-server", peer.bootstrap, "describe", "--status"))
    assert re.search(r"LeaderId:\s+1\n", status)
    assert re.search(r"CurrentVoters:.*\b1\b.*\nCurrentObservers:\s+\[\]", status)
    lines = run_tool(RELEASE, QUORUM, ("--bootstrap-server", peer.bootstrap, "describe", "--replication"))
    assert len(re.findall(r"^1\s.*\s0\s.*Leader", lines, re.MULTILINE)) == 1
    tool(peer, ELECT, "--election-type", "preferred", "--all-topic-partitions")
    elected = tool(peer, ELECT, "--election-type", "preferred", "--topic", "alone", "--partition", "0")
    assert "Valid replica already elected for partitions alone-0" in elected
    assert "No partition reassignments found." in tool(peer, REASSIGN, "--list")
    path = tmp_path / "moves.json"
    wanted = [{"topic": "alone", "partition": 0, "replicas": [1]}]
    path.write_text(json.dumps({"version": 1, "partitions": wanted}))
    assert "Successfully started" in tool(peer, REASSIGN, "--reassignment-json-file", str(path), "--execute")
    assert "alone-0 is completed" in tool(peer, REASSIGN, "--reassignment-json-file", str(path), "--verify")
    path.write_text(json.dumps({"version": 1, "partitions": [{**wanted[0], "replicas": [9]}]}))
    refused = tool(peer, REASSIGN, "--reassignment-json-file", str(path), "--execute", check=False)
    assert "Unknown broker id 9" in refused or "InvalidReplicaAssignment" in refused
