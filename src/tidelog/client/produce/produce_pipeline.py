"""Sends batches to brokers. Several requests to each broker are in flight; retries keep the order and cause no duplicates.

| | |
|---|---|
| when | at once, while fewer than `max_in_flight` requests to that broker are pending |
| a request | one batch of each partition with waiting batches, up to 4 MiB |

A retry does not duplicate records (KIP-98), because brokers remember the last five batches of a producer in a partition.

| what happens to a batch | action |
|---|---|
| its response is lost, or has a retriable error | resend it and all later batches: same order, same sequences |
| it is a duplicate | it counts as stored; the response has its offset unless the broker no longer remembers it |
| its sequence is out of order, and an earlier batch failed | resend it after that batch |
| its sequence is out of order, and no older one is pending | OutOfOrderSequenceError: the broker lost the producer's records |
| it is the producer's first in the partition | wait for its response before sending more: brokers accept any first sequence |

| version of Produce | since | batches are sent as |
|---|---|---|
| 0, 1 | 0.8 | message format v0: no timestamps |
| 2 | 0.10 (KIP-32) | v1; the response has the append time for LogAppendTime topics |
| 3 | 0.11 (KIP-98, KIP-82) | v2: headers, producer ids |
| 7 | 2.1 (KIP-110) | the same, also with zstd |
| 8 | 2.4 (KIP-467) | the response says which record was refused, and why |

Brokers before 0.11 and topics in message format v0 or v1 do not support producer ids. Unless there is a transactional id, batches
for them are sent without a producer id, one at a time. If such a response is lost, `repeats_plain` decides: the batch is resent
and may be duplicated, or an error is raised.

`appender` uses this, and so does `batch_appender`, which adds transactions. The caller calls `send` and `wait` until its
condition is true.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.connections.addresses import BrokerAddress
from tidelog.client.connections.cluster import NO_LEADER, Cluster, no_leader
from tidelog.client.connections.connection import Connection
from tidelog.client.connections.failures import RETRIABLE, RetryTimer
from tidelog.client.produce.produce_error import produce_error
from tidelog.client.produce.transaction_coordinator import FENCING, fenced
from tidelog.client.reading.topic_configs import is_without_transactions
from tidelog.errors import (
    BrokerUnreachableError,
    InvalidArgumentError,
    ProtocolError,
    TidelogError,
    UnsupportedForMessageFormatError,
)
from tidelog.model import TopicPartition
from tidelog.records.batch import increment_sequence
from tidelog.records.builder import NO_PRODUCER, Producer
from tidelog.records.patch import Writable, set_producer
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NEWEST_VERSION = 11
ALL_IN_SYNC = -1

MAX_IN_FLIGHT = 5
"""Brokers recognize duplicates of a producer's last five batches only."""

REQUEST_BYTES = 4 << 20
FIRST_PAUSE_MS = 2


class Appended(NamedTuple):
    """Where a batch was stored. Both offsets are -1 if the broker knows only that the batch was stored. `log_append_time_ms` is
    -1 for CreateTime. `magic` is the message format in which the batch was sent.
    """

    key: TopicPartition
    base_offset: int
    last_offset: int
    record_count: int
    log_append_time_ms: int
    tag: object
    magic: int = 2


@dataclass(slots=True, eq=False)
class Batch:
    """A batch given to `add`. `result` is set once the batch is acknowledged. `older(magic)` returns it as messages of v0 or
    v1.
    """

    key: TopicPartition
    data: Writable
    record_count: int
    oldest_version: int
    tag: object
    older: Callable[[int], bytearray] | None = None
    number: int = 0
    """Increases with each added batch."""
    base_sequence: int = -1
    """-1 until the batch is sent."""
    magic: int = 2
    """The message format in which the batch was last sent."""
    result: Appended | None = None


@dataclass(slots=True, eq=False)
class _Partition:
    """The pending batches of a partition."""

    key: TopicPartition
    waiting: deque[Batch] = field(default_factory=deque)
    in_flight: deque[Batch] = field(default_factory=deque)
    address: BrokerAddress | None = None
    """The broker with this partition's batches in flight: nothing is sent to a new leader before the old leader has answered."""
    next_sequence: int = 0
    is_known: bool = False
    """Whether a batch of this producer was acknowledged."""
    is_plain: bool = False
    """Whether the partition's message format does not support producer ids."""
    trouble: TidelogError | None = None
    """An error, if any. While it is set, nothing is sent until the batches in flight are answered."""


