"""The options of a stream and its positions as JSON, without Spark."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.errors import InvalidArgumentError
from tidelog.model import EARLIEST, LATEST, TopicPartition
from tidelog.spark.options import OPTIONS, STREAM_OPTIONS
from tidelog.spark.source import TidelogDataSource
from tidelog.spark.stream.offsets import from_json, to_json
from tidelog.spark.stream.stream_options import BATCH_BYTES, StreamOptions, parse_stream_options


def given_options(**options: Any) -> dict[str, str]:
    return {"path": "/data", "subscribe": "orders"} | {name: str(value) for name, value in options.items()}


def parse(**options: Any) -> StreamOptions:
    return parse_stream_options(given_options(**options))


def refused(**options: Any) -> str:
    with pytest.raises(InvalidArgumentError) as error:
        parse(**options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("1g", 1 << 30), ("512m", 512 << 20), ("64 MiB", 64 << 20), ("1000", 1000), ("2kb", 2048), ("unlimited", None)],
)
def test_bytes_of_a_batch(text: str, size_bytes: int | None) -> None:
    given = {"path": "/data", "subscribe": "orders"}
    assert parse_stream_options(given).max_bytes == BATCH_BYTES
    assert parse_stream_options(given | {"maxBytesPerTrigger": text}).max_bytes == size_bytes
    for wrong in ("0", "-1", "1.5g", "many", ""):
        with pytest.raises(InvalidArgumentError, match="option maxBytesPerTrigger: expected a number of bytes"):
            parse_stream_options(given | {"maxBytesPerTrigger": wrong})


def test_what_is_not_said_has_the_connectors_defaults() -> None:
    options = parse()
    assert options.read.starting.of(("orders", 0)) == LATEST and not options.read.starting.by_time
    assert (options.max_offsets, options.min_offsets, options.max_time_ms, options.max_task_offsets) == (None,) * 4
    assert options.max_delay_ms == 15 * 60_000
    assert options.read.fail_on_data_loss and options.read.notices == ()
    assert pickle.loads(pickle.dumps(options)) == options


def test_where_a_stream_starts() -> None:
    assert parse(startingOffsets="earliest").read.starting.of(("orders", 0)) == EARLIEST
    each = parse(startingOffsets='{"orders":{"0":5,"1":-1,"2":-2}}').read.starting
    assert [each.of(("orders", number)) for number in range(3)] == [5, LATEST, EARLIEST]
    by_time = parse(startTime="1970-01-02").read
    assert (by_time.starting.option, by_time.starting.of(("orders", 0)), by_time.start_ms) == (
        "startTime",
        86_400_000,
        86_400_000,
    )
    both = parse(startTime="1970-01-02", startingOffsets="latest").read
    assert (both.starting.option, both.start_ms) == ("startingOffsets", 86_400_000)


def test_a_relative_start_would_not_stay_the_same() -> None:
    for text in ("-3d", "now"):
        said = refused(startTime=text)
        assert said.startswith("option startTime: a restarted stream must start at the same time")


@pytest.mark.parametrize("name", ["endTime", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    assert refused(**{name: "2013-07-10"}).startswith(f"option {name}: a stream has no end")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("250", 250),
        ("500ms", 500),
        ("5min", 300_000),
        ("2 h", 7_200_000),
        ("1d", 86_400_000),
    ],
)
def test_spans_as_ours_and_as_spark_s(text: str, ms: int) -> None:
    assert parse(maxTimePerTrigger=text).max_time_ms == ms
    assert parse(maxTriggerDelay=text).max_delay_ms == ms


def test_what_makes_no_sense() -> None:
    assert "option maxTimePerTrigger: the text is not a duration" in refused(maxTimePerTrigger="ten")
    assert "option maxTimePerTrigger must not be 0: every batch would be empty" in refused(maxTimePerTrigger="0s")
    assert "option maxOffsetsPerTrigger: expected a positive number" in refused(maxOffsetsPerTrigger=0)
    assert "option minOffsetsPerTrigger (5) is more than maxOffsetsPerTrigger (4)" in refused(
        minOffsetsPerTrigger=5, maxOffsetsPerTrigger=4
    )
    said = refused(maxOffsetPerTrigger=5)
    assert "has no option maxoffsetpertrigger" in said
    assert all(name in said for name in OPTIONS | STREAM_OPTIONS)


def test_what_the_connector_takes_is_named_once() -> None:
    options = parse(groupIdPrefix="x", **{"kafka.max.poll.records": 5}, maxOffsetsPerTrigger=5)
    assert options.read.notices == ("options without effect on files: groupIdPrefix, kafka.max.poll.records",)


def test_nobody_says_whether_a_batch_or_a_stream_is_loaded() -> None:
    def source(**options: Any) -> TidelogDataSource:
        return TidelogDataSource(given_options(**options))

    batch = source(startingOffsets="earliest", endTime="now", startTime="-3d", columns="offset")
    assert batch.schema().names == ["offset"]
    stream = source(startingOffsets="latest", maxOffsetsPerTrigger=5, columns="offset")
    assert stream.schema().names == ["offset"]
    assert stream.streamReader(stream.schema()).options.max_offsets == 5  # type: ignore[attr-defined]
    with pytest.raises(InvalidArgumentError, match="startingOffsets cannot be latest"):
        stream.reader(stream.schema())
    with pytest.raises(InvalidArgumentError, match="option endTime: a stream has no end"):
        batch.streamReader(batch.schema()).initialOffset()
    with pytest.raises(InvalidArgumentError, match="minPartitions"):
        source(minPartitions=0).schema()
    with pytest.raises(InvalidArgumentError, match="maxTimePerTrigger"):
        source(startingOffsets="latest", maxTimePerTrigger="x").schema()
    with pytest.raises(InvalidArgumentError, match="fixed schema"):
        stream.streamReader(source().schema()).initialOffset()


keys = st.builds(TopicPartition, st.sampled_from(["a", "b", "a-b", "10"]), st.integers(0, 2**31 - 1))


@examples(100)
@given(st.dictionaries(keys, st.integers(0, 2**63 - 1)))
def test_positions_come_back_and_are_always_the_same_text(positions: dict[TopicPartition, int]) -> None:
    text = json.dumps(to_json(positions))
    assert from_json(json.loads(text)) == positions
    assert json.dumps(to_json(dict(reversed(list(positions.items()))))) == text


@pytest.mark.parametrize(
    "strange", [None, [], {"a": 5}, {"a": {"x": 5}}, {"a": {"0": -1}}, {"a": {"0": True}}, {"a": {"0": "5"}}]
)
def test_a_checkpoint_of_another_source(strange: object) -> None:
    with pytest.raises(InvalidArgumentError, match="the checkpoint's offsets belong to a different source"):
        from_json(strange)
