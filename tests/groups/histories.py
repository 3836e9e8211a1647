"""Random histories of ``__consumer_offsets``, as batches, and what Kafka's coordinator makes of them, worked out the slow way."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import NamedTuple

from tests.storage.compacting import clean_twice, make_cleaner
from tidelog.clock import ManualClock
from tidelog.config import PropertyValue
from tidelog.groups.group_table import StoredGroup
from tidelog.model import OFFSETS_TOPIC, TopicPartition
from tidelog.records.batch import CREATE_TIME, iter_headers
from tidelog.records.builder import NO_PRODUCER, Producer, build_batch_v2, build_end_txn_marker
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.records import Record, iter_records
from tidelog.storage.log_manager import LogManager
from tidelog.wire.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.versioned import decode_versioned, encode_versioned, version_of

PLACES = [TopicPartition("events", 0), TopicPartition("events", 1)]
PLAIN = -1
NOW_MS = 1_373_414_400_000


class Write(NamedTuple):
    """A record of a batch: an offset that a group commits, None to delete it; without a place the group itself, or its end."""

    group: str
    place: TopicPartition | None
    offset: int | None


class Event(NamedTuple):
    """A batch: of a producer's transaction, or of none; or its end."""

    producer_id: int
    writes: tuple[Write, ...]
    marker: ControlType | None = None
    bumps_epoch: bool = False
    """Whether it is the marker by which a coordinator fences the producer: in the next epoch."""


def random_history(
    chance: random.Random, groups: list[str], length: int, producers: int = 3, *, deletes_in_transactions: bool = True
) -> list[Event]:
    """Return what groups and producers might do, in any order; each offset is another number."""
    numbers = iter(range(1, 1 << 30))

    def writes(may_delete: bool) -> tuple[Write, ...]:
        group = chance.choice(groups)
        places = chance.sample(PLACES, chance.randint(1, len(PLACES)))
        return tuple(Write(group, one, None if may_delete and chance.random() < 0.5 else next(numbers)) for one in places)

    def one() -> Event:
        kind = chance.random()
        producer_id = chance.randrange(producers)
        if kind < 0.2:
            return Event(PLAIN, writes(False))
        if kind < 0.35:
            return Event(PLAIN, writes(True))
        if kind < 0.6:
            return Event(producer_id, writes(deletes_in_transactions and chance.random() < 0.2))
        if kind < 0.9:
            end = chance.choice([ControlType.COMMIT, ControlType.COMMIT, ControlType.ABORT])
            return Event(producer_id, (), end, chance.random() < 0.2)
        return Event(PLAIN, (Write(chance.choice(groups), None, chance.choice([None, next(numbers)])),))

    return [one() for _ in range(length)]


def batches(history: Iterable[Event], now_ms: int, first_producer_id: int = 1000) -> list[bytearray]:
    """Return a history's batches, one after the other from offset 0."""
    found: list[bytearray] = []
    at = 0
    epochs: dict[int, int] = {}
    sequences: dict[int, int] = {}
    for event in history:
        producer_id = event.producer_id
        if event.marker is not None:
            if event.bumps_epoch:
                epochs[producer_id] = epochs.get(producer_id, 0) + 1
                sequences.pop(producer_id, None)
            producer = Producer(first_producer_id + producer_id, epochs.get(producer_id, 0), -1)
            found.append(build_end_txn_marker(at, now_ms, event.marker, producer, leader_epoch=0))
            at += 1
            continue
        producer = NO_PRODUCER
        if producer_id != PLAIN:
            sequence = sequences.get(producer_id, 0)
            sequences[producer_id] = sequence + len(event.writes)
            producer = Producer(first_producer_id + producer_id, epochs.get(producer_id, 0), sequence)
        records = [Record(at + n, now_ms, CREATE_TIME, *entry(write, now_ms)) for n, write in enumerate(event.writes)]
        found.append(build_batch_v2(records, producer=producer, is_transactional=producer_id != PLAIN, leader_epoch=0))
        at += len(records)
    return found


def entry(write: Write, now_ms: int) -> tuple[bytes, bytes | None]:
    """Return a write's key and value."""
    if write.place is None:
        key = encode_versioned(GroupMetadataKey(write.group), 2)
        value = GroupMetadataValue("consumer", write.offset or 0, None, None, now_ms)
        return key, None if write.offset is None else encode_versioned(value, 3)
    key = encode_versioned(OffsetCommitKey(write.group, *write.place), 1)
    return key, None if write.offset is None else encode_versioned(OffsetCommitValue(write.offset, -1, "", now_ms), 3)


