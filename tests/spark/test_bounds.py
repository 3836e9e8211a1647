"""The options applied to logs that are there, and the reader itself, without Spark."""

from __future__ import annotations

import logging
import pickle
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.golden import BASE_MS, expected, log_dir, rows
from tidelog.clock import SystemClock
from tidelog.errors import (
    DataDirNotFoundError,
    InvalidArgumentError,
    NotFoundError,
    OffsetOutOfRangeError,
    SegmentChangedError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
)
from tidelog.model import TopicPartition
from tidelog.sources.opening import open_source
from tidelog.spark.bounds import OffsetRange, existing_topics, resolve_ranges, select_partitions
from tidelog.spark.columns import arrow_schema
from tidelog.spark.options import ReadOptions, parse_options
from tidelog.spark.source import TidelogReader
from tidelog.spark.tasks import TASK_BYTES, pack


def parse(**options: Any) -> ReadOptions:
    return parse_options({"path": log_dir()} | {name: str(value) for name, value in options.items()}, SystemClock())


def ranges(**options: Any) -> dict[TopicPartition, OffsetRange]:
    parsed = parse(**options)
    with open_source(parsed.source) as source:
        return resolve_ranges(parsed, source, select_partitions(parsed, source, existing_topics(parsed, source)))


def offsets(reader: TidelogReader) -> list[tuple[str, int, int]]:
    """Read all splits of a reader; return (topic, partition, offset) in the order they come."""
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [(row["topic"], row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]


def selected(**options: Any) -> list[TopicPartition]:
    parsed = parse(**options)
    with open_source(parsed.source) as source:
        return select_partitions(parsed, source, existing_topics(parsed, source))


def test_subscribe_selects_all_partitions_of_its_topics() -> None:
    assert selected(subscribe="two-partitions,empty") == [("empty", 0), ("two-partitions", 0), ("two-partitions", 1)]
    with pytest.raises(UnknownTopicOrPartitionError, match=r"no topic 'nowhere': expected one of .*empty"):
        selected(subscribe="empty,nowhere")
    with pytest.raises(UnknownTopicOrPartitionError, match=r"no topic 'two_partition' \(did you mean two-partitions\?\)"):
        selected(subscribe="empty,two_partition")


def test_a_pattern_is_found_in_names_and_selects_no_internal_topics(caplog: pytest.LogCaptureFixture) -> None:
    assert selected(subscribePattern="v2-(gzip|lz4)-ct") == [("v2-gzip-ct", 0), ("v2-lz4-ct", 0)]
    assert selected(subscribePattern="gzip-ct") == [("v2-gzip-ct", 0)]
    assert selected(subscribePattern="^gzip-ct") == selected(subscribePattern="v2-gzip$") == []
    assert "matches no topic" in caplog.text
    everything = {topic for topic, _ in selected(subscribePattern=".*", path=log_dir("kafka-2.4.1"))}
    assert everything == set(expected("kafka-2.4.1"))
    assert (Path(log_dir("kafka-2.4.1")) / "__consumer_offsets-0").is_dir()


def test_assign_selects_partitions() -> None:
    assert selected(assign='{"two-partitions":[1]}') == [("two-partitions", 1)]
    with pytest.raises(UnknownTopicOrPartitionError, match="topic two-partitions has no partition 2: expected one of 0, 1"):
        selected(assign='{"two-partitions":[1,2]}')


def test_a_folder_that_is_none_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(DataDirNotFoundError, match="nowhere"):
        selected(subscribe="t", path=tmp_path / "nowhere")


def test_timestamps_become_the_offsets_that_kafka_answers() -> None:
    topic = "v2-gzip-ct"
    [partition] = expected()[topic]
    found = 0
    for target, offset, _ in partition["list_offsets"]:
        if target >= 0 and offset >= 0:
            assert ranges(subscribe=topic, startingTimestamp=target)[(topic, 0)] == (offset, None)
            assert ranges(subscribe=topic, endingTimestamp=target)[(topic, 0)] == (None, offset)
            each = f'{{"{topic}":{{"0":{target}}}}}'
            assert ranges(subscribe=topic, startingOffsetsByTimestamp=each)[(topic, 0)] == (offset, None)
            assert ranges(subscribe=topic, endingOffsetsByTimestamp=each)[(topic, 0)] == (None, offset)
            found += 1
    assert found > 5


def test_no_match_is_an_error_or_the_end_at_the_start_and_the_end_at_the_end() -> None:
    later = BASE_MS * 2
    with pytest.raises(NotFoundError, match=r"startingTimestamp: empty-0 has no record at or after .*Strategy=latest"):
        ranges(subscribe="empty", startingTimestamp=0)
    with pytest.raises(NotFoundError, match="option startingOffsetsByTimestamp"):
        ranges(subscribe="v2-none-ct", startingOffsetsByTimestamp=f'{{"v2-none-ct":{{"0":{later}}}}}')
    latest = ranges(subscribe="v2-none-ct", startingTimestamp=later, startingOffsetsByTimestampStrategy="latest")
    assert latest == {("v2-none-ct", 0): (900, None)}
    assert ranges(subscribe="v2-none-ct", endingTimestamp=later) == {("v2-none-ct", 0): (None, None)}


def test_a_bound_by_time_needs_a_format_with_timestamps() -> None:
    with pytest.raises(UnsupportedForMessageFormatError):
        ranges(subscribe="v0-none-ct", startingTimestamp=0, path=log_dir("kafka-2.4.1"))


def test_json_names_every_partition_that_is_read() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"startingOffsets must name exactly the partitions.*missing: two-partitions-1"
    ):
        ranges(subscribe="two-partitions", startingOffsets='{"two-partitions":{"0":5}}')
    with pytest.raises(InvalidArgumentError, match="not read: empty-0"):
        ranges(subscribe="two-partitions", endingOffsets='{"two-partitions":{"0":5,"1":5},"empty":{"0":-1}}')
    both = ranges(subscribe="two-partitions", startingOffsets='{"two-partitions":{"0":5,"1":-2}}')
    assert both == {("two-partitions", 0): (5, None), ("two-partitions", 1): (None, None)}


