"""Decides which segments of a log are recovered at startup, in which order, and what happens to segments after damage (spec
§6.3).

| segment | after a clean shutdown | otherwise |
|---|---|---|
| the one with the recovery point, and later ones | unchanged | recovered; those after the first that lost bytes are removed |
| without ``.index``, or with a broken ``.txnindex`` | recovered | recovered |
| with an unfinished ``.index`` or ``.timeindex``, which ends in zeros | unchanged | recovered |
| the last one, if it does not end with a whole batch | recovered | recovered |

Kafka has only the first two rules. The third is for a recovery that was itself interrupted: an index has its full length until it
is complete. The last rule is for a preallocated log, or a log that was copied while it was being written to.

A segment with offset overflow is split, and recovery continues with the new segments. Bytes recovered below the recovery point
are synced, because no later start checks them again. Only `loader` uses this module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tidelog.config import INT64_MAX
from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.offset_index import OffsetIndex
from tidelog.formats.time_index import TimeIndex
from tidelog.records.batch import BatchHeader
from tidelog.storage.loading.clean_end import find_clean_end
from tidelog.storage.loading.loading_log import LoadingLog
from tidelog.storage.loading.log_scan import ScannedLog, scan_log
from tidelog.storage.loading.overflow import split_overflowed_segment
from tidelog.storage.loading.recovery import recover_segment, scan_segment
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.log_segments import LogSegments
from tidelog.storage.segment.segment_names import are_in_place, begins_at, begins_below, unfit

logger = logging.getLogger("tidelog.storage")


class RecoveryProgress(NamedTuple):
    """The progress of one partition's recovery. Segments that need no recovery are not counted."""

    directory: Path
    segments_done: int
    segments: int
    bytes_done: int
    bytes: int


Progress = Callable[[RecoveryProgress], None]


