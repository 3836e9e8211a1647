"""Kafka 3.9.1's tools for admins, against members of a cluster under Kafka's controllers: any broker answers for the cluster.

Brokers 1 and 2 are Tidelog's, broker 5 is Kafka's. The tools ask one of the first two for the cluster; which broker they then
send a request to is their own choice, as in any cluster.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from tests.broker.eos.copying import Copying
from tests.broker.produce_helpers import message_set, produce_request, some_records
from tests.broker.raw import RawClient
from tests.interop.test_exactly_once import java_copier
from tests.kafka.clients import metadata
from tests.kafka.clusters import KafkaCluster
from tests.kafka.java import free_port, wait_until
from tests.kafka.java_tools import run_tool
from tests.patience import PATIENCE_S
from tidelog.broker.coordinators.transactions.transaction import Transaction, TransactionState
from tidelog.broker.coordinators.transactions.transaction_records import read_transaction
from tidelog.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.records import Record, iter_records
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tidelog.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from tidelog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName

RELEASE = "3.9.1"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
API_VERSIONS = "kafka.admin.BrokerApiVersionsCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"

OURS = (1, 2)
THEIRS = 5


class Members:
    """A cluster, and how its tools are run."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.bootstraps: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, node_id: int) -> None:
        port, data, path = free_port(), self.folder / f"member-{node_id}", self.folder / f"server-{node_id}.properties"
        self.cluster.format(data, node_id)
        properties = self.cluster.member_properties(node_id, port, data)
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        with (self.folder / f"serve-{node_id}.err").open("wb") as said:
            command = [sys.executable, "-m", "tidelog", "serve", "--config", path]
            self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said))
        self.bootstraps.append(f"127.0.0.1:{port}")

    def wait(self, wanted: set[int]) -> None:
        for bootstrap in self.bootstraps:
            admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
            wait_until(lambda admin=admin: wanted == set(metadata(admin).brokers), "all brokers")  # type: ignore[misc]

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()

    def tool(self, main: str, *arguments: str, at: int = 0, check: bool = True) -> str:
        return run_tool(RELEASE, main, ("--bootstrap-server", self.bootstraps[at], *arguments), check=check)

    def in_sync(self, topic: str, at: int = 1) -> dict[int, tuple[int, list[int]]]:
        """Leader and replicas of each partition that has all replicas in sync; none while that broker does not know the topic."""
        shown = self.tool(TOPICS, "--describe", "--topic", topic, at=at, check=False)
        found = {}
        for number, leader, *both in re.findall(r"Partition: (\d+)\tLeader: (\d+)\tReplicas: ([\d,]+)\tIsr: ([\d,]+)", shown):
            replicas, isr = ([int(one) for one in each.split(",")] for each in both)
            if sorted(replicas) == sorted(isr):
                found[int(number)] = int(leader), replicas
        return found

    def written(self, name: str, content: object) -> str:
        path = self.folder / name
        path.write_text(json.dumps(content))
        return str(path)


@contextmanager
def members_of(folder: Path, release: str, ours: tuple[int, ...] = OURS) -> Iterator[Members]:
    properties = {
        "auto.create.topics.enable": "true",
        "default.replication.factor": "2",
        "num.partitions": "3",
        "group.min.session.timeout.ms": "500",
        # Nobody is killed: who stands still for a while stays a member.
        "broker.session.timeout.ms": "30000",
    }
    with KafkaCluster(folder, release=release, properties=properties) as cluster:
        members = Members(cluster, folder)
        try:
            for node_id in ours:
                members.start(node_id)
            cluster.broker(THEIRS)
            members.wait({*ours, THEIRS})
            yield members
        finally:
            members.stop()
        for node_id in ours:
            said = (folder / f"serve-{node_id}.err").read_text()
            assert "Traceback" not in said, said


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    with members_of(tmp_path_factory.mktemp("cluster-admin"), RELEASE) as members:
        members.tool(TOPICS, "--create", "--topic", "orders", "--replica-assignment", "1:2,2:1,5:1")
        produce(members, "orders", 3)
        yield members


def produce(members: Members, topic: str, partitions: int, count: int = 300) -> None:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": members.bootstraps[0], "acks": "all"})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def test_topics(members: Members) -> None:
    """kafka-topics, and topics that somebody uses: the controllers make them, all members show them."""
    created = members.tool(TOPICS, "--create", "--topic", "made", "--partitions", "2", "--replication-factor", "3")
    assert "Created topic made." in created
    refused = members.tool(TOPICS, "--create", "--topic", "ma.de", "--replication-factor", "4", check=False)
    assert "InvalidReplicationFactorException" in refused
    members.tool(TOPICS, "--alter", "--topic", "made", "--partitions", "4", at=1)

    def are_four(at: int) -> bool:
        replicas = {number: sorted(replicas) for number, (_, replicas) in members.in_sync("made", at).items()}
        return replicas == {number: [1, 2, 5] for number in range(4)}

    wait_until(lambda: are_four(0) and are_four(1), "four partitions at both members")
    members.tool(TOPICS, "--delete", "--topic", "made")
    produce(members, "used", 3)
    wait_until(lambda: len(members.in_sync("used")) == 3, "the topic that was used first")

    def are_listed() -> bool:
        listed = members.tool(TOPICS, "--list", at=1).split()
        return ("orders" in listed, "used" in listed, "made" in listed) == (True, True, False)

    wait_until(are_listed, "the topics that are left")


