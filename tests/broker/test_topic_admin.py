"""Topics created, enlarged, emptied and deleted over the wire: every version, every refusal, in Kafka's order."""

from __future__ import annotations

import errno
import os
import uuid
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tidelog.broker.apis import create_partitions, create_topics, delete_records, delete_topics
from tidelog.broker.topics.topics import NO_TOPIC_ID
from tidelog.model import TopicPartition
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.storage.topics.topic import Topic
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic


def new(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)


def assigned(name: str, replicas: dict[int, list[int]], partitions: int = -1, replication_factor: int = -1) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[CreatableReplicaAssignment(partition_index=p, broker_ids=ids) for p, ids in replicas.items()],
    )


def create(client: RawClient, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> dict[str, Any]:
    response = client.ask(CreateTopicsRequest(topics=list(topics), validate_only=validate_only), version)
    return {result.name: result for result in response.topics}


def topics_of(broker: RunningBroker) -> dict[str, Topic]:
    return broker.on_loop(broker.node.manager.topics)


# --- create


@pytest.mark.parametrize("version", range(create_topics.API.served.first, create_topics.API.served.last + 1))
def test_a_topic_is_created_in_every_version(broker: RunningBroker, client: RawClient, version: int) -> None:
    response = client.ask(CreateTopicsRequest(topics=[new("a", 3, retention_ms="5000")]), version)
    topic = topics_of(broker)["a"]
    assert (topic.partitions, topic.properties) == (3, {"retention.ms": "5000"})
    assert sorted(path.name for path in broker.data_dir.glob("a-*")) == ["a-0", "a-1", "a-2"]
    (result,) = response.topics
    assert (result.name, result.error_code, result.error_message or None) == ("a", ErrorCode.NONE, None)
    assert result.topic_id == (topic.topic_id if version >= 7 else NO_TOPIC_ID)
    if version < 5:
        assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])
    else:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        told = {config.name: (config.value, config.config_source) for config in result.configs}
        assert told["retention.ms"] == ("5000", 1)
        assert told["segment.bytes"] == ("1073741824", 5)
        assert list(told) == sorted(told)
        assert {config.read_only for config in result.configs} == {False}


def test_configs_in_the_answer_tell_the_brokers_defaults(start_broker: StartBroker) -> None:
    broker = start_broker(log_retention_hours=2, log_segment_bytes=4096)
    with broker.client() as client:
        result = create(client, new("a", segment_bytes=" 9000 "))["a"]
    told = {config.name: (config.value, config.config_source) for config in result.configs}
    assert told["retention.ms"] == ("7200000", 4)
    assert told["segment.bytes"] == (" 9000 ", 1)
    assert broker.on_loop(lambda: broker.node.manager.log("a", 0).config.segment_bytes) == 9000


def test_minus_one_asks_for_the_brokers_numbers(start_broker: StartBroker) -> None:
    broker = start_broker(num_partitions=4)
    with broker.client() as client:
        assert create(client, new("a", -1, -1))["a"].num_partitions == 4
    assert topics_of(broker)["a"].partitions == 4


def test_replicas_by_hand(broker: RunningBroker, client: RawClient) -> None:
    assert create(client, assigned("a", {1: [1], 0: [1]}))["a"].num_partitions == 2
    assert topics_of(broker)["a"].partitions == 2