@dataclass(slots=True, eq=False)
class _Lane:
    """A broker and its pending requests."""

    connection: Connection
    lent: contextlib.AbstractContextManager[Connection]
    in_flight: deque[tuple[int, list[Batch]]] = field(default_factory=deque)
    """Each request with its number. Of the requests of all lanes, the response to the smallest number is processed next."""


class ProducePipeline:
    """Keeps produce requests in flight, and retries them in order. After it has raised an error that is not retriable, only
    `forget` may be called.

    The cluster's `timeout_ms` limits the time without any acknowledgement after an error.
    """

    def __init__(self, cluster: Cluster, transactional_id: str | None, max_in_flight: int, *, repeats_plain: bool = True) -> None:
        if not 1 <= max_in_flight <= MAX_IN_FLIGHT:
            raise InvalidArgumentError(
                "the number of requests in flight per broker is out of range",
                found=max_in_flight,
                expected=f"1 to {MAX_IN_FLIGHT}: brokers deduplicate at most that many",
            )
        self.producer: Producer = NO_PRODUCER
        self.waiting_bytes = 0
        self.admitted: set[TopicPartition] = set()
        """With a transactional id: the partitions in the transaction. Batches of other partitions wait."""
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._max_in_flight = max_in_flight
        self._repeats_plain = repeats_plain
        self._timer = RetryTimer(cluster.timeout_ms, first_pause_ms=FIRST_PAUSE_MS)
        self._is_troubled = False
        """Whether nothing has been acknowledged since the last error. While this is True, the timer runs."""
        self._lanes: dict[BrokerAddress, _Lane] = {}
        self._requests = 0
        self._added = 0
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._busy: dict[TopicPartition, _Partition] = {}
        """Partitions with batches to send."""

    @property
    def is_settled(self) -> bool:
        """Whether all batches are acknowledged."""
        return not self._busy and not any(lane.in_flight for lane in self._lanes.values())

    @property
    def to_be_admitted(self) -> list[TopicPartition]:
        """The partitions that must be added to the transaction before their batches are sent."""
        return [] if self._transactional_id is None else [key for key in self._busy if key not in self.admitted]

    def add(self, batch: Batch) -> None:
        """Add a batch; a later `send` sends it."""
        partition = self._partitions.get(batch.key)
        if partition is None:
            partition = self._partitions[batch.key] = _Partition(batch.key)
        self._added += 1
        batch.number = self._added
        partition.waiting.append(batch)
        self._busy[batch.key] = partition
        self.waiting_bytes += len(batch.data)

    def renew(self, producer: Producer) -> None:
        """Continue with a different producer id or epoch. All sequences restart from 0. Call this only if no batch is waiting or
        in flight.
        """
        plain = {key for key, partition in self._partitions.items() if partition.is_plain}
        self._partitions = {key: _Partition(key, is_plain=True) for key in plain}
        self.producer = producer

    def drop_unsent(self) -> None:
        """Drop batches that were never sent and therefore have no sequence."""
        for partition in self._busy.values():
            partition.waiting = deque(batch for batch in partition.waiting if batch.base_sequence >= 0)
        self._busy = {key: partition for key, partition in self._busy.items() if partition.waiting}
        self.waiting_bytes = sum(len(batch.data) for partition in self._busy.values() for batch in partition.waiting)

    def forget(self) -> None:
        """Drop all batches and release the connections. Sequences continue; call `renew` if they have become uncertain."""
        for address in list(self._lanes):
            self._leave(address)
        for partition in self._partitions.values():
            partition.waiting.clear()
            partition.in_flight.clear()
            partition.trouble = None
        self._busy.clear()
        self.admitted.clear()
        self.waiting_bytes = 0

    def send(self) -> None:
        """Send all batches that may be sent now."""
        while self._send_one_each():
            pass

    def _send_one_each(self) -> bool:
        """Send one batch from each partition that may send. Return whether any batch was sent."""
        by_leader: dict[BrokerAddress, list[_Partition]] = {}
        for partition in self._busy.values():
            if partition.trouble is not None or (self._transactional_id is not None and partition.key not in self.admitted):
                continue
            most = self._max_in_flight if partition.is_known and not self._is_plain(partition) else 1
            if len(partition.in_flight) >= most:
                continue
            leader = self._cluster.leader(partition.key)
            if leader.node_id == NO_LEADER:
                partition.trouble = no_leader(partition.key, self._cluster)
                continue
            address = self._cluster.brokers[leader.node_id]
            if partition.in_flight and partition.address != address:
                continue
            lane = self._lanes.get(address)
            if lane is None or len(lane.in_flight) < self._max_in_flight:
                by_leader.setdefault(address, []).append(partition)
        requests = self._requests
        for address, partitions in by_leader.items():
            while partitions:
                try:
                    lane = self._lane(address)
                    if len(lane.in_flight) >= self._max_in_flight:
                        break
                    partitions = self._request(lane, partitions)
                except BrokerUnreachableError as error:
                    self._lose(address, error)
                    for partition in partitions:
                        partition.trouble = partition.trouble or error
                    break
        return self._requests > requests

    def wait(self) -> None:
        """Process one response. If no request is in flight, wait a moment and resume paused partitions."""
        waiting = [(lane.in_flight[0][0], address) for address, lane in self._lanes.items() if lane.in_flight]
        if waiting:
            self._receive(min(waiting)[1])
            return
        held = [partition for partition in self._busy.values() if partition.trouble is not None]
        if held:
            if not self._is_troubled:
                self._is_troubled = True
                self._timer.restart()
            assert held[0].trouble is not None
            self._timer.wait(held[0].trouble)
            self._cluster.refresh({partition.key.topic for partition in held})
        for partition in held:
            partition.trouble = None

    # --- Requests ---

    def _request(self, lane: _Lane, partitions: list[_Partition]) -> list[_Partition]:
        """Send a request with one batch of each partition until it is full; return the partitions that did not fit."""
        batches: list[Batch] = []
        size = 0
        for partition in partitions:
            batch = partition.waiting[0]
            if batches and size + len(batch.data) > REQUEST_BYTES:
                break
            size += len(batch.data)
            batches.append(batch)
        oldest = max(batch.oldest_version for batch in batches)
        version = lane.connection.version(ProduceRequest, newest=NEWEST_VERSION, oldest=oldest)
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for partition, batch in zip(partitions, batches, strict=False):
            part = PartitionProduceData(index=batch.key.partition, records=self._records(partition, batch, version))
            by_topic.setdefault(batch.key.topic, []).append(part)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=ALL_IN_SYNC,
            timeout_ms=self._cluster.timeout_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=data) for topic, data in by_topic.items()],
        )
        # All count as sent, even if sending fails midway: failed batches return to the front of the queue.
        self._requests += 1
        lane.in_flight.append((self._requests, batches))
        for partition in partitions[: len(batches)]:
            batch = partition.waiting.popleft()
            partition.in_flight.append(batch)
            partition.address = lane.connection.address
            self.waiting_bytes -= len(batch.data)
            if not partition.waiting:
                self._busy.pop(partition.key, None)
        lane.connection.send(request, version, ProduceResponse)
        return partitions[len(batches) :]

    def _is_plain(self, partition: _Partition) -> bool:
        """Whether a partition's batches are sent without a producer id."""
        return partition.is_plain or self.producer is NO_PRODUCER

    def _records(self, partition: _Partition, batch: Batch, version: int) -> Writable:
        """Return a batch in the message format of this version of Produce. A v2 batch gets its sequence when it is first sent."""
        batch.magic = min(2, max(0, version - 1))
        if batch.magic < 2:
            assert batch.older is not None
            return batch.older(batch.magic)
        if self._is_plain(partition):
            set_producer(batch.data, *NO_PRODUCER, is_transactional=False)
        elif batch.base_sequence < 0:
            batch.base_sequence = partition.next_sequence
            partition.next_sequence = increment_sequence(batch.base_sequence, batch.record_count)
            sender = self.producer
            set_producer(
                batch.data,
                sender.producer_id,
                sender.producer_epoch,
                batch.base_sequence,
                is_transactional=self._transactional_id is not None,
            )
        return batch.data

    def _receive(self, address: BrokerAddress) -> None:
        """Process the response to the oldest request to a broker."""
        lane = self._lanes[address]
        try:
            answer = lane.connection.receive(ProduceResponse)
        except BrokerUnreachableError as error:
            self._lose(address, error)
            return
        _, batches = lane.in_flight.popleft()
        results = {
            TopicPartition(topic.name, partition.index): partition
            for topic in answer.responses
            for partition in topic.partition_responses
        }
        for batch in batches:
            found = results.get(batch.key)
            if found is None:
                raise ProtocolError(
                    "the broker's response lacks some of the partitions", path=str(address), found=f"no result for {batch.key}"
                )
            self._note(self._partitions[batch.key], batch, found, address)

    def _note(self, partition: _Partition, batch: Batch, answer: PartitionProduceResponse, place: BrokerAddress) -> None:
        """Process the result of the oldest pending batch of a partition."""
        assert partition.in_flight[0] is batch
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            partition.in_flight.popleft()
            partition.is_known = True
            self._is_troubled = False
            base = -1 if code else answer.base_offset
            last = base if base < 0 else base + batch.record_count - 1
            stamp = answer.log_append_time_ms
            batch.result = Appended(batch.key, base, last, batch.record_count, stamp, batch.tag, batch.magic)
            batch.data = bytearray()
            batch.older = None
        elif code in FENCING and self._transactional_id is not None:
            raise fenced(self._cluster, self._transactional_id)
        elif not self._is_plain(partition) and self._is_format_too_old(code, batch.key.topic):
            if self._transactional_id is not None:
                raise UnsupportedForMessageFormatError(
                    f"topic {batch.key.topic!r} has message format v0 or v1, which has no transactions", path=str(place)
                )
            partition.is_plain = True
            self._back(partition, produce_error(batch.key, answer, place))
        elif code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND and not self._may_repeat(partition):
            raise produce_error(batch.key, answer, place)
        elif code in RETRIABLE or code == ErrorCode.CONCURRENT_TRANSACTIONS:
            self._back(partition, produce_error(batch.key, answer, place))
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and partition.trouble is not None:
            self._back(partition, partition.trouble)
        else:
            raise produce_error(batch.key, answer, place)

    def _is_format_too_old(self, code: int, topic: str) -> bool:
        """Whether a produce error is due to a topic in message format v0 or v1.

        For a transactional batch in such a topic, Kafka before 3.0 answers with an unspecific error.
        """
        if code == ErrorCode.UNKNOWN_SERVER_ERROR and self._transactional_id is not None:
            return is_without_transactions(self._cluster, topic)
        return code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    # --- Retries ---

    def _back(self, partition: _Partition, error: TidelogError) -> None:
        """Put the oldest batch in flight back into the queue, and pause the partition."""
        batch = partition.in_flight.popleft()
        place = next((i for i, other in enumerate(partition.waiting) if other.number > batch.number), len(partition.waiting))
        partition.waiting.insert(place, batch)
        self.waiting_bytes += len(batch.data)
        self._busy[partition.key] = partition
        partition.trouble = partition.trouble or error

    def _lose(self, address: BrokerAddress, error: TidelogError) -> None:
        """Handle a lost broker: requeue all its batches in flight."""
        lane = self._lanes.pop(address, None)
        if lane is None:
            return
        lane.connection.close()
        lane.lent.__exit__(None, None, None)
        lost = [self._partitions[batch.key] for _, batches in lane.in_flight for batch in batches]
        if not all(map(self._may_repeat, lost)):
            raise error
        for partition in lost:
            self._back(partition, error)

    def _may_repeat(self, partition: _Partition) -> bool:
        """Whether a batch is resent even though it may have been stored."""
        return self._repeats_plain or not self._is_plain(partition)

    # --- Connections ---

    def _lane(self, address: BrokerAddress) -> _Lane:
        """Return a broker and its connection; if an idle connection was closed, replace it."""
        lane = self._lanes.get(address)
        if lane is not None and not lane.in_flight and not lane.connection.is_idle:
            self._leave(address)
            lane = None
        if lane is None:
            lent = self._cluster.connection_to(address)
            lane = self._lanes[address] = _Lane(lent.__enter__(), lent)
        return lane

    def _leave(self, address: BrokerAddress) -> None:
        """Return the connection to the cluster; close it if responses are pending."""
        self._lanes.pop(address).lent.__exit__(None, None, None)
