"""Brokers of one cluster as a source, through Kafka's protocol.

Any Kafka-compatible broker works. The rows are the same as from a folder, with three differences due to the protocol:

| | a folder | brokers |
|---|---|---|
| read for a time range | blocks that may match, by time index and time map | everything from the first match to the end |
| the end | the log end, or the high-watermark checkpoint | the high watermark; read_committed: the last stable offset |
| a split is | runs of batches of one segment | a range of offsets |
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from tidelog.client.connections.addresses import config_of
from tidelog.client.connections.cluster import TIMEOUT_MS, Cluster
from tidelog.client.reading.offsets import NotFound, OffsetAnswer, list_offsets
from tidelog.client.reading.partition_bounds import bounds_for_times
from tidelog.client.reading.sizes import log_sizes
from tidelog.clock import SteadyClock
from tidelog.errors import ProtocolError, UnsupportedForMessageFormatError
from tidelog.model import EARLIEST, LATEST, READ_UNCOMMITTED, Isolation, TopicPartition
from tidelog.reader.time_search import FoundOffset
from tidelog.sources.bounds import HIGH_WATERMARK, LOG_END, TimeRange
from tidelog.sources.brokers.broker_split import BrokerSplit, scan_cluster
from tidelog.sources.groups import Groups
from tidelog.sources.offset_cuts import OffsetPiece
from tidelog.sources.offset_source import OffsetSource
from tidelog.sources.source import Bounds, Ends

SIZES_MS = 60_000
"""How long (ms) a stream reuses the sizes of partitions."""

_NO_ID = uuid.UUID(int=0)


class BrokerSource(OffsetSource):
    """Brokers as a source. `brokers` is `host:port`, or several separated by commas. `timeout_ms` limits each call, including
    retries. The constructor connects, and raises BrokerUnreachableError without a retry.
    """

    cluster: Cluster

    def __init__(self, brokers: str, timeout_ms: int = TIMEOUT_MS) -> None:
        super().__init__(brokers)
        self.cluster = self.reading.connection((brokers, config_of(brokers)), partial(scan_cluster, brokers, timeout_ms))
        self._bytes_each: Mapping[TopicPartition, float] = {}
        self._sized_ms: int | None = None
        self._clock = SteadyClock()

    def topics(self, names: Collection[str] | None = None) -> dict[str, list[int]]:
        if names is None:
            return {name: list(topic.partitions) for name, topic in self.cluster.topics().items()}
        found = self.cluster.topics_named(names)
        return {name: list(topic.partitions) for name, topic in found.items()}

    def partitions(self, topic: str) -> list[int]:
        return sorted(self.cluster.topic(topic).partitions)

    def ends(
        self, keys: Collection[TopicPartition], isolation: Isolation = READ_UNCOMMITTED, until: str = LOG_END
    ) -> dict[TopicPartition, Ends]:
        # Look up the end first, so that records appended in the meantime are outside the range.
        ends = list_offsets(self.cluster, dict.fromkeys(keys, LATEST), isolation)
        marks = ends if isolation == READ_UNCOMMITTED else list_offsets(self.cluster, dict.fromkeys(keys, LATEST))
        starts = list_offsets(self.cluster, dict.fromkeys(keys, EARLIEST))
        found: dict[TopicPartition, Ends] = {}
        for key in keys:
            start = self._offset(starts[key], key)
            end = max(start, self._offset(ends[key], key))
            found[key] = Ends(start, end, max(end, self._offset(marks[key], key)))
        return found

    def _offset(self, answer: OffsetAnswer, key: TopicPartition) -> int:
        if isinstance(answer, NotFound):
            raise ProtocolError(
                "the broker returned no start or end offset for a partition",
                path=self.address,
                found=f"{key.topic}-{key.partition}",
            )
        return answer.offset

    def find(
        self, targets: Mapping[TopicPartition, int], isolation: Isolation = READ_UNCOMMITTED, until: str = LOG_END
    ) -> dict[TopicPartition, FoundOffset | None]:
        found: dict[TopicPartition, FoundOffset | None] = {}
        for key, answer in list_offsets(self.cluster, targets, isolation).items():
            if answer is NotFound.NO_TIMESTAMPS:
                raise UnsupportedForMessageFormatError(f"{key.topic}-{key.partition}: {answer.value}", path=self.address)
            found[key] = None if isinstance(answer, NotFound) else answer
        return found

    def bounds(
        self, keys: Collection[TopicPartition], start_ms: int | None, isolation: Isolation, until: str = HIGH_WATERMARK
    ) -> dict[TopicPartition, Bounds]:
        # A broker's "none" is not always true, see `partition_bounds`.
        return {key: Bounds(*held) for key, held in bounds_for_times(self.cluster, keys, start_ms, isolation).items()}

    def reach(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], time_ms: int, isolation: Isolation
    ) -> tuple[dict[TopicPartition, int], bool]:
        try:
            return super().reach(ranges, time_ms, isolation)
        except UnsupportedForMessageFormatError:
            if len(ranges) == 1:
                return {key: end for key, (_, end) in ranges.items()}, True
            # A topic without timestamps must not make the look-up fail for other topics.
            each = [self.reach({key: held}, time_ms, isolation) for key, held in ranges.items()]
            return {key: offset for found, _ in each for key, offset in found.items()}, all(is_whole for _, is_whole in each)

    def split(self, piece: OffsetPiece, time: TimeRange, isolation: Isolation) -> BrokerSplit:
        return BrokerSplit(
            brokers=self.address,
            topic=piece.key.topic,
            partition=piece.key.partition,
            start_offset=piece.start_offset,
            end_offset=piece.end_offset,
            time=time,
            isolation=isolation,
            size_bytes=piece.size_bytes,
        )

    def sizes(self, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return log_sizes(self.cluster, keys)

    def bytes_each(self, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, float]:
        # A stream needs the sizes before each batch, but only to size its tasks.
        now_ms = self._clock.now_ms()
        if self._sized_ms is None or now_ms - self._sized_ms >= SIZES_MS or not self._bytes_each.keys() >= set(keys):
            self._bytes_each, self._sized_ms = super().bytes_each(keys), now_ms
        return self._bytes_each

    def topic_ids(self, keys: Iterable[TopicPartition]) -> dict[str, uuid.UUID]:
        ids = {name: self.cluster.topic(name).topic_id for name in {key.topic for key in keys}}
        return {name: topic_id for name, topic_id in ids.items() if topic_id != _NO_ID}

    def cluster_id(self) -> str | None:
        return self.cluster.cluster_id

    def groups(self) -> Groups:
        from tidelog.sources.brokers.broker_groups import BrokerGroups

        return BrokerGroups(self.cluster)
