"""Topics written by Tidelog's engine, with everything that it can leave in a folder for Kafka.

| for Kafka | topics |
|---|---|
| 3.9.1 | every codec, either timestamp type (the clock jumps back), idempotent and transactional producers, a deleted prefix, |
|       | what retention leaves, compaction, preallocation, truncation, gaps, segments rolled by time, logs without records |
| 2.4.1 | v0 and v1 with every codec that they know, sent as they are and as v2; all three in one log; v2 with producers |

Timestamps start an hour ago, because Kafka expires producers after a day. `engine_writer` writes the topics.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from tidelog.clock import ManualClock
from tidelog.model import EARLIEST, LATEST, MAX_TIMESTAMP
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import NO_PRODUCER, Producer, build_batch_v2, build_end_txn_marker
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record
from tidelog.records.validation import AppendOrigin
from tidelog.storage.partition.append.append_info import AppendInfo
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.producers.producer_ids import ProducerIds

HOUR_MS = 3_600_000
BASE = {"segment.bytes": "6000", "index.interval.bytes": "512", "segment.index.bytes": "1200", "retention.ms": "-1"}
LEGACY_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "2.4"}


class Sent(NamedTuple):
    """The last batch of an idempotent producer: its sent bytes, its place, and the next sequence number."""

    producer: Producer
    records: int
    data: bytes
    base_offset: int

    @property
    def next_sequence(self) -> int:
        return self.producer.base_sequence + self.records


class Filler:
    """Appends to one log. Timestamps advance by up to a second per record; one in six is late, a few are early."""

    def __init__(self, log: PartitionLog, clock: ManualClock, ids: ProducerIds, begin_ms: int) -> None:
        self.log = log
        self.clock = clock
        self.ids = ids
        self.chance = random.Random(log.topic_partition.topic)
        self.time_ms = begin_ms
        self.epoch = 0
        self.sent: Sent | None = None
        self._sequences: dict[int, int] = {}

    def records(self, count: int, *, headers: bool = True, null_keys: bool = True) -> list[Record]:
        chance, found = self.chance, []
        for i in range(count):
            self.time_ms += chance.choice((0, 1, 3, 10, 1000))
            draw = chance.random()
            late = chance.randrange(1, 60_000) if draw < 0.03 else -chance.randrange(1, 20_000) if draw < 0.18 else 0
            key = None if null_keys and chance.random() < 0.1 else b"k%d" % chance.randrange(20)
            value = None if chance.random() < 0.05 else b"%d " % self.time_ms + b"x" * chance.randrange(90)
            pairs = (("n", b"%d" % i), ("none", None)) if headers and chance.random() < 0.3 else ()
            found.append(Record(i, self.time_ms + late, CREATE_TIME, key, value, pairs))
        return found

    def append(
        self,
        codec: Codec = Codec.NONE,
        *,
        producer_id: int = -1,
        transactional: bool = False,
        headers: bool = True,
        null_keys: bool = True,
    ) -> AppendInfo:
        """Append a batch of one to twelve records."""
        records = self.records(self.chance.randint(1, 12), headers=headers, null_keys=null_keys)
        producer = NO_PRODUCER
        if producer_id >= 0:
            sequence = self._sequences.get(producer_id, 0)
            producer = Producer(producer_id, 0, sequence)
            self._sequences[producer_id] = sequence + len(records)
        data = build_batch_v2(records, codec=codec, producer=producer, is_transactional=transactional)
        sent = bytes(data)
        info = self.log.append_as_leader(data, self.epoch)
        if producer_id >= 0 and not transactional:
            self.sent = Sent(producer, len(records), sent, info.first_offset)
        return info

    def append_messages(self, magic: int, codec: Codec) -> AppendInfo:
        """Append a set of v0 or v1 messages."""
        records = self.records(self.chance.randint(1, 12), headers=False)
        return self.log.append_as_leader(build_message_set(records, magic, codec=codec), self.epoch)

    def end(self, producer_id: int, kind: ControlType) -> None:
        """End a transaction."""
        marker = build_end_txn_marker(0, self.time_ms, kind, Producer(producer_id, 0, -1))
        self.log.append_as_leader(marker, self.epoch, origin=AppendOrigin.COORDINATOR)

    def all_replicated(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)


Plan = Callable[[Filler], None]


class Topic(NamedTuple):
    """How a topic is configured, here and (`at_kafka` besides) in Kafka, how it is written, what Kafka is asked of it.

    No `targets`: whatever comes to mind, but what the release does not know.
    """

    settings: dict[str, str]
    write: Plan
    at_kafka: Mapping[str, str] = MappingProxyType({})
    targets: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()

    @property
    def kafka_settings(self) -> dict[str, str]:
        return self.settings | dict(self.at_kafka)


def topics(release: str) -> dict[str, Topic]:
    """Return the topics for a release of Kafka, by name."""
    return _topics_391() if release == "3.9.1" else _topics_241()


# --- Kafka 3.9.1


def _topics_391() -> dict[str, Topic]:
    found = {f"ct-{codec.name.lower()}": _topic(_plain(codec)) for codec in Codec}
    found |= {
        f"lat-{codec.name.lower()}": _topic(_by_append_time(codec), message_timestamp_type="LogAppendTime") for codec in Codec
    }
    return found | {
        "recompressed": _topic(_plain(Codec.GZIP), compression_type="lz4"),
        "preallocated": _topic(_plain(Codec.NONE), preallocate="true"),
        "idempotent": _topic(_idempotent),
        "transactions": _topic(_transactions),
        "open-transaction": _topic(_open_transaction),
        "deleted-prefix": _topic(_deleted_prefix),
        "retained": _topic(_retained, {"retention.bytes": "-1"}, retention_bytes="8000"),
        "compacted": _topic(
            _compacted, {"min.cleanable.dirty.ratio": "1.0"}, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01"
        ),
        "truncated": _topic(_truncated),
        "started-late": _topic(_started_late),
        "gaps": _topic(_gaps),
        "rolled-by-time": _topic(_plain(Codec.NONE), segment_ms="20000", segment_jitter_ms="5000"),
        "just-rolled": _topic(_just_rolled),
        "emptied": _topic(_emptied),
        "empty": _topic(lambda _: None),
        "empty-preallocated": _topic(lambda _: None, preallocate="true"),
    }


def _topic(write: Plan, at_kafka: dict[str, str] | None = None, **settings: str) -> Topic:
    return Topic(BASE | {name.replace("_", "."): value for name, value in settings.items()}, write, at_kafka or {})


def _plain(codec: Codec, batches: int = 40) -> Plan:
    def write(filler: Filler) -> None:
        for _ in range(batches):
            filler.append(codec)

    return write


def _by_append_time(codec: Codec) -> Plan:
    def write(filler: Filler) -> None:
        for turn in range(40):
            filler.clock.advance(-30_000 if turn % 20 == 10 else filler.chance.choice((0, 1, 700)))
            filler.append(codec)

    return write


def _idempotent(filler: Filler) -> None:
    producers = [filler.ids.next_id() for _ in range(3)]
    for turn in range(40):
        filler.append(Codec.ZSTD if turn % 4 else Codec.NONE, producer_id=producers[turn * turn % 3])
        if turn == 15:
            filler.log.flush()


def _transactions(filler: Filler) -> None:
    chance, producers, open_ones = filler.chance, [filler.ids.next_id() for _ in range(3)], set()
    for _ in range(60):
        producer_id = chance.choice(producers)
        if producer_id in open_ones and chance.random() < 0.5:
            filler.end(producer_id, chance.choice((ControlType.ABORT, ControlType.COMMIT)))
            open_ones.discard(producer_id)
        elif chance.random() < 0.2:
            filler.append(Codec.LZ4)
        else:
            filler.append(producer_id=producer_id, transactional=True)
            open_ones.add(producer_id)
    for producer_id in sorted(open_ones):
        filler.end(producer_id, ControlType.ABORT)


def _open_transaction(filler: Filler) -> None:
    _transactions(filler)
    filler.append(producer_id=filler.ids.next_id(), transactional=True)
    for _ in range(10):
        filler.append()


def _deleted_prefix(filler: Filler) -> None:
    _plain(Codec.NONE)(filler)
    filler.all_replicated()
    second = filler.log.segments.base_offsets[1]
    filler.log.delete_records(second + 17)
    assert filler.log.delete_old_segments() == 1


def _retained(filler: Filler) -> None:
    _plain(Codec.SNAPPY, 100)(filler)
    filler.all_replicated()
    filler.log.segments.active.flush()
    assert filler.log.delete_old_segments() > 0


def _compacted(filler: Filler) -> None:
    producer_id = filler.ids.next_id()
    for turn in range(90):
        is_transactional = turn % 10 < 3
        filler.append(
            Codec.GZIP if turn % 3 else Codec.NONE,
            producer_id=producer_id if is_transactional else -1,
            transactional=is_transactional,
            null_keys=False,
        )
        if turn % 10 == 2:
            filler.end(producer_id, ControlType.ABORT if turn % 20 > 10 else ControlType.COMMIT)


def _truncated(filler: Filler) -> None:
    log = filler.log
    for epoch in range(3):
        filler.epoch = epoch
        if epoch == 2:
            assert log.truncate_to(log.segments.base_offsets[1] + 40)
        _plain(Codec.NONE, 25)(filler)


def _started_late(filler: Filler) -> None:
    _plain(Codec.NONE, 20)(filler)
    filler.log.truncate_fully_and_start_at(1_000_000)
    _idempotent(filler)


def _gaps(filler: Filler) -> None:
    for turn in range(40):
        first = filler.log.log_end_offset + (turn % 7) * 11
        records = [record._replace(offset=first + record.offset * 2) for record in filler.records(6)]
        filler.log.append_as_follower(build_batch_v2(records, leader_epoch=0))


def _just_rolled(filler: Filler) -> None:
    _idempotent(filler)
    filler.log.roll()


def _emptied(filler: Filler) -> None:
    """Without producers: where a log has nothing left, Kafka's loader forgets them, and so does ours."""
    _plain(Codec.NONE)(filler)
    filler.all_replicated()
    filler.log.delete_records(-1)
    filler.log.roll()
    filler.log.delete_old_segments()
    assert len(filler.log.segments) == 1


