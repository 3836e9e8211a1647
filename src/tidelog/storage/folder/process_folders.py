"""Divides a data folder among several brokers of one machine, and moves partitions between their folders.

::

    DIR/                 the controller's: meta.properties, __cluster_metadata-0
    DIR/process1/ ...    the data folders of the brokers with the ids 1 to N

`place` runs before the brokers start, and distributes partitions over N brokers. It moves the partitions of brokers with ids
above N, and the partitions of a folder that a single broker served before. If N has grown, it also moves as many partitions as
new brokers need for an equal share. A move is a rename::

    1  the target's checkpoints get the partition's lines; its clean-shutdown file is removed if the source has none
    2  the partition's folder is renamed
    3  when all are moved, the metadata log gets their new brokers

A crash in between loses nothing: the next `place` finds each partition where its folder is. If a folder cannot be divided,
`check` raises an error before anything is written.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint, sync_directory, write_offset_checkpoint
from tidelog.formats.dir_lock import DirLock
from tidelog.formats.partition_metadata import format_topic_id
from tidelog.metadata.records import NO_LEADER, PartitionChangeRecord
from tidelog.model import TopicPartition
from tidelog.reader.metadata_log import METADATA_DIR
from tidelog.storage.folder import data_folder
from tidelog.storage.folder.clean_shutdown import take_clean_shutdown, write_clean_shutdown
from tidelog.storage.folder.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties, write_meta_properties
from tidelog.storage.metadata import takeover
from tidelog.storage.metadata.metadata_store import MetadataStore

if TYPE_CHECKING:
    from tidelog.clock import Clock

logger = logging.getLogger("tidelog.storage")

CONTROLLER_ID = 3000
"""The node id of the controller. The brokers have the ids 1, 2, 3, …."""

_NAME = re.compile(r"process([1-9][0-9]*)")
_WHOLE = 0
"""The number that stands for DIR itself: partitions there were served by a single broker."""

_CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
)

Places = dict[TopicPartition, int]


def process_folder(folder: Path, number: int) -> Path:
    """Return the data folder of the broker with this number."""
    return folder / f"process{number}" if number else folder


def place(folder: Path, clock: Clock, count: int) -> None:
    """Prepare the folder for brokers 1 to `count`, as the module's docstring describes. A missing folder is created.

    Raises what `check` raises, and StorageError if a broker or tool is using the folder.
    """
    data_folder.check_is_data_folder(folder)
    data_folder.create(folder)
    with ExitStack() as stack:
        stack.enter_context(DirLock(folder))
        found = check(folder, clock)
        before = _numbers_in(folder)
        owner = _claimed(folder)
        for number in range(1, count + 1):
            _format(process_folder(folder, number), number, owner)
        for number in {*before, *range(1, count + 1)}:
            stack.enter_context(DirLock(process_folder(folder, number)))
        store = MetadataStore.open(folder, CONTROLLER_ID, owner.directory_uuid, clock)
        _Placement(folder, store, count).settle(found)


def check(folder: Path, clock: Clock) -> Places:
    """Return in which folder each partition is: 0 is `folder` itself. Nothing is written.

    Raises InvalidArgumentError for a folder that cannot be divided, and for a divided folder of which a part is missing;
    StorageError.
    """
    data_folder.check_is_data_folder(folder)
    owner = read_meta_properties(folder)
    numbers = _numbers_in(folder)
    for number in numbers:
        _check_member(folder, number, owner)
    node_id, directory_id = (CONTROLLER_ID, None) if owner is None else (owner.node_id, owner.directory_uuid)
    store = MetadataStore.open(folder, node_id, directory_id, clock)
    if takeover.is_old(folder) or (store.is_new and owner is not None and node_id != CONTROLLER_ID):
        raise InvalidArgumentError(
            "the folder's topics have no metadata, so their partitions cannot be divided among processes: "
            "serve the folder with one process first",
            path=folder,
        )
    found: Places = {}
    for number in (_WHOLE, *numbers):
        for key in data_folder.list_contents(process_folder(folder, number)).partitions if folder.exists() else ():
            if store.image.partition(*key) is not None:
                found[key] = number
            elif number == _WHOLE:
                raise InvalidArgumentError(
                    "a topic has no metadata, so its partitions cannot be divided among processes: serve the folder with one "
                    "process first, and adopt the topic",
                    path=folder,
                    found=repr(key.topic),
                )
            elif store.is_new:
                raise InvalidArgumentError(
                    "the metadata of the folder's topics is missing: restore it", path=folder / METADATA_DIR, found="no records"
                )
    if node_id == CONTROLLER_ID:
        _check_complete(folder, store, found, numbers)
    return found


def _check_complete(folder: Path, store: MetadataStore, found: Places, numbers: list[int]) -> None:
    """Raise InvalidArgumentError if a broker that has partitions has no folder: its partitions would be empty."""
    lost = Counter(
        partition.replicas[0]
        for name, topic in store.image.topics.items()
        for number, partition in topic.partitions.items()
        if partition.replicas and partition.replicas[0] not in numbers and TopicPartition(name, number) not in found
    )
    for number, count in sorted(lost.items()):
        raise InvalidArgumentError(
            "a broker's log directory is missing: restore it, or create an empty one to discard its records",
            path=process_folder(folder, number),
            found="no such directory",
            expected=f"a directory with {count} partitions",
        )


def divided_folder(folder: Path) -> Path | None:
    """Return the divided folder that contains `folder` as a broker's folder, or None."""
    absolute = folder.absolute()
    if _NAME.fullmatch(absolute.name) is None:
        return None
    mine, owner = read_meta_properties(absolute), read_meta_properties(absolute.parent)
    is_its = mine is not None and owner is not None and owner.node_id == CONTROLLER_ID and owner.cluster_id == mine.cluster_id
    return folder.parent if is_its else None


