"""`tidelog stat`: numbers that agree with the brokers' answers and with the files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import GOLDEN, KAFKA_2, KAFKA_3, run, run_ok, run_process
from tidelog.records.batch import iter_headers

Expected = Callable[[str, str], list[dict[str, Any]]]

PARTITION_KEYS = [
    *("type", "topic", "partition", "log_start_offset", "log_end_offset", "high_watermark", "message_format"),
    *("segments", "batches", "records", "bytes", "largest_timestamp", "largest_timestamp_source"),
]
SEGMENT_KEYS = [
    *("type", "topic", "partition", "base_offset", "next_offset", "batches", "records", "bytes"),
    *("largest_timestamp", "largest_timestamp_source"),
]


@pytest.mark.parametrize("version", ["kafka-3.9.1", "kafka-2.4.1"])
def test_every_topic(version: str, expected: Expected) -> None:
    rows = run_ok("stat", GOLDEN / version / "log", "--json").json_lines
    for row in rows:
        assert list(row) == (PARTITION_KEYS if row["type"] == "partition" else SEGMENT_KEYS)
    partitions = [row for row in rows if row["type"] == "partition" and not row["topic"].startswith("__")]
    assert len(partitions) >= 19
    for row in partitions:
        answer = expected(version, row["topic"])[row["partition"]]
        assert row["records"] == len(answer["records"]), row
        assert row["log_start_offset"] == answer["log_start"]
        assert row["log_end_offset"] == row["high_watermark"] == answer["high_watermark"]
        place = (row["topic"], row["partition"])
        segments = [one for one in rows if one["type"] == "segment" and (one["topic"], one["partition"]) == place]
        assert len(segments) == row["segments"]
        for name in ("records", "batches", "bytes"):
            assert sum(segment[name] for segment in segments) == row[name]
        folder = GOLDEN / version / "log" / f"{row['topic']}-{row['partition']}"
        assert row["bytes"] == sum(path.stat().st_size for path in folder.glob("*.log"))
        assert [segment["base_offset"] for segment in segments] == sorted(int(path.stem) for path in folder.glob("*.log"))
        if (answer.get("max_timestamp") or [-1])[0] != -1:
            assert row["largest_timestamp"] == answer["max_timestamp"][1]


def test_where_the_largest_timestamp_comes_from(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(KAFKA_3 / "v2-lz4-ct-0", data / "topic-0")
    shutil.copytree(KAFKA_2 / "v0-none-ct-0", data / "old-0")
    first = sorted((data / "topic-0").glob("*.timeindex"))[0]
    first.unlink()
    for path in (data / "old-0").glob("*.log"):
        os.utime(path, ns=(0, 1_500_000_000_123_000_000))
    rows = run_ok("stat", data, "--json").json_lines
    segments = [row for row in rows if row["type"] == "segment" and row["topic"] == "topic"]
    assert [segment["largest_timestamp_source"] for segment in segments] == ["log"] + ["index"] * (len(segments) - 1)
    assert segments[0]["largest_timestamp"] == 1_600_604_864_241
    old = [row for row in rows if row["topic"] == "old"]
    assert {(row["largest_timestamp_source"], row["largest_timestamp"]) for row in old} == {("mtime", 1_500_000_000_123)}
    assert {row["high_watermark"] for row in rows if row["type"] == "partition"} == {None}


def test_tables_for_people() -> None:
    lines = run_ok("stat", KAFKA_3).lines
    assert lines[0].split() == [
        *("topic", "partition", "log", "start", "log", "end", "high", "watermark", "format", "segments", "batches", "records"),
        *("size", "largest", "timestamp", "from"),
    ]
    assert len(lines) > 20
    lines = run_ok("stat", KAFKA_3, "two-partitions", "--partition", "1").lines
    assert lines[0] == "two-partitions-1: offsets 0 to 300, high watermark 300; 300 records in 176 batches, 30.8 KiB, 2 segments"
    assert lines[1] == "  base offset  next offset  batches  records      size  largest timestamp         from"
    assert lines[2] == "            0          154       96      154  16.0 KiB  2020-09-20T12:27:50.212Z  index"
    assert len(lines) == 4


def test_quick_counts_nothing() -> None:
    rows = run_ok("stat", KAFKA_3, "two-partitions", "--quick", "--json").json_lines
    assert {row["records"] for row in rows} == {row["batches"] for row in rows} == {None}
    full = run_ok("stat", KAFKA_3, "two-partitions", "--json").json_lines
    for quick, counted in zip(rows, full, strict=True):
        assert {**quick, "records": 0, "batches": 0} == {**counted, "records": 0, "batches": 0}
    assert run_ok("stat", KAFKA_3, "two-partitions", "--quick").lines[0].endswith("high watermark 200; 19.7 KiB, 2 segments")


def test_one_damaged_partition_does_not_hide_the_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number in range(4):
        shutil.copytree(KAFKA_3 / "v2-none-ct-0", data / f"topic-{number}")
    for number in (1, 2):
        segment = sorted((data / f"topic-{number}").glob("*.log"))[0]
        content = bytearray(segment.read_bytes())
        content[16] = 77
        segment.write_bytes(content)
    ran = run("stat", data, "--json")
    assert ran.exit_code == 1
    assert {row["partition"] for row in ran.json_lines} == {0, 3}
    errors = [line for line in ran.stderr.splitlines() if line.startswith("tidelog: ")]
    assert len(errors) == 2
    assert all("magic" in line and ".log at byte 0)" in line for line in errors)
    ran = run("stat", data)
    assert ran.exit_code == 1
    assert len(ran.lines) == 3


def test_careless_use(tmp_path: Path) -> None:
    assert run("stat", tmp_path / "nowhere").error == f"tidelog: no such folder ({tmp_path / 'nowhere'})"
    assert run("stat", KAFKA_3, "nope").exit_code == 1
    assert run("stat", KAFKA_3, "--partition", "0").exit_code == 2
    assert run("stat", KAFKA_3, "empty", "--partition", "3").exit_code == 1
    assert run("stat").exit_code == 2
    assert run("stat", KAFKA_3 / "meta.properties").exit_code == 1


def test_it_needs_neither_arrow_nor_rich() -> None:
    ran = run_process("stat", KAFKA_3, "empty", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert ran.exit_code == 0
    imported = {line.rsplit("|", 1)[1].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert not imported & {"pyarrow", "pyspark", "numpy", "rich", "asyncio"}


@pytest.mark.parametrize(("field", "why"), [(slice(57, 61), "the number of records"), (slice(23, 27), "the last offset delta")])
def test_a_count_that_is_a_lie_is_reported(tmp_path: Path, field: slice, why: str) -> None:
    """Where the count and the offsets of a header differ, its checksum is looked at: nothing else would say it."""
    data = tmp_path / "data"
    shutil.copytree(KAFKA_3 / "v2-none-ct-0", data / "v2-none-ct-0")
    log = next((data / "v2-none-ct-0").glob("*.log"))
    content = bytearray(log.read_bytes())
    first = next(iter_headers(content))
    number = int.from_bytes(content[field], "big") + 1
    content[field] = number.to_bytes(4, "big")
    log.write_bytes(content)
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).unlink(missing_ok=True)
    ran = run("stat", data, "v2-none-ct")
    assert ran.exit_code == 1, why
    assert str(log) in ran.error
    assert f"at byte {first.position}" in ran.error
