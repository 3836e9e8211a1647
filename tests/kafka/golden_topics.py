"""What the golden topics hold: how each is configured and filled, for each Kafka release.

`plans(release)` gives, in order, name → function. Each function creates its topic on a running broker and fills it; some
stop and start the broker on the way, so that a changed configuration surely holds (Kafka 2.4.1 gives no sign of when).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer, TopicPartition

from tests.kafka.clients import NewRow, watermarks
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.kafka.brokers import Kafka241, Kafka391

DAY_MS = 86_400_000
FIRST_TIMESTAMP_MS = 1_600_000_000_000

# Small segments and full indexes from little data.
BASE = {"segment.bytes": "16384", "index.interval.bytes": "512", "segment.index.bytes": "1200", "retention.ms": "-1"}
CODECS = ("none", "gzip", "snappy", "lz4")
TIMESTAMP_TYPES = {"ct": "CreateTime", "lat": "LogAppendTime"}

Plan = Callable[["Filler", str], None]


class Filler:
    """A broker, a source of chance, and the means to fill topics from both."""

    def __init__(self, broker: Kafka391 | Kafka241, seed: int) -> None:
        self.broker = broker
        self.seed = seed
        self.random = random.Random(seed)
        self.begin_ms = FIRST_TIMESTAMP_MS + seed * DAY_MS

    def create(self, topic: str, partitions: int = 1, **settings: object) -> None:
        self.broker.create_topic(topic, partitions, BASE, **settings)

    def rows(self, count: int, *, disorder: bool = True, headers: bool = True, null_keys: bool = True) -> Iterator[NewRow]:
        """Yield records whose time goes on by nothing to a second; with `disorder`, one in six is late and a few are early."""
        chance = self.random
        clock_ms = self.begin_ms
        for _ in range(count):
            clock_ms += chance.choice((0, 1, 3, 10, 1000))
            timestamp = clock_ms
            if disorder:
                draw = chance.random()
                if draw < 0.03:
                    timestamp += chance.randrange(1, 60_000)
                elif draw < 0.18:
                    timestamp -= chance.randrange(1, 20_000)
            key = None if null_keys and chance.random() < 0.1 else b"k%d" % chance.randrange(20)
            value = None if chance.random() < 0.05 else bytes(chance.choices(b"abcdefgh ", k=chance.randrange(120)))
            pairs: list[tuple[str, bytes | None]] = []
            if headers and chance.random() < 0.3:
                pairs = [
                    (f"h{n}", None if chance.random() < 0.2 else b"x" * chance.randrange(9))
                    for n in range(chance.randrange(1, 3))
                ]
            yield NewRow(key, value, timestamp, pairs)

    def fill(
        self,
        topic: str,
        count: int,
        codec: str = "none",
        partition: int = 0,
        *,
        settings: dict[str, object] | None = None,
        **shape: object,
    ) -> None:
        """Produce records in batches of one to eight."""
        rows = list(self.rows(count, **shape))  # type: ignore[arg-type]
        producer = self.producer(**{"compression_type": codec} | (settings or {}))
        position = 0
        while position < count:
            size = self.random.choice((1, 2, 3, 8, 20))
            send(producer, topic, rows[position : position + size], partition)
            position += size

    def producer(self, **settings: object) -> Producer:
        config: dict[str, object] = {
            "bootstrap.servers": self.broker.bootstrap,
            "linger.ms": 5,
            "batch.num.messages": 8,
            "log_level": 0,
        }
        return Producer(config | {key.replace("_", "."): value for key, value in settings.items()})

    def restart(self) -> None:
        self.broker.stop()
        self.broker.start()


def segment_logs(broker: Kafka391 | Kafka241, topic: str, partition: int = 0) -> list[Path]:
    """Return a partition's .log files in order."""
    return sorted(broker.partition_folder(topic, partition).glob("*.log"))


