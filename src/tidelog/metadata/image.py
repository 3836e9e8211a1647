"""The state that a metadata log describes: topics, settings, features, ids, users, ACLs. `replay` builds it record by record.

| part | key | value |
|---|---|---|
| `features` | name | level; ``metadata.version`` is one |
| `topics` | name | `TopicImage`: id and partitions |
| `configs` | (resource type, resource name) | settings by name; the resource name "" means all brokers |
| `next_producer_id` | | all producer ids below it have been assigned |
| `quotas` | (entity, key) | value |
| `scram`, `acls`, `tokens`, `brokers`, `controllers` | their ids | their records |
| `unknown` | | values of unknown records, in log order |

A record that contradicts the image (such as a partition of a topic that does not exist) raises InvalidRecordError and changes
nothing. An unknown version of a record about topics or settings raises UnsupportedVersionError. All other unknown records are
kept and written into snapshots.

Records between BeginTransaction and EndTransaction apply together or not at all (KIP-868): see `Replay`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Protocol, TypeAlias

from tidelog.errors import InvalidRecordError, UnsupportedVersionError
from tidelog.metadata import records as r
from tidelog.metadata.frame import UnknownRecord, encode_record
from tidelog.metadata.versions import METADATA_VERSION, record_version
from tidelog.wire.fields import Message

ConfigKey: TypeAlias = tuple[int, str]
QuotaKey: TypeAlias = tuple[tuple[tuple[str, str | None], ...], str]

_ESSENTIAL = frozenset({2, 3, 4, 5, 9, 12, 15, 23, 24, 25})
"""Keys of the records that change topics, settings or ids: an unknown version of such a record is an error."""


class TopicImage:
    """A topic: name, id, partitions by number."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: uuid.UUID) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, r.PartitionRecord] = {}

    def __repr__(self) -> str:
        return f"TopicImage({self.name!r}, {self.topic_id}, {len(self.partitions)} partitions)"


