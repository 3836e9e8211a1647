"""The cut of a point: an offset for each partition. For each transaction, either its markers in all of its partitions are below
the cut, or none of them is.

The last stable offsets of all partitions are read before any log end. So if a transaction has ended below one partition's last
stable offset, all of its records have been read, but its markers in other partitions may not have been. Such a transaction is
left out: each partition that has the transaction's marker is cut at that marker. This is repeated until nothing changes.

A producer begins a transaction only after all markers of its previous transaction are written (KIP-98). So in each partition the
cut can split only the producer's last transaction.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tidelog.capture.partition_writer import Transaction

Key = TypeVar("Key", bound=Hashable)


class CutState(NamedTuple):
    """The facts about a partition that are needed to compute the cut."""

    stable_offset: int
    """The last stable offset: the smaller of the source's and that of the records read."""
    previous_stable: int
    """The last stable offset that the source reported for the previous point."""
    previous_end: int
    """The end of the records read for the previous point; larger than any offset if the partition failed at that point."""
    transactions: Sequence[Transaction]
    """The transactions that ended at or after the last consistent cut, and the open transactions."""


def consistent_cut(states: Mapping[Key, CutState]) -> dict[Key, int]:
    """Compute the cut, and return its offset in each partition."""
    cut = {key: state.stable_offset for key, state in states.items()}
    by_producer: dict[int, list[tuple[Key, Transaction]]] = {}
    for key, state in states.items():
        for one in state.transactions:
            by_producer.setdefault(one.producer_id, []).append((key, one))
    shared = [found for found in by_producer.values() if len({key for key, _ in found}) > 1]
    is_stable = False
    while not is_stable:
        is_stable = True
        for found in shared:
            unfinished = [(key, one) for key, one in found if not 0 <= one.marker_offset < cut[key]]
            last: dict[Key, Transaction] = {}
            for key, one in found:
                if 0 <= one.marker_offset < cut[key] and one.marker_offset >= last.get(key, one).marker_offset:
                    last[key] = one
            for key, one in last.items():
                if any(_may_be_one(states, (key, one), other) for other in unfinished if other[0] != key):
                    cut[key] = one.marker_offset
                    is_stable = False
    return cut


def _may_be_one(states: Mapping[Key, CutState], ended: tuple[Key, Transaction], unfinished: tuple[Key, Transaction]) -> bool:
    """Return whether a producer's transactions in two partitions may be the same one. If a marker was already stable at the
    previous point, all records of its transaction had been read by then.
    """
    was_decided = ended[1].marker_offset < states[ended[0]].previous_stable
    return not (was_decided and unfinished[1].first_offset >= states[unfinished[0]].previous_end)
