"""The topics as a client sees them: which there are, who leads them. One broker, so it leads whatever can be read.

| a partition | leader | error | offline replicas |
|---|---|---|---|
| is served | this broker | | |
| met an I/O error; it is still read | this broker, who refuses what is produced (KAFKA_STORAGE_ERROR) | | this broker |
| could not be loaded | none (-1) | LEADER_NOT_AVAILABLE | this broker |

Topics that a folder has without a configuration (a backup, a folder from Kafka) are topics as all others. One whose partitions
carry no id, as before Kafka 2.8, has none here either (all zeros).

Views are kept until the manager says that a topic has changed: asking for one costs a look-up.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.config import PropertyValue
from tidelog.log.names import TopicPartition
from tidelog.storage.log_manager import KEEP_EVERYTHING
from tidelog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.node import Node

NO_TOPIC_ID = uuid.UUID(int=0)
NO_LEADER = -1

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

MAX_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class PartitionView(NamedTuple):
    """A partition as metadata tells it; replicas are node ids."""

    partition: int
    error_code: int
    leader_id: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]


class TopicView:
    """A topic, and its partitions in order. Nothing of it changes: a changed topic has another view."""

    __slots__ = ("is_internal", "metadata", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: uuid.UUID, partitions: Sequence[PartitionView]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.is_internal = name in INTERNAL_TOPICS
        self.metadata: object = None
        """What the Metadata API has made of it, to be made once."""

    def __repr__(self) -> str:
        return f"TopicView({self.name!r}, {len(self.partitions)} partitions)"


class Topics:
    """The topics of `node`: seen, created, enlarged, deleted. Changes raise what the manager's methods of these names do."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views: dict[str, TopicView] = {}
        self._by_id: dict[uuid.UUID, TopicView] = {}
        self._in_order: list[TopicView] | None = None
        self._changed = node.manager.changed_topics
        self._changed.update(key.topic for key in node.manager.partitions())

    # --- asking

    def get(self, name: str) -> TopicView | None:
        """Return a topic, None if there is none of that name."""
        if self._changed:
            self._look()
        return self._views.get(name)

    def by_id(self, topic_id: uuid.UUID) -> TopicView | None:
        """Return the topic of an id, None if there is none."""
        if self._changed:
            self._look()
        return self._by_id.get(topic_id)

    def all(self) -> list[TopicView]:
        """Return all topics, by name. The list is not the caller's to change."""
        if self._changed:
            self._look()
        if self._in_order is None:
            self._in_order = [self._views[name] for name in sorted(self._views)]
        return self._in_order

    def colliding(self, name: str) -> str | None:
        """Return a topic whose name differs from `name` in dots and underscores only: Kafka's metrics would mix them up."""
        wanted = name.replace(".", "_")
        if "_" not in wanted:
            return None
        return next((view.name for view in self.all() if view.name.replace(".", "_") == wanted), None)

    def properties(self, name: str) -> dict[str, str]:
        """Return a topic's own properties; of one that was found without a configuration, those that keep everything."""
        topic = self._node.manager.topic(name)
        if topic is None:
            return {key: str(value) for key, value in KEEP_EVERYTHING.items()}
        return dict(topic.properties)

    # --- changing

    def create(self, name: str, partitions: int, properties: Mapping[str, PropertyValue]) -> TopicView:
        """Create a topic. Raises TopicExistsError, InvalidArgumentError, StorageError; nothing is left behind then."""
        self._node.manager.create_topic(name, partitions, properties)
        view = self.get(name)
        assert view is not None
        return view

    def add_partitions(self, name: str, partitions: int) -> None:
        """Let a topic have `partitions` in all. Raises UnknownTopicOrPartitionError, InvalidArgumentError, StorageError."""
        self._node.manager.add_partitions(name, partitions)

    def configure(self, name: str, properties: Mapping[str, PropertyValue]) -> None:
        """Give a topic these properties instead of those it had; one that was found without a configuration has one then.

        Raises UnknownTopicOrPartitionError, InvalidArgumentError, StorageError.
        """
        if self._node.manager.is_configuration_known(name):
            self._node.manager.alter_config(name, properties)
        else:
            self._node.manager.adopt_topic(name, properties)

    def delete(self, view: TopicView) -> None:
        """Delete a topic, and what groups have committed of it; who waits for its records is woken.

        Raises UnknownTopicOrPartitionError, StorageError.
        """
        try:
            self._node.manager.delete_topic(view.name)
            self._node.metrics.forget_topic(view.name)
            self._node.groups.topic_deleted(view.name)
            self._node.transactions.topic_deleted(view.name)
        finally:
            for one in view.partitions:
                self._node.arrivals.appended(TopicPartition(view.name, one.partition))

    # --- inside

    def _look(self) -> None:
        """Make the views of changed topics anew; one of a topic that is as it was stays."""
        manager = self._node.manager
        names = sorted(self._changed)
        self._changed.clear()
        self._in_order = None
        keys: dict[str, list[TopicPartition]]
        if len(names) == 1:
            keys = {names[0]: manager.partitions_of(names[0])}
        else:
            keys = {name: [] for name in names}
            for key in manager.partitions():
                if key.topic in keys:
                    keys[key.topic].append(key)
        for name in names:
            before = self._views.pop(name, None)
            if before is not None:
                self._by_id.pop(before.topic_id, None)
            if keys[name]:
                view = self._view(name, keys[name], before)
                self._views[name] = view
                if view.topic_id != NO_TOPIC_ID:
                    self._by_id[view.topic_id] = view

    def _view(self, name: str, keys: Sequence[TopicPartition], before: TopicView | None) -> TopicView:
        topic = self._node.manager.topic(name)
        if topic is not None:
            topic_id = topic.topic_id
        else:
            logs = [self._node.manager.logs[key] for key in keys if key in self._node.manager.logs]
            topic_id = next((log.topic_id for log in logs if log.topic_id is not None), NO_TOPIC_ID)
        partitions = [self._partition(key) for key in keys]
        if before is not None and before.topic_id == topic_id and before.partitions == partitions:
            return before
        return TopicView(name, topic_id, partitions)

    def _partition(self, key: TopicPartition) -> PartitionView:
        node_id = self._node.node_id
        log = self._node.manager.logs.get(key)
        if log is None:
            return PartitionView(key.partition, ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, 0, [node_id], [node_id], [node_id])
        offline = [node_id] if log.is_offline else []
        return PartitionView(key.partition, ErrorCode.NONE, node_id, self._node.leader_epoch(key), [node_id], [node_id], offline)


def why_invalid(name: str) -> str | None:
    """Say what keeps Kafka from taking `name` for a topic; None if nothing does."""
    if not name:
        return "a topic's name is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"a topic's name has {len(name)} characters: {MAX_NAME_LENGTH} is the most"
    if name in (".", "..") or not _LEGAL_NAME.fullmatch(name):
        return f"{name!r} is no topic's name: letters and digits of ASCII, '.', '_' and '-' are, but '.' and '..' alone"
    return None
