"""Of all producers of a transactional id only the newest goes on; only a group's present generation commits for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import tidelog
from tests.kafka.clients import NewRow, consume, create_topics, produce
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    properties: dict[str, Any] = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}
    with tidelog.Broker(group_initial_rebalance_delay_ms=0, **properties) as broker:
        create_topics(broker.bootstrap_servers, {"in": {}, "out": {}, "pingpong": {}})
        yield broker.bootstrap_servers


def producer_of(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0, "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    return producer


def read(consumer: Consumer, count: int) -> None:
    """Wait until it was given so many records."""
    found = len(consumer.consume(count, PATIENCE_S))
    if found < count:
        raise TimeoutError(f"{found} of {count} records")


def failed(raised: pytest.ExceptionInfo[KafkaException]) -> KafkaError:
    error = raised.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def test_two_of_one_id_fence_each_other(bootstrap: str) -> None:
    """Each comes while the other one's transaction is open: that is aborted, and its producer is done for."""
    before: Producer | None = None
    for number in range(4):
        producer = producer_of(bootstrap, "pingpong")
        producer.begin_transaction()
        producer.produce("pingpong", b"%d" % number)
        if number % 2:
            producer.flush(PATIENCE_S)  # It is in the log; else perhaps not.
        if before is not None:
            with pytest.raises(KafkaException) as raised:
                before.commit_transaction(PATIENCE_S)
            assert failed(raised).fatal()
            assert failed(raised).code() == KafkaError._FENCED
        before = producer
    assert before is not None
    before.commit_transaction(PATIENCE_S)
    assert [row.value for row in consume(bootstrap, "pingpong", isolation="read_committed")] == [b"3"]


def test_who_was_left_behind_commits_nothing(bootstrap: str) -> None:
    """A member that a rebalance went past, with a producer of its own (KIP-447): its transaction is to be aborted."""
    produce(bootstrap, "in", [NewRow(None, b"%d" % number, 1_700_000_000_000) for number in range(10)])

    def member() -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "copy",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 100,
                "log_level": 0,
            }
        )
        consumer.subscribe(["in"])
        return consumer

    old = member()
    try:
        old_producer, new_producer = producer_of(bootstrap, "old"), producer_of(bootstrap, "new")
        read(old, 10)
        stale = old.consumer_group_metadata()
        old_producer.begin_transaction()
        old_producer.produce("out", b"of old")
    finally:
        old.close()
    new = member()
    try:
        read(new, 10)  # Nothing was committed yet.
        with pytest.raises(KafkaException) as raised:
            old_producer.send_offsets_to_transaction([TopicPartition("in", 0, 10)], stale, PATIENCE_S)
        assert failed(raised).txn_requires_abort()
        assert failed(raised).code() in (KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID)
        old_producer.abort_transaction(PATIENCE_S)
        new_producer.begin_transaction()
        new_producer.produce("out", b"of new")
        new_producer.send_offsets_to_transaction([TopicPartition("in", 0, 10)], new.consumer_group_metadata(), PATIENCE_S)
        new_producer.commit_transaction(PATIENCE_S)
        assert [row.value for row in consume(bootstrap, "out", isolation="read_committed")] == [b"of new"]
        assert [each.offset for each in new.committed([TopicPartition("in", 0)], PATIENCE_S)] == [10]
    finally:
        new.close()
