"""What is refused to whom, request by request: both have one authorizer's properties, and are given the same entries, one by one.

Who asks is ANONYMOUS, at a listener without SASL; entries are an administrator's. So requests are those of the other modules.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.broker.produce_helpers import message_set, some_records
from tests.interop.differential.conftest import BOTH, address
from tests.interop.differential.pair import HASHED, ONES_OWN, Pair, Side
from tests.interop.differential.requests import fetch, list_offsets, produce
from tests.kafka import Kafka391
from tests.kafka.brokers import SHORT_LIVED
from tests.kafka.java import free_port, wait_until
from tests.patience import PATIENCE_S
from tidelog.broker.broker import Broker
from tidelog.broker.settings.authorizer_properties import STANDARD_AUTHORIZER
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.wire.codec import Message
from tidelog.wire.messages import add_offsets_to_txn as aot
from tidelog.wire.messages import add_partitions_to_txn as apt
from tidelog.wire.messages import alter_client_quotas as acq
from tidelog.wire.messages import (
    alter_configs,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from tidelog.wire.messages import alter_partition_reassignments as apr
from tidelog.wire.messages import alter_user_scram_credentials as ausc
from tidelog.wire.messages import describe_topic_partitions as dtp

PASSWORD = "made-for-this-test"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOG4J = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
log4j.logger.kafka.authorizer.logger=DEBUG, decisions
log4j.additivity.kafka.authorizer.logger=false
log4j.appender.decisions=org.apache.log4j.FileAppender
log4j.appender.decisions.layout=org.apache.log4j.PatternLayout
log4j.appender.decisions.layout.ConversionPattern=%p %m%n
"""
JAAS = f'{PLAIN} required username="admin" password="{PASSWORD}" user_admin="{PASSWORD}";'


class Logs(logging.Handler):
    """What both authorizers have written about requests of ANONYMOUS, with how often."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._offset = 0
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{record.levelname} {record.getMessage()}\n")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take part of the log of decisions meanwhile."""
        logger = logging.getLogger("tidelog.authorizer")
        before = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        try:
            self.taken("")
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(before[0])
            logger.propagate = before[1]

    def taken(self, what: str) -> tuple[Counter[str], Counter[str]]:
        """Return the lines since the last time: Kafka's, and ours."""
        ours, self._lines = self._lines, []
        # A broker of Kafka's has the controller create what is missing: a request of its own.
        with self._path.open("rb") as file:
            file.seek(self._offset)
            written = file.read().decode()
        self._offset += len(written.encode())
        both = (written.splitlines(keepends=True), ours)
        of_itself = () if what.startswith("create topics") else ("request = CreateTopics",)
        kafkas, mine = (
            Counter(one for one in lines if "User:ANONYMOUS" in one and not any(part in one for part in of_itself))
            for lines in both
        )
        return kafkas, mine


class Secured(NamedTuple):
    pair: Pair
    admins: tuple[AdminClient, AdminClient]
    logs: Logs

    def entries(self, *acls: AclBinding) -> None:
        """Have these entries, and no others; returns once both keep to them."""
        for admin in self.admins:
            for gone in admin.delete_acls([EVERY]).values():
                gone.result(PATIENCE_S)
            for made in admin.create_acls(list(acls)).values() if acls else ():
                made.result(PATIENCE_S)
            wait_until(partial(_has, admin, set(acls)), "the entries")


ANY: Any = None
EVERY = AclBindingFilter(
    ResourceType.ANY, ANY, ResourcePatternType.ANY, ANY, ANY, AclOperation.ANY, AclPermissionType.ANY
)  # fmt: skip


def allow(kind: ResourceType, name: str, operation: AclOperation, **other: Any) -> AclBinding:
    permission = other.get("permission", AclPermissionType.ALLOW)
    return AclBinding(kind, name, other.get("pattern", ResourcePatternType.LITERAL), "User:ANONYMOUS", "*", operation, permission)


ORDERS = {
    "TopicResponse": "name",
    "DescribeTopicPartitionsResponseTopic": "name",
    "DescribedGroup": "group_id",
    "Coordinator": "key",
    "OffsetFetchResponseGroup": "group_id",
    "OffsetFetchResponseTopic": "name",
    "OffsetFetchResponseTopics": "name",
    "OffsetCommitResponseTopic": "name",
    "OffsetDeleteResponseTopic": "name",
    "TxnOffsetCommitResponseTopic": "name",
    "ListOffsetsTopicResponse": "name",
    "OffsetForLeaderTopicResult": "topic",
    "AddPartitionsToTxnTopicResult": "name",
    "AddPartitionsToTxnPartitionResult": "partition_index",
}
"""Arrays in which what is refused stands before or after the rest; no client looks at that. They are sorted by this field."""


