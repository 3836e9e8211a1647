"""``tidelog-topics.json``: the topics in a data folder of Tidelog 0.1. The file is read once, and converted
(`metadata.takeover`).

::

    {
      "version": 1,
      "topics": {
        "flights": {"id": "8bHAiWzVQAKqTq3mJqq5sQ", "partitions": 6, "properties": {"retention.ms": "604800000"}}
      }
    }

`id` is a topic id as in ``partition.metadata``; `properties` are the properties that differ from the defaults, under Kafka's
names. A topic that was being deleted has ``"deleting": true``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog.config import LogConfig
from tidelog.errors import CorruptCheckpointError, InvalidArgumentError
from tidelog.formats.json_files import read_json
from tidelog.formats.partition_metadata import parse_topic_id
from tidelog.formats.paths.file_path import FilePath
from tidelog.storage.topics.topic import Topic

TOPICS_FILE = "tidelog-topics.json"
VERSION = 1


class TopicInFile(NamedTuple):
    """A topic in the file."""

    topic: Topic
    is_deleting: bool


def read_topics_file(directory: FilePath) -> dict[str, TopicInFile] | None:
    """Return the topics of the file by name, or None if there is no file. Raises CorruptCheckpointError, StorageError."""
    path = directory / TOPICS_FILE
    content = read_json(path, VERSION, "the topics' file")
    if content is None:
        return None
    topics = content.get("topics")
    if not isinstance(topics, dict):
        raise CorruptCheckpointError("the file has no object named topics", path=path)
    return {name: _parse(name, entry, path) for name, entry in topics.items()}


def _parse(name: str, entry: Any, path: FilePath) -> TopicInFile:
    where = f"topic {name!r} in the topics' file"
    if not isinstance(entry, dict):
        raise CorruptCheckpointError(where, path=path, found=type(entry).__name__, expected="an object")
    text, partitions, properties = entry.get("id"), entry.get("partitions"), entry.get("properties", {})
    topic_id = parse_topic_id(text) if isinstance(text, str) else None
    if topic_id is None:
        raise CorruptCheckpointError(
            f"{where}: the id is invalid", path=path, found=repr(text), expected="16 bytes in base64, not all zero"
        )
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise CorruptCheckpointError(
            f"{where}: the number of partitions is invalid", path=path, found=repr(partitions), expected="1 or more"
        )
    if not isinstance(properties, dict):
        raise CorruptCheckpointError(
            f"{where}: the properties are invalid", path=path, found=repr(properties), expected="an object"
        )
    try:
        LogConfig.from_properties(properties)
    except InvalidArgumentError as error:
        raise CorruptCheckpointError(f"{where}: {error}", path=path) from None
    topic = Topic(name, topic_id, partitions, {key: str(value) for key, value in properties.items()})
    return TopicInFile(topic, entry.get("deleting") is True)
