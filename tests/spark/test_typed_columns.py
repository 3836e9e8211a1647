"""Typed columns in Spark: JSON by DDL, and Avro that Confluent's serializer wrote, by a registry and by a schema file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory
from pyspark.sql import DataFrame, SparkSession

from tests.kafka.schema_registry import schema_registry, why_no_registry
from tests.sources.logs import TOPIC, LogBuilder
from tidelog.decoding.schemaful.protobuf_schema import ProtobufFile, compiled

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
NEWER: dict[str, Any] = {**ORDER, "fields": [*ORDER["fields"], {"name": "channel", "type": "string", "default": "web"}]}
AT_MS = 1_373_446_800_000
JSON = [b'{"id":%d,"at":"2013-07-10T09:00:00Z"}' % number for number in range(20)]
JSON[7] = b"{broken"
DDL = "id BIGINT, at TIMESTAMP"


def write(folder: Path, values: Sequence[bytes | None]) -> str:
    builder = LogBuilder(folder, segment_bytes=400)
    for value in values:
        builder.append([(AT_MS, b"UA", value)])
    builder.close()
    return str(builder.data_dir)


@pytest.fixture
def load(spark: SparkSession) -> Callable[..., DataFrame]:
    return lambda folder, **options: spark.read.format("tidelog").options(path=folder, subscribe=TOPIC, **options).load()


def test_json_in_batches_and_streams(spark: SparkSession, load: Callable[..., DataFrame], tmp_path: Path) -> None:
    folder = write(tmp_path / "data", JSON)
    frame = load(folder, decode="json", schema=DDL, keyDecode="utf8")
    assert frame.select("key", "value.id").filter("value.id >= 18").collect() == [("UA", 18), ("UA", 19)]
    assert frame.filter("valueUndecoded IS NOT NULL").select("offset", "valueUndecoded").collect() == [(7, b"{broken")]
    assert frame.selectExpr("unix_millis(value.at)").distinct().count() == 2
    given = spark.read.format("tidelog").schema("offset BIGINT, value STRUCT<id: INT>")
    summed = given.options(path=folder, subscribe=TOPIC, decode="json", columns="offset,value").load().selectExpr("sum(value.id)")
    assert summed.collect() == [(sum(range(20)) - 7,)]
    with pytest.raises(Exception, match=f"InvalidRecordError: {TOPIC}-0 offset 7: the value is not json"):
        load(folder, decode="json", schema=DDL, mode="FAILFAST").count()
    stream = spark.readStream.format("tidelog").options(
        path=folder, subscribe=TOPIC, startingOffsets="earliest", decode="json", schema=DDL
    )
    query = stream.load().writeStream.format("memory").queryName("typed").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.sql("SELECT count(*), sum(value.id), count(valueUndecoded) FROM typed").collect() == [(20, 183, 1)]


@pytest.fixture
def registry() -> Iterator[tuple[str, Any, Callable[[dict[str, Any], dict[str, Any]], bytes]]]:
    """The registry's address, its client, and how Confluent's serializer writes a value of a schema."""
    reason = why_no_registry()
    if reason is not None:
        pytest.skip(reason)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.schema_registry.avro import AvroSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext
    with schema_registry() as url, SchemaRegistryClient({"url": url}) as client:
        where = SerializationContext(TOPIC, MessageField.VALUE, [])
        yield url, client, lambda schema, value: AvroSerializer(client, json.dumps(schema))(value, where)


SUMS = ("sum(value.id)", "count(value)", "count(valueUndecoded)")


def test_avro_by_registry(load: Callable[..., DataFrame], registry: Any, tmp_path: Path) -> None:
    url, _, written = registry
    values = [written(ORDER, {"id": number, "at": AT_MS, "note": None}) for number in range(10)]
    frame = load(write(tmp_path / "data", [*values, None, b"plain"]), decode="avro", **{"schema.registry.url": url})
    written(NEWER, {"id": 1, "at": AT_MS, "note": "n", "channel": "app"})
    # A DataFrame keeps the type with which it was loaded.
    assert frame.select("value").schema[0].dataType.simpleString() == "struct<id:bigint,at:timestamp,note:string>"
    assert frame.selectExpr(*SUMS).collect() == [(45, 10, 1)]


@pytest.mark.thorough("a schema of the registry: test_avro_by_registry; of files: tests/decoding")
def test_avro_by_a_newer_schema_and_by_file(load: Callable[..., DataFrame], registry: Any, tmp_path: Path) -> None:
    url, _, written = registry
    values = [written(ORDER, {"id": number, "at": AT_MS, "note": None}) for number in range(10)]
    folder = write(tmp_path / "data", [*values, None, b"plain"])
    options = {"decode": "avro", "schema.registry.url": url}
    written(NEWER, {"id": 1, "at": AT_MS, "note": "n", "channel": "app"})
    assert load(folder, **options).selectExpr("value.channel").distinct().count() == 2
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    assert load(folder, decode="avro", schema=str(file)).selectExpr(*SUMS).collect() == [(45, 10, 1)]
    # The writers' schemas come from the registry; the type is that of the file.
    both = load(folder, **options, schema=str(file))
    assert both.select("value").schema[0].dataType.simpleString() == "struct<id:bigint,at:timestamp,note:string>"
    assert both.selectExpr(*SUMS).collect() == [(45, 10, 1)]
    with pytest.raises(Exception, match="the registry has no subject orders-key"):
        load(folder, keyDecode="avro", **{"schema.registry.url": url})


def test_internal_topics(spark: SparkSession) -> None:
    options = {
        "path": "tests/golden/kafka-3.9.1/log",
        "subscribe": "__transaction_state",
        "decode": "internal",
        "keyDecode": "internal",
    }
    frame = spark.read.format("tidelog").options(**options).load()
    ids = frame.selectExpr("get_json_object(key, '$.data.transactionalId') id", "get_json_object(value, '$.version') version")
    assert ids.filter("id IS NULL OR version <> '0'").count() == 0
    assert frame.count() == 111


def test_protobuf_by_a_descriptor_file(load: Callable[..., DataFrame], tmp_path: Path) -> None:
    file = tmp_path / "day=1" / "order.proto"
    file.parent.mkdir()
    file.write_text(
        'syntax = "proto3"; message Other { string x = 1; }'
        "message Order { int64 id = 1; optional string note = 2; repeated int32 lines = 3; map<string, double> rates = 4; }"
    )
    descriptor = ProtobufFile(compiled(file.read_text())).by_name("Order")
    order = message_factory.GetMessageClass(descriptor)
    values = [order(id=number, lines=[number, 7], rates={"a": 0.5}).SerializeToString() for number in range(10)]
    folder = write(tmp_path / "data", [*values, None, b"\xff"])
    frame = load(folder, decode="protobuf", schema=f"{file}#Order")
    kind = frame.select("value").schema[0].dataType.simpleString()
    assert kind == "struct<id:bigint,note:string,lines:array<int>,rates:map<string,double>>"
    summed = frame.selectExpr("sum(value.id)", "sum(value.lines[1])", "count(value.note)", "count(valueUndecoded)")
    assert summed.collect() == [(45, 70, 0, 1)]
    assert frame.filter("value.rates['a'] = 0.5").count() == 10
