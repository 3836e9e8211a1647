"""A stream from brokers: what is asked for a batch, over connections that are kept.

| asked | request | |
|---|---|---|
| topics | Metadata, of the topics that are read; of all for a pattern | once a batch |
| spans | ListOffsets: log start, high watermark, and last stable offset where that is the end | once a batch |
| where a time begins | ListOffsets | with maxTimePerTrigger |
| bytes of a partition | DescribeLogDirs | once a minute: only for the size of tasks |

The brokers' answer for a time is the first record *of the whole log* that reaches it. Where it lies below the stream's
position, one record of the past hides what comes: the log is then walked from the position, `WALK_BYTES` of it at most.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from tidelog.client.connections.cluster import Cluster
from tidelog.client.reading.offsets import NotFound, OffsetAnswer, list_offsets
from tidelog.client.reading.partition_bounds import bounds_for_times
from tidelog.client.reading.partition_fetcher import PartitionFetcher
from tidelog.client.reading.sizes import log_sizes
from tidelog.clock import SteadyClock
from tidelog.errors import ProtocolError, UnknownTopicOrPartitionError
from tidelog.model import EARLIEST, LATEST, TopicPartition
from tidelog.reader.missing import MissingOffsets
from tidelog.records.records import first_record_at
from tidelog.sources.bounds import TimeRange
from tidelog.sources.brokers import AnySplit, BrokerSplit, read_broker_split, scan_cluster
from tidelog.spark.options import ReadOptions
from tidelog.spark.places import BrokerPlace, Partition
from tidelog.spark.stream.batch_ranges import Span

WALK_BYTES = 64 * 1024 * 1024
"""Most bytes that are walked in a partition for a batch's end; the batch then ends where the walk did."""

SIZES_MS = 60_000
"""How long the sizes of partitions are taken for true."""

MIN_SPLIT_OFFSETS = 1_000
"""No piece of a range that is cut has fewer: the batches at a cut are fetched and opened twice."""

_NO_ID = uuid.UUID(int=0)


