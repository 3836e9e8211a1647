"""Changes topics in steps: makes the changes of `TopicLifecycle`, and applies their effects on compaction."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.config import PropertyValue
from tidelog.storage.background_work import BackgroundWork
from tidelog.storage.partitions import Partitions
from tidelog.storage.steps import Steps
from tidelog.storage.topics.topic import Topic
from tidelog.storage.topics.topic_lifecycle import TopicLifecycle


class TopicSteps:
    """Changes topics in steps, for an owner that does other work in between: see `steps`. `LogManager` offers the same changes
    as single calls, and documents their errors.
    """

    def __init__(self, lifecycle: TopicLifecycle, partitions: Partitions, work: BackgroundWork) -> None:
        self._lifecycle = lifecycle
        self._partitions = partitions
        self._work = work

    def creation(self, name: str, partitions: int, properties: Mapping[str, PropertyValue] | None = None) -> Steps[Topic]:
        """Create a topic: see `LogManager.create_topic`."""
        return self._lifecycle.create(name, partitions, properties or {})

    def enlargement(self, name: str, partitions: int) -> Steps[Topic]:
        """Increase a topic's partitions: see `LogManager.add_partitions`."""
        return self._lifecycle.add_partitions(name, partitions)

    def deletion(self, name: str) -> Steps[None]:
        """Delete a topic: see `LogManager.delete_topic`."""
        keys = self._partitions.keys_of(name)
        yield from self._lifecycle.delete(name)
        self._work.forget_cleaning(keys)

    def alteration(self, name: str, properties: Mapping[str, PropertyValue]) -> Steps[Topic]:
        """Replace a topic's properties: see `LogManager.alter_config`."""
        topic = yield from self._lifecycle.alter(name, properties)
        if not self._lifecycle.table.config_of(name).is_compacted:
            self._work.stop_cleaning(self._partitions.keys_of(name))
        return topic

    def adoption(self, name: str, properties: Mapping[str, PropertyValue] | None = None) -> Steps[Topic]:
        """Give a configuration to a topic found without one: see `LogManager.adopt_topic`."""
        return self._lifecycle.adopt(name, properties or {})
