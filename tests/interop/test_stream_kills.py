"""Streams from a broker and from its folder, their driver killed at random while the log grows, rolls and loses its old records.

Driver and JVM are killed with -9 and started again with the same checkpoints. The sink is keyed by the batch's number, as an
idempotent one is: at the end it holds each record exactly once. A batch that is run again must hold the same rows.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from tests.examples import IS_SOAK
from tests.interop.gate import first_of
from tests.interop.growing_topics import GrowingTopics, Seen, seen
from tests.interop.peers import served
from tests.interop.spark_program import SparkProgram, written
from tests.interop.test_stream_agreement import assert_exactly, source
from tests.kafka import Kafka391
from tests.kafka.clients import watermarks
from tests.kafka.java import wait_until

KILLS = 6 if IS_SOAK else 1
WAYS = ("broker", "folder")
EVERY = {"processingTime": "50 milliseconds"}
PATIENCE_S = 300


@pytest.fixture(params=first_of("kafka", "tidelog", why="test_pipeline_kills kills drivers that read from Tidelog"))
def topics(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GrowingTopics]:
    if request.param == "kafka":
        broker: Kafka391 = request.getfixturevalue("broker")
        yield GrowingTopics(broker.bootstrap, broker.data, 90)
    else:
        with served(tmp_path, {"replica.high.watermark.checkpoint.interval.ms": "200"}) as peer:
            yield GrowingTopics(peer.bootstrap, peer.data, 91)


class Writer:
    """Makes the topics grow in a thread of its own, and deletes what every query has read."""

    def __init__(self, topics: GrowingTopics, sinks: dict[str, Path]) -> None:
        self.known: dict[tuple[str, int, int], Seen] = {}
        self.error: Exception | None = None
        self._topics = topics
        self._sinks = sinks
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            turn = 0
            while not self._ends.wait(0.2):
                self._topics.grow(30)
                turn += 1
                if turn == 20:
                    self._topics.add_partition("driver-killed-a")
                if turn == 30:
                    self._topics.create("driver-killed-c", 1, segment_bytes="4096")
                if turn % 10 == 0:
                    self.trim()
        except Exception as error:  # raised where it is looked at
            self.error = error

    def look(self) -> None:
        """Learn which records there are, before some of them are gone."""
        for topic in list(self._topics.partitions):
            for row in self._topics.rows(topic):
                self.known[row.topic, row.partition, row.offset] = row

    def trim(self) -> None:
        """Delete the records that every query has read for good."""
        done = [positions(sink) for sink in self._sinks.values()]
        self.look()
        both = {key: min(each[key] for each in done) for key in done[0] if all(key in each for each in done)}
        admin = AdminClient({"bootstrap.servers": self._topics.bootstrap, "log_level": 0})
        wanted = [TopicPartition(topic, number, offset) for (topic, number), offset in both.items()]
        for deleted in admin.delete_records(wanted).values() if wanted else ():
            deleted.result(PATIENCE_S)


def positions(sink: Path) -> dict[tuple[str, int], int]:
    """Return where the last batch that a query has finished ends: what a later start will not ask for again."""
    finished = [int(path.name) for path in (sink / "checkpoint" / "commits").glob("[0-9]*")]
    if not finished:
        return {}
    lines = (sink / "checkpoint" / "offsets" / str(max(finished))).read_text().splitlines()
    return {(topic, int(number)): end for topic, each in json.loads(lines[2]).items() for number, end in each.items()}


def test_drivers_killed_at_random(topics: GrowingTopics, tmp_path: Path) -> None:
    chance = random.Random(9)
    sinks = {way: tmp_path / way for way in WAYS}
    topics.create("driver-killed-a", 2, segment_bytes="4096")
    topics.create("driver-killed-b", 1, segment_bytes="4096")
    topics.grow(100)
    folder = tmp_path / "spark"
    folder.mkdir()
    with Writer(topics, sinks) as writer:
        for _ in range(KILLS):
            program = SparkProgram(folder)
            try:
                go_on(program, topics, sinks, str(chance.choice((20, 100, 1000))))
                time.sleep(chance.random())
            finally:
                program.kill()
            if writer.error is not None:
                raise writer.error
    writer.trim()
    topics.settle()
    with SparkProgram(folder) as program:
        for way, sink in sinks.items():
            start(program, way, topics, sink, {"availableNow": True})
    for sink in sinks.values():
        assert_exactly(seen(sink), list(writer.known.values()))
    low, _ = watermarks(topics.bootstrap, "driver-killed-b")
    assert low > 0, "nothing was deleted meanwhile"


def start(
    program: SparkProgram, way: str, topics: GrowingTopics, sink: Path, trigger: Mapping[str, object], **limits: str
) -> None:
    kind, where = source(way, topics)
    options = where | {"subscribePattern": "^driver-killed-", "startingOffsets": "earliest"} | limits
    program.stream(way, kind, sink, trigger, **options)


def go_on(program: SparkProgram, topics: GrowingTopics, sinks: dict[str, Path], limit: str) -> None:
    """Start each query and wait until it has written a few batches."""
    before = {way: len(written(sink)) for way, sink in sinks.items()}
    for way, sink in sinks.items():
        start(program, way, topics, sink, EVERY, maxOffsetsPerTrigger=limit)

    def all_have() -> bool:
        for way in sinks:
            program.progress(way)  # raises where the query has failed
        return all(len(list(sink.glob("*.arrow"))) >= before[way] + 3 for way, sink in sinks.items())

    wait_until(all_have, "three batches of each query", PATIENCE_S)