def _numbers_in(folder: Path) -> list[int]:
    if not folder.exists():
        return []
    return sorted(int(found[1]) for path in folder.iterdir() if (found := _NAME.fullmatch(path.name)) and path.is_dir())


def _claimed(folder: Path) -> MetaProperties:
    """Return the owner of the folder, which becomes the controller's: from now on no broker starts on the folder itself."""
    owner = read_meta_properties(folder)
    if owner is not None and owner.node_id == CONTROLLER_ID and owner.cluster_id is not None:
        return owner
    if owner is None:
        owner = MetaProperties(CONTROLLER_ID, None, format_topic_id(data_folder.new_topic_id()))
    owner = replace(
        owner, node_id=CONTROLLER_ID, cluster_id=owner.cluster_id or format_topic_id(data_folder.new_topic_id()), version=1
    )
    write_meta_properties(folder, owner)
    return owner


def _format(folder: Path, number: int, owner: MetaProperties) -> None:
    data_folder.create(folder)
    if read_meta_properties(folder) is None:
        write_meta_properties(folder, MetaProperties(number, owner.cluster_id, format_topic_id(data_folder.new_topic_id())))


def _check_member(folder: Path, number: int, owner: MetaProperties | None) -> None:
    path = process_folder(folder, number)
    found = read_meta_properties(path)
    if found is None:
        return
    if owner is None:
        raise InvalidArgumentError(
            f"{META_PROPERTIES} is missing, but {path.name} belongs to a cluster: restore {META_PROPERTIES}",
            path=folder / META_PROPERTIES,
            expected=f"node {CONTROLLER_ID} of {found.cluster_id}",
        )
    if (found.node_id, found.cluster_id) != (number, owner.cluster_id):
        raise InvalidArgumentError(
            "the folder belongs to a different node or cluster",
            path=path,
            found=f"node {found.node_id} of {found.cluster_id}",
            expected=f"node {number} of {owner.cluster_id}",
        )


def _directory_of(folder: Path) -> uuid.UUID:
    owner = read_meta_properties(folder)
    assert owner is not None and owner.directory_uuid is not None
    return owner.directory_uuid


class _Placement:
    """Places the partitions of `store`'s metadata on brokers 1 to `count`."""

    def __init__(self, folder: Path, store: MetadataStore, count: int) -> None:
        self._folder = folder
        self._store = store
        self._numbers = range(1, count + 1)
        self._directories = {number: [_directory_of(process_folder(folder, number))] for number in self._numbers}

    def settle(self, found: Places) -> None:
        """Move partitions where necessary, and write into the metadata where each partition is."""
        target = self._targets(found)
        moves = [(key, found[key], number) for key, number in target.items() if key in found and found[key] != number]
        self._move(moves)
        changes = []
        for key, number in target.items():
            partition, directories = self._store.image.partition(*key), self._directories[number]
            assert partition is not None
            if partition.replicas != [number] or partition.directories != directories:
                changes.append(
                    PartitionChangeRecord(
                        key.partition, partition.topic_id, [number], NO_LEADER, [number], directories=directories
                    )
                )
        self._store.commit(changes)
        if moves:
            logger.info("%s: moved %d partitions between brokers", self._folder, len(moves))

    def _targets(self, found: Places) -> Places:
        target: Places = {}
        homeless: list[TopicPartition] = []
        for name, topic in sorted(self._store.image.topics.items()):
            for number, partition in sorted(topic.partitions.items()):
                key = TopicPartition(name, number)
                at = found.get(key, partition.replicas[0] if partition.replicas else _WHOLE)
                if at in self._numbers:
                    target[key] = at
                else:
                    homeless.append(key)
        counts = Counter(dict.fromkeys(self._numbers, 0))
        counts.update(target.values())
        for key in homeless:
            target[key] = min(self._numbers, key=lambda number: (counts[number], number))
            counts[target[key]] += 1
        if not set(self._numbers) <= set(found.values()):  # Some brokers are new.
            for key in sorted(target):
                at, least = target[key], min(self._numbers, key=lambda number: (counts[number], number))
                if counts[at] - counts[least] > 1:
                    counts[at] -= 1
                    counts[least] += 1
                    target[key] = least
        return target

    def _move(self, moved: Sequence[tuple[TopicPartition, int, int]]) -> None:
        """Update the checkpoints, then rename partitions' folders. Raises StorageError."""
        if not moved:
            return
        places = {place for _, *both in moved for place in both}
        is_clean = {place: (process_folder(self._folder, place) / names.CLEAN_SHUTDOWN_FILE).exists() for place in places}
        has_logs = {place: bool(data_folder.list_contents(process_folder(self._folder, place)).partitions) for place in places}
        for target in {to for _, _, to in moved}:
            if any(to == target and not is_clean[at] for _, at, to in moved):
                take_clean_shutdown(process_folder(self._folder, target))
            elif not has_logs[target]:
                write_clean_shutdown(process_folder(self._folder, target))  # There is nothing to recover.
        for name in _CHECKPOINTS:
            lines = {place: read_offset_checkpoint(process_folder(self._folder, place) / name) for place in places}
            changed = set()
            for key, at, to in moved:
                if key in lines[at]:
                    lines[to][key] = lines[at][key]
                    changed.add(to)
            for to in changed:
                write_offset_checkpoint(process_folder(self._folder, to) / name, lines[to])
        try:
            for key, at, to in moved:
                name = names.log_dir_name(*key)
                (process_folder(self._folder, at) / name).rename(process_folder(self._folder, to) / name)
            for one in places:
                sync_directory(process_folder(self._folder, one))
        except OSError as error:
            raise StorageError(f"cannot move a partition: {error.strerror}", path=self._folder) from error
