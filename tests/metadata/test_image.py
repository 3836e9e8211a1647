"""What records add up to: against a model in plain dictionaries, and as records again."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidRecordError, UnsupportedVersionError
from tidelog.metadata import records as r
from tidelog.metadata.frame import UnknownRecord, decode_record
from tidelog.metadata.image import MetadataImage, Replay

IDS = [uuid.UUID(int=i + 1) for i in range(4)]
NAMES = ("a", "b", "c")


def replayed(*records: Any) -> MetadataImage:
    replay = Replay(MetadataImage())
    for record in records:
        replay.add(record)
    return replay.image


def again(image: MetadataImage) -> MetadataImage:
    """The image of the records that an image is written as."""
    return replayed(*map(decode_record, image.to_values()))


def content(image: MetadataImage) -> list[bytes]:
    return sorted(image.to_values())


def topic(name: str, topic_id: uuid.UUID, partitions: int) -> list[Any]:
    parts = [
        r.PartitionRecord(p, topic_id, [1], [1], leader=1, leader_epoch=0, partition_epoch=0, directories=[IDS[0]])
        for p in range(partitions)
    ]
    return [r.TopicRecord(name, topic_id), *parts]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any]]:
    """Changes as a controller would write them, and what is there at the end."""
    records: list[Any] = [r.FeatureLevelRecord("metadata.version", 21)]
    there: dict[str, list[list[int]]] = {}
    ids: dict[str, uuid.UUID] = {}
    configs: dict[tuple[int, str], dict[str, str]] = {}
    next_id = 0
    for _ in range(draw(st.integers(0, 25))):
        name = draw(st.sampled_from(NAMES))
        what = draw(st.sampled_from(("create", "delete", "lead", "config", "broker", "ids")))
        if what == "create" and name not in there:
            ids[name] = uuid.UUID(int=1000 + len(records))
            partitions = draw(st.integers(1, 3))
            records += topic(name, ids[name], partitions)
            there[name] = [[1, 0, 0] for _ in range(partitions)]
        elif what == "delete" and name in there:
            records.append(r.RemoveTopicRecord(ids.pop(name)))
            del there[name]
            configs.pop((2, name), None)
        elif what == "lead" and name in there:
            number = draw(st.integers(0, len(there[name]) - 1))
            leader = draw(st.sampled_from((-2, -1, 1)))
            records.append(r.PartitionChangeRecord(number, ids[name], leader=leader))
            partition = there[name][number]
            if leader != -2:
                partition[:2] = [leader, partition[1] + 1]
            partition[2] += 1
        elif what in ("config", "broker") and (what == "broker" or name in there):
            key = (4, draw(st.sampled_from(("", "1")))) if what == "broker" else (2, name)
            setting, value = draw(st.sampled_from(("x", "y"))), draw(st.sampled_from((None, "1", "2")))
            records.append(r.ConfigRecord(*key, setting, value))
            config = configs.setdefault(key, {})
            if value is None:
                config.pop(setting, None)
            else:
                config[setting] = value
            if not config:
                del configs[key]
        elif what == "ids":
            next_id += 1000
            records.append(r.ProducerIdsRecord(1, 5, next_id))
    return records, {"topics": there, "ids": ids, "configs": configs, "next_id": next_id}


@given(histories())
def test_against_a_model(history: tuple[list[Any], dict[str, Any]]) -> None:
    records, expected = history
    image = replayed(*records)
    for one in (image, again(image)):
        states = {
            name: [[p.leader, p.leader_epoch, p.partition_epoch] for _, p in sorted(found.partitions.items())]
            for name, found in one.topics.items()
        }
        assert states == expected["topics"]
        assert {name: found.topic_id for name, found in one.topics.items()} == expected["ids"]
        assert {found.topic_id for found in one.topics_by_id.values()} == set(one.topics_by_id)
        assert one.configs == expected["configs"]
        assert one.next_producer_id == expected["next_id"]
    assert content(again(image)) == content(image)


def test_everything_survives_a_snapshot() -> None:
    image = replayed(
        r.FeatureLevelRecord("metadata.version", 21),
        r.FeatureLevelRecord("kraft.version", 1),
        r.ZkMigrationStateRecord(0),
        r.RegisterBrokerRecord(1, incarnation_id=IDS[1], broker_epoch=7, rack=None, fenced=True, log_dirs=[IDS[2]]),
        r.BrokerRegistrationChangeRecord(1, 7, fenced=-1),
        r.RegisterControllerRecord(1, IDS[3], zk_migration_ready=False),
        *topic("t", IDS[0], 2),
        r.ConfigRecord(2, "t", "retention.ms", "5"),
        r.ConfigRecord(4, "", "log.cleaner.threads", "2"),
        r.ConfigRecord(4, "1", "log.cleaner.threads", "3"),
        r.ClientQuotaRecord([r.EntityData("user", "u"), r.EntityData("client-id", None)], "producer_byte_rate", 1024.5),
        r.ClientQuotaRecord([r.EntityData("user", "gone")], "producer_byte_rate", 1.0),
        r.ClientQuotaRecord([r.EntityData("user", "gone")], "producer_byte_rate", 0.0, remove=True),
        r.UserScramCredentialRecord("alice", 1, b"s", b"k", b"v", 4096),
        r.UserScramCredentialRecord("bob", 1, b"s", b"k", b"v", 4096),
        r.RemoveUserScramCredentialRecord("bob", 1),
        r.AccessControlEntryRecord(IDS[1], 2, "t", 3, "User:alice", "*", 3, 3),
        r.AccessControlEntryRecord(IDS[2], 2, "t", 3, "User:bob", "*", 3, 3),
        r.RemoveAccessControlEntryRecord(IDS[2]),
        r.DelegationTokenRecord("o", "r", ["x"], 1, 2, 3, "id"),
        r.ProducerIdsRecord(1, 7, 3000),
        UnknownRecord(99, 0, b"\x01\x63\x00abc"),
        r.NoOpRecord(),
    )
    assert content(again(image)) == content(image)
    assert len(content(image)) == 17
    assert image.brokers[1].fenced is False
    assert image.broker_config(1) == {"log.cleaner.threads": "3"}
    assert image.broker_config(2) == {"log.cleaner.threads": "2"}
    assert [entity for (entity, _) in image.quotas] == [(("user", "u"), ("client-id", None))]
    assert set(image.scram) == {("alice", 1)}
    assert set(image.acls) == {IDS[1]}


def test_a_transaction_counts_whole_or_not_at_all() -> None:
    begin, end, abort = r.BeginTransactionRecord("x"), r.EndTransactionRecord(), r.AbortTransactionRecord("y")
    assert set(replayed(begin, *topic("t", IDS[0], 1), end).topics) == {"t"}
    assert replayed(begin, *topic("t", IDS[0], 1), abort).topics == {}
    replay = Replay(MetadataImage())
    for record in (begin, *topic("t", IDS[0], 1)):
        replay.add(record)
    assert replay.is_in_transaction
    assert replay.image.topics == {}


def test_records_that_do_not_fit() -> None:
    image = replayed(*topic("t", IDS[0], 1))
    for record in (
        r.PartitionRecord(0, IDS[1]),
        r.PartitionChangeRecord(0, IDS[1]),
        r.PartitionChangeRecord(5, IDS[0]),
        r.RemoveTopicRecord(IDS[1]),
        r.BrokerRegistrationChangeRecord(3),
        r.FenceBrokerRecord(3),
        r.TopicRecord("u", IDS[0]),
    ):
        before = content(image)
        with pytest.raises(InvalidRecordError):
            image.replay(record)
        assert content(image) == before


@pytest.mark.parametrize("key", [2, 3, 4, 5, 9, 12, 15, 23, 24, 25])
def test_an_unknown_version_of_what_matters_is_refused(key: int) -> None:
    with pytest.raises(UnsupportedVersionError, match="newer Kafka"):
        MetadataImage().replay(UnknownRecord(key, 77, bytes([1, key, 77])))


def test_registrations_change() -> None:
    image = replayed(
        r.RegisterBrokerRecord(1, broker_epoch=7, rack=None, log_dirs=[IDS[0]], cordoned_log_dirs=[IDS[0]]),
        r.UnfenceBrokerRecord(1, 7),
        r.BrokerRegistrationChangeRecord(1, 7, in_controlled_shutdown=1),
        r.RegisterControllerRecord(5),
        r.RegisterControllerRecord(6),
        r.UnregisterControllerRecord(5),
    )
    broker = image.brokers[1]
    assert (broker.fenced, broker.in_controlled_shutdown, broker.log_dirs, broker.cordoned_log_dirs) == (
        False,
        True,
        [IDS[0]],
        [IDS[0]],
    )
    image.replay(r.BrokerRegistrationChangeRecord(1, 7, fenced=1, log_dirs=[IDS[1]], cordoned_log_dirs=[]))
    assert (broker.fenced, broker.log_dirs, broker.cordoned_log_dirs) == (True, [IDS[1]], [])
    assert set(image.controllers) == {6}
    image.replay(r.RegisterBrokerRecord(1, broker_epoch=9, rack=None))
    assert (image.broker_epoch(1), image.brokers[1].in_controlled_shutdown) == (9, False)
    image.replay(r.UnregisterBrokerRecord(1, 9))
    assert image.broker_epoch(1) is None


def test_clearing_eligible_leaders() -> None:
    image = replayed(*topic("t", IDS[0], 1), *topic("u", IDS[1], 1))
    for name in "tu":
        image.topics[name].partitions[0].eligible_leader_replicas = [1]
    image.replay(r.ClearElrRecord("t"))
    assert image.topics["t"].partitions[0].eligible_leader_replicas is None
    assert image.topics["u"].partitions[0].eligible_leader_replicas == [1]
    image.replay(r.ClearElrRecord(""))
    assert image.topics["u"].partitions[0].eligible_leader_replicas is None
