"""Finds the first record at or after an offset that a reader would get, in many partitions at once.

One fetch names all partitions of a leader. Each has a small limit, because that record is nearly always in the first batch. A
batch over the limit is returned whole only for the first partition with data (KIP-74). Partitions that got nothing therefore come
first in the next request, with a larger limit.

| an answer without a record | action |
|---|---|
| control or aborted batches | continue after them |
| nothing, and the partition was the request's first | fetch again, with time for tiered storage (KIP-405) |
| nothing again | no record: no batch is left up to the end, perhaps because of compaction |
| nothing, for any other partition | fetch again: the partitions before it used up the response |
| the offset is below the log start | continue at the log start: retention has deleted records |
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from tidelog.client.connections.addresses import BrokerAddress
from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.connection import Connection
from tidelog.client.connections.failures import RETRIABLE, error_for
from tidelog.client.reading.offsets import list_offsets
from tidelog.client.reading.partition_fetcher import CONSUMER, MAX_BATCH_BYTES, NEWEST_VERSION, NO_SESSION_EPOCH
from tidelog.errors import CorruptBatchError, ProtocolError, TidelogError
from tidelog.groups.lag import NextRecord, search
from tidelog.model import EARLIEST, MAX_OFFSET, Isolation, TopicPartition
from tidelog.reader.time_search import FoundOffset
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

FIRST_BYTES = 16 * 1024
"""The first request's limit per partition, in bytes: most batches are smaller."""

MOST_BYTES = 4 * 1024 * 1024
"""The largest limit of a request, in bytes; only brokers before 0.10.1 need a higher limit to return a larger batch."""

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
MAX_PARTITIONS = 1_000
"""The largest number of partitions in one request."""

MAX_WAIT_MS = 200
"""How long a broker may wait for data when a partition is fetched again."""

_LENGTH = Struct(">i")


def next_records(
    cluster: Cluster, positions: Mapping[TopicPartition, tuple[int, int]], isolation: Isolation
) -> dict[TopicPartition, NextRecord | None]:
    """Return, for each partition, the first record that a reader gets in `[position, end offset)`, None if there is none.

    Raises UnknownTopicOrPartitionError, UnsupportedVersionError (read_committed before 0.11), BrokerUnreachableError,
    BrokerError, CorruptDataError.
    """
    return _Search(cluster, positions, isolation).run()


