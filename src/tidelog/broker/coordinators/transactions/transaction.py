"""The state of a transactional id, and its possible changes. Objects are immutable, and nothing is written to a log here.

`TRANSITIONS` lists the state changes. A transaction begins when its first partition is added. PREPARE is the decision: after it
the outcome is fixed, even if the broker fails. COMPLETE means that the marker is in each partition.

Fencing: only the latest producer of a transactional id may continue. InitProducerId raises the epoch, and producers with an older
epoch are refused. If the id has an open transaction, the transaction is aborted first, with an epoch that no producer gets, and
the producer retries. A producer that sends its epoch (KIP-360) gets the next epoch only if no other producer has initialized in
between. A retry after a lost response gets the same epoch again.

The last epoch, 32767, is reserved for fencing: after 32766 a new producer id is assigned.

With `transaction.version` 2 each transaction has its own epoch (KIP-890): its markers have the next epoch, with which the
producer continues. So late records of one transaction cannot become part of the next. If such a producer retries EndTxn, it
sends the epoch of the ended transaction (`is_ended_in`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.model import TopicPartition
from tidelog.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.transitions import Transitions, checked
from tidelog.wire.error_codes import ErrorCode

NO_TIME: Final = -1
LAST_GIVEN_EPOCH: Final = 2**15 - 2
"""The highest epoch that a producer gets."""
EPOCH_EACH: Final = 2
"""The first `transaction.version` in which each transaction has its own epoch."""


class TransactionState(enum.IntEnum):
    """The state of a transactional id. The numbers are those in Kafka's records; `text` is Kafka's name."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


STATES_BY_TEXT: Final = {state.text: state for state in TransactionState}

_EXPIRES: Final = "it was unused for transactional.id.expiration.ms"

_NOTHING_WRITTEN: Final = "EndTxn 5: the aborted transaction has no partition known to the coordinator"

_FROM_COMPLETE: Final[Mapping[TransactionState | None, str]] = {
    TransactionState.EMPTY: "InitProducerId",
    TransactionState.PREPARE_ABORT: _NOTHING_WRITTEN,
    TransactionState.ONGOING: "the next transaction's first partition, or group, is added",
    None: _EXPIRES,
}

TRANSITIONS: Final[Transitions[TransactionState | None]] = {
    None: {
        TransactionState.EMPTY: "InitProducerId of a new id; it is loaded",
        TransactionState.ONGOING: "it is loaded",
        TransactionState.PREPARE_COMMIT: "it is loaded",
        TransactionState.PREPARE_ABORT: "it is loaded",
        TransactionState.COMPLETE_COMMIT: "it is loaded",
        TransactionState.COMPLETE_ABORT: "it is loaded",
    },
    TransactionState.EMPTY: {
        TransactionState.EMPTY: "InitProducerId",
        TransactionState.ONGOING: "its first partition, or group, is added",
        TransactionState.PREPARE_ABORT: _NOTHING_WRITTEN,
        None: _EXPIRES,
    },
    TransactionState.ONGOING: {
        TransactionState.ONGOING: "further partitions or groups are added",
        TransactionState.PREPARE_COMMIT: "EndTxn commits it",
        TransactionState.PREPARE_ABORT: "EndTxn aborts it; it times out; InitProducerId fences its producer",
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT: "each of its partitions has the marker"},
    TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT: "each of its partitions has the marker"},
    TransactionState.COMPLETE_COMMIT: _FROM_COMPLETE,
    TransactionState.COMPLETE_ABORT: _FROM_COMPLETE,
}
"""The allowed changes of state. DEAD and PREPARE_EPOCH_FENCE are momentary states in Kafka; they are never used or stored here.
"""

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""The states in which the outcome is decided, but some partitions may lack the marker."""
ENDED: Final = PREPARED | {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
AT_REST: Final = frozenset(state for state, moves in TRANSITIONS.items() if state is not None and None in moves)
"""The states without an open transaction: the next one may begin, or the id may expire."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer's identity."""

    producer_id: int
    epoch: int


