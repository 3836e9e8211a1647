"""Scans of what Kafka wrote, against what Kafka's own consumers saw."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.places import placed
from tests.sources.logs import ROW_COLUMNS, rows_of

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
VERSIONS = ("kafka-3.9.1", "kafka-2.4.1")


def partitions() -> list[tuple[str, str, dict[str, Any]]]:
    found = []
    for version in VERSIONS:
        answers = json.loads((GOLDEN / version / "expected.json").read_text())
        found += [(version, topic, partition) for topic, all_of_it in answers["topics"].items() for partition in all_of_it]
    return found


PARTITIONS = pytest.mark.parametrize(
    ("version", "topic", "answers"), partitions(), ids=lambda value: value if isinstance(value, str) else str(value["partition"])
)


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def kafka_rows(answers: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Offset, timestamp, type, key, value, headers of each record that a consumer saw. Golden types count from 0."""
    return [
        (
            offset,
            None if timestamp < 0 else timestamp,
            kind - 1,
            bytes_of(key),
            bytes_of(value),
            tuple((name, bytes_of(content)) for name, content in headers),
        )
        for offset, timestamp, kind, key, value, headers in answers["records"]
    ]


def scan_rows(version: str, topic: str, answers: dict[str, Any], **arguments: Any) -> list[tuple[Any, ...]]:
    reader = tidelog.scan(
        placed(GOLDEN / version / "log"), topic, columns=ROW_COLUMNS, partitions=[answers["partition"]], **arguments
    )
    rows = rows_of(reader)
    assert {row[0] for row in rows} <= {answers["partition"]}
    return [row[1:7] for row in rows]


@PARTITIONS
def test_records_equal_what_a_consumer_saw(version: str, topic: str, answers: dict[str, Any]) -> None:
    assert scan_rows(version, topic, answers) == kafka_rows(answers)
    assert scan_rows(version, topic, answers, views=True) == kafka_rows(answers)
    assert scan_rows(version, topic, answers, until="high_watermark") == kafka_rows(answers)


@PARTITIONS
def test_read_committed_equals_what_a_consumer_saw(version: str, topic: str, answers: dict[str, Any]) -> None:
    everything = [offset for offset, *_ in answers["records"]]
    wanted = everything if answers["read_committed_offsets"] is None else answers["read_committed_offsets"]
    assert [row[0] for row in scan_rows(version, topic, answers, isolation="read_committed")] == wanted


@PARTITIONS
def test_ranges_are_exact(version: str, topic: str, answers: dict[str, Any]) -> None:
    rows = kafka_rows(answers)
    known = sorted({row[1] for row in rows if row[1] is not None}) or [1]
    choose = random.Random(f"{version} {topic}")
    for _ in range(6):
        start, end = sorted(choose.choice(known) + choose.randint(-1, 1) for _ in range(2))
        report = tidelog.ScanReport()
        wanted = [row for row in rows if row[1] is not None and start <= row[1] < end]
        assert scan_rows(version, topic, answers, start=start, end=end, report=report) == wanted
        if start < end and all(row[1] is None for row in rows):
            assert report.without_timestamp == len(rows)


def test_records_without_timestamp_in_a_migrated_topic_are_counted() -> None:
    version, topic = "kafka-2.4.1", "migrated-v0-v1-v2"
    answers = next(answers for v, t, answers in partitions() if (v, t) == (version, topic))
    report = tidelog.ScanReport()
    rows = scan_rows(version, topic, answers, start=0, report=report)
    assert 0 < len(rows) < len(answers["records"])
    assert report.without_timestamp == len(answers["records"]) - len(rows)


@pytest.mark.parametrize("version", VERSIONS)
def test_live_folders(version: str) -> None:
    """Copied while the broker ran: preallocated indexes, no checkpoints."""
    answers = json.loads((GOLDEN / version / "expected.json").read_text())["topics"]
    live = GOLDEN / version / "live"
    for name in sorted(folder.name for folder in live.iterdir()):
        topic, _, number = name.rpartition("-")
        partition = answers[topic][int(number)]
        reader = tidelog.scan(placed(live), topic, columns=ROW_COLUMNS, partitions=[int(number)])
        assert [row[1:7] for row in rows_of(reader)] == kafka_rows(partition)
        committed = tidelog.scan(placed(live), topic, columns=["offset"], partitions=[int(number)], isolation="read_committed")
        wanted = partition["read_committed_offsets"] or [row[0] for row in kafka_rows(partition)]
        assert committed.read_all()["offset"].to_pylist() == wanted
