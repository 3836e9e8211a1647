"""The state of a producer whose transaction is being verified with its coordinator, which prevents hanging transactions
(KIP-890).

The partition's leader asks the coordinator before the first append of a transaction, and creates a guard, which the append must
present. If a transaction marker arrives in between, it removes the guard, and the append is refused. The first batch to be
written must have the lowest sequence seen during the verification.
"""

from __future__ import annotations


class VerificationStateEntry:
    """One producer's open verification, since `timestamp` (ms). `guard` is an object that is equal only to itself.

    If `has_epoch_each` is True, the producer gets a new epoch for each transaction. The previous transaction's marker then has
    this transaction's epoch, and does not remove the guard.
    """

    __slots__ = ("epoch", "guard", "has_epoch_each", "lowest_sequence", "timestamp")

    def __init__(self, timestamp: int, sequence: int, epoch: int, *, has_epoch_each: bool = False) -> None:
        self.has_epoch_each = has_epoch_each
        self.timestamp = timestamp
        self.guard = object()
        self.lowest_sequence = sequence
        self.epoch = epoch

    def note(self, sequence: int, epoch: int) -> None:
        """Store the sequence if it is lower than the stored one, or if its epoch is higher."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence
