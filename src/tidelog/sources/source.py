"""The protocol of every kind of source: a folder, brokers, and future ones.

| method | a folder | brokers | default |
|---|---|---|---|
| topics, partitions | the folders' names | Metadata | |
| ends | checkpoints and files | ListOffsets | |
| find | `reader.time_search` | ListOffsets, the brokers' own search | |
| plan, splits, reach | segments and time maps | as in `OffsetSource` | ranges of offsets, cut evenly |
| groups | `__consumer_offsets` | the coordinators | no groups |
| missing | by checkpoints and file names | | empty: no gap is known |

A new kind is a module with a class that implements the first three and defines a split (`offset_source.OffsetSource`) or its
plan, and a row in the table of `opening`. Features of only some kinds are checked by attribute, never by kind: `log_dir` (segment
files), `cluster` (connections to brokers).

Importing this loads neither Arrow nor the network client, so that `tidelog find` starts fast.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidelog.errors import InvalidArgumentError, SegmentChangedError, UnsupportedForMessageFormatError
from tidelog.model import READ_UNCOMMITTED, Isolation, TopicPartition
from tidelog.sources.bounds import HIGH_WATERMARK, LOG_END, TimeRange
from tidelog.sources.reader_resources import ReaderResources

if TYPE_CHECKING:
    from tidelog.client.connections.cluster import Cluster
    from tidelog.formats.paths.file_path import AnyPath
    from tidelog.reader.log_dir import LogDir
    from tidelog.reader.missing.missing_offsets import MissingOffsets
    from tidelog.reader.time_search import FoundOffset
    from tidelog.sources.groups import Groups
    from tidelog.sources.scan_plan import ScanPlan, ScanRequest
    from tidelog.sources.scan_report import ScanReport
    from tidelog.sources.split import Split

T = TypeVar("T")

ATTEMPTS = 5
"""How many times a plan is attempted before giving up on a folder whose files vanish too quickly."""


class Ends(NamedTuple):
    """Where a partition's log begins and ends."""

    log_start_offset: int
    end_offset: int
    """The end of the readable part."""
    log_end_offset: int
    """The end of the records, if the source knows it."""


class Bounds(NamedTuple):
    """A partition's bounds at the time of the request: `[log_start_offset, end_offset)`. Read the requested records from
    `start_offset` on.
    """

    log_start_offset: int
    start_offset: int
    end_offset: int


