"""The interface of a backup's source. `broker_capture.py` implements it for brokers, `folder_capture.py` for a data folder."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.records.batch import BatchHeader


class SourceTopic(NamedTuple):
    """A topic's current state."""

    name: str
    topic_id: uuid.UUID
    is_internal: bool
    replication_factor: int
    """The replication factor; 0 if it is unknown."""
    partitions: tuple[int, ...]


class SourceEnds(NamedTuple):
    """A partition's offsets in the source."""

    log_start_offset: int
    stable_offset: int
    """The last stable offset. It is requested before any partition's `end_offset`."""
    end_offset: int
    leader_epoch: int
    """The leader epoch, or -1 if unknown. While the leader epoch stays the same, nothing is truncated."""


class FoundBatch(NamedTuple):
    """A batch's header and its stored bytes."""

    header: BatchHeader
    data: memoryview
    """The batch's bytes, valid until the next batch is requested."""
    begins_segment: bool
    """Whether a segment of the source begins with this batch. False if this is unknown."""


class Failed(NamedTuple):
    """A topic or partition that could not be read, and the reason."""

    what: str
    error: TidelogError

    def __str__(self) -> str:
        return f"{self.what}: {self.error}"


class CaptureSource(Protocol):
    """The source of a backup. Methods raise TidelogError if the source as a whole cannot be reached."""

    name: str
    """The source's name in messages and in points."""

    parallel: int
    """How many partitions may be read at the same time, each on a separate thread."""

    @property
    def is_consistent(self) -> bool:
        """Whether `ends` reads all last stable offsets before it reads the log ends, so that a consistent cut exists."""

    def cluster_id(self) -> str | None: ...

    def topics(self) -> dict[str, SourceTopic]:
        """Return all topics by name."""

    def settings(self, topics: Collection[str]) -> tuple[dict[str, dict[str, str]], list[Failed]]:
        """Return the properties set for each topic, and the topics whose properties are unknown."""

    def ends(self, keys: Collection[TopicPartition]) -> tuple[dict[TopicPartition, SourceEnds], dict[TopicPartition, Failed]]:
        """Return the offsets of partitions, and the errors of partitions that failed."""

    def missing(self, keys: Collection[TopicPartition]) -> list[Failed]:
        """Return a `Failed` for each range of records that the source should have but lacks."""

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return, for each partition, the end offset of its leader epoch in `epochs`, or of the last epoch before that one.
        Partitions with an unknown end offset are left out.
        """

    def read(self, key: TopicPartition, start_offset: int, end_offset: int) -> Iterator[FoundBatch]:
        """Yield the batches with offsets in [start_offset, end_offset), including control batches. Raises OffsetOutOfRangeError
        if records at `start_offset` have been deleted.
        """

    def rights(self) -> dict[str, Any]:
        """Return ACLs, quotas and SCRAM users. `not_described` names those that could not be described, with the reason."""

    def close(self) -> None: ...
