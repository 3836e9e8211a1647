"""What a delta says has changed: a mirror that only looks at that is the same as the image."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metadata.test_image import IDS, content, topic
from tests.metadata.test_records import FOLDERS, values_in
from tidelog.errors import InvalidRecordError, UnsupportedVersionError
from tidelog.metadata import records as r
from tidelog.metadata.delta import MetadataDelta, difference
from tidelog.metadata.frame import UnknownRecord, decode_record, encode_record
from tidelog.metadata.image import MetadataImage, Replay
from tidelog.metadata.versions import KNOWN_LEVELS

FLAGS = ("producer_ids", "quotas", "scram", "acls", "tokens")
NAMES = ("a", "b", "c")


def copied(record: Any) -> Any:
    """Images keep records, and change them."""
    return decode_record(encode_record(record, type(record).VERSIONS[-1]))


def parts_of(image: MetadataImage) -> dict[str, Any]:
    """Everything that a delta speaks of, in copies."""
    return {
        "partitions": {
            (topic.topic_id, topic.name, number): copied(partition)
            for topic in image.topics_by_id.values()
            for number, partition in topic.partitions.items()
        },
        "topics": {topic.topic_id: topic.name for topic in image.topics.values()},
        "configs": {key: dict(config) for key, config in image.configs.items()},
        "brokers": {key: copied(broker) for key, broker in image.brokers.items()},
        "controllers": {key: copied(controller) for key, controller in image.controllers.items()},
        "features": dict(image.features),
        "producer_ids": image.next_producer_id,
        **{part: dict(getattr(image, part)) for part in FLAGS[1:]},
    }


def new_image() -> MetadataImage:
    """An image whose snapshots can say everything."""
    image = MetadataImage()
    image.replay(r.FeatureLevelRecord("metadata.version", KNOWN_LEVELS[-1]))
    return image


class Mirror:
    """Holds what an image holds, and learns of changes by deltas alone."""

    def __init__(self, image: MetadataImage) -> None:
        self.parts = parts_of(image)

    def take(self, delta: MetadataDelta) -> None:
        image, parts = delta.image, self.parts
        for topic_id, name in delta.deleted_topics.items():
            assert parts["topics"].pop(topic_id) == name
            gone = [key for key in parts["partitions"] if key[0] == topic_id]
            for key in gone:
                del parts["partitions"][key]
        for topic_id, name in delta.created_topics.items():
            assert topic_id not in parts["topics"]
            parts["topics"][topic_id] = name
        for found, partition in delta.changed_partitions():
            key = (found.topic_id, found.name, partition.partition_id)
            assert parts["topics"][found.topic_id] == found.name
            assert parts["partitions"].get(key) != partition, "it did not change"
            parts["partitions"][key] = copied(partition)
        for part in ("configs", "brokers", "controllers", "features"):
            now = parts_of(image)[part]
            for key in getattr(delta, part):
                parts[part].pop(key, None)
                if key in now:
                    parts[part][key] = now[key]
        for part in FLAGS:
            if getattr(delta, part):
                parts[part] = parts_of(image)[part]


class History:
    """Records as controllers write them, from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.topics: dict[str, tuple[uuid.UUID, int]] = {}
        self.brokers: dict[int, int] = {}
        self.epoch = 0

    def step(self) -> list[Any]:
        rng = self.rng
        kind = rng.choice((self.create, self.replace, self.delete, self.change, self.change, self.change, self.grow, self.config))
        return rng.choice((kind, kind, self.broker, self.rest))()

    def create(self) -> list[Any]:
        name = self.rng.choice(NAMES)
        return [] if name in self.topics else self.replace(name)

    def replace(self, name: str = "c") -> list[Any]:
        """A topic without a word of the one that had its name: as after a crash in between."""
        self.topics[name] = uuid.UUID(int=self.rng.getrandbits(128)), self.rng.randrange(4)
        return topic(name, *self.topics[name])

    def delete(self) -> list[Any]:
        name = self.rng.choice(NAMES)
        return [r.RemoveTopicRecord(self.topics.pop(name)[0])] if name in self.topics else []

    def grow(self) -> list[Any]:
        name = self.rng.choice(NAMES)
        if name not in self.topics:
            return []
        topic_id, count = self.topics[name]
        self.topics[name] = topic_id, count + 1
        return [r.PartitionRecord(count, topic_id, [1, 2], [1], leader=1, leader_epoch=0, partition_epoch=0)]

    def change(self) -> list[Any]:
        name, rng = self.rng.choice(NAMES), self.rng
        topic_id, count = self.topics.get(name, (IDS[0], 0))
        if count == 0:
            return []
        if rng.random() < 0.1:
            return [r.ClearElrRecord(rng.choice(("", name, "unknown")))]
        change = r.PartitionChangeRecord(rng.randrange(count), topic_id)
        for field, value in (
            ("isr", [2]),
            ("leader", 2),
            ("replicas", [2, 1]),
            ("directories", [IDS[1]]),
            ("last_known_elr", [1]),
        ):
            if rng.random() < 0.3:
                setattr(change, field, value)
        return [change]

    def config(self) -> list[Any]:
        key = self.rng.choice([(4, ""), (4, "1"), *((2, name) for name in self.topics)])
        return [r.ConfigRecord(*key, self.rng.choice("xy"), self.rng.choice((None, "1", "2")))]

    def broker(self) -> list[Any]:
        rng, broker = self.rng, self.rng.randrange(3)
        self.epoch += 1
        if broker not in self.brokers or rng.random() < 0.2:
            self.brokers[broker] = self.epoch
            return [r.RegisterBrokerRecord(broker, incarnation_id=IDS[0], broker_epoch=self.epoch, rack=None, log_dirs=[IDS[1]])]
        epoch = self.brokers[broker]
        if rng.random() < 0.1:
            return [r.UnregisterBrokerRecord(broker, self.brokers.pop(broker))]
        change = r.BrokerRegistrationChangeRecord(broker, epoch, rng.choice((-1, 0, 1)), rng.choice((0, 1)), [IDS[2]], [IDS[3]])
        return [rng.choice((r.FenceBrokerRecord(broker, epoch), r.UnfenceBrokerRecord(broker, epoch), change))]

    def rest(self) -> list[Any]:
        rng = self.rng
        options: list[Any] = [
            r.NoOpRecord(),
            r.FeatureLevelRecord(rng.choice(("group.version", "kraft.version")), rng.randrange(2)),
            r.ProducerIdsRecord(1, 1, rng.randrange(4) * 1000),
            r.ClientQuotaRecord([r.EntityData("user", "u")], "producer_byte_rate", rng.random(), remove=rng.random() < 0.3),
            r.UserScramCredentialRecord("alice", 1, b"s", b"k", b"v", rng.randrange(4096)),
            r.RemoveUserScramCredentialRecord("alice", 1),
            r.AccessControlEntryRecord(IDS[0], 2, rng.choice(NAMES), 3, "User:alice", "*", 3, 3),
            r.RemoveAccessControlEntryRecord(IDS[0]),
            r.DelegationTokenRecord("o", "r", ["x"], 1, 2, rng.randrange(9), "id"),
            r.RemoveDelegationTokenRecord("id"),
            r.RegisterControllerRecord(1, rng.choice(IDS), zk_migration_ready=False),
            r.UnregisterControllerRecord(1),
        ]
        return [rng.choice(options)]


