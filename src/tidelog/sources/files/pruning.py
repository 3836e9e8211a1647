"""Prunes both ends of a time range with a segment's time map.

A block of the map is read if its times and offsets may match. Skipped blocks have no matching record, provided that the map
was made from the same batches. For a map that is bound to its log (`reader.time_map_file`), the file's modification times
prove this. Any other map, such as that of a copied folder or of a segment that has grown, is compared with the log in the part
that a scan without a map would read. The comparison costs about as much as copying these bytes in memory, and decodes no
record.

This module also checks the batches at both ends of each run.

Records without a timestamp are outside every bounded range, and a scan counts how many it leaves out. For skipped blocks, the map
has the count. A block with such records is read after all if an offset bound or an aborted transaction excludes part of the
block. Only `folder_plan` uses this.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from tidelog.errors import CorruptIndexError
from tidelog.formats.file_stamp import UNKNOWN
from tidelog.formats.time_map import TimeMap
from tidelog.reader.segment import Segment
from tidelog.reader.time_map_file import FoundMap, TimeMaps, check_blocks, first_batch, last_batch, note_unused
from tidelog.sources.bounds import TimeRange
from tidelog.sources.files.cut import Extent
from tidelog.sources.files.runs import AbortedRange
from tidelog.sources.scan_report import ScanReport


@dataclass(frozen=True, slots=True)
class Pruned:
    """The parts of a segment to read, according to its time map, which covers its first `covered_bytes`."""

    extents: tuple[Extent, ...]
    covered_bytes: int
    known: ScanReport
    """Block counts, and the records without a timestamp in skipped blocks."""
    is_of_copy: bool = False
    """Whether the map was made from a different file than this log, and therefore was compared with the log."""


def prune(
    segment: Segment,
    maps: TimeMaps,
    time: TimeRange,
    start_offset: int,
    end_offset: int,
    aborted: tuple[AbortedRange, ...],
    extents_without_map: Callable[[], tuple[Extent, ...]],
) -> Pruned | None:
    """Return the parts of a segment to read for a bounded range. Return None if the segment has no valid time map, or if a
    map that had to be compared with the log would rule out nothing.

    Raises CorruptBatchError, SegmentChangedError from reading the segment.
    """
    for found in maps.find(segment):
        try:
            if found.is_bound:
                wanted = found.time_map.blocks_between(start_offset, end_offset)
                return _prune(segment, found, wanted, (), time, start_offset, end_offset, aborted)
            return _prune_unbound(segment, found, time, start_offset, end_offset, aborted, extents_without_map())
        except CorruptIndexError as error:
            note_unused(segment, found.path, error)
    return None


def _prune_unbound(
    segment: Segment,
    found: FoundMap,
    time: TimeRange,
    start_offset: int,
    end_offset: int,
    aborted: tuple[AbortedRange, ...],
    extents: tuple[Extent, ...],
) -> Pruned | None:
    """Compare a map with the log, in the part that a scan without the map would read, then prune as `prune` does. Return None if
    the map would rule out nothing.

    Raises CorruptIndexError if the map differs from the log.
    """
    if not extents:
        return None
    time_map, path, _ = found
    position = extents[0].start_position
    blocks = time_map.blocks_between(start_offset, end_offset)
    blocks = range(max(blocks.start, bisect_left(time_map.positions, position)), blocks.stop)
    if len(time_map.blocks_in_time(blocks, time.start_ms, time.end_ms)) == len(blocks):
        return None
    check_blocks(time_map, blocks, segment.file, path, position=position)
    head: tuple[Extent, ...] = ()
    if position < time_map.positions[blocks.start]:
        *_, last = segment.headers(position, time_map.positions[blocks.start])
        head = (Extent(extents[0].first, last),)
    pruned = _prune(segment, found, blocks, head, time, start_offset, end_offset, aborted)
    return replace(pruned, is_of_copy=time_map.stamp.inode not in (UNKNOWN.inode, segment.file.stamp().inode))


def _prune(
    segment: Segment,
    found: FoundMap,
    blocks: range,
    head: tuple[Extent, ...],
    time: TimeRange,
    start_offset: int,
    end_offset: int,
    aborted: tuple[AbortedRange, ...],
) -> Pruned:
    """Select the blocks to read among `blocks`, which agree with the log. `head` is read before these blocks. Raises
    CorruptIndexError.
    """
    time_map = found.time_map
    read = set(time_map.blocks_in_time(blocks, time.start_ms, time.end_ms))
    without_timestamp = 0
    for block in blocks:
        if time_map.without_timestamp[block] and block not in read:
            if _is_whole(time_map, block, start_offset, end_offset, aborted):
                without_timestamp += time_map.without_timestamp[block]
            else:
                read.add(block)
    extents = (*head, *_extents(segment, found, sorted(read)))
    known = ScanReport(without_timestamp=without_timestamp, blocks_read=len(read), blocks_skipped=time_map.blocks - len(read))
    return Pruned(extents, time_map.covered_bytes, known)


def _is_whole(time_map: TimeMap, block: int, start_offset: int, end_offset: int, aborted: tuple[AbortedRange, ...]) -> bool:
    """Whether a block is entirely within the offset bounds and has no records of aborted transactions."""
    first, end = time_map.first_offsets[block], time_map.end_offset(block)
    if first < start_offset or end > end_offset:
        return False
    return not any(txn.first_offset < end and txn.last_offset >= first for txn in aborted)


def _extents(segment: Segment, found: FoundMap, blocks: list[int]) -> Iterator[Extent]:
    """Yield the runs of adjacent blocks. Raises CorruptIndexError if a run's first or last batch differs from the map."""
    time_map, path, _ = found
    for _, run in groupby(enumerate(blocks), key=lambda pair: pair[1] - pair[0]):
        numbers = [block for _, block in run]
        first = first_batch(time_map, numbers[0], segment.file, path)
        yield Extent(first, last_batch(time_map, numbers[-1], segment.file, path))
