"""docs/kafka-connector.md keeps its word: every option that it names does what the page says, and none is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidelog.client.connections.addresses import config_of
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.security.client_config import ClientConfig
from tidelog.spark.options import OPTIONS, STREAM_OPTIONS, parse_options
from tidelog.spark.sink.sink_options import SINK_OPTIONS, parse_sink_options
from tidelog.spark.stream.stream_options import parse_stream_options

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kafka-connector.md"
ROW = re.compile(r"^\| `([^`]+)` \| (same|differs|ignored|refused|ours) \|(.*)\|$", re.MULTILINE)
BROKERS = {"kafka.bootstrap.servers": "broker:9092"}
READ = BROKERS | {"subscribe": "orders"}

CONNECTOR_READS = {
    "kafka.bootstrap.servers",
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix",
    "kafka.group.id",
    "includeHeaders",
    "kafka.auto.offset.reset",
    "kafka.key.deserializer",
    "kafka.value.deserializer",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
}
"""Every key that the connector 4.2.0 looks for when it reads."""

CONNECTOR_WRITES = {"kafka.bootstrap.servers", "topic", "includeHeaders", "kafka.key.serializer", "kafka.value.serializer"}

VALUES = {
    "kafka.bootstrap.servers": "other:9092",
    "subscribe": "returns",
    "subscribePattern": "ret.*",
    "assign": '{"returns": [0]}',
    "startingOffsets": '{"orders": {"0": 5}}',
    "endingOffsets": '{"orders": {"0": 7}}',
    "startingTimestamp": "1600000000000",
    "endingTimestamp": "1600000000000",
    "startingOffsetsByTimestamp": '{"orders": {"0": 1600000000000}}',
    "endingOffsetsByTimestamp": '{"orders": {"0": 1600000000000}}',
    "startingOffsetsByTimestampStrategy": "latest",
    "includeHeaders": "true",
    "failOnDataLoss": "false",
    "minPartitions": "7",
    "kafka.isolation.level": "read_committed",
    "isolationLevel": "read_committed",
    "kafka.security.protocol": "SSL",
    "path": "/data",
    "decode": "json",
    "keyDecode": "json",
    "schema": "id BIGINT",
    "keySchema": "id BIGINT",
    "mode": "FAILFAST",
    "startTime": "2013-07-10",
    "endTime": "2013-07-11",
    "timeZone": "Europe/Berlin",
    "columns": "offset,value",
    "timeMapDir": "/maps",
    "skipDamaged": "true",
    "tier": "/remote",
    "tierKey": "/key.pem",
    "maxOffsetsPerTrigger": "1000",
    "minOffsetsPerTrigger": "10",
    "maxTriggerDelay": "5m",
    "maxRecordsPerPartition": "50",
    "maxBytesPerTrigger": "100m",
    "maxTimePerTrigger": "10m",
    "groupIdPrefix": "nightly",
    "kafka.enable.auto.commit": "false",
}
"""A value of each option that has an effect, other than what holds without it; `1` where no value matters."""

SINK_VALUES = {
    "atomic": "true",
    "kafka.bootstrap.servers": "other:9092",
    "topic": "returns",
    "includeHeaders": "false",
    "kafka.compression.type": "zstd",
    "compression": "lz4",
    "kafka.batch.size": "1000",
    "batchSize": "1000",
    "kafka.transactional.id": "nightly",
    "transactionalId": "nightly",
    "kafka.transaction.timeout.ms": "5000",
    "transactionTimeout": "5s",
    "kafka.security.protocol": "SSL",
    "deliveryGuarantee": "at-least-once",
    "path": "/data",
    "spoolDir": "/spool",
    "partitions": "3",
    "topic.<property>": "1048576",
}


def rows(*headings: str) -> dict[str, tuple[str, str]]:
    """Return option → (word, remark) of the tables below these headings of the second level."""
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found: dict[str, tuple[str, str]] = {}
    for heading in headings:
        (section,) = [text for text in sections if text.startswith(heading)]
        for name, word, remark in ROW.findall(section):
            assert name not in found, f"{name} stands there twice"
            found[name] = word, remark
    return found


IN_A_BATCH = rows("Which records", "In a batch")
IN_A_STREAM = rows("Which records", "In a stream")
TO_WRITE = rows("To write")


def parse_batch(given: Mapping[str, str]) -> Any:
    return parse_options(given, ManualClock(0))


def parse_write(given: Mapping[str, str]) -> Any:
    return parse_sink_options(given, streaming=True)


def test_nothing_is_missing() -> None:
    for found, theirs, ours in (
        (IN_A_BATCH, CONNECTOR_READS, {*OPTIONS, *STREAM_OPTIONS}),
        (IN_A_STREAM, CONNECTOR_READS, {*OPTIONS, *STREAM_OPTIONS}),
        (TO_WRITE, CONNECTOR_WRITES, {*SINK_OPTIONS}),
    ):
        assert (theirs | ours) - found.keys() == set()


def test_what_is_ours_is_not_the_connectors() -> None:
    for found, theirs in ((IN_A_BATCH, CONNECTOR_READS), (IN_A_STREAM, CONNECTOR_READS), (TO_WRITE, CONNECTOR_WRITES)):
        assert not {name for name, (word, _) in found.items() if word == "ours"} & theirs


@pytest.mark.parametrize("name", IN_A_BATCH)
def test_an_option_of_a_batch(name: str) -> None:
    judge(name, *IN_A_BATCH[name], parse_batch, READ, VALUES)


@pytest.mark.parametrize("name", IN_A_STREAM)
def test_an_option_of_a_stream(name: str) -> None:
    judge(name, *IN_A_STREAM[name], parse_stream_options, READ, VALUES)


@pytest.mark.parametrize("name", TO_WRITE)
def test_an_option_of_a_write(name: str) -> None:
    judge(name, *TO_WRITE[name], parse_write, BROKERS | {"topic": "orders"}, SINK_VALUES)


def judge(
    name: str, word: str, remark: str, parse: Callable[[Mapping[str, str]], Any], others: dict[str, str], values: dict[str, str]
) -> None:
    value = values.get(name, "1")
    if name in ("subscribePattern", "assign"):
        others = {key: text for key, text in others.items() if key != "subscribe"}
    if (
        name in ("timeMapDir", "skipDamaged", "tier", "tierKey")
        or (name == "partitions" and "with brokers" in remark)
        or name == "topic.<property>"
    ):
        with pytest.raises(InvalidArgumentError):  # only with a folder
            parse(others | {name.replace("<property>", "segment.bytes"): value})
        others = {key: text for key, text in others.items() if key not in BROKERS} | {"path": "/data"}
    if name == "tierKey":
        others = others | {"tier": "/remote"}
    if name == "timeZone":
        others = others | {"startTime": "2013-07-10"}
    if name in ("schema", "keySchema", "mode"):
        others = others | {"decode": "json", "keyDecode": "json"}
    given = others | {name.replace("<property>", "segment.bytes"): value}
    if word == "refused" or "anything else is refused" in remark:
        with pytest.raises(InvalidArgumentError, match=re.escape(name) + r"\b|" + re.escape(name.lower()) + r"\b"):
            parse(given)
        return
    plain = parse(others) if {"subscribe", "assign", "subscribePattern"} & others.keys() or parse is parse_write else None
    found = parse(given)
    said, found = without_notices(found)
    if word == "ignored":
        assert name in said or name.lower() in said
        assert found == without_notices(plain)[1]
    else:
        assert said == ("" if name != "path" else said)
        other = None if plain is None else without_notices(plain)[1]
        assert other is None or (found, reached(found)) != (other, reached(other)), f"{name} has no effect"


def reached(options: Any) -> ClientConfig:
    """How the brokers are reached: an address is compared without it."""
    read = getattr(options, "read", options)
    return config_of(getattr(read, "source", None) or getattr(read, "brokers", None) or "")


def without_notices(options: Any) -> tuple[str, Any]:
    if hasattr(options, "read"):
        said, read = without_notices(options.read)
        return said, replace(options, read=read)
    return " ".join(options.notices), replace(options, notices=())


def test_defaults_are_as_told() -> None:
    assert parse_batch(READ).starting.everywhere == -2
    assert parse_stream_options(READ).read.starting.everywhere == -1
    sink = parse_sink_options(BROKERS, streaming=True)
    assert (sink.delivery, sink.batch_bytes) == ("exactly-once", 65_536)
    assert parse_sink_options(BROKERS, streaming=False).delivery == "at-least-once"
    assert parse_batch(READ | {"path": "/data"}).reads_files
    assert parse_batch(READ | {"kafka.security.protocol": "PLAINTEXT"}).notices == ()


def test_an_unknown_option_is_refused() -> None:
    for parse, given in ((parse_batch, READ), (parse_stream_options, READ), (parse_write, BROKERS)):
        with pytest.raises(InvalidArgumentError, match="startingoffset"):
            parse(given | {"startingOffset": "earliest"})


def test_an_empty_assignment_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="names no partition"):
        parse_batch(BROKERS | {"assign": "{}"})
