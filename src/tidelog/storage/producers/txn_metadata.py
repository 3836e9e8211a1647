"""Transactions by their first offset: the open ones, and the ended ones with a marker that is not replicated yet (spec §9.7).

A log has few of these transactions at a time. Each append needs the first one, so the offsets are kept in order.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.storage.partition.offset_metadata import LogOffsetMetadata


class TxnMetadata(NamedTuple):
    """A transaction of `producer_id`; `last_offset` is its marker's, -1 while it is open."""

    producer_id: int
    first_offset: LogOffsetMetadata
    last_offset: int = -1


class TxnsByFirstOffset:
    """Transactions in the order of their first offsets."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self.offsets: Sequence[int] = self._offsets
        """The first offsets of the transactions, in order."""
        self._txns: dict[int, TxnMetadata] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[TxnMetadata]:
        """Yield the transactions in order of their first offsets."""
        return (self._txns[offset] for offset in self._offsets)

    @property
    def first(self) -> TxnMetadata | None:
        """The transaction with the lowest first offset; None if there are no transactions."""
        return self._txns[self._offsets[0]] if self._offsets else None

    def put(self, txn: TxnMetadata) -> None:
        """Add a transaction, replacing one with the same first offset."""
        offset = txn.first_offset.message_offset
        if offset not in self._txns:
            bisect.insort(self._offsets, offset)
        self._txns[offset] = txn

    def pop(self, first_offset: int) -> TxnMetadata | None:
        """Remove and return the transaction that begins at `first_offset`; None if there is none."""
        txn = self._txns.pop(first_offset, None)
        if txn is not None:
            del self._offsets[bisect.bisect_left(self._offsets, first_offset)]
        return txn

    def remove_ended_below(self, offset: int) -> None:
        """Drop the transactions whose marker is below `offset`."""
        for first_offset in [first for first, txn in self._txns.items() if 0 <= txn.last_offset < offset]:
            self.pop(first_offset)

    def clear(self) -> None:
        """Remove all transactions."""
        self._offsets.clear()
        self._txns.clear()