@pytest.fixture(scope="module", autouse=True)
def _in_any_order() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, field in ORDERS.items():
            patch.setitem(HASHED, name, field)
        patch.setattr("tests.interop.differential.pair.ONES_OWN", {*ONES_OWN, "configs"})  # Ours has some of its own.
        yield


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("differential-acls")
    both = BOTH | {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.admin.plain.sasl.jaas.config": JAAS,
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    log = folder / "authorizer.log"
    log.touch()
    (folder / "log4j.properties").write_text(LOG4J + f"log4j.appender.decisions.File={log}\n")
    options = (*SHORT_LIVED, f"-Dlog4j.configuration={(folder / 'log4j.properties').as_uri()}")
    kafka = Kafka391(folder / "kafka", both, java_options=options)
    port = free_port()
    kafka.properties |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},ADMIN://127.0.0.1:{port},CONTROLLER://127.0.0.1:{kafka.controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},ADMIN://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "ADMIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": JAAS,
    }
    ours = both | {
        "listeners": "PLAINTEXT://127.0.0.1:0,ADMIN://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT",
    }
    with kafka, Broker(folder / "tidelog", **ours) as tidelog:
        ports = {one.name: one.port for one in tidelog._listeners}
        pair = Pair(address(kafka.bootstrap), ("127.0.0.1", ports["PLAINTEXT"]))
        login: dict[str, Any] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "log_level": 0}
        login |= {"sasl.username": "admin", "sasl.password": PASSWORD}
        admins = [AdminClient(login | {"bootstrap.servers": f"127.0.0.1:{one}"}) for one in (port, ports["ADMIN"])]
        made = Secured(pair, (admins[0], admins[1]), Logs(log))
        made.entries(*[allow(kind, name, AclOperation.ALL) for kind, name in EVERYTHING])
        for side, admin in zip(pair.sides, admins, strict=True):
            for one in admin.create_topics([NewTopic(name, 1, 1) for name in ("t", "u")]).values():
                one.result(PATIENCE_S)
            pair.wait_for(side, ("t", "u"))
            for kind in (0, 1):
                wait_until(partial(_answers, side, kind), "the coordinators")
            side.ask(produce("t", RECORDS, acks=1), 7, has_answer=True)
            side.ask(produce("u", RECORDS, acks=1), 7, has_answer=True)
        yield made
        pair.close()


EVERYTHING = [
    (ResourceType.TOPIC, "*"),
    (ResourceType.GROUP, "*"),
    (ResourceType.TRANSACTIONAL_ID, "*"),
    (ResourceType.BROKER, "kafka-cluster"),
]


def _has(admin: AdminClient, acls: set[AclBinding]) -> bool:
    return set(admin.describe_acls(EVERY).result(PATIENCE_S)) == acls


def _answers(side: Side, kind: int) -> bool:
    side.ask(find_coordinator.FindCoordinatorRequest("any", kind), 1, has_answer=True)
    if side.last.error_code:
        return False
    if kind:
        side.ask(init_producer_id.InitProducerIdRequest("warm", 60_000), 1, has_answer=True)
        return not side.last.error_code
    side.ask(describe_groups.DescribeGroupsRequest(["any"]), 5, has_answer=True)
    return not side.last.groups[0].error_code


T, U, NEW = "t", "u", "missing"
RECORDS = message_set(2)
TRANSACTIONAL = bytes(build_batch_v2(some_records(), producer=Producer(999_999, 0, 0), is_transactional=True))