class Source(ABC):
    """A folder or brokers: topics, ends, searches by time, plans, splits, groups. `open_source` opens it; the caller closes it.

    A method for many partitions makes one request if the source supports it. All methods raise what reading and requests raise:
    CorruptDataError, StorageError, BrokerUnreachableError, BrokerError, ProtocolError.
    """

    log_dir: LogDir | None = None
    """The segment files, if the source has any: its searches can be explained, and records after the checkpoint can be read."""
    cluster: Cluster | None = None
    """The brokers, if the source is brokers: they have coordinators, and accept records."""

    def __init__(self, address: str) -> None:
        self.address = address
        """The source's name in messages; another process can open the source by this name."""
        self.reading = ReaderResources()
        """Resources for reading this source's splits. They share the source's connections: closing either one closes the
        connections.
        """

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- Implemented by each kind

    @abstractmethod
    def topics(self, names: Collection[str] | None = None) -> dict[str, list[int]]:
        """Return the partitions of each topic; if `names` is given, only of the named topics that exist."""

    @abstractmethod
    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions. Raises UnknownTopicOrPartitionError."""

    @abstractmethod
    def ends(
        self, keys: Collection[TopicPartition], isolation: Isolation = READ_UNCOMMITTED, until: str = LOG_END
    ) -> dict[TopicPartition, Ends]:
        """Return where partitions begin and end. Deleted ones are left out.

        `until` as in a scan: `log_end` is the end of all records, `high_watermark` that of replicated and, with read_committed,
        decided records. Brokers return nothing beyond the latter.
        """

    @abstractmethod
    def find(
        self, targets: Mapping[TopicPartition, int], isolation: Isolation = READ_UNCOMMITTED, until: str = LOG_END
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Return, for each partition, the first offset at or after its time (ms, or a special timestamp of ListOffsets); None if
        there is none.

        Raises UnsupportedForMessageFormatError if records have no timestamps, UnknownTopicOrPartitionError.
        """

    @abstractmethod
    def plan(self, request: ScanRequest) -> ScanPlan[Split]:
        """Return what must be read for a scan, in splits.

        Raises InvalidArgumentError for requests that the source does not support, UnknownTopicOrPartitionError.
        """

    @abstractmethod
    def splits(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        time: TimeRange,
        isolation: Isolation,
        *,
        split_bytes: int,
        min_splits: int = 1,
        time_map_dir: AnyPath | None = None,
        report: ScanReport | None = None,
    ) -> list[Split]:
        """Return splits that read exactly these offsets, which must exist. Must be cheap, because a stream calls it before each
        batch. Facts that are known before reading are added to `report`.
        """

    @abstractmethod
    def reach(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], time_ms: int, isolation: Isolation
    ) -> tuple[dict[TopicPartition, int], bool]:
        """Return, for each range, the first offset whose timestamp reaches a time, or the range's end; and False if the
        search stopped early.
        """

    # --- Defaults

    def sizes(self, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the sizes in bytes of the partitions whose size is known."""
        return {}

    def bytes_each(self, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, float]:
        """Return the approximate number of bytes per offset of the partitions for which it is known."""
        sizes, ends = self.sizes(keys), self.ends(keys)
        return {key: sizes.get(key, 0) / max(1, one.log_end_offset - one.log_start_offset) for key, one in ends.items()}

    def bounds(
        self, keys: Collection[TopicPartition], start_ms: int | None, isolation: Isolation, until: str = HIGH_WATERMARK
    ) -> dict[TopicPartition, Bounds]:
        """Return the bounds of the offsets to read for all records with `start_ms <= timestamp`; `start_ms` None means all
        records. Records that arrive meanwhile are not included.
        """
        ends = self.ends(keys, isolation, until)
        if start_ms is None:
            return {key: Bounds(one.log_start_offset, one.log_start_offset, one.end_offset) for key, one in ends.items()}
        found: dict[TopicPartition, Bounds] = {}
        for key, one in ends.items():
            try:
                first = self.find({key: start_ms}, isolation, until)[key]
            except UnsupportedForMessageFormatError:
                start = one.log_start_offset  # Older records may have timestamps even if the last ones do not.
            else:
                start = one.end_offset if first is None else min(max(first.offset, one.log_start_offset), one.end_offset)
            found[key] = Bounds(one.log_start_offset, start, one.end_offset)
        return found

    def planned(self, make: Callable[[], T]) -> T:
        """Return the plan that `make` makes; call it again if files vanish meanwhile."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return make()
            except SegmentChangedError:
                # Compacted or deleted meanwhile.
                if attempt == ATTEMPTS or not self.renew():
                    raise
        raise AssertionError("unreachable")

    def refresh(self) -> None:
        """Update to the log's current state. Without this call, a source may use what it has read before."""
        return

    def renew(self) -> bool:
        """Update to the log's current state after a file changed. Returns False if records may have vanished from object storage,
        where nothing removes them in the course of things.
        """
        self.refresh()
        return True

    def groups(self) -> Groups:
        """Return the consumer groups stored here. Raises InvalidArgumentError if there are none."""
        raise InvalidArgumentError("this source has no consumer groups", path=self.address)

    def topic_ids(self, keys: Iterable[TopicPartition]) -> dict[str, uuid.UUID]:
        """Return the ids of topics, if known, which distinguish a topic from a later one of the same name."""
        return {}

    def cluster_id(self) -> str | None:
        """Return the id of the cluster that the log belongs to, None if unknown."""
        return None

    def missing_partitions(self) -> list[MissingOffsets]:
        """Return the partitions that should exist but do not."""
        return []

    def missing_in(self, ranges: Mapping[TopicPartition, tuple[int, int | None]]) -> list[MissingOffsets]:
        """Return the missing records in these ranges of offsets; an end of None means anywhere from the start on."""
        return []

    def missing_after(self, keys: Iterable[TopicPartition]) -> list[MissingOffsets]:
        """Return the missing records after the ends of these partitions."""
        return []

    def close(self) -> None:
        """Close connections and files. Idempotent."""
        self.reading.close()
