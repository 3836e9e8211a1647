"""Which batches a scan of a folder must read, and the splits that cover them.

These parts are skipped without being read. None of them has a record that the scan must return:

| skipped | because |
|---|---|
| segments before the start offset or after the end offset | the base offsets show where they lie |
| segments whose largest timestamp is before `start` | that timestamp was checked against the log, not just taken from the index |
| segments whose smallest timestamp is at or after `end` | the summary of a bucket's segments says so (`formats.summary`) |
| the head of a segment | its last time index entry before `start` shows that all records up to there are earlier |

There is no such rule for `end`: Kafka stores no smallest timestamps, and a late record may be anywhere after `start`. If a
segment has a time map, `pruning` skips blocks on both sides, and the table applies to the part after the map.

If there is a time bound, a segment that begins with a batch without timestamps (message format v0, or a producer that sent none)
is always read from its start. The scan must count the records that it leaves out for lack of a timestamp, and the time index does
not list them.

| isolation, until | the end of a partition is |
|---|---|
| read_uncommitted, log_end | the end of the log |
| read_uncommitted, high_watermark | the high-watermark checkpoint; without one, the end of the log |
| read_committed | the last stable offset, or the end from the rows above if that is smaller |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tidelog.errors import TidelogError
from tidelog.model import NO_TIMESTAMP, READ_COMMITTED, Isolation
from tidelog.objects.object_path import ObjectPath, prefetch
from tidelog.ordered_map import ordered_map
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.reader.salvage.salvaged_segment import SalvagedSegment
from tidelog.reader.segment import Segment
from tidelog.reader.segment_time import largest_timestamp, start_position
from tidelog.reader.time_map_file import TimeMaps, time_map_path
from tidelog.sources.bounds import HIGH_WATERMARK, TimeRange, clip, wanted_partitions
from tidelog.sources.files.cut import Extent, WholeSegment, around_damage, cut_runs, extent_of, whole_segment
from tidelog.sources.files.folder_split import FolderSplit
from tidelog.sources.files.pruning import Pruned, prune
from tidelog.sources.files.runs import AbortedRange
from tidelog.sources.scan_plan import PartitionRange, ScanPlan, ScanRequest
from tidelog.sources.scan_report import ScanReport

REMOTE_THREADS = 16
"""How many segments in object storage are examined at a time."""


def plan_folder(log_dir: LogDir, request: ScanRequest) -> ScanPlan[FolderSplit]:
    """Plan a scan of one topic of a folder.

    A split covers at most one segment. With `skip_damaged`, this function checks everything that is to be read, and the splits
    leave out damaged batches.

    Raises:
        NotFoundError: the topic, a partition, or the folder of time maps does not exist.
        CorruptDataError, SegmentChangedError, StorageError: an error from opening the log.
    """
    topic, time = request.topic, request.time
    numbers = wanted_partitions(log_dir.partitions(topic), request.partitions, request.offsets)
    maps = TimeMaps(request.time_map_dir)
    notes: list[str] = []
    known = ScanReport()
    if request.partitions is None and not request.offsets and not time.is_empty:
        known.missing += tuple(log_dir.missing_partitions(topic))
    parts: list[_Part] = []
    ranges = []

    def planned(number: int) -> tuple[PartitionRange, list[_Part], list[str], ScanReport]:
        own_notes, own_known = list[str](), ScanReport()
        with log_dir.log(topic, number) as log:
            return *_plan_partition(log, request, maps, own_notes, own_known), own_notes, own_known

    threads = REMOTE_THREADS if isinstance(log_dir.path, ObjectPath) else 1
    for partition, found, its_notes, its_known in ordered_map(planned, numbers, min(len(numbers), threads)):
        ranges.append(partition)
        parts += found
        notes += its_notes
        known += its_known
    target_bytes = _target_bytes(sum(part.size_bytes for part in parts), request.split_bytes, request.min_splits)
    cut = ordered_map(partial(_Part.splits, target_bytes=target_bytes), parts, min(len(parts), threads))
    splits = tuple(split for splits in cut for split in splits)
    return ScanPlan(topic=topic, time=time, splits=splits, partitions=tuple(ranges), notes=tuple(notes), known=known)


@dataclass(frozen=True, slots=True)
class _Part:
    """The range to read in one segment, before it is cut."""

    log: Log
    segment: Segment
    extents: tuple[Extent | WholeSegment, ...]
    time: TimeRange
    start_offset: int
    end_offset: int
    aborted: tuple[AbortedRange, ...]

    @property
    def size_bytes(self) -> int:
        return sum(extent.size_bytes for extent in self.extents)

    def splits(self, target_bytes: int | None) -> list[FolderSplit]:
        identity = self.segment.identity
        high_watermark = self.log.high_watermark
        splits = []
        for pieces in cut_runs(self.segment, self.extents, target_bytes):
            first_offset, last_offset = pieces[0].first_offset, pieces[-1].last_offset
            split = FolderSplit(
                topic=self.log.topic,
                partition=self.log.partition,
                log_path=self.segment.log_path,
                base_offset=self.segment.base_offset,
                device=identity.device,
                inode=identity.inode,
                runs=tuple(piece.run for piece in pieces),
                time=self.time,
                start_offset=self.start_offset,
                end_offset=self.end_offset,
                size_bytes=sum(piece.size_bytes for piece in pieces),
                high_watermark=high_watermark,
                aborted=tuple(txn for txn in self.aborted if txn.first_offset <= last_offset and txn.last_offset >= first_offset),
            )
            splits.append(split)
        self.segment.close()
        return splits


def _plan_partition(
    log: Log, request: ScanRequest, maps: TimeMaps, notes: list[str], known: ScanReport
) -> tuple[PartitionRange, list[_Part]]:
    """Return the offsets of one partition that the scan delivers, and the ranges to read for these offsets. Add to `notes` and
    `known`.
    """
    time, isolation, wanted = request.time, request.isolation, request.offsets_of(log.partition)
    if not time.is_empty:
        log.expect_search(by_time=False)  # `missing` reads the end of each segment.
    log.check_names()
    end_offset = log.log_end_offset
    if request.until == HIGH_WATERMARK and log.high_watermark is not None:
        end_offset = min(end_offset, log.high_watermark)
    if isolation == READ_COMMITTED:
        end_offset = min(end_offset, log.last_stable_offset)
    start_offset, end_offset = clip(f"{log.topic}-{log.partition}", log.log_start_offset, end_offset, wanted, notes)
    if log.high_watermark is not None and end_offset > max(log.high_watermark, start_offset):
        past = f"[{max(log.high_watermark, start_offset)}, {end_offset})"
        notes.append(f"{log.topic}-{log.partition}: offsets {past} lie past the high-watermark checkpoint")
    if not time.is_empty:
        _find_ends(log)
        known.missing += tuple(_missing(log, isolation, wanted))
        known.left_out += tuple(log.left_out(start_offset, end_offset))
    parts = []
    copies = 0
    if start_offset < end_offset and not time.is_empty:
        aborted: tuple[AbortedRange, ...] = ()
        if isolation == READ_COMMITTED:
            found = log.aborted_transactions(start_offset, end_offset)
            aborted = tuple(AbortedRange(txn.producer_id, txn.first_offset, txn.last_offset) for txn in found)
        read = [
            segment
            for segment in log.segments
            if not _is_outside(segment, start_offset, end_offset) and not _is_out_of_time(segment, time)
        ]
        if time.is_bounded and not isinstance(log.directory, Path):
            looked_at = [one for one in read if whole_segment(one, time, start_offset, end_offset) is None]
            prefetch(path for one in looked_at for path in (time_map_path(one.log_path), one.log_path))
        planned = partial(_plan_segment, maps=maps, time=time, start_offset=start_offset, end_offset=end_offset, aborted=aborted)
        for segment, (extents, pruned) in zip(read, ordered_map(planned, read, _threads(read)), strict=True):
            if pruned is not None:
                known += pruned.known
                copies += pruned.is_of_copy
            if extents:
                parts.append(_Part(log, segment, extents, time, start_offset, end_offset, aborted))
    if copies:
        notes.append(
            f"{log.topic}-{log.partition}: {copies} time maps were made from a different copy of the log, so they are compared "
            "with this log; to replace them, run `tidelog index rebuild`"
        )
    return (
        PartitionRange(
            partition=log.partition,
            start_offset=start_offset,
            end_offset=end_offset,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            segments=len(log.segments),
            segments_read=len(parts),
            size_bytes=sum(segment.size_bytes for segment in log.segments),
        ),
        parts,
    )


def _plan_segment(
    segment: Segment,
    *,
    maps: TimeMaps,
    time: TimeRange,
    start_offset: int,
    end_offset: int,
    aborted: tuple[AbortedRange, ...],
) -> tuple[tuple[Extent | WholeSegment, ...], Pruned | None]:
    """Return the parts of a segment to read, and what its time map ruled out. May run in a thread."""
    whole = whole_segment(segment, time, start_offset, end_offset)
    if whole is not None:
        return (whole,), None
    without_map = partial(_extents_in_time, segment, time, start_offset, end_offset)
    is_pruned = time.is_bounded and not isinstance(segment, SalvagedSegment)  # A time map does not show damage.
    pruned = prune(segment, maps, time, start_offset, end_offset, aborted, without_map) if is_pruned else None
    if pruned is None:
        extents = without_map()
    else:
        extents = pruned.extents + _extents_in_time(segment, time, start_offset, end_offset, pruned.covered_bytes)
    if isinstance(segment, SalvagedSegment):
        extents = around_damage(segment, extents)
    segment.close()  # A log may have more segments than the process may open files.
    return extents, pruned


def _find_ends(log: Log) -> None:
    """Read the ends of a remote log's segments, many at a time, so that later look-ups find them in memory."""

    def find(segment: Segment) -> None:
        with suppress(TidelogError):  # The first caller that needs this end gets the error again.
            segment.valid_end()

    unknown = [segment for segment in log.segments if segment.facts is None]
    if unknown and _threads(unknown) > 1:
        deque(ordered_map(find, unknown, _threads(unknown)), maxlen=0)


