"""The protocol of every kind of source: a folder, brokers, and future ones.

| asked | a folder | brokers | unless a kind knows better |
|---|---|---|---|
| topics, partitions | the folders' names | Metadata | |
| ends | checkpoints and files | ListOffsets | |
| find | `reader.time_search` | ListOffsets: their own answer | |
| plan, splits, reach | segments and time maps | as `OffsetSource` | ranges of offsets, cut evenly |
| groups | `__consumer_offsets` | the coordinators | none are kept |
| missing | what checkpoints and names say should be there | | nothing is known to be missing |

A new kind is a module with a class that answers the first three and says what a split is (`offset_source.OffsetSource`), or how
it plans; and a row in the table of `opening`. Features of only some kinds are requested by name, never by kind: `log_dir`
(segment files), `cluster` (connections to brokers).

Importing this loads neither Arrow nor the network client: `tidelog find` starts in a moment.
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
    from tidelog.reader.log_dir import LogDir
    from tidelog.reader.missing.missing_offsets import MissingOffsets
    from tidelog.reader.time_map_file import AnyPath
    from tidelog.reader.time_search import FoundOffset
    from tidelog.sources.groups import Groups
    from tidelog.sources.scan_plan import ScanPlan, ScanRequest
    from tidelog.sources.scan_report import ScanReport
    from tidelog.sources.split import Split

T = TypeVar("T")

ATTEMPTS = 5
"""How often a plan is made before a folder is given up in which files vanish faster than they can be opened."""


class Ends(NamedTuple):
    """Where a partition's log begins and ends."""

    log_start_offset: int
    end_offset: int
    """The end of what may be read."""
    log_end_offset: int
    """Where the records end, if the source knows it."""


class Bounds(NamedTuple):
    """A partition's offsets when it was asked: `[log_start_offset, end_offset)`, wanted ones from `start_offset` on."""

    log_start_offset: int
    start_offset: int
    end_offset: int


class Source(ABC):
    """A folder or brokers: topics, ends, searches by time, plans, splits, groups. `open_source` opens it; its user closes it.

    A question about many partitions is one request if the source supports it. All methods raise what reading and
    asking raise: CorruptDataError, StorageError, BrokerUnreachableError, BrokerError, ProtocolError.
    """

    log_dir: LogDir | None = None
    """The segment files, where the source has any: their search can be explained, what a checkpoint hides can be read."""
    cluster: Cluster | None = None
    """The brokers, where the source is some: they have coordinators, and can be produced to."""

    def __init__(self, address: str) -> None:
        self.address = address
        """Its name in messages, and how another process opens it."""
        self.reading = ReaderResources()
        """For splits of this source: it shares the source's connections. Closing either closes these."""

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- What each kind says

    @abstractmethod
    def topics(self, names: Collection[str] | None = None) -> dict[str, list[int]]:
        """Return the partitions of each topic: of all, or of those of `names` that exist."""

    @abstractmethod
    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions. Raises UnknownTopicOrPartitionError."""

    @abstractmethod
    def ends(
        self, keys: Collection[TopicPartition], isolation: Isolation = READ_UNCOMMITTED, until: str = LOG_END
    ) -> dict[TopicPartition, Ends]:
        """Return where partitions begin and end. One that is gone is left out.

        `until` as in a scan: `log_end` is the end of all that can be had, `high_watermark` of what every replica has and, with
        read_committed, of what is decided. Brokers hand out nothing beyond these.
        """

    @abstractmethod
    def find(
        self, targets: Mapping[TopicPartition, int], isolation: Isolation = READ_UNCOMMITTED, until: str = LOG_END
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Return the first offset for each partition's time (ms, or a special one of ListOffsets); None: no record is at or after
        that time.

        Raises UnsupportedForMessageFormatError where records have no timestamps, UnknownTopicOrPartitionError.
        """

    @abstractmethod
    def plan(self, request: ScanRequest) -> ScanPlan[Split]:
        """Return what must be read for a scan, in splits.

        Raises InvalidArgumentError for what the source cannot do, UnknownTopicOrPartitionError.
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
        """Return splits that read just these offsets, which are known to be there. Cheap: a stream asks before each batch.

        `report` gets what is known without reading.
        """

    @abstractmethod
    def reach(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], time_ms: int, isolation: Isolation
    ) -> tuple[dict[TopicPartition, int], bool]:
        """Return each range's first offset that reaches a time, or its end; and False if the search stopped before that."""

    # --- What follows from it, unless a kind knows better

    def sizes(self, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return how many bytes partitions take, as far as that is known."""
        return {}

    def bytes_each(self, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, float]:
        """Return how many bytes an offset of each partition takes, about, as far as that is known."""
        sizes, ends = self.sizes(keys), self.ends(keys)
        return {key: sizes.get(key, 0) / max(1, one.log_end_offset - one.log_start_offset) for key, one in ends.items()}

    def bounds(
        self, keys: Collection[TopicPartition], start_ms: int | None, isolation: Isolation, until: str = HIGH_WATERMARK
    ) -> dict[TopicPartition, Bounds]:
        """Return where to read for all records with `start_ms <= timestamp`, None for all. Records that arrive meanwhile are not
        included.
        """
        ends = self.ends(keys, isolation, until)
        if start_ms is None:
            return {key: Bounds(one.log_start_offset, one.log_start_offset, one.end_offset) for key, one in ends.items()}
        found: dict[TopicPartition, Bounds] = {}
        for key, one in ends.items():
            try:
                first = self.find({key: start_ms}, isolation, until)[key]
            except UnsupportedForMessageFormatError:
                start = one.log_start_offset  # Older records may have what the last ones lack.
            else:
                start = one.end_offset if first is None else min(max(first.offset, one.log_start_offset), one.end_offset)
            found[key] = Bounds(one.log_start_offset, start, one.end_offset)
        return found

    def planned(self, make: Callable[[], T]) -> T:
        """Return what `make` plans; where files vanish meanwhile, it is called again with what is there then."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return make()
            except SegmentChangedError:
                # Compacted meanwhile, or on its way out.
                if attempt == ATTEMPTS:
                    raise
                self.refresh()
        raise AssertionError("unreachable")

    def refresh(self) -> None:
        """See what is there now. Until then a source may answer from what it saw before."""
        return

    def groups(self) -> Groups:
        """Return the consumer groups whose offsets are kept here. Raises InvalidArgumentError where none are."""
        raise InvalidArgumentError("this source has no consumer groups", path=self.address)

    def topic_ids(self, keys: Iterable[TopicPartition]) -> dict[str, uuid.UUID]:
        """Return what distinguishes a topic from a later one of the same name, where that is known."""
        return {}

    def cluster_id(self) -> str | None:
        """Return the id of the cluster that the log is of, None if that is unknown."""
        return None

    def missing_partitions(self) -> list[MissingOffsets]:
        """Return the partitions that should be here and are not."""
        return []

    def missing_in(self, ranges: Mapping[TopicPartition, tuple[int, int | None]]) -> list[MissingOffsets]:
        """Return what should be in these ranges of offsets and is not; None for the end: anywhere from the start on."""
        return []

    def missing_after(self, keys: Iterable[TopicPartition]) -> list[MissingOffsets]:
        """Return what should follow the ends of these partitions and does not."""
        return []

    def close(self) -> None:
        """Close connections and files. Idempotent."""
        self.reading.close()
