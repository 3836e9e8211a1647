"""A budget for the memory of unread responses, over all connections.

Bytes that sockets have not taken and bytes that pending fetches have read are counted, except those of mapped files.

| at least this much is used | what happens |
|---|---|
| half of the budget | at each sweep, connections that read nothing for `STALLED_S` are closed, largest first, down to half |
| the budget (`MAX_BYTES`) | the same is done when bytes are added, at most once per `LOOK_S` |
| | fetches are limited: each response still has its first batch |
| twice the budget | the same is done after `URGENT_S` instead of `STALLED_S` without a read |

So after 10 to 20 s, clients that do not read leave half of the budget to the others. Responses that cannot be limited (Metadata,
DescribeConfigs) may take more than twice the budget for a second or two.
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
    """The responses that clients have not read yet, counted against one budget. Use it only on the loop's thread."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0

    @property
    def room_bytes(self) -> int:
        """The number of bytes that are left in the budget."""
        return max(0, self.max_bytes - self.used_bytes)

    def add(self, size: int) -> None:
        """Add a number of bytes in memory; a negative number removes them."""
        self.used_bytes += size


def bytes_in_memory(chunks: Iterable[Bytes]) -> int:
    """Return the number of the chunks' bytes that are in memory. Mapped files do not count: they are in the page cache."""
    return sum(len(one) for one in chunks if not (isinstance(one, memoryview) and isinstance(one.obj, mmap)))