class MetadataImage:
    """The state that a metadata log describes. It changes in place, and owns the records in it."""

    def __init__(self) -> None:
        self.features: dict[str, int] = {}
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[uuid.UUID, TopicImage] = {}
        self.configs: dict[ConfigKey, dict[str, str]] = {}
        self.next_producer_id = 0
        self.quotas: dict[QuotaKey, float] = {}
        self.scram: dict[tuple[str, int], r.UserScramCredentialRecord] = {}
        self.acls: dict[uuid.UUID, r.AccessControlEntryRecord] = {}
        self.tokens: dict[str, r.DelegationTokenRecord] = {}
        self.brokers: dict[int, r.RegisterBrokerRecord] = {}
        self.controllers: dict[int, r.RegisterControllerRecord] = {}
        self.zk_migration_state: int | None = None
        self.unknown: list[UnknownRecord] = []

    # --- asking

    @property
    def metadata_version(self) -> int:
        """The level of ``metadata.version``; 1 if no record has set it, as in the first KRaft release."""
        return self.features.get(METADATA_VERSION, 1)

    def topic_config(self, name: str) -> dict[str, str]:
        """Return a topic's own settings, by name."""
        return dict(self.configs.get((r.TOPIC_RESOURCE, name), {}))

    def broker_config(self, node_id: int) -> dict[str, str]:
        """Return a broker's dynamic settings. Settings for this broker take precedence over settings for all brokers."""
        return {
            **self.configs.get((r.BROKER_RESOURCE, ""), {}),
            **self.configs.get((r.BROKER_RESOURCE, str(node_id)), {}),
        }

    def broker_epoch(self, node_id: int) -> int | None:
        """Return the epoch of a broker's registration, None if it is not registered."""
        broker = self.brokers.get(node_id)
        return None if broker is None else int(broker.broker_epoch)

    def partition(self, topic: str, number: int) -> r.PartitionRecord | None:
        """Return a partition, None if it does not exist."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(number)

    def partitions_on(self, topic: TopicImage, node_id: int) -> list[int]:
        """Return the numbers of a topic's partitions that have a replica on a node, in order."""
        return sorted(number for number, partition in topic.partitions.items() if node_id in partition.replicas)

    # --- changing

    def replay(self, record: Message | UnknownRecord) -> None:
        """Apply a record. Raises InvalidRecordError if it contradicts the image, UnsupportedVersionError for an unknown
        version.
        """
        if isinstance(record, UnknownRecord):
            if record.api_key in _ESSENTIAL:
                raise UnsupportedVersionError(f"the version of {record.name} is from a newer Kafka", found=record.version)
            self.unknown.append(record)
            return
        apply = _APPLY.get(type(record))
        if apply is not None:
            apply(self, record)

    def _topic(self, record: Any) -> TopicImage:
        topic = self.topics_by_id.get(record.topic_id)
        if topic is None:
            raise InvalidRecordError(f"{type(record).__name__} is for an unknown topic", found=record.topic_id)
        return topic

    def _registration(self, record: Any, broker_id: int) -> r.RegisterBrokerRecord:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise InvalidRecordError(f"{type(record).__name__} is for an unknown broker", found=broker_id)
        return broker

    def _set_feature(self, record: r.FeatureLevelRecord) -> None:
        if record.feature_level == 0 and record.name != METADATA_VERSION:
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.feature_level

    def _add_topic(self, record: r.TopicRecord) -> None:
        known = self.topics_by_id.get(record.topic_id)
        if known is not None and known.name != record.name:
            raise InvalidRecordError(
                f"TopicRecord gives topic id {record.topic_id} a different name", found=record.name, expected=known.name
            )
        before = self.topics.get(record.name)
        if before is not None and before.topic_id != record.topic_id:
            # Kafka's brokers also use the newest id of a name.
            del self.topics_by_id[before.topic_id]
        topic = TopicImage(record.name, record.topic_id)
        self.topics[record.name] = self.topics_by_id[record.topic_id] = topic

    def _add_partition(self, record: r.PartitionRecord) -> None:
        self._topic(record).partitions[record.partition_id] = record

    def _change_partition(self, record: r.PartitionChangeRecord) -> None:
        partition = self._topic(record).partitions.get(record.partition_id)
        if partition is None:
            raise InvalidRecordError("PartitionChangeRecord is for an unknown partition", found=record.partition_id)
        for name in _CHANGED_LISTS:
            value = getattr(record, name)
            if value is not None:
                setattr(partition, name, value)
        if record.leader != r.NO_LEADER_CHANGE:
            partition.leader = record.leader
            partition.leader_epoch += 1
        if record.leader_recovery_state >= 0:
            partition.leader_recovery_state = record.leader_recovery_state
        partition.partition_epoch += 1

    def _remove_topic(self, record: r.RemoveTopicRecord) -> None:
        topic = self._topic(record)
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        self.configs.pop((r.TOPIC_RESOURCE, topic.name), None)

    def _set_config(self, record: r.ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        config = self.configs.setdefault(key, {})
        if record.value is not None:
            config[record.name] = record.value
            return
        config.pop(record.name, None)
        if not config:
            del self.configs[key]

    def _set_quota(self, record: r.ClientQuotaRecord) -> None:
        # Records may list the parts of an entity in any order.
        parts = sorted(((entity.entity_type, entity.entity_name) for entity in record.entity), key=itemgetter(0), reverse=True)
        key = (tuple(parts), record.key)
        if record.remove:
            self.quotas.pop(key, None)
        else:
            self.quotas[key] = record.value

    def _set_producer_ids(self, record: r.ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _change_registration(self, record: r.BrokerRegistrationChangeRecord) -> None:
        broker = self._registration(record, record.broker_id)
        if record.fenced:
            broker.fenced = record.fenced > 0
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = record.in_controlled_shutdown > 0
        if record.log_dirs:
            broker.log_dirs = record.log_dirs
        if record.cordoned_log_dirs is not None:
            broker.cordoned_log_dirs = record.cordoned_log_dirs

    def _fence(self, record: r.FenceBrokerRecord) -> None:
        self._registration(record, record.id).fenced = True

    def _unfence(self, record: r.UnfenceBrokerRecord) -> None:
        self._registration(record, record.id).fenced = False

    def _clear_elr(self, record: r.ClearElrRecord) -> None:
        topics = [self.topics[record.topic_name]] if record.topic_name in self.topics else []
        for topic in topics if record.topic_name else self.topics.values():
            for partition in topic.partitions.values():
                partition.eligible_leader_replicas = partition.last_known_elr = None

    def _set_zk_migration(self, record: r.ZkMigrationStateRecord) -> None:
        self.zk_migration_state = record.zk_migration_state

    # --- as records again

    def to_records(self) -> Iterator[Message | UnknownRecord]:
        """Yield the records of a snapshot. Replayed into an empty image, these records build an image equal to this one."""
        level = self.features.get(METADATA_VERSION)
        if level is not None:
            yield r.FeatureLevelRecord(METADATA_VERSION, level)
        yield from (
            r.FeatureLevelRecord(name, level) for name, level in sorted(self.features.items()) if name != METADATA_VERSION
        )
        if self.zk_migration_state is not None:
            yield r.ZkMigrationStateRecord(self.zk_migration_state)
        yield from self.controllers.values()
        yield from self.brokers.values()
        for topic in self.topics.values():
            yield r.TopicRecord(topic.name, topic.topic_id)
            yield from topic.partitions.values()
        for (resource_type, resource_name), config in self.configs.items():
            yield from (r.ConfigRecord(resource_type, resource_name, name, value) for name, value in config.items())
        for (entity, key), value in self.quotas.items():
            yield r.ClientQuotaRecord([r.EntityData(*one) for one in entity], key, value, remove=False)
        if self.next_producer_id:
            yield r.ProducerIdsRecord(-1, -1, self.next_producer_id)
        yield from self.acls.values()
        yield from self.scram.values()
        yield from self.tokens.values()
        yield from self.unknown

    def to_values(self) -> Iterator[bytes]:
        """Yield the records of `to_records`, encoded in the versions for the level of ``metadata.version``."""
        level = self.metadata_version
        for record in self.to_records():
            if isinstance(record, UnknownRecord):
                yield record.value
            else:
                yield encode_record(record, record_version(type(record), level))


_CHANGED_LISTS = (
    "isr",
    "replicas",
    "removing_replicas",
    "adding_replicas",
    "directories",
    "eligible_leader_replicas",
    "last_known_elr",
)

_APPLY: dict[type[Message], Any] = {
    r.FeatureLevelRecord: MetadataImage._set_feature,
    r.TopicRecord: MetadataImage._add_topic,
    r.PartitionRecord: MetadataImage._add_partition,
    r.PartitionChangeRecord: MetadataImage._change_partition,
    r.RemoveTopicRecord: MetadataImage._remove_topic,
    r.ConfigRecord: MetadataImage._set_config,
    r.ClientQuotaRecord: MetadataImage._set_quota,
    r.ProducerIdsRecord: MetadataImage._set_producer_ids,
    r.RegisterBrokerRecord: lambda image, record: image.brokers.__setitem__(record.broker_id, record),
    r.UnregisterBrokerRecord: lambda image, record: image.brokers.pop(record.broker_id, None),
    r.BrokerRegistrationChangeRecord: MetadataImage._change_registration,
    r.FenceBrokerRecord: MetadataImage._fence,
    r.UnfenceBrokerRecord: MetadataImage._unfence,
    r.RegisterControllerRecord: lambda image, record: image.controllers.__setitem__(record.controller_id, record),
    r.UnregisterControllerRecord: lambda image, record: image.controllers.pop(record.controller_id, None),
    r.UserScramCredentialRecord: lambda image, record: image.scram.__setitem__((record.name, record.mechanism), record),
    r.RemoveUserScramCredentialRecord: lambda image, record: image.scram.pop((record.name, record.mechanism), None),
    r.AccessControlEntryRecord: lambda image, record: image.acls.__setitem__(record.id, record),
    r.RemoveAccessControlEntryRecord: lambda image, record: image.acls.pop(record.id, None),
    r.DelegationTokenRecord: lambda image, record: image.tokens.__setitem__(record.token_id, record),
    r.RemoveDelegationTokenRecord: lambda image, record: image.tokens.pop(record.token_id, None),
    r.ZkMigrationStateRecord: MetadataImage._set_zk_migration,
    r.ClearElrRecord: MetadataImage._clear_elr,
}
"""The function that applies each type of record. Types that are missing here change nothing (NoOp), or are handled by `Replay`
(transactions).
"""


class Replays(Protocol):
    """An image, or the delta of an image."""

    def replay(self, record: Message | UnknownRecord) -> None:
        """Apply a record."""


class Replay:
    """Applies records in log order, the records of a metadata transaction together (KIP-868)."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._pending: list[Message | UnknownRecord] | None = None

    @property
    def is_in_transaction(self) -> bool:
        """Whether the log ends within a transaction. The transaction's changes do not apply, and the next leader aborts it."""
        return self._pending is not None

    def add(self, record: Message | UnknownRecord, delta: Replays | None = None) -> None:
        """Process the next record. Raises the errors of `MetadataImage.replay`.

        If `delta` (a `delta.MetadataDelta`) is given, it replays the records that apply, and notes their changes.
        """
        target: Replays = self.image if delta is None else delta
        kind = type(record)
        if kind is r.BeginTransactionRecord:
            self._pending = []
        elif kind is r.AbortTransactionRecord:
            self._pending = None
        elif kind is r.EndTransactionRecord:
            pending, self._pending = self._pending or [], None
            for one in pending:
                target.replay(one)
        elif self._pending is not None:
            self._pending.append(record)
        else:
            target.replay(record)