@given(st.integers(0, 1 << 32), st.integers(1, 12))
def test_a_mirror_that_follows_deltas_is_the_image(seed: int, at_once: int) -> None:
    history, image = History(seed), new_image()
    mirror, replay, plain = Mirror(image), Replay(image), Replay(new_image())
    for _ in range(history.rng.randrange(25)):
        batch = [record for _ in range(at_once) for record in history.step()]
        if history.rng.random() < 0.3:
            batch.insert(history.rng.randrange(len(batch) + 1), r.BeginTransactionRecord("t"))
            batch.append(r.EndTransactionRecord())
        middle = history.rng.randrange(len(batch) + 1)
        for records in (batch[:middle], batch[middle:]):
            delta = MetadataDelta(image)
            for record in records:
                plain.add(copied(record))
                replay.add(copied(record), delta)
            assert content(plain.image) == content(image)
            mirror.take(delta)
            assert mirror.parts == parts_of(image)
            assert records or delta.is_empty


@given(st.integers(0, 1 << 32))
def test_what_a_snapshot_changed(seed: int) -> None:
    """Snapshots of one history, and sometimes of another: each takes the place of the last one."""
    history, image, log = History(seed), new_image(), new_image()
    mirror = Mirror(image)
    for _ in range(5):
        for record in (record for _ in range(history.rng.randrange(20)) for record in history.step()):
            log.replay(copied(record))
        if history.rng.random() < 0.2:
            history, log = History(seed + 1), new_image()
        snapshot = MetadataImage()
        for record in map(decode_record, log.to_values()):
            snapshot.replay(record)
        delta, before, image = difference(image, snapshot), image, snapshot
        assert delta.is_empty == (content(before) == content(image))
        mirror.take(delta)
        assert mirror.parts == parts_of(image)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_logs_that_kafka_wrote(folder: Path) -> None:
    """Each snapshot takes the place of the one before, and is followed by the records up to the next."""
    log = folder / "__cluster_metadata-0"
    records = [pair for path in sorted(log.glob("*.log")) for pair in values_in(path)]
    image = MetadataImage()
    mirror, end = Mirror(image), 0
    for path in [None, *sorted(log.glob("*.checkpoint"))]:
        if path is not None:
            snapshot, end = MetadataImage(), int(path.name[:20])
            for _, value in values_in(path):
                snapshot.replay(decode_record(value))
            mirror.take(difference(image, snapshot))
            image = snapshot
            assert mirror.parts == parts_of(image)
        replay = Replay(image)
        for offset, value in records:
            if end <= offset < end + 25:
                delta = MetadataDelta(image)
                replay.add(decode_record(value), delta)
                mirror.take(delta)
                assert mirror.parts == parts_of(image)
    assert image.topics


