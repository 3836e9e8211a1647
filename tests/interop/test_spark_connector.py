"""Spark's own Kafka connector reads and streams by time, and writes: batch queries, and a stream that is taken up again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.peers import Peer, served
from tests.kafka.clients import NewRow, Row, consume, produce

FIRST_MS = int(time.time() * 1000) - 3_600_000
FROM_MS, TO_MS = FIRST_MS + 40_500, FIRST_MS + 90_000
RECORDS = 120


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with served(tmp_path_factory.mktemp("connector")) as peer:
        yield peer


@pytest.fixture(scope="module")
def written(peer: Peer) -> list[list[Row]]:
    """Two partitions with times out of order, in small segments, and an empty topic to write to."""
    peer.create_topics({"source": {"segment.bytes": "3000", "index.interval.bytes": "300"}, "sink": {}}, partitions=2)
    for partition in range(2):
        new = [
            NewRow(
                key=b"key-%d" % number if number % 3 else None,
                value=b"value %d of %d" % (number, partition),
                timestamp=FIRST_MS + 1000 * (number ^ (3 + partition)),
                headers=[("number", b"%d" % number)] if number % 4 == 0 else (),
            )
            for number in range(RECORDS)
        ]
        produce(peer.bootstrap, "source", new, partition, batch_records=7, compression_type=("lz4", "zstd")[partition])
    return [consume(peer.bootstrap, "source", partition) for partition in range(2)]


@pytest.fixture(scope="module")
def answers(peer: Peer, written: list[list[Row]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("spark")
    arguments = (peer.bootstrap, "source", "sink", str(FROM_MS), str(TO_MS), str(folder))
    command = [sys.executable, "-m", "tests.interop.spark_connector", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"Spark's program ended with {done.returncode}:\n{done.stdout[-6000:]}")
    answers: dict[str, Any] = json.loads(Path(folder, "answers.json").read_text())
    return answers


def first_at(rows: list[Row], timestamp: int) -> int:
    return next(row.offset for row in rows if row.timestamp >= timestamp)


def as_spark(partition: int, rows: list[Row]) -> list[list[Any]]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode()

    return [
        [
            partition,
            row.offset,
            row.timestamp,
            row.timestamp_type - 1,  # Spark's CreateTime is 0
            text(row.key),
            text(row.value),
            [[name, text(value)] for name, value in row.headers],
        ]
        for row in rows
    ]


def test_all_columns(written: list[list[Row]], answers: dict[str, Any]) -> None:
    assert answers["all"] == as_spark(0, written[0]) + as_spark(1, written[1])


def test_between_two_times(written: list[list[Row]], answers: dict[str, Any]) -> None:
    """The connector's range: from the first record at or after the one time to the first at or after the other."""
    bounds = [(first_at(rows, FROM_MS), first_at(rows, TO_MS)) for rows in written]
    parts = [as_spark(partition, written[partition][start:end]) for partition, (start, end) in enumerate(bounds)]
    assert answers["range"] == parts[0] + parts[1]


def test_a_time_for_each_partition(written: list[list[Row]], answers: dict[str, Any]) -> None:
    first = as_spark(0, written[0][first_at(written[0], FROM_MS) :])
    assert answers["each"] == first + as_spark(1, written[1][: first_at(written[1], TO_MS)])


def test_a_time_behind_all_records(answers: dict[str, Any]) -> None:
    assert answers["none"] == []
    assert "No offset matched from request" in answers["refused"]


def test_streams_from_a_time_and_goes_on(peer: Peer, written: list[list[Row]], answers: dict[str, Any]) -> None:
    expected = [rows[first_at(rows, FROM_MS) :] for rows in written]
    appended = [rows[: first_at(rows, FROM_MS)] for rows in written]
    assert answers["streamed"] == [sum(map(len, expected)), sum(map(len, appended))]
    for partition in range(2):
        copied = consume(peer.bootstrap, "sink", partition)
        wanted = expected[partition] + appended[partition]
        assert sorted(map(contents, copied), key=str) == sorted(map(contents, wanted), key=str)


def test_batch_writes(peer: Peer, written: list[list[Row]], answers: dict[str, Any]) -> None:
    for partition in range(2):
        added = consume(peer.bootstrap, "source", partition)[RECORDS:]
        wanted = written[partition][: first_at(written[partition], FROM_MS)]
        assert [contents(row) for row in added] == [contents(row) for row in wanted]


def contents(row: Row) -> tuple[Any, ...]:
    return row.key, row.value, row.headers
