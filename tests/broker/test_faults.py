"""Requests that fail on demand: `tidelog.Broker.fail`."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import tidelog
from tests.broker.produce_helpers import message_set
from tests.broker.raw import RawClient
from tests.broker.widest import about, codes_of, plain, requests
from tests.patience import PATIENCE_S
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.faulty_handler import fails_by_topic
from tidelog.errors import InvalidArgumentError
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages import api_versions, fetch, metadata, offset_commit
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

CODE = ErrorCode.REQUEST_TIMED_OUT


def raw(broker: tidelog.Broker) -> RawClient:
    return RawClient(("127.0.0.1", broker.port))


def produced(client: RawClient, *topics: str, acks: int = 1) -> dict[str, int]:
    data = [TopicProduceData(name, partition_data=[PartitionProduceData(0, message_set(2))]) for name in topics]
    answer = client.ask(ProduceRequest(None, acks, 1000, data), 9)
    return {one.name: one.partition_responses[0].error_code for one in answer.responses}


def test_each_api_fails_as_it_is_asked_to() -> None:
    """One that is added is among them by itself: as a whole, and for a topic where it names topics."""
    with tidelog.Broker(group_coordinator_rebalance_protocols="classic,consumer") as broker:
        broker.create_topic("t")
        topic_id = broker.call(lambda running: running.node.topics.get("t").topic_id)  # type: ignore[union-attr]
        value = about("t", topic_id)
        for api in APIS:
            asked = [(one.make, one.version) for one in requests(api, 1, value) if "forgotten" not in one.what]
            for make, version in asked or [(lambda api=api: plain(api, value), api.served.last)]:
                for topic in (None, "t", "u") if fails_by_topic(api) else (None,):
                    message, what = make(), (api.name, version, topic)
                    if (topic is not None and not names_topics(message)) or (topic == "u" and api.name == "DeleteTopics"):
                        continue
                    fault = broker.fail(api.name, CODE.name, topic=topic)
                    with raw(broker) as client:
                        answer = client.ask(message, version)
                    assert (CODE in codes_of(answer)) == (topic != "u"), (what, answer)
                    assert fault.count == (topic != "u"), what
                    fault.stop()


def names_topics(message: object) -> bool:
    return "'t'" in repr(message)


def test_a_producer_sends_again_and_nothing_is_written_twice() -> None:
    with tidelog.Broker() as broker:
        broker.create_topic("orders")
        broker.create_topic("others")
        fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", times=2)
        assert repr(fault) == "<Fault Produce of 'orders': NOT_LEADER_OR_FOLLOWER, 2 times more>"
        settings = {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 1, "enable.idempotence": True}
        producer = Producer(settings)
        producer.produce("others", b"a")
        producer.produce("orders", b"b")
        assert producer.flush(PATIENCE_S) == 0
        assert fault.count == 2 and fault.is_over
        assert [one.value for one in broker.records("orders")] == [b"b"]
        assert [one.value for one in broker.records("others")] == [b"a"]


def test_a_consumer_reads_on() -> None:
    with tidelog.Broker() as broker:
        broker.produce("orders", [b"a", b"b"])
        fault = broker.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER.value, topic="orders", times=2)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0})
        consumer.assign([TopicPartition("orders", 0, 0)])
        values: list[bytes | None] = []
        while len(values) < 2:
            values += [one.value() for one in consumer.consume(2, PATIENCE_S) if not one.error()]
        consumer.close()
        assert values == [b"a", b"b"] and fault.count == 2


def test_only_what_is_named_fails() -> None:
    with tidelog.Broker() as broker, raw(broker) as client:
        for name in ("t", "u"):
            broker.create_topic(name)
        broker.fail("Produce", CODE.name, topic="t")
        assert produced(client, "t", "u") == {"t": CODE, "u": 0}
        assert produced(client, "t", "u") == {"t": 0, "u": 0}
        assert [len(broker.records(name)) for name in ("t", "u")] == [3, 6]
        broker.fail("OffsetCommit", "REBALANCE_IN_PROGRESS", topic="u")
        partition = offset_commit.OffsetCommitRequestPartition(0, 1)
        topics = [offset_commit.OffsetCommitRequestTopic(name, partitions=[partition]) for name in ("t", "u")]
        commit = offset_commit.OffsetCommitRequest("g", topics=topics)
        answer = client.ask(commit, 8)
        assert {one.name: one.partitions[0].error_code for one in answer.topics} == {"t": 0, "u": 27}


def test_partitions_of_a_session_fail_and_come_back() -> None:
    with tidelog.Broker() as broker, raw(broker) as client:
        for name in ("t", "u"):
            broker.produce(name, b"a")
        partition = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
        wanted = [fetch.FetchTopic(name, partitions=[partition]) for name in ("t", "u")]
        first = client.ask(fetch.FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=wanted), 11)
        assert first.session_id and len(first.responses) == 2
        broker.fail("Fetch", CODE.name, topic="t")
        found = []
        for epoch in (1, 2):
            again = fetch.FetchRequest(max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=epoch, topics=[])
            answer = client.ask(again, 11)
            found.append({one.topic: one.partitions[0].error_code for one in answer.responses})
        assert found == [{"t": CODE, "u": 0}, {"t": 0, "u": 0}]


def test_metadata_fails_without_a_trace() -> None:
    """Topics of an answer are kept for the next one: that is as if nothing had been."""
    with tidelog.Broker() as broker, raw(broker) as client:
        for name in ("t", "u"):
            broker.create_topic(name)
        before = client.ask(metadata.MetadataRequest(None), 12)
        broker.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="t")
        failed = client.ask(metadata.MetadataRequest(None), 12)
        assert {one.name: (one.error_code, len(one.partitions)) for one in failed.topics} == {"t": (5, 0), "u": (0, 1)}
        assert client.ask(metadata.MetadataRequest(None), 12) == before


@pytest.mark.parametrize("api", ["Produce", "Fetch", "Metadata", "ApiVersions"])
def test_a_connection_is_closed(api: str) -> None:
    asked = {
        "Produce": (ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, b"")])]), 9),
        "Fetch": (fetch.FetchRequest(topics=[fetch.FetchTopic("t", partitions=[fetch.FetchPartition(0)])]), 11),
        "Metadata": (metadata.MetadataRequest(None), 9),
        "ApiVersions": (api_versions.ApiVersionsRequest(), 0),
    }
    with tidelog.Broker() as broker:
        broker.create_topic("t")
        fault = broker.fail(api, None)
        message, version = asked[api]
        with raw(broker) as client:
            client.send(message, version)
            assert client.closed()
        assert fault.count == 1
        with raw(broker) as client:
            client.ask(message, version)


def test_how_long_it_fails() -> None:
    with tidelog.Broker() as broker, raw(broker) as client:
        broker.create_topic("t")
        first, second = broker.fail("Produce", "NETWORK_EXCEPTION"), broker.fail("Produce", CODE.name, times=None)
        assert repr(second).endswith("until it is stopped>")
        assert [produced(client, "t")["t"] for _ in range(4)] == [13, 7, 7, 7]
        assert (first.count, second.count, first.is_over, second.is_over) == (1, 3, True, False)
        second.stop()
        second.stop()
        assert produced(client, "t") == {"t": 0} and second.is_over
        broker.fail("Produce", CODE.name, times=None)
        broker.stop()
        broker.start()
        with raw(broker) as other:
            assert produced(other, "t") == {"t": 0}, "a broker that starts again has forgotten it"


def test_what_can_never_happen_is_refused() -> None:
    with tidelog.Broker() as broker:
        for arguments, options, words in [
            (("Prduce", "NETWORK_EXCEPTION"), {}, "this broker does not serve this API"),
            (("Produce", "NETWORK_EXEPTION"), {}, "unknown Kafka error"),
            (("Produce", 4000), {}, "unknown Kafka error"),
            (("Produce", "NONE"), {}, "a request cannot fail with a code that means success"),
            (("Produce", 7), {"times": 0}, "times is out of range"),
            (("Heartbeat", 7), {"topic": "t"}, "Heartbeat can only fail as a whole, not for one topic"),
            (("OffsetFetch", 7), {"topic": "t"}, "OffsetFetch can only fail as a whole"),
        ]:
            with pytest.raises(InvalidArgumentError, match=words):
                broker.fail(*arguments, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="not running"):
        broker.fail("Produce", 7)
