"""Topics as clients see them on a standalone broker, which leads every partition that it can read. In a cluster see
`topics.cluster_topics`.

| a partition | leader | error | offline replicas |
|---|---|---|---|
| is served | this broker | | |
| had an I/O error, but can be read | this broker, which refuses produce requests (KAFKA_STORAGE_ERROR) | | this broker |
| could not be loaded | none (-1) | LEADER_NOT_AVAILABLE | this broker |

A topic may lack a configuration, e.g. in a restored backup or a folder from Kafka; it is treated like all others. If its
partitions have no topic id, as before Kafka 2.8, its id is all zeros.

Views are cached until the manager reports a change, so getting a view costs a look-up.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.broker.core import Core
from tidelog.broker.partitions.leadership import Leadership
from tidelog.broker.requests.listeners import Listener
from tidelog.broker.topics.topic_changes import TopicChanges
from tidelog.config import PropertyValue
from tidelog.errors import StorageError
from tidelog.model import INTERNAL_TOPICS, MAX_TOPIC_NAME_LENGTH, TopicPartition, is_topic_name
from tidelog.storage.log_manager import KEEP_EVERYTHING
from tidelog.storage.steps import Steps
from tidelog.storage.topics.topic_table import look_alike
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

NO_TOPIC_ID = uuid.UUID(int=0)
NO_LEADER = -1


class PartitionView(NamedTuple):
    """A partition as metadata shows it; replicas are node ids."""

    partition: int
    error_code: int
    leader_id: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]


class TopicView:
    """A topic with its partitions, ordered by number. Immutable: a changed topic gets a new view."""

    __slots__ = ("is_internal", "metadata", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: uuid.UUID, partitions: Sequence[PartitionView]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.is_internal = name in INTERNAL_TOPICS
        self.metadata: object = None
        """The topic's part of Metadata responses, built once for each format."""

    def __repr__(self) -> str:
        return f"TopicView({self.name!r}, {len(self.partitions)} partitions)"


