"""A per-thread LRU cache, limited in bytes, of frequently used indexes of segments that are not being written.

A look-up in an index file opens the file, reads a dozen entries, and closes the file, which suits ten thousand segments that are
used once. An index that is used for the third time is loaded into memory. Each thread has its own cache, because an index belongs
to one thread.
"""

from __future__ import annotations

import threading
from typing import TypeVar

from tidelog.formats.index_entries import IndexEntries

MAX_BYTES = 16 * 1024 * 1024
TAKEN_AT = 3
"""The look-up at which an index is loaded into memory."""

_Entries = TypeVar("_Entries", bound=IndexEntries)


class _Kept(threading.local):
    """The indexes of one thread, the least recently used first, and their total bytes."""

    def __init__(self) -> None:
        self.indexes: dict[IndexEntries, int] = {}
        self.total_bytes = 0


_kept = _Kept()


def in_memory(at_rest: _Entries) -> _Entries:
    """Return an index in memory with the same entries as `at_rest`, which reads a file. An index that is used too rarely, or
    is too large, is returned as it is.

    Raises what reading the file raises.
    """
    kept = _kept
    twin: _Entries | None = at_rest.twin
    if twin is not None:
        size = kept.indexes.pop(at_rest, 0)
        if size:
            kept.indexes[at_rest] = size
        return twin
    if at_rest.path is None:
        return at_rest  # The index is in memory, and may change.
    at_rest.look_ups += 1
    if at_rest.look_ups < TAKEN_AT or at_rest.size_bytes > MAX_BYTES // 8:
        return at_rest
    twin = type(at_rest).from_bytes(at_rest.base_offset, at_rest.to_bytes())
    at_rest.close()
    at_rest.twin = twin
    size = kept.indexes[at_rest] = 2 * twin.size_bytes + 1024
    kept.total_bytes += size
    while kept.total_bytes > MAX_BYTES:
        oldest = next(iter(kept.indexes))
        kept.total_bytes -= kept.indexes.pop(oldest)
        oldest.twin = None
        oldest.look_ups = 0
    return twin