def send(producer: Producer, topic: str, rows: list[NewRow], partition: int = 0) -> None:
    """Produce these and wait for their acknowledgement."""
    failed: list[object] = []
    for row in rows:
        producer.produce(
            topic,
            row.value,
            row.key,
            partition,
            timestamp=row.timestamp,
            headers=list(row.headers) or None,
            on_delivery=lambda error, _message: failed.append(error) if error else None,
        )
    if producer.flush(PATIENCE_S) or failed:
        raise RuntimeError(f"{topic}-{partition} refused records: {failed[:3]}")


def plans(release: str) -> dict[str, Plan]:
    """Return name → plan of a release's topics."""
    if release == "3.9.1":
        return _plans_391()
    return _plans_241()


# -- Kafka 3.9.1: format v2 ------------------------------------------------------------


def _plans_391() -> dict[str, Plan]:
    topics: dict[str, Plan] = {}
    for codec in (*CODECS, "zstd"):
        for short, timestamp_type in TIMESTAMP_TYPES.items():
            topics[f"v2-{codec}-{short}"] = _plain(
                codec, 900 if codec == "none" else 1500, True, message_timestamp_type=timestamp_type
            )
    topics["recompressed-lz4"] = _plain("gzip", 500, True, compression_type="lz4")
    return topics | {
        "two-partitions": _two_partitions,
        "empty": lambda filler, topic: filler.create(topic),
        "future-pinned": _future_pinned,
        "deleted-prefix": _deleted_prefix,
        "compacted": _compacted,
        "transactions": _transactions,
        "idempotent": _idempotent,
    }


def _plain(codec: str, count: int, headers: bool, **settings: object) -> Plan:
    def plan(filler: Filler, topic: str) -> None:
        filler.create(topic, 1, **settings)
        filler.fill(topic, count, codec, headers=headers)

    return plan


def _two_partitions(filler: Filler, topic: str) -> None:
    filler.create(topic, 2)
    filler.fill(topic, 200, partition=0)
    filler.fill(topic, 300, "lz4", partition=1)


def _future_pinned(filler: Filler, topic: str) -> None:
    """One record ten years ahead: every later one is below the largest timestamp."""
    filler.create(topic)
    filler.fill(topic, 150, disorder=False)
    send(filler.producer(), topic, [NewRow(b"k", b"from the future", filler.begin_ms + 3650 * DAY_MS)])
    filler.fill(topic, 150, disorder=False)


def _deleted_prefix(filler: Filler, topic: str) -> None:
    """The log start lies inside a segment."""
    filler.create(topic)
    filler.fill(topic, 600)
    place = TopicPartition(topic, 0, 333)
    filler.broker.admin.delete_records([place])[place].result(PATIENCE_S)


def _compacted(filler: Filler, topic: str) -> None:
    filler.create(
        topic,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="1000",
        delete_retention_ms="0",
        max_compaction_lag_ms="1000",
    )
    filler.fill(topic, 900, headers=False, null_keys=False)  # a compacted topic takes no record without a key
    # A batch far ahead in time rolls the segment, so that all before it can be compacted.
    send(filler.producer(), topic, [NewRow(b"k-tail", b"tail", filler.begin_ms + 10**8)])
    checkpoint = filler.broker.data / "cleaner-offset-checkpoint"
    wait_until(lambda: checkpoint.exists() and f"{topic} 0 900" in checkpoint.read_text(), f"the compaction of {topic}")


def _transactions(filler: Filler, topic: str) -> None:
    filler.create(topic)
    chance = filler.random
    producers = [filler.producer(transactional_id=f"writer-{n}-{filler.seed}", batch_num_messages=100) for n in range(3)]
    for producer in producers:
        producer.init_transactions(PATIENCE_S)

    def end(producer: Producer, commit: bool) -> None:
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)

    for turn in range(24):
        producer = producers[turn % 3]
        producer.begin_transaction()
        send(producer, topic, list(filler.rows(chance.randrange(1, 9))))
        end(producer, commit=chance.random() < 0.5)
        if chance.random() < 0.4:
            filler.fill(topic, 3)
    for turn in range(6):  # two transactions open at once
        first, second = producers[:2]
        for producer in (first, second):
            producer.begin_transaction()
            send(producer, topic, list(filler.rows(4, headers=False)))
        end(first, commit=turn % 2 == 1)
        end(second, commit=turn % 3 == 0)