class LogRecovery:
    """Recovers the segments of `log` that need recovery. `progress` is called at each step."""

    def __init__(self, log: LoadingLog, progress: Progress | None) -> None:
        self._log = log
        self.has_changed_files = False
        """Whether anything was recovered, so that the folder's files have changed."""
        self._progress = _ProgressTeller(log.directory, progress)
        self._broken: set[int] = set()
        self._done: set[int] = set()

    def recover(self, broken: Iterable[int]) -> int | None:
        """Recover the segments with the base offsets `broken`, and the segments in the module's table.

        Returns the log end offset if the last segment needed no recovery, or None if the end must still be found. Raises
        StorageError, CorruptDataError.
        """
        self._broken = set(broken)
        bases = self._broken | self._unfinished()
        while True:
            log_end_offset = self._clean_end(bases)
            try:
                self._recover_all(bases)
            except _OverflowedSegmentError as overflow:
                self._split(overflow.segment, bases)
            else:
                return log_end_offset

    def _unfinished(self) -> set[int]:
        """Return the base offsets of flushed segments whose indexes show that neither a roll nor a recovery was completed."""
        log = self._log
        if log.had_clean_shutdown:
            return set()
        unflushed = log.segments.floor(log.recovery_point)
        flushed = [] if unflushed is None else log.segments.values(0, unflushed.base_offset)
        return {segment.base_offset for segment in flushed if _has_unfinished_index(segment)}

    def _clean_end(self, bases: set[int]) -> int | None:
        """Check the end of a cleanly closed log. If the last segment does not end with a whole batch, add its base offset
        to `bases`.
        """
        last = self._log.segments.last
        if not self._log.had_clean_shutdown or last is None or last.base_offset in bases | self._done:
            return None
        end = find_clean_end(last)
        if end is None:
            logger.warning("%s does not end with a whole batch: recovering it", last.log.path)
            bases.add(last.base_offset)
            return None
        self._log.newest = end.newest
        return end.offset

    def _recover_all(self, bases: set[int]) -> None:
        log = self._log
        if log.had_clean_shutdown and not bases:
            return
        unflushed = [] if log.had_clean_shutdown else log.segments.values(log.recovery_point, INT64_MAX)
        flushed = [segment for segment in log.segments if segment.base_offset in bases and segment not in unflushed]
        self._progress.expect([segment for segment in (*flushed, *unflushed) if segment.base_offset not in self._done])
        for segment in flushed:
            if segment.base_offset not in self._done:
                self._recover_segment(segment, [])
                segment.flush()
                _put_to_rest(segment)
        for index, segment in enumerate(unflushed):
            is_waiting = segment.base_offset not in self._done and segment.base_offset in log.segments
            if is_waiting and self._recover_segment(segment, unflushed[index + 1 :]):
                return

    def _recover_segment(self, segment: LogSegment, behind: list[LogSegment]) -> bool:
        """Recover one segment, and return whether bytes were truncated. If so, the segments `behind`, which follow it, are
        removed.

        They are removed before the truncation. Otherwise, if the start were interrupted after the truncation, the next start
        would find nothing to truncate, and leave a hole.
        """
        scanned = scan_segment(segment, self._progress.on_bytes)
        if segment.size_bytes and not scanned.valid_bytes:
            _check_begins(segment)
        self._remove_empty_within(segment, scanned)
        behind = [one for one in behind if one.base_offset in self._log.segments]
        scanned = _in_its_place(segment, scanned, self._log.segments.higher(segment.base_offset))
        if scanned.overflows:
            raise _OverflowedSegmentError(segment)
        if not scanned.is_whole:
            self._log_cut(segment, scanned, behind)
            self._log.delete_segments(behind)
        elif behind and scanned.next_offset < behind[0].base_offset and not self._log.config.is_compacted:
            # The disk may have lost whole batches here. Later batches are kept, as in Kafka.
            logger.warning(
                "%s: offsets %d to %d after this segment are missing",
                segment.log.path,
                scanned.next_offset,
                behind[0].base_offset - 1,
            )
        truncated_bytes = self._rebuild(segment, scanned)
        if truncated_bytes and scanned.is_whole:
            self._log.delete_segments(behind)  # An unreadable marker also ends the log.
        self._done.add(segment.base_offset)
        self._progress.on_segment()
        return truncated_bytes > 0

    def _remove_empty_within(self, segment: LogSegment, scanned: ScannedLog) -> None:
        """Remove empty segments whose names are offsets within this segment, if this segment's batches are sound and in place."""
        segments = self._log.segments
        following = segments.higher(segment.base_offset)
        while following is not None and not following.size_bytes and following.base_offset <= scanned.last_offset:
            if not are_in_place(segment, following.base_offset):
                return
            logger.warning(
                "%s is empty, but the offsets of %s go up to %d: removing the empty segment",
                following.log.path,
                segment.log.path.name,
                scanned.last_offset,
            )
            self._log.delete_segments([following])
            following = segments.higher(segment.base_offset)

    def _rebuild(self, segment: LogSegment, scanned: ScannedLog) -> int:
        log = self._log
        self.has_changed_files = True
        state = log.new_producer_state()
        # The segments before a broken segment get snapshots, as if the log ended there. The same happens in Kafka, which finds
        # the broken segment while it opens the segments one by one.
        before = LogSegments(log.segments.values(0, segment.base_offset)) if segment.base_offset in self._broken else None
        log.rebuild_producer_state(state, log.log_start_offset, segment.base_offset, segments=before)
        epochs = None if log.config.magic < 2 else log.leader_epochs
        truncated_bytes = recover_segment(segment, state, epochs, scanned=scanned)
        if log.config.magic >= 2:
            state.take_snapshot()  # Then the next segment's recovery need not read this segment again.
        _put_to_rest(segment)
        return truncated_bytes

    @staticmethod
    def _log_cut(segment: LogSegment, scanned: ScannedLog, behind: list[LogSegment]) -> None:
        logger.warning(
            "%s: truncating %d bytes that are not valid batches; the segment ends at offset %d%s",
            segment.log.path,
            segment.size_bytes - scanned.valid_bytes,
            scanned.next_offset,
            f", and the {len(behind)} segments after it are removed" if behind else "",
        )

    def _split(self, segment: LogSegment, bases: set[int]) -> None:
        log = self._log
        result = split_overflowed_segment(segment, log.segments, log.directory, log.config, log.clock, log.scheduler)
        log.delete_snapshots(result.removed)
        bases.update(part.base_offset for part in result.new)