class Known(NamedTuple):
    """What a coordinator knows of groups: by group and place what is committed, which places an open transaction has written;
    of which groups there is a record.
    """

    committed: dict[tuple[str, TopicPartition], int]
    pending: set[tuple[str, TopicPartition]]
    joined: set[str]

    @property
    def groups(self) -> set[str]:
        return {group for group, _ in (*self.committed, *self.pending)} | self.joined


def model(history: list[Event]) -> Known:
    """Work out what Kafka 3.9.1's coordinator knows once it has loaded a history, each key and group on its own."""
    result = Known({}, set(), set())
    keys = {(write.group, write.place) for event in history for write in event.writes}
    everything = history
    for group, place in keys:
        writes = [[write for write in event.writes if (write.group, write.place) == (group, place)] for event in everything]
        producers = {event.producer_id for event, found in zip(everything, writes, strict=True) if found} - {PLAIN}
        counts = [
            bool(found) or (event.marker is not None and event.producer_id in producers)
            for event, found in zip(everything, writes, strict=True)
        ]
        history, mine = list(compress(everything, counts)), list(compress(writes, counts))
        if place is None:
            (*_, last) = [write for writes in mine for write in writes]
            if last.offset is not None:
                result.joined.add(group)
            continue
        found: tuple[int, int] | None = None  # The index of its event, and what it committed.
        for at, event in enumerate(history):
            if event.producer_id == PLAIN:
                for write in mine[at]:
                    found = None if write.offset is None else (at, write.offset)
            elif event.marker is ControlType.COMMIT:
                theirs = _open(history, mine, event.producer_id, at)
                if theirs is not None and (found is None or found[0] < theirs[0]):
                    found = theirs
        if found is not None:
            result.committed[group, place] = found[1]
        if any(_open(history, mine, one, len(history)) is not None for one in producers):
            result.pending.add((group, place))
    return result


def _open(history: list[Event], mine: list[list[Write]], producer_id: int, end: int) -> tuple[int, int] | None:
    """Return what the transaction of a producer that is open at `end` has written last of a key."""
    for at in reversed(range(end)):
        event = history[at]
        if event.producer_id == producer_id:
            if event.marker is not None:
                return None
            if mine[at]:
                last = mine[at][-1]
                return None if last.offset is None else (at, last.offset)
    return None


# --- as files


def as_folder(directory: Path, histories: Sequence[list[Event]], compacted: Collection[int] = (), now_ms: int = NOW_MS) -> None:
    """Write a data folder that has nothing but ``__consumer_offsets``: of each history a partition. Some are compacted."""
    properties: dict[str, PropertyValue] = {"log.cleaner.enable": False, "tidelog.time.map.enable": False}
    with LogManager(directory, ManualClock(now_ms), properties=properties) as manager:
        settings = {"cleanup.policy": "compact", "segment.bytes": 4000, "delete.retention.ms": 0}
        manager.create_topic(OFFSETS_TOPIC, len(histories), settings)
        for partition, history in enumerate(histories):
            log = manager.log(OFFSETS_TOPIC, partition)
            for batch in batches(history, now_ms, 1000 * (partition + 1)):
                log.append_as_follower(batch)
            log.update_high_watermark(log.log_end_offset)
            if partition in compacted:
                log.roll()
                clean_twice(make_cleaner(), log, 0)


def events_in(directory: Path, partition: int) -> list[Event]:
    """Read a partition of ``__consumer_offsets`` back, record by record: what a compaction has left of a history."""
    found: list[Event] = []
    for path in sorted((directory / f"{OFFSETS_TOPIC}-{partition}").glob("*.log")):
        data = path.read_bytes()
        for header in iter_headers(data):
            records = list(iter_records(header, data[header.position : header.end_position]))
            if header.is_control:
                marker = parse_control_type(records[0].key) if records else None
                found.append(Event(header.producer_id, (), marker))
            else:
                writes = tuple(_write(record.key, record.value) for record in records)
                found.append(Event(header.producer_id if header.is_transactional else PLAIN, writes))
    return found


def _write(key: bytes | None, value: bytes | None) -> Write:
    assert key is not None
    if version_of(key) == 2:
        generation = None if value is None else decode_versioned(GroupMetadataValue, value).generation
        return Write(decode_versioned(GroupMetadataKey, key).group, None, generation)
    place = decode_versioned(OffsetCommitKey, key)
    offset = None if value is None else decode_versioned(OffsetCommitValue, value).offset
    return Write(place.group, TopicPartition(place.topic, place.partition), offset)


def known(groups: Mapping[str, StoredGroup]) -> Known:
    """Return what a reader knows, as the model says it."""
    return Known(
        {(name, key): committed.offset for name, one in groups.items() for key, committed in one.offsets.all()},
        {(name, key) for name, one in groups.items() for key in one.offsets.partitions() if one.offsets.is_pending(key)},
        {name for name, one in groups.items() if one.metadata is not None},
    )
