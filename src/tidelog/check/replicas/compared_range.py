"""Determines the range of offsets in which sound replicas of a partition are equal.

**The end** is the smallest high watermark in the folders' checkpoints: records above it need not be on every replica. A
checkpoint may be outdated; it is then a lower bound. For a folder without a high watermark (a copy of some partitions) the end of
its log is used. If no folder has a high watermark, the last compared records may not have been replicated.

**The start** is the largest log start: retention may have deleted more on one side. Each replica of a compacted partition is
cleaned independently, so only records above the largest cleaner offset need to be equal byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.formats.leader_epochs import EpochEntry
from tidelog.formats.paths.file_path import FilePath


class Bounds(NamedTuple):
    """A partition's offsets in one folder."""

    directory: FilePath
    log_start_offset: int
    cleaned_to: int
    high_watermark: int | None
    log_end_offset: int | None
    """The log end offset. None if the end of the log is damaged, or if the high watermark makes it unnecessary."""


class ComparedRange(NamedTuple):
    """Offsets `[start, end)`, and the folder that determines each bound."""

    start: int
    end: int
    start_of: FilePath
    end_of: FilePath
    cleaned_to: int
    """Below this offset replicas may contain different records, except for the latest record of each key."""
    has_high_watermark: bool

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end


def compared_range(replicas: Sequence[Bounds]) -> ComparedRange | None:
    """Return the range in which a partition's replicas are compared; None if no end is known."""
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
    """Return the leader epochs in `[start, end)`. The epoch that contains `start` begins at `start` in the result, because
    retention also moves an epoch's start.
    """
    if start >= end:
        return []
    below = [entry for entry in entries if entry.start_offset < end]
    covering = [entry for entry in below if entry.start_offset <= start][-1:]
    inside = [entry for entry in below if entry.start_offset > start]
    return [EpochEntry(entry.epoch, start) for entry in covering] + inside
