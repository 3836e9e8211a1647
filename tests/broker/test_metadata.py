"""Metadata: what is passed brokers and topics, in every version; topics that are created because somebody asks."""

from __future__ import annotations

import errno
import uuid

import pytest

from tests.broker import topics_now
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tests.fields import check_fields
from tidelog.broker.apis import metadata
from tidelog.broker.topics.topics import NO_TOPIC_ID
from tidelog.errors import LogOfflineError
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.headers import read_response, request_chunks
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

VERSIONS = range(metadata.API.served.first, metadata.API.served.last + 1)
LATEST = metadata.API.served.last


def named(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create)


def by_id(*ids: uuid.UUID) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=one) for one in ids])


def names_and_codes(response: MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_every_version_tells(start_broker: StartBroker, version: int) -> None:
    broker = start_broker(broker_rack="r1")
    broker.create_topic("flights", 2)
    broker.create_topic("__consumer_offsets")
    with broker.client() as client:
        response = client.ask(named("flights", "__consumer_offsets", create=True), version)
    host, port = broker.address
    (one,) = response.brokers
    check_fields(one, node_id=1, host=host, port=port, rack="r1" if version >= 1 else None)
    assert response.controller_id == (1 if version >= 1 else -1)
    assert response.cluster_id == (broker.node.cluster_id if version >= 2 else None)
    flights, offsets = response.topics
    topic_id = broker.node.manager.topics()["flights"].topic_id
    assert flights == MetadataResponseTopic(
        name="flights",
        topic_id=topic_id if version >= 10 else NO_TOPIC_ID,
        partitions=[
            MetadataResponsePartition(
                partition_index=partition, leader_id=1, leader_epoch=0 if version >= 7 else -1, replica_nodes=[1], isr_nodes=[1]
            )
            for partition in range(2)
        ],
    )
    assert offsets.is_internal == (version >= 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_and_none(start_broker: StartBroker, version: int) -> None:
    broker = start_broker()
    broker.create_topic("b")
    broker.create_topic("a")
    with broker.client() as client:
        empty = client.ask(MetadataRequest(topics=[]), version)
        assert list(names_and_codes(empty)) == (["a", "b"] if version == 0 else [])
        if version >= 1:
            assert list(names_and_codes(client.ask(MetadataRequest(topics=None), version))) == ["a", "b"]


def test_topics_are_told_once_in_the_order_they_are_asked_for(broker: RunningBroker, client: RawClient) -> None:
    for name in ("a", "b", "c"):
        broker.create_topic(name)
    assert list(names_and_codes(client.ask(named("c", "a", "c"), LATEST))) == ["c", "a"]


# --- topics that are not there


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_is_asked_for_is_created_for_the_next_who_asks(start_broker: StartBroker, version: int) -> None:
    broker = start_broker(num_partitions=3)
    with broker.client() as client:
        first = client.ask(named("new", create=True), version)
        assert first.topics == [MetadataResponseTopic(name="new", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        (second,) = client.ask(named("new", create=True), version).topics
    assert (second.error_code, len(second.partitions)) == (ErrorCode.NONE, 3)


def test_who_may_create(start_broker: StartBroker) -> None:
    """Older versions cannot say that nothing is to be created; asking for all, or by id, creates nothing."""
    broker = start_broker()
    with broker.client() as client:
        client.ask(named("not-from-4-on"), 4)
        client.ask(MetadataRequest(topics=None), LATEST)
        client.ask(by_id(uuid.uuid4()), LATEST)
        assert broker.on_loop(broker.node.manager.topics) == {}
        client.ask(named("before-4"), 3)
    assert list(broker.on_loop(broker.node.manager.topics)) == ["before-4"]


def test_nothing_is_created_without_the_brokers_leave(start_broker: StartBroker) -> None:
    broker = start_broker(auto_create_topics_enable="false")
    with broker.client() as client:
        assert names_and_codes(client.ask(named("new", create=True), LATEST)) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert broker.on_loop(broker.node.manager.topics) == {}


def test_what_cannot_be_created_is_told_on_the_log(start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker = start_broker(default_replication_factor=2)
    with broker.client() as client:
        assert names_and_codes(client.ask(named("new", create=True), LATEST)) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert broker.on_loop(broker.node.manager.topics) == {}
    assert any("could not create topic new" in message and "more than one replica" in message for message in caplog.messages)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "../etc", "x" * 250, "a\x00b", "a\n"])
def test_names_that_kafka_refuses_leave_no_trace(broker: RunningBroker, client: RawClient, name: str) -> None:
    before = sorted(broker.data_dir.parent.rglob("*"))
    response = client.ask(named(name, create=True), LATEST)
    assert names_and_codes(response) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert sorted(broker.data_dir.parent.rglob("*")) == before


@pytest.mark.parametrize("name", ["x" * 249, "-", "_", "...", "A-z_0.9"])
def test_names_that_kafka_takes(client: RawClient, name: str) -> None:
    client.ask(named(name, create=True), LATEST)
    assert names_and_codes(client.ask(named(name), LATEST)) == {name: ErrorCode.NONE}


def test_internal_topics_are_internal_before_they_are_there(client: RawClient) -> None:
    (told,) = client.ask(named("__transaction_state"), LATEST).topics
    assert (told.error_code, told.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)


# --- ids


def test_topics_by_id(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("flights", 2)
    topic_id = broker.node.manager.topics()["flights"].topic_id
    unknown = uuid.uuid4()
    request = by_id(topic_id, unknown, topic_id)
    request.topics = [*(request.topics or []), MetadataRequestTopic(name="not-looked-at")]
    known, missing = client.ask(request, 12).topics
    assert (known.name, known.topic_id, len(known.partitions)) == ("flights", topic_id, 2)
    assert missing == MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=unknown)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_their_time(client: RawClient, version: int) -> None:
    """The fields are there since version 10; Kafka takes them from 12 on."""
    wanted = uuid.uuid4()
    response = client.ask(by_id(wanted), version)
    assert response == MetadataResponse(
        topics=[MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name="", topic_id=wanted)]
    )


def test_neither_name_nor_id(client: RawClient) -> None:
    response = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 12)
    assert response == MetadataResponse(topics=[MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, name="")])


