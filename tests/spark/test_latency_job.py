"""The job `latency` on Kafka's own logs, against a plain reader and percentiles taken from a sorted list."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import run_ok
from tests.reader.golden import GOLDEN
from tests.spark.golden import log_dir
from tests.spark.plain_log import read_partition
from tidelog.errors import CorruptBatchError, UnknownTopicOrPartitionError
from tidelog.spark.jobs.latency import latency

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Key = tuple[str, int | None]
TOPICS = ("v2-none-lat", "v2-gzip-lat", "v2-none-ct", "future-pinned")


def delays(topic: str) -> dict[Key, list[int]]:
    """Return the delays by kind and minute, and by kind alone (minute None)."""
    found: dict[Key, list[int]] = {}
    largest = -1
    for record in read_partition(Path(log_dir()) / f"{topic}-0"):
        if record.is_control:
            continue
        if record.is_append_time:
            kind, minute, value = "latency", record.timestamp // 60_000, record.timestamp - record.create_time
        else:
            largest = max(largest, record.timestamp)
            kind, minute, value = "lateness", record.timestamp // 60_000, largest - record.timestamp
        found.setdefault((kind, minute), []).append(value)
        found.setdefault((kind, None), []).append(value)
    return found


def percentile(values: list[int], share: Fraction) -> int:
    """Return it between the two neighbours, rounded half up."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = floor(place)
    high = min(low + 1, len(ordered) - 1)
    return floor(ordered[low] + (ordered[high] - ordered[low]) * (place - low) + Fraction(1, 2))


def figures(kind: str, values: list[int]) -> tuple[Any, ...]:
    return (
        len(values),
        *(percentile(values, Fraction(share, 100)) for share in (50, 90, 99)),
        min(values),
        max(values),
        sum(value < 0 for value in values) if kind == "latency" else None,
        sum(value > 0 for value in values) if kind == "lateness" else None,
    )


@pytest.fixture(scope="module")
def some_topics(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("logs")
    for topic in TOPICS:
        shutil.copytree(Path(log_dir()) / f"{topic}-0", folder / f"{topic}-0")
    return str(folder)


def test_minutes_and_partitions_are_those_of_the_records(spark: SparkSession, some_topics: str) -> None:
    heard: list[tuple[int, int]] = []
    result = latency(spark, some_topics, progress=lambda done, total: heard.append((done, total)))
    rows = result.rows.selectExpr("topic", "kind", "unix_millis(minute) div 60000 AS minute", *result.rows.columns[4:]).collect()
    expected = {topic: delays(topic) for topic in TOPICS}
    found = {topic: {(row.kind, row.minute): tuple(row)[3:] for row in rows if row.topic == topic} for topic in TOPICS}
    for topic in TOPICS:
        by_minute = {key: figures(key[0], values) for key, values in expected[topic].items() if key[1] is not None}
        assert by_minute.keys() == found[topic].keys()
        for key, wanted in by_minute.items():
            # Fractions of a millisecond are rounded; Spark's are of binary floating point.
            assert all(
                a == b or (a is not None and abs(a - b) <= 1 and i in (1, 2, 3))
                for i, (a, b) in enumerate(zip(found[topic][key], wanted, strict=True))
            )
    whole = {tuple(row[:3]): row[3:] for row in result.summary.rows}
    assert whole == {
        (topic, 0, kind): figures(kind, values)
        for topic in TOPICS
        for (kind, minute), values in expected[topic].items()
        if minute is None
    }
    assert heard[-1][0] == heard[-1][1] > 0
    assert result.faults == 0


def test_from_the_shell(spark: SparkSession, some_topics: str, tmp_path: Path) -> None:
    done = run_ok("job", "latency", some_topics, "v2-none-lat", "-p", "0", "--json", "--rows", tmp_path / "rows.csv")
    (line,) = [json.loads(text) for text in done.stdout.splitlines()]
    assert (line["topic"], line["partition"], line["kind"]) == ("v2-none-lat", 0, "latency")
    assert line["max_ms"] == max(delays("v2-none-lat")["latency", None])
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == len(delays("v2-none-lat"))


def test_what_cannot_be_read_is_told_as_itself(spark: SparkSession, some_topics: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        latency(spark, some_topics, "nope")
    shutil.copytree(Path(some_topics) / "v2-none-lat-0", tmp_path / "v2-none-lat-0")
    first = min((tmp_path / "v2-none-lat-0").glob("*.log"))
    data = bytearray(first.read_bytes())
    data[80] ^= 1
    first.write_bytes(data)
    with pytest.raises(CorruptBatchError, match="checksum"):
        latency(spark, str(tmp_path))


def test_a_tier_and_several_folders(spark: SparkSession, tmp_path: Path) -> None:
    """`lookup` takes them, too. Its session is the one that is there, so nothing is started."""
    golden = GOLDEN / "tiered" / "local"
    replica = shutil.copytree(golden / "data", tmp_path / "replica")
    both, tier = f"{golden / 'data'}:{replica}", ("--tier", str(golden / "remote"))
    rows = json.loads((golden / "expected.json").read_text())["orders"]["rows"]
    done = run_ok("job", "latency", both, "orders", *tier, "--json")
    assert sum(json.loads(line)["records"] for line in done.stdout.splitlines()) == len(rows)
    questions, answers = tmp_path / "questions.csv", tmp_path / "answers.json"
    questions.write_text(f"topic,partition,timestamp\norders,0,{rows[0][1]}\n")
    run_ok("job", "lookup", both, str(questions), *tier, "--rows", str(answers))
    assert json.loads(answers.read_text())["offset"] == rows[0][0]
