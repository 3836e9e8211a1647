"""What a stream asks of the place where the log is; `folder_place` and `broker_place` answer, and keep open what they can.

A place belongs to one query: it lives in the process beside the driver as long as the query runs, and is asked once or twice
for each batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from tidelog.model import TopicPartition
from tidelog.reader.missing import MissingOffsets
from tidelog.sources.brokers import AnySplit
from tidelog.spark.places import Partition
from tidelog.spark.stream.batch_ranges import Span


class StreamPlace(Protocol):
    """See the module. Keys are partitions; offsets and times as everywhere."""

    def topics(self) -> dict[str, list[int]]:
        """Return the partitions of each topic, as they are now; a place may leave out topics that nobody subscribed to."""

    def spans(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Span]:
        """Return what partitions hold now. One that is gone is left out."""

    def missing(self, keys: Iterable[TopicPartition]) -> list[MissingOffsets]:
        """Return which partitions should be there, and what should follow behind the ends of those last looked at."""

    def missing_in(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[MissingOffsets]:
        """Return what should be in these ranges of offsets and is not."""

    def topic_ids(self, keys: Iterable[TopicPartition]) -> dict[str, uuid.UUID]:
        """Return what tells a topic from a later one of the same name, where that is known, of those last looked at."""

    def open(self, partitions: Sequence[tuple[str, int]], times: Sequence[Mapping[tuple[str, int], int]]) -> Iterator[Partition]:
        """As `tidelog.spark.places.Place.open`."""

    def starts_for(self, keys: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """Return for each partition an offset below which no record reaches a time; the end where none does."""

    def reach(self, ranges: Mapping[TopicPartition, tuple[int, int]], time_ms: int) -> tuple[dict[TopicPartition, int], bool]:
        """Return each range's first offset that reaches a time, or its end; and False where the search stopped before that."""

    def splits(self, ranges: Mapping[TopicPartition, tuple[int, int]], min_splits: int, split_bytes: int) -> list[AnySplit]:
        """Return what is to be read, in order of partition and offset, in pieces of `split_bytes` and at least so many."""

    def bytes_each(self, keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, float]:
        """Return the bytes of log that an offset takes in each partition, about, as far as that is known."""

    def read(self, split: AnySplit, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a split, as a scan does."""

    def close(self) -> None:
        """Let go of everything."""