# --- what may be done


def test_authorized_operations(broker: RunningBroker, client: RawClient) -> None:
    """The numbers are Kafka 3.9.1's where nobody is kept from anything."""
    broker.create_topic("a")
    request = named("a", "missing")
    assert [topic.topic_authorized_operations for topic in client.ask(request, 8).topics] == [-(2**31)] * 2
    request.include_topic_authorized_operations = True
    request.include_cluster_authorized_operations = True
    response = client.ask(request, 8)
    assert [topic.topic_authorized_operations for topic in response.topics] == [3576, 3576]
    assert response.cluster_authorized_operations == 8096


# --- partitions in trouble


def test_an_offline_partition_is_led_as_long_as_it_is_read(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a", 2)
    before = client.ask(named("a"), LATEST).topics[0].partitions[1]

    def break_the_disk() -> LogOfflineError:
        return broker.node.manager.log("a", 0).go_offline("append", OSError(errno.EIO, "Input/output error"))

    broker.on_loop(break_the_disk)
    broken, well = client.ask(named("a"), LATEST).topics[0].partitions
    assert (broken.error_code, broken.leader_id, broken.offline_replicas) == (ErrorCode.NONE, 1, [1])
    assert well == before


def test_a_partition_that_cannot_be_loaded_has_no_leader(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.create_topic("a", 2)
    broker.stop()
    (broker.data_dir / "a-1" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    broker.start()
    with broker.client() as client:
        well, broken = client.ask(named("a"), LATEST).topics[0].partitions
    assert (well.error_code, well.leader_id) == (ErrorCode.NONE, 1)
    assert (broken.error_code, broken.leader_id, broken.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])


# --- the views after it


def test_views_follow_the_folder_and_stay_as_long_as_nothing_changes(broker: RunningBroker) -> None:
    node = broker.node

    def look() -> list[object]:
        return [node.topics.get("a"), node.topics.get("b"), [view.name for view in node.topics.all()]]

    assert broker.on_loop(look) == [None, None, []]
    broker.create_topic("a", 1)
    broker.create_topic("b", 1)
    first = broker.on_loop(look)
    assert first[2] == ["a", "b"]
    broker.on_loop(lambda: node.manager.add_partitions("a", 2))
    second = broker.on_loop(look)
    assert second[0] is not first[0]
    assert second[1] is first[1]
    view = broker.on_loop(lambda: node.topics.get("a"))
    assert view is not None
    assert [one.partition for one in view.partitions] == [0, 1]
    assert broker.on_loop(lambda: node.topics.by_id(view.topic_id)) is view
    broker.on_loop(lambda: topics_now.delete(node, "a"))
    assert broker.on_loop(look)[::2] == [None, ["b"]]
    assert broker.on_loop(lambda: node.topics.by_id(view.topic_id)) is None


def test_who_waits_for_a_deleted_topics_records_is_woken(broker: RunningBroker) -> None:
    broker.create_topic("a", 1)
    node = broker.node
    woken: list[TopicPartition] = []

    def delete() -> None:
        node.delayed_fetches.watch([TopicPartition("a", 0)], woken.append)
        topics_now.delete(node, "a")

    broker.on_loop(delete)
    with broker.client() as client:
        client.ask(named("a"), LATEST)
    assert broker.on_loop(lambda: woken) == [TopicPartition("a", 0)]


def test_bytes_behind_a_request_are_passed_over(client: RawClient) -> None:
    """Kafka's brokers do so, and librdkafka's request for all topics has one."""
    message = b"".join(request_chunks(MetadataRequest(topics=None), LATEST, 5, "raw"))[4:] + b"\x00"
    client.send_bytes(len(message).to_bytes(4, "big") + message)
    assert read_response(MetadataResponse, LATEST, client.receive_frame()) == (
        5,
        client.ask(MetadataRequest(topics=None), LATEST),
    )


def test_too_many_topics_are_not_created(start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker = start_broker(num_partitions=6000)
    with broker.client() as client:
        response = client.ask(named("a", "b", create=True), LATEST)
    assert {topic.error_code for topic in response.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert broker.on_loop(broker.node.manager.topics) == {}
    assert any("too many" in message for message in caplog.messages)
