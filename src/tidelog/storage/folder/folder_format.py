"""Formats a data folder for a cluster member: writes the folder's owner, once, before the broker's first start (KIP-631,
KIP-858).

Like Kafka's storage tool, this writes ``meta.properties`` with the cluster id, the node id, and a random directory id. Kafka's
``bootstrap.checkpoint`` is for controllers; brokers start without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.formats.dir_lock import DirLock
from tidelog.formats.partition_metadata import format_topic_id
from tidelog.storage.folder import data_folder
from tidelog.storage.folder.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties, write_meta_properties


class Formatted(NamedTuple):
    """The result of formatting a folder: its owner, and what the folder had before."""

    owner: MetaProperties
    is_new: bool
    """False if the folder was already formatted for the same node and cluster, and is therefore unchanged."""
    partitions: int
    """The number of partitions that the folder already has."""


def format_folder(directory: Path, cluster_id: str, node_id: int, *, ignore_formatted: bool = False) -> Formatted:
    """Format a data folder, which is created if missing. With `ignore_formatted` a folder formatted for the same owner is left
    unchanged.

    Raises InvalidArgumentError for invalid ids; StorageError for a folder that is formatted, in use, or not a data folder.
    """
    if not cluster_id or not cluster_id.isascii() or not cluster_id.isprintable() or " " in cluster_id:
        raise InvalidArgumentError(
            "the cluster id is invalid",
            found=repr(cluster_id),
            expected="the cluster id with which the controllers were formatted",
        )
    if not 0 <= node_id < 2**31:
        raise InvalidArgumentError("the node id is out of range", found=node_id, expected="0 to 2147483647")
    data_folder.check_is_data_folder(directory)
    data_folder.create(directory)
    with DirLock(directory):
        contents = len(data_folder.list_contents(directory).partitions)
        owner = read_meta_properties(directory)
        if owner is not None:
            _check_formatted(directory, owner, cluster_id, node_id, ignore_formatted)
            return Formatted(owner, False, contents)
        owner = MetaProperties(node_id, cluster_id, format_topic_id(data_folder.new_topic_id()))
        write_meta_properties(directory, owner)
        return Formatted(owner, True, contents)


def _check_formatted(directory: Path, owner: MetaProperties, cluster_id: str, node_id: int, ignore_formatted: bool) -> None:
    is_same = (owner.node_id, owner.cluster_id) == (node_id, cluster_id)
    if ignore_formatted and is_same:
        return
    raise StorageError(
        "the folder is already formatted" + ("" if is_same else ", for a different node or cluster"),
        path=directory / META_PROPERTIES,
        found=f"node {owner.node_id} of cluster {owner.cluster_id}",
        expected=None if is_same else f"node {node_id} of cluster {cluster_id}",
    )
