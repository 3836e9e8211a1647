"""Topics that grow while streams read them, and their content according to a plain consumer (librdkafka).

Records come in random batches with random codecs and unordered timestamps, some in transactions that are committed, aborted, or
left open for a while. `settle` waits until the folder's checkpoint has the broker's high watermarks, where a stream from the
folder ends.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec  # type: ignore[attr-defined]

from tests.interop.spark_program import written
from tests.kafka.clients import (
    NewRow,
    consume,
    create_topics,
    flush,
    produce,
    wait_for_leaders,
    wait_until_ended,
)
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.reader.log_dir import LogDir

BEGIN_MS = 1_600_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {"segment.bytes": "16384", "index.interval.bytes": "512", "retention.ms": "-1"}


class Seen(NamedTuple):
    """A record as a stream delivers it; the timestamp in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class GrowingTopics:
    """Random, growing topics of one broker."""

    def __init__(self, bootstrap: str, data: Path, seed: int) -> None:
        self.bootstrap = bootstrap
        self.data = data
        self.chance = random.Random(seed)
        self.partitions: dict[str, int] = {}
        self._clock_ms = BEGIN_MS
        self._open: list[tuple[str, Producer]] = []

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        given = SETTINGS | {name.replace("_", "."): value for name, value in settings.items()}
        create_topics(self.bootstrap, {topic: given}, partitions)
        self.partitions[topic] = partitions

    def add_partition(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.partitions[topic] += 1
        admin.create_partitions([NewPartitions(topic, self.partitions[topic])])[topic].result(PATIENCE_S)
        wait_for_leaders(self.bootstrap, {topic: self.partitions[topic]})

    def grow(self, count: int, topics: list[str] | None = None) -> None:
        """Add about this many records, spread randomly over all partitions."""
        keys = [(topic, p) for topic in topics or self.partitions for p in range(self.partitions[topic])]
        while count > 0:
            topic, partition = self.chance.choice(keys)
            size = min(count, self.chance.choice((1, 5, 40, 120)))
            count -= size
            codec, batch_records = self.chance.choice(CODECS), self.chance.choice((1, 7, 50))
            rows = self._rows(size)
            produce(self.bootstrap, topic, rows, partition, batch_records=batch_records, compression_type=codec)

    def transact(self, topic: str, count: int, end: str) -> None:
        """Add records in a transaction that is committed, aborted, or left open until `commit_open`."""
        name = f"{topic}-{self.chance.getrandbits(60)}"
        config = {
            "bootstrap.servers": self.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
        producer = Producer(config)
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for row in self._rows(count):
            partition = self.chance.randrange(self.partitions[topic])
            producer.produce(topic, row.value, row.key, partition, timestamp=row.timestamp, headers=list(row.headers))
        flush(producer)
        if end == "open":
            self._open.append((name, producer))
        else:
            (producer.commit_transaction if end == "commit" else producer.abort_transaction)(PATIENCE_S)
            wait_until_ended(self.bootstrap, name)

    def commit_open(self) -> None:
        while self._open:
            name, producer = self._open.pop()
            producer.commit_transaction(PATIENCE_S)
            wait_until_ended(self.bootstrap, name)

    def settle(self) -> None:
        """Wait until the folder's checkpoints have the broker's log ends."""

        def settled() -> bool:
            marks = LogDir(self.data).high_watermarks
            return all(marks.get(key) == end for key, end in self.ends().items())

        wait_until(settled, "the high-watermark checkpoint")

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the high watermarks."""
        keys = [TopicPartition(topic, partition) for topic, count in self.partitions.items() for partition in range(count)]
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        asked = admin.list_offsets({key: OffsetSpec.latest() for key in keys}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return {(key.topic, key.partition): found.result(PATIENCE_S).offset for key, found in asked.items()}

    def rows(self, topic: str, *, isolation: str = "read_uncommitted") -> list[Seen]:
        """Return the records that a consumer receives, ordered by partition and offset."""
        return [
            Seen(topic, partition, row.offset, row.timestamp, row.timestamp_type - 1, row.key, row.value, row.headers)
            for partition in range(self.partitions[topic])
            for row in consume(self.bootstrap, topic, partition, isolation=isolation)
        ]

    def _rows(self, count: int) -> Iterator[NewRow]:
        chance = self.chance
        for _ in range(count):
            self._clock_ms += chance.choice((0, 1, 10, 1000))
            late = chance.randrange(60_000) if chance.random() < 0.2 else 0
            early = chance.randrange(30_000) if chance.random() < 0.05 else 0
            headers = [("h", None if chance.random() < 0.2 else b"%d" % chance.randrange(99))] if chance.random() < 0.3 else []
            key = None if chance.random() < 0.1 else b"k%d" % chance.randrange(20)
            value = None if chance.random() < 0.05 else chance.randbytes(chance.randrange(80))
            yield NewRow(key, value, self._clock_ms - late + early, headers)


def seen(sink: Path) -> list[Seen]:
    """Return a stream's output batch by batch, each ordered by topic, partition and offset."""
    return [row for table in written(sink).values() for row in seen_rows(table)]


def seen_rows(table: pa.Table) -> list[Seen]:
    at = table.column_names.index("timestamp")
    return [
        Seen(
            row["topic"],
            row["partition"],
            row["offset"],
            None if row["timestamp"] is None else row["timestamp"] // 1000,
            row["timestampType"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row.get("headers") or ()),
        )
        for row in table.set_column(at, "timestamp", table["timestamp"].cast("int64")).to_pylist()
    ]
