"""Transactions of real client libraries: librdkafka, kafka-python, aiokafka. The Java clients are in tests/interop.

`TIDELOG_CLIENTS_AGAINST=3.9.1` points them at Apache Kafka, which judges the tests themselves.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import os
import threading
import warnings
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Self

import aiokafka
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import tidelog
from tests.kafka import Kafka391
from tests.kafka.clients import consume, create_topics
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S

with warnings.catch_warnings():
    # kafka-python reads files of its package in a way that Python 3.11 calls old.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient
    from kafka.structs import ConsumerGroupMetadata
    from kafka.structs import OffsetAndMetadata as PythonOffset

    import kafka


pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


class Transactional(abc.ABC):
    """A transactional producer. Each method waits for its end."""

    library = ""
    fenced: tuple[type[BaseException], ...] = ()
    """What it raises when another has its id."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.bootstrap = bootstrap
        self.transactional_id = transactional_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    @abc.abstractmethod
    def init(self) -> None: ...
    @abc.abstractmethod
    def begin(self) -> None: ...
    @abc.abstractmethod
    def send(self, topic: str, value: bytes) -> int:
        """Its offset."""

    @abc.abstractmethod
    def send_offset(self, group: str, topic: str, offset: int) -> None:
        """Of partition 0."""

    @abc.abstractmethod
    def commit(self) -> None: ...
    @abc.abstractmethod
    def abort(self) -> None: ...
    @abc.abstractmethod
    def close(self) -> None: ...


class Librdkafka(Transactional):
    library = "librdkafka"
    fenced = (KafkaException,)

    def init(self) -> None:
        self.producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": self.transactional_id, "linger.ms": 0, "log_level": 0}
        )
        self.producer.init_transactions(PATIENCE_S)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes) -> int:
        told: list[Any] = []
        self.producer.produce(
            topic, value, partition=0, on_delivery=lambda error, message: told.append(error or message.offset())
        )
        self.producer.flush(PATIENCE_S)
        assert isinstance(told[0], int), told
        return told[0]

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        place = TopicPartition(topic, 0, offset)
        self.producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), PATIENCE_S)
        consumer.close()

    def commit(self) -> None:
        self.producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self.producer.abort_transaction(PATIENCE_S)

    def close(self) -> None:
        del self.producer


class KafkaPython(Transactional):
    library = "kafka-python"
    fenced = (kafka.errors.KafkaError,)

    def init(self) -> None:
        self.producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=self.transactional_id)
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes) -> int:
        future = self.producer.send(topic, value, partition=0)
        self.producer.flush(PATIENCE_S)
        return int(future.get(PATIENCE_S).offset)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        offsets = {kafka.TopicPartition(topic, 0): PythonOffset(offset, "", -1)}
        self.producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group))

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def close(self) -> None:
        self.producer.close(PATIENCE_S)


class AioKafka(Transactional):
    """Its loop is on a thread of its own: its producer works between two calls, too."""

    library = "aiokafka"
    fenced = (aiokafka.errors.KafkaError,)

    def init(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.producer = self._do(self._made())
        self._do(self.producer.start())

    async def _made(self) -> Any:
        return aiokafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=self.transactional_id)

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def begin(self) -> None:
        self._do(self.producer.begin_transaction())

    def send(self, topic: str, value: bytes) -> int:
        return int(self._do(self.producer.send_and_wait(topic, value, partition=0)).offset)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        self._do(self.producer.send_offsets_to_transaction({aiokafka.TopicPartition(topic, 0): offset}, group))

    def commit(self) -> None:
        self._do(self.producer.commit_transaction())

    def abort(self) -> None:
        self._do(self.producer.abort_transaction())

    def close(self) -> None:
        self._do(self.producer.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_S)
        self.loop.close()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("transactions")
    properties = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
    if os.environ.get("TIDELOG_CLIENTS_AGAINST") == "3.9.1":
        with Kafka391(folder, properties) as kafka_broker:
            yield kafka_broker.bootstrap
    else:
        with tidelog.Broker(folder / "data", 0, None, **properties) as broker:
            yield broker.bootstrap_servers


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    return [row.value for row in consume(bootstrap, topic, isolation="read_committed")]


def offset_of(bootstrap: str, group: str) -> int | None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return next((int(each.offset) for each in future.result(PATIENCE_S).topic_partitions), None)


@pytest.mark.parametrize("kind", [Librdkafka, KafkaPython, AioKafka], ids=lambda kind: kind.library)
def test_transactions(bootstrap: str, kind: type[Transactional]) -> None:
    """Committed, aborted, with a group's offset; the next with the id ends what is open, and fences the first."""
    topic, group = f"topic-{kind.library}", f"group-{kind.library}"
    create_topics(bootstrap, {topic: {}})
    first, second = kind(bootstrap, kind.library), kind(bootstrap, kind.library)
    first.init()
    first.begin()
    assert first.send(topic, b"one") == 0
    first.send_offset(group, topic, 7)
    assert committed(bootstrap, topic) == []
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        (listed,) = (
            each for some in admin.list_transactions().values() for each in some if each.transactional_id == kind.library
        )
        assert listed.state.value == "Ongoing"
        described = admin.describe_transactions([kind.library])[kind.library]
        assert kafka.TopicPartition(topic, 0) in described.topic_partitions
        (state,) = admin.describe_producers([kafka.TopicPartition(topic, 0)]).values()
        (active,) = state.active_producers
        assert (active.producer_id, active.current_transaction_start_offset) == (listed.producer_id, 0)
    first.commit()
    assert committed(bootstrap, topic) == [b"one"]
    wait_until(lambda: offset_of(bootstrap, group) == 7, "the group's offset", PATIENCE_S)
    first.begin()
    first.send(topic, b"two")
    first.send_offset(group, topic, 9)
    first.abort()
    first.begin()
    assert first.send(topic, b"three") == 4
    second.init()
    with pytest.raises(first.fenced):
        first.commit()
    second.begin()
    assert second.send(topic, b"four") == 6
    second.commit()
    assert committed(bootstrap, topic) == [b"one", b"four"]
    assert offset_of(bootstrap, group) == 7
    for each in (first, second):
        each.close()
