"""The largest timestamp before a position, from the segment's time map instead of a walk, if the map is bound to the log.

A map contains the largest timestamp of each block's records, but not of control batches. So it is used only if the blocks before
the position's block contain as many records as offsets, and so no control batches. Within that block the headers are read.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from tidelog.errors import CorruptIndexError, StorageError
from tidelog.formats.time_map import TimeMap
from tidelog.model import NO_TIMESTAMP
from tidelog.reader.time_map_file import check_agrees, is_bound, read_time_map, time_map_path

if TYPE_CHECKING:
    from tidelog.reader.segment import Segment


def bound_time_map(segment: Segment) -> TimeMap | None:
    """Return the map beside a segment's log, None if there is none that is bound to the log."""
    try:
        path = time_map_path(segment.log_path)
        found = read_time_map(path)
        if found is None or not is_bound(found, segment.file):
            return None
        check_agrees(found, segment.file, segment.base_offset, segment.end_position, path)
        return found
    except (CorruptIndexError, StorageError):
        return None  # The headers give the same answer.


def largest_by_map(segment: Segment, time_map: TimeMap, position: int) -> int | None:
    """Return the largest timestamp (ms, -1 none) before the batch at `position`; None if the map cannot answer.

    Raises CorruptBatchError if no batch begins there, SegmentChangedError.
    """
    block = bisect_right(time_map.positions, position) - 1
    offsets = time_map.first_offsets[block] - time_map.first_offsets[0]
    if position > time_map.covered_bytes or sum(time_map.records[:block]) != offsets:
        return None
    mapped = max(time_map.max_timestamps[:block], default=NO_TIMESTAMP)
    return max(mapped, NO_TIMESTAMP, *segment.times(time_map.positions[block], position))