class _Search:
    """The state of one call: the progress of each partition's search."""

    def __init__(self, cluster: Cluster, positions: Mapping[TopicPartition, tuple[int, int]], isolation: Isolation) -> None:
        self._cluster = cluster
        self._is_committed = isolation == "read_committed"
        self._found: dict[TopicPartition, NextRecord | None] = dict.fromkeys(positions)
        self._at = {key: position for key, (position, _) in positions.items()}
        self._end = {key: end for key, (_, end) in positions.items()}
        self._bytes: dict[TopicPartition, int] = dict.fromkeys(positions, FIRST_BYTES)
        self._doubtful: set[TopicPartition] = set()
        self._todo = [key for key, (position, end) in positions.items() if position < end]

    def run(self) -> dict[TopicPartition, NextRecord | None]:
        while self._todo:
            asked, self._todo = self._todo[:MAX_PARTITIONS], self._todo[MAX_PARTITIONS:]
            self._again: list[TopicPartition] = []
            self._out_of_range: list[TopicPartition] = []
            self._cluster.ask_leaders(asked, FetchResponse, self._make, self._read)
            self._todo = [*self._again, *self._moved_on(), *self._todo]
        return self._found

    def _moved_on(self) -> list[TopicPartition]:
        """Return the partitions whose log starts above the searched offset. Their search continues at the log start."""
        found = []
        for key, start in list_offsets(self._cluster, dict.fromkeys(self._out_of_range, EARLIEST)).items():
            if isinstance(start, FoundOffset) and self._at[key] < start.offset < self._end[key]:
                self._at[key] = start.offset
                found.append(key)
        return found

    def _make(self, connection: Connection, keys: list[TopicPartition]) -> tuple[Message, int]:
        version = connection.version(FetchRequest, newest=NEWEST_VERSION, oldest=4 if self._is_committed else 0)
        topics: list[FetchTopic] = []
        for key in keys:
            if not topics or topics[-1].topic != key.topic:
                topics.append(FetchTopic(topic=key.topic, partitions=[]))
            partition = FetchPartition(
                partition=key.partition,
                current_leader_epoch=self._cluster.leader(key).epoch,
                fetch_offset=self._at[key],
                partition_max_bytes=self._bytes[key],
            )
            topics[-1].partitions.append(partition)
        request = FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=MAX_WAIT_MS if keys[0] in self._doubtful else 0,
            min_bytes=1,
            max_bytes=MAX_RESPONSE_BYTES,
            isolation_level=int(self._is_committed),
            session_epoch=NO_SESSION_EPOCH,
            topics=topics,
        )
        return request, version

    def _read(
        self, response: FetchResponse, keys: list[TopicPartition], place: BrokerAddress
    ) -> dict[TopicPartition, TidelogError]:
        if response.error_code:
            raise error_for(response.error_code, f"fetch of {len(keys)} partitions", place)
        answers = {
            TopicPartition(topic.topic, partition.partition_index): partition
            for topic in response.responses
            for partition in topic.partitions
        }
        if not answers and response.throttle_time_ms:
            throttled = error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"fetch of {len(keys)} partitions", place)
            return dict.fromkeys(keys, throttled)
        failed: dict[TopicPartition, TidelogError] = {}
        for key in keys:
            answer = answers.get(key)
            if answer is None:
                raise ProtocolError("the broker's response lacks some of the partitions", path=str(place), found=key)
            code = answer.error_code
            if code and code != ErrorCode.OFFSET_OUT_OF_RANGE:
                error = error_for(code, f"fetch of {key.topic}-{key.partition} from offset {self._at[key]}", place)
                if code not in RETRIABLE:
                    raise error
                failed[key] = error
            elif not self._take(key, answer, place, is_first=key == keys[0]):
                # Uncertain partitions come first, so that they certainly get an answer.
                self._again.insert(0 if key in self._doubtful else len(self._again), key)
        return failed

    def _take(self, key: TopicPartition, answer: PartitionData, place: BrokerAddress, *, is_first: bool) -> bool:
        """Process a partition's result. Return False if the partition must be fetched again."""
        at, end = self._at[key], self._end[key]
        if answer.error_code:
            self._out_of_range.append(key)
            return True
        records = memoryview(answer.records or b"")
        aborted = [(txn.first_offset, txn.producer_id) for txn in answer.aborted_transactions or ()] if self._is_committed else []
        found, position = search(records, at, end, aborted, path=f"{place} {key.topic}-{key.partition}")
        if found is not None:
            self._found[key] = found
            return True
        if position > at:
            self._at[key] = position
            self._doubtful.discard(key)
            return position >= end
        if len(records) >= 12:
            # An old version truncates a batch over the limit: fetch the whole batch.
            (length,) = _LENGTH.unpack_from(records, 8)
            if not 0 < length < MAX_BATCH_BYTES or length + 12 <= self._bytes[key]:
                raise CorruptBatchError("the length of a batch is invalid", path=str(place), found=length)
            self._bytes[key] = length + 12
            return False
        self._bytes[key] = min(2 * self._bytes[key], MOST_BYTES)
        if is_first and key in self._doubtful:
            return True
        if is_first:
            self._doubtful.add(key)
        return False


def first_records(
    cluster: Cluster, starts: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, NextRecord | None]:
    """Return the first record at or after the offset in `starts`, for each partition, up to the partition's readable end."""
    return next_records(cluster, {key: (start, MAX_OFFSET) for key, start in starts.items()}, isolation)