def _check_begins(segment: LogSegment) -> None:
    """Raise CorruptBatchError if only a segment's name is wrong: the first batch begins below the name, and the second batch
    follows the first.
    """
    first = _batch_at(segment, 0)
    found = None if first is None else begins_at(segment, first)
    if first is None or found is None or found >= segment.base_offset:
        return
    after = _batch_at(segment, first.end_position)
    if after is None or begins_at(segment, after) == first.next_offset:
        raise begins_below(segment, found)


def _in_its_place(segment: LogSegment, scanned: ScannedLog, following: LogSegment | None) -> ScannedLog:
    """Treat a batch as damaged if its offset belongs to the next segment, or is too high and no following batch confirms it.

    A batch's checksum does not cover its base offset, so flipped bits there would end the log at a random offset. A high offset
    can also be right: compaction by Kafka before 2.1 left segments whose offsets span more than an index can hold. Other segments
    follow such a segment, or other batches such a batch. Raises CorruptBatchError if the next segment's first batch does not have
    the base offset of the file's name, because then the name is wrong.
    """
    limit = INT64_MAX if following is None else following.base_offset
    if scanned.last_offset >= limit:
        assert following is not None
        first = _batch_at(following, 0)
        found = None if first is None else begins_at(following, first)
        if found is not None and found != limit and are_in_place(segment, limit):
            raise unfit(following, f"{segment.log.path.name} reaches offset {scanned.last_offset}")
        end = next(header.position for header in segment.batches() if header.last_offset >= limit)
        shorter = scan_log(segment.log, end, segment.base_offset, segment.index_interval_bytes)
        return shorter._replace(size_bytes=scanned.size_bytes, fault="the offset of a batch belongs to the next segment")
    if scanned.overflows:
        header = segment.log.first_batch(scanned.valid_bytes)
        assert header is not None
        after = _batch_at(segment, header.end_position)
        is_confirmed = following is not None if after is None else after.base_offset > header.last_offset
        if header.last_offset >= limit or not is_confirmed:
            return scanned._replace(overflows=False, fault="the offset of a batch is far too high for its position")
    return scanned


def _batch_at(segment: LogSegment, position: int) -> BatchHeader | None:
    try:
        return segment.log.first_batch(position)
    except CorruptBatchError:
        return None


def _has_unfinished_index(segment: LogSegment) -> bool:
    for index, entry_bytes in ((segment.offset_index, OffsetIndex.entry_bytes), (segment.time_index, TimeIndex.entry_bytes)):
        try:
            with ReadOnlyFile(index.path, fallbacks=()) as file:
                size = file.size_bytes()
                if size % entry_bytes or (size and not any(file.read(size - entry_bytes, entry_bytes))):
                    logger.warning("%s is incomplete: rebuilding it from the log", index.path)
                    return True
        except SegmentChangedError:
            continue  # The index does not exist.
    return False


def _put_to_rest(segment: LogSegment) -> None:
    """Release the memory and descriptors of a recovered segment: a log may have more segments than can be kept open."""
    segment.offset_index.rest()
    segment.time_index.rest()
    segment.close_idle()


class _ProgressTeller:
    """Counts and logs the progress of a recovery."""

    def __init__(self, directory: Path, progress: Progress | None) -> None:
        self._now = RecoveryProgress(directory, 0, 0, 0, 0)
        self._progress = progress

    def expect(self, waiting: Iterable[LogSegment]) -> None:
        """Add segments and bytes that are still to be recovered."""
        sizes = [segment.size_bytes for segment in waiting]
        now = self._now
        self._report(now._replace(segments=now.segments_done + len(sizes), bytes=now.bytes_done + sum(sizes)))

    def on_bytes(self, count: int) -> None:
        self._report(self._now._replace(bytes_done=self._now.bytes_done + count))

    def on_segment(self) -> None:
        self._report(self._now._replace(segments_done=self._now.segments_done + 1))

    def _report(self, now: RecoveryProgress) -> None:
        self._now = now
        if self._progress is not None and now.segments:
            self._progress(now)


class _OverflowedSegmentError(Exception):
    """A segment must be split before recovery can continue."""

    def __init__(self, segment: LogSegment) -> None:
        super().__init__(str(segment))
        self.segment = segment
