"""Both ends of a time range, pruned with a segment's time map.

A block of the map is read if its times and its offsets may be wanted. What is left out holds no wanted record: the map was made
from the very batches, which `log.time_map_file` makes sure of, and the batches at the ends of each run that is read are looked
at once more here.

Records without a timestamp are in no bounded range, and a scan counts those that it leaves out. In a block that is not read the
map has counted them; but where only a part of the block counts (an offset bound inside it, or aborted transactions that are
withheld), it is read after all. Only `plan` uses this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from tidelog.errors import CorruptIndexError
from tidelog.log.segment import Segment
from tidelog.log.time_map import TimeMap
from tidelog.log.time_map_file import FoundMap, TimeMaps, first_batch, last_batch
from tidelog.scanning.bounds import TimeRange
from tidelog.scanning.cut import Extent
from tidelog.scanning.report import ScanReport
from tidelog.scanning.split import AbortedRange


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a time map says is to be read of a segment; from `covered_bytes` on it says nothing."""

    extents: tuple[Extent, ...]
    covered_bytes: int
    known: ScanReport
    """Blocks, and the records without timestamp in those that are not read."""


def prune(
    segment: Segment,
    maps: TimeMaps,
    time: TimeRange,
    start_offset: int,
    end_offset: int,
    aborted: tuple[AbortedRange, ...],
) -> Pruned | None:
    """Return what of a segment must be read for a bounded range; None without a time map that agrees with it.

    Raises CorruptBatchError, SegmentChangedError: what looking at the segment met.
    """
    found = maps.find(segment)
    if found is None:
        return None
    time_map, path = found
    blocks = time_map.blocks_between(start_offset, end_offset)
    read = set(time_map.blocks_in_time(blocks, time.start_ms, time.end_ms))
    without_timestamp = 0
    for block in blocks:
        if time_map.without_timestamp[block] and block not in read:
            if _is_whole(time_map, block, start_offset, end_offset, aborted):
                without_timestamp += time_map.without_timestamp[block]
            else:
                read.add(block)
    try:
        extents = tuple(_extents(segment, found, sorted(read)))
    except CorruptIndexError as error:
        segment.notices.tell(path, f"{error.message} (found {error.found}), the log is read instead")
        return None
    known = ScanReport(without_timestamp=without_timestamp, blocks_read=len(read), blocks_skipped=time_map.blocks - len(read))
    return Pruned(extents, time_map.covered_bytes, known)


def _is_whole(time_map: TimeMap, block: int, start_offset: int, end_offset: int, aborted: tuple[AbortedRange, ...]) -> bool:
    """Whether all of a block's records count, or may be left out and counted."""
    first, end = time_map.first_offsets[block], time_map.end_offset(block)
    if first < start_offset or end > end_offset:
        return False
    return not any(txn.first_offset < end and txn.last_offset >= first for txn in aborted)


def _extents(segment: Segment, found: FoundMap, blocks: list[int]) -> Iterator[Extent]:
    """Yield the runs of neighbouring blocks. Raises CorruptIndexError where the log has other batches at their ends."""
    time_map, path = found
    for _, run in groupby(enumerate(blocks), key=lambda pair: pair[1] - pair[0]):
        numbers = [block for _, block in run]
        first = first_batch(time_map, numbers[0], segment.file, path)
        yield Extent(first, last_batch(time_map, numbers[-1], segment.file, path))
