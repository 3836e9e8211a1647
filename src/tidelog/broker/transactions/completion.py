"""A transaction that is decided, on its way to its end: the markers in all of its partitions.

| a partition | |
|---|---|
| takes the marker | is done |
| is gone, or of a message format without transactions | is done: there is nothing to be ended |
| knows a newer epoch of the producer's | is done: somebody ended it there (`WriteTxnMarkers` by hand) |
| refuses for any other reason | is tried again for as long as the broker runs, and after its next start |

Many partitions have their turn in slices, and other requests between them. Until the last one is done the id answers
CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.broker.transactions.markers import write_marker
from tidelog.broker.transactions.transaction import Transaction
from tidelog.model import TopicPartition
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.node import Node

logger = logging.getLogger("tidelog.broker")

AT_ONCE: Final = 200
"""So many markers are written before others have their turn: some 20 ms."""
RETRY_MS: Final = 500

_DONE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.INVALID_PRODUCER_EPOCH}
)
"""What a partition says that is not to be asked again."""


class Completion:
    """Writes the markers of one decided transaction. `done` is called with it once nothing is left; it may be called again, and
    says whether it succeeded.
    """

    def __init__(self, node: Node, transaction: Transaction, done: Callable[[Completion], bool]) -> None:
        self.transaction = transaction
        self.is_cancelled = False
        self._node = node
        self._done = done
        self._left = sorted(transaction.partitions, reverse=True)
        self._refused: dict[TopicPartition, ErrorCode] = {}
        self._flushing = 0
        self._producer = Producer(transaction.producer_id, transaction.producer_epoch)
        self._type = ControlType.COMMIT if transaction.is_commit else ControlType.ABORT

    def go_on(self) -> None:
        """Write markers, until all are written, or as many as may be at once."""
        if self.is_cancelled:
            return
        for _ in range(min(AT_ONCE, len(self._left))):
            key = self._left.pop()
            code = write_marker(self._node, key, self._producer, self._type)
            if code is ErrorCode.NONE or code in _DONE:
                self._refused.pop(key, None)
            if code is not ErrorCode.NONE:
                self._note_refusal(key, code)
            else:
                self._await_flush(key)
        if self._left:
            self._node.blocking.run(_nothing, lambda _: self.go_on())
        elif self._flushing:
            return
        elif self._refused or not self._done(self):
            self._left = sorted(self._refused, reverse=True)
            self._node.delays.call_at_last(RETRY_MS, self.go_on, "transaction markers")

    def _await_flush(self, key: TopicPartition) -> None:
        """Where a log is flushed after each append the transaction is complete after that."""
        log = self._node.manager.logs.get(key)
        if log is not None and log.is_flush_awaited:
            self._flushing += 1
            log.when_flushed(partial(self._flushed, key))

    def _flushed(self, key: TopicPartition, has_failed: bool) -> None:
        self._flushing -= 1
        if has_failed:
            self._note_refusal(key, ErrorCode.KAFKA_STORAGE_ERROR)
        if not self._flushing and not self._left:
            self.go_on()

    def _note_refusal(self, key: TopicPartition, code: ErrorCode) -> None:
        is_done = code in _DONE
        if is_done or self._refused.get(key) is not code:
            text = "transactional id %r: no %s marker in %s-%d: %s%s"
            trial = "" if is_done else ", it is tried again"
            logger.warning(text, self.transaction.transactional_id, self._type.name, *key, code.name, trial)
        if not is_done:
            self._refused[key] = code


def _nothing() -> None:
    """What is waited for where others are only to have their turn."""
