"""All topics of a cluster as a broker reports them, with or without local replicas (like Kafka's KRaftMetadataCache).

| a partition | leader | error |
|---|---|---|
| has a leader | that broker | |
| has no leader, or an unregistered one | none (-1) | LEADER_NOT_AVAILABLE |
| is led by a broker without the client's listener | none (-1) | LISTENER_NOT_FOUND; before version 6 of Metadata as above |
| has offline replicas, in version 0 | that broker | REPLICA_NOT_AVAILABLE, and these replicas are left out |

A replica is offline if its broker is fenced or gone, or its log directory is offline.

A topic's view is built on the first request and cached until the metadata changes the topic (`changed`). Its cached Metadata
answers are also dropped when a broker's registration changes.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping

from tidelog.broker.peers.brokers import NO_BROKER
from tidelog.broker.peers.cluster_brokers import ClusterBrokers
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.requests.listeners import Listener
from tidelog.broker.topics.topics import PartitionView, Topics, TopicView
from tidelog.config import PropertyValue
from tidelog.errors import InvalidArgumentError
from tidelog.metadata.assumed_topic_id import known_topic_id
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.image import TopicImage
from tidelog.metadata.records import PartitionRecord
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import ZERO_UUID
from tidelog.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

_FIRST_WITH_ALL_REPLICAS = 1
_FIRST_LISTENER_NOT_FOUND = 6


class ClusterTopics(Topics):
    """The topics of a cluster. Only the controllers change topics: requests for changes are forwarded, or refused here."""

    def __init__(self, plane: MetadataPlane, brokers: ClusterBrokers) -> None:
        self._plane = plane
        self._brokers = brokers
        self._views: dict[str, TopicView] = {}
        self._by_id: dict[uuid.UUID, TopicView] = {}
        self._names: list[str] | None = None
        self._generation = 0
        self.on_deleted = []

    def changed(self, delta: MetadataDelta) -> None:
        """Drop the cached views of changed topics. Call it after the image has changed."""
        self._generation += 1
        for name in delta.deleted_topics.values():
            self._forget(name)
        for name in delta.created_topics.values():
            self._forget(name)
        if delta.deleted_topics or delta.created_topics:
            self._names = None
        for topic_id in delta.partitions:
            topic = self._plane.image.topics_by_id.get(topic_id)
            if topic is not None:
                self._forget(topic.name)
        if delta.brokers:
            self._brokers.changed()

    def forget_deleted(self, delta: MetadataDelta) -> Generator[None, None, None]:
        """Have groups and transactions forget the deleted topics, in steps. Call it after `changed`.

        The next change of the metadata may be applied only after the last step, because that change could recreate a topic.
        """
        again = set(delta.created_topics.values())
        for name in sorted(delta.deleted_topics.values(), key=lambda name: name not in again):
            for forget in self.on_deleted:
                for _ in forget(name):
                    if name not in again:  # Otherwise clients could already have committed offsets of a recreated topic.
                        yield None
            if name not in again:
                yield None

    # --- asking

    @property
    def generation(self) -> int:
        return self._generation

    def get(self, name: str) -> TopicView | None:
        view = self._views.get(name)
        if view is None:
            topic = self._plane.image.topics.get(name)
            # Between its TopicRecord and its first PartitionRecord a topic has no partitions.
            if topic is None or not topic.partitions:
                return None
            view = self._view_of(topic)
            self._views[name] = view
            if view.topic_id != ZERO_UUID:
                self._by_id[view.topic_id] = view
        return view

    def by_id(self, topic_id: uuid.UUID) -> TopicView | None:
        view = self._by_id.get(topic_id)
        if view is None:
            topic = self._plane.image.topics_by_id.get(topic_id)
            return None if topic is None else self.get(topic.name)
        return view

    def all(self) -> Iterable[TopicView]:
        """Yield all topics in order of their names. Each topic is looked up only when it is reached."""
        if self._names is None:
            self._names = sorted(self._plane.image.topics)
        return self._each(self._names)

    def _each(self, names: list[str]) -> Iterator[TopicView]:
        for name in names:
            view = self.get(name)
            if view is not None:
                yield view

    def colliding(self, name: str) -> str | None:
        """Return None: the controller checks for colliding names."""
        return None

    def leader_of(self, name: str, partition: int) -> int:
        record = self._plane.image.partition(name, partition)
        return NO_BROKER if record is None else record.leader

    def properties(self, name: str) -> dict[str, str]:
        return self._plane.image.topic_config(name)

    def described(self, view: TopicView, listener: Listener, version: int) -> MetadataResponseTopic:
        """Return a topic's part of a Metadata response. The versions have three different forms; each is cached once."""
        generation, known = view.metadata if isinstance(view.metadata, tuple) else (-1, {})
        if generation != self._brokers.generation:
            known = {}
            view.metadata = self._brokers.generation, known
        kind = listener.name, version >= _FIRST_WITH_ALL_REPLICAS, version >= _FIRST_LISTENER_NOT_FOUND
        found = known.get(kind)
        if found is None:
            found = known[kind] = self._described(view, *kind)
        assert isinstance(found, MetadataResponseTopic)
        return found

    # --- changing: the controllers' work

    def creation(self, name: str, partitions: int, properties: Mapping[str, PropertyValue]) -> Steps[TopicView]:
        raise _not_here()

    def enlargement(self, name: str, partitions: int) -> Steps[object]:
        raise _not_here()

    def configuration(self, name: str, properties: Mapping[str, PropertyValue]) -> Steps[object]:
        raise _not_here()

    def deletion(self, view: TopicView) -> Steps[None]:
        raise _not_here()

    def finishing(self, name: str) -> Steps[None]:
        raise _not_here()

    # --- inside

    def _forget(self, name: str) -> None:
        view = self._views.pop(name, None)
        if view is not None:
            self._by_id.pop(view.topic_id, None)

    def _view_of(self, topic: TopicImage) -> TopicView:
        partitions = sorted(topic.partitions.items())
        topic_id = known_topic_id(topic.topic_id) or ZERO_UUID
        return TopicView(topic.name, topic_id, [_partition_view(number, record) for number, record in partitions])

    def _described(
        self, view: TopicView, listener_name: str, has_all_replicas: bool, has_listener_error: bool
    ) -> MetadataResponseTopic:
        topic = self._plane.image.topics.get(view.name)
        records = {} if topic is None else topic.partitions
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=view.name,
            topic_id=view.topic_id,
            is_internal=view.is_internal,
            partitions=[
                self._partition_of(one.partition, records[one.partition], listener_name, has_all_replicas, has_listener_error)
                for one in view.partitions
                if one.partition in records
            ],
        )

    def _partition_of(
        self, number: int, record: PartitionRecord, listener_name: str, has_all_replicas: bool, has_listener_error: bool
    ) -> MetadataResponsePartition:
        brokers = self._brokers
        replicas, isr, leader = record.replicas, record.isr, record.leader
        if not has_all_replicas:
            replicas = [one for one in replicas if brokers.is_reachable(one, listener_name)]
            isr = [one for one in isr if brokers.is_reachable(one, listener_name)]
        code = ErrorCode.NONE
        if not brokers.has_endpoint(leader, listener_name):
            is_there = has_listener_error and leader in self._plane.image.brokers
            code = ErrorCode.LISTENER_NOT_FOUND if is_there else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_BROKER
        elif len(replicas) < len(record.replicas) or len(isr) < len(record.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=code,
            partition_index=number,
            leader_id=leader,
            leader_epoch=record.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=brokers.offline(record, listener_name),
        )


def _partition_view(number: int, record: PartitionRecord) -> PartitionView:
    code = ErrorCode.NONE if record.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
    return PartitionView(number, code, record.leader, record.leader_epoch, record.replicas, record.isr, [])


def _not_here() -> InvalidArgumentError:
    return InvalidArgumentError("only the controllers can change a cluster's topics")
