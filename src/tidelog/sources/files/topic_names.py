"""Looks up topic names by topic id in a data folder: in its partitions, and in the cluster metadata that it holds."""

from __future__ import annotations

import uuid
from functools import cached_property

from tidelog.errors import TidelogError
from tidelog.formats import names
from tidelog.formats.partition_metadata import format_topic_id, read_topic_id
from tidelog.reader.log_dir import LogDir


class TopicNames:
    """Looks up the names of a data folder's topics."""

    def __init__(self, log_dir: LogDir) -> None:
        self._log_dir = log_dir

    def of(self, topic_id: uuid.UUID) -> str:
        """Return the name of the topic with this id; if the name is unknown, return the id as Kafka writes it."""
        return self._here.get(topic_id) or self._in_metadata.get(topic_id) or format_topic_id(topic_id)

    @cached_property
    def _here(self) -> dict[uuid.UUID, str]:
        found: dict[uuid.UUID, str] = {}
        for topic, partitions in self._log_dir.topics().items():
            for partition in partitions:
                path = self._log_dir.directory(topic, partition) / names.PARTITION_METADATA
                try:
                    topic_id = read_topic_id(path)
                except TidelogError:
                    continue
                if topic_id is not None:
                    found[topic_id] = topic
                    break
        return found

    @cached_property
    def _in_metadata(self) -> dict[uuid.UUID, str]:
        """All topics in the cluster metadata, including those without a partition in this folder because their replicas are on
        other brokers.
        """
        image = self._log_dir.image
        return {} if image is None else {topic_id: topic.name for topic_id, topic in image.topics_by_id.items()}
