"""`tidelog.Broker(tls=True, users={...})`: each client gets in with the settings that it is handed, and nobody without."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

import tidelog
from tests.patience import PATIENCE_S
from tidelog.broker.server.secured.quick_security import QuickSecurity
from tidelog.errors import AuthenticationError, InvalidArgumentError
from tidelog.security.jaas import parse_jaas

with warnings.catch_warnings():  # kafka-python reads its own version in a way that Python will not know forever.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

USERS = {"alice": 'se"cr\\et', "bob": "other, with = and ;"}
KINDS = ({"tls": True}, {"users": USERS}, {"tls": True, "users": USERS}, {})


@pytest.fixture(scope="module", params=KINDS, ids=["tls", "users", "both", "neither"])
def broker(request: pytest.FixtureRequest) -> Iterator[tidelog.Broker]:
    with tidelog.Broker(**request.param) as made:
        made.create_topic("events")
        made.produce("events", b"first")
        yield made


def ways(broker: tidelog.Broker, client: str) -> Iterator[dict[str, Any]]:
    if "SASL" not in broker.client_config()["security.protocol"]:
        yield broker.client_config(client)
        return
    for user in USERS:
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            yield broker.client_config(client, user=user, mechanism=mechanism)


def test_confluent(broker: tidelog.Broker) -> None:
    for config in ways(broker, "confluent-kafka"):
        producer = Producer(config)
        producer.produce("events", b"of librdkafka")
        assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(broker.client_config() | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["events"])
    try:
        (message,) = consumer.consume(1, PATIENCE_S)
        assert message.value() == b"first"
    finally:
        consumer.close()


def test_kafka_python(broker: tidelog.Broker) -> None:
    for config in ways(broker, "kafka-python"):
        producer = kafka.KafkaProducer(**config)
        try:
            assert producer.send("events", b"of kafka-python").get(PATIENCE_S).offset > 0
        finally:
            producer.close()


def test_aiokafka(broker: tidelog.Broker) -> None:
    async def send() -> None:
        for config in ways(broker, "aiokafka"):
            producer = aiokafka.AIOKafkaProducer(**config)
            await producer.start()
            try:
                assert (await producer.send_and_wait("events", b"of aiokafka")).offset > 0
            finally:
                await producer.stop()

    asyncio.run(asyncio.wait_for(send(), PATIENCE_S))


def test_tidelog_and_java(broker: tidelog.Broker) -> None:
    for client in ("tidelog", "confluent-kafka", "java"):
        for config in ways(broker, client):
            assert config.pop("bootstrap.servers", broker.bootstrap_servers) == broker.bootstrap_servers
            with tidelog.connect(broker.bootstrap_servers, **config) as connected:
                assert "events" in connected.topics()


def test_nobody_else_gets_in() -> None:
    with tidelog.Broker(tls=True, users=USERS) as broker:
        config = broker.client_config("tidelog")
        for wrong in ({"sasl.password": "wrong"}, {"sasl.username": "nobody"}):
            with pytest.raises(AuthenticationError):
                tidelog.connect(broker.bootstrap_servers, **(config | wrong))
        del config["ssl.ca.location"]
        with pytest.raises(AuthenticationError, match="certificate"):
            tidelog.connect(broker.bootstrap_servers, **config)
        for client, user, mechanism in (("curl", None, None), ("java", "eve", None), ("java", None, "GSSAPI")):
            with pytest.raises(InvalidArgumentError):
                broker.client_config(client, user=user, mechanism=mechanism)
    for arguments in ({"users": {}}, {"users": {"": "x"}}, {"tls": True, "listeners": "PLAINTEXT://127.0.0.1:0"}):
        with pytest.raises(InvalidArgumentError):
            tidelog.Broker(**arguments)


def test_it_starts_again_with_the_same_keys_and_users(tmp_path: Path) -> None:
    broker = tidelog.Broker(tmp_path / "data", tls=True, users={"ann": "one"})
    broker.start()
    config = broker.client_config()
    broker.stop()
    end = broker.call  # a stopped broker has no thread to ask
    with pytest.raises(InvalidArgumentError):
        end(lambda running: None)
    broker.start()
    assert broker.client_config() == config
    AdminClient(config).list_topics(timeout=PATIENCE_S)
    log = [one for one in (tmp_path / "data" / "__cluster_metadata-0").iterdir() if one.suffix == ".log"]
    before = [path.stat().st_size for path in log]
    broker.stop()
    with tidelog.Broker(tmp_path / "data", users={"ann": "two"}) as changed:
        tidelog.connect(changed.bootstrap_servers, **changed.client_config("tidelog")).close()
    assert [path.stat().st_size for path in log] > before, "another password is another credential"
    with tidelog.Broker(tmp_path / "data", users={"ann": "three"}, read_only=True) as looked_at:
        assert looked_at.client_config()["sasl.mechanism"] == "PLAIN"
        tidelog.connect(looked_at.bootstrap_servers, **looked_at.client_config("tidelog")).close()


def test_keys_are_secret_and_go_with_the_broker() -> None:
    security = QuickSecurity(tls=True, users=USERS, is_read_only=False)
    folder = Path(security.properties(0)["ssl.keystore.location"]).parent
    assert folder.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in folder.iterdir()) == ["broker.pem", "ca.pem", "openssl.cnf"]
    options = parse_jaas(security.client_config("java", "a:1", "alice", "PLAIN")["sasl.jaas.config"]).options
    assert options["password"].reveal() == USERS["alice"]
    del security
    assert not folder.exists()


def test_without_openssl_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InvalidArgumentError, match="openssl"):
        tidelog.Broker(tls=True)
