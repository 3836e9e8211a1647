"""A transactional producer for tests that sends what it is told to, and keeps what it was given: its id, epoch, sequences.

with TransactionalProducer(broker.address, "me") as me:
    me.init()
    me.add(("t", 0))
    me.produce("t")
    me.end()

Each call returns the code that it was answered with; versions are those of Kafka 3.9's client unless one is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from types import TracebackType
from typing import Self

from tests.broker.produce_helpers import NOW_MS, answers, produce_request, some_records
from tests.broker.raw import RawClient
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.records.batch import iter_headers
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.list_transactions import ListTransactionsRequest
from tidelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

TIMEOUT_MS = 60_000
READ_COMMITTED = 1
READ_UNCOMMITTED = 0

Key = tuple[str, int]


class TransactionalProducer:
    """See the module."""

    def __init__(
        self, address: tuple[str, int], transactional_id: str = "me", *, timeout_ms: int = TIMEOUT_MS, is_found: bool = True
    ) -> None:
        """Look the coordinator up, unless not: it is there once somebody has asked."""
        self.client = RawClient(address)
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[Key, int] = {}
        if is_found:
            find_coordinator(self.client, transactional_id)

    def twin(self) -> TransactionalProducer:
        """Return another producer that takes itself for this one; it uses the same connection."""
        other = copy(self)
        other.sequences = dict(self.sequences)
        return other

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.client.close()

    def init(self, version: int = 5, *, is_known: bool = False) -> int:
        """Ask for id and epoch; with `is_known` say which ones it has."""
        known = (self.producer_id, self.epoch) if is_known else (-1, -1)
        answer = self.client.ask(InitProducerIdRequest(self.transactional_id, self.timeout_ms, *known), version)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        else:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        return int(answer.error_code)

    def add(self, *keys: Key, version: int = 3) -> int:
        """Add partitions; all of them are answered alike."""
        (code,) = set(self.added(keys, version).values())
        return code

    def added(self, keys: Iterable[Key], version: int = 3, *, verify_only: bool = False) -> dict[Key, int]:
        """Add partitions, or ask whether they are, and return each one's answer."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in keys:
            by_topic.setdefault(topic, []).append(partition)
        topics = [AddPartitionsToTxnTopic(topic, partitions) for topic, partitions in by_topic.items()]
        producer = self.transactional_id, self.producer_id, self.epoch
        if version < 4:
            answer = self.client.ask(AddPartitionsToTxnRequest([], *producer, topics), version)
            results = answer.results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(*producer, verify_only, topics)
            answer = self.client.ask(AddPartitionsToTxnRequest([transaction]), version)
            (one,) = answer.results_by_transaction
            assert (answer.error_code, one.transactional_id) == (0, self.transactional_id)
            results = one.topic_results
        return {(topic.name, p.partition_index): p.partition_error_code for topic in results for p in topic.results_by_partition}

    def add_offsets(self, group_id: str, version: int = 3) -> int:
        request = AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.epoch, group_id)
        return int(self.client.ask(request, version).error_code)

    def produce(self, topic: str, partition: int = 0, count: int = 1, *, version: int = 11, at_ms: int = NOW_MS) -> int:
        """Produce records, in sequence; if they are refused, the next ones are the same again."""
        key = topic, partition
        sequence = self.sequences.get(key, 0)
        (answer,) = answers(
            self.client.ask(
                produce_request([(*key, self.batch(sequence, count, at_ms))], transactional_id=self.transactional_id), version
            )
        ).values()
        if not answer.error_code:
            self.sequences[key] = sequence + count
        return answer.error_code

    def batch(self, sequence: int, count: int = 1, at_ms: int = NOW_MS) -> bytes:
        """Return a batch of the open transaction."""
        producer = Producer(self.producer_id, self.epoch, sequence)
        return bytes(build_batch_v2(some_records(count, at_ms=at_ms), producer=producer, is_transactional=True))

    def end(self, *, is_commit: bool = True, version: int = 3) -> int:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, is_commit)
        return int(self.client.ask(request, version).error_code)

    def write(self, *keys: Key) -> None:
        """Begin a transaction, or go on with it: a record for each partition."""
        assert self.add(*keys) == ErrorCode.NONE
        assert [self.produce(*key) for key in keys] == [ErrorCode.NONE] * len(keys)

    def described(self) -> TransactionState:
        return describe(self.client, self.transactional_id)


