"""Fetches the batches of one partition from its leader, complete and as stored, one response ahead of the caller.

| version | since | adds |
|---|---|---|
| 0 | 0.8 | a batch that does not fit is truncated; the next request asks for more bytes |
| 2 | 0.10 (KIP-32) | message format v1; brokers convert down for older versions |
| 3 | 0.10.1 (KIP-74) | the first batch is returned whole, however large |
| 4 | 0.11 (KIP-98) | message format v2, the isolation level, aborted transactions |
| 9, 12 | 2.1, 2.7 | leader epochs; flexible fields |

Fetch sessions are not used: each request is complete. Versions from 13 on use topic ids, which have no advantage here.

While the caller uses a response, the next request is in flight, so broker and client work in parallel. Only batch headers are
checked on arrival; checksums are checked when a batch is opened.

| left out | because |
|---|---|
| control batches | they contain no data |
| read_committed: batches of aborted transactions | the response lists the producers and first offsets; a marker ends each |
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.connection import Allocate, Connection
from tidelog.client.connections.failures import RETRIABLE, RetryTimer, error_for
from tidelog.errors import (
    BrokerError,
    BrokerUnreachableError,
    CorruptBatchError,
    OffsetOutOfRangeError,
    ProtocolError,
    TidelogError,
)
from tidelog.model import MAX_OFFSET, Isolation, TopicPartition
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.markers import data_batches
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

NEWEST_VERSION = 12
CONSUMER = -1
NO_SESSION_EPOCH = -1

FETCH_BYTES = 1024 * 1024 - 1024
"""Bytes per request: with the rest of the response, one mebibyte. A response of this size fits in the processor's cache while it
is received, checked, parsed and copied.
"""

MAX_FETCH_BYTES = 8 * 1024 * 1024
"""The most bytes per request. The size grows up to this limit if a large part of each response is a truncated batch."""

MAX_BATCH_BYTES = 1 << 30
"""A batch with a larger size is damaged."""

MAX_WAIT_MS = 500
"""How long a broker may wait for records before it answers without any."""

_LENGTH = Struct(">i")

FetchedBatch = tuple[BatchHeader, memoryview, int]
"""A batch's header, whose position counts from the start of the response's records; the response's records; the position of the
batch in the records.
"""


class PartitionFetcher:
    """Fetches a partition's batches with offsets in `[start_offset, end_offset)`. If `end_offset` is None, it iterates forever.

    The first and the last batch may contain offsets outside this range. The counters cover what has been read so far.
    """

    def __init__(
        self,
        cluster: Cluster,
        key: TopicPartition,
        start_offset: int,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        fetch_bytes: int = FETCH_BYTES,
        allocate: Allocate | None = None,
    ) -> None:
        self.key = key
        self.position = start_offset
        """All batches below this offset have been fetched."""
        self.batches = 0
        self.aborted_batches = 0
        self.bytes_read = 0
        self._cluster = cluster
        self._end = MAX_OFFSET if end_offset is None else end_offset
        self._is_endless = end_offset is None
        self._is_committed = isolation == "read_committed"
        self._fetch_bytes = fetch_bytes
        self._allocate = allocate
        self._timer = RetryTimer(cluster.timeout_ms)
        self._got_on = True

    def __iter__(self) -> Iterator[FetchedBatch]:
        """Yield the batches in offset order. The buffer of a batch is not reused while it is referenced.

        Raises:
            OffsetOutOfRangeError: the records from `position` on were deleted, or never existed.
            UnknownTopicOrPartitionError, BrokerUnreachableError, BrokerError
            CorruptBatchError: the response has an invalid batch.
        """
        while self.position < self._end:
            try:
                with self._cluster.connection_to(self._cluster.leader_address(self.key)) as connection:
                    yield from self._fetch(connection)
            except BrokerUnreachableError as error:
                self._again(error)
            except BrokerError as error:
                if error.error_code not in RETRIABLE:
                    raise
                self._again(error)

    def _again(self, error: TidelogError) -> None:
        self._wait(error)
        self._cluster.refresh([self.key.topic])

    def _wait(self, error: TidelogError) -> None:
        """Wait before the next attempt. The time that the caller spends on batches does not count."""
        if self._got_on:
            self._timer.restart()
            self._got_on = False
        self._timer.wait(error)

    def _fetch(self, connection: Connection) -> Iterator[FetchedBatch]:
        version = connection.version(FetchRequest, newest=NEWEST_VERSION, oldest=4 if self._is_committed else 0)
        connection.send(self._request(), version, FetchResponse)
        while True:
            response = connection.receive(FetchResponse, wait_ms=MAX_WAIT_MS, allocate=self._allocate)
            found = self._partition(response, connection)
            headers, records = self._headers(found, connection)
            lost: BrokerUnreachableError | None = None
            if self.position < self._end:
                try:
                    connection.send(self._request(), version, FetchResponse)
                except BrokerUnreachableError as error:
                    lost = error  # Responses received before the connection was lost are kept.
            yield from self._data(headers, records, found)
            if lost is not None:
                raise lost
            if self.position >= self._end:
                return

    def _request(self) -> FetchRequest:
        leader = self._cluster.leader(self.key)
        partition = FetchPartition(
            partition=self.key.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=self.position,
            partition_max_bytes=self._fetch_bytes,
        )
        return FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=int(self._is_committed),
            session_epoch=NO_SESSION_EPOCH,
            topics=[FetchTopic(topic=self.key.topic, partitions=[partition])],
        )

    def _partition(self, response: FetchResponse, connection: Connection) -> PartitionData:
        """Return the partition's result in a response, or raise the error for its code."""
        place = connection.address
        what = f"fetch of {self.key.topic}-{self.key.partition} from offset {self.position}"
        if response.error_code:
            raise error_for(response.error_code, what, place)
        for topic in response.responses:
            for partition in topic.partitions:
                if topic.topic != self.key.topic or partition.partition_index != self.key.partition:
                    continue
                code = partition.error_code
                if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise OffsetOutOfRangeError(
                        f"{what}: the broker does not have this offset",
                        path=str(place),
                        found=ErrorCode.OFFSET_OUT_OF_RANGE.name,
                    )
                if code in RETRIABLE:
                    # Always one class of error, so that only this request is retried.
                    raise BrokerError(what, error_code=code, path=str(place), found=ErrorCode(code).name)
                if code:
                    raise error_for(code, what, place)
                return partition
        raise ProtocolError("the broker's response lacks the partition", path=str(place), found=what)

    def _headers(self, found: PartitionData, connection: Connection) -> tuple[list[BatchHeader], memoryview]:
        """Return the headers of the whole batches in a response, and advance after them."""
        records = memoryview(found.records or b"")
        place = f"{connection.address} {self.key.topic}-{self.key.partition}"
        headers = [header for header in iter_headers(records, 0, place) if header.last_offset >= self.position]
        self.bytes_read += len(records)
        if headers:
            position = self.position
            for header in headers:
                if header.last_offset < position:
                    raise CorruptBatchError(
                        "offsets go backward",
                        path=place,
                        found=header.last_offset,
                        expected=f"{position} or more",
                    )
                position = header.last_offset + 1
            self.position = position
            self._got_on = True
            used = headers[-1].end_position
            if len(records) - used > used // 4 and self._fetch_bytes < MAX_FETCH_BYTES:
                self._fetch_bytes *= 2
            return headers, records
        if len(records) >= 12:
            # An old version truncates a batch over the limit: request the whole batch.
            (length,) = _LENGTH.unpack_from(records, 8)
            if not 0 < length < MAX_BATCH_BYTES:
                raise CorruptBatchError("the length of a batch is invalid", path=place, found=length)
            self._fetch_bytes = max(2 * self._fetch_bytes, length + 12)
        elif not self._is_endless:
            # The records exist: the broker may return them late, but must return them.
            self._wait(_late(self.key, self.position, self._end, connection))
        return headers, records

    def _data(self, headers: list[BatchHeader], records: memoryview, found: PartitionData) -> Iterator[FetchedBatch]:
        """Yield the batches that a reader gets, without control batches and batches of aborted transactions."""
        aborted = found.aborted_transactions if self._is_committed else None
        transactions = [(txn.first_offset, txn.producer_id) for txn in aborted or ()]
        for header, is_aborted in data_batches(headers, records, transactions, f"{self.key.topic}-{self.key.partition}"):
            if header.base_offset >= self._end and header.magic >= 2:
                return
            self.batches += 1
            if is_aborted:
                self.aborted_batches += 1
                continue
            yield header, records, header.position


def _late(key: TopicPartition, position: int, end: int, connection: Connection) -> BrokerError:
    return BrokerError(
        f"the broker does not return offsets [{position}, {end}) of {key.topic}-{key.partition}",
        error_code=ErrorCode.REQUEST_TIMED_OUT,
        path=str(connection.address),
    )