# --- Kafka 2.4.1


def _topics_241() -> dict[str, Topic]:
    found = {}
    for magic in (0, 1):
        for codec in LEGACY_CODECS:
            name = f"v{magic}-{codec.name.lower()}"
            found[f"{name}-ct"] = _topic(_messages(magic, codec), message_format_version=FORMATS[magic])
            if magic == 1:
                settings = {"message_format_version": FORMATS[magic], "message_timestamp_type": "LogAppendTime"}
                found[f"{name}-lat"] = _topic(_messages(magic, codec), **settings)
    found |= {
        # On purpose: of a segment without timestamps Kafka believes the file's time, finds nothing there, and looks no further.
        "migrated": _topic(_migrated, message_format_version=FORMATS[2])._replace(targets=(EARLIEST, LATEST)),
        "v1-deleted-prefix": _topic(_deleted_messages, message_format_version=FORMATS[1]),
        "v1-preallocated": _topic(_messages(1, Codec.NONE), message_format_version=FORMATS[1], preallocate="true"),
        "v0-just-rolled": _topic(_rolled_messages, message_format_version=FORMATS[0]),
        "v0-empty": _topic(lambda _: None, message_format_version=FORMATS[0]),
        # Deliberate in Kafka, and the same here: compaction leaves segments without a record.
        "v1-compacted": _topic(
            _compacted_messages,
            {"min.cleanable.dirty.ratio": "1.0"},
            message_format_version=FORMATS[1],
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.01",
        )._replace(targets=(EARLIEST, LATEST)),
        "v2-zstd": _topic(_plain(Codec.ZSTD), message_format_version=FORMATS[2]),
        "v2-idempotent": _topic(_idempotent, message_format_version=FORMATS[2]),
        "v2-transactions": _topic(_transactions, message_format_version=FORMATS[2]),
        "v2-open-transaction": _topic(_open_transaction, message_format_version=FORMATS[2]),
    }
    return {name: topic._replace(unknown=(MAX_TIMESTAMP,)) for name, topic in found.items()}


