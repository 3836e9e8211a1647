"""The admin clients of kafka-python and aiokafka: a topic's life. librdkafka's is used all over, Kafka's tools in interop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType

import tidelog
from tests.kafka.clients import NewRow, produce
from tests.kafka.real_clients import kafka

NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with tidelog.Broker() as broker:
        yield broker.bootstrap_servers


def test_kafka_python(bootstrap: str) -> None:
    library = kafka.admin
    with contextlib.closing(library.KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        created = admin.create_topics([library.NewTopic("told", 2, 1, topic_configs={"retention.ms": "1000000000"})])
        assert created["topics"][0]["num_partitions"] == 2
        with pytest.raises(kafka.errors.TopicAlreadyExistsError):
            admin.create_topics([library.NewTopic("told", 2, 1)])
        with pytest.raises(kafka.errors.InvalidReplicationFactorError):
            admin.create_topics([library.NewTopic("three", 1, 3)])
        admin.create_topics([library.NewTopic("asked", 1, 1)], validate_only=True)
        assert admin.list_topics() == ["told"]
        admin.create_partitions({"told": library.NewPartitions(3)})
        (told,) = admin.describe_topics(["told"])
        assert [partition["leader_id"] for partition in told["partitions"]] == [1, 1, 1]
        topic = library.ConfigResource("TOPIC", "told", {"segment.bytes": "1000000"})
        admin.alter_configs([topic])
        configs = admin.describe_configs([library.ConfigResource("TOPIC", "told")])["topic"]["told"]
        assert {name: config["value"] for name, config in configs.items()} == {
            "retention.ms": "1000000000",
            "segment.bytes": "1000000",
        }
        produce(bootstrap, "told", [NewRow(None, b"x", NOW_MS + number) for number in range(10)])
        place = kafka.TopicPartition("told", 0)
        assert admin.delete_records({place: 4})[place]["low_watermark"] == 4
        for spec, offset in ((library.OffsetSpec.EARLIEST, 4), (library.OffsetSpec.MAX_TIMESTAMP, 9), (NOW_MS + 6, 6)):
            assert admin.list_partition_offsets({place: spec})[place].offset == offset
        assert len(admin.describe_cluster()["brokers"]) == 1
        (sizes,) = admin.describe_log_dirs()
        assert [each["name"] for each in sizes["log_dirs"][0]["topics"]] == ["told"]
        admin.delete_topics(["told"])
        with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
            admin.delete_topics(["told"])


def test_aiokafka(bootstrap: str) -> None:
    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([AioNewTopic("aio", 2, 1)])
            again = await admin.create_topics([AioNewTopic("aio", 2, 1)])
            assert [error for _topic, error, _message in again.topic_errors] == [36]
            await admin.create_partitions({"aio": AioNewPartitions(3)})
            assert "aio" in await admin.list_topics()
            (described,) = await admin.describe_topics(["aio"])
            assert len(described["partitions"]) == 3
            await admin.alter_configs([AioConfigResource(AioConfigResourceType.TOPIC, "aio", {"retention.ms": "5000000"})])
            (answer,) = await admin.describe_configs([AioConfigResource(AioConfigResourceType.TOPIC, "aio")])
            values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert values["retention.ms"] == "5000000"
            await admin.delete_topics(["aio"])
            assert "aio" not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(run())
