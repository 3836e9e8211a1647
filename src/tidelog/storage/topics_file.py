"""``tidelog-topics.json``: what topics a data folder has, with their ids, partition counts and configurations.

The one file that Tidelog keeps about topics, readable, and replaced atomically::

    {
      "version": 1,
      "topics": {
        "flights": {
          "id": "8bHAiWzVQAKqTq3mJqq5sQ",
          "partitions": 6,
          "properties": {"retention.ms": "604800000"}
        }
      }
    }

`id` is a topic id as in ``partition.metadata``; `properties` are those that differ from the defaults, under Kafka's names.
A topic that is being deleted has ``"deleting": true`` until the last of its folders has been renamed, so that a crash in
between neither brings it back nor leaves half of it. Keys that this version does not know are kept.

A folder of partitions that the file does not name (a backup, a folder from Kafka) is no error: see `log_manager`.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tidelog.config import LogConfig
from tidelog.errors import CorruptCheckpointError, InvalidArgumentError
from tidelog.log.checkpoints import replace_file
from tidelog.log.json_files import read_json
from tidelog.log.partition_metadata import format_topic_id, parse_topic_id

TOPICS_FILE = "tidelog-topics.json"
VERSION = 1


@dataclass(frozen=True)
class Topic:
    """A topic as the file tells it. `properties` are texts under Kafka's names."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    properties: dict[str, str] = field(default_factory=dict)
    is_deleting: bool = False
    others: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """The topic's lines in the file. Of thousands of topics one changes at a time, so all others' are at hand."""
        entry: dict[str, Any] = {"id": format_topic_id(self.topic_id), "partitions": self.partitions}
        entry["properties"] = dict(sorted(self.properties.items()))
        if self.is_deleting:
            entry["deleting"] = True
        lines = json.dumps({**entry, **self.others}, indent=2, ensure_ascii=False).replace("\n", "\n    ")
        return f"    {json.dumps(self.name, ensure_ascii=False)}: {lines}"

    def with_properties(self, properties: dict[str, str]) -> Topic:
        """Return the topic with these properties instead."""
        return replace(self, properties=dict(properties))


def read_topics(directory: Path) -> dict[str, Topic]:
    """Return the topics of a data folder by name; none without the file. Raises CorruptCheckpointError, StorageError."""
    path = directory / TOPICS_FILE
    content = read_json(path, VERSION, "the topics' file")
    if content is None:
        return {}
    topics = content.get("topics")
    if not isinstance(topics, dict):
        raise CorruptCheckpointError("the topics' file has no object of topics", path=path)
    return {name: _parse(name, entry, path) for name, entry in topics.items()}


def write_topics(directory: Path, topics: dict[str, Topic]) -> None:
    """Replace the file. Raises StorageError."""
    entries = ",\n".join(topics[name].text for name in sorted(topics))
    inside = f"{{\n{entries}\n  }}" if topics else "{}"
    replace_file(directory / TOPICS_FILE, f'{{\n  "version": {VERSION},\n  "topics": {inside}\n}}\n'.encode())


def _parse(name: str, entry: Any, path: Path) -> Topic:
    where = f"topic {name!r} in the topics' file"
    if not isinstance(entry, dict):
        raise CorruptCheckpointError(where, path=path, found=type(entry).__name__, expected="an object")
    rest = dict(entry)
    text, partitions, properties = rest.pop("id", None), rest.pop("partitions", None), rest.pop("properties", {})
    topic_id = parse_topic_id(text) if isinstance(text, str) else None
    if topic_id is None:
        raise CorruptCheckpointError(f"{where}: id", path=path, found=repr(text), expected="16 bytes in base64, not all zero")
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise CorruptCheckpointError(f"{where}: partitions", path=path, found=repr(partitions), expected="1 or more")
    if not isinstance(properties, dict):
        raise CorruptCheckpointError(f"{where}: properties", path=path, found=repr(properties), expected="an object")
    try:
        LogConfig.from_properties(properties)
    except InvalidArgumentError as error:
        raise CorruptCheckpointError(f"{where}: {error}", path=path) from None
    is_deleting = rest.pop("deleting", False) is True
    return Topic(name, topic_id, partitions, {key: str(value) for key, value in properties.items()}, is_deleting, rest)