def test_properties(members: Members) -> None:
    """kafka-configs: kept by the controllers, checked by the broker that they are for, shown by any."""

    def describe(*entity: str, at: int) -> str:
        return members.tool(CONFIGS, "--describe", "--entity-type", *entity, at=at)

    def alter(*change: str, at: int = 0, check: bool = True) -> str:
        return members.tool(CONFIGS, "--alter", "--entity-type", *change, at=at, check=check)

    alter("topics", "--entity-name", "orders", "--add-config", "retention.bytes=77777777,max.message.bytes=900000")

    def are_set(is_limited: bool) -> bool:
        shown = describe("topics", "--entity-name", "orders", at=1)
        kept = "retention.bytes=77777777 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.bytes=77777777"
        limit = "max.message.bytes=900000" in shown if is_limited else "max.message.bytes" not in shown
        return kept in shown and limit

    wait_until(lambda: are_set(is_limited=True), "the topic's settings")
    alter("topics", "--entity-name", "orders", "--delete-config", "max.message.bytes", at=1)
    wait_until(lambda: are_set(is_limited=False), "the topic's settings without the deleted one")
    alter("brokers", "--entity-default", "--add-config", "message.max.bytes=1500000")
    alter("brokers", "--entity-name", "2", "--add-config", "message.max.bytes=1600000")
    own = "DYNAMIC_BROKER_CONFIG:message.max.bytes=1600000, DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=1500000"
    wait_until(lambda: own in describe("brokers", "--entity-name", "2", at=0), "the broker's settings")
    refused = alter("brokers", "--entity-name", "2", "--add-config", "log.dirs=/x", check=False)
    assert "InvalidRequestException: these settings cannot change while a broker runs: log.dirs" in refused


def test_records_and_folders(members: Members) -> None:
    """kafka-delete-records by each partition's leader, kafka-log-dirs of each broker's replicas."""
    offsets = {"partitions": [{"topic": "orders", "partition": number, "offset": 30} for number in range(3)], "version": 1}
    done = members.tool(DELETE_RECORDS, "--offset-json-file", members.written("delete.json", offsets))
    assert re.findall(r"partition: orders-(\d)\s+low_watermark: (\d+)", done) == [("0", "30"), ("1", "30"), ("2", "30")]
    firsts = members.tool(GET_OFFSETS, "--topic", "orders", "--time", "-2", at=1)
    assert re.findall(r"orders:\d:\d+", firsts) == ["orders:0:30", "orders:1:30", "orders:2:30"]
    folders = members.tool(LOG_DIRS, "--describe", "--topic-list", "orders", at=1)
    (line,) = [line for line in folders.splitlines() if line.startswith("{")]
    found = {
        broker["broker"]: {one["partition"] for one in broker["logDirs"][0]["partitions"]}
        for broker in json.loads(line)["brokers"]
    }
    assert found == {1: {"orders-0", "orders-1", "orders-2"}, 2: {"orders-0", "orders-1"}, 5: {"orders-2"}}


def test_replicas_move_and_leaders_are_elected(members: Members) -> None:
    """kafka-reassign-partitions to and from Kafka's broker, throttled, and kafka-leader-election."""
    members.tool(TOPICS, "--create", "--topic", "moves", "--replica-assignment", "1:2,5:2")
    produce(members, "moves", 2)
    wanted = [{"topic": "moves", "partition": 0, "replicas": [5, 1]}, {"topic": "moves", "partition": 1, "replicas": [1, 2]}]
    plan = ("--reassignment-json-file", members.written("moves.json", {"version": 1, "partitions": wanted}))
    begun = members.tool(REASSIGN, *plan, "--execute", "--throttle", "50000000")
    assert "Successfully started partition reassignments for moves-0,moves-1" in begun

    def is_over() -> bool:
        return "still in progress" not in members.tool(REASSIGN, *plan, "--verify", at=1)

    wait_until(is_over, "the replicas to be moved")
    assert "No partition reassignments found." in members.tool(REASSIGN, "--list")

    def are_unthrottled() -> bool:  # Each broker learns of the removed settings some time after the controllers.
        return "throttled" not in members.tool(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "moves")

    wait_until(are_unthrottled, "the throttles to be removed")
    members.tool(ELECT, "--election-type", "preferred", "--all-topic-partitions")
    wait_until(lambda: members.in_sync("moves") == {0: (5, [5, 1]), 1: (1, [1, 2])}, "the preferred leaders, at a member")