def _messages(magic: int, codec: Codec) -> Plan:
    """Sets of the topic's own format, of the other old one, and batches of v2: what is not the topic's is converted."""

    def write(filler: Filler) -> None:
        for turn in range(40):
            if magic == 1:
                filler.clock.advance(-30_000 if turn % 20 == 10 else filler.chance.choice((0, 1, 700)))
            if turn % 3 == 0:
                filler.append(codec, headers=False)
            else:
                filler.append_messages(magic if turn % 3 == 1 else 1 - magic, codec)

    return write


def _rolled_messages(filler: Filler) -> None:
    _messages(0, Codec.NONE)(filler)
    filler.log.roll()


def _deleted_messages(filler: Filler) -> None:
    _messages(1, Codec.GZIP)(filler)
    filler.all_replicated()
    filler.log.delete_records(100)
    filler.log.delete_old_segments()


def _compacted_messages(filler: Filler) -> None:
    for turn in range(100):
        filler.append(LEGACY_CODECS[turn % 4], headers=False, null_keys=False)


def _migrated(filler: Filler) -> None:
    """The format is raised twice, in the middle of segments, with offset gaps."""
    config = filler.log.config
    for magic in (0, 1):
        filler.log.update_config(replace(config, message_format_version=FORMATS[magic]))
        _messages(magic, Codec.GZIP)(filler)
    filler.log.update_config(config)
    _plain(Codec.LZ4, 40)(filler)
