"""Finds the largest timestamp before a position from the segment's time map instead of by a walk, if the map is bound to the log.

A map contains the largest timestamp of each block's records, but leaves out control batches. So a map is used only if the blocks
before the position's block contain as many records as offsets, which means no control batches. Within the position's block, the
headers are read.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from tidelog.errors import CorruptIndexError, StorageError
from tidelog.formats.time_map import TimeMap
from tidelog.model import NO_TIMESTAMP
from tidelog.reader.time_map_file import check_agrees, is_bound, read_time_map, time_map_path
from tidelog.records.batch import HEADER_BYTES

if TYPE_CHECKING:
    from tidelog.reader.segment import Segment

_WALKED_BYTES = 128 * 1024


def bound_time_map(segment: Segment) -> TimeMap | None:
    """Return the time map beside a segment's log, or None if there is no map that is bound to the log. Looks for the map only
    once.
    """
    if not segment.head.is_map_known:
        segment.head.time_map, segment.head.is_map_known = _bound_time_map(segment), True
    return segment.head.time_map


def _bound_time_map(segment: Segment) -> TimeMap | None:
    try:
        path = time_map_path(segment.log_path)
        found = read_time_map(path)
        if found is None or not is_bound(found, segment.file):
            return None
        check_agrees(found, segment.file, segment.base_offset, segment.end_position, path)
        return found
    except (CorruptIndexError, StorageError):
        return None  # Without a map, the headers give the same answer.


def largest_by_map(segment: Segment, time_map: TimeMap, position: int) -> int | None:
    """Return the largest timestamp (ms; -1 for none) before the batch at `position`; None if the map cannot answer.

    Raises CorruptBatchError if no batch begins there, SegmentChangedError.
    """
    block = bisect_right(time_map.positions, position) - 1
    if position > time_map.covered_bytes or not _has_every_record(time_map, block):
        return None
    mapped = max(time_map.max_timestamps[:block], default=NO_TIMESTAMP)
    return max(mapped, NO_TIMESTAMP, *segment.times(time_map.positions[block], position))


def start_by_map(segment: Segment, time_map: TimeMap, timestamp: int) -> int | None:
    """Return the position of the first block with a record at or after `timestamp` (ms). If no block has such a record, return
    the end of the part that the map covers. Return None if the map cannot answer. Prefetches the block.
    """
    reaching = (block for block, largest in enumerate(time_map.max_timestamps) if largest >= timestamp)
    block = next(reaching, time_map.blocks)
    if not _has_every_record(time_map, block):
        return None
    if block == time_map.blocks:
        return time_map.covered_bytes
    start = time_map.positions[block]
    # Include the header after the block, which confirms the offset of the block's last batch. A walk reads on in growing steps.
    end = max(time_map.end_position(block) + HEADER_BYTES, start + _WALKED_BYTES)
    segment.file.will_read([(start, min(end, segment.size_bytes))])
    return start


def _has_every_record(time_map: TimeMap, block: int) -> bool:
    """Return whether the blocks before `block` have as many records as offsets, and therefore no control batches."""
    end = time_map.next_offset if block == time_map.blocks else time_map.first_offsets[block]
    return sum(time_map.records[:block]) == end - time_map.first_offsets[0]
