"""Summaries of the batches that `LogSegment.append` writes, so that it can handle thousands of small batches at a time."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.records import kernel
from tidelog.records.compression import Bytes


class AppendSpan(NamedTuple):
    """Consecutive batches. `max_timestamp` is their largest timestamp (ms), and `last_offset` the last offset of the first batch
    with that timestamp.
    """

    size: int
    last_offset: int
    max_timestamp: int


def append_spans(data: Bytes, since: int, interval: int) -> tuple[list[AppendSpan], int]:
    """Return the spans of `data`, which are whole batches, and their last offset.

    A batch that gets an index entry is a span by itself: it begins more than `interval` bytes after the last such batch, which
    began `since` bytes before `data`. Raises ValueError if `data` does not consist of whole batches.
    """
    found, last_offset = kernel.append_spans(data, since, interval)
    return list(map(AppendSpan, found[::3], found[1::3], found[2::3])), last_offset