def taken(image: MetadataImage, *records: Any) -> MetadataDelta:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta


def test_a_topic_that_came_and_went_is_no_change() -> None:
    image = MetadataImage()
    delta = taken(image, *topic("t", IDS[0], 2), r.RemoveTopicRecord(IDS[0]))
    assert delta.is_empty
    assert repr(delta) == "MetadataDelta()"


def test_a_topic_that_is_deleted_and_created_again() -> None:
    image = MetadataImage()
    taken(image, *topic("t", IDS[0], 2), r.ConfigRecord(2, "t", "retention.ms", "5"))
    delta = taken(image, r.RemoveTopicRecord(IDS[0]), *topic("t", IDS[1], 1))
    assert (delta.deleted_topics, delta.created_topics) == ({IDS[0]: "t"}, {IDS[1]: "t"})
    assert [(one.name, partition.partition_id) for one, partition in delta.changed_partitions()] == [("t", 0)]
    assert delta.configs == {(2, "t")}


def test_cleared_eligible_leaders() -> None:
    """The cleared ones are named, each of the two lists for itself, and nothing else."""
    image = MetadataImage()
    taken(
        image,
        *topic("t", IDS[0], 4),
        *topic("u", IDS[1], 1),
        r.PartitionChangeRecord(1, IDS[0], eligible_leader_replicas=[1]),
        r.PartitionChangeRecord(2, IDS[0], last_known_elr=[1]),
        r.PartitionChangeRecord(3, IDS[0], eligible_leader_replicas=[], last_known_elr=[]),
        r.PartitionChangeRecord(0, IDS[1], last_known_elr=[1]),
    )
    assert taken(image, r.ClearElrRecord("t")).partitions == {IDS[0]: {1, 2}}
    assert taken(image, r.ClearElrRecord("unknown")).is_empty
    assert taken(image, r.ClearElrRecord("")).partitions == {IDS[1]: {0}}


def test_what_does_not_fit_is_not_noted() -> None:
    image = MetadataImage()
    taken(image, *topic("t", IDS[0], 1), *topic("v", IDS[2], 1))
    delta = MetadataDelta(image)
    for record in (
        r.PartitionRecord(0, IDS[1]),
        r.PartitionChangeRecord(5, IDS[0]),
        r.RemoveTopicRecord(IDS[1]),
        r.FenceBrokerRecord(3),
        r.TopicRecord("u", IDS[0]),
        r.TopicRecord("v", IDS[0]),
    ):
        with pytest.raises(InvalidRecordError):
            delta.replay(record)
    assert delta.is_empty


@pytest.mark.parametrize("key", [0, 17, 99])
def test_what_is_unknown_is_refused(key: int) -> None:
    """An image keeps it; a broker that follows the log would act on what is not so."""
    unknown = UnknownRecord(key, 77, bytes([1, key, 77]))
    image, snapshot = MetadataImage(), MetadataImage()
    with pytest.raises(UnsupportedVersionError, match="newer Kafka"):
        MetadataDelta(image).replay(unknown)
    snapshot.replay(unknown)
    with pytest.raises(UnsupportedVersionError, match="newer Kafka"):
        difference(image, snapshot)
    assert content(image) == []
