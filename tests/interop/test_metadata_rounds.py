"""One data folder, by turns Tidelog's and a combined Apache Kafka's: each goes on with what the other left, killed or stopped.

Both keep topics, ids, settings and producer ids in the folder's own ``__cluster_metadata-0``. `TIDELOG_SOAK=1` does ten rounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec

from tests.examples import IS_SOAK
from tests.interop.test_dynamic_settings import DELETE, SET, Change, Side
from tests.kafka import Kafka391, Kafka420
from tests.kafka.clients import make_topics, metadata
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog import Broker
from tidelog.storage.topics.topic_settings import TopicSettings

ROUNDS = 10 if IS_SOAK else 2
"""Each side is killed once in two."""
BROKER_VALUES: Mapping[str, Callable[[random.Random], int]] = {
    "log.retention.bytes": lambda rng: rng.randrange(10**12, 10**15),
    "message.max.bytes": lambda rng: rng.randrange(3_000_000, 9_000_000),
    "num.io.threads": lambda rng: rng.randrange(7, 10),
}
FIRST_MS = 1_600_000_000_000
CONFIRMED_S = PATIENCE_S


class Model:
    """What is to be there: settings by topic, and the values of each partition in order."""

    def __init__(self) -> None:
        self.settings: dict[str, dict[str, str]] = {}
        self.values: dict[str, list[list[bytes]]] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.broker: dict[str, dict[str, str]] = {"": {}, "1": {}}
        """Dynamic settings of all brokers, and of this one."""
        self.count = 0

    @property
    def counts(self) -> dict[str, int]:
        """How many partitions each topic has."""
        return {name: len(partitions) for name, partitions in self.values.items()}


def change(bootstrap: str, model: Model, rng: random.Random, mark: str) -> None:
    """Create, alter, enlarge and delete topics; write records, some in a transaction, some aborted; commit offsets."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    created = [f"{mark}-{i}" for i in range(3)]
    wanted = [NewTopic(name, 2, 1, config={"retention.ms": "-1", "segment.bytes": "1048576"}) for name in created]
    make_topics(bootstrap, wanted)
    for name in created:
        model.settings[name] = {"retention.ms": "-1", "segment.bytes": "1048576"}
        model.values[name] = [[], []]
    if len(model.values) > 6:
        gone = rng.choice([name for name in model.values if name not in created])
        for done in admin.delete_topics([gone], request_timeout=CONFIRMED_S).values():
            done.result(CONFIRMED_S)
        del model.settings[gone], model.values[gone]
        model.committed = {key: offset for key, offset in model.committed.items() if key[0] != gone}
    altered = rng.choice(list(model.values))
    operations = {"max.message.bytes": str(2_000_000 + model.count), "segment.bytes": None}
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET)
        for key, value in operations.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, altered, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(CONFIRMED_S)
    model.settings[altered]["max.message.bytes"] = operations["max.message.bytes"] or ""
    model.settings[altered].pop("segment.bytes", None)
    enlarged = rng.choice(list(model.values))
    more = len(model.values[enlarged]) + 1
    for done in admin.create_partitions([NewPartitions(enlarged, more)], request_timeout=CONFIRMED_S).values():
        done.result(CONFIRMED_S)
    model.values[enlarged].append([])
    change_broker(bootstrap, model, rng)
    write(bootstrap, model, rng, mark)


def change_broker(bootstrap: str, model: Model, rng: random.Random) -> None:
    """Set what a broker takes while it runs, for all and for this one; take something back."""
    side = Side(bootstrap)
    for name, settings in model.broker.items():
        changes: list[Change] = [(key, DELETE, None) for key in settings if rng.random() < 0.3]
        left = sorted(BROKER_VALUES.keys() - {key for key, _, _ in changes})
        changes += [(key, SET, str(BROKER_VALUES[key](rng))) for key in left if rng.random() < 0.5]
        assert side.change(name, changes) == 0, side.reason
        for key, _, value in changes:
            settings.pop(key, None)
            if value is not None:
                settings[key] = value
    side.client.close()


def check_broker(bootstrap: str, model: Model) -> None:
    """Settings that were set while a broker ran are there, and are topics' defaults."""
    side = Side(bootstrap)
    wanted = {**model.broker[""], **model.broker["1"]}
    # A broker of Kafka hears of them a moment after its controller, as of all metadata.
    wait_until(lambda: {key: one[0] for key, one in side.described(4, "1").items() if one[1] in (2, 3)} == wanted, f"{wanted}")
    topic = side.described(2, next(iter(model.values)))
    assert topic["retention.bytes"][0] == wanted.get("log.retention.bytes", "-1")
    side.client.close()