def wait_until_loaded(client: RawClient) -> None:
    """Wait until the coordinator knows all transactional ids."""
    wait_until(lambda: not client.ask(ListTransactionsRequest(), 0).error_code, "the coordinator's table", PATIENCE_S)


def find_coordinator(client: RawClient, transactional_id: str) -> None:
    answer = client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 4)
    assert answer.coordinators[0].error_code == ErrorCode.NONE


def describe(client: RawClient, transactional_id: str) -> TransactionState:
    (one,) = client.ask(DescribeTransactionsRequest([transactional_id]), 0).transaction_states
    assert isinstance(one, TransactionState)
    return one


def producers(client: RawClient, topic: str, partition: int = 0) -> list[ProducerState]:
    """What a log knows of its producers."""
    ((one,),) = (topic.partitions for topic in client.ask(DescribeProducersRequest([TopicRequest(topic, [partition])]), 0).topics)
    assert one.error_code == ErrorCode.NONE
    return list(one.active_producers)


def offset_of(client: RawClient, topic: str, timestamp: int = -1, isolation: int = READ_COMMITTED, partition: int = 0) -> int:
    """What ListOffsets says; the log's end by default."""
    request = ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, timestamp)])])
    (one,) = client.ask(request, 8).topics[0].partitions
    assert one.error_code == ErrorCode.NONE
    return int(one.offset)


def fetch(client: RawClient, topic: str, offset: int = 0, isolation: int = READ_COMMITTED, partition: int = 0) -> PartitionData:
    """What a fetch gives that waits for nothing."""
    wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, isolation_level=isolation, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    (one,) = client.ask(request, 12).responses[0].partitions
    assert isinstance(one, PartitionData)
    assert one.error_code == ErrorCode.NONE
    return one


def committed(client: RawClient, topic: str, partition: int = 0) -> list[tuple[int, int]]:
    """Producer and first offset of each batch that a consumer with read_committed would be given, by what its fetches say."""
    found = []
    offset = 0
    while True:
        data = fetch(client, topic, offset, partition=partition)
        aborted = sorted(((one.first_offset, one.producer_id) for one in data.aborted_transactions or ()), reverse=True)
        dropped: set[int] = set()
        for header in iter_headers(data.records or b""):
            while aborted and aborted[-1][0] <= header.base_offset:
                dropped.add(aborted.pop()[1])
            if header.is_control:
                dropped.discard(header.producer_id)
            elif header.producer_id not in dropped:
                found.append((header.producer_id, header.base_offset))
            offset = header.next_offset
        if not data.records:
            return found


def write_markers(
    client: RawClient,
    producer: tuple[int, int],
    *keys: Key,
    is_commit: bool = False,
    coordinator_epoch: int = 0,
    version: int = 1,
    transaction_version: int = 0,
) -> dict[Key, int]:
    """Have markers of a producer written, whoever coordinates it."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in keys:
        by_topic.setdefault(topic, []).append(partition)
    topics = [WritableTxnMarkerTopic(topic, partitions) for topic, partitions in by_topic.items()]
    request = WriteTxnMarkersRequest([WritableTxnMarker(*producer, is_commit, topics, coordinator_epoch, transaction_version)])
    (one,) = client.ask(request, version).markers
    assert one.producer_id == producer[0]
    return {(topic.name, p.partition_index): p.error_code for topic in one.topics for p in topic.partitions}
