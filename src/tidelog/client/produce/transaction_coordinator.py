"""The producer's side of a transaction (KIP-98): requests to the coordinator of a transactional id.

| request | key | purpose | while the previous transaction is ending |
|---|---|---|---|
| InitProducerId | 22 | a producer id and epoch; fences older producers, aborts their open transactions | waits |
| AddPartitionsToTxn | 24 | partitions to be written | waits |
| AddOffsetsToTxn | 25 | a group whose offsets will be committed | waits |
| TxnOffsetCommit | 28 | these offsets, to the group's coordinator | |
| EndTxn | 26 | commit or abort | waits |

Each request is idempotent, so it may be resent after a lost response. In the versions used here, the producer adds partitions
itself (before KIP-890's second part); brokers support them since Kafka 0.11.

| code | raises |
|---|---|
| PRODUCER_FENCED, INVALID_PRODUCER_EPOCH | ProducerFencedError |
| UNKNOWN_TOPIC_OR_PARTITION | UnknownTopicOrPartitionError, once metadata confirms it |
| others | see `failures` |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.coordinators import GROUP, PASSING, TRANSACTION, Known, ask_coordinator
from tidelog.client.connections.failures import RetryTimer, error_for
from tidelog.errors import BrokerUnreachableError, ProducerFencedError, TidelogError
from tidelog.model import TopicPartition
from tidelog.records.builder import Producer
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

M = TypeVar("M", bound=Message)

GOING_ON_VERSION = 3
"""The first version of InitProducerId in which a producer can send its epoch, and learns that it was fenced (KIP-360,
Kafka 2.5).
"""

INIT_VERSION = 4
_ADD_PARTITIONS_VERSION = 3
_ADD_OFFSETS_VERSION = 3
_OFFSET_COMMIT_VERSION = 3
_END_VERSION = 4

FENCING = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})

BUSY = PASSING | {ErrorCode.CONCURRENT_TRANSACTIONS}
_NEW_TOPIC = BUSY | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def new_producer_id(cluster: Cluster) -> Producer:
    """Return a producer id for an idempotent producer without transactions, from any broker.

    Raises UnsupportedVersionError before Kafka 0.11.
    """
    timer = RetryTimer(cluster.timeout_ms)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    while True:
        try:
            answer = cluster.ask_any(request, InitProducerIdResponse, newest=INIT_VERSION)
        except BrokerUnreachableError as error:
            timer.wait(error)
            continue
        if not answer.error_code:
            return Producer(answer.producer_id, answer.producer_epoch, 0)
        refusal = error_for(answer.error_code, "request for a producer id", cluster)
        if answer.error_code not in PASSING:
            raise refusal
        timer.wait(refusal)


class TransactionCoordinator:
    """Sends requests to the coordinator of one transactional id; see the module's docstring. Use it on the cluster's thread
    only.
    """

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._known: Known = {}

    def init(self, timeout_ms: int, current: Producer | None = None) -> Producer:
        """Return the producer id and epoch to continue with. An open transaction is aborted; a decided transaction is completed
        first.

        With `current`, an id and epoch whose transaction has ended, raises ProducerFencedError if another producer has begun
        since. Brokers before Kafka 2.5 do not detect that.
        """
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=timeout_ms)
        oldest = 0
        if current is not None and self._takes_current():
            request.producer_id, request.producer_epoch = current.producer_id, current.producer_epoch
            oldest = GOING_ON_VERSION
        answer = self._ask(request, InitProducerIdResponse, _code, newest=INIT_VERSION, oldest=oldest)
        if answer.error_code:
            raise self._refusal(answer.error_code, f"start of transactional id {self._id!r}")
        return Producer(answer.producer_id, answer.producer_epoch, 0)

    def add_partitions(self, producer: Producer, keys: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction, all or none. The first call begins the transaction."""
        topics: dict[str, list[int]] = {}
        for key in keys:
            topics.setdefault(key.topic, []).append(key.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
        )
        self._check_topics(topics)
        answer = self._ask(
            request,
            AddPartitionsToTxnResponse,
            lambda response: (code for _, code in _partition_codes(response)),
            newest=_ADD_PARTITIONS_VERSION,
            passing=_NEW_TOPIC,
        )
        refused = [(key, code) for key, code in _partition_codes(answer) if code]
        # If one is refused, the others were not attempted: use the refused one's error.
        refused.sort(key=lambda one: one[1] == ErrorCode.OPERATION_NOT_ATTEMPTED)
        for key, code in refused:
            raise self._refusal(code, f"transaction of {self._id!r} in {key.topic}-{key.partition}")

    def commit_offsets(self, producer: Producer, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Add a group's offsets, each with its metadata, to the transaction.

        The topics must exist: brokers refuse offsets of missing topics. Metadata may have at most 4,096 characters, unless
        configured otherwise.
        """
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for key, (offset, metadata) in offsets.items():
            partition = TxnOffsetCommitRequestPartition(
                partition_index=key.partition, committed_offset=offset, committed_metadata=metadata
            )
            topics.setdefault(key.topic, []).append(partition)
        self._check_topics(topics)
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=group,
        )
        added = self._ask(request, AddOffsetsToTxnResponse, _code, newest=_ADD_OFFSETS_VERSION)
        what = f"offsets of group {group!r} in a transaction of {self._id!r}"
        if added.error_code:
            raise self._refusal(added.error_code, what)
        answer = ask_coordinator(
            self._cluster,
            group,
            TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                topics=[TxnOffsetCommitRequestTopic(name=name, partitions=listed) for name, listed in topics.items()],
            ),
            TxnOffsetCommitResponse,
            lambda response: (partition.error_code for topic in response.topics for partition in topic.partitions),
            newest=_OFFSET_COMMIT_VERSION,
            key_type=GROUP,
            passing=_NEW_TOPIC,
            known=self._known,
        )
        for topic in answer.topics:
            for committed in topic.partitions:
                if committed.error_code:
                    raise self._refusal(committed.error_code, f"{what} for {topic.name}-{committed.partition_index}")

    def end(self, producer: Producer, *, is_commit: bool) -> None:
        """Commit or abort. Raises ProducerFencedError if another producer has begun since, or if the transaction timed out and
        was aborted.
        """
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=is_commit,
        )
        answer = self._ask(request, EndTxnResponse, _code, newest=_END_VERSION)
        if answer.error_code:
            raise self._refusal(answer.error_code, f"{'commit' if is_commit else 'abort'} of a transaction of {self._id!r}")

    def wait_until_visible(self, producer: Producer) -> None:
        """Wait until the markers of a committed transaction are written. Coordinators answer EndTxn before that.

        If EndTxn is repeated, they answer CONCURRENT_TRANSACTIONS until all markers are written. Call this before the next
        transaction begins.
        """
        self.end(producer, is_commit=True)

    def _ask(
        self,
        request: Message,
        response: type[M],
        codes: Callable[[M], Iterable[int]],
        *,
        newest: int,
        oldest: int = 0,
        passing: Collection[int] = BUSY,
    ) -> M:
        """Return the coordinator's response."""
        return ask_coordinator(
            self._cluster,
            self._id,
            request,
            response,
            codes,
            newest=newest,
            oldest=oldest,
            key_type=TRANSACTION,
            passing=passing,
            known=self._known,
        )

    def _takes_current(self) -> bool:
        with self._cluster.connection_to_any() as connection:
            return connection.offers(InitProducerIdRequest, GOING_ON_VERSION)

    def _check_topics(self, names: Iterable[str]) -> None:
        """Raise UnknownTopicOrPartitionError for a missing topic. The coordinator's own error is ambiguous: it also occurs for a
        topic that was just created.
        """
        for name in names:
            self._cluster.topic(name)

    def _refusal(self, code: int, what: str) -> TidelogError:
        return fenced(self._cluster, self._id) if code in FENCING else error_for(code, what, self._cluster)


def fenced(cluster: Cluster, transactional_id: str | None) -> ProducerFencedError:
    """Return the error for a producer that no longer owns its transactional id."""
    return ProducerFencedError(
        f"producer of transactional id {transactional_id!r} is fenced: another producer began with the same id, "
        "or a transaction was open for longer than its timeout",
        path=str(cluster),
    )


def _code(response: InitProducerIdResponse | AddOffsetsToTxnResponse | EndTxnResponse) -> Iterable[int]:
    return (response.error_code,)


def _partition_codes(response: AddPartitionsToTxnResponse) -> Iterator[tuple[TopicPartition, int]]:
    for topic in response.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition:
            yield TopicPartition(topic.name, partition.partition_index), partition.partition_error_code
