"""A scan's request to a source, and the resulting plan.

`ScanRequest` has the topic, times, offsets and end, checked by `plan.scan_request`. `ScanPlan` has the splits that cover the
requested records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from tidelog.model import READ_UNCOMMITTED, Isolation
from tidelog.sources.bounds import LOG_END, OffsetRanges, TimeRange
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.split import Split

if TYPE_CHECKING:
    from tidelog.formats.paths.file_path import AnyPath

ALL_TIMES = TimeRange()

S_co = TypeVar("S_co", bound=Split, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """A request to read a topic; `tidelog.scan` explains each field."""

    topic: str
    time: TimeRange = ALL_TIMES
    partitions: tuple[int, ...] | None = None
    """The partitions to read. None means the partitions in `offsets`, or all partitions without `offsets`."""
    isolation: Isolation = READ_UNCOMMITTED
    offsets: OffsetRanges | None = None
    until: str = LOG_END
    time_map_dir: AnyPath | None = None
    split_bytes: int | None = None
    """The approximate size of a split."""
    min_splits: int | None = None
    """If there would be fewer splits than this, smaller splits are made if possible."""

    def offsets_of(self, partition: int) -> tuple[int | None, int | None]:
        """Return the requested first offset and end of a partition; None for no bound."""
        return (self.offsets or {}).get(partition, (None, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """The part of a plan for one partition: the offsets to read, `[start_offset, end_offset)`, and the log's bounds."""

    partition: int
    start_offset: int
    end_offset: int
    log_start_offset: int
    log_end_offset: int
    """For brokers, the end of the part that clients may read."""
    size_bytes: int
    """The partition's size in bytes, 0 if a broker does not report it."""
    high_watermark: int | None = None
    """The high watermark in the folder's checkpoint."""
    segments: int = 0
    segments_read: int = 0
    """The number of segments to be read. Like the number of all segments, it is 0 if files are not accessible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan(Generic[S_co]):
    """Splits in reading order: by partition, then by position in the log."""

    topic: str
    time: TimeRange
    splits: tuple[S_co, ...]
    partitions: tuple[PartitionRange, ...]
    notes: tuple[str, ...] = ()
    """Notices about differences between the request and the log, one sentence each."""
    known: ScanReport = field(default_factory=ScanReport)
    """Facts that are known before reading: blocks skipped by time maps, and records missing from the folder. Add this to the
    report of reading the splits.
    """

    @property
    def size_bytes(self) -> int:
        """The number of log bytes to be read; for brokers an estimate."""
        return sum(split.size_bytes for split in self.splits)

    def by_partition(self) -> Mapping[int, tuple[S_co, ...]]:
        """Return the splits by partition, each partition's splits in reading order."""
        found: dict[int, list[S_co]] = {one.partition: [] for one in self.partitions}
        for split in self.splits:
            found[split.partition].append(split)
        return {partition: tuple(splits) for partition, splits in found.items()}