def _requests() -> Iterator[tuple[str, int, Message | Callable[[Side], Message]]]:
    """Yield requests of each API, of versions that answer in another way, about two topics, of which one may be allowed."""
    for version in (0, 1, 4, 8, 9, 10, 12):
        # Before version 4 a topic that is missing is always made, by Kafka when it comes to it.
        names = [metadata.MetadataRequestTopic(name=name) for name in ((T, U, NEW) if version >= 4 else (T, U))]
        yield "metadata", version, metadata.MetadataRequest(names, False, True, True)
        yield "all metadata", version, metadata.MetadataRequest([] if version == 0 else None, False, True, True)
    yield (
        "metadata by id",
        12,
        lambda side: metadata.MetadataRequest(
            [metadata.MetadataRequestTopic(side.topic_ids[name], None) for name in (T, U)], False
        ),
    )
    for version in (3, 7, 9):
        yield "produce", version, produce(T, RECORDS, acks=1)
    yield "produce without an answer", 7, produce(U, RECORDS, acks=0)
    for version in (4, 11, 12):
        yield "fetch", version, fetch(T)
        yield "fetch as a follower", version, fetch(T, replica_id=1)
    two = fetch(T)
    two.topics[0].partitions.append(fetch(T, partition=1).topics[0].partitions[0])
    yield "fetch of two partitions", 11, two
    both = produce(T, RECORDS, acks=1)
    both.topic_data += produce(U, RECORDS, acks=1).topic_data
    yield "produce to two topics", 9, both
    yield "produce of a transaction", 9, produce(T, TRANSACTIONAL, acks=1, transactional_id="id")
    yield "produce of a transaction without a name", 9, produce(T, TRANSACTIONAL, acks=1)
    for version in (0, 1, 7):
        yield "list offsets", version, list_offsets(T, -1)
        yield "list offsets", version, list_offsets(U, -2)
    asked: Any = [offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)]
    asked = [offset_for_leader_epoch.OffsetForLeaderTopic(name, asked) for name in (T, U)]
    for version in (2, 4):
        yield "offset for leader epoch", version, offset_for_leader_epoch.OffsetForLeaderEpochRequest(-1, asked)
    for version in (0, 1, 3, 4, 5):
        for kind in (0, 1):
            keys = ["g", "other"]
            yield f"find coordinator {kind}", version, find_coordinator.FindCoordinatorRequest("g", kind if version else 0, keys)
    for version in (0, 5, 9):
        protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
        yield "join group", version, join_group.JoinGroupRequest("g", 10_000, 10_000, "nobody", None, "consumer", protocols)
    for version in (0, 3, 5):
        yield "sync group", version, sync_group.SyncGroupRequest("g", 1, "nobody", None, "consumer", "range")
        yield "leave group", min(version, 5), leave_group.LeaveGroupRequest("g", "nobody", [leave_group.MemberIdentity("nobody")])
    for version in (0, 4):
        yield "heartbeat", version, heartbeat.HeartbeatRequest("g", 1, "nobody")
    for version in (0, 3, 5):
        yield "describe groups", version, describe_groups.DescribeGroupsRequest(["g", "other"], True)
        yield "describe no groups", version, describe_groups.DescribeGroupsRequest([], True)
    for version in (2, 8):
        one = [offset_commit.OffsetCommitRequestPartition(0, 1, -1, -1, "")]
        asked = [offset_commit.OffsetCommitRequestTopic(name, partitions=one) for name in (T, U, NEW)]
        yield "offset commit", version, offset_commit.OffsetCommitRequest("g", -1, "", None, -1, asked)
    for version in (1, 2, 5, 7):
        asked = [offset_fetch.OffsetFetchRequestTopic(name, [0]) for name in (T, U)]
        yield "offset fetch", version, offset_fetch.OffsetFetchRequest("g", asked)
        if version > 1:
            yield "offset fetch of all", version, offset_fetch.OffsetFetchRequest("g", None)
    for version in (8, 9):
        asked = [offset_fetch.OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in (T, U)]
        groups = [offset_fetch.OffsetFetchRequestGroup("g", None, -1, asked)]
        groups.append(offset_fetch.OffsetFetchRequestGroup("other", topics=None))
        yield "offset fetch", version, offset_fetch.OffsetFetchRequest(groups=groups)
    asked = [offset_delete.OffsetDeleteRequestTopic(name, [offset_delete.OffsetDeleteRequestPartition(0)]) for name in (U, NEW)]
    yield "offset delete", 0, offset_delete.OffsetDeleteRequest("g", asked)
    yield "offset delete of a group that is not there", 0, offset_delete.OffsetDeleteRequest("other", asked)
    for version in (0, 2):
        yield "delete groups", version, delete_groups.DeleteGroupsRequest(["none", "other"])
    for version in (0, 3, 4):
        yield "list groups", version, list_groups.ListGroupsRequest()
    creatable = [create_topics.CreatableTopic(name, 1, 1) for name in (T, "made", "un-made")]
    for version in (1, 5, 7):
        yield "create topics", version, create_topics.CreateTopicsRequest(creatable, 10_000, True)
    twice = [create_topics.CreatableTopic(name, 1, 1) for name in ("made", "made", "other")]
    yield "create topics named twice", 7, create_topics.CreateTopicsRequest(twice, 10_000, True)
    for version in (0, 2):
        wanted_partitions = [create_partitions.CreatePartitionsTopic(name, 1, None) for name in (T, U, NEW, "twice", "twice")]
        yield "create partitions", version, create_partitions.CreatePartitionsRequest(wanted_partitions, 10_000, True)
    for version in (1, 4):
        yield "delete topics", version, delete_topics.DeleteTopicsRequest(topic_names=[NEW, "none"], timeout_ms=10_000)
    states = [delete_topics.DeleteTopicState(NEW), delete_topics.DeleteTopicState("two"), delete_topics.DeleteTopicState("two")]
    yield "delete topics", 6, delete_topics.DeleteTopicsRequest(states, timeout_ms=10_000)
    for version in (0, 2):
        first = [delete_records.DeleteRecordsPartition(0, 0)]
        asked = [delete_records.DeleteRecordsTopic(name, first) for name in (T, U, NEW)]
        yield "delete records", version, delete_records.DeleteRecordsRequest(asked, 10_000)
    of = ((2, T), (2, U), (4, "1"))
    resources = [describe_configs.DescribeConfigsResource(kind, name, ["retention.ms"]) for kind, name in of]
    for version in (1, 4):
        yield "describe configs", version, describe_configs.DescribeConfigsRequest(resources)
    changed = [alter_configs.AlterConfigsResource(2, n, [alter_configs.AlterableConfig("retention.ms", "-1")]) for n in (T, U)]
    yield "alter configs", 1, alter_configs.AlterConfigsRequest(changed, True)
    changed = [alter_configs.AlterConfigsResource(4, "", [alter_configs.AlterableConfig("message.max.bytes", "1048588")])]
    yield "alter configs of brokers", 1, alter_configs.AlterConfigsRequest(changed, True)
    each = ((2, T, "retention.ms", "-1"), (2, U, "retention.ms", "-1"), (4, "", "message.max.bytes", "1048588"))
    one_by_one = [
        incremental_alter_configs.AlterConfigsResource(kind, n, [incremental_alter_configs.AlterableConfig(prop, 0, value)])
        for kind, n, prop, value in each
    ]
    yield "incremental alter configs", 1, incremental_alter_configs.IncrementalAlterConfigsRequest(one_by_one, True)
    for version in (0, 3, 4):
        yield "init producer id", version, init_producer_id.InitProducerIdRequest(None, 60_000)
        yield "init producer id of a transaction", version, init_producer_id.InitProducerIdRequest("id", 60_000)
    for version in (0, 3):
        added = [apt.AddPartitionsToTxnTopic(name, [0, 1]) for name in (T, U, NEW, "__consumer_offsets")]
        yield "add partitions to txn", version, apt.AddPartitionsToTxnRequest([], "id", 999_999, 0, added)
    yield "add offsets to txn", 3, aot.AddOffsetsToTxnRequest("id", 999_999, 0, "g")
    yield "end txn", 3, end_txn.EndTxnRequest("id", 999_999, 0, True)
    committed = [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1, -1, "")]
    for version in (2, 3):
        of_txn = [txn_offset_commit.TxnOffsetCommitRequestTopic(name, partitions=committed) for name in (T, U, NEW)]
        yield "txn offset commit", version, txn_offset_commit.TxnOffsetCommitRequest("id", "g", 999_999, 0, -1, "", None, of_txn)
    markers = [write_txn_markers.WritableTxnMarker(999_999, 0, False, [write_txn_markers.WritableTxnMarkerTopic(NEW, [0])], 0)]
    yield "write txn markers", 1, write_txn_markers.WriteTxnMarkersRequest(markers)
    yield (
        "describe producers",
        0,
        describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(name, [0]) for name in (NEW, "a/b")]),
    )
    yield "describe transactions", 0, describe_transactions.DescribeTransactionsRequest(["id", "none"])
    yield "list transactions", 0, list_transactions.ListTransactionsRequest([], [])
    yield "describe topic partitions", 0, dtp.DescribeTopicPartitionsRequest([dtp.TopicRequest(name) for name in (T, U, NEW)])
    yield "describe all topic partitions", 0, dtp.DescribeTopicPartitionsRequest([])
    yield "describe cluster", 0, describe_cluster.DescribeClusterRequest(True)
    for version in (1, 3):
        wanted_dirs = [describe_log_dirs.DescribableLogDirTopic("none", [0])]
        yield "describe log dirs", version, describe_log_dirs.DescribeLogDirsRequest(wanted_dirs)
    yield "describe scram users", 0, describe_user_scram_credentials.DescribeUserScramCredentialsRequest([])
    yield "describe client quotas", 0, describe_client_quotas.DescribeClientQuotasRequest([], False)
    yield "list reassignments", 0, list_partition_reassignments.ListPartitionReassignmentsRequest(10_000, None)
    moved = [apr.ReassignableTopic(NEW, [apr.ReassignablePartition(0, [1])])]
    yield "alter reassignments", 0, apr.AlterPartitionReassignmentsRequest(10_000, True, moved)
    for version in (0, 1, 2):
        yield "elect leaders", version, elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions(NEW, [0])], 10_000)
    for version in (1, 3):
        yield "describe acls", version, describe_acls.DescribeAclsRequest(2, "none", 3, None, None, 1, 1)
        wrong = create_acls.AclCreation(4, "wrong", 3, "User:a", "*", 3, 3)
        yield "create acls", version, create_acls.CreateAclsRequest([wrong])
        none = delete_acls.DeleteAclsFilter(2, "none", 3, None, None, 1, 1)
        yield "delete acls", version, delete_acls.DeleteAclsRequest([none])
    nobody = [acq.EntryData([acq.EntityData("user", "nobody")], [acq.OpData("producer_byte_rate", 0.0, True)])]
    yield "alter client quotas", 1, acq.AlterClientQuotasRequest(nobody, True)
    yield "alter scram users", 0, ausc.AlterUserScramCredentialsRequest([ausc.ScramCredentialDeletion("nobody", 1)])


