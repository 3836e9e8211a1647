"""Appends records, acknowledged by all in-sync replicas before the call returns.

If the broker assigns producer ids (0.11), every batch has a producer id and a sequence. The broker then recognizes a batch that
is resent after a lost connection, so its records are stored once and in order. Without producer ids a lost response is an error,
and nothing is resent. Topics in formats v0 and v1 (`message.format.version`, up to Kafka 3.9) refuse batches with a producer id,
so batches for them have none.

`produce_pipeline` sends, and has the table of Produce's versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

from tidelog.client.connections.cluster import Cluster
from tidelog.client.produce.produce_pipeline import MAX_IN_FLIGHT, Appended, Batch, ProducePipeline
from tidelog.client.produce.transaction_coordinator import new_producer_id
from tidelog.errors import UnsupportedVersionError
from tidelog.model import NO_TIMESTAMP, TopicPartition
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE
from tidelog.records.builder import NO_PRODUCER, Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.kernel import murmur2
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record

BATCH_BYTES = 1_000_000
"""The most bytes of records in a batch before compression; brokers accept 1,048,588 unless configured otherwise."""

WAITING_BYTES = 1 << 20
"""While this many bytes of batches wait to be sent, no further batches are built."""

_HEADERS_VERSION = 3
_ZSTD_VERSION = 7


class Produced(NamedTuple):
    """Where a record was stored. `timestamp` (ms) is what readers will see, -1 for none; `timestamp_type` is as in
    `ReadRecord`.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int


@dataclass(slots=True)
class _Records:
    """The records of one batch, and their positions in the caller's list."""

    records: list[Record] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    def batch(self, key: TopicPartition, codec: Codec) -> Batch:
        """Return these records as a batch to send."""
        has_headers = any(record.headers for record in self.records)
        oldest = _ZSTD_VERSION if codec is Codec.ZSTD else _HEADERS_VERSION if has_headers else 0
        data = build_batch_v2(self.records, codec=codec)
        return Batch(key, data, len(self.records), oldest, self, partial(build_message_set, self.records, codec=codec))

    def note(self, done: Appended, results: list[Produced | None]) -> None:
        """Store the offsets of an acknowledged batch in the caller's list."""
        for i, (place, record) in enumerate(zip(self.places, self.records, strict=True)):
            # A broker acknowledges a duplicate without offsets if it no longer remembers the batch.
            offset = done.base_offset + i if done.base_offset >= 0 else -1
            if done.magic == 0:
                timestamp, kind = NO_TIMESTAMP, NO_TIMESTAMP_TYPE
            elif done.log_append_time_ms >= 0:
                timestamp, kind = done.log_append_time_ms, LOG_APPEND_TIME
            else:
                timestamp, kind = record.timestamp, CREATE_TIME
            results[place] = Produced(*done.key, offset, timestamp, kind)


class Appender:
    """Appends records to any partition. Use it only on the thread that uses its cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pipeline = ProducePipeline(cluster, None, MAX_IN_FLIGHT, repeats_plain=False)
        self._is_ready = False
        """Whether there is a producer id, and it is certain which of its sequences the broker has seen."""
        self._turn = 0

    def partition_for(self, topic: str, key: bytes | None) -> int:
        """Return a record's partition by Kafka's default hash of its key; without a key, the current round-robin partition.

        Brokers that create topics automatically create a missing topic. Raises UnknownTopicOrPartitionError.
        """
        partitions = list(self._cluster.topic(topic, create=True).partitions)
        at = self._turn if key is None else murmur2(key) & 0x7FFFFFFF
        return partitions[at % len(partitions)]

    def take_turns(self) -> None:
        """Switch to the next partition for records that have no key."""
        self._turn += 1

    def append(
        self, records: Sequence[tuple[TopicPartition, Record]], codec: Codec, batch_bytes: int = BATCH_BYTES
    ) -> list[Produced]:
        """Append records, in order per partition, and return where each was stored. The records' `offset` is ignored.

        Raises:
            InvalidTimestampError, RecordValidationError: the broker refuses records, and says which records of the batch.
            RecordTooLargeError, UnknownTopicOrPartitionError, BrokerUnreachableError, BrokerError
            After any error, batches acknowledged before it remain in the log.
        """
        queues = _batches(records, batch_bytes)
        if not queues:
            return []
        if not self._is_ready:
            self._pipeline.renew(self._new_producer())
            self._is_ready = True
        sent: list[Batch] = []
        try:
            for ready in zip_longest(*queues.values()):
                for key, one in zip(queues, ready, strict=True):
                    if one is not None:
                        sent.append(one.batch(key, codec))
                        self._pipeline.add(sent[-1])
                        while self._pipeline.waiting_bytes > WAITING_BYTES:
                            self._pipeline.send()
                            if self._pipeline.waiting_bytes > WAITING_BYTES:
                                self._pipeline.wait()
                self._pipeline.send()
            while not self._pipeline.is_settled:
                self._pipeline.send()
                self._pipeline.wait()
        except BaseException:
            # It is unknown which sequences the broker has seen, so they are not reused.
            self._is_ready = False
            raise
        finally:
            self._pipeline.forget()
        results: list[Produced | None] = [None] * len(records)
        for batch in sent:
            assert isinstance(batch.tag, _Records) and batch.result is not None
            batch.tag.note(batch.result, results)
        return [result for result in results if result is not None]

    def _new_producer(self) -> Producer:
        """Return a producer id and epoch; NO_PRODUCER if the brokers do not assign them."""
        try:
            return new_producer_id(self._cluster)
        except UnsupportedVersionError:
            return NO_PRODUCER


def _batches(records: Iterable[tuple[TopicPartition, Record]], batch_bytes: int) -> dict[TopicPartition, list[_Records]]:
    """Return the records grouped by partition into batches of up to `batch_bytes`."""
    batches: dict[TopicPartition, list[_Records]] = {}
    filled: dict[TopicPartition, int] = {}
    for place, (key, record) in enumerate(records):
        size = _most_bytes(record)
        queue = batches.setdefault(key, [])
        if not queue or filled[key] + size > batch_bytes:
            queue.append(_Records())
            filled[key] = 0
        queue[-1].records.append(record._replace(offset=len(queue[-1].records)))
        queue[-1].places.append(place)
        filled[key] += size
    return batches


def _most_bytes(record: Record) -> int:
    """Return an upper bound of a record's size in any message format, before compression."""
    size = 40 + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += 10 + 4 * len(name) + len(value or b"")
    return size
