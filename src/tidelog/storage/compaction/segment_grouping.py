"""Chooses the adjacent segments that compaction merges into one (spec §15).

Compaction shrinks segments; without grouping, a log would end up with many tiny segments. A group as a whole must stay within the
limits of a single segment:

    sum of the .log files         ≤ segment.bytes
    sum of the .index files       ≤ segment.index.bytes, and likewise the .timeindex files
    last offset - group's base    ≤ 2^31 - 1, judged by the next segment's base offset; an empty segment always fits
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.config import INT32_MAX
from tidelog.storage.segment.log_segment import LogSegment


def group_segments_by_size(
    segments: Sequence[LogSegment], max_size_bytes: int, max_index_bytes: int, first_uncleanable_offset: int
) -> list[list[LogSegment]]:
    """Return `segments` (ascending) in groups of at least one segment. All segments must end below `first_uncleanable_offset`."""
    groups: list[list[LogSegment]] = []
    size = index_size = time_index_size = 0
    for i, segment in enumerate(segments):
        size += segment.size_bytes
        index_size += segment.offset_index.size_bytes
        time_index_size += segment.time_index.size_bytes
        end_offset = segments[i + 1].base_offset if i + 1 < len(segments) else first_uncleanable_offset
        if (
            groups
            and size <= max_size_bytes
            and index_size <= max_index_bytes
            and time_index_size <= max_index_bytes
            and (segment.size_bytes == 0 or end_offset - 1 - groups[-1][0].base_offset <= INT32_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, index_size, time_index_size = (
                segment.size_bytes,
                segment.offset_index.size_bytes,
                segment.time_index.size_bytes,
            )
    return groups
