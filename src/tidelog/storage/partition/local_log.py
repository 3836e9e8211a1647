"""A partition's segments as one log: its end, its recovery point, rolls, reads and truncation (spec §5).

| | |
|---|---|
| `log_end_offset` | the offset that the next record gets, at the end of the active segment |
| `recovery_point` | all records below it are on disk; never above the log end |

Invariants: there is always an active segment. The log end moves after the batches are in the file. A leftover file with the name
of a new segment is removed before the segment is created. Removed segments are renamed at once and deleted later.

High watermarks, producers and epochs belong to `PartitionLog`, the only caller. Not thread-safe.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.errors import InvalidArgumentError, LogOfflineError, OffsetOutOfRangeError, StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import sync_directory
from tidelog.formats.names import DELETED_SUFFIX, file_name
from tidelog.formats.offset_index import OffsetPosition
from tidelog.formats.txn_index import AbortedTxn
from tidelog.records.batch import BatchHeader
from tidelog.records.compression import Bytes
from tidelog.storage.partition.file_deletion import delete_segment_files, forget_time_map
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.partition.segment_replacement import Replacing, replacing_segments
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.checked_times import TimesBudget
from tidelog.storage.segment.log_segment import LogSegment, LogSlice
from tidelog.storage.segment.log_segments import LogSegments
from tidelog.storage.segment.segment_names import check_names_between

logger = logging.getLogger("tidelog.storage")

_SEGMENT_SUFFIXES = (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX)


INDEX_WRITE_BEHIND = 64
INDEX_WRITE_DELAY_MS = 1000
"""How many new index entries are collected in memory before they are written, and after how many ms they are written at the
latest. A write of an index costs as much as the rest of an append.

