"""Maps each key of a compaction pass to its latest offset (spec §15; Kafka's SkimpyOffsetMap).

The map stores a hash of 128 bits instead of the key: 24 bytes per key of any length. The default of 128 MiB therefore holds five
million keys (a dict would take 200 bytes per key). The memory is allocated at the first use and freed by `clear`. A pass with
more keys than `max_entries` ends where the map is full, and the next pass continues from there.

The table itself is `records.kernel.OffsetTable`. The cleaner has a single map, which it uses for one log at a time.
"""

from __future__ import annotations

from tidelog.errors import IndexFullError, InvalidArgumentError
from tidelog.records.compaction import new_table
from tidelog.records.compression import Bytes
from tidelog.records.kernel import SLOT_BYTES, OffsetTable

DEFAULT_DEDUPE_BUFFER_BYTES = 128 * 1024 * 1024
DEFAULT_LOAD_FACTOR = 0.9


class SkimpyOffsetMap:
    """A map for as many keys as fit in `memory_bytes`. `load_factor` is the share of the slots that a pass may fill."""

    def __init__(self, memory_bytes: int = DEFAULT_DEDUPE_BUFFER_BYTES, *, load_factor: float = DEFAULT_LOAD_FACTOR) -> None:
        self.memory_bytes = memory_bytes
        self.slots = memory_bytes // SLOT_BYTES
        """The most keys that the map may hold."""
        self.max_entries = int(self.slots * load_factor)
        if self.max_entries < 1:
            raise InvalidArgumentError(
                "log.cleaner.dedupe.buffer.size is too small for one key: compaction could never progress",
                found=f"{memory_bytes} bytes, load factor {load_factor}",
            )
        self._table: OffsetTable | None = None

    @property
    def table(self) -> OffsetTable:
        """The table, which is allocated at its first use."""
        if self._table is None:
            self._table = new_table(self.slots)
        return self._table

    @property
    def size(self) -> int:
        """The number of keys."""
        return 0 if self._table is None else self._table.size

    @property
    def utilization(self) -> float:
        """The share of slots in use."""
        return self.size / self.slots

    @property
    def latest_offset(self) -> int:
        """The last offset that the map covers, -1 if it covers none. `put` advances it."""
        return -1 if self._table is None else self._table.latest_offset

    @latest_offset.setter
    def latest_offset(self, offset: int) -> None:
        self.table.latest_offset = offset

    def begin(self, most_keys: int) -> int:
        """Empty the map and size it for `most_keys` keys. Return how many keys fit.

        A small table stays in the processor's cache.
        """
        self._table = new_table(min(self.slots, 2 * max(most_keys, 8)))
        return min(self.max_entries, self._table.slots * 3 // 4) if self._table.slots < self.slots else self.max_entries

    def put(self, key: Bytes, offset: int) -> None:
        """Store a key's latest offset. Raises IndexFullError if every slot is in use."""
        if self.size >= self.table.slots:
            raise IndexFullError(
                "the offset map of the compaction is full", found=f"{self.size} of {self.table.slots} slots in use"
            )
        self.table.put(key, offset)

    def get(self, key: Bytes) -> int:
        """Return a key's latest offset, -1 if the map does not have the key."""
        return -1 if self._table is None else self._table.get(key)

    def clear(self) -> None:
        """Empty the map and free its memory."""
        self._table = None
