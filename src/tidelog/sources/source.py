"""The interface of every kind of source: folders, brokers, and future kinds.

| method | a folder | brokers | default |
|---|---|---|---|
| topics, partitions | the folders' names | Metadata | |
| ends | checkpoints and files | ListOffsets | |
| find | `reader.time_search` | ListOffsets, the brokers' own search | |
| plan, splits, reach | segments and time maps | as in `OffsetSource` | ranges of offsets, cut evenly |
| groups | `__consumer_offsets` | the coordinators | no groups |
| missing_partitions, missing_in, missing_after | checkpoints and file names | | empty: no gap is known |

A new kind is a row in the table of `opening` and a module with a class. The class implements the first three rows, and either the
splits (as a subclass of `offset_source.OffsetSource`) or the plan. Callers check features of only some kinds by attribute, never
by kind: `log_dir` (segment files), `cluster` (connections to brokers).

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
"""How many times planning is attempted before giving up on a folder whose files keep vanishing."""


class Ends(NamedTuple):
    """Where a partition's log begins and ends."""

    log_start_offset: int
    end_offset: int
    """The end of the readable part."""
    log_end_offset: int
    """The end of all records in the log, if the source knows it."""


class Bounds(NamedTuple):
    """A partition's bounds at the time of the request: `[log_start_offset, end_offset)`. The requested records begin at
    `start_offset`.
    """

    log_start_offset: int
    start_offset: int
    end_offset: int


class Source(ABC):
    """A folder or brokers: topics, ends, searches by time, plans, splits, groups. `open_source` opens it; the caller closes it.

    A method for many partitions makes a single request if the source supports that. All methods may raise
    CorruptDataError, StorageError, BrokerUnreachableError, BrokerError, ProtocolError.
    """

    log_dir: LogDir | None = None
    """The segment files, if the source has any. With them, searches can be explained, and records after the checkpoint can be
    read.
    """
    cluster: Cluster | None = None
    """The brokers, if the source is a cluster. They have coordinators, and accept records."""

    def __init__(self, address: str) -> None:
        self.address = address
        """The source's name in messages; another process can open the source by this name."""
        self.reading = ReaderResources()
        """Resources for reading this source's splits. They share the source's connections: closing either the source or the
        resources closes the connections.
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
        """Return where partitions begin and end. Deleted partitions are left out.

        `until` is as in a scan: `log_end` means the end of all records; `high_watermark` means the end of replicated records and,
        with read_committed, the last stable offset. Brokers ignore `until`: they always report as for `high_watermark`.
        """

    @abstractmethod
    def find(
        self, targets: Mapping[TopicPartition, int], isolation: Isolation = READ_UNCOMMITTED, until: str = LOG_END
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Return for each partition the offset of the first record at or after the partition's time, or None if there is no such
        record. A time is in ms, or one of the special timestamps of ListOffsets.

        Raises UnsupportedForMessageFormatError if records have no timestamps, UnknownTopicOrPartitionError.
        """

    @abstractmethod
    def plan(self, request: ScanRequest) -> ScanPlan[Split]:
        """Return the plan of a scan: the splits that must be read.

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
        """Return for each range the offset of the first record at or after a time, or the range's end if there is none. Also
        return whether the search was complete: if False, it stopped early, and some offsets only say where.
        """

    # --- Defaults

    def sizes(self, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the size in bytes of each partition whose size is known."""
        return {}

    def bytes_each(self, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, float]:
        """Return the approximate number of bytes per offset of each partition; 0 if the partition's size is unknown."""
        sizes, ends = self.sizes(keys), self.ends(keys)
        return {key: sizes.get(key, 0) / max(1, one.log_end_offset - one.log_start_offset) for key, one in ends.items()}

    def bounds(
        self, keys: Collection[TopicPartition], start_ms: int | None, isolation: Isolation, until: str = HIGH_WATERMARK
    ) -> dict[TopicPartition, Bounds]:
        """Return the bounds of the offsets to read for all records with `start_ms <= timestamp` (None: all records). Records that
        arrive during the call are not included.
        """
        ends = self.ends(keys, isolation, until)
        if start_ms is None:
            return {key: Bounds(one.log_start_offset, one.log_start_offset, one.end_offset) for key, one in ends.items()}
        found: dict[TopicPartition, Bounds] = {}
        for key, one in ends.items():
            try:
                first = self.find({key: start_ms}, isolation, until)[key]
            except UnsupportedForMessageFormatError:
                start = one.log_start_offset  # Older records may have timestamps even if the newest records have none.
            else:
                start = one.end_offset if first is None else min(max(first.offset, one.log_start_offset), one.end_offset)
            found[key] = Bounds(one.log_start_offset, start, one.end_offset)
        return found

    def planned(self, make: Callable[[], T]) -> T:
        """Return the plan that `make` returns. If files vanish during the call, call `make` again, up to `ATTEMPTS` times."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return make()
            except SegmentChangedError:
                # Compacted or deleted in the meantime.
                if attempt == ATTEMPTS or not self.renew():
                    raise
        raise AssertionError("unreachable")

    def refresh(self) -> None:
        """Update to the log's current state. Without this call, a source may reuse what it has read before."""
        return

    def renew(self) -> bool:
        """Update to the log's current state after a file changed. Returns False if a log in object storage has vanished or
        become shorter: nothing removes records there in normal operation.
        """
        self.refresh()
        return True

    def groups(self) -> Groups:
        """Return the consumer groups in this source. Raises InvalidArgumentError if this kind of source has no groups."""
        raise InvalidArgumentError("this kind of source has no consumer groups", path=self.address)

    def topic_ids(self, keys: Iterable[TopicPartition]) -> dict[str, uuid.UUID]:
        """Return the topic ids that are known, by topic. The id distinguishes a topic from a later topic of the same name."""
        return {}

    def cluster_id(self) -> str | None:
        """Return the id of the cluster that the log belongs to, None if unknown."""
        return None

    def missing_partitions(self) -> list[MissingOffsets]:
        """Return the partitions that should exist but do not."""
        return []

    def missing_in(self, ranges: Mapping[TopicPartition, tuple[int, int | None]]) -> list[MissingOffsets]:
        """Return the missing records in these ranges of offsets. An end of None means no upper bound."""
        return []

    def missing_after(self, keys: Iterable[TopicPartition]) -> list[MissingOffsets]:
        """Return the missing records after the ends of these partitions."""
        return []

    def close(self) -> None:
        """Close connections and files. Idempotent."""
        self.reading.close()