Look-ups use the entries in memory, and recovery rebuilds the index. Syncing, rolling or closing the segment writes the entries
first.
"""


class LocalLog:
    """The segments of one partition; there is always an active one."""

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        clock: Clock,
        scheduler: Scheduler,
        *,
        segments: LogSegments,
        recovery_point: int,
        next_offset: LogOffsetMetadata,
        jitter: random.Random | None = None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.segments = segments
        self.recovery_point = recovery_point
        self.log_end_offset = next_offset.message_offset
        self.last_flush_ms = clock.now_ms()
        self.is_closed = False
        self.has_failed = False
        """Whether the disk has failed. If so, nothing more is written."""
        segments.active.index_write_behind = INDEX_WRITE_BEHIND
        budget = TimesBudget()
        for segment in segments:
            segment.times_budget = budget
        self._clock = clock
        self._scheduler = scheduler
        self._has_index_write = False
        self._jitter = jitter or random.Random()

    def __repr__(self) -> str:
        return f"LocalLog({str(self.directory)!r})"

    # --- the end

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        """The log end offset with its position: the end of the active segment."""
        active = self.segments.active
        return LogOffsetMetadata(self.log_end_offset, active.base_offset, active.size_bytes)

    @property
    def unflushed_messages(self) -> int:
        """The number of offsets between the recovery point and the log end."""
        return self.log_end_offset - self.recovery_point

    def update_log_end_offset(self, offset: int) -> None:
        """Set the log end, and lower the recovery point if it is above the log end."""
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)

    def check_open(self) -> None:
        """Raise LogOfflineError if the log is closed."""
        if self.is_closed:
            raise LogOfflineError("the log is closed", path=self.directory)

    # --- appends and rolls

    def append(self, last_offset: int, headers: Sequence[BatchHeader], data: Bytes) -> None:
        """Write whole batches to the active segment and move the log end after `last_offset`."""
        self.segments.active.append(last_offset, headers, data)
        self.log_end_offset = last_offset + 1
        if not self._has_index_write:
            self._has_index_write = True
            self._scheduler.schedule("write-indexes", self._write_indexes, delay_ms=INDEX_WRITE_DELAY_MS)

    def _write_indexes(self) -> None:
        """Write the index files, for other programs that read the folder. Errors are ignored here; they recur where they matter.

        The files' descriptors are closed: between two such writes, an active log needs one descriptor, not three.
        """
        self._has_index_write = False
        if not self.is_closed and not self.has_failed:
            with contextlib.suppress(StorageError):
                self.segments.active.finish_index_entries()

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Begin a segment at `expected_next_offset`, or at the log end if that is higher, and return it.

        An empty active segment with the same base offset is recreated. Raises InvalidArgumentError if another segment has that
        base offset or a higher one, and StorageError.
        """
        self.check_open()
        base_offset = max(expected_next_offset, self.log_end_offset)
        active = self.segments.active
        if base_offset == active.base_offset and active.size_bytes == 0:
            logger.warning("%s: recreating the empty segment %d", self.directory, base_offset)
            segment = self.create_and_delete_segment(base_offset, active)
            self.update_log_end_offset(self.log_end_offset)
            return segment
        if base_offset <= active.base_offset:
            raise InvalidArgumentError(
                "a new segment must begin above the active segment",
                path=self.directory,
                found=base_offset,
                expected=f"above {active.base_offset}",
            )
        self._remove_leftovers(base_offset)
        active.on_become_inactive()
        segment = self._open_segment(base_offset)
        self.segments.add(segment)
        return segment

    # --- flushes

    def flush(self, offset: int) -> None:
        """Flush the segments that have offsets from the recovery point to below `offset`. Raises StorageError."""
        if self.recovery_point > offset:
            return
        segments = self.segments.values(self.recovery_point, offset)
        for segment in segments:
            segment.flush()
        if any(segment.base_offset >= self.recovery_point for segment in segments):
            self.sync_directory()

    def mark_flushed(self, offset: int) -> None:
        """Record that everything below `offset` is on disk."""
        self.check_open()
        if offset > self.recovery_point:
            self.recovery_point = offset
            self.last_flush_ms = self._clock.now_ms()

    def sync_directory(self) -> None:
        """Sync creations and renames in the folder. Raises StorageError."""
        try:
            sync_directory(self.directory)
        except OSError as error:
            raise StorageError(f"cannot sync a partition's folder: {error.strerror}", path=self.directory) from error

    # --- reading

    def locate(
        self,
        start_offset: int,
        max_length: int,
        *,
        min_one_message: bool,
        max_offset: LogOffsetMetadata,
        include_aborted: bool,
    ) -> LogSlice:
        """Return the location of up to `max_length` bytes, beginning with the batch that has `start_offset`, or the next batch
        (spec §5.4).

        Nothing at or after `max_offset` is returned. Raises OffsetOutOfRangeError for an offset below the first segment or above
        the log end, and what reading raises.
        """
        self.check_open()
        segment = self.segments.floor(start_offset)
        if start_offset > self.log_end_offset or segment is None:
            first = self.segments.first
            raise OffsetOutOfRangeError(
                "the log does not contain the offset",
                path=self.directory,
                found=start_offset,
                expected=f"{0 if first is None else first.base_offset} to {self.log_end_offset}",
            )
        if start_offset == max_offset.message_offset:
            return _empty(max_offset, include_aborted)
        if start_offset > max_offset.message_offset:
            return _empty(self.convert_to_offset_metadata(start_offset), include_aborted)
        while segment is not None:
            found = segment.locate(start_offset, max_length, _max_position(segment, max_offset), min_one_message)
            if found is not None:
                if not found.metadata.relative_position:
                    check_names_between(self.segments, start_offset, segment)  # There may be a hole before it.
                return self._with_aborted(start_offset, segment, found) if include_aborted else found
            segment = self.segments.higher(segment.base_offset)
        # Every record from there on was deleted.
        return _empty(self.log_end_offset_metadata, include_aborted)

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Return an offset with its position. Raises what `locate` raises."""
        end = self.log_end_offset_metadata
        return self.locate(offset, 1, min_one_message=False, max_offset=end, include_aborted=False).metadata

    def collect_aborted_transactions(self, start_offset: int, upper_bound_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records in [start_offset, upper_bound_offset), from the segments' transaction
        indexes.

        Raises CorruptIndexError, StorageError.
        """
        segment = self.segments.floor(start_offset)
        return [] if segment is None else self._collect_aborted(segment, start_offset, upper_bound_offset)

    def _with_aborted(self, start_offset: int, segment: LogSegment, found: LogSlice) -> LogSlice:
        start = OffsetPosition(found.metadata.message_offset, found.metadata.relative_position)
        upper_bound_offset = segment.fetch_upper_bound_offset(start, found.length)
        if upper_bound_offset is None:
            higher = self.segments.higher(segment.base_offset)
            upper_bound_offset = self.log_end_offset if higher is None else higher.base_offset
        aborted = self._collect_aborted(segment, start_offset, upper_bound_offset)
        return found._replace(aborted_transactions=aborted)

    def _collect_aborted(self, segment: LogSegment, start_offset: int, upper_bound_offset: int) -> list[AbortedTxn]:
        """Read the transaction indexes of `segment` and later segments until the answer is complete. Return the aborted
        transactions.
        """
        aborted: list[AbortedTxn] = []
        one: LogSegment | None = segment
        while one is not None:
            collected = one.collect_aborted_txns(start_offset, upper_bound_offset)
            aborted += collected.aborted
            one = None if collected.is_complete else self.segments.higher(one.base_offset)
        return aborted

    # --- removal

    def truncate_to(self, target_offset: int) -> list[LogSegment]:
        """Truncate the log to `target_offset`. Return the removed segments, which begin above it."""
        self.check_open()
        removed = [segment for segment in self.segments.values() if segment.base_offset > target_offset]
        self.remove_and_delete_segments(reversed(removed))  # From the end: a crash in between leaves no hole.
        active = self.segments.active
        active.truncate_to(target_offset)
        forget_time_map(active)
        self.update_log_end_offset(target_offset)
        return removed

    def truncate_fully_and_start_at(self, offset: int) -> list[LogSegment]:
        """Remove all segments and begin an empty one at `offset`. Return the removed segments."""
        self.check_open()
        removed = list(self.segments.values())
        self.remove_and_delete_segments(removed[:-1])
        self.create_and_delete_segment(offset, removed[-1])
        self.update_log_end_offset(offset)
        return removed

    def create_and_delete_segment(self, base_offset: int, old: LogSegment) -> LogSegment:
        """Replace `old` with a new empty segment, so that the log is never without a segment. Return the new one."""
        same_base = base_offset == old.base_offset
        if same_base:
            forget_time_map(old)
            old.change_file_suffixes("", DELETED_SUFFIX)
        segment = self._open_segment(base_offset)
        self.segments.add(segment)
        if not same_base:
            self.segments.remove(old.base_offset)
        self._delete_files([old])
        return segment

    def remove_and_delete_segments(self, going: Iterable[LogSegment], *, asynchronous: bool = True) -> None:
        """Remove segments from the log; their files are renamed at once and deleted later, or deleted at once."""
        segments = list(going)
        for segment in segments:
            self.segments.remove(segment.base_offset)
        self._delete_files(segments, asynchronous=asynchronous)

    def replacing_segments(self, new: Iterable[LogSegment], old: Iterable[LogSegment]) -> Replacing:
        """Replace segments with cleaned ones. Return the old segments whose base offset no new segment has
        (`segment_replacement`).
        """
        self.check_open()
        delay_ms = self.config.file_delete_delay_ms
        return replacing_segments(self.segments, new, old, self.directory, self._scheduler, delay_ms)

    def _delete_files(self, segments: list[LogSegment], *, asynchronous: bool = True) -> None:
        delete_segment_files(segments, self._scheduler if asynchronous else None, self.config.file_delete_delay_ms)

    # --- the folder

    def rename_dir(self, directory: Path) -> None:
        """Rename the partition's folder, and update all paths. Raises StorageError."""
        if directory != self.directory:
            try:
                self.directory.rename(directory)
                sync_directory(directory.parent)
            except OSError as error:
                raise StorageError(
                    f"cannot rename a partition's folder: {error.strerror}", path=self.directory, expected=directory.name
                ) from error
            self.directory = directory
            for segment in self.segments.values():
                segment.update_parent_dir(directory)

    def close(self) -> None:
        """Finish every segment's files. Idempotent. Raises the first StorageError, but only after trying to close all
        segments.
        """
        active = self.segments.active
        if active.size_bytes and not self.is_closed:
            # Indexes are created on demand; a start after a clean shutdown needs them.
            active.offset_index.create_if_missing()
            active.time_index.create_if_missing()
        self.is_closed = True
        failed: StorageError | None = None
        for segment in self.segments.values():
            try:
                segment.close()
            except StorageError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def close_handlers(self) -> None:
        """Close the descriptors without changing the files."""
        self.is_closed = True
        for segment in self.segments.values():
            segment.close_handlers()

    def delete_all(self) -> None:
        """Remove the segments and the folder with its whole content, at once. Raises StorageError."""
        self.is_closed = True
        for segment in list(self.segments.values()):
            self.segments.remove(segment.base_offset)
            segment.delete_if_exists()
        try:
            for path in self.directory.iterdir():
                path.unlink()
            with contextlib.suppress(FileNotFoundError):
                self.directory.rmdir()
        except OSError as error:
            raise StorageError(f"cannot remove a partition's folder: {error.strerror}", path=self.directory) from error

    # --- inside

    def _open_segment(self, base_offset: int) -> LogSegment:
        config = self.config
        segment = LogSegment.open(
            self.directory,
            base_offset,
            config,
            self._clock,
            init_file_size=config.segment_bytes if config.preallocate else 0,
            preallocate=config.preallocate,
            jitter=self._jitter,
        )
        segment.index_write_behind = INDEX_WRITE_BEHIND
        return segment

    def _remove_leftovers(self, base_offset: int) -> None:
        """Remove leftover files with the names of a segment that is about to begin."""
        for suffix in _SEGMENT_SUFFIXES:
            path = self.directory / file_name(base_offset, suffix)
            if path.exists():
                try:
                    path.unlink()
                except OSError as error:
                    raise StorageError(f"cannot remove a file: {error.strerror}", path=path) from error
                logger.warning("removed %s, which was left over from an earlier segment", path)


def _empty(metadata: LogOffsetMetadata, include_aborted: bool) -> LogSlice:
    return LogSlice(metadata, None, 0, 0, False, [] if include_aborted else None)


def _max_position(segment: LogSegment, max_offset: LogOffsetMetadata) -> int | None:
    """Return the position in a segment at which a read ends; None if unknown (spec §5.4)."""
    if segment.base_offset < max_offset.segment_base_offset:
        return segment.size_bytes
    if segment.base_offset == max_offset.segment_base_offset and not max_offset.is_message_offset_only:
        return max_offset.relative_position
    return None