class BrokerStreamPlace:
    """See the module."""

    def __init__(self, options: ReadOptions) -> None:
        assert options.brokers is not None
        self._brokers = options.brokers
        self._isolation = options.isolation
        self._time = TimeRange(options.start_ms, None)
        self._names = _names(options)
        self._cluster = scan_cluster(options.brokers)
        self._bytes: dict[TopicPartition, float] = {}
        self._sized_ms: int | None = None
        self._clock = SteadyClock()

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    def close(self) -> None:
        self._cluster.close()

    def topics(self) -> dict[str, list[int]]:
        if self._names is None:
            return {name: list(topic.partitions) for name, topic in self._cluster.topics().items()}
        self._cluster.refresh(self._names)
        found: dict[str, list[int]] = {}
        for name in self._names:
            try:
                found[name] = list(self._cluster.topic(name).partitions)
            except UnknownTopicOrPartitionError:
                continue
        return found

    def missing(self, keys: Iterable[TopicPartition]) -> list[MissingOffsets]:
        return []  # A broker tells nothing of what its folder lacks.

    def missing_in(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[MissingOffsets]:
        return []

    def topic_ids(self, keys: Iterable[TopicPartition]) -> dict[str, uuid.UUID]:
        ids = {name: self._cluster.topic(name).topic_id for name in {key.topic for key in keys}}
        return {name: topic_id for name, topic_id in ids.items() if topic_id != _NO_ID}

    def spans(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Span]:
        wanted = list(keys)
        # The end first: what is appended meanwhile is outside.
        ends = list_offsets(self._cluster, dict.fromkeys(wanted, LATEST), self._isolation)
        marks = ends if self._isolation == "read_uncommitted" else list_offsets(self._cluster, dict.fromkeys(wanted, LATEST))
        starts = list_offsets(self._cluster, dict.fromkeys(wanted, EARLIEST))
        found: dict[TopicPartition, Span] = {}
        for key in wanted:
            start = self._offset(starts[key], key)
            end = max(start, self._offset(ends[key], key))
            found[key] = Span(start, end, max(end, self._offset(marks[key], key)))
        return found

    def _offset(self, answer: OffsetAnswer, key: TopicPartition) -> int:
        if isinstance(answer, NotFound):
            raise ProtocolError("the broker tells no end of a log", path=self._brokers, found=f"{key.topic}-{key.partition}")
        return answer.offset

    def open(self, partitions: Sequence[tuple[str, int]], times: Sequence[Mapping[tuple[str, int], int]]) -> Iterator[Partition]:
        return BrokerPlace(self._cluster, self._isolation).open(partitions, times)

    def starts_for(self, keys: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        bounds = bounds_for_times(self._cluster, keys, time_ms, self._isolation)
        # What only read_committed withholds as yet may be found too; a stream starts within what it may read.
        return {key: min(bound.start_offset, bound.end_offset) for key, bound in bounds.items()}

    def reach(self, ranges: Mapping[TopicPartition, tuple[int, int]], time_ms: int) -> tuple[dict[TopicPartition, int], bool]:
        answers = list_offsets(self._cluster, dict.fromkeys(ranges, time_ms), self._isolation)
        found: dict[TopicPartition, int] = {}
        is_whole = True
        for key, (start, end) in ranges.items():
            answer = answers[key]
            if isinstance(answer, NotFound):
                found[key] = end
            elif answer.offset >= start:
                found[key] = min(answer.offset, end)
            else:
                found[key], reached = self._walk(key, start, end, time_ms)
                is_whole = is_whole and reached
        return found, is_whole

    def _walk(self, key: TopicPartition, start: int, end: int, time_ms: int) -> tuple[int, bool]:
        fetcher = PartitionFetcher(self._cluster, key, start, end, isolation=self._isolation)
        position = start
        for header, records, index in fetcher:
            if header.max_timestamp >= time_ms:
                batch = records[index : index + header.size]
                found = first_record_at(header, batch, time_ms, start, path=f"{self._brokers} {key.topic}-{key.partition}")
                if found is not None:
                    return min(found[0], end), True
            position = header.last_offset + 1
            if fetcher.bytes_read >= WALK_BYTES:
                return min(position, end), False
        return end, True

    def splits(self, ranges: Mapping[TopicPartition, tuple[int, int]], min_splits: int, split_bytes: int) -> list[AnySplit]:
        total = max(1, sum(end - start for start, end in ranges.values()))
        each_bytes = self.bytes_each(ranges)
        found: list[AnySplit] = []
        for key in sorted(ranges):
            start, end = ranges[key]
            count = end - start
            size_bytes = max(count, int(count * each_bytes.get(key, 0)))
            pieces = max(-(-min_splits * count // total), -(-size_bytes // split_bytes))
            pieces = max(1, min(pieces, count // MIN_SPLIT_OFFSETS))
            cuts = [start + count * piece // pieces for piece in range(pieces + 1)]
            found += [
                BrokerSplit(self._brokers, key.topic, key.partition, low, high, self._time, self._isolation, size_bytes // pieces)
                for low, high in itertools.pairwise(cuts)
            ]
        return found

    def read(self, split: AnySplit, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        assert isinstance(split, BrokerSplit)
        return read_broker_split(split, columns, cluster=self._cluster)

    def bytes_each(self, keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, float]:
        now_ms = self._clock.now_ms()
        wanted = list(keys)
        if self._sized_ms is None or now_ms - self._sized_ms >= SIZES_MS or not self._bytes.keys() >= set(wanted):
            spans = self.spans(wanted)
            sizes = log_sizes(self._cluster, wanted)
            self._bytes = {
                key: sizes.get(key, 0) / max(1, span.log_end_offset - span.start_offset) for key, span in spans.items()
            }
            self._sized_ms = now_ms
        return self._bytes


def _names(options: ReadOptions) -> list[str] | None:
    """Return the topics that may be read, None where only a pattern tells."""
    if options.pattern is not None:
        return None
    return sorted(options.topics or {topic for topic, _ in options.assigned or ()})
