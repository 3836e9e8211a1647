"""The facts that ``segments.summary`` has about a segment: computed from the batches, and compared with a summary.

The time map has all of these facts but one. The largest timestamp, which includes control batches, is read from the batch
headers.
"""

from __future__ import annotations

from tidelog.check.finding import Finding
from tidelog.errors import CorruptDataError
from tidelog.formats import names
from tidelog.formats.summary.segment_summary import SegmentFacts
from tidelog.formats.time_map import TimeMap
from tidelog.formats.time_map_builder import TimeMapBuilder, add_batches
from tidelog.model import NO_TIMESTAMP
from tidelog.reader.segment import Segment
from tidelog.records.kernel import MAX_INT64


def facts_of(segment: Segment, time_map: TimeMap | None) -> SegmentFacts | None:
    """Return the facts about a segment, from its batches and the time map built from them; None if the map does not cover the
    whole log. Raises CorruptBatchError, SegmentChangedError.
    """
    base, size = segment.base_offset, segment.size_bytes
    if not size:
        return SegmentFacts(base, 0, base, base, NO_TIMESTAMP, base, MAX_INT64, 0, -1, 0, -1)
    if time_map is None or time_map.covered_bytes != size:
        return None
    largest, largest_offset, magic = NO_TIMESTAMP, base, -1
    for header in segment.headers():
        magic = header.magic
        if header.max_timestamp > largest:
            largest, largest_offset = header.max_timestamp, header.last_offset
    return SegmentFacts(
        base,
        size,
        time_map.first_offsets[0],
        time_map.next_offset,
        largest,
        largest_offset,
        min(time_map.min_timestamps),
        sum(time_map.without_timestamp),
        time_map.last_batch_position,
        time_map.last_batch_crc,
        magic,
    )


def check_facts(segment: Segment, told: SegmentFacts) -> list[Finding]:
    """Compare the facts in a summary (`told`) with the log. Raises StorageError, SegmentChangedError."""
    path = segment.log_path.with_name(names.SEGMENT_SUMMARY)
    if told.size_bytes != segment.size_bytes:
        return [
            Finding(
                path,
                f"does not apply to {segment.log_path.name}, which has a different size: the segment itself is read",
                kind="note",
            )
        ]
    try:
        builder = TimeMapBuilder(segment.base_offset)
        add_batches(builder, segment.file, segment.size_bytes)
        true = facts_of(segment, builder.build())
    except CorruptDataError as error:
        return [Finding(path, f"{segment.log_path.name} cannot be summarized: {error.message}", kind="note")]
    wrong = [] if true is None else [name for name in told._fields if getattr(told, name) != getattr(true, name)]
    what = f"{segment.log_path.name}: {{}}"
    return [Finding(path, what.format(name), found=str(getattr(told, name)), expected=str(getattr(true, name))) for name in wrong]