def test_the_quorum_and_the_cluster(members: Members) -> None:
    """kafka-metadata-quorum, kafka-features, kafka-cluster, kafka-broker-api-versions."""
    status = members.tool(QUORUM, "describe", "--status")
    assert re.search(r"LeaderId:\s+3000", status)
    for node_id in (*OURS, THEIRS):
        assert re.search(rf"CurrentObservers:.*\b{node_id}\b", status)
    lag = members.tool(QUORUM, "describe", "--replication", at=1)
    assert len(re.findall(r"Observer", lag)) == 3
    assert re.search(
        r"Feature: metadata.version\t.*FinalizedVersionLevel: (3.9-IV0|UNKNOWN|\d)", members.tool(FEATURES, "describe")
    )
    assert members.cluster.cluster_id in run_tool(RELEASE, CLUSTER, ("cluster-id", "--bootstrap-server", members.bootstraps[1]))
    versions = members.tool(API_VERSIONS, at=1)
    assert len(re.findall(r"^\S+ \(id: (?:1|2|5) rack: null\) -> \(", versions, re.MULTILINE)) == 3
    assert versions.count("DescribeQuorum(55): 0") == 3


def same_answer(members: Members, request: Any, version: int, has: str = "") -> Any:
    """What a member answers: the same as Kafka's broker, once both have the metadata, and the field `has` is not empty."""
    answers: list[Any] = []

    def is_same() -> bool:
        answers.clear()
        for port in (int(members.bootstraps[0].rpartition(":")[2]), members.cluster.brokers[THEIRS].port):
            with RawClient(("127.0.0.1", port)) as client:
                answers.append(client.ask(request, version))
        return bool(answers[0] == answers[1] and (not has or getattr(answers[0], has)))

    wait_until(is_same, f"the same answer as Kafka's to {request}")
    return answers[0]


def test_quotas_and_users(members: Members) -> None:
    """kafka-configs of users: the controllers keep quotas and SCRAM users, and every broker shows the same."""
    alter = ("--alter", "--entity-type", "users", "--entity-name", "ann", "--add-config")
    for setting in ("producer_byte_rate=1000000", "SCRAM-SHA-256=[iterations=4096,password=secret]"):
        members.tool(CONFIGS, *alter, setting)
    quotas = same_answer(members, DescribeClientQuotasRequest(), 1, has="entries")
    assert [(one.entity[0].entity_name, one.values[0].value) for one in quotas.entries] == [("ann", 1_000_000.0)]
    same_answer(members, DescribeClientQuotasRequest([ComponentData("user", 0, "eve")]), 0)
    users = same_answer(members, DescribeUserScramCredentialsRequest(), 0, has="results")
    assert [one.user for one in users.results] == ["ann"]
    same_answer(members, DescribeUserScramCredentialsRequest([UserName("eve")]), 0)

    def are_shown() -> bool:
        shown = members.tool(CONFIGS, "--describe", "--entity-type", "users", at=1)
        return "producer_byte_rate=1000000" in shown and "SCRAM-SHA-256=iterations=4096" in shown

    wait_until(are_shown, "the quota and the user at the second member")


def test_a_quota_holds_at_each_broker(members: Members) -> None:
    """One that kafka-configs has set through one broker of ours; what addresses may do goes the same way."""
    alter = ("--alter", "--entity-type", "clients", "--entity-name", "greedy", "--add-config", "producer_byte_rate=1000")
    members.tool(CONFIGS, *alter)
    records = message_set(2, records=some_records(1, value=bytes(20_000)))
    for partition, bootstrap in enumerate(members.bootstraps):
        request = produce_request([("orders", partition, records)], acks=1)
        with RawClient(("127.0.0.1", int(bootstrap.rpartition(":")[2])), client_id="greedy") as client:
            wait_until(lambda client=client, request=request: client.ask(request, 9).throttle_time_ms > 0, f"{bootstrap}'s quota")  # type: ignore[misc]
    members.tool(
        CONFIGS, "--alter", "--entity-type", "ips", "--entity-name", "127.0.0.9", "--add-config", "connection_creation_rate=5"
    )
    asked = DescribeClientQuotasRequest([ComponentData("ip", 0, "127.0.0.9")])
    wait_until(lambda: bool(same_answer(members, asked, 1).entries), "the quota of an address")
    assert same_answer(members, asked, 1).entries[0].values[0].value == 5.0