def _threads(segments: Sequence[Segment]) -> int:
    """Return how many segments to examine in parallel. In object storage, examining a segment takes several requests in a row."""
    is_remote = all(isinstance(one.log_path, ObjectPath) and not isinstance(one, SalvagedSegment) for one in segments)
    return min(len(segments), REMOTE_THREADS) if is_remote else 1


def _missing(log: Log, isolation: Isolation, wanted: tuple[int | None, int | None]) -> list[MissingOffsets]:
    """Return the missing records that could change which records of a partition are delivered."""
    first, end = wanted
    if isolation == READ_COMMITTED:
        first = None  # Missing records may include a transaction's beginning or its marker.
    return log.missing(first or 0, end)


def _is_outside(segment: Segment, start_offset: int, end_offset: int) -> bool:
    """Whether the base offsets show that a segment has nothing in `[start_offset, end_offset)`."""
    next_base_offset = segment.next_base_offset
    return segment.base_offset >= end_offset or (next_base_offset is not None and next_base_offset <= start_offset)


def _is_out_of_time(segment: Segment, time: TimeRange) -> bool:
    """Whether a segment is known to have no record in a time range, and none without a timestamp."""
    facts = segment.facts if time.is_bounded else None
    if facts is None or facts.without_timestamp:
        return False
    is_before = time.start_ms is not None and facts.largest < time.start_ms
    return is_before or (time.end_ms is not None and facts.smallest >= time.end_ms)


def _extents_in_time(
    segment: Segment, time: TimeRange, start_offset: int, end_offset: int, position: int = 0
) -> tuple[Extent, ...]:
    """Return the batches at or after `position` that the module's table does not skip: at most one run."""
    if position > 0 and position >= segment.end_position:
        return ()
    if time.start_ms is not None and _has_timestamps_first(segment):
        if largest_timestamp(segment, at_least=time.start_ms).timestamp < time.start_ms:
            return ()
        position = max(position, start_position(segment, time.start_ms))
    extent = extent_of(segment, start_offset, end_offset, position)
    return () if extent is None else (extent,)


def _has_timestamps_first(segment: Segment) -> bool:
    first = next(segment.headers(check_crc=True), None)
    return first is not None and first.max_timestamp != NO_TIMESTAMP


def _target_bytes(size_bytes: int, split_bytes: int | None, min_splits: int | None) -> int | None:
    """Return the largest size of a split in bytes, None for no limit."""
    if min_splits is None:
        return split_bytes
    even = max(1, -(-size_bytes // min_splits))
    return even if split_bytes is None else min(even, split_bytes)