def test_an_offset_outside_the_log_is_an_error_unless_loss_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    below = {"subscribe": "deleted-prefix", "startingOffsets": '{"deleted-prefix":{"0":5}}'}
    with pytest.raises(
        OffsetOutOfRangeError, match=r"offset 5 is outside deleted-prefix-0, which holds 333 to 600; .*failOnDataLoss"
    ):
        ranges(**below)
    behind = {"subscribe": "deleted-prefix", "endingOffsets": '{"deleted-prefix":{"0":601}}'}
    with pytest.raises(OffsetOutOfRangeError, match="option endingOffsets: offset 601"):
        ranges(**behind)
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        assert ranges(**below, failOnDataLoss=False) == {("deleted-prefix", 0): (333, None)}
        assert ranges(**behind, failOnDataLoss=False) == {("deleted-prefix", 0): (None, 600)}
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("options", "first", "end"),
    [
        ({}, 0, 900),
        ({"startingOffsets": '{"v2-none-ct":{"0":123}}'}, 123, 900),
        ({"endingOffsets": '{"v2-none-ct":{"0":123}}'}, 0, 123),
        ({"startingOffsets": '{"v2-none-ct":{"0":10}}', "endingOffsets": '{"v2-none-ct":{"0":11}}'}, 10, 11),
        ({"startingOffsets": '{"v2-none-ct":{"0":10}}', "endingOffsets": '{"v2-none-ct":{"0":10}}'}, 10, 10),
        ({"startingOffsets": '{"v2-none-ct":{"0":900}}'}, 900, 900),
        ({"startingTimestamp": BASE_MS * 2, "startingOffsetsByTimestampStrategy": "latest"}, 900, 900),
        # An end by time that lies before the start by offset: nothing, as with the connector.
    ],
)
def test_offsets_bound_what_is_read(options: dict[str, Any], first: int, end: int) -> None:
    reader = TidelogReader(parse(subscribe="v2-none-ct", **options), 2)
    assert offsets(reader) == [("v2-none-ct", 0, offset) for offset in range(first, end)]


def test_a_start_behind_its_end_is_an_error_in_each_form() -> None:
    start = {"startingOffsets": '{"v2-none-ct":{"0":500}}'}
    with pytest.raises(
        InvalidArgumentError, match="startingOffsets is offset 500 of v2-none-ct-0, which lies after endingTimestamp, offset 0"
    ):
        ranges(subscribe="v2-none-ct", endingTimestamp=0, **start)
    assert ranges(subscribe="v2-none-ct", endingTimestamp=0, failOnDataLoss="false", **start) == {("v2-none-ct", 0): (500, 500)}
    end = {"endingOffsets": '{"v2-none-ct":{"0":5}}'}
    late = {"startingTimestamp": 2**62, "startingOffsetsByTimestampStrategy": "latest"}
    with pytest.raises(InvalidArgumentError, match="lies after endingOffsets, offset 5"):
        ranges(subscribe="v2-none-ct", **late, **end)


def test_nothing_to_read_is_one_partition_without_rows() -> None:
    for options in (
        {"subscribe": "empty"},
        {"subscribePattern": "nowhere"},
        {"subscribe": "v2-none-ct", "startTime": "2100-01-01"},
    ):
        [partition] = TidelogReader(parse(**options), 2).partitions()
        assert partition.value == ()
        assert list(TidelogReader(parse(**options), 2).read(partition)) == []


def test_segments_are_cut_so_that_every_core_has_work() -> None:
    segments = len(list((Path(log_dir()) / "v2-none-ct-0").glob("*.log")))
    for wanted in (1, 2, segments + 3, 2 * segments):
        for reader in (
            TidelogReader(parse(subscribe="v2-none-ct"), wanted),
            TidelogReader(parse(subscribe="v2-none-ct", minPartitions=wanted), 1),
        ):
            parts = reader.partitions()
            assert wanted <= len(parts) <= 2 * wanted
            per_segment = Counter(split.base_offset for part in parts for split in part.value)
            assert len(per_segment) == segments
            assert wanted <= segments or max(per_segment.values()) > 1
            assert offsets(reader) == [("v2-none-ct", 0, offset) for offset in range(900)]


