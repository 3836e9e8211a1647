"""Arrow rows become the batches that they should: against a plain model that deals rows out one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.model import TopicPartition
from tidelog.records.batch import check_crc, read_header
from tidelog.records.compression import Codec
from tidelog.records.records import iter_records
from tidelog.spark.sink.row_batches import RowBatches
from tidelog.spark.sink.sink_options import SinkOptions

NOW_MS = 1_700_000_000_000
PARTITIONS = {"a": 1, "b": 3, "c": 5}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


class Wanted(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


headers = st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=200)), max_size=3)
rows_of_all = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(sorted(PARTITIONS)),
            "key": st.none() | st.binary(max_size=4),
            "value": st.none() | st.text(max_size=40),
            "partition": st.none() | st.just(0),
            "headers": headers,
            "timestamp": st.none() | st.integers(0, 2**50),
        }
    ),
    max_size=60,
)


def options(**given: Any) -> SinkOptions:
    return SinkOptions(**({"path": "/nowhere", "brokers": None, "topic": None} | given))


def batches_of(
    rows: list[dict[str, Any]], cuts: Iterable[int], schema: pa.Schema = SCHEMA, **given: Any
) -> list[tuple[TopicPartition, bytearray]]:
    chunk_bytes = given.pop("chunk_bytes", 512)
    made = RowBatches(schema, options(**given), PARTITIONS.__getitem__, ManualClock(NOW_MS), chunk_bytes=chunk_bytes)
    found = []
    ends = [*sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    first = 0
    for end in ends:
        columns = [pa.array([row.get(field.name) for row in rows[first:end]], field.type) for field in schema]
        found += list(made.add(pa.RecordBatch.from_arrays(columns, schema=schema)))
        first = end
    return found + list(made.finish())


def records(batches: list[tuple[TopicPartition, bytearray]]) -> dict[TopicPartition, list[Wanted]]:
    found = defaultdict(list)
    for key, data in batches:
        header = read_header(data)
        check_crc(header, data)
        assert header.base_offset == 0
        read = list(iter_records(header, data))
        assert [one.offset for one in read] == list(range(len(read)))
        found[key] += [Wanted(one.timestamp, one.key, one.value, tuple(one.headers)) for one in read]
    return dict(found)


def wanted(row: dict[str, Any]) -> Wanted:
    value = None if row["value"] is None else row["value"].encode()
    at = NOW_MS if row["timestamp"] is None else row["timestamp"] // 1000
    return Wanted(at, row["key"], value, tuple(row["headers"] or ()))


@given(rows_of_all, st.lists(st.integers(0, 60), max_size=5), st.sampled_from([100, 300, 10_000]), st.sampled_from([*Codec]))
@examples(60)
def test_each_row_arrives_once_where_it_belongs_and_in_order(
    rows: list[dict[str, Any]], cuts: list[int], batch_bytes: int, codec: Codec
) -> None:
    rows = [{**row, "headers": [*(row["headers"] or ()), ("number", b"%d" % i)]} for i, row in enumerate(rows)]
    found = records(batches_of(rows, cuts, batch_bytes=batch_bytes, codec=codec))
    place = {int(one.headers[-1][1] or b""): (key, one) for key, many in found.items() for one in many}
    assert sorted(place) == list(range(len(rows))) == sorted(range(sum(map(len, found.values()))))
    lanes: dict[TopicPartition, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        (topic, partition), one = place[i]
        assert topic == row["topic"]
        assert one == wanted(row)
        count = PARTITIONS[topic]
        if row["partition"] is not None:
            assert partition == row["partition"]
        elif row["key"] is not None:
            assert partition == (murmur2(row["key"]) & 0x7FFFFFFF) % count
        elif count > 1:
            continue
        lanes[TopicPartition(topic, partition)].append(i)
    for key, numbers in lanes.items():
        arrived = [int(one.headers[-1][1] or b"") for one in found[key]]
        assert [number for number in arrived if number in numbers] == numbers


@given(rows_of_all, st.lists(st.integers(0, 60), max_size=5))
@examples(30)
def test_rows_with_a_place_keep_their_order(rows: list[dict[str, Any]], cuts: list[int]) -> None:
    rows = [{**row, "key": row["key"] or b"k", "partition": None} for row in rows]
    placed: dict[TopicPartition, list[Wanted]] = defaultdict(list)
    for row in rows:
        count = PARTITIONS[row["topic"]]
        placed[TopicPartition(row["topic"], (murmur2(row["key"]) & 0x7FFFFFFF) % count)].append(wanted(row))
    assert records(batches_of(rows, cuts, batch_bytes=200)) == dict(placed)


def test_rows_without_key_fill_a_batch_and_go_on_to_the_next_partition() -> None:
    rows = [{"topic": "b", "value": f"{i:0100}"} for i in range(60)]
    found = batches_of(rows, [], batch_bytes=1000)
    sizes = [len(data) for _, data in found]
    assert all(880 < size <= 1000 for size in sizes[:-1])
    turns = [key.partition for key, _ in found]
    assert turns == [(turns[0] + i) % 3 for i in range(len(turns))]


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_types_of_text_and_bytes(text: pa.DataType) -> None:
    schema = pa.schema([("value", text), ("key", text)])
    value = "v" if text in (pa.string(), pa.large_string()) else b"v"
    found = batches_of([{"value": value, "key": value}], [], schema, topic="a")
    assert records(found) == {TopicPartition("a", 0): [Wanted(NOW_MS, b"v", b"v", ())]}


def test_the_option_beats_the_column_and_headers_may_be_left_out() -> None:
    rows = [{"topic": "b", "key": b"k", "value": "v", "headers": [("h", None)], "timestamp": 5999}]
    assert records(batches_of(rows, [], topic="a")) == {TopicPartition("a", 0): [Wanted(5, b"k", b"v", (("h", None),))]}
    without = records(batches_of(rows, [], topic="a", include_headers=False))
    assert without == {TopicPartition("a", 0): [Wanted(5, b"k", b"v", ())]}


@pytest.mark.parametrize(
    ("schema", "topic", "says"),
    [
        ([("value", pa.string())], None, "the rows have no target topic"),
        ([("value", pa.string()), ("topic", pa.int32())], None, "column topic has a type.*found int, expected string"),
        ([("key", pa.string())], "a", "the required column value is missing"),
        ([("value", pa.int64())], "a", "column value has a type.*expected string or binary"),
        ([("value", pa.string()), ("key", pa.float64())], "a", "column key has a type"),
        ([("value", pa.string()), ("partition", pa.int64())], "a", "column partition has a type.*found int64, expected int"),
        ([("value", pa.string()), ("headers", pa.list_(pa.string()))], "a", "column headers has a type.*found array<string>"),
        ([("value", pa.string()), ("timestamp", pa.int64())], "a", "column timestamp has a type"),
        ([("value", pa.string()), ("value", pa.string())], "a", "column value appears more than once"),
    ],
)
def test_columns_that_cannot_be_written(schema: list[tuple[str, pa.DataType]], topic: str | None, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        RowBatches(pa.schema(schema), options(topic=topic), PARTITIONS.__getitem__)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"topic": None, "value": "v"}, "column topic is null in a row"),
        (
            {"topic": "b", "partition": 3, "value": "v"},
            "column partition: topic 'b' does not have this partition.*found 3, expected 0 to 2",
        ),
        ({"topic": "a", "partition": -1, "value": "v"}, "does not have this partition.*found -1"),
        ({"topic": "a", "timestamp": -1, "value": "v"}, "column timestamp: a record's timestamp cannot be before 1970"),
        ({"topic": "a", "headers": [(None, b"x")], "value": "v"}, "column headers: a header has no key"),
    ],
)
def test_rows_that_cannot_be_written(row: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        batches_of([row], [])


def test_no_rows_no_batches() -> None:
    assert batches_of([], []) == []