STAGES: dict[str, list[AclBinding]] = {
    "nothing": [],
    "describe a topic": [allow(ResourceType.TOPIC, T, AclOperation.DESCRIBE)],
    "all of a topic": [allow(ResourceType.TOPIC, T, AclOperation.ALL)],
    "all but a topic": [
        *[allow(kind, name, AclOperation.ALL) for kind, name in EVERYTHING],
        allow(ResourceType.TOPIC, U, AclOperation.ALL, permission=AclPermissionType.DENY),
    ],
    "a group, a transaction and topics": [
        allow(ResourceType.GROUP, "g", AclOperation.READ),
        allow(ResourceType.TRANSACTIONAL_ID, "i", AclOperation.WRITE, pattern=ResourcePatternType.PREFIXED),
        allow(ResourceType.TOPIC, T, AclOperation.READ),
        allow(ResourceType.TOPIC, "m", AclOperation.CREATE, pattern=ResourcePatternType.PREFIXED),
        allow(ResourceType.TOPIC, NEW, AclOperation.DELETE),
    ],
    "the cluster's description": [
        allow(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
        allow(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS),
        allow(ResourceType.GROUP, "*", AclOperation.DESCRIBE),
    ],
    "the cluster's work": [
        allow(ResourceType.BROKER, "kafka-cluster", AclOperation.CLUSTER_ACTION),
        allow(ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE),
        allow(ResourceType.BROKER, "kafka-cluster", AclOperation.DELETE),
        allow(ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE),
        allow(ResourceType.TOPIC, "*", AclOperation.ALTER_CONFIGS),
    ],
}
"""What ANONYMOUS may."""


@pytest.mark.parametrize("stage", STAGES)
def test_each_request(secured: Secured, stage: str) -> None:
    """The same answers, and the same lines in the log of decisions: what is asked of the authorizer, and how often."""
    secured.entries(*STAGES[stage])
    found, lines = [], 0
    with secured.logs.listening():
        for label, version, message in _requests():
            secured.pair.ask(f"acls, {stage}: {label}", message, version)
            kafkas, ours = secured.logs.taken(label)
            lines += kafkas.total()
            if kafkas != ours:
                found.append((label, version, "only Kafka", kafkas - ours, "only here", ours - kafkas))
    secured.pair.check()
    assert found == []
    assert lines > 100
