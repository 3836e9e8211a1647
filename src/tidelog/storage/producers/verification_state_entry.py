"""What keeps a transaction from hanging: a producer whose transaction is being verified with its coordinator (KIP-890).

Between the question and the append a guard stands for the transaction: an append must hold it, and a marker that
comes in between takes it away. The lowest sequence that was seen meanwhile must be written first.
"""

from __future__ import annotations


class VerificationStateEntry:
    """One producer's open verification, since `timestamp` (ms). `guard` is an object that equals itself only.

    Of a producer that `has_epoch_each` the marker of the transaction before is of this one's epoch: it takes no guard away.
    """

    __slots__ = ("epoch", "guard", "has_epoch_each", "lowest_sequence", "timestamp")

    def __init__(self, timestamp: int, sequence: int, epoch: int, *, has_epoch_each: bool = False) -> None:
        self.has_epoch_each = has_epoch_each
        self.timestamp = timestamp
        self.guard = object()
        self.lowest_sequence = sequence
        self.epoch = epoch

    def note(self, sequence: int, epoch: int) -> None:
        """Take a lower sequence of the same epoch, or that of a higher epoch."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence
