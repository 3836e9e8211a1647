"""``meta.properties``: the owner of a data folder (spec §7; KIP-631, KIP-858).

A Java properties file, replaced atomically. Versions 0 and 1 are read; version 1 is written::

    version=1                        version=0 (ZooKeeper)
    cluster.id=<22 characters>       cluster.id=<22 characters>, or missing
    node.id=1                        broker.id=1
    directory.id=<22 characters>     (since Kafka 3.7)

A file without a version is of version 0. Other keys are kept unchanged. Kafka refuses to start on a folder of a different cluster
or node, or with a damaged or reserved ``directory.id``, and so does `log_manager`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.errors import CorruptCheckpointError, InvalidArgumentError, StorageError
from tidelog.formats.checkpoints import replace_file
from tidelog.formats.files import read_whole
from tidelog.formats.partition_metadata import parse_topic_id
from tidelog.formats.paths.file_path import FilePath
from tidelog.metadata.directory_ids import is_reserved
from tidelog.properties_file import parse_properties

META_PROPERTIES = "meta.properties"


@dataclass(frozen=True)
class MetaProperties:
    """The owner of a data folder."""

    node_id: int
    cluster_id: str | None = None
    directory_id: str | None = None
    version: int = 1
    others: dict[str, str] = field(default_factory=dict)

    @property
    def directory_uuid(self) -> uuid.UUID | None:
        """The directory id as a UUID, None if the folder has none."""
        return None if self.directory_id is None else parse_topic_id(self.directory_id)

    def to_text(self) -> str:
        """Return the file's text, without Java's comment lines."""
        node_key = "broker.id" if self.version == 0 else "node.id"
        values = {
            "version": str(self.version),
            "cluster.id": self.cluster_id,
            node_key: str(self.node_id),
            "directory.id": self.directory_id,
            **self.others,
        }
        return "".join(f"{key}={value}\n" for key, value in values.items() if value is not None)


def read_meta_properties(directory: FilePath) -> MetaProperties | None:
    """Return the file's content, or None if there is no file. Raises CorruptCheckpointError, StorageError."""
    path = directory / META_PROPERTIES
    try:
        text = read_whole(path).decode("latin-1")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read meta.properties: {error.strerror}", path=path) from error
    try:
        values = {key: value.strip() for key, value in parse_properties(text).items()}
    except InvalidArgumentError as error:
        raise CorruptCheckpointError(f"meta.properties: {error.message}", path=path, found=error.found) from None
    version = _number(values.pop("version", "0"), "version", path)
    if version not in (0, 1):
        raise CorruptCheckpointError("meta.properties has an unsupported version", path=path, found=version, expected="0 or 1")
    node_key = "broker.id" if version == 0 else "node.id"
    if node_key not in values:
        raise CorruptCheckpointError(f"meta.properties has version {version}, but no {node_key}", path=path)
    node_id = _number(values.pop(node_key), node_key, path)
    cluster_id, directory_id = values.pop("cluster.id", None), values.pop("directory.id", None)
    if directory_id is not None and not _is_directory_id(directory_id):
        raise CorruptCheckpointError(
            "directory.id in meta.properties is invalid",
            path=path,
            found=repr(directory_id),
            expected="16 random bytes in base64",
        )
    return MetaProperties(node_id, cluster_id, directory_id, version, values)


def _is_directory_id(text: str) -> bool:
    directory_id = parse_topic_id(text)
    return directory_id is not None and not is_reserved(directory_id)


def known_cluster_id(directory: FilePath) -> str | None:
    """Return the id of the cluster that a folder belongs to, or None if unknown. Raises StorageError."""
    try:
        owner = read_meta_properties(directory)
    except CorruptCheckpointError:
        return None  # The logs can be read without the cluster id.
    return None if owner is None else owner.cluster_id


def write_meta_properties(directory: Path, properties: MetaProperties) -> None:
    """Replace the folder's file. Raises StorageError."""
    replace_file(directory / META_PROPERTIES, properties.to_text().encode("latin-1"))


def _number(text: str, key: str, path: FilePath) -> int:
    try:
        return int(text)
    except ValueError:
        raise CorruptCheckpointError(f"{key} in meta.properties is not a number", path=path, found=repr(text)) from None