def test_partitions_in_pages(members: Members) -> None:
    for request in (
        DescribeTopicPartitionsRequest([TopicRequest("orders"), TopicRequest("missing")]),
        DescribeTopicPartitionsRequest([TopicRequest("orders")], 2),
        DescribeTopicPartitionsRequest([], 2, Cursor("orders", 2)),
        DescribeTopicPartitionsRequest([TopicRequest("orders")], 2, Cursor("orders", -1)),
    ):
        same_answer(members, request, 0)


def test_the_same_apis_and_features(members: Members) -> None:
    """A member lists what Kafka 3.9.1 lists beside it."""

    def listed(port: int) -> tuple[Any, ...]:
        with RawClient(("127.0.0.1", port)) as client:
            answer = client.ask(ApiVersionsRequest("test", "1"), 4)
        return tuple(sorted(map(repr, part)) for part in (answer.api_keys, answer.supported_features, answer.finalized_features))

    theirs = listed(members.cluster.brokers[THEIRS].port)
    for bootstrap in members.bootstraps:
        wait_until(
            lambda bootstrap=bootstrap: listed(int(bootstrap.rpartition(":")[2])) == theirs, f"{bootstrap} to list {theirs}"
        )  # type: ignore[misc]


def test_features_change_and_brokers_are_forgotten(members: Members) -> None:
    """kafka-features and kafka-cluster unregister: sent on by a member, answered by the controllers."""
    done = members.tool(FEATURES, "downgrade", "--metadata", "3.8", check=False)
    assert "metadata.version" in done, done
    unregister = ("unregister", "--bootstrap-server", members.bootstraps[0], "--id")
    missing = run_tool(RELEASE, CLUSTER, (*unregister, "77"), check=False)
    assert "BrokerIdNotRegistered" in missing, missing


def test_controllers_of_kafka_4(tmp_path: Path) -> None:
    """The same by controllers that have more APIs and features than the tools know."""
    with members_of(tmp_path, "4.2.0", ours=(1,)) as members:
        members.tool(TOPICS, "--create", "--topic", "moves", "--replica-assignment", "1,5", "--config", "retention.ms=7777777")
        produce(members, "moves", 2)
        wanted = [{"topic": "moves", "partition": number, "replicas": [5, 1]} for number in (0, 1)]
        plan = ("--reassignment-json-file", members.written("moves.json", {"version": 1, "partitions": wanted}))
        members.tool(REASSIGN, *plan, "--execute")
        wait_until(lambda: "still in progress" not in members.tool(REASSIGN, *plan, "--verify", at=0), "the replicas to be moved")

        def has_moved() -> bool:
            described = members.tool(TOPICS, "--describe", "--topic", "moves")
            return "retention.ms=7777777" in described and len(re.findall(r"Replicas: 5,1", described)) == 2

        wait_until(has_moved, "the topic's new replicas at the broker that answers")
        assert re.search(r"LeaderId:\s+3000", members.tool(QUORUM, "describe", "--status"))
        check_transactions_with_an_epoch_each(members, tmp_path)


def check_transactions_with_an_epoch_each(members: Members, folder: Path) -> None:
    """`transaction.version` 2 (KIP-890): Kafka 4.2's producer, our coordinator, leaders of both kinds: each record once."""
    for name in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC):
        members.tool(TOPICS, "--create", "--topic", name, "--replica-assignment", "1,1", "--config", "cleanup.policy=compact")
    broker = members.cluster.brokers[THEIRS]
    with Copying(broker, java_copier(folder, jars="4.2.0"), partitions=3, records=300, seed=9) as copying:
        copying.run([])
    assert copying.counts["committed"] > 0
    # A producer is told of its commit before the coordinator has written that all markers are in.
    wait_until(lambda: len(ends_written(folder)) >= copying.counts["committed"], "the end of each transaction in the log")
    ends = ends_written(folder)
    assert {one.client_version for one in ends} == {2}
    epochs = [one.producer_epoch for one in ends]
    assert sorted(set(epochs)) == epochs
    if not any(copying.counts[end] for end in ("fenced", "stuck")):  # Who takes its place has an epoch more.
        assert epochs == list(range(epochs[0], epochs[0] + len(epochs)))


def ends_written(folder: Path) -> list[Transaction]:
    """The states of the copier's transaction with all markers written, in the order of the coordinator's log."""
    found = []
    for path in sorted((folder / "member-1").glob(f"{TRANSACTIONS_TOPIC}-*/*.log")):
        for header, record in records_of(path.read_bytes()):
            if not header.is_control and bytes(record.key or b"").endswith(b"copier-0"):
                found.append(read_transaction("copier-0", bytes(record.value or b"")))
    return [one for one in found if one.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)]


def records_of(data: bytes) -> Iterator[tuple[BatchHeader, Record]]:
    for header in iter_headers(data):
        for record in iter_records(header, data[header.position : header.end_position]):
            yield header, record
