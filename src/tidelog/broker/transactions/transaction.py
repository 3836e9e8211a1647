"""A transactional id's transaction, and what may become of it. Pure: nothing is written here, nothing of a transaction changes.

State changes: `TRANSITIONS`. A transaction begins with its first partition. PREPARE is the decision: from then on it
ends that way, whatever happens to the broker, and it is COMPLETE when each of its partitions has the marker.

Fencing: of all producers that ever had a transactional id, only the last one may continue. InitProducerId raises the epoch, and
a producer with an older one is refused. If the id has an open transaction, that is aborted first, with an epoch that no producer
gets; the producer retries. One that says which epoch it has (KIP-360) gets the next one only if no other producer came in
between; if the response was lost and it retries, it gets the same one.

Epochs end at 32767, which is kept for fencing: a producer id that has reached the one before is left for a new id.

Producers of `transaction.version` 2 have an epoch for each transaction (KIP-890): its markers are of the next epoch, in which
the producer continues. So nothing that is late in one transaction can become part of another. Such a producer asks for the end
again in the epoch that it had (`is_ended_in`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tidelog.model import TopicPartition
from tidelog.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.transitions import Transitions, checked
from tidelog.wire.error_codes import ErrorCode

NO_TIME: Final = -1
LAST_GIVEN_EPOCH: Final = 2**15 - 2
"""The highest epoch that a producer gets."""
EPOCH_EACH: Final = 2
"""The `transaction.version` from which on each transaction has an epoch of its own."""


class TransactionState(enum.IntEnum):
    """The state of a transactional id; numbers as in the records, `text` is Kafka's name."""

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
    TransactionState.COMPLETE_COMMIT: {
        TransactionState.EMPTY: "InitProducerId",
        TransactionState.PREPARE_ABORT: _NOTHING_WRITTEN,
        TransactionState.ONGOING: "the next transaction's first partition, or group, is added",
        None: _EXPIRES,
    },
    TransactionState.COMPLETE_ABORT: {
        TransactionState.EMPTY: "InitProducerId",
        TransactionState.PREPARE_ABORT: _NOTHING_WRITTEN,
        TransactionState.ONGOING: "the next transaction's first partition, or group, is added",
        None: _EXPIRES,
    },
}
"""DEAD and PREPARE_EPOCH_FENCE are Kafka's words for moments; nothing here is ever in them, and neither is stored."""

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""Decided, and not ended everywhere yet."""
ENDED: Final = PREPARED | {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
AT_REST: Final = frozenset(state for state, moves in TRANSITIONS.items() if state is not None and None in moves)
"""There is no transaction: the next one may begin, or the id may expire."""


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
    """The id that the present one came after; not kept over the broker's end."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch that the producer had before it asked for the present one; not kept either."""
    client_version: int = 0
    """The `transaction.version` that its producer goes by."""
    next_producer_id: int = NO_PRODUCER_ID
    """The id that its producer gets with the end, where the present one has no more epochs."""

    @property
    def goes_on_as(self) -> ProducerIdAndEpoch:
        """The producer's identity after its end."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_commit(self) -> bool:
        """Whether it ends, or ended, with COMMIT."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    def to(self, state: TransactionState | None) -> TransactionState:
        """Return `state` as its next one. Raises IllegalStateError: see `TRANSITIONS`."""
        return checked(TRANSITIONS, self.state, state, f"transactional id {self.transactional_id!r}")  # type: ignore[return-value]

    def refusal(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        """Return NONE if a producer is the one that has the id."""
        if producer_id != self.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer_epoch != self.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    def is_expired(self, oldest_ms: int) -> bool:
        """Whether there was no transaction since then, and none is open."""
        return self.state in AT_REST and self.updated_ms <= oldest_ms

    def is_ended_in(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer asks again for the end of what is ended, or about to be, in that epoch."""
        if self.client_version < EPOCH_EACH:
            return False
        if producer_id == self.producer_id and self.state in ENDED:
            return producer_epoch == self.producer_epoch - 1 == self.last_producer_epoch
        return producer_id == self.last_producer_id and producer_epoch == self.last_producer_epoch and self.producer_epoch == 0

    def with_partitions(self, partitions: Iterable[TopicPartition], now_ms: int, client_version: int = 0) -> Transaction:
        """Return it with more partitions; a new transaction if there was none."""
        is_open = self.state is TransactionState.ONGOING
        return self._replace(
            state=self.to(TransactionState.ONGOING),
            partitions=self.partitions.union(partitions),
            started_ms=self.started_ms if is_open else now_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def prepared(self, *, is_commit: bool, now_ms: int) -> Transaction:
        """Return it decided."""
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        return self._replace(state=self.to(state), updated_ms=now_ms, client_version=0)

    def prepared_in_next_epoch(self, *, is_commit: bool, now_ms: int, new_id: Callable[[], int]) -> Transaction:
        """Return it decided, in the epoch after the present one. Raises what `new_id` raises, if there is none."""
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
        """Return it aborted in an epoch that no producer has."""
        return self._replace(
            state=self.to(TransactionState.PREPARE_ABORT),
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=NO_PRODUCER_EPOCH,
            updated_ms=now_ms,
            client_version=0,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Return it ended: its markers are written."""
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
    """Return what EndTxn 5 makes of a transaction, `before` itself if it is ended so already, or why it is refused.

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
        return ErrorCode.CONCURRENT_TRANSACTIONS  # That is the one before; the producer's own has not begun.
    if is_commit and before.state is not TransactionState.ONGOING:
        return ErrorCode.INVALID_TXN_STATE
    return before.prepared_in_next_epoch(is_commit=is_commit, now_ms=now_ms, new_id=new_id)


def initialized(
    before: Transaction, timeout_ms: int, expected: ProducerIdAndEpoch | None, now_ms: int, new_id: Callable[[], int]
) -> Transaction | ErrorCode:
    """Return what InitProducerId makes of an id that is at rest, or why it does not; `expected` is what the producer says it has.

    Of an id that is new `before` has no epoch. Raises what `new_id` raises.
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
        # Its answer was lost. Had another producer been there, there would be no last epoch.
        return _initialized(before, timeout_ms, before.producer_id, epoch, before.last_producer_epoch, now_ms)
    return ErrorCode.PRODUCER_FENCED


def may_initialize(before: Transaction, expected: ProducerIdAndEpoch | None) -> bool:
    """Say whether a producer that says what it has may be the id's last one, by its producer id."""
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
    """Return the code that a log gets where a transaction's verification is refused."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
