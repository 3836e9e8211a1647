"""What a data folder knows of its topics, as tests want it: registered, forgotten, or as Tidelog 0.1 kept it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Container, Mapping
from pathlib import Path

from tests.storage.partition_logs import NOW_MS
from tidelog.clock import ManualClock
from tidelog.formats.partition_metadata import format_topic_id
from tidelog.reader.metadata_log import metadata_dir
from tidelog.storage.folder.topics_file import TOPICS_FILE
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.metadata.topic_records import topic_records
from tidelog.storage.topics.topic import Topic


def register(directory: Path, *topics: Topic) -> None:
    """Have the folder's metadata name these topics, too, all on node 1."""
    store = MetadataStore.open(directory, 1, None, ManualClock(NOW_MS))
    for topic in topics:
        store.commit(topic_records(topic, 1, store.directory_id))


def forget(directory: Path) -> None:
    """Make the folder a backup: its partitions, and nothing that says what topics they are of."""
    shutil.rmtree(metadata_dir(directory))


def write_old_file(directory: Path, topics: Mapping[str, Topic], deleting: Container[str] = ()) -> None:
    """Write what Tidelog 0.1 would have kept of topics."""
    entries = {
        name: {"id": format_topic_id(topic.topic_id), "partitions": topic.partitions, "properties": topic.properties}
        | ({"deleting": True} if name in deleting else {})
        for name, topic in topics.items()
    }
    (directory / TOPICS_FILE).write_text(json.dumps({"version": 1, "topics": entries}))
