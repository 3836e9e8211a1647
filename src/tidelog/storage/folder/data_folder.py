"""Checks a data folder before its logs are opened: its owner, its content, and the limit of open files (spec §1, §7)."""

from __future__ import annotations

import os
import resource
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.formats import names
from tidelog.formats.partition_metadata import format_topic_id
from tidelog.model import METADATA_TOPIC, TopicPartition
from tidelog.reader.metadata_log import METADATA_DIR
from tidelog.storage.folder.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties, write_meta_properties
from tidelog.storage.folder.topics_file import TOPICS_FILE
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.segment import descriptors

FIRST_NODE_ID = 1

_MARKS = frozenset(
    {
        META_PROPERTIES,
        METADATA_DIR,
        TOPICS_FILE,
        names.RECOVERY_POINT_CHECKPOINT,
        names.HIGH_WATERMARK_CHECKPOINT,
        names.LOG_START_OFFSET_CHECKPOINT,
    }
)
"""Names of files that show that a folder is a data folder."""

_OUR_FILES = "tidelog-"


def create(directory: Path) -> None:
    """Create the folder if it does not exist. Raises StorageError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create the data folder: {error.strerror}", path=directory) from error


def claim(directory: Path, config: ManagerConfig) -> MetaProperties:
    """Return the folder's owner. A folder without ``meta.properties`` gets the configured node as its owner.

    Raises InvalidArgumentError for a different node's or cluster's folder, CorruptCheckpointError, StorageError.
    """
    owner = read_meta_properties(directory)
    if owner is None:
        node_id = FIRST_NODE_ID if config.node_id is None else config.node_id
        owner = MetaProperties(node_id, config.cluster_id or format_topic_id(new_topic_id()), format_topic_id(new_topic_id()))
        write_meta_properties(directory, owner)
    check_owner(directory, owner, config)
    return owner


def members(directory: Path, config: ManagerConfig) -> MetaProperties:
    """Return the owner of a folder that was formatted for a cluster member. A folder without a directory id gets one (KIP-858).

    Raises InvalidArgumentError for an unformatted folder, and for a different node's or cluster's; CorruptCheckpointError,
    StorageError.
    """
    owner = read_meta_properties(directory)
    if owner is None or owner.cluster_id is None:
        raise InvalidArgumentError(
            "the folder is not formatted for a broker of a cluster: run `tidelog format`",
            path=directory / META_PROPERTIES,
            found="no such file" if owner is None else "no cluster.id",
        )
    check_owner(directory, owner, config)
    if owner.directory_id is None or owner.version == 0:
        owner = replace(owner, directory_id=owner.directory_id or format_topic_id(new_topic_id()), version=1)
        write_meta_properties(directory, owner)
    return owner


def check_owner(directory: Path, owner: MetaProperties, config: ManagerConfig) -> None:
    """Raise InvalidArgumentError if the folder belongs to a node or cluster other than the configured one."""
    path = directory / META_PROPERTIES
    for what, found, expected in (
        ("node", owner.node_id, config.node_id),
        ("cluster", owner.cluster_id, config.cluster_id),
    ):
        if expected is not None and found != expected:
            raise InvalidArgumentError(f"the folder belongs to a different {what}", path=path, found=found, expected=expected)


def is_claimed(directory: Path) -> bool:
    """Whether a folder has an owner."""
    return (directory / META_PROPERTIES).exists()


def check_is_data_folder(directory: Path) -> None:
    """Raise StorageError for a non-empty folder without any file of Kafka or Tidelog: its path is probably a mistake.

    A missing or empty folder is accepted.
    """
    try:
        entries = sorted(os.listdir(directory))  # noqa: PTH208  # names are all that is needed
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"cannot list the data folder: {error.strerror}", path=directory) from error
    foreign = [name for name in entries if not name.startswith(".") and name != "lost+found"]
    is_ours = any(name in _MARKS or name.startswith(_OUR_FILES) for name in entries)
    if foreign and not is_ours and not list_contents(directory).partitions:
        raise StorageError(
            "the folder holds other files, so it is not a data folder",
            path=directory,
            found=foreign[0],
            expected="an empty or a new folder",
        )


class FolderContents(NamedTuple):
    """The folders of partitions, and of partitions that are being removed."""

    partitions: dict[TopicPartition, Path]
    going: list[Path]


def list_contents(directory: Path) -> FolderContents:
    """List a data folder once. Foreign folders, staging folders and the metadata log are left out. Raises StorageError."""
    partitions, going = {}, []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if names.is_suffixed_dir(entry.name):
                    if entry.name.endswith(names.DELETE_DIR_SUFFIX) and entry.is_dir():
                        going.append(directory / entry.name)
                    continue
                try:
                    key = names.parse_topic_partition_name(entry.name)
                except InvalidArgumentError:
                    continue
                if key.topic != METADATA_TOPIC and names.log_dir_name(*key) == entry.name and entry.is_dir():
                    partitions[key] = directory / entry.name
    except OSError as error:
        raise StorageError(f"cannot list the data folder: {error.strerror}", path=directory) from error
    return FolderContents(partitions, going)


def new_topic_id() -> uuid.UUID:
    """Return a random id whose text does not begin with a dash, because command lines would interpret such an id as an option."""
    while True:
        random_id = uuid.uuid4()
        if random_id.bytes[0] >> 2 != 0b111110:
            return random_id


def raise_open_files_limit() -> None:
    """Raise this process's limit on open files to the hard limit, because each active segment keeps a file open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    descriptors.look_at_limit()
