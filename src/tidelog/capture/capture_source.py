"""What a backup needs of its source. `broker_capture.py` is one for brokers, `folder_capture.py` one for a data folder."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.records.batch import BatchHeader


class SourceTopic(NamedTuple):
    """A topic as it is now."""

    name: str
    topic_id: uuid.UUID
    is_internal: bool
    replication_factor: int
    """0 if unknown."""
    partitions: tuple[int, ...]


class SourceEnds(NamedTuple):
    """Offsets of a partition."""

    log_start_offset: int
    stable_offset: int
    """Asked before any partition's `end_offset` was."""
    end_offset: int
    leader_epoch: int
    """-1 if unknown. While it stays the same, nothing is truncated."""


class FoundBatch(NamedTuple):
    """A batch as it is stored, with its bytes."""

    header: BatchHeader
    data: memoryview
    begins_segment: bool
    """Whether the source's segment begins with it, if the source knows."""


class Failed(NamedTuple):
    """What could not be asked or read, and why."""

    what: str
    error: TidelogError

    def __str__(self) -> str:
        return f"{self.what}: {self.error}"


class CaptureSource(Protocol):
    """The source of a backup. Methods raise TidelogError if nothing can be said at all."""

    name: str
    """The source in messages, and in the points."""

    parallel: int
    """How many partitions may be read at the same time, each on a thread of its own."""

    @property
    def is_consistent(self) -> bool:
        """Whether `ends` asks for all stable offsets before the ends, so that a cut can be found."""

    def cluster_id(self) -> str | None: ...

    def topics(self) -> dict[str, SourceTopic]:
        """Return all topics by name."""

    def settings(self, topics: Collection[str]) -> tuple[dict[str, dict[str, str]], list[Failed]]:
        """Return the properties that are set for each topic, and the topics for which that is unknown."""

    def ends(self, keys: Collection[TopicPartition]) -> tuple[dict[TopicPartition, SourceEnds], dict[TopicPartition, Failed]]:
        """Return the offsets of partitions, and the partitions that did not answer."""

    def missing(self, keys: Collection[TopicPartition]) -> list[Failed]:
        """Return which records of partitions the source should have and has not."""

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where the records of a leader epoch, or of the last one before, end; partitions of which that is unknown are
        left out.
        """

    def read(self, key: TopicPartition, start_offset: int, end_offset: int) -> Iterator[FoundBatch]:
        """Yield the batches with offsets in [start_offset, end_offset), control batches too. Raises OffsetOutOfRangeError if
        records from `start_offset` on are gone.
        """

    def rights(self) -> dict[str, Any]:
        """Return ACLs, quotas and SCRAM users, as far as they can be described; `not_described` says what is not, and why."""

    def close(self) -> None: ...
