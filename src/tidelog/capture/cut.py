"""The cut of a point: for each partition an offset, below which each transaction is decided in all its partitions, or in none.

The source was asked for the stable offset of every partition, and only then for the ends up to which it was read. So a
transaction that is decided below a stable offset anywhere has all of its records in what was read; but its marker may
be missing elsewhere. Such a transaction is left out: the offset of each partition that has its marker moves back to that marker,
until nothing changes.

A producer begins no transaction before the last one's markers are everywhere (KIP-98), so only its last transaction below the cut
in each partition can be split.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tidelog.capture.partition_writer import Transaction

Key = TypeVar("Key", bound=Hashable)


class CutState(NamedTuple):
    """What the cut needs of a partition."""

    stable_offset: int
    """The source's, and that of what was read, whichever is smaller."""
    previous_stable: int
    """What the source said for the point before."""
    previous_end: int
    """The end of what was read for the point before; larger than any offset if it could not be asked then."""
    transactions: Sequence[Transaction]
    """Those that ended at or after the last consistent cut, and the open ones."""


def consistent_cut(states: Mapping[Key, CutState]) -> dict[Key, int]:
    """Return the offset of each partition."""
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
    """Return whether two partitions' transactions of one producer may be the same. A marker that was stable for the point before
    belongs to a transaction whose records had all been read then.
    """
    was_decided = ended[1].marker_offset < states[ended[0]].previous_stable
    return not (was_decided and unfinished[1].first_offset >= states[unfinished[0]].previous_end)
