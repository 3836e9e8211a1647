"""Assigns partitions of topics to the brokers of one machine.

A new partition has one replica, on the live broker with the fewest partitions. Changes are records of the metadata log;
the brokers create and remove the folders when they read them.
"""

from __future__ import annotations

import heapq
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidelog.broker.controller.registrations import Registrations
from tidelog.broker.core import Core
from tidelog.broker.requests.api_error import ApiError
from tidelog.broker.topics.topics import PartitionView, Topics, TopicView
from tidelog.config import PropertyValue
from tidelog.metadata.image import TopicImage
from tidelog.metadata.records import TOPIC_RESOURCE, PartitionRecord, RemoveTopicRecord, TopicRecord
from tidelog.storage.folder.data_folder import new_topic_id
from tidelog.storage.metadata.topic_records import config_records
from tidelog.storage.steps import Steps
from tidelog.storage.topics.topic_table import look_alike
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Message


class ControlledTopics(Topics):
    """The topics in the metadata of `core`. Their partitions are on the brokers of `registrations`."""

    def __init__(self, core: Core, registrations: Registrations) -> None:
        self._core = core
        self._store = core.manager.metadata
        self._registrations = registrations
        self.on_deleted = []

    # --- asking

    def get(self, name: str) -> TopicView | None:
        topic = self._store.image.topics.get(name)
        return None if topic is None or not topic.partitions else _view(topic)

    def by_id(self, topic_id: uuid.UUID) -> TopicView | None:
        topic = self._store.image.topics_by_id.get(topic_id)
        return None if topic is None else self.get(topic.name)

    def all(self) -> Iterable[TopicView]:
        return [_view(topic) for _, topic in sorted(self._store.image.topics.items()) if topic.partitions]

    def colliding(self, name: str) -> str | None:
        wanted = look_alike(name)
        if "_" not in wanted:
            return None
        return min((other for other in self._store.image.topics if other != name and look_alike(other) == wanted), default=None)

    def properties(self, name: str) -> dict[str, str]:
        return self._store.image.topic_config(name)

    # --- changes

    def creation(self, name: str, partitions: int, properties: Mapping[str, PropertyValue]) -> Steps[TopicView]:
        """Create a topic. Raises ApiError if no broker is alive, StorageError."""
        topic_id = new_topic_id()
        texts = {key: str(value) for key, value in properties.items()}
        yield from self._written(
            name,
            [
                TopicRecord(name, topic_id),
                *config_records(TOPIC_RESOURCE, name, {}, texts),
                *self._placed(topic_id, range(partitions)),
            ],
        )
        view = self.get(name)
        assert view is not None
        return view

    def enlargement(self, name: str, partitions: int) -> Steps[None]:
        """Increase a topic's number of partitions. Raises ApiError if no broker is alive, StorageError."""
        topic = self._store.image.topics[name]
        yield from self._written(name, list(self._placed(topic.topic_id, range(len(topic.partitions), partitions))))

    def configuration(self, name: str, properties: Mapping[str, PropertyValue]) -> Steps[None]:
        """Replace a topic's properties. Raises StorageError."""
        texts = {key: str(value) for key, value in properties.items()}
        yield from self._written(name, config_records(TOPIC_RESOURCE, name, self.properties(name), texts))

    def deletion(self, view: TopicView) -> Steps[None]:
        """Delete a topic. Raises StorageError."""
        yield from self._written(view.name, [RemoveTopicRecord(view.topic_id)])

    def finishing(self, name: str) -> Steps[None]:
        """Do nothing, because a single record deletes a topic."""
        yield from ()

    # --- inside

    def _written(self, name: str, records: Sequence[Message]) -> Steps[None]:
        change = self._store.append(records)
        self._core.manager.refresh_topic(name)
        yield change

    def _placed(self, topic_id: uuid.UUID, numbers: Iterable[int]) -> Iterator[PartitionRecord]:
        """Yield new partitions, each on the live broker that has the fewest partitions."""
        alive = self._registrations.alive()
        if not alive:
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is running")
        counts = Counter(one.replicas[0] for topic in self._store.image.topics.values() for one in topic.partitions.values())
        least = [(counts[broker_id], broker_id) for broker_id in alive]
        heapq.heapify(least)
        for number in numbers:
            count, broker_id = least[0]
            heapq.heapreplace(least, (count + 1, broker_id))
            directories = [self._store.image.brokers[broker_id].log_dirs[0]]
            yield PartitionRecord(number, topic_id, [broker_id], [broker_id], [], [], broker_id, 0, 0, 0, directories)


def _view(topic: TopicImage) -> TopicView:
    return TopicView(
        topic.name,
        topic.topic_id,
        [
            PartitionView(number, ErrorCode.NONE, one.leader, one.leader_epoch, one.replicas, one.isr, [])
            for number, one in sorted(topic.partitions.items())
        ],
    )