REFUSALS = {
    "a name with a blank": (new("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no name": (new(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a name that is there": (new("there", 0, 0, foo="x"), ErrorCode.TOPIC_ALREADY_EXISTS),
    "a name that differs in dots only": (new("the_other"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "Kafka's metadata": (new("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
    "no partitions": (new("a", 0), ErrorCode.INVALID_PARTITIONS),
    "fewer than that": (new("a", -2), ErrorCode.INVALID_PARTITIONS),
    "no replicas": (new("a", 0, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "two replicas": (new("a", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
    "replicas by hand, and their number": (assigned("a", {0: [1]}, -1, 1), ErrorCode.INVALID_REQUEST),
    "replicas by hand, and the partitions' number": (assigned("a", {0: [1]}, 1, -1), ErrorCode.INVALID_REQUEST),
    "replicas by hand, without the first partition": (assigned("a", {1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "replicas by hand, elsewhere": (assigned("a", {0: [2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "replicas by hand, twice here": (assigned("a", {0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "replicas by hand, nowhere": (assigned("a", {0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "an unknown property": (new("a", 0, foo="1"), ErrorCode.INVALID_CONFIG),
    "a broker's property": (new("a", log_roll_hours="1"), ErrorCode.INVALID_CONFIG),
    "a property that is no number": (new("a", retention_ms="x"), ErrorCode.INVALID_CONFIG),
    "digits with an underscore": (new("a", segment_bytes="1_000"), ErrorCode.INVALID_CONFIG),
    "a property out of range": (new("a", retention_ms="-2"), ErrorCode.INVALID_CONFIG),
    "a property without value": (new("a", retention_ms=None), ErrorCode.INVALID_CONFIG),
    "a policy in capitals": (new("a", cleanup_policy="Compact"), ErrorCode.INVALID_CONFIG),
    "lags that contradict": (new("a", min_compaction_lag_ms="5", max_compaction_lag_ms="3"), ErrorCode.INVALID_CONFIG),
    "tiered storage": (new("a", remote_storage_enable="true"), ErrorCode.INVALID_CONFIG),
    "a list of replicas that is none": (new("a", leader_replication_throttled_replicas="0:1,x"), ErrorCode.INVALID_CONFIG),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused_leaves_nothing(broker: RunningBroker, client: RawClient, case: str) -> None:
    """Codes as Kafka 3.9.1's; where several things are wrong, the one that Kafka says."""
    topic, code = REFUSALS[case]
    broker.create_topic("there")
    broker.create_topic("the.other")
    for validate_only in (True, False):
        refused = create(client, topic, new("fine"), validate_only=validate_only)
        assert refused[topic.name].error_code == code
        assert refused[topic.name].error_message
        assert refused["fine"].error_code == ErrorCode.NONE
    assert set(topics_of(broker)) == {"there", "the.other", "fine"}
    assert not list(broker.data_dir.glob("a*"))


@pytest.mark.parametrize(
    "properties",
    [
        {"cleanup_policy": ""},
        {"cleanup_policy": "delete, compact"},
        {"segment_bytes": " 1000 "},
        {"preallocate": "FALSE"},
        {"min_insync_replicas": "2"},
        {"unclean_leader_election_enable": "true"},
        {"follower_replication_throttled_replicas": "*"},
        {"local_retention_ms": "-2"},
        {"message_downconversion_enable": "false"},
    ],
)
def test_what_kafka_takes_is_taken(broker: RunningBroker, client: RawClient, properties: dict[str, str]) -> None:
    assert create(client, new("a", **properties))["a"].error_code == ErrorCode.NONE
    assert topics_of(broker)["a"].properties == {key.replace("_", "."): value for key, value in properties.items()}


def test_to_validate_is_not_to_create(broker: RunningBroker, client: RawClient) -> None:
    result = create(client, new("a", 3), validate_only=True)["a"]
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 3)
    assert result.topic_id != NO_TOPIC_ID
    assert topics_of(broker) == {}


def test_a_topic_that_is_asked_for_twice_is_refused(broker: RunningBroker, client: RawClient) -> None:
    response = client.ask(CreateTopicsRequest(topics=[new("a"), new("b"), new("a", 0)]), 7)
    assert sorted((one.name, one.error_code) for one in response.topics) == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]
    assert set(topics_of(broker)) == {"b"}


def test_too_many_partitions_in_one_request(broker: RunningBroker, client: RawClient) -> None:
    """The controller of Kafka writes 10,000 records at once, no more: nothing of the request is done."""
    for topics in ([new("a", 2**31 - 1)], [new("a", 6000), new("b", 6000), new("c")], [new("a", 10_000)]):
        results = create(client, *topics)
        assert {one.error_code for one in results.values()} == {ErrorCode.POLICY_VIOLATION}
    assert create(client, new("a", 9_999), validate_only=True)["a"].error_code == ErrorCode.NONE
    assert topics_of(broker) == {}


def test_a_disk_that_refuses_is_told(broker: RunningBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        result = create(client, new("a"))["a"]
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert result.error_message == "cannot write the metadata log: no room"
    assert create(client, new("a"))["a"].error_code == ErrorCode.NONE


def test_an_error_says_why_since_version_1(client: RawClient) -> None:
    response: CreateTopicsResponse = client.ask(CreateTopicsRequest(topics=[new("a", 0)]), 0)
    assert response.topics == [
        CreatableTopicResult(name="a", error_code=ErrorCode.INVALID_PARTITIONS, configs=response.topics[0].configs)
    ]
    assert create(client, new("a", 0), version=1)["a"].error_message


# --- delete


def delete(client: RawClient, *topics: str | uuid.UUID | DeleteTopicState, version: int = 6) -> list[DeletableTopicResult]:
    states = [
        one
        if isinstance(one, DeleteTopicState)
        else DeleteTopicState(name=one)
        if isinstance(one, str)
        else DeleteTopicState(name=None, topic_id=one)
        for one in topics
    ]
    names = [state.name for state in states if state.name is not None]
    request = DeleteTopicsRequest(topics=states) if version >= 6 else DeleteTopicsRequest(topic_names=names)
    responses: list[DeletableTopicResult] = client.ask(request, version).responses
    return responses


@pytest.mark.parametrize("version", range(delete_topics.API.served.first, delete_topics.API.served.last + 1))
def test_a_topic_is_deleted_in_every_version(broker: RunningBroker, client: RawClient, version: int) -> None:
    broker.create_topic("a", 2)
    broker.create_topic("b")
    topic_id = topics_of(broker)["a"].topic_id
    (gone,) = delete(client, "a", version=version)
    assert (gone.name, gone.error_code, gone.error_message) == ("a", ErrorCode.NONE, None)
    assert gone.topic_id == (topic_id if version >= 6 else NO_TOPIC_ID)
    assert set(topics_of(broker)) == {"b"}
    (missing,) = delete(client, "a", version=version)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_by_id_and_what_is_named_twice(broker: RunningBroker, client: RawClient) -> None:
    for name in ("a", "b", "c", "d"):
        broker.create_topic(name)
    ids = {name: topic.topic_id for name, topic in topics_of(broker).items()}
    unknown = uuid.uuid4()
    responses = delete(
        client,
        ids["a"],
        unknown,
        "b",
        "b",
        ids["c"],
        "c",
        DeleteTopicState(name="d", topic_id=ids["d"]),
        DeleteTopicState(name=None),
    )
    assert {(one.name, one.topic_id, one.error_code) for one in responses} == {
        ("a", ids["a"], ErrorCode.NONE),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
        ("b", NO_TOPIC_ID, ErrorCode.INVALID_REQUEST),
        ("c", ids["c"], ErrorCode.INVALID_REQUEST),
        ("d", ids["d"], ErrorCode.INVALID_REQUEST),
        (None, NO_TOPIC_ID, ErrorCode.INVALID_REQUEST),
    }
    assert set(topics_of(broker)) == {"b", "c", "d"}


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_without_leave_nothing_is_deleted(start_broker: StartBroker, version: int, code: ErrorCode) -> None:
    broker = start_broker(delete_topic_enable="false")
    broker.create_topic("a")
    with broker.client() as client:
        assert [one.error_code for one in delete(client, "a", "missing", version=version)] == [code, code]
    assert set(topics_of(broker)) == {"a"}


def test_a_topic_is_created_anew_with_another_id_and_no_records(broker: RunningBroker, client: RawClient) -> None:
    first = create(client, new("a"))["a"].topic_id
    fill(broker, "a", 10)
    delete(client, "a")
    assert create(client, new("a"))["a"].topic_id != first
    assert broker.on_loop(lambda: broker.node.manager.log("a", 0).log_end_offset) == 0


# --- more partitions


def enlarge(client: RawClient, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False) -> dict[str, int]:
    response = client.ask(CreatePartitionsRequest(topics=list(topics), validate_only=validate_only), version)
    for one in response.results:
        has_reason = one.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert (one.error_message is not None) == has_reason
    return {one.name: one.error_code for one in response.results}


def more(name: str, count: int, *replicas: list[int], by_hand: bool = False) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in replicas] if replicas or by_hand else None
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


@pytest.mark.parametrize("version", range(create_partitions.API.served.first, create_partitions.API.served.last + 1))
def test_more_partitions_in_every_version(broker: RunningBroker, client: RawClient, version: int) -> None:
    broker.create_topic("a", 2)
    assert enlarge(client, more("a", 4), version=version, validate_only=True) == {"a": ErrorCode.NONE}
    assert topics_of(broker)["a"].partitions == 2
    assert enlarge(client, more("a", 4, [1], [1]), version=version) == {"a": ErrorCode.NONE}
    assert topics_of(broker)["a"].partitions == 4
    assert (broker.data_dir / "a-3").is_dir()


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (more("missing", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (more("a", 2), ErrorCode.INVALID_PARTITIONS),
        (more("a", 1), ErrorCode.INVALID_PARTITIONS),
        (more("a", -1), ErrorCode.INVALID_PARTITIONS),
        (more("a", 4, [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("a", 3, by_hand=True), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("a", 3, [2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("a", 3, [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("a", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("a", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_adds_no_partitions(broker: RunningBroker, client: RawClient, topic: CreatePartitionsTopic, code: ErrorCode) -> None:
    broker.create_topic("a", 2)
    assert enlarge(client, topic) == {topic.name: code}
    assert topics_of(broker)["a"].partitions == 2


def test_a_topic_named_twice_gets_no_partitions(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a", 2)
    assert enlarge(client, more("a", 3), more("a", 4)) == {"a": ErrorCode.INVALID_REQUEST}


# --- fewer records


def fill(broker: RunningBroker, topic: str, records: int) -> None:
    batch = build_batch_v2([Record(offset, 1000 + offset, CREATE_TIME, None, b"value") for offset in range(records)])

    def append() -> None:
        log = broker.node.manager.log(topic, 0)
        log.append_as_leader(batch, leader_epoch=0)
        log.update_high_watermark(log.log_end_offset)

    broker.on_loop(append)


def delete_to(client: RawClient, version: int = 2, **offsets: list[tuple[int, int]]) -> dict[tuple[str, int], tuple[int, int]]:
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=p, offset=offset) for p, offset in one])
        for name, one in offsets.items()
    ]
    response = client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version)
    return {
        (topic.name, one.partition_index): (one.low_watermark, one.error_code)
        for topic in response.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", range(delete_records.API.served.first, delete_records.API.served.last + 1))
def test_a_log_begins_later(broker: RunningBroker, client: RawClient, version: int) -> None:
    broker.create_topic("a", 2)
    fill(broker, "a", 10)
    assert delete_to(client, version, a=[(0, 3), (1, 0)]) == {("a", 0): (3, 0), ("a", 1): (0, 0)}
    assert delete_to(client, version, a=[(0, 2)]) == {("a", 0): (3, 0)}
    assert delete_to(client, version, a=[(0, 5), (0, 4)]) == {("a", 0): (4, 0)}
    assert delete_to(client, version, a=[(0, -1)]) == {("a", 0): (10, 0)}
    assert broker.on_loop(lambda: broker.node.manager.log("a", 0).log_start_offset) == 10


def test_where_records_stay(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a")
    broker.create_topic("compacted", cleanup_policy="compact")
    broker.create_topic("__consumer_offsets")
    fill(broker, "a", 10)
    assert delete_to(client, a=[(0, 11), (1, 0)], compacted=[(0, 0)], __consumer_offsets=[(0, 0), (1, 0)], missing=[(0, 0)]) == {
        ("a", 0): (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("a", 1): (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("compacted", 0): (-1, ErrorCode.POLICY_VIOLATION),
        ("__consumer_offsets", 0): (-1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__consumer_offsets", 1): (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("missing", 0): (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }
    assert delete_to(client, a=[(0, -2)]) == {("a", 0): (-1, ErrorCode.OFFSET_OUT_OF_RANGE)}
    assert delete_to(client, a=[]) == {}
    assert broker.on_loop(lambda: broker.node.manager.log("a", 0).log_start_offset) == 0


# --- who waits meanwhile


def waiting_fetch(topic: str, offset: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[wanted])])


def test_a_fetch_that_waits_learns_that_its_topic_is_gone(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a")
    fill(broker, "a", 10)
    client.send(waiting_fetch("a", 10), 12)
    with broker.client() as other:
        assert [one.error_code for one in delete(other, "a")] == [ErrorCode.NONE]
    (partition,) = client.receive().responses[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_that_waits_learns_that_its_records_are_gone(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a")
    fill(broker, "a", 10)
    client.send(waiting_fetch("a", 10), 12)
    with broker.client() as other:
        assert delete_to(other, a=[(0, 5)]) == {("a", 0): (5, 0)}
        fill(broker, "a", 1)
        broker.on_loop(lambda: broker.node.delayed_fetches.appended(TopicPartition("a", 0)))
    (partition,) = client.receive().responses[0].partitions
    assert (partition.error_code, partition.log_start_offset, bool(partition.records)) == (ErrorCode.NONE, 5, True)