def test_tasks_are_shared_among_topics_by_size() -> None:
    reader = TidelogReader(parse(subscribe="v2-none-ct,two-partitions,empty", minPartitions=30), 1)
    parts = reader.partitions()
    per_topic = Counter(part.value[0].topic for part in parts)
    assert len(parts) >= 30
    assert per_topic["v2-none-ct"] > per_topic["two-partitions"]
    wanted = [row[:3] for topic in ("two-partitions", "v2-none-ct") for row in rows(topic)]
    assert offsets(reader) == wanted


def test_small_segments_share_tasks_and_arrow_batches() -> None:
    reader = TidelogReader(parse(subscribePattern=".*"), 2)
    parts = reader.partitions()
    splits = [split for part in parts for split in part.value]
    assert 2 <= len(parts) <= 4 < len(splits)
    batches = [batch for part in parts for batch in reader.read(part)]
    assert len(batches) == len(parts)
    assert [split.topic for split in splits] == sorted(split.topic for split in splits)


@given(st.lists(st.integers(1, 3 * TASK_BYTES), max_size=40), st.integers(1, 12))
def test_packing_keeps_order_bounds_and_number(sizes: list[int], wanted: int) -> None:
    splits = [SimpleNamespace(size_bytes=size) for size in sizes]
    tasks = pack(splits, wanted)  # type: ignore[arg-type]
    assert [split for task in tasks for split in task] == splits
    assert all(len(task) == 1 or sum(split.size_bytes for split in task) <= TASK_BYTES for task in tasks)
    assert len(tasks) >= min(wanted, len(splits))


@given(st.lists(st.integers(0, TASK_BYTES // 16), min_size=200, max_size=400), st.integers(1, 12))
def test_tasks_that_run_at_the_same_time_have_the_same_size(sizes: list[int], wanted: int) -> None:
    tasks = pack([SimpleNamespace(size_bytes=size) for size in sizes], wanted)  # type: ignore[arg-type]
    bytes_each = [sum(max(1, split.size_bytes) for split in task) for task in tasks]
    assert len(tasks) % wanted == 0 or max(sizes) * wanted > sum(sizes)
    assert max(bytes_each) - min(bytes_each) <= 2 * max(1, *sizes)


def test_splits_of_unknown_size_are_shared() -> None:
    assert len(pack([SimpleNamespace(size_bytes=0)] * 5, 3)) == 3  # type: ignore[list-item]


def test_readers_and_partitions_travel_to_workers() -> None:
    reader = TidelogReader(parse(subscribe="v2-zstd-ct"), 4)
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    assert max(len(pickle.dumps(part)) for part in parts) < 10_000
    again: TidelogReader = pickle.loads(pickle.dumps(reader))
    counted = sum(batch.num_rows for part in parts for batch in again.read(part))
    assert counted == len(rows("v2-zstd-ct"))


def test_batches_have_exactly_the_schema_that_spark_derives() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from tidelog.spark.columns import spark_schema
    from tidelog.spark.options import COLUMNS

    reader = TidelogReader(parse(subscribe="v2-lz4-lat", columns=",".join(COLUMNS)), 1)
    derived = to_arrow_schema(spark_schema(COLUMNS), timezone="UTC")
    assert derived.equals(arrow_schema(COLUMNS), check_metadata=True)
    for partition in reader.partitions():
        for batch in reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            assert batch.schema.equals(derived, check_metadata=True)
            batch.validate(full=True)


def test_a_segment_that_goes_away_between_plan_and_read_is_an_error(tmp_path: Path) -> None:
    shutil.copytree(Path(log_dir()) / "v2-none-ct-0", tmp_path / "v2-none-ct-0")
    reader = TidelogReader(parse(subscribe="v2-none-ct", path=tmp_path), 1)
    parts = reader.partitions()
    log = sorted((tmp_path / "v2-none-ct-0").glob("*.log"))[0]
    log.rename(f"{log}.deleted")
    assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 900
    Path(f"{log}.deleted").unlink()
    with pytest.raises(SegmentChangedError, match=log.name):
        list(reader.read(parts[0]))


def test_what_cannot_have_an_effect_is_said_when_planned(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        TidelogReader(parse(**{"subscribe": "empty", "kafka.bootstrap.servers": "localhost:9092"}), 1).partitions()
    assert [record.getMessage() for record in caplog.records] == ["options without effect on files: kafka.bootstrap.servers"]


def test_a_reader_pushes_no_filters() -> None:
    from pyspark.sql.datasource import DataSourceReader

    assert TidelogReader.pushFilters is DataSourceReader.pushFilters
