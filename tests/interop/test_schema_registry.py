"""Values that Confluent's serializers wrote, with a registry in a process of its own, as typed columns and as texts."""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.certificates import Authority
from tests.kafka.schema_registry import schema_registry, why_no_registry
from tidelog.decoding import Decodings, TopicDecoding
from tidelog.decoding.registry import SchemaRegistry
from tidelog.decoding.schemaful.protobuf_schema import ProtobufFile, compiled
from tidelog.errors import SchemaRegistryError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from confluent_kafka.schema_registry import (
        Schema,
        SchemaReference,
        SchemaRegistryClient,
        header_schema_id_serializer,
        record_subject_name_strategy,
        topic_record_subject_name_strategy,
    )
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

pytestmark = [pytest.mark.interop, pytest.mark.skipif(why_no_registry() is not None, reason=str(why_no_registry()))]

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "lines",
            "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}},
        },
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}
NEWER = {**ORDER, "fields": [*ORDER["fields"], {"name": "channel", "type": "string", "default": "web"}]}
IN_HEADER = {"schema.id.serializer": header_schema_id_serializer, "auto.register.schemas": False, "use.latest.version": True}
"""Only a schema that is looked up has its GUID here."""
AT = datetime(2026, 11, 17, 9, tzinfo=UTC)


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "at": AT,
        "price": Decimal("12.34"),
        "note": None if number % 2 else f"n{number}",
        "lines": [{"sku": "a"}, {"sku": "b"}][: number % 3],
        "tags": {"x": number},
    }


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with schema_registry() as found:
        yield found


@pytest.fixture
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as found:
        yield found


def records(values: Sequence[bytes | None], headers: Sequence[Sequence[tuple[str, bytes]]] | None = None) -> pa.RecordBatch:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = [[{"key": name, "value": value} for name, value in one] for one in (headers or [[]] * len(values))]
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary()), pa.array(rows, kind)], names=["value", "headers"])


def decoding(topic: str, name: str, url: str) -> TopicDecoding:
    return Decodings.parse([name], registry=url).topic(topic)


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, [])


def test_avro_of_several_versions(url: str, client: SchemaRegistryClient) -> None:
    old = AvroSerializer(client, json.dumps(ORDER))
    values = [old(order(number), context("orders")) for number in range(5)]
    new = AvroSerializer(client, json.dumps(NEWER))
    values.append(new({**order(5), "channel": "app"}, context("orders")))
    for name in ("avro", "auto"):
        topic = decoding("orders", name, url)
        topic.learn(records(values))
        rows = topic.decode(records([*values, None, b"\0\0\0\0\x63x", b"plain"])).to_pylist()
        assert [row["value"] and row["value"]["channel"] for row in rows] == ["web"] * 5 + ["app", None, None, None]
        assert [row["value"] and row["value"]["id"] for row in rows[:6]] == list(range(6))
        assert rows[2]["value"] == {**order(2), "tags": [("x", 2)], "channel": "web"}
        assert [row["value_undecoded"] for row in rows] == [None] * 7 + [b"\0\0\0\0\x63x", b"plain"]
    shown = decoding("orders", "avro", url).display(records(values)).column("value").to_pylist()
    assert "channel" not in json.loads(shown[0]) and json.loads(shown[5])["channel"] == "app"


@pytest.mark.parametrize("strategy", [record_subject_name_strategy, topic_record_subject_name_strategy])
def test_subjects_by_record(url: str, client: SchemaRegistryClient, strategy: Any) -> None:
    topic_name = f"mixed-{strategy.__name__}"
    config = {"subject.name.strategy": strategy}
    one = AvroSerializer(client, json.dumps(ORDER), conf=config)(order(1), context(topic_name))
    other_schema = {"type": "record", "name": "Refund", "namespace": "shop", "fields": [{"name": "sum", "type": "int"}]}
    other = AvroSerializer(client, json.dumps(other_schema), conf=config)({"sum": 3}, context(topic_name))
    column = decoding(topic_name, "avro", url).decode(records([one])).column("value")
    assert column.to_pylist()[0]["id"] == 1
    texts = decoding(topic_name, "avro", url).decode(records([one, other])).column("value").to_pylist()
    assert [json.loads(text).get("sum") for text in texts] == [None, 3]


def test_avro_with_references(url: str, client: SchemaRegistryClient) -> None:
    line = {"type": "record", "name": "Line", "namespace": "shared", "fields": [{"name": "sku", "type": "string"}]}
    client.register_schema("shared.Line", Schema(json.dumps(line), "AVRO"))
    outer = {"type": "record", "name": "Bill", "fields": [{"name": "lines", "type": {"type": "array", "items": "shared.Line"}}]}
    schema = Schema(json.dumps(outer), "AVRO", [SchemaReference("shared.Line", "shared.Line", 1)])
    value = AvroSerializer(client, schema)({"lines": [{"sku": "a"}]}, context("bills"))
    assert decoding("bills", "avro", url).decode(records([value])).column("value").to_pylist() == [{"lines": [{"sku": "a"}]}]


def test_the_id_in_a_header(url: str, client: SchemaRegistryClient) -> None:
    client.register_schema("headed-value", Schema(json.dumps(ORDER), "AVRO"))
    serializer = AvroSerializer(client, conf=IN_HEADER)
    values, headers = [], []
    for number in range(3):
        where = context("headed")
        values.append(serializer(order(number), where))
        headers.append(list(where.headers))
    assert headers[0] and headers[0][0][0] == "__value_schema_id"
    topic = decoding("headed", "avro", url)
    assert topic.needs_headers
    rows = topic.decode(records(values, headers)).to_pylist()
    assert [row["value"]["id"] for row in rows] == [0, 1, 2]


