"""From which offset to which the replicas of a partition are the same, if nothing is wrong.

**The end** is the smallest high watermark of the folders' checkpoints: above it a record need not be on every replica. A
checkpoint may be older than the truth, and is a lower bound then. A folder without a high watermark (a copy of some partitions)
counts with the end of its log; where no folder has one, the last records that are compared need not have been replicated.

**The start** is the largest log start: retention may have deleted more on one side. Of a compacted partition only what lies above
the largest offset up to which a cleaner has worked needs to be the same byte for byte: each replica is cleaned by itself, at
times of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.formats.leader_epochs import EpochEntry


class Bounds(NamedTuple):
    """One folder's facts of a partition."""

    directory: Path
    log_start_offset: int
    cleaned_to: int
    high_watermark: int | None
    log_end_offset: int | None
    """None: not known, because the end of the log is damaged or a high watermark is there."""


class ComparedRange(NamedTuple):
    """Offsets `[start, end)`, and which folder each bound is from."""

    start: int
    end: int
    start_of: Path
    end_of: Path
    cleaned_to: int
    """Below it replicas may hold other records of a key than the latest."""
    has_high_watermark: bool

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end


def compared_range(replicas: Sequence[Bounds]) -> ComparedRange | None:
    """Return what is compared of the replicas of a partition; None if no end is known."""
    has_high_watermark = any(one.high_watermark is not None for one in replicas)
    known = [(one.log_end_offset if one.high_watermark is None else one.high_watermark, one.directory) for one in replicas]
    ends = [(end, directory) for end, directory in known if end is not None]
    if not ends:
        return None
    end, end_of = min(ends, key=lambda one: one[0])
    start, start_of = max(((one.log_start_offset, one.directory) for one in replicas), key=lambda one: one[0])
    cleaned_to = max(one.cleaned_to for one in replicas)
    return ComparedRange(start, end, start_of, end_of, cleaned_to, has_high_watermark)


def epochs_within(entries: Iterable[EpochEntry], start: int, end: int) -> list[EpochEntry]:
    """Return the leader epochs of `[start, end)`. The one that `start` lies in begins there: retention moves it along."""
    if start >= end:
        return []
    below = [entry for entry in entries if entry.start_offset < end]
    covering = [entry for entry in below if entry.start_offset <= start][-1:]
    inside = [entry for entry in below if entry.start_offset > start]
    return [EpochEntry(entry.epoch, start) for entry in covering] + inside
