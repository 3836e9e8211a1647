"""What `LogSegment.append` needs to know about the batches that it writes, for thousands of small batches at a time."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.records import kernel
from tidelog.records.compression import Bytes


class AppendSpan(NamedTuple):
    """Consecutive batches. `last_offset` is that of the first batch with `max_timestamp` (ms)."""

    size: int
    last_offset: int
    max_timestamp: int


def append_spans(data: Bytes, since: int, interval: int) -> tuple[list[AppendSpan], int]:
    """Return the spans of whole batches, `data`, and the last offset.

    A batch that gets an index entry is a span of its own: it begins more than `interval` bytes after the last such batch, which
    began `since` bytes before `data`. Raises ValueError if `data` does not consist of whole batches.
    """
    found, last_offset = kernel.append_spans(data, since, interval)
    return list(map(AppendSpan, found[::3], found[1::3], found[2::3])), last_offset
