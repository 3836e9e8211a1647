"""The memory that answers take which clients do not read, over all connections: a budget.

| | |
|---|---|
| counted | answers that the system has not taken, and what fetches have read and not answered with yet; not mapped files |
| while less than `MAX_BYTES` are used | nothing happens |
| once they are used up | fetches are cut short: each answer still has its first batch |
| more than half, at each sweep | connections that took nothing for `STALLED_S` are closed, the largest first, down to half |
| all used up, and more is added | the same within `LOOK_S`; where it is twice as much, those that took nothing for `URGENT_S` |

So clients that do not read leave the others half of it, after 10 to 20 s; answers that are not cut short (Metadata,
configurations) go beyond twice of it for a second or two.
"""

from __future__ import annotations

from collections.abc import Iterable
from mmap import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.wire.codec import Bytes

MAX_BYTES = 128 << 20

STALLED_S = 10.0
URGENT_S = 1.0
LOOK_S = 1.0


class UnsentBytes:
    """Answers in memory that clients have not read, counted against one budget. Belongs to the loop's thread."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0

    @property
    def room_bytes(self) -> int:
        """How much is left."""
        return max(0, self.max_bytes - self.used_bytes)

    def add(self, size: int) -> None:
        """Count bytes that are in memory from now on; fewer than none that are not any more."""
        self.used_bytes += size


def bytes_in_memory(chunks: Iterable[Bytes]) -> int:
    """Return how many bytes of chunks are in memory: those of mapped files are the page cache's."""
    return sum(len(one) for one in chunks if not (isinstance(one, memoryview) and isinstance(one.obj, mmap)))
