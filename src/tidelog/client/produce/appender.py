"""Appends records: one request at a time, acknowledged by all in-sync replicas before the call returns.

| version of Produce | since | records are written as |
|---|---|---|
| 0, 1 | 0.8 | message format v0: no timestamps |
| 2 | 0.10 (KIP-32) | v1; the response says the append time where the topic says LogAppendTime |
| 3 | 0.11 (KIP-98, KIP-82) | v2: headers, producer ids |
| 7 | 2.1 (KIP-110) | the same, zstd too |
| 8 | 2.4 (KIP-467) | the response says which record was refused, and why |

Where the broker gives out producer ids (0.11) every batch carries one and a sequence: one that is sent again, because the
connection was lost before the answer, is recognised, and its records are there once and in order. Without, an append whose
answer was lost is an error that says so, not a second try. Topics in formats v0 and v1 (`message.format.version`, up to Kafka
3.9) refuse batches with a producer id: theirs are sent without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.connections.addresses import BrokerAddress
from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.connection import Connection
from tidelog.client.connections.failures import RETRIABLE, RetryTimer, error_for
from tidelog.errors import (
    BrokerUnreachableError,
    InvalidTimestampError,
    ProtocolError,
    RecordError,
    RecordValidationError,
    TidelogError,
)
from tidelog.model import NO_TIMESTAMP, TopicPartition
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, increment_sequence
from tidelog.records.builder import NO_PRODUCER, Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.kernel import murmur2
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NEWEST_VERSION = 11
INIT_PRODUCER_ID_VERSION = 4
ALL_IN_SYNC = -1

BATCH_BYTES = 1_000_000
"""A batch holds at most so many bytes of records before they are compressed; brokers take 1,048,588 unless configured
otherwise.
"""


class Produced(NamedTuple):
    """Where a record went. `timestamp` (ms) is what readers will see, -1 for none; `timestamp_type` as in `ReadRecord`."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int


@dataclass(slots=True)
class _Batch:
    """Records on their way to a partition, and which of the caller's they are."""

    records: list[Record]
    places: list[int]
    producer: Producer = NO_PRODUCER
    built: dict[int, bytearray] = field(default_factory=dict)
    magic: int = 2

    def data(self, magic: int, codec: Codec) -> bytearray:
        """Return the bytes in this message format; the same ones for every attempt."""
        self.magic = magic
        found = self.built.get(magic)
        if found is None:
            records = [record._replace(offset=i) for i, record in enumerate(self.records)]
            if magic == 2:
                found = build_batch_v2(records, codec=codec, producer=self.producer)
            else:
                found = build_message_set(records, magic, codec=codec)
            self.built[magic] = found
        return found


