"""A cluster in memory that lives at random while it is backed up, and remembers what a backup must have."""

from __future__ import annotations

import random
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.capture.capture_source import Failed, FoundBatch, SourceEnds, SourceTopic
from tidelog.errors import BrokerUnreachableError, OffsetOutOfRangeError
from tidelog.model import TopicPartition
from tidelog.records.batch import read_header
from tidelog.records.builder import Producer, build_batch_v2, build_end_txn_marker
from tidelog.records.control import ControlType
from tidelog.records.records import Record

NOON = 1_700_000_000_000


@dataclass
class Batch:
    base: int
    next: int
    data: bytes


@dataclass
class Partition:
    batches: list[Batch] = field(default_factory=list)
    log_start: int = 0
    epoch: int = 0
    epoch_ends: dict[int, int] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    """First offsets of open transactions by producer."""
    written: set[bytes] = field(default_factory=set)
    """Every batch that was ever there, and was not truncated."""
    seen: list[Batch] = field(default_factory=list)
    """What the last point has, if nothing was truncated."""
    was_truncated: bool = False

    @property
    def end(self) -> int:
        return self.batches[-1].next if self.batches else max(self.log_start, self._end)

    _end: int = 0

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def append(self, data: bytearray) -> Batch:
        header = read_header(data)
        batch = Batch(header.base_offset, header.next_offset, bytes(data))
        self.batches.append(batch)
        self.written.add(batch.data)
        self._end = batch.next
        return batch


@dataclass
class Topic:
    topic_id: uuid.UUID
    partitions: list[Partition]
    settings: dict[str, str]


@dataclass
class Transaction:
    """A transaction over partitions; the offsets of its markers as they are written."""

    producer: int
    data: dict[int, tuple[str, uuid.UUID, int]] = field(default_factory=dict)
    is_ending: bool = False
    kind: ControlType = ControlType.COMMIT
    markers: dict[tuple[str, int], int] = field(default_factory=dict)
    places: dict[tuple[str, int], uuid.UUID] = field(default_factory=dict)


