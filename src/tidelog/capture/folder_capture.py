"""Reads one or more data folders as the source of a backup. Their broker may be running.

If the broker is running, records are read up to the high-watermark checkpoint, which is written every five seconds. Later records
may still be truncated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tidelog.backup.layout import assumed_topic_id
from tidelog.capture.capture_source import Failed, FoundBatch, SourceEnds, SourceTopic
from tidelog.errors import NotFoundError, OffsetOutOfRangeError, TidelogError
from tidelog.folder_list import Folders
from tidelog.formats import names
from tidelog.formats.dir_lock import is_locked
from tidelog.model import INTERNAL_TOPICS, TopicPartition
from tidelog.reader.log import Log
from tidelog.reader.log_dirs import LogDirs
from tidelog.reader.segment import Segment
from tidelog.sources.files.cached_log_dir import open_cached
from tidelog.storage.folder.meta_properties import known_cluster_id

_READ_BYTES = 1024 * 1024


class FolderCapture:
    """A source that reads the data folders at an address."""

    parallel = 1

    def __init__(self, address: Folders) -> None:
        self.log_dir = open_cached(address)
        self.name = str(self.log_dir.address)
        folders = self.log_dir.folders if isinstance(self.log_dir, LogDirs) else (self.log_dir,)
        self._folders = [one.path for one in folders]
        self.is_at_rest = True

    @property
    def is_consistent(self) -> bool:
        """Whether no broker writes to the folder."""
        return self.is_at_rest

    def cluster_id(self) -> str | None:
        return known_cluster_id(self.log_dir.metadata_path)

    def topics(self) -> dict[str, SourceTopic]:
        self.log_dir.look()
        self.log_dir.__dict__.pop("image", None)
        self.is_at_rest = not any(map(is_locked, self._folders))
        found: dict[str, SourceTopic] = {}
        for name, partitions in self.log_dir.topics().items():
            topic_id = self.log_dir.log(name, partitions[0]).topic_id
            image = self.log_dir.image
            listing = None if image is None else image.topics.get(name)
            replicas = 0 if listing is None else max((len(one.replicas) for one in listing.partitions.values()), default=0)
            is_internal = name in INTERNAL_TOPICS
            topic_id = assumed_topic_id(name) if topic_id is None else topic_id
            found[name] = SourceTopic(name, topic_id, is_internal, replicas, tuple(partitions))
        return found

    def settings(self, topics: Collection[str]) -> tuple[dict[str, dict[str, str]], list[Failed]]:
        image = self.log_dir.image
        return ({} if image is None else {topic: dict(image.topic_config(topic)) for topic in topics}), []

    def ends(self, keys: Collection[TopicPartition]) -> tuple[dict[TopicPartition, SourceEnds], dict[TopicPartition, Failed]]:
        found: dict[TopicPartition, SourceEnds] = {}
        failed: dict[TopicPartition, Failed] = {}
        for key in keys:
            try:
                log = self.log_dir.log(*key)
                mark = log.high_watermark
                end = log.log_end_offset if self.is_at_rest or mark is None else mark
                epochs = log.leader_epochs.latest
                found[key] = SourceEnds(log.log_start_offset, end, end, -1 if epochs is None else epochs.epoch)
                log.close()
            except TidelogError as error:
                failed[key] = Failed(names.log_dir_name(*key), error)
        return found, failed

    def missing(self, keys: Collection[TopicPartition]) -> list[Failed]:
        found = list(self.log_dir.missing_partitions())
        for key in keys:
            log = self.log_dir.log(*key)
            found += self.log_dir.missing_of(log)
            log.close()
        return [Failed("records are missing from the source", NotFoundError(str(one))) for one in found]

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for key, epoch in epochs.items():
            log = self.log_dir.log(*key)
            end = log.leader_epochs.end_offset_for(epoch, log.log_end_offset)[1] if epoch >= 0 else -1
            if end >= 0:
                found[key] = end
        return found

    def read(self, key: TopicPartition, start_offset: int, end_offset: int) -> Iterator[FoundBatch]:
        log = self.log_dir.log(*key)
        if start_offset < log.log_start_offset:
            text = f"{names.log_dir_name(*key)}: records were deleted while they were being read"
            raise OffsetOutOfRangeError(text, path=str(log.directory), found=start_offset, expected=log.log_start_offset)
        try:
            yield from _batches(log, start_offset, end_offset)
        finally:
            log.close()

    def rights(self) -> dict[str, Any]:
        reason = "the source is a data folder, not a cluster"
        return {"acls": None, "quotas": None, "scram_users": None, "not_described": dict.fromkeys(("acls", "quotas"), reason)}

    def close(self) -> None:
        self.log_dir.close()


def _batches(log: Log, start_offset: int, end_offset: int) -> Iterator[FoundBatch]:
    """Yield batches, reading 1 MiB at a time."""
    before: Segment | None = None
    chunk, chunk_position = memoryview(b""), 0
    for segment, header in log.segment_headers(start_offset, end_offset):
        begins = segment is not before
        if begins:
            chunk, chunk_position = memoryview(b""), 0
        before = segment
        if header.end_position > chunk_position + len(chunk):
            chunk_position = header.position
            chunk = memoryview(segment.file.read(chunk_position, max(_READ_BYTES, header.size)))
        at = header.position - chunk_position
        yield FoundBatch(header, chunk[at : at + header.size], begins and header.position == 0)