class Appender:
    """Appends to any partition. One thread's, as the cluster is."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer: Producer | None = None
        """Id and epoch; NO_PRODUCER where the broker has none to give, None as long as nobody asked."""
        self._next_sequences: dict[TopicPartition, int] = {}
        self._plain: set[TopicPartition] = set()
        """Partitions whose format knows no producers."""
        self._turn = 0

    def partition_for(self, topic: str, key: bytes | None) -> int:
        """Return a record's partition by Kafka's default hash of its key; without key, the one whose turn it is.

        A broker that creates topics creates this one. Raises UnknownTopicOrPartitionError.
        """
        partitions = list(self._cluster.topic(topic, create=True).partitions)
        at = self._turn if key is None else murmur2(key) & 0x7FFFFFFF
        return partitions[at % len(partitions)]

    def take_turns(self) -> None:
        """Send the next records without key to the next partition."""
        self._turn += 1

    def append(
        self, records: Sequence[tuple[TopicPartition, Record]], codec: Codec, batch_bytes: int = BATCH_BYTES
    ) -> list[Produced]:
        """Append records, each partition's in their order, and return where each went. Their offsets are not looked at.

        Raises:
            InvalidTimestampError, RecordValidationError: the broker refuses records; it says which ones of their batch.
            RecordTooLargeError, UnknownTopicOrPartitionError, BrokerUnreachableError, BrokerError
            Whatever is raised, batches that were acknowledged before are there.
        """
        waiting = _batches(records, batch_bytes)
        results: list[Produced | None] = [None] * len(records)
        if waiting and self._producer is None:
            self._producer = self._new_producer()
        while waiting:
            batches = {key: queue[0] for key, queue in waiting.items()}
            try:
                self._append(batches, codec, results)
            except BaseException:
                # Whatever became of the batches: sequences that nobody is sure of are not used again.
                self._producer = None
                self._next_sequences.clear()
                raise
            for key in batches:
                waiting[key].popleft()
            waiting = {key: queue for key, queue in waiting.items() if queue}
        return [result for result in results if result is not None]

    def _new_producer(self) -> Producer:
        timer = RetryTimer(self._cluster.timeout_ms)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while True:
            error: TidelogError
            try:
                with self._cluster.connection_to_any() as connection:
                    if not connection.offers(InitProducerIdRequest):
                        return NO_PRODUCER
                    version = connection.version(InitProducerIdRequest, newest=INIT_PRODUCER_ID_VERSION)
                    answer = connection.ask(request, version, InitProducerIdResponse)
            except BrokerUnreachableError as lost:
                error = lost
            else:
                if answer.error_code == ErrorCode.NONE:
                    return Producer(answer.producer_id, answer.producer_epoch, 0)
                error = error_for(answer.error_code, "a producer id", connection.address)
                if answer.error_code not in RETRIABLE and answer.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    raise error
            timer.wait(error)

    def _append(self, batches: Mapping[TopicPartition, _Batch], codec: Codec, results: list[Produced | None]) -> None:
        """Append one batch to each of some partitions."""
        producer = self._producer or NO_PRODUCER
        if producer is not NO_PRODUCER:
            sequenced = {key: batch for key, batch in batches.items() if key not in self._plain}
            if sequenced:
                self._ask(sequenced, producer, codec, results)
        # Some may have turned out to be plain ones only now.
        plain = {key: batch for key, batch in batches.items() if producer is NO_PRODUCER or key in self._plain}
        if plain:
            self._ask(plain, NO_PRODUCER, codec, results)

    def _ask(
        self, batches: Mapping[TopicPartition, _Batch], producer: Producer, codec: Codec, results: list[Produced | None]
    ) -> None:
        """Append one batch to each of some partitions, all with this producer's sequences or all without."""
        for key, batch in batches.items():
            batch.built.clear()
            batch.producer = NO_PRODUCER
            if producer is not NO_PRODUCER:
                batch.producer = producer._replace(base_sequence=self._next_sequences.get(key, 0))
        has_headers = any(record.headers for batch in batches.values() for record in batch.records)
        oldest = 7 if codec is Codec.ZSTD else 3 if has_headers else 0

        def make(connection: Connection, keys: list[TopicPartition]) -> tuple[Message, int]:
            version = connection.version(ProduceRequest, newest=NEWEST_VERSION, oldest=oldest)
            magic = min(2, max(0, version - 1))
            by_topic: dict[str, list[PartitionProduceData]] = {}
            for key in keys:
                data = batches[key].data(magic, codec)
                by_topic.setdefault(key.topic, []).append(PartitionProduceData(index=key.partition, records=data))
            request = ProduceRequest(
                acks=ALL_IN_SYNC,
                timeout_ms=self._cluster.timeout_ms,
                topic_data=[TopicProduceData(name=topic, partition_data=data) for topic, data in by_topic.items()],
            )
            return request, version

        def read(
            response: ProduceResponse, keys: list[TopicPartition], place: BrokerAddress
        ) -> dict[TopicPartition, TidelogError]:
            failed: dict[TopicPartition, TidelogError] = {}
            refused: TidelogError | None = None
            missing = set(keys)
            for topic in response.responses:
                for partition in topic.partition_responses:
                    key = TopicPartition(topic.name, partition.index)
                    missing.discard(key)
                    code = partition.error_code
                    if code == ErrorCode.NONE:
                        self._note(key, batches[key], partition, results)
                    elif code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT and producer is not NO_PRODUCER:
                        self._plain.add(key)
                    elif code in RETRIABLE and (
                        code != ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND or producer is not NO_PRODUCER
                    ):
                        failed[key] = refusal(key, partition, place)
                    else:
                        refused = refused or refusal(key, partition, place)
            if refused is not None:
                raise refused
            if missing:
                raise ProtocolError("the broker does not answer for all partitions", path=str(place), found=sorted(missing)[0])
            return failed

        self._cluster.ask_leaders(batches, ProduceResponse, make, read, is_repeatable=producer is not NO_PRODUCER)

    def _note(self, key: TopicPartition, batch: _Batch, answer: PartitionProduceResponse, results: list[Produced | None]) -> None:
        """Note where an acknowledged batch went."""
        if batch.producer is not NO_PRODUCER:
            self._next_sequences[key] = increment_sequence(batch.producer.base_sequence, len(batch.records))
        for i, (place, record) in enumerate(zip(batch.places, batch.records, strict=True)):
            # An idempotent append that a broker had long forgotten is acknowledged without its offsets.
            offset = answer.base_offset + i if answer.base_offset >= 0 else -1
            if batch.magic == 0:
                timestamp, kind = NO_TIMESTAMP, NO_TIMESTAMP_TYPE
            elif answer.log_append_time_ms >= 0:
                timestamp, kind = answer.log_append_time_ms, LOG_APPEND_TIME
            else:
                timestamp, kind = record.timestamp, CREATE_TIME
            results[place] = Produced(key.topic, key.partition, offset, timestamp, kind)


def _batches(records: Iterable[tuple[TopicPartition, Record]], batch_bytes: int) -> dict[TopicPartition, deque[_Batch]]:
    """Return the records by partition, in batches of up to `batch_bytes`."""
    batches: dict[TopicPartition, deque[_Batch]] = {}
    filled: dict[TopicPartition, int] = {}
    for place, (key, record) in enumerate(records):
        size = _most_bytes(record)
        queue = batches.setdefault(key, deque())
        if not queue or filled[key] + size > batch_bytes:
            queue.append(_Batch([], []))
            filled[key] = 0
        queue[-1].records.append(record)
        queue[-1].places.append(place)
        filled[key] += size
    return batches


def _most_bytes(record: Record) -> int:
    """Return an upper bound of what a record takes in any message format, before compression."""
    size = 40 + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += 10 + 4 * len(name) + len(value or b"")
    return size


def refusal(key: TopicPartition, answer: PartitionProduceResponse, place: BrokerAddress) -> TidelogError:
    """Return the error for a partition's part of an answer: which records were refused, where the broker says."""
    what = f"append to {key.topic}-{key.partition}"
    detail = answer.error_message
    if answer.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP):
        cls = InvalidTimestampError if answer.error_code == ErrorCode.INVALID_TIMESTAMP else RecordValidationError
        record_errors = [
            RecordError(error.batch_index, error.batch_index_error_message or "") for error in answer.record_errors or ()
        ]
        return cls(
            f"{what}: {detail}" if detail else what,
            record_errors=record_errors,
            path=str(place),
            found=ErrorCode(answer.error_code).name,
        )
    return error_for(answer.error_code, what, place, detail)
