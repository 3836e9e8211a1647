"""A password that is an option of Spark's, of a broker or of a schema registry, is in nothing that a run leaves: plans, progress,
errors, logs, events, checkpoints, the pages of Spark's UI.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import tidelog
from tests.certificates import Authority
from tests.kafka.schema_registry import schema_registry, why_no_registry
from tidelog.decoding.schemaful.protobuf_schema import ProtobufFile, compiled

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

pytestmark = pytest.mark.skipif(why_no_registry() is not None, reason=str(why_no_registry()))

PASSWORD = "of-tests-and-easy-to-find"
USER_INFO = f"me:registry-{PASSWORD}"
TOKEN = f"bearer-{PASSWORD}"
KEY_PASSWORD = f"key-{PASSWORD}"
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
PROTOBUF = 'syntax = "proto3"; message Order { int64 id = 1; }'
JSON_SCHEMA = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def registered(client: SchemaRegistryClient, topic: str) -> list[bytes]:
    """Return values of the topic, whose schema is now in the registry."""
    from google.protobuf import message_factory

    kind = message_factory.GetMessageClass(ProtobufFile(compiled(PROTOBUF)).by_name("Order"))
    serializer = {
        "avros": lambda: AvroSerializer(client, json.dumps(AVRO)),
        "protobufs": lambda: ProtobufSerializer(kind, client, {"use.deprecated.format": False}),
        "jsons": lambda: JSONSerializer(json.dumps(JSON_SCHEMA), client),
    }[topic]()
    where = SerializationContext(topic, MessageField.VALUE, [])
    return [serializer(kind(id=one) if topic == "protobufs" else {"id": one}, where) for one in range(5)]


def test_a_password_is_nowhere(tmp_path: Path) -> None:
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}";',
    }
    ran = tmp_path / "ran"
    ran.mkdir()
    authority = Authority(tmp_path / "authority")
    server, mine = authority.sign("registry", hosts=("127.0.0.1",)), authority.sign("me")
    with (
        tidelog.Broker(tmp_path / "data", **given) as broker,
        schema_registry(USER_INFO, certificate=server, clients=authority.ca) as secured,
        schema_registry(bearer=TOKEN) as by_token,
    ):
        tls = {"ssl.ca.location": str(authority.ca)}
        locked = {"ssl.certificate.location": str(authority.locked("me", KEY_PASSWORD)), "ssl.key.password": KEY_PASSWORD}
        by_user = {"url": secured, **tls, **locked, "basic.auth.user.info": USER_INFO}
        in_url = {"url": secured.replace("://", f"://{USER_INFO}@"), **tls, **locked}
        mine_too = {"url": secured, **tls, "ssl.certificate.location": str(mine), "ssl.key.location": str(mine)}
        typed, wrong = {}, {}
        for topic, options, change, config in (
            ("avros", by_user, {"basic.auth.user.info": f"{USER_INFO}-not"}, mine_too | {"basic.auth.user.info": USER_INFO}),
            ("protobufs", in_url, {"ssl.key.password": f"{KEY_PASSWORD}-not"}, mine_too | {"basic.auth.user.info": USER_INFO}),
            (
                "jsons",
                {"url": by_token, "bearer.auth.token": TOKEN},
                {"bearer.auth.token": f"{TOKEN}-not"},
                {
                    "url": by_token,
                    "bearer.auth.credentials.source": "STATIC_TOKEN",
                    "bearer.auth.token": TOKEN,
                    "bearer.auth.logical.cluster": "none",
                    "bearer.auth.identity.pool.id": "none",
                },
            ),
        ):
            broker.create_topic(topic)
            with SchemaRegistryClient(config) as client:
                for value in registered(client, topic):
                    broker.produce(topic, value)
            format_name = topic.removesuffix("s")
            typed[topic] = {f"schema.registry.{name}": value for name, value in options.items()} | {"decode": format_name}
            wrong[topic] = {f"schema.registry.{name}": value for name, value in change.items()}
        broker.create_topic("events")
        broker.create_topic("copied")
        broker.produce("events", b"one")
        address = next(f"127.0.0.1:{one.port}" for one in broker._listeners if one.name == "SASL_PLAINTEXT")
        command = [sys.executable, "-m", "tests.interop.secrets_program", address, str(ran)]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with program:
            said, logged = program.communicate(json.dumps({"password": PASSWORD, "typed": typed, "wrong": wrong}), timeout=600)
        assert program.returncode == 0, logged[-4000:]
        assert [bool(one.value) for one in broker.records("copied")] == [True, True]
    assert "rows 1" in said
    assert [line.split(" ")[0] for line in said.splitlines()].count("refused") == 2 + len(typed)
    for topic in typed:
        assert f"{topic} DataFrame[" in said and "[Row(sum(value.id)=10, count(value)=5, max(valueUndecoded)=None)]" in said
    assert "avros streamed [Row(sum(id)=10)]" in said
    assert PASSWORD not in said
    assert PASSWORD not in logged
    files = [path for path in ran.rglob("*") if path.is_file()]
    assert any(path.is_relative_to(ran / "events") for path in files)
    assert any(path.is_relative_to(ran / "checkpoint") for path in files)
    found = [path for path in files if PASSWORD.encode() in path.read_bytes()]
    assert not found