class Topics:
    """The topics of a standalone broker: looks them up, creates, enlarges and deletes them.

    Changes run in steps; changes of the same topic run one after the other: see `topic_changes`.
    """

    def __init__(self, core: Core, leadership: Leadership, changes: TopicChanges) -> None:
        self._core = core
        self._leadership = leadership
        self._changes = changes
        self.on_deleted: list[Callable[[str], Iterator[None]]] = []
        """Called with the name of each deleted topic."""
        self._views: dict[str, TopicView] = {}
        self._by_id: dict[uuid.UUID, TopicView] = {}
        self._in_order: list[TopicView] | None = None
        self._look_alikes: dict[str, set[str]] = {}
        self._going: set[str] = set()
        self._generation = 0
        self._changed = core.manager.changed_topics
        self._changed.update(key.topic for key in core.manager.partitions())

    # --- asking

    def get(self, name: str) -> TopicView | None:
        """Return a topic, or None if the topic is unknown."""
        if self._changed:
            self._look()
        return self._views.get(name)

    def by_id(self, topic_id: uuid.UUID) -> TopicView | None:
        """Return the topic with this id, or None if the id is unknown."""
        if self._changed:
            self._look()
        return self._by_id.get(topic_id)

    def all(self) -> Iterable[TopicView]:
        """Return all topics, by name. The caller must not change them."""
        if self._changed:
            self._look()
        if self._in_order is None:
            self._in_order = [self._views[name] for name in sorted(self._views)]
        return self._in_order

    @property
    def generation(self) -> int:
        """A number that changes whenever any topic changes."""
        if self._changed:
            self._look()
        return self._generation

    def colliding(self, name: str) -> str | None:
        """Return the name of a topic that differs from `name` only in dots and underscores, None if there is none. Kafka's
        metrics cannot tell such names apart.
        """
        if self._changed:
            self._look()
        return min(self._look_alikes.get(look_alike(name), ()), default=None)

    def properties(self, name: str) -> dict[str, str]:
        """Return the properties that are set on a topic. For a topic without a configuration, return properties that
        prevent any deletion of records.
        """
        topic = self._core.manager.topic(name)
        if topic is None:
            return {key: str(value) for key, value in KEEP_EVERYTHING.items()}
        return dict(topic.properties)

    def leader_of(self, name: str, partition: int) -> int:
        """Return this broker: it leads all partitions."""
        return self._core.node_id

    def described(self, view: TopicView, listener: Listener, version: int) -> MetadataResponseTopic:
        """Return a topic's part of a Metadata response. It is cached, because clients ask for it repeatedly."""
        described = view.metadata
        if not isinstance(described, MetadataResponseTopic):
            described = view.metadata = MetadataResponseTopic(
                error_code=ErrorCode.NONE,
                name=view.name,
                topic_id=view.topic_id,
                is_internal=view.is_internal,
                partitions=[
                    MetadataResponsePartition(
                        error_code=one.error_code,
                        partition_index=one.partition,
                        leader_id=one.leader_id,
                        leader_epoch=one.leader_epoch,
                        replica_nodes=one.replicas,
                        isr_nodes=one.isr,
                        offline_replicas=one.offline_replicas,
                    )
                    for one in view.partitions
                ],
            )
        return described

    # --- changes

    def creation(self, name: str, partitions: int, properties: Mapping[str, PropertyValue]) -> Steps[TopicView]:
        """Create a topic. Raises TopicExistsError, InvalidArgumentError, StorageError; after an error nothing is left behind."""
        try:
            yield from self._core.manager.steps.creation(name, partitions, properties)
        except StorageError:
            self._changes.finish_later(self.finishing)
            raise
        view = self.get(name)
        assert view is not None
        return view

    def enlargement(self, name: str, partitions: int) -> Steps[object]:
        """Increase a topic's number of partitions to `partitions`. Raises UnknownTopicOrPartitionError, InvalidArgumentError,
        StorageError.
        """
        return self._core.manager.steps.enlargement(name, partitions)

    def configuration(self, name: str, properties: Mapping[str, PropertyValue]) -> Steps[object]:
        """Replace a topic's properties. A topic that was found without a configuration gets one.

        Raises UnknownTopicOrPartitionError, InvalidArgumentError, StorageError.
        """
        if self._core.manager.is_configuration_known(name):
            return self._core.manager.steps.alteration(name, properties)
        return self._core.manager.steps.adoption(name, properties)

    def deletion(self, view: TopicView) -> Steps[None]:
        """Delete a topic and the groups' committed offsets for it. Requests that wait for the topic's records are woken.

        Clients no longer see the topic once the first step has run. If the deletion fails, they see the remaining partitions
        again. Raises UnknownTopicOrPartitionError, StorageError.
        """
        name = view.name
        self._going.add(name)
        self._changed.add(name)
        try:
            yield from self._core.manager.steps.deletion(name)
            self._core.metrics.forget_topic(name)
            for forget in self.on_deleted:
                yield from forget(name)
        except StorageError:
            self._changes.finish_later(self.finishing)
            raise
        finally:
            self._going.discard(name)
            self._changed.add(name)
            for one in view.partitions:
                self._core.delayed_fetches.appended(TopicPartition(name, one.partition))

    def finishing(self, name: str) -> Steps[None]:
        """Retry the unfinished deletion of a topic, unless it has been finished in the meantime. Raises StorageError."""
        if name in self._core.manager.unfinished_deletions():
            yield from self.deletion(self.get(name) or TopicView(name, NO_TOPIC_ID, []))

    # --- inside

    def _look(self) -> None:
        """Rebuild the views of changed topics. An unchanged topic keeps its view."""
        manager = self._core.manager
        names = sorted(self._changed)
        self._changed.clear()
        self._generation += 1
        self._in_order = None
        for name in names:
            before = self._views.pop(name, None)
            if before is not None:
                self._by_id.pop(before.topic_id, None)
            keys = () if name in self._going else manager.partitions_of(name)
            if keys:
                view = self._view(name, keys, before)
                self._views[name] = view
                if view.topic_id != NO_TOPIC_ID:
                    self._by_id[view.topic_id] = view
            self._note_name(name, is_there=bool(keys))

    def _note_name(self, name: str, *, is_there: bool) -> None:
        wanted = look_alike(name)
        if "_" in wanted:
            names = self._look_alikes.setdefault(wanted, set())
            if is_there:
                names.add(name)
            else:
                names.discard(name)
                if not names:
                    del self._look_alikes[wanted]

    def _view(self, name: str, keys: Sequence[TopicPartition], before: TopicView | None) -> TopicView:
        topic = self._core.manager.topic(name)
        if topic is not None:
            topic_id = topic.topic_id
        else:
            logs = [self._core.manager.logs[key] for key in keys if key in self._core.manager.logs]
            topic_id = next((log.topic_id for log in logs if log.topic_id is not None), NO_TOPIC_ID)
        partitions = self._partitions(keys)
        if before is not None and before.topic_id == topic_id and before.partitions == partitions:
            return before
        return TopicView(name, topic_id, partitions)

    def _partitions(self, keys: Sequence[TopicPartition]) -> list[PartitionView]:
        """Return the views of a topic's partitions. There may be thousands, so equal values are shared between them."""
        logs, epoch_of, node_id = self._core.manager.logs, self._leadership.epoch_of, self._core.node_id
        own: list[int] = [node_id]
        none: list[int] = []
        views = []
        for key in keys:
            log = logs.get(key)
            if log is None:
                views.append(PartitionView(key.partition, ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, 0, own, own, own))
            else:
                offline = own if log.is_offline else none
                views.append(PartitionView(key.partition, ErrorCode.NONE, node_id, epoch_of(key), own, own, offline))
        return views


def why_invalid(name: str) -> str | None:
    """Return why Kafka would refuse `name` for a topic; None if it is valid."""
    if not name:
        return "a topic's name is empty"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"a topic's name has {len(name)} characters: at most {MAX_TOPIC_NAME_LENGTH} are allowed"
    if not is_topic_name(name):
        return f"{name!r} is not a topic name: use ASCII letters and digits, '.', '_' and '-', but not '.' or '..' alone"
    return None
