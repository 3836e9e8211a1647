"""A scan of what brokers hold, over the wire: its plan, its splits, and how one is read.

What a scan of a folder does with files, this one does by asking: any Kafka-compatible broker will do. The rows are the same,
with three differences that lie in the protocol:

| | a folder | brokers |
|---|---|---|
| what is read of a range of time | blocks that may match, by time index and map | everything from the first match to the end |
| the end | the log end, or the high-watermark checkpoint | the high watermark; read_committed: the last stable offset |
| a split is | runs of batches of one segment | a range of offsets |

Records that are deleted between plan and read are an OffsetOutOfRangeError, never just fewer rows. What a compaction takes
meanwhile, nobody can see.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, cast

import pyarrow as pa

from tidelog.client.connections.cluster import Cluster
from tidelog.client.reading.partition_bounds import bounds_for_times
from tidelog.client.reading.partition_fetcher import PartitionFetcher
from tidelog.client.reading.sizes import log_sizes
from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError
from tidelog.model import READ_UNCOMMITTED, Isolation, TopicPartition
from tidelog.records.columns import Columns
from tidelog.sources.arrow import BATCH_ROWS, Assembler, coalesce
from tidelog.sources.bounds import LOG_END, OffsetRanges, TimeRange, check_plan, check_positive, clip, wanted_partitions
from tidelog.sources.chunks import Chunks
from tidelog.sources.reader import collect, read_split
from tidelog.sources.report import ScanReport
from tidelog.sources.schema import resolve_columns
from tidelog.sources.split import Split
from tidelog.times import Time

CLIENT_ID = "tidelog-scan"

MIN_SPLIT_OFFSETS = 1_000
"""No piece of a partition that is cut has fewer: the batches at a cut are fetched and opened twice."""


@dataclass(frozen=True, slots=True)
class BrokerSplit:
    """Offsets `[start_offset, end_offset)` of a partition, and what to take from them. Small, and can be pickled."""

    brokers: str
    """Some of the cluster's brokers, `host:port` with commas between."""
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    time: TimeRange
    isolation: Isolation
    size_bytes: int
    """An estimate: its share of the partition's bytes, at least one for each offset."""

    def __str__(self) -> str:
        return f"{self.brokers} {self.topic}-{self.partition} offsets {self.start_offset:,}..{self.end_offset:,}"


AnySplit: TypeAlias = Split | BrokerSplit
"""A piece of a log, wherever it is."""


@dataclass(frozen=True, slots=True)
class BrokerRange:
    """What a plan takes from one partition: offsets `[start_offset, end_offset)`, and what the partition held."""

    partition: int
    start_offset: int
    end_offset: int
    log_start_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """Splits in reading order: by partition, then by offset."""

    topic: str
    time: TimeRange
    splits: tuple[BrokerSplit, ...]
    partitions: tuple[BrokerRange, ...]
    notes: tuple[str, ...]
    """What the caller should know about what was asked for and what is there, one sentence each."""
    known: ScanReport
    """Always empty: the readers of the splits count."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the log that will be read, about."""
        return sum(split.size_bytes for split in self.splits)


def scan_cluster(brokers: str) -> Cluster:
    """Return the cluster that a scan of these brokers talks to. Raises InvalidArgumentError, BrokerUnreachableError at once."""
    return Cluster.at(brokers, CLIENT_ID).reach()


