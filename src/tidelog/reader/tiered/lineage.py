"""Determines which remote segments belong to a log, and which part of each is read (KIP-405, with KIP-101's leader epochs).

A record is identified by its offset and leader epoch. So a segment belongs to the log up to the offset at which its leader epochs
differ from the log's. The log's epochs are in the checkpoint in the local folder. A former leader may have copied records that
were later truncated, and leaders roll segments at different offsets.

| segment's epochs (epoch: start) | log's epochs | agree up to |
|---|---|---|
| 0: 0, end 99 | 0: 0 | 99: all of it |
| 0: 0, end 99 | 0: 0, 1: 100 | 99 |
| 0: 0, end 99 | 0: 0, 1: 80 | 79: the rest was truncated |
| 0: 0, 2: 50, end 99 | 0: 0, 1: 50 | 49 |
| 1: 0, end 99 | 0: 0, 2: 50 | nothing |
| 0: 0, 1: 40, end 99 | 1: 60 (records below were deleted) | 99; the log start hides the records below 60 |
| 3: 0, end 99 | none known | 99 |

Kafka's RemoteLogManager.isRemoteSegmentWithinLeaderEpochs is true for a segment only if all of its records agree, but Kafka reads
other segments too, up to the offset where they differ. Segments may overlap. If several segments contain an offset, the segment
that ends last is read from its first offset, and the segment before it is cut at that offset. So each offset is read once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.reader.tiered.remote_segments import RemoteSegment


class ChosenSegment(NamedTuple):
    """A remote segment that is read up to `next_offset`."""

    segment: RemoteSegment
    next_offset: int

    @property
    def is_cut(self) -> bool:
        """Whether the segment has records at or after `next_offset`."""
        return self.next_offset <= self.segment.end_offset


def agreed_end(segment: RemoteSegment, epochs: LeaderEpochs) -> int:
    """Return the offset up to which a segment's records belong to the log, exclusive: `end_offset + 1` if all belong,
    `start_offset` if none does.
    """
    end = segment.end_offset + 1
    known = epochs.entries
    if not known:
        return end
    first = max(segment.start_offset, known[0].start_offset)
    if first >= end:
        return segment.start_offset  # The whole segment is below the log start.
    own = LeaderEpochs(segment.epochs)
    bounds = sorted({first, *(entry.start_offset for entry in (*known, *own.entries) if first < entry.start_offset < end)})
    for offset in bounds:
        if own.epoch_for_offset(offset) != epochs.epoch_for_offset(offset):
            return segment.start_offset if offset == first else offset
    return end


def chosen_segments(
    segments: Iterable[RemoteSegment], epochs: LeaderEpochs, local_start: int | None, log_start: int = 0
) -> list[ChosenSegment]:
    """Return the remote segments to read, in order and without overlaps. Nothing at or after `local_start` is included, and no
    segment wholly below `log_start`. A gap between segments remains a gap.
    """
    usable = []
    for segment in segments:
        end = agreed_end(segment, epochs)
        end = end if local_start is None else min(end, local_start)
        if end > max(segment.start_offset, log_start):
            usable.append(ChosenSegment(segment, end))
    usable.sort(key=lambda one: one.segment.start_offset)
    found: list[ChosenSegment] = []
    position, index = log_start, 0
    while index < len(usable):
        best: ChosenSegment | None = None
        while index < len(usable) and usable[index].segment.start_offset <= position:
            if best is None or usable[index].next_offset >= best.next_offset:
                best = usable[index]
            index += 1
        if best is None or best.next_offset <= position:
            if index < len(usable):
                position = max(position, usable[index].segment.start_offset)
            continue
        if found and found[-1].next_offset > best.segment.start_offset:
            found[-1] = found[-1]._replace(next_offset=best.segment.start_offset)
        found.append(best)
        position = best.next_offset
    return found


def newest_of(segments: Iterable[RemoteSegment]) -> RemoteSegment | None:
    """Return the segment with the longest history of leader epochs: a segment with the highest last epoch, and of several the one
    that ends last.
    """
    return max(segments, key=lambda one: (one.epochs[-1].epoch if one.epochs else -1, one.end_offset), default=None)
