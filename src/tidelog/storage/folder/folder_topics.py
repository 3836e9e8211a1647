"""Reads the topics of any data folder, from KRaft's metadata log or from the JSON file of Tidelog 0.1."""

from __future__ import annotations

from tidelog.formats.paths.file_path import FilePath
from tidelog.reader.metadata_log import read_metadata_log
from tidelog.storage.folder.topics_file import read_topics_file
from tidelog.storage.topics.topic import Topic


def read_topics(directory: FilePath) -> dict[str, Topic]:
    """Return the topics of a data folder by name; an empty dict if the folder names no topics.

    The file of Tidelog 0.1 takes precedence until the first start converts it: if Kafka's metadata log exists as well, the file
    is newer. Raises CorruptDataError, UnsupportedVersionError, StorageError.
    """
    log = read_metadata_log(directory)
    topics = {}
    if log is not None:
        for name, image in log.image.topics.items():
            topics[name] = Topic(name, image.topic_id, len(image.partitions), log.image.topic_config(name))
    old = read_topics_file(directory) or {}
    return topics | {name: one.topic for name, one in old.items() if not one.is_deleting}