class Transaction(NamedTuple):
    """The state of one transactional id. Times in epoch ms."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    last_producer_id: int = NO_PRODUCER_ID
    """The previous producer id. It is not stored, so it is lost at a restart."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The previous producer epoch. It is not stored either."""
    client_version: int = 0
    """The `transaction.version` that its producer uses."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id with which the producer continues after the transaction, if the present id has no epochs left."""

    @property
    def goes_on_as(self) -> ProducerIdAndEpoch:
        """The producer id and epoch with which the producer continues after the transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_commit(self) -> bool:
        """Whether the decision is COMMIT."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    def to(self, state: TransactionState | None) -> TransactionState:
        """Return `state`. Raises IllegalStateError if `TRANSITIONS` does not allow the change to it."""
        return checked(TRANSITIONS, self.state, state, f"transactional id {self.transactional_id!r}")  # type: ignore[return-value]

    def refusal(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        """Return NONE if this producer is the latest one of the transactional id, otherwise the error code."""
        if producer_id != self.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer_epoch != self.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    def is_expired(self, oldest_ms: int) -> bool:
        """Whether no transaction is open, and the last change was at or before the given time."""
        return self.state in AT_REST and self.updated_ms <= oldest_ms

    def is_ended_in(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether EndTxn from a producer with this epoch is a retry for a transaction that has already been decided."""
        if self.client_version < EPOCH_EACH:
            return False
        if producer_id == self.producer_id and self.state in ENDED:
            return producer_epoch == self.producer_epoch - 1 == self.last_producer_epoch
        return producer_id == self.last_producer_id and producer_epoch == self.last_producer_epoch and self.producer_epoch == 0

    def with_partitions(self, partitions: Iterable[TopicPartition], now_ms: int, client_version: int = 0) -> Transaction:
        """Return a copy with added partitions. If no transaction was open, one begins."""
        is_open = self.state is TransactionState.ONGOING
        return self._replace(
            state=self.to(TransactionState.ONGOING),
            partitions=self.partitions.union(partitions),
            started_ms=self.started_ms if is_open else now_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def prepared(self, *, is_commit: bool, now_ms: int) -> Transaction:
        """Return a copy in the decided state (PREPARE)."""
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        return self._replace(state=self.to(state), updated_ms=now_ms, client_version=0)

    def prepared_in_next_epoch(self, *, is_commit: bool, now_ms: int, new_id: Callable[[], int]) -> Transaction:
        """Return a copy in the decided state (PREPARE), with the next epoch. If no epoch is left, get a producer id from
        `new_id`. Raises what `new_id` raises.
        """
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        return self._replace(
            state=self.to(state),
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            started_ms=self.started_ms if self.state is TransactionState.ONGOING else now_ms,
            updated_ms=now_ms,
            client_version=EPOCH_EACH,
            next_producer_id=new_id() if self.producer_epoch >= LAST_GIVEN_EPOCH else NO_PRODUCER_ID,
        )

    def fenced(self, now_ms: int) -> Transaction:
        """Return a copy that is being aborted, with an epoch that no producer gets."""
        return self._replace(
            state=self.to(TransactionState.PREPARE_ABORT),
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=NO_PRODUCER_EPOCH,
            updated_ms=now_ms,
            client_version=0,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Return a copy in the COMPLETE state. Call this once all markers have been written."""
        state = TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT
        ended = self._replace(state=self.to(state), partitions=frozenset(), updated_ms=now_ms)
        if self.next_producer_id == NO_PRODUCER_ID:
            return ended
        producer_id, epoch = self.goes_on_as
        return ended._replace(
            producer_id=producer_id, producer_epoch=epoch, last_producer_id=self.producer_id, next_producer_id=NO_PRODUCER_ID
        )


def ended_in_next_epoch(
    before: Transaction, producer: ProducerIdAndEpoch, *, is_commit: bool, now_ms: int, new_id: Callable[[], int]
) -> Transaction | ErrorCode:
    """Return the state after EndTxn version 5, or an error code. Return `before` itself if the request is a retry.

    Raises what `new_id` raises.
    """
    if before.is_ended_in(*producer):
        if before.is_commit != is_commit:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.CONCURRENT_TRANSACTIONS if before.state in PREPARED else before
    code = before.refusal(*producer)
    if code is not ErrorCode.NONE:
        return code
    if before.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS  # The previous transaction has ended; the next has not begun.
    if is_commit and before.state is not TransactionState.ONGOING:
        return ErrorCode.INVALID_TXN_STATE
    return before.prepared_in_next_epoch(is_commit=is_commit, now_ms=now_ms, new_id=new_id)


def initialized(
    before: Transaction, timeout_ms: int, expected: ProducerIdAndEpoch | None, now_ms: int, new_id: Callable[[], int]
) -> Transaction | ErrorCode:
    """Return the state after InitProducerId for a transactional id without an open transaction, or an error code.

    `expected` is the producer id and epoch that the producer claims to have. `before` has no epoch if the transactional id is
    new. Raises what `new_id` raises.
    """
    epoch = before.producer_epoch
    if not may_initialize(before, expected):
        return ErrorCode.PRODUCER_FENCED
    if expected is None:
        if epoch >= LAST_GIVEN_EPOCH:
            return _initialized(before, timeout_ms, new_id(), 0, NO_PRODUCER_EPOCH, now_ms)
        return _initialized(before, timeout_ms, before.producer_id, epoch + 1, NO_PRODUCER_EPOCH, now_ms)
    if epoch in (NO_PRODUCER_EPOCH, expected.epoch):
        if epoch >= LAST_GIVEN_EPOCH:
            return _initialized(before, timeout_ms, new_id(), 0, epoch, now_ms)
        return _initialized(before, timeout_ms, before.producer_id, epoch + 1, epoch, now_ms)
    if expected.epoch == before.last_producer_epoch:
        # This is a retry after a lost response. If another producer had initialized since, no last epoch would be known.
        return _initialized(before, timeout_ms, before.producer_id, epoch, before.last_producer_epoch, now_ms)
    return ErrorCode.PRODUCER_FENCED


def may_initialize(before: Transaction, expected: ProducerIdAndEpoch | None) -> bool:
    """Return whether a producer may initialize the transactional id: it names no producer id, the current producer id of the
    transactional id, or the previous producer id whose epochs have run out.
    """
    if expected is None or before.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_id == before.producer_id:
        return True
    return expected.producer_id == before.last_producer_id and expected.epoch >= LAST_GIVEN_EPOCH


def _initialized(before: Transaction, timeout_ms: int, producer_id: int, epoch: int, last_epoch: int, now_ms: int) -> Transaction:
    return Transaction(
        before.transactional_id,
        producer_id,
        epoch,
        timeout_ms,
        before.to(TransactionState.EMPTY),
        updated_ms=now_ms,
        last_producer_id=before.producer_id,
        last_producer_epoch=last_epoch,
    )


def as_told_to_logs(code: ErrorCode) -> ErrorCode:
    """Return the error code with which an append is refused if the verification of its transaction fails with `code`."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
