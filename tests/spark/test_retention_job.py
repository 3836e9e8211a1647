"""The job `retention` on Kafka's own logs, against a plain reader and each rule in a few lines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import run_ok
from tests.spark.golden import BASE_MS, log_dir
from tests.spark.plain_log import PlainRecord, read_partition
from tidelog.clock import ManualClock
from tidelog.spark.jobs.retention import RULES, UNKNOWN, retention

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

DAY_MS = 86_400_000
TOPICS = ("v2-none-lat", "v2-gzip-lat", "v2-none-ct", "future-pinned")
NOW_MS = BASE_MS + 7 * DAY_MS + 60_000
"""Late enough for some segments to go now."""


@pytest.fixture(scope="module")
def some_topics(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("logs")
    for topic in TOPICS:
        shutil.copytree(Path(log_dir()) / f"{topic}-0", folder / f"{topic}-0")
    return str(folder)


def times_of(path: Path, records: list[PlainRecord]) -> dict[str, int | None]:
    """Return what counts of a segment under each rule."""
    appended = records[-1].timestamp if records[-1].is_append_time else None
    return {
        "largest timestamp": max(record.timestamp for record in records),
        "file time": path.stat().st_mtime_ns // 1_000_000,
        "last message": records[-1].timestamp,
        "LogAppendTime": appended,
        "CreateTime": max(record.create_time for record in records),
    }


def expected(directory: Path) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return (own time, when it goes, bytes that its record pins) by rule and segment."""
    records = read_partition(directory)
    paths = {int(path.stem): path for path in sorted(directory.glob("*.log"))}
    own = {base: times_of(path, [record for record in records if record.segment == base]) for base, path in paths.items()}
    found: dict[tuple[str, int], tuple[Any, ...]] = {}
    for rule in RULES:
        times = [(base, own[base][rule]) for base in paths]
        for index, (base, time_ms) in enumerate(times):
            before = [earlier for _, earlier in times[: index + 1]]
            pins = 0
            for later, (other, other_ms) in enumerate(times):
                if later > index and time_ms is not None and other_ms is not None and other_ms < time_ms:
                    latest = max(one for _, one in times[: later + 1] if one is not None)
                    first = next(place for place, (_, one) in enumerate(times) if one == latest)
                    pins += paths[other].stat().st_size if first == index else 0
            goes = None if None in before else max(max(one for one in before if one is not None) + 7 * DAY_MS + 1, NOW_MS)
            found[rule, base] = (time_ms, goes, pins)
    return found


def test_every_rule_is_what_its_few_lines_say(spark: SparkSession, some_topics: str) -> None:
    result = retention(spark, some_topics, clock=ManualClock(NOW_MS))
    rows = result.rows.collect()
    for topic in TOPICS:
        found = {
            (row.rule, row.base_offset): (row.own_timestamp_ms, row.goes_ms, row.pins_bytes) for row in rows if row.topic == topic
        }
        assert found == expected(Path(some_topics) / f"{topic}-0"), topic
    records = {topic: {one.offset: one for one in read_partition(Path(some_topics) / f"{topic}-0")} for topic in TOPICS}
    for row in rows:
        _check_row(row, records[row.topic])


def _check_row(row: Row, records: dict[int, PlainRecord]) -> None:
    if row.own_offset is not None:
        own = records[row.own_offset]
        assert row.own_timestamp_ms == (own.create_time if row.rule == "CreateTime" else own.timestamp)
        assert row.base_offset <= row.own_offset < row.next_offset
    if row.keeper_timestamp_ms is None:
        assert row.reason == UNKNOWN
    else:
        assert row.pinned_ms == row.keeper_timestamp_ms - row.own_timestamp_ms >= 0


def test_limits_are_given(spark: SparkSession, some_topics: str) -> None:
    clock = ManualClock(NOW_MS)
    ever = retention(spark, some_topics, "v2-none-ct", retention_ms=-1, clock=clock)
    assert {(row.goes_ms, row.reason) for row in ever.rows.collect()} == {(None, "no retention.ms")}
    nothing = retention(spark, some_topics, "v2-none-ct", partitions=[0], retention_ms=-1, retention_bytes=0, clock=clock)
    assert {(row.goes_ms, row.reason) for row in nothing.rows.collect()} == {(NOW_MS, "retention.bytes")}
    assert {row[5] for row in nothing.summary.rows} == {nothing.summary.rows[0][4]}


def test_from_the_shell(spark: SparkSession, some_topics: str, tmp_path: Path) -> None:
    done = run_ok(
        "job", "retention", some_topics, "future-pinned", "--retention", "7d", "--json", "--rows", tmp_path / "rows.json"
    )
    lines = {one["rule"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert tuple(lines) == RULES
    assert (lines["largest timestamp"]["pinned_most_by"], lines["largest timestamp"]["at"][:4]) == (150, "2030")
    assert lines["LogAppendTime"]["all_gone"] is None
    assert len((tmp_path / "rows.json").read_text().splitlines()) == len(RULES) * 4
