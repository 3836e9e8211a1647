"""A stream's reader under everything that may happen to it, by chance, on Kafka 3.9.1 and Tidelog's broker and their folders.

No Spark: `tests.spark.stream_query` makes Spark's calls, in Spark's order, so that hundreds of batches and dozens of crashes take
seconds. A plain consumer says which records there are.

| what happens | |
|---|---|
| the log | grows, in batches and transactions; gets partitions and topics; loses records that the stream has read; is rolled |
| the query | is started again with other limits, from the broker or from the folder; crashes with a batch planned, or read |
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from tests.examples import IS_SOAK
from tests.interop.gate import first_of
from tests.interop.growing_topics import BEGIN_MS, GrowingTopics
from tests.interop.peers import served
from tests.kafka import Kafka391
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tests.spark.stream_query import Query, Rows
from tidelog.errors import OffsetOutOfRangeError
from tidelog.reader.log_dir import LogDir

STEPS = 30
SEEDS = range(30) if IS_SOAK else [0, *first_of(*range(1, 4), why="further seeds; make soak has thirty")]
START_MS = BEGIN_MS + 60_000


@pytest.fixture(scope="module")
def kafka(broker: Kafka391) -> GrowingTopics:
    return GrowingTopics(broker.bootstrap, broker.data, 81)


@pytest.fixture(scope="module")
def tidelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrowingTopics]:
    with served(
        tmp_path_factory.mktemp("served"),
        {f"{name}.checkpoint.interval.ms": "100" for name in ("replica.high.watermark", "log.flush.start.offset")},
    ) as peer:
        yield GrowingTopics(peer.bootstrap, peer.data, 82)


@pytest.fixture(params=["kafka", "tidelog"])
def topics(request: pytest.FixtureRequest) -> GrowingTopics:
    topics: GrowingTopics = request.getfixturevalue(request.param)
    topics.partitions.clear()
    return topics


class Life:
    """A query's life, and what it should have delivered."""

    def __init__(self, topics: GrowingTopics, prefix: str, seed: int) -> None:
        self.topics = topics
        self.chance = random.Random(seed)
        self.prefix = prefix
        self.isolation = self.chance.choice(("read_uncommitted", "read_committed"))
        self.start_ms = self.chance.choice((None, START_MS))
        self.known: dict[tuple[str, int, int], int] = {}
        self.add_topic()
        topics.grow(60)
        start = {"startingOffsets": "earliest"} if self.start_ms is None else {"startTime": str(self.start_ms)}
        options = {"subscribePattern": f"^{prefix}", "isolationLevel": self.isolation, **start}
        self.query = Query(options | {"path": self.place()})

    def add_topic(self) -> None:
        self.topics.create(f"{self.prefix}{len(self.topics.partitions)}", self.chance.choice((1, 2)), segment_bytes="4096")

    def place(self) -> str:
        if self.chance.random() < 0.5:
            return self.topics.bootstrap
        self.topics.settle()
        return str(self.topics.data)

    def live(self) -> None:
        for _ in range(STEPS):
            self.chance.choices((self.grow, self.batch, self.crash, self.again, self.widen, self.trim), (4, 10, 4, 2, 1, 2))[0]()
        self.topics.commit_open()
        self.look()
        self.topics.settle()
        self.query.restart(available_now=self.chance.random() < 0.5)
        self.query.run_all()
        self.query.close()

    def grow(self) -> None:
        self.topics.grow(self.chance.choice((1, 20, 100)))
        if self.chance.random() < 0.5:
            topic = self.chance.choice(list(self.topics.partitions))
            self.topics.transact(topic, 9, self.chance.choice(("commit", "abort", "open")))
        elif self.chance.random() < 0.5:
            self.topics.commit_open()

    def batch(self) -> None:
        self.query.run()

    def crash(self) -> None:
        """A batch that did not end is read again, and holds the same."""
        before = self.query.run(crashes=self.chance.choice(("planned", "read")))
        is_begun = len(self.query.offsets) > self.query.committed
        self.again()
        if is_begun:
            after = self.query.run()
            assert before is None or sorted(after or []) == sorted(before)

    def again(self) -> None:
        limits: dict[str, Any] = {
            "maxOffsetsPerTrigger": self.chance.choice((7, 40, 10_000)),
            "maxTimePerTrigger": self.chance.choice(("20s", "10m", "9000d")),
            "maxRecordsPerPartition": self.chance.choice((5, 10_000)),
        }
        self.query.restart(path=self.place(), **limits)

    def widen(self) -> None:
        if self.chance.random() < 0.5:
            self.add_topic()
        else:
            self.topics.add_partition(self.chance.choice(list(self.topics.partitions)))

    def trim(self) -> None:
        """Delete what has been read for good."""
        if self.query.committed < len(self.query.offsets) or not self.query.committed:
            return
        self.look()
        trim(self.topics, self.positions())
        self.query.restart()

    def positions(self) -> dict[tuple[str, int], int]:
        found = json.loads(self.query.offsets[self.query.committed - 1])
        return {(topic, int(number)): offset for topic, each in found.items() for number, offset in each.items()}

    def look(self) -> None:
        """Learn which records there are, before some of them are gone."""
        for topic in self.topics.partitions:
            for row in self.topics.rows(topic, isolation=self.isolation):
                assert row.timestamp is not None
                self.known[row.topic, row.partition, row.offset] = row.timestamp

    def expected(self) -> Rows:
        return sorted(place for place, timestamp in self.known.items() if timestamp >= (self.start_ms or 0))


