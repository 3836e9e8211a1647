"""One or more data folders with their remote storage. The local and remote segments of a partition are read as one log.

The folder's ``__remote_log_metadata`` says which segments are remote. A broker keeps only some partitions of that topic, so the
folders of all brokers may be needed; an error names the partition that is missing. If no folder has a partition's local log, only
its remote records are read, and a notice says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING

from tidelog.backup.opening import folders_at
from tidelog.errors import NotFoundError
from tidelog.folder_list import Folders
from tidelog.formats import names
from tidelog.formats.files import Notices
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.formats.paths.file_path import FilePath
from tidelog.model import REMOTE_LOG_METADATA_TOPIC, TopicPartition
from tidelog.objects.opening import folder_at
from tidelog.objects.tier import Tier, TieredAddress, is_tiered, parse_tiered
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.log_dirs import LogDirs
from tidelog.reader.missing.claims import Claims
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.reader.offset_targets import TieredOffsets
from tidelog.reader.tiered.layout import Layout, open_layout
from tidelog.reader.tiered.remote_segments import RemoteSegment, RemoteSegments, TopicIdPartition, metadata_partition
from tidelog.reader.tiered.tiered_path import TieredFolder, TieredPath

if TYPE_CHECKING:
    from tidelog.metadata.image import MetadataImage

_TRIED = 100
"""How many segments are looked for in remote storage before the tier's address is considered wrong."""


