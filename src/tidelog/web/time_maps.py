"""A cache of the segments' time maps, until the files change. Only maps that agree with the log are returned.

A map that is not bound to its log (in a copy of a folder) is compared with the log once, which requires reading the headers of
all batches. `Bounds` are a segment's smallest and largest times; without a map they come from its first and last batches and its
time index.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import CorruptIndexError
from tidelog.formats.time_map import TimeMap
from tidelog.formats.time_map_builder import TimeMapBuilder, add_batches
from tidelog.model import NO_TIMESTAMP
from tidelog.reader.segment import Segment
from tidelog.reader.segment_time import largest_timestamp
from tidelog.reader.time_map_file import TimeMaps, check_blocks, note_unused, time_map_path
from tidelog.records.batch import BatchHeader
from tidelog.web.jobs import Job

if TYPE_CHECKING:
    import pyarrow as pa

KEPT_BLOCKS = 300_000
"""The most blocks of maps that are cached, at some 70 bytes each."""

KEPT_MAPS = 50_000

KEPT_BOUNDS = 50_000

BUILT_BYTES = 8 << 20
"""If a segment has at most this many bytes that no map covers, a map of them is built in memory."""

CHECKED_BLOCKS = 512
"""How many blocks are compared with the log between two checks of the job's time."""


class Mapped:
    """A segment's map, and the main span of each block: the widest span without a hole, which has most of the records."""

    __slots__ = ("highs", "lows", "time_map")

    def __init__(self, time_map: TimeMap) -> None:
        self.time_map = time_map
        self.lows = time_map.min_timestamps[:]
        self.highs = time_map.max_timestamps[:]
        before, behind, ends = time_map.before_holes, time_map.behind_holes, time_map.hole_ends
        first = 0
        for block, end in enumerate(ends):
            if end > first:
                starts = (self.lows[block], *behind[first:end])
                stops = (*before[first:end], self.highs[block])
                self.lows[block], self.highs[block] = max(zip(starts, stops, strict=True), key=_width)
                first = end

    def starts(self, ranges: Iterable[tuple[int, int]]) -> pa.Array:
        """Return the first timestamp of each span in ranges of blocks (ends exclusive). Each is the timestamp of a record."""
        from tidelog.web.arrow_numbers import int64s

        known, found = self.time_map, array("q")
        for first, end in ranges:
            found += known.min_timestamps[first:end]
            found += known.behind_holes[known.hole_ends[first - 1] if first else 0 : known.hole_ends[end - 1]]
        return int64s(found)

    def spans(self, block: int) -> int:
        """Return the number of spans of a block."""
        ends = self.time_map.hole_ends
        return 1 + ends[block] - (ends[block - 1] if block else 0)


def _width(span: tuple[int, int]) -> int:
    return span[1] - span[0]


class Bounds(NamedTuple):
    """The times of a segment's records (ms, -1 for none)."""

    min_ms: int
    """The smallest timestamp; without a map, the timestamp of the first record."""
    max_ms: int
    first_ms: int
    has_map: bool


def first_time(header: BatchHeader) -> int:
    """Return the first record's timestamp if the batch's header contains it, otherwise the largest timestamp."""
    return header.max_timestamp if header.magic < 2 or header.has_delete_horizon else header.base_timestamp


class KnownMaps:
    """A cache of time maps and bounds. Thread-safe."""

    def __init__(self) -> None:
        self._maps: OrderedDict[object, Mapped | None] = OrderedDict()
        self._bounds: OrderedDict[object, Bounds] = OrderedDict()
        self._blocks = 0
        self._lock = Lock()

    def map_of(self, segment: Segment, job: Job) -> Mapped | None:
        """Return the map of a segment. None if no map agrees with the log, or if the job's time ends before that is checked."""
        stamp = _stamp(segment)
        with self._lock:
            if stamp in self._maps:
                self._maps.move_to_end(stamp)
                return self._maps[stamp]
        found: TimeMap | None = None
        for one in TimeMaps().find(segment):
            try:
                if not one.is_bound and not _is_checked(segment, one.time_map, one.path, job):
                    return None
            except CorruptIndexError as error:
                note_unused(segment, one.path, error)
                continue
            found = one.time_map
            break
        unmapped = segment.end_position - (0 if found is None else found.covered_bytes)
        if 0 < unmapped <= BUILT_BYTES:
            # Reading so few bytes is as quick as reading the time index.
            if not job.may_build(unmapped):
                return None if found is None else Mapped(found)
            builder = TimeMapBuilder(segment.base_offset, grown_from=found)
            add_batches(builder, segment.file, segment.end_position)
            found = builder.build()
        mapped = None if found is None else Mapped(found)
        with self._lock:
            self._forget(self._maps.pop(stamp, None))
            self._maps[stamp] = mapped
            self._blocks += 0 if found is None else found.blocks
            while (self._blocks > KEPT_BLOCKS or len(self._maps) > KEPT_MAPS) and len(self._maps) > 1:
                self._forget(self._maps.popitem(last=False)[1])
        return mapped

    def _forget(self, old: Mapped | None) -> None:
        self._blocks -= 0 if old is None else old.time_map.blocks

    def bounds_of(self, segment: Segment, job: Job) -> Bounds:
        """Return the times of a segment. Raises the same errors as reading."""
        stamp = _stamp(segment)
        kept = self._bounds.get(stamp)
        if kept is not None:
            return kept
        header = next(segment.headers(), None)
        first = NO_TIMESTAMP if header is None else first_time(header)
        mapped = self.map_of(segment, job)
        if mapped is not None and mapped.time_map.covered_bytes >= segment.end_position:
            least, most = min(mapped.time_map.min_timestamps), max(mapped.time_map.max_timestamps)
            bounds = Bounds(least, most, first, True) if least <= most else Bounds(NO_TIMESTAMP, NO_TIMESTAMP, first, True)
        else:
            bounds = Bounds(first, largest_timestamp(segment).timestamp, first, has_map=False)
        with self._lock:
            self._bounds[stamp] = bounds
            while len(self._bounds) > KEPT_BOUNDS:
                self._bounds.popitem(last=False)
        return bounds


def _is_checked(segment: Segment, time_map: TimeMap, path: object, job: Job) -> bool:
    for start in range(0, time_map.blocks, CHECKED_BLOCKS):
        if job.is_late():
            return False
        blocks = range(start, min(time_map.blocks, start + CHECKED_BLOCKS))
        check_blocks(time_map, blocks, segment.file, str(path), position=time_map.positions[start])
    return True


def _stamp(segment: Segment) -> object:
    """Return a value that changes when the segment or its map does."""
    try:
        stat = time_map_path(segment.log_path).stat()
        beside: object = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    except OSError:
        beside = None
    return (segment.identity, segment.base_offset, segment.size_bytes, segment.modified_ms, segment.is_last, beside)
