"""Streams with random limits, triggers and restarts over topics whose times are out of order, against a plain oracle.

The oracle is a consumer's list of all records and a few lines about which of them a stream is to deliver. Between restarts the
log grows, and a query that read from the brokers may go on from their folder: the positions are the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.gate import first_of
from tests.interop.growing_topics import BEGIN_MS, GrowingTopics, Seen, seen
from tests.interop.peers import served
from tests.interop.spark_program import SparkProgram, written
from tests.interop.test_stream_agreement import assert_exactly, positions, source
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S

Key = tuple[str, int]
TIMEOUT_S = 2 * PATIENCE_S


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrowingTopics]:
    with served(tmp_path_factory.mktemp("served"), {"replica.high.watermark.checkpoint.interval.ms": "200"}) as peer:
        yield GrowingTopics(peer.bootstrap, peer.data, 800)


def by_partition(rows: list[Seen]) -> dict[Key, list[Seen]]:
    found: dict[Key, list[Seen]] = {}
    for row in rows:
        found.setdefault((row.topic, row.partition), []).append(row)
    return found


def timestamp(row: Seen) -> int:
    assert row.timestamp is not None
    return row.timestamp


@pytest.mark.parametrize("seed", first_of(*range(3), why="further seeds; test_stream_protocol has them without Spark"))
def test_random_streams(spark_program: SparkProgram, topics: GrowingTopics, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    name, sink = f"random-{seed}", tmp_path / "sink"
    topics.create(name, chance.choice((1, 2, 4)))
    topics.grow(chance.choice((0, 40, 400)), [name])
    start, wanted = drawn_start(chance, name, topics)
    for turn in range(3):
        if turn:
            topics.grow(chance.choice((0, 30, 200)), [name])
            if chance.random() < 0.3:
                topics.add_partition(name)
        topics.settle()
        kind, where = source(chance.choice(("broker", "folder")), topics)
        limits = drawn_limits(chance)
        progress = run(spark_program, f"{name}-{turn}", kind, sink, chance, topics, where | {"subscribe": name} | start | limits)
        rows = topics.rows(name)
        if not turn:
            begin = {key: wanted(found) for key, found in by_partition(rows).items()}
        if "startTime" in start:
            expected = [row for row in rows if timestamp(row) >= BEGIN_MS + 40_000]
        else:
            expected = [row for row in rows if row.offset >= begin.get((row.topic, row.partition), 0)]
        assert_exactly(seen(sink), expected)
        assert_in_order(sink)
        most = limits.get("maxOffsetsPerTrigger")
        assert most is None or all(batch["numInputRows"] <= int(most) for batch in progress)


def drawn_start(chance: random.Random, name: str, topics: GrowingTopics) -> tuple[dict[str, str], Any]:
    """Return options, and what says from a partition's records which offset is the first."""
    time_ms = BEGIN_MS + 40_000
    ends = topics.ends()
    by_time = lambda rows: next((row.offset for row in rows if timestamp(row) >= time_ms), len(rows))  # noqa: E731
    return chance.choice(
        [
            ({"startingOffsets": "earliest"}, lambda rows: 0),
            ({"startingOffsets": "latest"}, lambda rows: ends[rows[0].topic, rows[0].partition]),
            ({"startingTimestamp": str(time_ms), "startingOffsetsByTimestampStrategy": "latest"}, by_time),
            ({"startTime": str(time_ms)}, lambda rows: 0),
        ]
    )


def drawn_limits(chance: random.Random) -> dict[str, str]:
    found: dict[str, str] = {}
    if chance.random() < 0.6:
        found["maxOffsetsPerTrigger"] = str(chance.choice((20, 77, 1000)))
    if chance.random() < 0.6:
        found["maxTimePerTrigger"] = chance.choice(("30s", "5m"))
    if chance.random() < 0.4:
        found["minPartitions"] = str(chance.randrange(1, 6))
    if chance.random() < 0.4:
        found["maxRecordsPerPartition"] = str(chance.choice((10, 50)))
    return found


def run(
    spark: SparkProgram,
    name: str,
    kind: str,
    sink: Path,
    chance: random.Random,
    topics: GrowingTopics,
    options: dict[str, str],
) -> list[dict[str, Any]]:
    """Read what there is, with a trigger that chance names; a query without an end is stopped once before it is through."""
    if chance.random() < 0.6:
        return spark.stream(name, kind, sink, **options)
    topic = options["subscribe"]
    ends = {str(number): end for (found, number), end in topics.ends().items() if found == topic}
    every = {"processingTime": "100 milliseconds"}
    spark.stream(name, kind, sink, every, **options)
    wait_until(
        lambda: any(batch["numInputRows"] for batch in spark.progress(name)) or at_end(spark, name, topic, ends), "a batch"
    )
    spark.stop(name)
    spark.stream(name, kind, sink, every, **options)
    wait_until(lambda: at_end(spark, name, topic, ends), "the end of the log", TIMEOUT_S)
    progress = spark.progress(name)
    spark.stop(name)
    return progress


def at_end(spark: SparkProgram, name: str, topic: str, ends: dict[str, int]) -> bool:
    progress = [batch for batch in spark.progress(name) if batch["sources"][0]["endOffset"]]
    return bool(progress) and positions(progress).get(topic) == ends


def assert_in_order(sink: Path) -> None:
    """No partition ever goes back, from one batch to the next."""
    last: dict[Key, int] = {}
    for table in written(sink).values():
        for topic, partition, offset in zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True):
            assert offset > last.get((topic, partition), -1)
            last[topic, partition] = offset
