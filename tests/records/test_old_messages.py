"""Compressed messages around messages of the other old format: what is read of them, by every kind of reader.

What Kafka reads is compared in tests/interop/test_old_messages.py.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import run, run_ok
from tests.reader.golden import GOLDEN
from tests.records.old_messages import SHAPES, T, inside, wrap
from tidelog.errors import InvalidRecordError
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, iter_headers
from tidelog.records.columns import Columns
from tidelog.records.conversion import down_convert
from tidelog.records.filter import RecordFilter, filter_to
from tidelog.records.records import Record, first_record_at, iter_records, max_timestamp_record
from tidelog.testing import Broker

CLEANED = GOLDEN / "kafka-0.10.0.1"


def read(data: bytes) -> list[Record]:
    return [
        record for one in iter_headers(data) for record in iter_records(one, memoryview(data)[one.position : one.end_position])
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("append_time", [None, -1, T + 90])
@pytest.mark.parametrize("outer", [0, 1])
def test_offsets_are_the_wrappers_and_times_the_messages(outer: int, append_time: int | None, shape: str) -> None:
    messages = SHAPES[shape]
    kind = CREATE_TIME if append_time is None else LOG_APPEND_TIME
    data = wrap(outer, 28, inside(*messages), timestamp=T + 90 if append_time is None else append_time, timestamp_type=kind)
    records = read(data)
    base = 28 - messages[-1][1] if outer == 1 else 0
    assert [one.offset for one in records] == [base + offset for _, offset in messages]
    for number, ((magic, _), record) in enumerate(zip(messages, records, strict=True)):
        if magic == 0 or outer == 0:
            assert record.timestamp == -1
        else:
            assert record.timestamp == (T + 10 * number if append_time is None else append_time)
        assert record.timestamp_type == (-1 if outer == 0 else kind)
    largest = max(one.timestamp for one in records)
    (header,) = iter_headers(data)
    found = max_timestamp_record(header, data)
    assert found == next(((one.offset, one.timestamp) for one in records if one.timestamp == largest >= 0), None)
    for at in (0, T + 10, T + 1000):
        after = next(((one.offset, one.timestamp) for one in records if one.timestamp >= at), None)
        assert first_record_at(header, data, at) == after


def test_times_of_producers_are_not_lost_in_a_wrapper_of_v0() -> None:
    data = wrap(0, 28, inside((1, 27), (1, 28)))
    (header,) = iter_headers(data)
    columns = Columns()
    assert columns.add(header, data) == 2
    assert columns.timestamps().null_count == 2
    assert list(memoryview(columns.create_times().data).cast("q")) == [T, T + 10]
    bounded = Columns(T, T + 1000)
    assert bounded.add(header, data) == 0
    assert bounded.without_timestamp == 2  # What a range reports as left out.


def test_a_message_of_v2_inside_is_refused() -> None:
    plain = inside((1, 0), (1, 1))
    with pytest.raises(InvalidRecordError, match="another format"):
        read(wrap(1, 1, plain[:16] + b"\x02" + plain[17:]))


def test_a_fetch_of_v0_gets_messages_of_v0() -> None:
    data = wrap(1, 28, inside((0, 0), (1, 1), (0, 2)))
    converted = b"".join(down_convert(data, header, 0, 0) for header in iter_headers(data))
    assert [header.magic for header in iter_headers(converted)] == [0]
    assert [(one.offset, one.key) for one in read(converted)] == [(one.offset, one.key) for one in read(data)]


class _All(RecordFilter):
    def should_retain_record(self, header: object, record: Record) -> bool:
        return True


@pytest.mark.parametrize("outer", [0, 1])
def test_compaction_writes_one_format(outer: int) -> None:
    """As Kafka since 0.10.1.1 (KAFKA-4298): the wrapper is written anew, though all its messages stay."""
    data = wrap(outer, 28, inside((1, 26), (0, 27), (1, 28)))
    result = filter_to(data, _All(0, 0))
    assert bytes(result.data) != data
    assert read(bytes(result.data)) == read(data)
    again = filter_to(result.data, _All(0, 0))
    assert again.data == result.data


def expected(topic: str) -> list[tuple[int, int, int, bytes, bytes]]:
    """What Kafka 3.9.1 read; inside of a wrapper of v0 it gives a time and a type that says that there is none."""
    lines = (line.split(" ") for line in json.loads((CLEANED / "expected.json").read_text())[topic])
    return [
        (int(offset), int(at) if kind != "-1" else -1, int(kind), base64.b64decode(key), base64.b64decode(value))
        for offset, at, kind, key, value in lines
    ]


TOPICS = [f"{way}-{codec}" for way in ("raised", "lowered") for codec in ("gzip", "snappy", "lz4")]


@pytest.mark.parametrize("topic", TOPICS)
def test_what_the_cleaner_of_0_10_0_left(topic: str) -> None:
    rows = expected(topic)
    table = tidelog.scan(CLEANED / "log", topic).read_all()
    kinds = {None: -1, "NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
    assert [
        (one["offset"], -1 if one["timestamp"] is None else int(one["timestamp"].timestamp() * 1000), one["key"], one["value"])
        for one in table.to_pylist()
    ] == [(offset, at, key, value) for offset, at, _, key, value in rows]
    lines = run_ok("cat", CLEANED / "log", topic, "--format", "jsonl", "--encoding", "base64").json_lines
    assert [(one["offset"], kinds[one["timestamp_type"]], base64.b64decode(one["key"])) for one in lines] == [
        (offset, kind, key) for offset, _, kind, key, _ in rows
    ]
    times = sorted(at for _, at, _, _, _ in rows if at >= 0)
    for at in times[:: max(1, len(times) // 5)]:
        (found,) = run_ok("find", CLEANED / "log", topic, "--at", at, "--json").json_lines
        assert (found["offset"], found["timestamp"]) == next((offset, when) for offset, when, *_ in rows if when >= at)


def test_a_broker_on_that_folder(tmp_path: Path) -> None:
    """It serves it, and compacts it: fetches then find the same records, each in one format."""
    folder = tmp_path / "log"
    shutil.copytree(CLEANED / "log", folder)
    with Broker(folder, read_only=True) as broker, tidelog.connect(broker.bootstrap_servers) as client:
        for topic in TOPICS:
            assert [(one.offset, one.key, one.value) for one in client.read(topic)] == [
                (offset, key, value) for offset, _, _, key, value in expected(topic)
            ]
    ran = run("verify", folder, "--json")
    assert not [one for one in ran.json_lines if one.get("path", "").endswith(".log")]
