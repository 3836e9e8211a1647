"""ListOffsets, every version: by time and to the special timestamps, in logs of every shape."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.differential.pair import Pair
from tests.interop.differential.record_sets import T, build
from tests.interop.differential.requests import list_offsets, produce
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

SPECIAL = (-1, -2, -3, -4, -5, -6, -7, -100, -(1 << 63))
SHAPES: dict[str, dict[str, Any]] = {
    "one segment": {},
    "segments": {"segment_bytes": "400", "index_interval_bytes": "100"},
    "append time": {"message_timestamp_type": "LogAppendTime"},
    "empty": {},
    "deleted from": {"segment_bytes": "400"},
}


def topic_of(shape: str) -> str:
    return f"offsets-{shape.replace(' ', '-')}"


@pytest.fixture(scope="module")
def filled(pair: Pair) -> Iterator[Pair]:
    """Topics with batches whose times go up and down, plain and compressed, some without times."""
    for shape, properties in SHAPES.items():
        pair.create(topic_of(shape), **properties)
        if shape == "empty":
            continue
        rng = random.Random(3)
        for number in range(12):
            codec = rng.choice(list(Codec))
            base = T + rng.choice((number, 5, -number, 40)) * 1000
            times = [base + rng.choice((0, 1, -300, 700)) for _ in range(rng.choice((1, 2, 5)))]
            if number % 5 == 4:
                times = [-1 for _ in times]
            made = [Record(i, at, 0, b"k", b"v" * 20, ()) for i, at in enumerate(times)]
            # Of batches appended in the same millisecond the first has the largest time: each gets one of its own, on both sides.
            time.sleep(0.002)
            pair.ask(f"filling {shape} {number}", produce(topic_of(shape), build(made, 2, codec)), 7)
        if shape == "deleted from":
            wanted = [DeleteRecordsTopic(topic_of(shape), [DeleteRecordsPartition(0, 7)])]
            pair.ask("deleting", DeleteRecordsRequest(wanted, 30_000), 2)
    pair.check()
    yield pair


@pytest.mark.parametrize("shape", SHAPES)
def test_by_time(filled: Pair, shape: str) -> None:
    times = sorted({T + step * 1000 + more for step in range(-13, 42) for more in (-300, 0, 1, 700, 701)})
    for version in (1, 5, 9):
        for timestamp in times[:: 1 if version == 5 else 7]:
            filled.ask(f"{shape}: at {timestamp - T:+}", list_offsets(topic_of(shape), timestamp), version)
    for timestamp in (0, 1, T + 10**9, (1 << 63) - 1):
        filled.ask(f"{shape}: at {timestamp}", list_offsets(topic_of(shape), timestamp), 7)
    filled.check()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("version", range(1, 10))
def test_special(filled: Pair, shape: str, version: int) -> None:
    for timestamp in SPECIAL:
        for isolation_level in (0, 1) if version >= 2 else (0,):
            label = f"{shape}: special {timestamp} isolation {isolation_level}"
            filled.ask(label, list_offsets(topic_of(shape), timestamp, isolation_level=isolation_level), version)
    filled.check()


@pytest.mark.parametrize("shape", SHAPES)
def test_version_0(filled: Pair, shape: str) -> None:
    """By the times at which files changed: before, after and at no time at all."""
    for timestamp in (-1, -2, -3, 0, 1, (1 << 63) - 1, (1 << 62)):
        for count in (0, 1, 2, 100):
            filled.ask(f"{shape}: v0 {timestamp} count {count}", list_offsets(topic_of(shape), timestamp, count=count), 0)
    filled.check()


def test_errors(filled: Pair) -> None:
    topic = topic_of("one segment")
    for version in range(10):
        for timestamp in (-1, -2, T):
            filled.ask(f"unknown topic {timestamp}", list_offsets("nowhere", timestamp), version)
            filled.ask(f"unknown partition {timestamp}", list_offsets(topic, timestamp, partition=3), version)
            filled.ask(f"twice {timestamp}", list_offsets(topic, timestamp, timestamp), version)
            filled.ask(f"no name {timestamp}", list_offsets("", timestamp), version)
            filled.ask(f"bad name {timestamp}", list_offsets("../x", timestamp), version)
            if version >= 4:
                for epoch in (0, 1, 7, -2):
                    filled.ask(f"epoch {epoch} {timestamp}", list_offsets(topic, timestamp, epoch=epoch), version)
    filled.check()


def test_none_only_when_it_is_true(pair: Pair) -> None:
    """The one difference of searches by time: Kafka asks one segment alone; here the search goes on (docs/decisions/0002)."""
    without, below = "offsets-without-times", "offsets-below-the-start"
    pair.create(without, below, segment_bytes=150)
    for topic, batches in ((without, ((-1, -1), (T,))), (below, ((T + 100, T + 5), (T + 50,)))):
        for times in batches:
            made = [Record(i, at, 0, b"k", b"v" * 20, ()) for i, at in enumerate(times)]
            answer = pair.ask("filling", produce(topic, build(made, 2)), 7)
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    pair.ask("deleting", DeleteRecordsRequest([DeleteRecordsTopic(below, [DeleteRecordsPartition(0, 1)])], 30_000), 2)
    pair.check()
    for version in (1, 4, 7):
        pair.ask("after a segment without times", list_offsets(without, T), version)
        pair.ask("after a segment whose match is below the log start", list_offsets(below, T + 30), version)
        found = [(one.where, one.kafka, one.tidelog) for one in pair.differences if one.label.endswith(f" v{version}")]
        where = ".topics[0].partitions[0]."
        expected = [(f"{where}timestamp", -1, T), (f"{where}offset", -1, 2)]
        expected += [(f"{where}timestamp", -1, T + 50), (f"{where}offset", -1, 2)]
        assert [one for one in found if "epoch" not in one[0]] == expected
    pair.check()
