"""What docs/kafka-connector.md says of the connector, and of where the two differ. Its options are tested in tests/spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop.peers import served
from tests.interop.spark_program import QueryError, SparkProgram
from tests.kafka.clients import consume, create_topics
from tests.spark.golden import BASE_MS, log_dir

TOPIC = "two-partitions"


class Place(NamedTuple):
    bootstrap: str
    brokers: dict[str, str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(log_dir(), folder / "data")
    with served(folder) as peer:
        yield Place(peer.bootstrap, {"kafka.bootstrap.servers": peer.bootstrap})


def test_consumer_settings_that_the_connector_refuses(spark_program: SparkProgram, place: Place) -> None:
    for name in ("auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"):
        given = place.brokers | {"subscribe": "empty", f"kafka.{name}": "x"}
        with pytest.raises(QueryError, match="not supported"):
            spark_program.rows("kafka", **given)
        assert spark_program.rows("tidelog", **given).num_rows == 0


def test_an_option_with_a_letter_missing(spark_program: SparkProgram, place: Place) -> None:
    given = place.brokers | {"subscribe": TOPIC, "startingOffset": "latest"}
    assert spark_program.rows("kafka", **given).num_rows == 500
    with pytest.raises(QueryError, match="has no option startingoffset"):
        spark_program.rows("tidelog", **given)


def test_an_empty_assignment(spark_program: SparkProgram, place: Place) -> None:
    assert spark_program.rows("kafka", **place.brokers, assign="{}").num_rows == 0
    with pytest.raises(QueryError, match="names no partition"):
        spark_program.rows("tidelog", **place.brokers, assign="{}")


def test_a_start_behind_an_end(spark_program: SparkProgram, place: Place) -> None:
    given = place.brokers | {
        "subscribe": TOPIC,
        "startingTimestamp": str(BASE_MS + 60_000),
        "startingOffsetsByTimestampStrategy": "latest",
        "endingOffsets": '{"two-partitions": {"0": 1, "1": 1}}',
    }
    with pytest.raises(QueryError, match=r"greater than the resolved end offset|START_OFFSET_GREATER"):
        spark_program.rows("kafka", **given)
    with pytest.raises(QueryError, match="lies after endingOffsets"):
        spark_program.rows("tidelog", **given)


def test_a_stream_has_no_end(spark_program: SparkProgram, place: Place, tmp_path: Path) -> None:
    given = place.brokers | {"subscribe": TOPIC}
    for kind in ("kafka", "tidelog"):
        with pytest.raises(QueryError, match=r"ending offset|endingOffsets"):
            spark_program.stream(f"end-{kind}", kind, tmp_path / kind, **given, endingOffsets="latest")


def test_writing(spark_program: SparkProgram, place: Place) -> None:
    create_topics(place.bootstrap, {f"{kind}-{way}": {} for kind in ("kafka", "tidelog") for way in ("with", "without")})
    rows = ("tidelog", {"path": log_dir(), "subscribe": "v2-none-ct", "includeHeaders": "true"})
    source = consume(place.bootstrap, "v2-none-ct")
    with pytest.raises(QueryError, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        spark_program.write(rows, "tidelog", **place.brokers, topic="tidelog-with")
    for kind in ("kafka", "tidelog"):
        spark_program.write(rows, kind, None if kind == "kafka" else "append", **place.brokers, topic=f"{kind}-with")
        spark_program.write(rows, kind, "append", **place.brokers, topic=f"{kind}-without", includeHeaders="false")
        with pytest.raises(QueryError):
            spark_program.write(rows, kind, "overwrite", **place.brokers, topic=f"{kind}-with")
        written = {way: consume(place.bootstrap, f"{kind}-{way}") for way in ("with", "without")}
        for found in written.values():
            contents = [(row.key, row.value) for row in found]
            assert sorted(contents, key=str) == sorted(((row.key, row.value) for row in source), key=str)
        # The connector knows no `includeHeaders` here, and no column `timestamp`.
        assert any(row.headers for row in written["with"])
        assert any(row.headers for row in written["without"]) == (kind == "kafka")
        times_are_kept = sorted(row.timestamp for row in written["with"]) == sorted(row.timestamp for row in source)
        assert times_are_kept == (kind == "tidelog")


@pytest.mark.thorough("waits a minute for Spark's own connector to fail; no code of ours takes part in it")
def test_a_transactional_id(spark_program: SparkProgram, place: Place) -> None:
    """The connector's producer never begins a transaction, and its write fails after a minute: too long to be shown here."""
    create_topics(place.bootstrap, {"tidelog-id": {}})
    rows = ("tidelog", {"path": log_dir(), "subscribe": "v2-none-ct"})
    given = place.brokers | {"kafka.transactional.id": "page", "topic": "tidelog-id"}
    spark_program.write(rows, "tidelog", "append", **given, deliveryGuarantee="exactly-once")
    assert len(consume(place.bootstrap, "tidelog-id", isolation="read_committed")) == 900
