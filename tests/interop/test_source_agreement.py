"""Our source and Spark's Kafka connector, row for row: on Kafka 3.9.1, on Tidelog's broker, and from the folders of both.

| peer | topics |
|---|---|
| `kafka` | filled now: codecs, timestamp types, headers, nulls, a deleted prefix, compaction, transactions, two partitions |
| `tidelog` | the same kinds, as a Kafka 3.9.1 wrote them long ago, served by Tidelog |
| `old` | formats v0, v1 and v2 and logs that hold several, as a Kafka 2.4.1 wrote them, served by Tidelog |

The one difference that is wanted: a record without timestamp is null here and the last millisecond of 1969 there.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelog
from tests.interop.gate import first_of
from tests.interop.spark_program import QueryError, SparkProgram
from tests.kafka import Kafka391
from tests.kafka.clients import wait_until_decided
from tests.kafka.golden_topics import Filler, plans
from tests.kafka.java import wait_until
from tests.spark.golden import BASE_MS, log_dir
from tidelog.client.reading.offsets import NotFound, list_offsets
from tidelog.model import EARLIEST, LATEST, TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.sources.brokers.broker_split import scan_cluster

PLANS = (
    "v2-none-ct",
    "v2-none-lat",
    "v2-gzip-ct",
    "v2-snappy-lat",
    "v2-lz4-ct",
    "v2-zstd-lat",
    "two-partitions",
    "empty",
    "future-pinned",
    "deleted-prefix",
    "compacted",
    "transactions",
)
BROKER = {
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    # Kafka's next look, five minutes after the start, removes segments before a log start, and its answers by time change.
    "log.retention.check.interval.ms": "7200000",
    "replica.high.watermark.checkpoint.interval.ms": "200",
}
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
SEED = 8


@dataclass
class Place:
    """A broker, the folder that it serves, and where its partitions begin and end."""

    bootstrap: str
    data: Path
    begin_ms: int
    offsets: dict[tuple[str, int], tuple[int, int]]

    def ways(self) -> dict[str, tuple[str, dict[str, str]]]:
        """The connector first: it is the judge."""
        brokers = {"kafka.bootstrap.servers": self.bootstrap}
        return {"connector": ("kafka", brokers), "broker": ("tidelog", brokers), "folder": ("tidelog", {"path": str(self.data)})}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("kafka")
    with Kafka391(folder, BROKER) as broker:
        filler = Filler(broker, SEED)
        for topic, plan in plans("3.9.1").items():
            if topic in PLANS:
                plan(filler, topic)
        checkpoint = broker.data / "log-start-offset-checkpoint"
        wait_until(
            lambda: checkpoint.exists() and "deleted-prefix 0 333" in checkpoint.read_text(), "the start of deleted-prefix"
        )
        wait_until_decided(broker.bootstrap, "transactions", 1)
        found = place(broker.bootstrap, broker.data, filler.begin_ms)
        # After it a folder's reader takes nothing for committed.
        ends = {key: end for key, (_, end) in found.offsets.items()}
        wait_until(lambda: ends.items() <= LogDir(broker.data).high_watermarks.items(), "the high-watermark checkpoint")
        yield found


@pytest.fixture(scope="module")
def tidelog_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    yield from golden_place("kafka-3.9.1", tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    yield from golden_place("kafka-2.4.1", tmp_path_factory.mktemp("old"))


def golden_place(release: str, folder: Path) -> Iterator[Place]:
    shutil.copytree(log_dir(release), folder / "data")
    with tidelog.Broker(data_dir=folder / "data", log_retention_ms=-1) as broker:
        yield place(broker.bootstrap_servers, folder / "data", BASE_MS)


@pytest.fixture(
    params=first_of("kafka", "tidelog", why="batches from Tidelog: tests/spark/test_brokers.py; streams: test_stream_agreement")
)
def peer(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue({"tidelog": "tidelog_place"}.get(request.param, request.param))
    return found


def place(bootstrap: str, data: Path, begin_ms: int) -> Place:
    with contextlib.closing(scan_cluster(bootstrap)) as cluster:
        keys = [
            TopicPartition(name, number)
            for name, topic in cluster.topics().items()
            if not name.startswith("__")
            for number in topic.partitions
        ]
        starts, ends = (list_offsets(cluster, dict.fromkeys(keys, time)) for time in (EARLIEST, LATEST))
    offsets = {}
    for key in keys:
        start, end = starts[key], ends[key]
        assert not isinstance(start, NotFound) and not isinstance(end, NotFound)
        offsets[key.topic, key.partition] = start.offset, end.offset
    return Place(bootstrap, data, begin_ms, offsets)


def rows(table: pa.Table, *, without_timestamp: int | None = None) -> list[dict[str, Any]]:
    """Return rows as dictionaries, timestamps in microseconds; that of a record without one as it is said to be there."""
    at = table.column_names.index("timestamp")
    found: list[dict[str, Any]] = table.set_column(at, "timestamp", table["timestamp"].cast("int64")).to_pylist()
    for row in found:
        if row["timestampType"] == -1:
            assert row["timestamp"] == without_timestamp
            row["timestamp"] = None
    return found


def agreed(spark_program: SparkProgram, where: Place, **options: str) -> list[dict[str, Any]]:
    """Read one way and the other, and return the rows that all of them deliver."""

    def read(source: str, place: dict[str, str]) -> pa.Table:
        return spark_program.rows(source, **place, **options)

    with ThreadPoolExecutor(3) as pool:
        tables = list(pool.map(lambda way: read(*way), where.ways().values()))
    judge, *ours = tables
    expected = rows(judge, without_timestamp=-1000)
    for name, table in zip(("broker", "folder"), ours, strict=True):
        assert table.column_names == judge.column_names
        found = rows(table)
        assert len(found) == len(expected), f"{name}, {options}"
        differing = next((pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]), None)
        assert differing is None, f"{name}, {options}"
    return expected


def test_columns(spark_program: SparkProgram, tidelog_place: Place) -> None:
    ways = tidelog_place.ways()
    for headers in ("false", "true"):
        judge, *ours = [
            spark_program.schema(source, subscribe="empty", includeHeaders=headers, **options)
            for source, options in ways.values()
        ]
        assert [name for name, _ in judge] == COLUMNS + (["headers"] if headers == "true" else [])
        assert ours == [judge, judge]


def test_everything(spark_program: SparkProgram, peer: Place) -> None:
    found = agreed(spark_program, peer, subscribePattern="[^_].*", includeHeaders="true")
    assert {row["topic"] for row in found} == {topic for topic, _ in peer.offsets} - {"empty"}
    assert {row["timestampType"] for row in found} == {0, 1}
    assert any(row["headers"] for row in found)
    assert any(row["headers"] is None for row in found)
    compacted = [row["offset"] for row in found if row["topic"] == "compacted"]
    assert len(compacted) < compacted[-1] - compacted[0] + 1


def test_every_format(spark_program: SparkProgram, old: Place) -> None:
    found = agreed(spark_program, old, subscribePattern="[^_].*")
    assert {row["timestampType"] for row in found} == {-1, 0, 1}


def test_transactions(spark_program: SparkProgram, peer: Place) -> None:
    committed = agreed(spark_program, peer, subscribe="transactions", **{"kafka.isolation.level": "read_committed"})
    everything = agreed(spark_program, peer, subscribe="transactions", **{"kafka.isolation.level": "read_uncommitted"})
    assert 0 < len(committed) < len(everything)


def test_a_pattern_is_found_anywhere_in_the_name(spark_program: SparkProgram, peer: Place) -> None:
    found = agreed(spark_program, peer, subscribePattern="^t|lat$", startingTimestamp=str(peer.begin_ms))
    assert {row["topic"] for row in found} == {name for name, _ in peer.offsets if name.startswith("t") or name.endswith("lat")}


def test_random_ranges(spark_program: SparkProgram, peer: Place) -> None:
    """Topics, bounds by offset and by time, in all their spellings, drawn at random."""
    chance = random.Random(SEED)
    sizes = [len(agreed(spark_program, peer, **drawn(chance, peer))) for _ in range(10)]
    assert sum(size > 0 for size in sizes) > 5


def drawn(chance: random.Random, where: Place) -> dict[str, str]:
    topics = sorted({topic for topic, _ in where.offsets})
    chosen = chance.sample(topics, chance.choice((1, 2, 3)))
    partitions = [key for key in where.offsets if key[0] in chosen]
    options = {"includeHeaders": chance.choice(("true", "false"))}
    match chance.randrange(3):
        case 0:
            options["subscribe"] = ",".join(chosen)
        case 1:
            options["subscribePattern"] = "|".join(chosen)
        case _:
            partitions = chance.sample(partitions, chance.randrange(1, len(partitions) + 1))
            options["assign"] = json.dumps(nested(dict.fromkeys(partitions)))
    times = sorted(where.begin_ms + chance.randrange(-10_000, 300_000) for _ in range(2))
    inside = {
        key: sorted(chance.randrange(where.offsets[key][0], where.offsets[key][1] + 1) for _ in range(2)) for key in partitions
    }
    match chance.randrange(4):
        case 0:
            options["startingOffsets"] = json.dumps(nested({key: chance.choice((-2, o[0])) for key, o in inside.items()}))
        case 1:
            options |= {"startingTimestamp": str(times[0]), "startingOffsetsByTimestampStrategy": "latest"}
        case 2:
            options |= {
                "startingOffsetsByTimestamp": json.dumps(nested(dict.fromkeys(partitions, times[0]))),
                "startingOffsetsByTimestampStrategy": "latest",
            }
    starts_by_time = "startingTimestamp" in options or "startingOffsetsByTimestamp" in options
    # A start by time may lie after an end by offset: the connector refuses that, here there is nothing between.
    match chance.randrange(1 if starts_by_time else 0, 4):
        case 0:
            options["endingOffsets"] = json.dumps(nested({key: chance.choice((-1, o[1])) for key, o in inside.items()}))
        case 1 if starts_by_time or "startingOffsets" not in options:
            options["endingTimestamp"] = str(times[1])
        case 2 if starts_by_time or "startingOffsets" not in options:
            options["endingOffsetsByTimestamp"] = json.dumps(nested(dict.fromkeys(partitions, times[1])))
    match chance.randrange(3):
        case 0:
            options["minPartitions"] = str(chance.randrange(1, 9))
        case 1:
            options["maxRecordsPerPartition"] = str(chance.randrange(50, 500))
    if "deleted-prefix" in chosen and any("Timestamp" in name for name in options):
        return drawn(chance, where)  # see test_a_time_before_a_log_start_inside_a_segment
    return options


def nested(values: dict[tuple[str, int], Any]) -> dict[str, Any]:
    """Return {topic: {partition: value}}, or {topic: [partition]} where there are no values."""
    found: dict[str, Any] = {}
    for (topic, partition), value in values.items():
        if value is None:
            found.setdefault(topic, []).append(partition)
        else:
            found.setdefault(topic, {})[str(partition)] = value
    return found


def test_a_time_before_a_log_start_inside_a_segment(spark_program: SparkProgram, kafka: Place) -> None:
    """Kafka looks into one segment, finds its match below the log start and says none; the folder's reader looks on."""
    options = {
        "subscribe": "deleted-prefix",
        "startingTimestamp": str(kafka.begin_ms),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    counted = {name: spark_program.rows(source, **where, **options).num_rows for name, (source, where) in kafka.ways().items()}
    assert counted == {"connector": 0, "broker": 0, "folder": 600 - 333}


def test_offsets_that_are_gone(spark_program: SparkProgram, peer: Place) -> None:
    gone = {"subscribe": "deleted-prefix", "startingOffsets": '{"deleted-prefix": {"0": 5}}'}
    found = agreed(spark_program, peer, **gone, failOnDataLoss="false")
    assert found[0]["offset"] == 333
    for source, options in peer.ways().values():
        with pytest.raises(QueryError):
            spark_program.rows(source, **options, **gone)


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "nowhere"},
        {"subscribe": "two-partitions", "startingOffsets": "latest"},
        {"subscribe": "two-partitions", "endingOffsets": "earliest"},
        {"subscribe": "two-partitions", "startingOffsets": '{"two-partitions": {"0": 1}}'},
        {"subscribe": "two-partitions", "startingOffsets": '{"two-partitions": {"0": 1, "1": -1}}'},
        {"subscribe": "two-partitions", "endingOffsetsByTimestamp": '{"two-partitions": {"0": 1, "1": 1, "2": 1}}'},
        {"subscribe": "two-partitions", "startingTimestamp": "9000000000000"},
        {"subscribe": "two-partitions", "assign": '{"two-partitions": [0]}'},
        {"subscribe": " "},
        {"subscribePattern": ""},
        {},
        {"subscribe": "two-partitions", "minPartitions": "0"},
        {"subscribe": "two-partitions", "startingOffsets": "noon"},
    ],
    ids=str,
)
def test_what_one_refuses_the_other_refuses(spark_program: SparkProgram, tidelog_place: Place, options: dict[str, str]) -> None:
    for source, brokers in tidelog_place.ways().values():
        with pytest.raises(QueryError):
            spark_program.rows(source, **brokers, **options)