def _idempotent(filler: Filler, topic: str) -> None:
    filler.create(topic)
    filler.fill(topic, 600, "zstd", settings={"enable.idempotence": True})


# -- Kafka 2.4.1: formats v0, v1, v2 ------------------------------------------------------------

FORMATS = {"v0": "0.9.0", "v1": "0.10.2", "v2": "2.4"}


def _plans_241() -> dict[str, Plan]:
    topics: dict[str, Plan] = {}
    for short_format, version in FORMATS.items():
        for codec in CODECS:
            for short, timestamp_type in TIMESTAMP_TYPES.items():
                settings = {"message_format_version": version, "message_timestamp_type": timestamp_type}
                topics[f"{short_format}-{codec}-{short}"] = _plain(codec, 600, False, **settings)
    return topics | {
        "migrated-v0-v1-v2": _migrated,
        "raised-v0-v1": _raised("v1", "none"),
        "raised-v0-v2-lz4": _raised("v2", "lz4"),
        "raised-unused": _raised_unused,
        "lowered-v1-v0": _lowered,
    }


def _migrated(filler: Filler, topic: str) -> None:
    """The format is raised twice, in the middle of segments."""
    filler.create(topic, message_format_version=FORMATS["v0"])
    filler.fill(topic, 200, headers=False)
    for short_format, codec in (("v1", "none"), ("v2", "lz4")):
        filler.broker.alter_topic(topic, {"message.format.version": FORMATS[short_format]})
        filler.restart()
        filler.fill(topic, 200, codec, headers=False)


def _raised(short_format: str, codec: str) -> Plan:
    """Segments of v0 alone, then segments in which every record has its timestamp; no segment holds both.

    The file times of the v0 segments then lie among those timestamps: Kafka takes a segment without timestamps for one that
    ends at its file time, so it answers "none" for a target up to there, and rightly for one behind.
    """

    def plan(filler: Filler, topic: str) -> None:
        broker = filler.broker
        filler.create(topic, message_format_version=FORMATS["v0"])
        filler.fill(topic, 450, codec, headers=False)
        high_watermark = watermarks(broker.bootstrap, topic)[1]
        # A segment older than a millisecond: the first batch in the new format goes to a new segment ...
        broker.alter_topic(topic, {"message.format.version": FORMATS[short_format], "segment.ms": "1"})
        filler.restart()
        send(filler.producer(), topic, [NewRow(b"first", b"with a timestamp", filler.begin_ms)])
        if not (broker.partition_folder(topic) / f"{high_watermark:020}.log").exists():
            raise RuntimeError(f"{topic}: no segment begins at {high_watermark}")
        # ... and those after it are rolled by size alone again.
        broker.alter_topic(topic, {"segment.ms": None})
        filler.restart()
        filler.fill(topic, 450, codec, headers=False)
        minutes = (0.25, 0.75, 0.5)
        for segment, late in zip(segment_logs(broker, topic), minutes, strict=False):
            if int(segment.stem) < high_watermark:
                modified_ms = filler.begin_ms + int(late * 60_000)
                os.utime(segment, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    return plan


def _raised_unused(filler: Filler, topic: str) -> None:
    """The format is raised, but nothing was written since: the topic's format and that of its last batch differ."""
    filler.create(topic, message_format_version=FORMATS["v0"])
    filler.fill(topic, 200, headers=False)
    filler.broker.alter_topic(topic, {"message.format.version": FORMATS["v1"]})
    filler.restart()


def _lowered(filler: Filler, topic: str) -> None:
    """Timestamped records first, then v0: the broker refuses to search by time, although most records have one."""
    filler.create(topic, message_format_version=FORMATS["v1"])
    filler.fill(topic, 300, headers=False)
    filler.broker.alter_topic(topic, {"message.format.version": FORMATS["v0"]})
    filler.restart()
    filler.fill(topic, 100, headers=False)