def plan_from_brokers(
    brokers: str,
    topic: str,
    *,
    start: Time | None = None,
    end: Time | None = None,
    partitions: Iterable[int] | None = None,
    isolation: str = READ_UNCOMMITTED,
    offsets: OffsetRanges | None = None,
    until: str = LOG_END,
    time_map_dir: object | None = None,
    split_bytes: int | None = None,
    min_splits: int | None = None,
    clock: Clock | None = None,
    cluster: Cluster | None = None,
) -> BrokerPlan:
    """Plan a scan of one topic; the arguments are those of `tidelog.scan`, and those of `plan.plan` for the splits.

    `cluster` is one to `brokers` that is open already.

    Raises:
        InvalidArgumentError: an argument makes no sense; time maps are one, they belong to files.
        UnknownTopicOrPartitionError, BrokerUnreachableError, BrokerError, ProtocolError
    """
    time, ranges_of = check_plan(start, end, isolation, offsets, until, split_bytes, min_splits, clock)
    level = cast("Isolation", isolation)
    if time_map_dir is not None:
        raise InvalidArgumentError("time maps belong to files: no use with a broker", found=brokers)
    notes: list[str] = []
    ranges: list[BrokerRange] = []
    with contextlib.ExitStack() as opened:
        if cluster is None:
            cluster = scan_cluster(brokers)
            opened.callback(cluster.close)
        numbers = wanted_partitions(cluster.topic(topic).partitions, partitions, offsets)
        keys = [TopicPartition(topic, number) for number in numbers]
        bounds = bounds_for_times(cluster, keys, time.start_ms, level)
        sizes = log_sizes(cluster, keys)
    for key in keys:
        held = bounds[key]
        wanted = ranges_of.get(key.partition)
        first, behind = clip(f"{topic}-{key.partition}", held.log_start_offset, held.end_offset, wanted, notes)
        first = min(max(first, held.start_offset), behind)
        ranges.append(BrokerRange(key.partition, first, behind, held.log_start_offset, sizes.get(key, 0)))
    splits: list[BrokerSplit] = []
    if not time.is_empty:
        total = sum(taken.end_offset - taken.start_offset for taken in ranges)
        for key, taken in zip(keys, ranges, strict=True):
            held = bounds[key]
            count = taken.end_offset - taken.start_offset
            if count == 0:
                continue
            size_bytes = max(count, taken.size_bytes * count // max(1, held.end_offset - held.log_start_offset))
            pieces = 1 if min_splits is None else -(-min_splits * count // total)
            pieces = max(pieces, 1 if split_bytes is None else -(-size_bytes // split_bytes))
            pieces = max(1, min(pieces, count // MIN_SPLIT_OFFSETS))
            cuts = [taken.start_offset + count * piece // pieces for piece in range(pieces + 1)]
            splits.extend(
                BrokerSplit(brokers, topic, key.partition, low, high, time, level, size_bytes // pieces)
                for low, high in itertools.pairwise(cuts)
            )
    return BrokerPlan(topic, time, tuple(splits), tuple(ranges), tuple(notes), ScanReport())


def read_broker_split(
    split: BrokerSplit,
    columns: Iterable[str] | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    views: bool = False,
    report: ScanReport | None = None,
    cluster: Cluster | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split as Arrow batches, as `reader.read_split` does. `cluster` is one that is open already.

    Raises:
        OffsetOutOfRangeError: records of the split were deleted since the plan.
        CorruptDataError: damaged batches. BrokerUnreachableError, BrokerError, ProtocolError.
    """
    names = resolve_columns(columns)
    check_positive("batch_rows", batch_rows)
    rows = read_broker_rows(split, names, batch_rows, views, ScanReport() if report is None else report, Chunks(), cluster)
    return coalesce(rows, batch_rows)


def read_any_split(
    split: AnySplit,
    columns: Iterable[str] | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    report: ScanReport | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split, wherever they are."""
    if isinstance(split, BrokerSplit):
        return read_broker_split(split, columns, batch_rows=batch_rows, report=report)
    return read_split(split, columns, batch_rows=batch_rows, report=report)


def read_broker_rows(
    split: BrokerSplit,
    names: tuple[str, ...],
    batch_rows: int,
    views: bool,
    report: ScanReport,
    chunks: Chunks,
    cluster: Cluster | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split as they come, in Arrow batches of up to `batch_rows` rows and possibly few."""
    columns = Columns(
        split.time.start_ms,
        split.time.end_ms,
        split.start_offset,
        split.end_offset,
        names=[name for name in names if name not in ("topic", "partition")],
    )
    assembler = Assembler(split.topic, split.partition, names, views)
    with contextlib.ExitStack() as opened:
        if cluster is None:
            cluster = scan_cluster(split.brokers)
            opened.callback(cluster.close)
        fetcher = PartitionFetcher(
            cluster,
            TopicPartition(split.topic, split.partition),
            split.start_offset,
            split.end_offset,
            isolation=split.isolation,
            allocate=chunks.take,
        )
        bytes_read = 0
        for batch in collect(fetcher, columns, assembler, batch_rows, report, str(split)):
            report.bytes_read += fetcher.bytes_read - bytes_read
            bytes_read = fetcher.bytes_read
            yield batch
        report.bytes_read += fetcher.bytes_read - bytes_read
        report.batches += fetcher.batches
        report.aborted_batches += fetcher.aborted_batches
