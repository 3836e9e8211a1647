"""How late the batches of a segment's head are: read from their headers, each once, as far as a budget allows.

A time index entry claims that nothing before its batch is as late as it says. No checksum covers that, and no look at the one
batch can show it; the headers of all batches before it can. A log has one budget for all of its segments: so a log of up to
`MAX_BYTES` is never searched on the word of an index alone, and a search in a large one costs a few milliseconds more, not a
walk through all of it.

What was walked stays known: for each batch's position, the largest timestamp before it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from tidelog.errors import CorruptBatchError
from tidelog.formats.batch_walk import Readable, iter_times
from tidelog.model import NO_TIMESTAMP

MAX_BYTES = 64 * 1024 * 1024
MAX_BATCHES = 16 * 1024


class WalkBudget:
    """How much of a log may still be walked to prove what its time indexes claim."""

    def __init__(self, max_bytes: int | None = None, max_batches: int | None = None) -> None:
        self.bytes = MAX_BYTES if max_bytes is None else max_bytes
        self.batches = MAX_BATCHES if max_batches is None else max_batches


class ProvenHead:
    """The batches of one segment from its start on, as far as they were walked."""

    def __init__(self, file: Readable, base_offset: int, budget: WalkBudget) -> None:
        self.budget = budget
        self._file = file
        self._next_offset = base_offset
        self._positions = array("q", [0])
        """Where batches begin; the last one is where the walk goes on."""
        self._largest = array("q", [NO_TIMESTAMP])
        """The largest timestamp before each of these."""

    def largest_before(self, position: int) -> int | None:
        """Return the largest timestamp (ms, -1 none) before the batch at `position`; None if that is too far to walk.

        Raises CorruptBatchError where no batch begins there, or one before it cannot be; SegmentChangedError.
        """
        positions = self._positions
        if position > positions[-1] and not self._walk(position):
            return None
        slot = bisect_left(positions, position)
        if positions[slot] != position:
            raise CorruptBatchError("no batch begins here", path=self._file.path, position=position)
        return self._largest[slot]

    def first_reaching(self, timestamp: int) -> int | None:
        """Return where the first of the walked batches begins that has this timestamp (ms) or a later one, None without one."""
        slot = bisect_left(self._largest, timestamp, 1)
        return self._positions[slot - 1] if slot < len(self._largest) else None

    def _walk(self, position: int) -> bool:
        """Walk up to `position`; False if the budget ends before."""
        budget, positions, largest = self.budget, self._positions, self._largest
        if position - positions[-1] > budget.bytes:
            return False
        latest = largest[-1]
        for end, next_offset, timestamp in iter_times(self._file, positions[-1], position, self._next_offset):
            if not budget.batches:
                return False
            budget.batches -= 1
            budget.bytes -= end - positions[-1]
            latest = max(latest, timestamp)
            positions.append(end)
            largest.append(latest)
            self._next_offset = next_offset
        return True
