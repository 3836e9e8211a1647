"""`/api/segments`: the segments of a partition, placed on a time axis.

Segments that do not fit in `width` are joined with their neighbours. A segment whose times are
not found within the time limit is `pending`: its times are null, and the page asks again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.errors import CorruptDataError, InvalidArgumentError
from tidelog.model import NO_TIMESTAMP
from tidelog.reader.log_dir import LogDir
from tidelog.reader.segment import Segment
from tidelog.sources.source import Source
from tidelog.web.context import Answer, Context, known_ms, plain
from tidelog.web.jobs import Job
from tidelog.web.query import Query
from tidelog.web.time_maps import Bounds

MAX_WIDTH = 4000

LIMIT_S = 0.4

MAX_NOTES = 3


def files_of(source: Source) -> LogDir:
    """Return the source's folder. Raises InvalidArgumentError if its files cannot be read."""
    if source.log_dir is None:
        raise InvalidArgumentError("brokers give no access to segment files", path=source.address, expected="a data folder")
    return source.log_dir


class _Placed(NamedTuple):
    segment: Segment
    end_offset: int
    bounds: Bounds | None
    """None if the times are not known yet, or the segment is damaged."""
    is_late: bool
    error: str | None


def segments(context: Context, query: Query, job: Job) -> Answer:
    """Return the segments of a partition that may have records in the range, at most `width`."""
    key, width = query.key(), query.number("width", 1000, 1, MAX_WIDTH)
    start, end = query.range()
    with context.sources.named(query.text("source")).borrowed() as source, files_of(source).log(*key) as log:
        placed = _placed(context, log.segments, log.log_end_offset, job)
        total = len(log.segments)
    shown = [one for one in placed if _overlaps(one.bounds, start, end)]
    share = max(1, -(-len(shown) // width))
    joined = [_joined(shown[first : first + share]) for first in range(0, len(shown), share)]
    return {"segments": joined, "of": len(shown), "total": total, "pending": any(_is_pending(one) for one in shown)}


def _placed(context: Context, found: Sequence[Segment], log_end_offset: int, job: Job) -> list[_Placed]:
    until = time.monotonic() + LIMIT_S
    latest = NO_TIMESTAMP
    placed = []
    for segment in found:
        is_over = time.monotonic() > until or job.is_late()
        bounds, error = None, None
        if not is_over:
            try:
                bounds = context.maps.bounds_of(segment, job)
            except CorruptDataError as damage:
                error = str(damage)
        segment.close()  # A log may have more segments than a process may open files.
        is_late = bounds is not None and NO_TIMESTAMP < bounds.min_ms < latest
        if bounds is not None:
            latest = max(latest, bounds.max_ms)
        end = log_end_offset if segment.next_base_offset is None else segment.next_base_offset
        placed.append(_Placed(segment, end, bounds, is_late, error))
    return placed


def _is_pending(one: _Placed) -> bool:
    return one.bounds is None and one.error is None


def _overlaps(bounds: Bounds | None, start: int | None, end: int | None) -> bool:
    if bounds is None or bounds.max_ms == NO_TIMESTAMP:
        return True
    # Without a map, a record may be earlier than the first one.
    is_before_end = end is None or bounds.min_ms < end or not bounds.has_map
    return (start is None or bounds.max_ms >= start) and is_before_end


def _joined(group: Sequence[_Placed]) -> Answer:
    known = [one.bounds for one in group if one.bounds is not None and one.bounds.max_ms != NO_TIMESTAMP]
    first = group[0].bounds
    return {
        "base_offset": plain(group[0].segment.base_offset),
        "end_offset": plain(group[-1].end_offset),
        "bytes": plain(sum(one.segment.size_bytes for one in group)),
        "count": len(group),
        "min_ms": known_ms(min((one.min_ms for one in known), default=None)),
        "max_ms": known_ms(max((one.max_ms for one in known), default=None)),
        "first_ms": known_ms(None if first is None else first.first_ms),
        "has_map": all(one.bounds is not None and one.bounds.has_map for one in group),
        "late": any(one.is_late for one in group),
        "active": group[-1].segment.is_last,
        "pending": any(_is_pending(one) for one in group),
        "notes": [one.error for one in group if one.error is not None][:MAX_NOTES],
    }
