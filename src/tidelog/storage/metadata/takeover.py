"""Converts a data folder of Tidelog 0.1, once: the content of its JSON files goes into the metadata log.

| file of 0.1 | becomes |
|---|---|
| ``tidelog-topics.json`` | topics, their ids, partitions and settings; interrupted deletions continue |
| ``tidelog-producer-ids.json`` | the next producer id |
| ``tidelog-leader-epoch.json`` | the leader epoch of each partition |

The records are on disk before the files are renamed to ``….taken-over``. After a crash in between, the conversion is repeated,
without further changes. If the folder also has Kafka's metadata log, Tidelog 0.1 was the later owner: its settings take
precedence, and its topics are added.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from tidelog.config import INT32_MAX
from tidelog.errors import CorruptCheckpointError, StorageError
from tidelog.formats.checkpoints import sync_directory
from tidelog.formats.json_files import read_json
from tidelog.metadata.records import TOPIC_RESOURCE, ProducerIdsRecord
from tidelog.storage.folder.topics_file import TOPICS_FILE, read_topics_file
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.metadata.topic_records import config_records, partition_records, topic_records
from tidelog.storage.topics.topic import Topic
from tidelog.wire.fields import Message

logger = logging.getLogger("tidelog.storage")

PRODUCER_IDS_FILE = "tidelog-producer-ids.json"
LEADER_EPOCH_FILE = "tidelog-leader-epoch.json"
OLD_FILES = (TOPICS_FILE, PRODUCER_IDS_FILE, LEADER_EPOCH_FILE)
SUFFIX = ".taken-over"

_VERSION = 1
_NO_BROKER_EPOCH = -1


def is_old(directory: Path) -> bool:
    """Whether a folder has files of Tidelog 0.1 that have not been converted yet."""
    return any((directory / name).exists() for name in OLD_FILES)


def take_over(store: MetadataStore) -> set[str]:
    """Write the content of 0.1's files into the metadata log. Return the names of topics that were being deleted.

    Raises CorruptCheckpointError for a damaged topics file, StorageError; nothing has changed then.
    """
    directory, image = store.directory, store.image
    epoch = _number(directory / LEADER_EPOCH_FILE, "leader_epoch", "the leader epoch", INT32_MAX) or 0
    records: list[Message] = []
    deleting = set()
    for name, (topic, is_deleting) in (read_topics_file(directory) or {}).items():
        if is_deleting:
            deleting.add(name)
            continue
        known = image.topics.get(name)
        if known is None:
            records += topic_records(topic, store.node_id, store.directory_id, leader_epoch=epoch)
        elif known.topic_id == topic.topic_id:
            records += config_records(TOPIC_RESOURCE, name, image.topic_config(name), topic.properties)
            added = [number for number in range(topic.partitions) if number not in known.partitions]
            records += partition_records(topic.topic_id, added, store.node_id, store.directory_id, leader_epoch=epoch)
        else:
            logger.warning(
                "%s: ignoring topic %s, because it differs from the topic in the metadata log", directory / TOPICS_FILE, name
            )
    following = _number(directory / PRODUCER_IDS_FILE, "next", "the producer ids", 2**63 - 1)
    if following is not None and following > image.next_producer_id:
        records.append(ProducerIdsRecord(store.node_id, _NO_BROKER_EPOCH, following))
    store.commit(records)
    logger.info("%s: moved the topics of Tidelog 0.1 into the metadata log", directory)
    return deleting


def set_aside(directory: Path) -> None:
    """Rename the files of 0.1, once their content is applied. Raises StorageError."""
    try:
        for name in OLD_FILES:
            with contextlib.suppress(FileNotFoundError):
                (directory / name).rename(directory / f"{name}{SUFFIX}")
        sync_directory(directory)
    except OSError as error:
        raise StorageError(f"cannot rename a file of Tidelog 0.1: {error.strerror}", path=directory) from error


def register(store: MetadataStore, topic: Topic) -> None:
    """Write a topic that has no records yet into the metadata log. Raises StorageError."""
    store.commit(topic_records(topic, store.node_id, store.directory_id))


def _number(path: Path, key: str, what: str, most: int) -> int | None:
    number: object = None
    try:
        content = read_json(path, _VERSION, what)
        if content is None:
            return None
        number = content.get(key)
    except CorruptCheckpointError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
        logger.warning("ignoring %s, because it cannot be read", path)
        return None
    return number
