"""`KafkaContainer`, used as testcontainers' class of this name is, and brokers started where an event loop already runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

import tidelog
from tests.certificates import Authority
from tests.patience import PATIENCE_S
from tidelog.errors import InvalidArgumentError, TidelogError
from tidelog.testing import KafkaContainer


def properties_of(kafka: KafkaContainer) -> tuple[int, int]:
    """The number of partitions of new topics and of `__consumer_offsets`."""
    config = kafka.broker.call(lambda running: running.node.config)
    return config.num_partitions, config.offsets_topic_num_partitions


def test_what_suites_do_with_it() -> None:
    container = (
        KafkaContainer("confluentinc/cp-kafka:7.6.0", port=9093).with_kraft().with_cluster_id("x").with_exposed_ports(9093)
    )
    container.with_env("KAFKA_NUM_PARTITIONS", 3).with_envs(KAFKA_HEAP_OPTS="-Xmx1g", KAFKA_LOG_RETENTION_MS=-1, CLUSTER_ID="x")
    container.with_env("KAFKA_PROCESS_ROLES", "broker,controller").with_env("KAFKA_ZOOKEEPER_CONNECT", "zoo:2181")
    with container as kafka:
        assert properties_of(kafka) == (3, 1)
        assert kafka.get_bootstrap_server() == f"{kafka.get_container_host_ip()}:{kafka.get_exposed_port(9093)}"
        producer = Producer({"bootstrap.servers": kafka.get_bootstrap_server()})
        producer.produce("orders", b"value")
        assert producer.flush(PATIENCE_S) == 0
        consumer = Consumer(
            {"bootstrap.servers": kafka.get_bootstrap_server(), "group.id": "app", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.value() == b"value"
        consumer.close()
        folder = kafka.broker.data_dir
    assert not folder.exists()
    container.start()
    container.start_again = "attributes of subclasses are allowed"
    with pytest.raises(TidelogError):
        container.broker.records("orders")
    container.stop()
    container.stop()


def test_its_port_can_be_fixed() -> None:
    with KafkaContainer() as first:
        port = first.broker.port
    with KafkaContainer().with_bind_ports(9093, port) as kafka:
        assert kafka.get_exposed_port(9093) == port


def test_a_listener_with_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.sign("broker", hosts=("localhost",))
    kafka = KafkaContainer(port=9095).with_env("KAFKA_LISTENERS", "BROKER://0.0.0.0:9092,TLS://0.0.0.0:9095")
    kafka.with_env("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "BROKER:PLAINTEXT,TLS:SSL").with_env("KAFKA_SSL_KEYSTORE_TYPE", "PEM")
    # The images write a properties file: line ends of keys are escaped, or not.
    kafka.with_env("KAFKA_SSL_KEYSTORE_KEY", (tmp_path / "broker.key").read_text())
    kafka.with_env("KAFKA_SSL_KEYSTORE_CERTIFICATE_CHAIN", (tmp_path / "broker.crt").read_text().replace("\n", "\\n"))
    with kafka:
        servers = kafka.get_bootstrap_server()
        assert servers.startswith("localhost:")
        producer = Producer({"bootstrap.servers": servers, "security.protocol": "ssl", "ssl.ca.location": str(authority.ca)})
        producer.produce("orders", b"value")
        assert producer.flush(PATIENCE_S) == 0


def test_what_only_a_container_has() -> None:
    container = KafkaContainer()
    with pytest.raises(InvalidArgumentError, match="not started"):
        container.get_bootstrap_server()
    for name in ("exec", "get_wrapped_container", "with_network", "with_volume_mapping", "get_logs"):
        with pytest.raises(AttributeError, match=rf"KafkaContainer\.{name}: Tidelog runs no container"):
            getattr(container, name)
    with pytest.raises(InvalidArgumentError, match="no listener at port 9093"):
        container.with_env("KAFKA_LISTENERS", "PLAINTEXT://:9092").start()
    with pytest.raises(InvalidArgumentError, match=r"num\.partition"):
        KafkaContainer().with_env("KAFKA_NUM_PARTITION", 3).start()
    with KafkaContainer() as kafka:
        with pytest.raises(InvalidArgumentError, match="the broker has only one port"):
            kafka.get_exposed_port(2181)
        with pytest.raises(InvalidArgumentError, match="is already running"):
            kafka.start()


def test_a_broker_in_a_running_loop() -> None:
    """As in a notebook, or a test of pytest-asyncio."""
    asyncio.run(use_a_broker())


async def use_a_broker() -> None:
    with tidelog.Broker() as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        consumer = AIOKafkaConsumer("orders", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        async with producer, consumer:
            await producer.send_and_wait("orders", b"value")
            message = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            assert message.value == b"value"
            broker.kill()
            broker.start()
            await producer.send_and_wait("orders", b"more")
            assert (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value == b"more"
        assert [record.value for record in broker.records("orders")] == [b"value", b"more"]
