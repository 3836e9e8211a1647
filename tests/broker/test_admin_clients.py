"""Admin clients of librdkafka, kafka-python and aiokafka: a topic's life, as each of them leads it."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tests.broker.conftest import RunningBroker
from tests.broker.test_topic_admin import fill, topics_of
from tests.kafka.real_clients import kafka
from tests.patience import PATIENCE_S
from tidelog.wire.error_codes import ErrorCode


def test_librdkafka(broker: RunningBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})

    def done(futures: dict[object, object]) -> list[object]:
        return [future.result(PATIENCE_S) for future in futures.values()]  # type: ignore[attr-defined]

    new = NewTopic("a", 2, 1, config={"retention.ms": "5000"})
    done(admin.create_topics([new]))
    with pytest.raises(KafkaException) as raised:
        done(admin.create_topics([new]))
    assert raised.value.args[0].name() == "TOPIC_ALREADY_EXISTS"
    done(admin.create_partitions([NewPartitions("a", 3)]))
    resource = ConfigResource(ConfigResource.Type.TOPIC, "a")
    (told,) = done(admin.describe_configs([resource]))
    assert (told["retention.ms"].value, told["retention.ms"].source) == ("5000", 1)  # type: ignore[index]
    assert list(told["retention.ms"].synonyms) == ["retention.ms"]  # type: ignore[index]
    fill(broker, "a", 10)
    (deleted,) = done(admin.delete_records([TopicPartition("a", 0, 4)]))
    assert deleted.low_watermark == 4  # type: ignore[attr-defined]
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    done(admin.incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, "a", incremental_configs=[change])]))
    assert topics_of(broker)["a"].properties == {"retention.ms": "5000", "cleanup.policy": "delete,compact"}
    topic = admin.describe_topics(TopicCollection(["a"]))["a"].result(PATIENCE_S)
    assert (topic.name, len(topic.partitions), topic.partitions[0].leader.id) == ("a", 3, 1)
    cluster = admin.describe_cluster(include_authorized_operations=True).result(PATIENCE_S)
    assert (cluster.cluster_id, cluster.controller.id) == (broker.node.cluster_id, 1)
    assert "a" in admin.list_topics(timeout=PATIENCE_S).topics
    done(admin.delete_topics(["a"]))
    assert topics_of(broker) == {}


def test_kafka_python(broker: RunningBroker) -> None:
    library, errors = kafka.admin, kafka.errors
    admin = library.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        admin.create_topics({"a": {"num_partitions": 2, "configs": {"retention.ms": "5000"}}}, wait_for_metadata=True)
        with pytest.raises(errors.TopicAlreadyExistsError):
            admin.create_topics(["a"])
        with pytest.raises(errors.InvalidReplicationFactorError):
            admin.create_topics([library.NewTopic("three", 1, 3)])
        admin.create_topics([library.NewTopic("asked", 1, 1)], validate_only=True)
        admin.create_partitions({"a": 3})
        fill(broker, "a", 10)
        place = kafka.TopicPartition("a", 0)
        assert admin.delete_records({place: 4})[place]["low_watermark"] == 4
        for spec, offset in ((library.OffsetSpec.EARLIEST, 4), (library.OffsetSpec.LATEST, 10)):
            assert admin.list_partition_offsets({place: spec})[place].offset == offset
        changes = {"cleanup.policy": ("APPEND", "compact"), "retention.ms": ("DELETE", None)}
        admin.alter_configs([library.ConfigResource("topic", "a", changes)])
        assert topics_of(broker)["a"].properties == {"cleanup.policy": "delete,compact"}
        assert "delete,compact" in str(admin.describe_configs([library.ConfigResource("topic", "a")]))
        assert [len(topic["partitions"]) for topic in admin.describe_topics(["a"])] == [3]
        assert admin.describe_cluster()["cluster_id"] == broker.node.cluster_id
        assert str(broker.data_dir) in str(admin.describe_log_dirs())
        admin.delete_topics(["a"])
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            admin.delete_topics(["a"])
        assert admin.list_topics() == []
    finally:
        admin.close()


def test_aiokafka(broker: RunningBroker) -> None:
    async def live() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()
        try:
            new = AioNewTopic("a", 2, 1, topic_configs={"retention.ms": "5000"})
            await admin.create_topics([new])
            again = await admin.create_topics([new])
            assert [error for _topic, error, _message in again.topic_errors] == [ErrorCode.TOPIC_ALREADY_EXISTS]
            await admin.create_partitions({"a": AioNewPartitions(3)})
            resource = AioConfigResource(AioConfigResourceType.TOPIC, "a")
            (response,) = await admin.describe_configs([resource])
            assert ("retention.ms", "5000") in {entry[:2] for entry in response.resources[0][4]}
            await admin.alter_configs([AioConfigResource(AioConfigResourceType.TOPIC, "a", configs={"segment.bytes": "9000"})])
            assert topics_of(broker)["a"].properties == {"segment.bytes": "9000"}
            (topic,) = await admin.describe_topics(["a"])
            assert len(topic["partitions"]) == 3
            assert (await admin.describe_cluster())["controller_id"] == 1
            await admin.delete_topics(["a"])
            assert await admin.list_topics() == []
        finally:
            await admin.close()

    asyncio.run(live())
