"""Batch boundaries in a segment: the start and end of a run of batches, and positions at which to cut the run.

A cut must be between two batches. The offset index has such positions about every 4 KiB, and the segment checks them against the
log. Without an index, the batch headers are walked once. `folder_plan` cuts with this module, and `pruning` returns runs
(`Extent`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidelog.errors import SegmentChangedError
from tidelog.formats.summary.segment_summary import SegmentFacts
from tidelog.model import MAX_OFFSET
from tidelog.reader.salvage.salvaged_segment import SalvagedSegment
from tidelog.reader.segment import Segment
from tidelog.records.batch import BatchHeader
from tidelog.sources.bounds import TimeRange
from tidelog.sources.files.runs import BatchMark, Run


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of batches of one segment, from `first` to `last`, both included."""

    first: BatchHeader
    last: BatchHeader

    @property
    def start_position(self) -> int:
        return self.first.position

    @property
    def end_position(self) -> int:
        return self.last.end_position

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.start_position

    @property
    def first_offset(self) -> int:
        return self.first.base_offset

    @property
    def last_offset(self) -> int:
        return self.last.last_offset

    @property
    def run(self) -> Run:
        return Run(BatchMark.of(self.first), BatchMark.of(self.last))


@dataclass(frozen=True, slots=True)
class WholeSegment:
    """All batches of a segment that the plan did not open. A summary describes the segment; the batches are checked against the
    summary when they are read.
    """

    facts: SegmentFacts

    @property
    def size_bytes(self) -> int:
        return self.facts.size_bytes

    @property
    def first_offset(self) -> int:
        return self.facts.first_offset

    @property
    def last_offset(self) -> int:
        return self.facts.next_offset - 1

    @property
    def run(self) -> Run:
        facts = self.facts
        first = BatchMark(0, None, facts.first_offset, None)
        return Run(
            first, BatchMark(facts.last_position, facts.size_bytes - facts.last_position, None, facts.last_crc, facts.next_offset)
        )


def whole_segment(segment: Segment, time: TimeRange, start_offset: int, end_offset: int) -> WholeSegment | None:
    """Return the whole segment if all its records are wanted and its summary has the necessary facts; otherwise None."""
    facts = segment.facts
    if facts is None or facts.last_position < 0 or facts.first_offset != segment.base_offset:
        return None
    is_late = time.start_ms is None or facts.smallest >= time.start_ms
    is_in_time = is_late and (time.end_ms is None or facts.largest < time.end_ms)
    is_wanted = is_in_time and start_offset <= facts.first_offset and facts.next_offset <= end_offset
    return WholeSegment(facts) if is_wanted else None


def extent_of(segment: Segment, start_offset: int, end_offset: int, start_position: int = 0) -> Extent | None:
    """Return the run of batches, starting at `start_position`, that may have offsets in `[start_offset, end_offset)`. Return None
    if no batch may.

    A batch must start at `start_position`. Raises CorruptBatchError, SegmentChangedError.
    """
    first = segment.translate_offset(start_offset) if start_offset > segment.base_offset else next(segment.headers(), None)
    if first is not None and first.position < start_position:
        first = next(segment.headers(start_position), None)
    if first is None or _begins_at_or_behind(first, end_offset):
        return None
    end = segment.valid_end()
    last = end.last_header if end.next_offset <= end_offset else _last_before(segment, end_offset)
    return None if last is None or last.position < first.position else Extent(first, last)


def around_damage(segment: SalvagedSegment, runs: Sequence[Extent]) -> tuple[Extent, ...]:
    """Return the runs without damaged batches: a run with damage inside becomes several runs."""
    found: list[Extent] = []
    for run in runs:
        first = last = run.first
        for header in segment.headers(run.start_position, run.end_position):
            if header.position > last.end_position:
                found.append(Extent(first, last))
                first = header
            last = header
        found.append(Extent(first, last))
    return tuple(found)


def cut(segment: Segment, run: Extent, target_bytes: int) -> Iterator[Extent]:
    """Split a run into pieces of about `target_bytes`, each with at least one batch."""
    pieces = max(1, round(run.size_bytes / target_bytes))
    first = run.first
    while True:
        # Cuts are at equal distances from the start. A batch longer than that distance skips some cuts.
        piece = (first.position - run.start_position) * pieces // run.size_bytes + 1
        target = run.start_position + -(-run.size_bytes * piece // pieces)
        if piece >= pieces:
            break
        last = first
        for header in segment.headers(max(first.position, _floor(segment, target)), run.end_position):
            if header.position >= target:
                yield Extent(first, last)
                first = header
                break
            last = header
        else:
            break
    yield Extent(first, run.last)


def cut_runs(
    segment: Segment, runs: Sequence[Extent | WholeSegment], target_bytes: int | None
) -> Iterator[Sequence[Extent | WholeSegment]]:
    """Split `runs` into groups of about `target_bytes`, in order; long runs are cut. If `target_bytes` is None, yield one group.

    Raises CorruptBatchError, SegmentChangedError.
    """
    first = runs[0]
    if target_bytes is None or (isinstance(first, WholeSegment) and round(first.size_bytes / target_bytes) <= 1):
        yield runs
        return
    read = (extent_of(segment, segment.base_offset, MAX_OFFSET) if isinstance(run, WholeSegment) else run for run in runs)
    extents = [extent for extent in read if extent is not None]
    if len(extents) == 1:
        yield from ((piece,) for piece in cut(segment, extents[0], target_bytes))
        return
    group: list[Extent] = []
    size_bytes = 0
    for extent in extents:
        for piece in cut(segment, extent, target_bytes):
            if group and size_bytes + piece.size_bytes > target_bytes:
                yield group
                group, size_bytes = [], 0
            group.append(piece)
            size_bytes += piece.size_bytes
    if group:
        yield group


def _floor(segment: Segment, position: int) -> int:
    """Return the last known batch start below `position`: from the index, or 0."""
    index = segment.offset_index
    if index is None:
        return 0
    try:
        below = index.entries_before(position)
        # The segment looks up the entry again by its offset, and checks it. A damaged entry may point beyond `position`.
        floor = 0 if below == 0 else segment.floor_position(index.entry(below - 1).offset)
    except SegmentChangedError:
        return 0
    return floor if floor < position else 0


def _last_before(segment: Segment, end_offset: int) -> BatchHeader | None:
    """Return the last batch that may contain an offset below `end_offset`."""
    last = None
    headers = segment.headers(segment.floor_position(end_offset - 1))
    for header in headers:
        if not _begins_at_or_behind(header, end_offset):
            last = header
        if header.last_offset >= end_offset - 1:
            # No checksum covers an offset. The next batch's offset shows whether this batch's offset is too high.
            next(headers, None)
            break
    return last


def _begins_at_or_behind(header: BatchHeader, offset: int) -> bool:
    """Whether the header shows that all of the batch's records are at or after `offset`."""
    if header.magic < 2 and header.is_compressed:
        # The header of a compressed v0 or v1 message shows only its last offset.
        return False
    return header.base_offset >= offset