def write(bootstrap: str, model: Model, rng: random.Random, mark: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True, "linger.ms": 5}
    # A broker of Kafka hears of new partitions a moment after the controller's answer, and a client would not know them.
    wait_until(lambda: counts(bootstrap) == model.counts, "the topics as they were changed")
    refused: list[object] = []
    producer = Producer(settings)
    for _ in range(60):
        name = rng.choice(list(model.values))
        number = rng.randrange(len(model.values[name]))
        value = f"{mark} {model.count}".encode()
        producer.produce(
            name,
            value,
            partition=number,
            timestamp=FIRST_MS + model.count,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
        model.values[name][number].append(value)
        model.count += 1
    assert producer.flush(CONFIRMED_S) == 0
    assert refused == []
    transactional = Producer({**settings, "transactional.id": "rounds"})
    transactional.init_transactions(CONFIRMED_S)
    for commits in (False, True):
        transactional.begin_transaction()
        name = rng.choice(list(model.values))
        value = f"{mark} txn {commits}".encode()
        transactional.produce(name, value, partition=0, timestamp=FIRST_MS + model.count)
        model.count += 1
        if commits:
            transactional.commit_transaction(CONFIRMED_S)
            model.values[name][0].append(value)
        else:
            transactional.flush(CONFIRMED_S)
            transactional.abort_transaction(CONFIRMED_S)
    name = rng.choice(list(model.values))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "rounds", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(name, 0, model.count)], asynchronous=False)
    consumer.close()
    model.committed[name, 0] = model.count


def check(bootstrap: str, model: Model) -> None:
    """Topics, settings, records, offsets by time, committed offsets: as the model has them."""
    check_broker(bootstrap, model)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    assert counts(bootstrap) == model.counts
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in model.values]
    for resource, described in admin.describe_configs(resources).items():
        own = {key: one.value for key, one in described.result(CONFIRMED_S).items() if one.source == 1}
        assert own == model.settings[resource.name], resource.name
    keys = [TopicPartition(name, number) for name, partitions in model.values.items() for number in range(len(partitions))]
    read = read_all(bootstrap, keys)
    assert read == {(name, n): values for name, partitions in model.values.items() for n, values in enumerate(partitions)}
    by_time = admin.list_offsets({key: OffsetSpec.for_timestamp(FIRST_MS) for key in keys})
    for key, found in by_time.items():
        if model.values[key.topic][key.partition]:
            assert found.result(CONFIRMED_S).offset == 0, key
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "rounds", "log_level": 0})
    found_offsets: list[TopicPartition] = []

    def is_answered() -> bool:
        """Whether the coordinator, which a broker that has just started may not be yet, answered."""
        try:
            found_offsets[:] = consumer.committed([TopicPartition(*key) for key in model.committed], CONFIRMED_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return False
        return True

    wait_until(is_answered, "the coordinator of the group")
    assert {(one.topic, one.partition): one.offset for one in found_offsets} == model.committed
    consumer.close()


def counts(bootstrap: str) -> dict[str, int]:
    """How many partitions each topic has."""
    topics = metadata(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})).topics
    return {name: len(one.partitions) for name, one in topics.items() if name[:2] != "__"}


def read_all(bootstrap: str, keys: list[TopicPartition]) -> dict[tuple[str, int], list[bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(key.topic, key.partition, 0) for key in keys])
    found: dict[tuple[str, int], list[bytes]] = {(key.topic, key.partition): [] for key in keys}
    waiting = set(found)
    while waiting:
        message = consumer.poll(CONFIRMED_S)
        assert message is not None, f"nothing more of {waiting}"
        key = (str(message.topic()), int(message.partition() or 0))
        if message.error() is None:
            found[key].append(message.value() or b"")
        elif message.error().name() == "_PARTITION_EOF":
            waiting.discard(key)
        else:
            raise KafkaException(message.error())
    consumer.close()
    return found


PROPERTIES: Mapping[str, str] = {"delete.topic.enable": "true"}


@pytest.mark.parametrize(("kafka_type", "rounds"), [(Kafka391, ROUNDS), (Kafka420, ROUNDS if IS_SOAK else 1)])
def test_to_and_fro(tmp_path: Path, kafka_type: type[Kafka391], rounds: int) -> None:
    rng = random.Random(rounds)
    model = Model()
    kafka = kafka_type(tmp_path / "node", {"metadata.log.dir": str(tmp_path / "node" / "data"), **PROPERTIES})
    kafka.cluster_id = "AAAAAAAAQQCQAAAAAAAAAg"
    settings: dict[str, str | int] = {"cluster.id": kafka.cluster_id, "node.id": 1, "offsets.topic.num.partitions": 1}
    for number in range(rounds):
        with Broker(kafka.data, **settings) as broker:
            if number:
                check(broker.bootstrap_servers, model)
            change(broker.bootstrap_servers, model, rng, f"tidelog-{number}")
            check(broker.bootstrap_servers, model)
            if number % 2 == 0:
                broker.kill()
        assert not TopicSettings(kafka.data).is_kafkas_since
        kafka.topics = {name: len(partitions) for name, partitions in model.values.items()}
        kafka.start()
        assert TopicSettings(kafka.data).is_kafkas_since
        check(kafka.bootstrap, model)
        change(kafka.bootstrap, model, rng, f"kafka-{number}")
        check(kafka.bootstrap, model)
        if number % 2:
            kafka.kill()
        else:
            kafka.stop()
    with Broker(kafka.data, **settings) as broker:
        check(broker.bootstrap_servers, model)
