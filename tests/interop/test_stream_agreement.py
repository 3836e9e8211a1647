"""Streams of ours beside the connector's, on Kafka 3.9.1 and on Tidelog's broker, and from the folders of both, as a log grows.

Each way has a query of its own that ends when it has read what there is, and is started again after the log has grown: by
records, transactions, partitions and topics. A plain consumer says what is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.interop.gate import first_of
from tests.interop.growing_topics import BEGIN_MS, GrowingTopics, Seen, seen
from tests.interop.peers import served
from tests.interop.spark_program import SparkProgram
from tests.kafka import Kafka391

SEED = 80
WAYS = ("connector", "broker", "folder")


@pytest.fixture
def topics(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GrowingTopics]:
    if request.param == "kafka":
        broker: Kafka391 = request.getfixturevalue("broker")
        yield GrowingTopics(broker.bootstrap, broker.data, SEED)
    else:
        with served(tmp_path, {"replica.high.watermark.checkpoint.interval.ms": "200"}) as peer:
            yield GrowingTopics(peer.bootstrap, peer.data, SEED)


def source(way: str, topics: GrowingTopics) -> tuple[str, dict[str, str]]:
    where = {"path": str(topics.data)} if way == "folder" else {"kafka.bootstrap.servers": topics.bootstrap}
    return "kafka" if way == "connector" else "tidelog", where | {"includeHeaders": "true"}


def run(spark: SparkProgram, topics: GrowingTopics, sinks: dict[str, Path], **options: str) -> dict[str, list[dict[str, Any]]]:
    """Let a query of each sink read what there is, two at once; the sink's name begins with its way."""
    topics.settle()

    def one(name: str) -> list[dict[str, Any]]:
        kind, where = source(name.split("-")[0], topics)
        return spark.stream(f"{name}-{topics.bootstrap}", kind, sinks[name], **where, **options)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(sinks, pool.map(one, sinks), strict=True))


def positions(progress: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    found: Any = progress[-1]["sources"][0]["endOffset"]
    positions: dict[str, dict[str, int]] = json.loads(found) if isinstance(found, str) else found
    return positions


def assert_exactly(found: list[Seen], expected: list[Seen]) -> None:
    """Each expected record is there, once."""
    assert sorted(found, key=place) == sorted(expected, key=place)


def place(row: Seen) -> tuple[str, int, int]:
    return row.topic, row.partition, row.offset


def each_peer(first: str) -> pytest.MarkDecorator:
    """Both brokers, the first one in `make interop`."""
    cases = first_of(
        first, {"kafka": "tidelog", "tidelog": "kafka"}[first], why="the other tests here read from the other broker"
    )
    return pytest.mark.parametrize("topics", cases, indirect=True)


@pytest.mark.thorough("logs of Kafka that grow: test_stream_kills; limits and new partitions: test_stream_protocol")
@each_peer("kafka")
def test_a_log_that_grows(spark_program: SparkProgram, topics: GrowingTopics, tmp_path: Path) -> None:
    """Random limits each time; new partitions and topics; a query handed from the connector to ours and back."""
    chance = topics.chance
    topics.create("grows-a", 2)
    topics.create("grows-b", 1, message_timestamp_type="LogAppendTime")
    topics.grow(300)
    sinks = {name: tmp_path / name for name in WAYS}
    handed = tmp_path / "handed"
    for turn, hand in enumerate(("connector", "broker", "folder", "connector")):
        if turn == 1:
            topics.add_partition("grows-a")
            topics.create("grows-c", 2)
        if turn:
            topics.grow(250)
            topics.transact("grows-a", 20, chance.choice(("commit", "abort")))
        options = {"subscribePattern": "^grows-", "startingOffsets": "earliest"}
        limit = chance.choice((None, 60, 150))
        if limit is not None:
            options["maxOffsetsPerTrigger"] = str(limit)
        options |= chance.choice(({}, {"minPartitions": "5"}, {"maxRecordsPerPartition": "40"}))
        progress = run(spark_program, topics, {name: sinks[name] for name in WAYS} | {f"{hand}-handed": handed}, **options)
        expected = [row for topic in topics.partitions for row in topics.rows(topic)]
        for name, sink in sinks.items():
            assert_exactly(seen(sink), expected)
            assert positions(progress[name]) == positions(progress["connector"])
            if limit is not None:
                assert all(batch["numInputRows"] <= limit for batch in progress[name])
        assert_exactly(seen(handed), expected)


@pytest.mark.thorough("transactions, open ones too, with what else happens to a log: test_stream_protocol")
@each_peer("tidelog")
def test_read_committed(spark_program: SparkProgram, topics: GrowingTopics, tmp_path: Path) -> None:
    """A stream never goes beyond the last stable offset, and takes what it held back when the transaction has ended."""
    topics.create("committed", 2)
    sinks = {name: tmp_path / name for name in WAYS}
    options = {"subscribe": "committed", "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    topics.grow(40)
    topics.transact("committed", 30, "abort")
    for end in ("open", "commit", "abort"):
        topics.commit_open()
        topics.transact("committed", 30, end)
        topics.grow(40)
        progress = run(spark_program, topics, sinks, maxOffsetsPerTrigger="50", **options)
        expected = topics.rows("committed", isolation="read_committed")
        for name, sink in sinks.items():
            assert_exactly(seen(sink), expected)
            assert positions(progress[name]) == positions(progress["connector"])


STARTS = {
    "default": {},
    "offsets": {"startingOffsets": json.dumps({"starts": {"0": 17, "1": -1, "2": -2}})},
    "times": {"startingOffsetsByTimestamp": json.dumps({"starts": {"0": 0, "1": BEGIN_MS + 60_000, "2": BEGIN_MS + 20_000}})},
    "no-match": {"startingTimestamp": str(BEGIN_MS * 2), "startingOffsetsByTimestampStrategy": "latest"},
}


@each_peer("tidelog")
def test_where_a_stream_starts(spark_program: SparkProgram, topics: GrowingTopics, tmp_path: Path) -> None:
    topics.create("starts", 3)
    while min(topics.ends().values()) < 60:
        topics.grow(200)
    sinks = {name: {f"{way}-{name}": tmp_path / f"{way}-{name}" for way in WAYS} for name in STARTS}
    for again in range(2):
        for name, start in STARTS.items():
            if again and name not in ("default", "no-match"):
                continue
            run(spark_program, topics, sinks[name], subscribe="starts", **start)
            judge, *ours = (seen(sink) for sink in sinks[name].values())
            assert bool(judge) == bool(again or name not in ("default", "no-match"))
            for found in ours:
                assert_exactly(found, judge)
        topics.grow(100)