class TieredLogDir(LogDir):
    """The data folders `folders` with the remote storage `tier`. Raises NotFoundError if no folder has ``__remote_log_metadata``,
    or if none of the segments that it lists is in remote storage.
    """

    def __init__(self, folders: LogDir, tier: Tier) -> None:
        self.folders = folders
        self.tier = tier
        self.path = folders.path
        self.skip_damaged = folders.skip_damaged
        self.notices = Notices()
        self.remote = RemoteSegments()
        self._read_metadata()
        if not self.remote.metadata_partitions:
            text = f"the folder lacks {REMOTE_LOG_METADATA_TOPIC}, the topic that lists the segments in remote storage"
            raise NotFoundError(text, path=folders.address)

    def __repr__(self) -> str:
        return f"TieredLogDir({self.address!r})"

    @property
    def address(self) -> str:
        return TieredAddress(self.folders.address, self.tier).with_options()

    @cached_property
    def layout(self) -> Layout:
        """The layout of the files in remote storage."""
        found = (one for partition in self.remote.partitions for one in self.remote.readable(partition))
        return open_layout(folder_at(self.tier.address), self.tier.key_files, islice(found, _TRIED))

    def partition_id(self, key: TopicPartition) -> TopicIdPartition | None:
        """Return a partition with its topic id. Return None if the topic has no id: such a topic cannot be in remote storage."""
        if key in self.folders.partition_keys:
            topic_id = read_topic_id(self.folders.directory(*key) / names.PARTITION_METADATA)
        else:
            topic_id = next(reversed(self.remote.topic_ids(key)), None)
        return None if topic_id is None else TopicIdPartition(key.topic, topic_id, key.partition)

    def is_remote(self, key: TopicPartition) -> bool:
        """Return whether a partition has remote segments to read."""
        identity = self.partition_id(key)
        return identity is not None and bool(self.remote.readable(identity))

    def directory(self, topic: str, partition: int) -> FilePath:
        key = TopicPartition(topic, partition)
        identity = self.partition_id(key)
        segments = [] if identity is None else self.remote.readable(identity)
        if identity is None or not segments:
            self._check_metadata(identity)
            return self.folders.directory(topic, partition)
        is_local = key in self.folders.partition_keys
        local = self.folders.directory(topic, partition) if is_local else self.path / names.log_dir_name(*key)
        if not is_local:
            self.notices.note(local, "only the records in remote storage are read: no folder has the local log")
        again = partial(readable_again, self.folders.address, identity)
        log_start = self.claims(key).log_start_offset or 0
        return TieredFolder(local.absolute(), identity, self.tier, self.layout, segments, log_start, again).path

    def log(self, topic: str, partition: int, message_format: int | None = None) -> Log:
        log = super().log(topic, partition, message_format)
        if isinstance(log.directory, TieredPath):
            folder = log.directory.folder
            local_start = log.log_end_offset if folder.local_start is None else folder.local_start
            log.tiered = TieredOffsets(max(local_start, log.log_start_offset), folder.last_tiered_offset)
        return log

    def _check_metadata(self, identity: TopicIdPartition | None) -> None:
        """Raise NotFoundError if the folders lack the metadata of a tiered partition."""
        if identity is None or self.image is None:
            return
        listing = self.image.topics.get(REMOTE_LOG_METADATA_TOPIC)
        count = 0 if listing is None else len(listing.partitions)
        is_remote = self.image.topic_config(identity.topic).get("remote.storage.enable") == "true"
        if is_remote and count and (number := metadata_partition(identity, count)) not in self.remote.metadata_partitions:
            name = names.log_dir_name(*identity.key)
            lists = f"{REMOTE_LOG_METADATA_TOPIC}-{number} lists the remote segments of {name}, but no folder has it"
            raise NotFoundError(lists, path=self.folders.address, expected="the folders of all brokers")

    # --- what the folders have

    def claims(self, key: TopicPartition) -> Claims:
        return self.folders.claims(key) if key in self.folders.partition_keys else Claims()

    def is_there(self, key: TopicPartition) -> bool:
        return self.folders.is_there(key) or key in self.partition_keys

    def missing_partitions(self, topic: str | None = None) -> list[MissingOffsets]:
        return self.folders.missing_partitions(topic)

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        return self.folders.checkpoint(name)

    def home(self, key: TopicPartition) -> LogDir:
        return self.folders.home(key) if key in self.folders.partition_keys else self

    @property
    def has_metadata(self) -> bool:
        return self.folders.has_metadata

    @property
    def metadata_path(self) -> FilePath:
        return self.folders.metadata_path

    @property
    def entries(self) -> list[str]:
        return self.folders.entries

    @property
    def image(self) -> MetadataImage | None:
        """The cluster metadata in the folders."""
        return self.folders.image

    def look(self) -> None:
        self.folders.look()
        self._read_metadata()
        self._forget()

    def log_sizes(self) -> dict[str, int]:
        return self.folders.log_sizes()

    def release(self, most: int) -> None:
        self.folders.release(most)

    def close(self) -> None:
        self.folders.close()

    @cached_property
    def _partitions(self) -> set[TopicPartition]:
        return self.folders.partition_keys | set(self.remote.keys())

    @property
    def _metadata_partitions(self) -> set[TopicPartition]:
        return self.folders._metadata_partitions

    def _read_metadata(self) -> None:
        self.remote.refresh(self.folders)
        for text in self.remote.notices:
            self.notices.note(self.path, text)
        self.remote.notices.clear()


def readable_again(folders: str, partition: TopicIdPartition) -> list[RemoteSegment]:
    """Return a partition's current readable remote segments. `folders` is the address of the data folders."""
    remote = RemoteSegments()
    remote.refresh(open_log_dir(folders))
    return remote.readable(partition)


def open_log_dir(folders: Folders, opened: Callable[[Folders], LogDir] | None = None) -> LogDir:
    """Open one data folder, several folders as one (see `folder_list`), or a tiered address. `opened` opens folders without a
    tier.

    Raises the same errors as `LogDir`, `folders_at` and `TieredLogDir`.
    """
    if is_tiered(folders):
        address = parse_tiered(folders)
        return TieredLogDir((opened or open_log_dir)(address.folders), address.tier)
    paths = folders_at(folders)
    return LogDir(paths[0]) if len(paths) == 1 else LogDirs(paths)
