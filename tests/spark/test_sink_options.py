"""What a write's options come to, and what is refused, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.errors import InvalidArgumentError
from tidelog.records.compression import Codec
from tidelog.spark.sink.sink_options import SinkOptions, parse_sink_options

BROKER = {"kafka.bootstrap.servers": "one:9092,two:9092"}


def parsed(streaming: bool = False, **given: str) -> SinkOptions:
    return parse_sink_options({key.replace("__", "."): value for key, value in given.items()} | BROKER, streaming=streaming)


def test_a_job_of_the_connectors() -> None:
    given = {
        "Kafka.Bootstrap.Servers": "one:9092",
        "TOPIC": "a",
        "checkpointLocation": "/c",
        "queryName": "q",
        "kafka.acks": "all",
        "kafka.linger.ms": "5",
        "kafka.compression.type": "zstd",
        "kafka.batch.size": "1000",
        "includeHeaders": "true",
    }
    found = parse_sink_options(given, streaming=True)
    assert found == SinkOptions(
        path=None,
        brokers="one:9092",
        topic="a",
        codec=Codec.ZSTD,
        batch_bytes=1000,
        delivery="exactly-once",
        notices=("options without effect here: kafka.acks, kafka.linger.ms",),
    )


def test_where_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_sink_options({"path": "data"}, streaming=False).path == str(tmp_path / "data")
    assert parse_sink_options({"path": f"file://{tmp_path}/a%20b"}, streaming=False).path == f"{tmp_path}/a b"
    both = parse_sink_options({"path": "data"} | BROKER, streaming=False)
    assert (both.path, both.brokers) == (str(tmp_path / "data"), None)
    assert both.notices == ("options without effect here: kafka.bootstrap.servers",)
    assert parse_sink_options({"path": "one:9092"}, streaming=False).brokers == "one:9092"


@pytest.mark.parametrize(
    ("given", "streaming", "expected"),
    [
        (BROKER, True, "exactly-once"),
        (BROKER, False, "at-least-once"),
        ({"path": "/d"}, False, "exactly-once"),
        (BROKER | {"deliveryGuarantee": "at-least-once"}, True, "at-least-once"),
        (BROKER | {"deliveryGuarantee": "Exactly-Once"}, False, "exactly-once"),
        ({"path": "/d", "deliveryGuarantee": "at-least-once"}, True, "exactly-once"),
    ],
)
def test_the_guarantee(given: dict[str, str], streaming: bool, expected: str) -> None:
    assert parse_sink_options(given, streaming=streaming).delivery == expected


def test_the_transactional_id() -> None:
    assert parsed(True).for_query("q").transactional_id == "tidelog-q"
    named = parsed(True, transactionalId="mine", transactionTimeout="90s").for_query("q")
    assert (named.transactional_id, named.query_id, named.transaction_timeout_ms) == ("mine", "q", 90_000)
    assert parsed(True, kafka__transactional__id="mine", kafka__transaction__timeout__ms="5000").transaction_timeout_ms == 5000


def test_a_folders_new_topics() -> None:
    found = parse_sink_options({"path": "/d", "partitions": "3", "topic.segment.bytes": "4096"}, streaming=False)
    assert (found.partitions, dict(found.topic_properties)) == (3, {"segment.bytes": "4096"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, r"kafka.bootstrap.servers \(brokers\) or path"),
        ({"path": "s3://bucket/x"}, "s3:// addresses are not supported: found s3://bucket/x"),
        ({"kafka.bootstrap.servers": "nonsense"}, "option kafka.bootstrap.servers"),
        (BROKER | {"kafka.security.protocol": "TLS"}, "security.protocol is invalid: found TLS"),
        (BROKER | {"kafka.value.serializer": "x"}, "option kafka.value.serializer"),
        (
            BROKER | {"topik": "a"},
            r"unknown option topik \(did you mean topic\?\): the options for writing are .*transactionalId",
        ),
        (BROKER | {"topic": "a b"}, "option topic: 'a b' is not a topic name"),
        (BROKER | {"compression": "brotli"}, "option compression: expected none or gzip"),
        (BROKER | {"compression": "lz4", "kafka.compression.type": "zstd"}, "compression and kafka.compression.type disagree"),
        (BROKER | {"batchSize": "0"}, "option batchSize: expected a positive number"),
        (BROKER | {"deliveryGuarantee": "never"}, "option deliveryGuarantee: expected exactly-once or at-least-once"),
        (BROKER | {"transactionalId": "a"}, "option transactionalId needs deliveryGuarantee exactly-once"),
        (BROKER | {"transactionTimeout": "soon"}, "option transactionTimeout"),
        (BROKER | {"includeHeaders": "maybe"}, "option includeHeaders"),
        (BROKER | {"partitions": "3"}, "option partitions is for a folder's new topics"),
        (BROKER | {"topic.retention.ms": "3"}, "option topic.retention.ms is for a folder's"),
        ({"path": "/d", "topic.segment.bytes": "none"}, r"options topic\.\*"),
        ({"path": "/d", "spoolDir": " "}, "option spoolDir is empty"),
    ],
)
def test_what_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        parse_sink_options(given, streaming=False)