class ModelSource:
    """A `CaptureSource`. `tick` does something at random; `is_busy`: things happen while it is asked, too."""

    name = "model"
    is_consistent = True
    parallel = 1

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.known: dict[str, Topic] = {}
        self.transactions: list[Transaction] = []
        self.now = NOON
        self.is_busy = True
        self.away: set[TopicPartition] = set()
        self.allows_truncation = self.rng.random() < 0.3
        for name in ("a", "b"):
            self.create(name)

    # --- what happens

    def create(self, name: str) -> None:
        topic_id = uuid.UUID(int=self.rng.getrandbits(128), version=4)
        settings = {"segment.bytes": str(self.rng.choice((400, 1500, 100_000)))}
        self.known[name] = Topic(topic_id, [Partition() for _ in range(self.rng.randint(1, 3))], settings)

    def tick(self) -> None:
        rng = self.rng
        self.now += rng.randint(1, 500)
        action = rng.choices(
            ("produce", "begin", "end", "marker", "retention", "compact", "truncate", "add", "recreate", "settings"),
            (30, 20, 8, 25, 4, 4, 12 * self.allows_truncation, 1, 1, 1),
        )[0]
        name = rng.choice(sorted(self.known))
        topic = self.known[name]
        number = rng.randrange(len(topic.partitions))
        partition = topic.partitions[number]
        getattr(self, f"_{action}")(name, topic, number, partition)

    def _records(self, partition: Partition, producer: int | None = None) -> None:
        rng = self.rng
        count = rng.choice((1, 1, 2, 5))
        records = [
            Record(
                partition.end + i,
                self.now + rng.randint(-300, 300),
                0,
                b"k%d" % rng.randint(0, 4),
                rng.randbytes(rng.choice((0, 20, 200))),
            )
            for i in range(count)
        ]
        kind: dict[str, Any] = {} if producer is None else {"producer": Producer(producer, 0, 0), "is_transactional": True}
        partition.append(build_batch_v2(records, leader_epoch=partition.epoch, **kind))

    def _produce(self, name: str, topic: Topic, number: int, partition: Partition) -> None:
        self._records(partition)

    def _begin(self, name: str, topic: Topic, number: int, partition: Partition) -> None:
        producer = self.rng.randint(1, 3)
        current = next((one for one in self.transactions if one.producer == producer and not self._is_over(one)), None)
        if current is None:
            current = Transaction(producer)
            self.transactions.append(current)
        if current.is_ending:
            return
        current.places.setdefault((name, number), topic.topic_id)
        partition.open.setdefault(producer, partition.end)
        self._records(partition, producer)

    def _end(self, name: str, topic: Topic, number: int, partition: Partition) -> None:
        running = [one for one in self.transactions if not one.is_ending and one.places]
        if running:
            one = self.rng.choice(running)
            one.is_ending, one.kind = True, self.rng.choice((ControlType.COMMIT, ControlType.ABORT))

    def _marker(self, name: str, topic: Topic, number: int, partition: Partition) -> None:
        waiting = [(one, place) for one in self.transactions if one.is_ending for place in one.places if place not in one.markers]
        if waiting:
            one, place = self.rng.choice(waiting)
            self._write_marker(one, place)

    def _write_marker(self, one: Transaction, place: tuple[str, int]) -> None:
        topic = self.known.get(place[0])
        if topic is None or topic.topic_id != one.places[place]:
            one.markers[place] = -1
            return
        partition = topic.partitions[place[1]]
        producer = Producer(one.producer, 0, -1)
        one.markers[place] = partition.end
        partition.append(build_end_txn_marker(partition.end, self.now, one.kind, producer, leader_epoch=partition.epoch))
        partition.open.pop(one.producer, None)

    def _is_over(self, one: Transaction) -> bool:
        return one.is_ending and one.markers.keys() == one.places.keys()

    def _retention(self, name: str, topic: Topic, number: int, partition: Partition) -> None:
        if partition.stable > partition.log_start:
            partition.log_start = self.rng.randint(partition.log_start + 1, partition.stable)
            partition.batches = [one for one in partition.batches if one.next > partition.log_start]

    def _compact(self, name: str, topic: Topic, number: int, partition: Partition) -> None:
        # A marker stays for delete.retention.ms after its records are gone.
        kept = [
            one
            for one in partition.batches[:-1]
            if one.next > partition.stable or read_header(one.data).is_control or self.rng.random() < 0.6
        ]
        partition.batches = [*kept, *partition.batches[-1:]]

    def _truncate(self, name: str, topic: Topic, number: int, partition: Partition) -> None:
        if partition.open or len(partition.batches) < 2:
            return
        lost = partition.batches[-self.rng.randint(1, len(partition.batches) - 1) :]
        if any(read_header(one.data).is_transactional for one in lost):
            return
        partition.batches = partition.batches[: -len(lost)]
        partition._end = partition.end
        partition.written -= {one.data for one in lost}
        partition.epoch_ends[partition.epoch] = partition.end
        for epoch, end in partition.epoch_ends.items():
            partition.epoch_ends[epoch] = min(end, partition.end)
        partition.epoch += 1
        partition.was_truncated = True

    def _add(self, name: str, topic: Topic, number: int, partition: Partition) -> None:
        if len(topic.partitions) < 5:
            topic.partitions.append(Partition())

    def _recreate(self, name: str, topic: Topic, number: int, partition: Partition) -> None:
        for one in self.transactions:
            for place, topic_id in one.places.items():
                if topic_id == topic.topic_id:
                    one.markers.setdefault(place, -1)
        del self.known[name]
        if self.rng.random() < 0.8:
            self.create(name)
        if not self.known:
            self.create("a")

    def _settings(self, name: str, topic: Topic, number: int, partition: Partition) -> None:
        topic.settings["retention.ms"] = str(self.rng.randint(1, 9))

    # --- CaptureSource

    def cluster_id(self) -> str | None:
        return "model"

    def topics(self) -> dict[str, SourceTopic]:
        return {
            name: SourceTopic(name, topic.topic_id, False, 1, tuple(range(len(topic.partitions))))
            for name, topic in self.known.items()
        }

    def settings(self, topics: Collection[str]) -> tuple[dict[str, dict[str, str]], list[Failed]]:
        return {name: dict(self.known[name].settings) for name in topics if name in self.known}, []

    def _happens(self) -> None:
        """Something that a cluster does between two requests. Topics stay, so that the model knows what is compared."""
        if self.is_busy and self.rng.random() < 0.3:
            name = self.rng.choice(sorted(self.known))
            topic = self.known[name]
            number = self.rng.randrange(len(topic.partitions))
            action = self.rng.choice((self._begin, self._begin, self._end, self._marker, self._marker, self._produce))
            action(name, topic, number, topic.partitions[number])

    def ends(self, keys: Collection[TopicPartition]) -> tuple[dict[TopicPartition, SourceEnds], dict[TopicPartition, Failed]]:
        failed = {key: Failed(f"{key.topic}-{key.partition}", BrokerUnreachableError("away")) for key in keys if key in self.away}
        stable: dict[TopicPartition, int] = {}
        found: dict[TopicPartition, SourceEnds] = {}
        for key in keys:
            if key not in failed:
                self._happens()
                stable[key] = self.partition(key).stable
        for key, offset in stable.items():
            self._happens()
            one = self.partition(key)
            found[key] = SourceEnds(one.log_start, offset, one.end, one.epoch)
        return found, failed

    def missing(self, keys: Collection[TopicPartition]) -> list[Failed]:
        return []

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = {}
        for key, epoch in epochs.items():
            one = self.partition(key)
            found[key] = one.epoch_ends.get(epoch, one.end)
        return found

    def read(self, key: TopicPartition, start_offset: int, end_offset: int) -> Iterator[FoundBatch]:
        one = self.partition(key)
        if start_offset < one.log_start:
            raise OffsetOutOfRangeError("gone", found=start_offset, expected=one.log_start)
        for batch in list(one.batches):
            if batch.next > start_offset and batch.base < end_offset:
                self._happens()
                yield FoundBatch(read_header(batch.data), memoryview(batch.data), False)

    def rights(self) -> dict[str, Any]:
        return {"acls": [], "not_described": {}}

    def close(self) -> None:
        pass

    def partition(self, key: TopicPartition) -> Partition:
        return self.known[key.topic].partitions[key.partition]