def trim(topics: GrowingTopics, positions: dict[tuple[str, int], int]) -> None:
    """Delete the records below these positions."""
    wanted = [TopicPartition(topic, number, offset) for (topic, number), offset in positions.items()]
    admin = AdminClient({"bootstrap.servers": topics.bootstrap, "log_level": 0})
    for deleted in admin.delete_records(wanted).values():
        deleted.result(PATIENCE_S)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_once_whatever_happens(topics: GrowingTopics, seed: int) -> None:
    life = Life(topics, f"life-{seed}-", seed)
    life.live()
    assert sorted(row for batch in life.query.batches for row in batch) == life.expected()
    last: dict[tuple[str, int], int] = {}
    for batch in life.query.batches:
        for topic, partition, offset in sorted(batch):
            assert offset > last.get((topic, partition), -1), "a partition went back"
            last[topic, partition] = offset


def expected_ends(times: dict[int, list[int]], span_ms: int) -> list[dict[int, int]]:
    """Return the position after each batch that maxTimePerTrigger makes of a log from long ago; see docs/streaming.md."""
    at = dict.fromkeys(times, 0)
    found: list[dict[int, int]] = []
    end_ms = 0
    while any(at[key] < len(times[key]) for key in times):
        heads: dict[int, tuple[int | None, int]] = {}
        for key, first in at.items():
            window = range(first, min(first + 100, len(times[key])))
            ahead = [(times[key][n], n) for n in window if times[key][n] >= end_ms]
            if window:
                heads[key] = (min(ahead)[0], min(ahead)[1] + 1) if ahead else (None, window.stop)
        known = [time_ms for time_ms, _ in heads.values() if time_ms is not None]
        end_ms = min(known) + span_ms if known else end_ms
        for key, (time_ms, least) in heads.items():
            if time_ms is None or time_ms < end_ms:
                at[key] = next((n for n in range(least, len(times[key])) if times[key][n] >= end_ms), len(times[key]))
        found.append(dict(at))
    return found


@pytest.mark.parametrize("from_folder", [False, True], ids=["broker", "folder"])
def test_batches_of_so_much_time(topics: GrowingTopics, from_folder: bool) -> None:
    name = f"timed-{from_folder}"
    topics.create(name, 3)
    topics.grow(800)
    topics.settle()
    place = str(topics.data) if from_folder else topics.bootstrap
    times: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for row in topics.rows(name):
        assert row.timestamp is not None
        times[row.partition].append(row.timestamp)
    for span_ms in (1, 25_000, 90_000):
        query = Query({"path": place, "subscribe": name, "startingOffsets": "earliest", "maxTimePerTrigger": f"{span_ms}ms"})
        query.run_all()
        query.close()
        found = [json.loads(end)[name] for end in query.offsets]
        assert found == [{str(number): end for number, end in ends.items()} for ends in expected_ends(times, span_ms)]
        assert len(found) > 2


@pytest.mark.parametrize("from_folder", [False, True], ids=["broker", "folder"])
def test_records_that_went_unread_are_one_error(topics: GrowingTopics, from_folder: bool) -> None:
    name = f"unread-{from_folder}"
    topics.create(name, 2)
    while min(topics.ends().values()) < 100:
        topics.grow(100)
    topics.settle()
    place = str(topics.data) if from_folder else topics.bootstrap
    query = Query({"path": place, "subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 50})
    first = query.run()
    assert first
    trim(topics, {(name, 0): 60, (name, 1): 60})
    wait_for_starts(topics, name, 60)
    with pytest.raises(OffsetOutOfRangeError, match=r"records were lost before the stream read them: unread-\w+-0 offsets"):
        query.run()
    query.restart(failOnDataLoss="false")
    found = query.run_all()
    query.close()
    assert sorted(found) == [(row.topic, row.partition, row.offset) for row in topics.rows(name)]
    assert min(row[2] for row in found) == 60


def wait_for_starts(topics: GrowingTopics, topic: str, start: int) -> None:
    def moved() -> bool:
        return all(LogDir(topics.data).log(topic, number).log_start_offset == start for number in (0, 1))

    wait_until(moved, "the log's start in the folder's checkpoint")