PROTO = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Unused { int32 x = 1; }
message Order { int64 id = 1; google.protobuf.Timestamp at = 2; repeated Line lines = 3; message Line { string sku = 1; } }
"""


FIELDS: dict[str, dict[str, Any]] = {
    "shop.Order": {"id": 7, "at": {"seconds": int(AT.timestamp())}, "lines": [{"sku": "b"}]},
    "shop.Order.Line": {"sku": "a"},
    "shop.Unused": {"x": 5},
}


@pytest.mark.parametrize(
    ("name", "in_header"),
    # confluent-kafka fails on a nested message with the latest schema.
    [("shop.Order", False), ("shop.Order.Line", False), ("shop.Unused", False), ("shop.Order", True), ("shop.Unused", True)],
)
def test_protobuf(url: str, client: SchemaRegistryClient, name: str, in_header: bool) -> None:
    from google.protobuf import message_factory

    kind = message_factory.GetMessageClass(ProtobufFile(compiled(PROTO)).by_name(name))
    config: dict[str, Any] = {"use.deprecated.format": False}
    topic_name = f"{name}-{in_header}"
    if in_header:
        text = base64.b64encode(kind.DESCRIPTOR.file.serialized_pb).decode()
        client.register_schema(f"{topic_name}-value", Schema(text, "PROTOBUF"))
        config |= IN_HEADER
    serializer = ProtobufSerializer(kind, client, config)
    message = kind(**FIELDS[name])
    where = context(topic_name)
    value = serializer(message, where)
    headers = [list(where.headers)] if in_header else None
    expected = {**FIELDS[name], "at": AT} if name == "shop.Order" else FIELDS[name]
    assert decoding(topic_name, "protobuf", url).decode(records([value], headers)).column("value").to_pylist() == [expected]
    assert decoding(topic_name, "auto", url).decode(records([value], headers)).column("value").to_pylist() == [expected]


def test_protobuf_texts_with_references(url: str, client: SchemaRegistryClient) -> None:
    """As Confluent's registry returns them."""
    from google.protobuf import message_factory

    line = 'syntax = "proto3"; package shared; message Line { string sku = 1; }'
    text = 'syntax = "proto3"; import "shared/line.proto"; message Bill { repeated shared.Line lines = 1; }'
    client.register_schema("shared/line.proto", Schema(line, "PROTOBUF"))
    references = [SchemaReference("shared/line.proto", "shared/line.proto", 1)]
    number = client.register_schema("bills2-value", Schema(text, "PROTOBUF", references))
    kind = message_factory.GetMessageClass(ProtobufFile(compiled(text, [("shared/line.proto", line)])).by_name("Bill"))
    value = b"\0" + number.to_bytes(4, "big") + b"\0" + kind(lines=[{"sku": "a"}]).SerializeToString()
    assert decoding("bills2", "protobuf", url).decode(records([value])).column("value").to_pylist() == [{"lines": [{"sku": "a"}]}]


def test_json_schema(url: str, client: SchemaRegistryClient) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            "x": {"type": "number"},
        },
    }
    value = JSONSerializer(json.dumps(schema), client)({"id": 1, "note": None, "x": 1}, context("jsons"))
    for name in ("json", "auto"):
        topic = decoding("jsons", name, url)
        topic.learn(records([value]))
        rows = topic.decode(records([value, b'{"id":2}', b"{"])).to_pylist()
        assert [row["value"] for row in rows] == [{"id": 1, "note": None, "x": 1.0}, {"id": 2, "note": None, "x": None}, None]
    # Without a registry, the prefix is passed over.
    plain = Decodings.parse(["json"]).topic("jsons").decode(records([value, b'{"id":2}']))
    assert [one["id"] for one in plain.column("value").to_pylist()] == [1, 2]


def test_credentials_and_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    server, mine = authority.sign("registry", hosts=("127.0.0.1",)), authority.sign("me")
    secret = "p%ss:w/rd"
    with schema_registry(f"me:{secret}", certificate=server, clients=authority.ca) as url:
        trusting = {"url": url, "ssl.ca.location": str(authority.ca)}
        whole = {**trusting, "ssl.certificate.location": str(mine), "basic.auth.user.info": f"me:{secret}"}
        assert SchemaRegistry(properties=whole).latest("nothing") is None
        in_url = url.replace("://", "://me:p%25ss%3Aw%2Frd@")
        assert SchemaRegistry(in_url, {**whole, "basic.auth.user.info": "other:x"} | {"url": in_url}).latest("nothing") is None
        for properties, words in (
            ({**whole, "basic.auth.user.info": "me:wr0ng"}, "refused the credentials: found HTTP status 403"),
            ({**whole, "ssl.ca.location": str(mine)}, "cannot be reached"),
            ({name: value for name, value in whole.items() if name != "ssl.certificate.location"}, "cannot be reached"),
            ({**whole, "url": url.replace("https", "http")}, ""),
        ):
            with pytest.raises(SchemaRegistryError) as raised:
                SchemaRegistry(properties=properties).latest("nothing")
            assert words in str(raised.value) and secret not in str(raised.value) and "wr0ng" not in str(raised.value)
