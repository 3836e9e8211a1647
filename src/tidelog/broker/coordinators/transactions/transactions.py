"""The transaction coordinator: transactional ids in memory and in ``__transaction_state``. A standalone broker has all of them.

A change is written to the log before it is made in memory, so a failed write changes nothing. Once a decision (PREPARE) is
committed, the markers are written, then COMPLETE. After a restart, `completion` completes transactions that have been decided.

| interval | action |
|---|---|
| `transaction.abort.timed.out…interval.ms` | transactions open longer than their timeout are aborted and fenced |
| `transaction.remove.expired…interval.ms` | ids without a transaction for `transactional.id.expiration.ms` are removed |

Timeouts use the monotonic clock (`delays`); after a restart they continue from the times in the records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from functools import partial
from typing import Any, Final

from tidelog.broker.coordinators.append_refusals import refusal, refusal_of
from tidelog.broker.coordinators.state_log import COMMIT_TIMEOUT_MS, InternalTopic, StateLog, chunks
from tidelog.broker.coordinators.transactions.completion import RETRY_MS, Completion
from tidelog.broker.coordinators.transactions.markers import Markers
from tidelog.broker.coordinators.transactions.producer_id_source import ProducerIdSource
from tidelog.broker.coordinators.transactions.transaction import (
    EPOCH_EACH,
    PREPARED,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
    as_told_to_logs,
    ended_in_next_epoch,
    initialized,
    may_initialize,
)
from tidelog.broker.coordinators.transactions.transaction_records import read_transactions, transaction_entry, transaction_key
from tidelog.broker.coordinators.transactions.verifications import ADD_RETRY_MS, ADD_TRIALS, Verifications
from tidelog.broker.core import Core
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.requests.slices import Until, awaited, in_turns, step_by_step
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.errors import StorageError, TidelogError
from tidelog.metadata.records import NO_LEADER
from tidelog.model import TRANSACTIONS_TOPIC, TopicPartition
from tidelog.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.records.state_batches import Entry
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode

logger = logging.getLogger("tidelog.broker")

_MAY_BE_COMMITTED_YET: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})

NOBODY: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def transactions_topic(config: BrokerConfig) -> InternalTopic:
    """Return the topic ``__transaction_state``, with the properties that a broker sets when it creates the topic."""
    return InternalTopic(
        TRANSACTIONS_TOPIC,
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": config.transaction_state_log_min_isr,
            "segment.bytes": config.transaction_state_log_segment_bytes,
        },
        commit_timeout_ms=COMMIT_TIMEOUT_MS if config.cluster is None else config.cluster.request_timeout_ms,
    )


class Transactions:
    """The transaction coordinator. `log` stores its state in ``__transaction_state``. Use only on the event loop's thread."""

    def __init__(self, core: Core, log: StateLog, markers: Markers, producer_ids: ProducerIdSource) -> None:
        self.log = log
        self._core = core
        self._markers = markers
        self._producer_ids = producer_ids
        self._known: dict[str, Transaction] = {}
        self._kept_in: dict[int, set[str]] = {}
        """Transactional ids by the partition that stores them."""
        self._deadlines: dict[str, int] = {}
        self._completions: dict[str, Completion] = {}
        self._strays: list[tuple[int, str]] = []
        self._verifications: Verifications | None = None
        self._retries = RetryLog(logger)
        """Limits the log lines about failures that clients cause repeatedly, because they retry."""

    def start(self) -> None:
        """Load the transactional ids from the data folder, and start the periodic checks for timeouts and expiry."""
        self.log.load(read_transactions, self._install, self._unload)
        config = self._core.config
        interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._core.delays.every(interval_ms, self.abort_timed_out, "timed out transactions")
        interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._core.delays.every(interval_ms, self.expire, "expired transactional ids")

    def _install(self, partition: int, loaded: dict[str, Transaction]) -> None:
        now_ms = self._core.clock.now_ms()
        for transactional_id, transaction in loaded.items():
            if self.log.partition_of(transactional_id) != partition:
                if not self.log.leads_all:
                    continue  # Another broker may coordinate the id's partition.
                self._strays.append((partition, transactional_id))
            known = self._known.get(transactional_id)
            if known is not None:
                if known.updated_ms >= transaction.updated_ms:
                    continue
                self._cancel(transactional_id)
            self._keep(transaction)
            if transaction.state is TransactionState.ONGOING:
                left_ms = min(max(transaction.started_ms + transaction.timeout_ms - now_ms, 0), transaction.timeout_ms)
                self._deadlines[transactional_id] = self._core.delays.now_ms() + left_ms
            elif transaction.state in PREPARED:
                self._complete(transaction)
        if self._strays and not self.log.is_loading:
            self._bring_home()

    def _keep(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        self._known[transactional_id] = transaction
        self._kept_in.setdefault(self.log.partition_of(transactional_id), set()).add(transactional_id)

    def _unload(self, partition: int) -> None:
        """Drop the transactional ids of a partition that is now coordinated by another broker."""
        for transactional_id in self._kept_in.pop(partition, ()):
            self._cancel(transactional_id)
            self._known.pop(transactional_id, None)

    def _bring_home(self) -> None:
        """Move ids to the partitions to which they map since partitions were added. The latest record of each id counts."""
        strays, self._strays = self._strays, []
        logger.warning("%s has more partitions than before: moving %d transactional ids", TRANSACTIONS_TOPIC, len(strays))
        for partition, transactional_id in strays:
            transaction = self._known.get(transactional_id)
            if transaction is None or self._store(transaction) is ErrorCode.NONE:
                self._append(partition, [(transaction_key(transactional_id), None)])

    def _cancel(self, transactional_id: str) -> None:
        self._deadlines.pop(transactional_id, None)
        completion = self._completions.pop(transactional_id, None)
        if completion is not None:
            completion.is_cancelled = True

    # --- asking

    def code_for(self, transactional_id: str) -> ErrorCode:
        """Return NONE if this broker is the id's coordinator and ready, otherwise the error code for its requests."""
        # After partitions were added, an id may be stored in a partition to which it no longer maps.
        if self.log.leads_all and self.log.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self.log.readiness(self.log.partition_of(transactional_id))

    def get(self, transactional_id: str) -> Transaction | None:
        return self._known.get(transactional_id)

    def all(self) -> Collection[Transaction]:
        return self._known.values()

    def verify(self, transactional_id: str, producer_id: int, producer_epoch: int, key: TopicPartition) -> ErrorCode:
        """Return NONE if a producer's open transaction contains a partition, otherwise the error code for its records (KIP-890).

        A missing partition gets TRANSACTION_ABORTABLE, which older clients get as INVALID_TXN_STATE.
        """
        if transactional_id and not self.log.is_there:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return as_told_to_logs(self.verification(transactional_id, producer_id, producer_epoch, key))

    def verified(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        keys: Collection[TopicPartition],
        *,
        is_adding: bool = False,
    ) -> Generator[Until, Any, dict[TopicPartition, ErrorCode]]:
        """Verify several partitions like `verify`; the coordinator may be another broker. Runs in slices.

        With `is_adding`, missing partitions are added. While the previous transaction is ending, the addition is retried, because
        producers do not wait until it has ended.
        """
        producer = transactional_id, producer_id, producer_epoch
        codes = yield from self._verified(producer, keys, is_adding)
        for _ in range(ADD_TRIALS if is_adding else 0):
            if ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values():
                break
            yield Until(self._later)
            codes = yield from self._verified(producer, keys, is_adding)
        return codes

    def _later(self, go_on: Callable[[object], None]) -> None:
        self._core.delays.call_at_last(ADD_RETRY_MS, partial(go_on, None), "the end of the transaction before")

    def _verified(
        self, producer: tuple[str, int, int], keys: Collection[TopicPartition], is_adding: bool
    ) -> Generator[Until, Any, dict[TopicPartition, ErrorCode]]:
        transactional_id, brokers = producer[0], self._core.peers
        if brokers is not None and transactional_id:
            leader = brokers.leader_of(self.log.key(self.log.partition_of(transactional_id)))
            if leader is None or leader == NO_LEADER:
                return dict.fromkeys(keys, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if leader != self._core.node_id:
                if self._verifications is None:
                    self._verifications = Verifications(brokers)
                codes = yield from awaited(self._verifications.ask(leader, *producer, keys, is_adding=is_adding))
                return {key: as_told_to_logs(code) for key, code in codes.items()}
        if not is_adding:
            return {key: self.verify(*producer, key) for key in keys}
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.log.is_there:
            code = self.add_partitions(*producer, keys, EPOCH_EACH)
        if code is ErrorCode.NONE:
            # Records may be appended only once the coordinator's record is committed.
            code = refusal_of((yield Until(partial(self.log.when_committed, self.log.partition_of(transactional_id)))))
        return dict.fromkeys(keys, as_told_to_logs(code))

    def verification(self, transactional_id: str, producer_id: int, producer_epoch: int, key: TopicPartition) -> ErrorCode:
        """Return the result of `verify` as a coordinator reports it to other brokers."""
        transaction = self._of_producer(transactional_id, producer_id, producer_epoch)
        if isinstance(transaction, ErrorCode):
            return transaction
        if transaction.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE if key in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE

    def _of_producer(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Transaction | ErrorCode:
        """Return the transaction of a transactional id if this producer is its latest one, otherwise an error code."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        code = self.code_for(transactional_id)
        if code is not ErrorCode.NONE:
            return code
        transaction = self._known.get(transactional_id)
        if transaction is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return transaction.refusal(producer_id, producer_epoch) or transaction

    # --- requests of producers

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> tuple[ErrorCode, ProducerIdAndEpoch]:
        """Fence other producers, and return (NONE, id and epoch) or (error, `NOBODY`). The producer claims to be `expected`."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, NOBODY
        if not 0 < timeout_ms <= self._core.config.transaction_max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT, NOBODY
        code = self.code_for(transactional_id)
        if code is not ErrorCode.NONE:
            return code, NOBODY
        new_id = self._producer_ids.next_id
        before = self._known.get(transactional_id)
        try:
            if before is None:
                before = Transaction(transactional_id, new_id(), NO_PRODUCER_EPOCH, timeout_ms)
            if not may_initialize(before, expected):
                return ErrorCode.PRODUCER_FENCED, NOBODY
            if before.state in PREPARED:
                return ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY
            if before.state is TransactionState.ONGOING:
                # The producer retries, and gets an epoch above that of the abort.
                return self._fence(before) or ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY
            after = initialized(before, timeout_ms, expected, self._core.clock.now_ms(), new_id)
        except StorageError as error:
            self._retries.error("could not assign a producer id to transactional id %r: %s", transactional_id, error)
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOBODY
        if isinstance(after, ErrorCode):
            return after, NOBODY
        code = self._store(after)
        if code is not ErrorCode.NONE:
            return code, NOBODY
        logger.info(
            "transactional id %r initialized: producer id %d, epoch %d", transactional_id, after.producer_id, after.producer_epoch
        )
        return code, ProducerIdAndEpoch(after.producer_id, after.producer_epoch)

    def add_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, keys: Collection[TopicPartition], version: int = 0
    ) -> ErrorCode:
        """Add partitions to the open transaction, or begin one with them. `version` is the producer's `transaction.version`."""
        transaction = self._of_producer(transactional_id, producer_id, producer_epoch)
        if isinstance(transaction, ErrorCode):
            return transaction
        if transaction.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if transaction.state is TransactionState.ONGOING and transaction.partitions.issuperset(keys):
            return ErrorCode.NONE
        return self._store(transaction.with_partitions(keys, self._core.clock.now_ms(), version))

    def end(self, transactional_id: str, producer_id: int, producer_epoch: int, *, is_commit: bool) -> ErrorCode:
        """Append the decision to commit or abort the open transaction. The outcome is fixed once that record is committed."""
        transaction = self._of_producer(transactional_id, producer_id, producer_epoch)
        if isinstance(transaction, ErrorCode):
            return transaction
        if transaction.state is TransactionState.ONGOING:
            return self._decide(transaction.prepared(is_commit=is_commit, now_ms=self._core.clock.now_ms()))
        if transaction.state is TransactionState.EMPTY or transaction.is_commit != is_commit:
            return ErrorCode.INVALID_TXN_STATE
        # A retry: the response was lost, or the markers are still being written.
        return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.state in PREPARED else ErrorCode.NONE

    def end_in_next_epoch(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, is_commit: bool
    ) -> tuple[ErrorCode, ProducerIdAndEpoch]:
        """Commit or abort the transaction in a new epoch (KIP-890). Return the producer id and epoch for the next transaction."""
        code = self.code_for(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        before = self._known.get(transactional_id)
        if code or before is None:
            return code or ErrorCode.INVALID_PRODUCER_ID_MAPPING, NOBODY
        now_ms, new_id = self._core.clock.now_ms(), self._producer_ids.next_id
        try:
            after = ended_in_next_epoch(before, producer, is_commit=is_commit, now_ms=now_ms, new_id=new_id)
        except StorageError as error:
            self._retries.error("could not assign a producer id to transactional id %r: %s", transactional_id, error)
            after = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if isinstance(after, ErrorCode):
            return after, NOBODY
        return ErrorCode.NONE if after is before else self._decide(after), after.goes_on_as

    def _fence(self, transaction: Transaction) -> ErrorCode:
        return self._decide(transaction.fenced(self._core.clock.now_ms()))

    # --- writing

    def _decide(self, prepared: Transaction) -> ErrorCode:
        code = self._store(prepared)
        if code is ErrorCode.NONE:
            partition = self.log.partition_of(prepared.transactional_id)
            self.log.when_committed(partition, partial(self._decided, prepared))
        return code

    def _decided(self, prepared: Transaction, code: ErrorCode) -> None:
        """Complete a decided transaction once the decision has been committed. `code` is the result of that wait.

        If the disk has failed, the transaction is completed when the partition is online again. If another broker now leads the
        partition, that broker completes the transaction. After a timeout, or if too few replicas are in sync, wait again.
        """
        if self._known.get(prepared.transactional_id) is not prepared:
            return
        if code is ErrorCode.NONE:
            self._complete(prepared)
        elif code in _MAY_BE_COMMITTED_YET:
            partition = self.log.partition_of(prepared.transactional_id)
            wait_on = partial(self.log.when_committed, partition, partial(self._decided, prepared))
            self._core.delays.call_at_last(RETRY_MS, wait_on, "transaction's decision")

    def _complete(self, prepared: Transaction) -> None:
        epoch = self.log.epoch_of(self.log.partition_of(prepared.transactional_id))
        completion = Completion(self._core, self._markers, prepared, epoch, self._completed)
        self._completions[prepared.transactional_id] = completion
        completion.go_on()

    def _completed(self, completion: Completion) -> bool:
        """Store that all markers of a transaction have been written. Return False if that must be retried."""
        transaction = completion.transaction
        code = self._store(transaction.completed(self._core.clock.now_ms()))
        if code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
            return False  # The log is offline, and may be online again later.
        self._completions.pop(transaction.transactional_id, None)
        return True

    def _store(self, transaction: Transaction) -> ErrorCode:
        """Write a transaction to the log, then change it in memory. Return NONE, or the error code for its producer."""
        transactional_id = transaction.transactional_id
        code = self._append(self.log.partition_of(transactional_id), [transaction_entry(transaction)])
        if code is ErrorCode.NONE:
            self._keep(transaction)
            if transaction.state is not TransactionState.ONGOING:
                self._deadlines.pop(transactional_id, None)
            elif transactional_id not in self._deadlines:
                self._deadlines[transactional_id] = self._core.delays.now_ms() + transaction.timeout_ms
        return code

    def _append(self, partition: int, entries: Iterable[Entry]) -> ErrorCode:
        try:
            self.log.append(partition, list(entries))
        except TidelogError as error:
            self._retries.error("%s-%d: cannot write the coordinator's records: %s", TRANSACTIONS_TOPIC, partition, error)
            return refusal(error)
        return ErrorCode.NONE

    def on_return(self, log: PartitionLog) -> None:
        """Handle a partition that is online again: load it if it has never been loaded, and complete its decided transactions."""
        self.log.on_return(log)
        if log.topic_partition.topic == TRANSACTIONS_TOPIC:
            kept = self._kept_in.get(log.topic_partition.partition, ())
            in_turns(self._core.blocking, list(kept), self._complete_if_left)

    def _complete_if_left(self, transactional_id: str) -> None:
        transaction = self._known.get(transactional_id)
        if transaction is not None and transaction.state in PREPARED and transactional_id not in self._completions:
            self._complete(transaction)

    # --- timeouts and expiry

    def abort_timed_out(self) -> None:
        """Abort transactions that are open longer than their timeouts, the first ones now, the rest in slices."""
        now_ms = self._core.delays.now_ms()
        late = [transactional_id for transactional_id, deadline_ms in self._deadlines.items() if deadline_ms < now_ms]
        in_turns(self._core.blocking, late, partial(self._abort_if_late, now_ms))

    def _abort_if_late(self, now_ms: int, transactional_id: str) -> None:
        if self._deadlines.get(transactional_id, now_ms) < now_ms:
            transaction = self._known[transactional_id]
            if self._fence(transaction) is ErrorCode.NONE:
                logger.info(
                    "transactional id %r: aborted a transaction open for over %d ms", transactional_id, transaction.timeout_ms
                )

    def expire(self) -> None:
        """Remove transactional ids that have expired. The first are removed now, the rest in slices."""
        oldest_ms = self._core.clock.now_ms() - self._core.config.transactional_id_expiration_ms
        expired: dict[int, list[str]] = {}
        for transactional_id, transaction in self._known.items():
            if transaction.is_expired(oldest_ms):
                expired.setdefault(self.log.partition_of(transactional_id), []).append(transactional_id)
        step_by_step(self._core.blocking, self._forget_expired(expired, oldest_ms))

    def _forget_expired(self, expired: dict[int, list[str]], oldest_ms: int) -> Iterator[None]:
        for partition, transactional_ids in expired.items():
            for some in chunks(transactional_ids, lambda one: len(transaction_key(one))):
                # In the meantime the id may have begun a transaction, or moved to another broker.
                gone = [one for one in some if one in self._known and self._known[one].is_expired(oldest_ms)]
                if gone and self._append(partition, [(transaction_key(one), None) for one in gone]) is ErrorCode.NONE:
                    for transactional_id in gone:
                        del self._known[transactional_id]
                        self._kept_in.get(partition, set()).discard(transactional_id)
                    logger.info("removed %d expired transactional ids", len(gone))
                yield None

    # --- the topic's end

    def topic_deleted(self, topic: str) -> Iterator[None]:
        """Forget all ids if ``__transaction_state`` itself was deleted."""
        yield from ()
        if topic != TRANSACTIONS_TOPIC:
            return
        self.log.forget()
        for transactional_id in list(self._known):
            self._cancel(transactional_id)
        self._known.clear()
        self._kept_in.clear()
        self._strays.clear()
