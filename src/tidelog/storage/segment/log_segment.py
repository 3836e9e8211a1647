"""A segment that is written: a `.log` that grows at its end, and its indexes (spec §3, §4).

The rule for an index entry, per batch and before the batch is counted (§4.2)::

    max_timestamp  ← the batch's, if it is larger; with it the batch's last offset
    if bytes since the last entry > index.interval.bytes:
        offset index ← (last offset of the batch, position of its first byte)
        time index   ← (max_timestamp so far, last offset of the batch that first reached it), if larger than the last entry
        bytes since the last entry ← 0
    bytes since the last entry ← + size of the batch

Thus the first batch of a segment has no entry, and a batch with an entry counts toward the next entry. When the segment rolls or
closes, the time index gets the largest timestamp as its last entry, in a reserved slot, and both indexes are trimmed to their
entries (§4.10, §4.11).

| roll before an append if (§4.1) | |
|---|---|
| size | the segment would exceed segment.bytes |
| time | event time since the first batch's largest timestamp > segment.ms - jitter; wall time if that batch has none |
| index | the offset index is full, or the time index except its reserved slot |
| offsets | the last offset does not fit in an int32 relative to the base offset (offset overflow) |

Invariants
    * An append is atomic: after an error the `.log`, the entries and the state in memory are as before.
    * If an index becomes full within an append of several batches (Kafka fails there), entries are left out.
    * A segment opened from disk opens no file and reads no index before that is needed.

`segment_files` has its files, `segment_reader` its look-ups. `partition_log` appends, rolls and truncates; `loader` opens,
`recovery` rebuilds, the cleaner writes new ones. Not thread-safe.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tidelog.clock import Clock
from tidelog.config import INT32_MAX, INT64_MAX, LogConfig
from tidelog.errors import CorruptIndexError, OffsetOverflowError, StorageError
from tidelog.formats.names import LOG_SUFFIX, file_name
from tidelog.formats.non_blocking_read import is_non_blocking
from tidelog.formats.time_index import TimestampOffset
from tidelog.formats.txn_index import AbortedTxn
from tidelog.reader.producer_state import CompletedTxn
from tidelog.records.batch import BatchHeader
from tidelog.records.compression import Bytes
from tidelog.storage.segment.append_spans import AppendSpan
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.segment_reader import (
    UP_TO_SIZE,
    FetchData,
    LogSlice,
    SegmentReader,
    TimestampAndOffset,
)

__all__ = ["UP_TO_SIZE", "FetchData", "LogSegment", "LogSlice", "RollParams", "TimestampAndOffset"]

logger = logging.getLogger("tidelog.storage")

UNKNOWN = -2
"""Stands for a largest timestamp that has not been looked up yet. (-1 means that the segment has no timestamps.)"""


class RollParams(NamedTuple):
    """The input of `should_roll`: limits, the append's largest timestamp (ms) and last offset, its bytes, the time now."""

    max_segment_ms: int
    max_segment_bytes: int
    max_timestamp_in_messages: int
    max_offset_in_messages: int
    messages_size: int
    now_ms: int


class LogSegment(SegmentReader):
    """A segment, created by `open`. `created_ms` is the time, by the injected clock, when it was opened or last emptied."""

    def __init__(self, log: LogFile, base_offset: int, config: LogConfig, clock: Clock, roll_jitter_ms: int = 0) -> None:
        super().__init__(log, base_offset, config.segment_index_bytes)
        self.index_interval_bytes = config.index_interval_bytes
        self.roll_jitter_ms = roll_jitter_ms
        self.created_ms = clock.now_ms()
        self.bytes_since_last_index_entry = 0
        self.index_write_behind = 1
        """How many new entries of an index are collected before they are written. A caller that sets it above 1 must ensure that
        pending entries get written.
        """
        self._clock = clock
        self._rolling_based_timestamp: int | None = None
        self._max_timestamp = UNKNOWN
        self._offset_of_max_timestamp = UNKNOWN
        self._is_largest_checked = False

    @classmethod
    def open(
        cls,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        clock: Clock,
        *,
        file_already_exists: bool = False,
        init_file_size: int = 0,
        preallocate: bool = False,
        suffix: str = "",
        jitter: random.Random | None = None,
    ) -> LogSegment:
        """Open a segment's files, or create them: only the `.log` is created now, the others when needed.

        `suffix` follows every name (".cleaned", ".swap"). `jitter` is the random generator for segment.jitter.ms. Raises
        StorageError, InvalidArgumentError for a `.log` larger than an int32.
        """
        log = LogFile.open(
            f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{suffix}",
            file_already_exists=file_already_exists,
            init_file_size=init_file_size,
            preallocate=preallocate,
        )
        limit_ms = min(config.segment_jitter_ms, config.segment_ms)
        return cls(log, base_offset, config, clock, (jitter or random.Random()).randrange(limit_ms) if limit_ms else 0)

    # --- properties

    @property
    def max_timestamp_and_offset_so_far(self) -> TimestampOffset:
        """The largest timestamp (ms), and the last offset of the first batch with it; (-1, base) if no batch has a timestamp.

        For a segment opened from disk it is the time index's last entry (§3), which is right after a roll or a clean close.
        """
        return TimestampOffset(*self._largest())

    @property
    def max_timestamp_so_far(self) -> int:
        """The largest timestamp so far (ms); -1 without one."""
        known = self._max_timestamp
        return known if known != UNKNOWN else self._largest()[0]

    def check_largest_timestamp(self, *, elsewhere: bool = False) -> TimestampOffset:
        """Return the largest timestamp and its offset, checked against the log. A time index written by this process needs no
        check. The result is kept.

        With `elsewhere`, inside `non_blocking`, the whole check is left to another thread. Raises CorruptBatchError,
        StorageError.
        """
        if not self._is_largest_checked:
            if self.time_index.entries == 0 or not self.time_index.is_own:
                was_open = self.log.is_open
                try:
                    if elsewhere and is_non_blocking():
                        raise self.checked_times.not_walked()
                    self._max_timestamp, self._offset_of_max_timestamp = self.checked_times.largest()
                finally:
                    if not was_open:
                        self.log.release()  # A search may pass thousands of segments.
            self._is_largest_checked = True
        return self.max_timestamp_and_offset_so_far

    @property
    def is_largest_checked(self) -> bool:
        """Whether `check_largest_timestamp` needs no read of the log."""
        return self._is_largest_checked

    def reaches(self, timestamp: int) -> bool:
        """Whether the checked largest timestamp is at least `timestamp` (ms)."""
        if not self._is_largest_checked:
            self.check_largest_timestamp()
        return self._max_timestamp >= timestamp or self.max_timestamp_so_far >= timestamp

    @property
    def largest_record_timestamp(self) -> int | None:
        """The largest timestamp (ms), None if no record has one."""
        timestamp = self.max_timestamp_and_offset_so_far.timestamp
        return timestamp if timestamp >= 0 else None

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp (ms); if no record has one, the time when the `.log` was last written."""
        timestamp = self.max_timestamp_and_offset_so_far.timestamp
        return timestamp if timestamp >= 0 else self.log.modified_ms

    @property
    def first_batch_timestamp(self) -> int:
        """The first batch's largest timestamp (ms); 2^63 - 1 if there is none."""
        timestamp = self._first_timestamp()
        return INT64_MAX if timestamp is None or timestamp < 0 else timestamp

    # --- rolling

    def should_roll(self, params: RollParams) -> bool:
        """Whether this append must go to a new segment, by the table above."""
        size = self.log.size_bytes
        if size > params.max_segment_bytes - params.messages_size:
            return True
        if size > 0:
            waited_ms = self.time_waited_for_roll(params.now_ms, params.max_timestamp_in_messages)
            if waited_ms > params.max_segment_ms - self.roll_jitter_ms:
                return True
        return (
            self.offset_index.is_full
            or self.time_index.is_full
            or not self.can_convert_to_relative_offset(params.max_offset_in_messages)
        )

    def should_roll_fast(
        self, size: int, max_timestamp: int, last_offset: int, max_segment_bytes: int, max_segment_ms: int
    ) -> Literal[False] | None:
        """Return False if `should_roll` would return False; None if `should_roll` must be called."""
        log_bytes = self.log.size_bytes
        first = self._rolling_based_timestamp
        takes = (
            first is not None
            and first >= 0
            and 0 < log_bytes <= max_segment_bytes - size
            and max_timestamp - first <= max_segment_ms - self.roll_jitter_ms
            and 0 <= last_offset - self.base_offset <= INT32_MAX
            and not self.offset_index.is_full
            and not self.time_index.is_full
        )
        return False if takes else None

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """Return milliseconds since the first batch: event time if it has a timestamp, otherwise wall time since `created_ms`."""
        first = self._first_timestamp()
        if first is not None and first >= 0:
            return message_timestamp - first
        return now_ms - self.created_ms

    # --- appends

    def append(self, largest_offset: int, headers: Sequence[BatchHeader | AppendSpan], data: Bytes) -> None:
        """Write whole batches. `headers` are their headers (or spans) in order, `largest_offset` is the last batch's last offset.

        The caller has checked the checksums. Raises OffsetOverflowError before anything is written, InvalidOffsetError for an
        offset at or below an index entry's, and StorageError if the disk fails. After an error nothing was appended, or the
        message says that the file could not be truncated.
        """
        if not data:
            return
        if not 0 <= largest_offset - self.base_offset <= INT32_MAX:
            raise OffsetOverflowError(
                f"offset {largest_offset} is too far from the segment's base offset {self.base_offset}", path=self.log.path
            )
        start = self.log.size_bytes
        since = self.bytes_since_last_index_entry
        max_timestamp, offset_of_max = self._largest()
        try:
            self.log.append(data)
            if since + len(data) - headers[-1].size > self.index_interval_bytes:
                since, max_timestamp, offset_of_max = self._add_entries(headers, start, max_timestamp, offset_of_max)
            else:
                since += len(data)
                for header in headers:
                    if header.max_timestamp > max_timestamp:
                        max_timestamp, offset_of_max = header.max_timestamp, header.last_offset
        except BaseException as error:
            self._take_back(start, error)
            raise
        if start == 0:
            self._rolling_based_timestamp = headers[0].max_timestamp
        self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, offset_of_max
        self.bytes_since_last_index_entry = since

    def _add_entries(
        self, headers: Sequence[BatchHeader | AppendSpan], position: int, max_timestamp: int, offset_of_max: int
    ) -> tuple[int, int, int]:
        """Add the index entries of batches written at `position`: all, or none with an error.

        Returns the bytes since the last entry, and the largest timestamp with its offset.
        """
        since, interval = self.bytes_since_last_index_entry, self.index_interval_bytes
        offset_index, time_index = self.offset_index.live(), self.time_index.live()
        offset_entries, time_entries = offset_index.entries, time_index.entries
        try:
            for header in headers:
                if header.max_timestamp > max_timestamp:
                    max_timestamp, offset_of_max = header.max_timestamp, header.last_offset
                if since > interval:
                    # The index can only have become full within this append: otherwise the segment would have rolled.
                    if offset_index.entries < offset_index.max_entries:
                        offset_index.append(header.last_offset, position)
                    if time_index.entries < time_index.max_entries - 1:
                        time_index.maybe_append(max_timestamp, offset_of_max)
                    since = 0
                position += header.size
                since += header.size
            self.write_index_entries(self.index_write_behind)
        except BaseException:
            self.offset_index.keep(offset_entries)
            self.time_index.keep(time_entries)
            raise
        return since, max_timestamp, offset_of_max

    def write_index_entries(self, at_least: int = 1) -> None:
        """Write each index's pending entries if there are at least `at_least`. Raises StorageError."""
        for index in (self.offset_index, self.time_index):
            if index.unwritten_entries >= at_least:
                index.write_entries()

    def finish_index_entries(self) -> None:
        """Write all pending index entries, and close the indexes' descriptors until they are used again. Raises StorageError."""
        self.write_index_entries()
        for index in (self.offset_index, self.time_index):
            index.release()

    def _take_back(self, size_bytes: int, error: BaseException) -> None:
        """Truncate the `.log` after an append that failed with `error`. A failed write to the `.log` was undone already."""
        if self.log.size_bytes == size_bytes:
            return
        try:
            self.log.take_back(size_bytes)
        except StorageError as second:
            raise StorageError(
                f"{error}; nor could the log be truncated to {size_bytes} bytes, which will be retried: {second.message}",
                path=self.log.path,
            ) from error

    def update_txn_index(self, completed: CompletedTxn, last_stable_offset: int) -> None:
        """Record a transaction that ended in this segment, if it was aborted. Raises StorageError."""
        if completed.is_aborted:
            self.txn_index.append(
                AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)
            )

    # --- truncation

    def truncate_to(self, offset: int) -> int:
        """Remove the batch with `offset`, or the first one above it, and all after it; return how many bytes were removed (§4.8).

        The indexes get their full capacity again, because the segment may become the active one. Raises CorruptBatchError,
        StorageError.
        """
        found = self.translate_offset(offset)
        self.forget_what_was_checked()
        self._is_largest_checked = False
        had_timestamps = self.max_timestamp_and_offset_so_far.timestamp >= 0
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.resize_indexes()
        removed = 0 if found is None else self.log.truncate_to(found.position)
        if self.log.size_bytes == 0:
            self.created_ms = self._clock.now_ms()
            self._rolling_based_timestamp = None
        self.bytes_since_last_index_entry = 0
        if had_timestamps:
            self._max_timestamp, self._offset_of_max_timestamp = self._reread_largest()
        return removed

    def _reread_largest(self) -> TimestampOffset:
        """Return the largest timestamp from the time index's last entry and the batches after it."""
        largest = self.time_index.last_entry
        for header in self.batches_from(largest.offset):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest

    # --- recovery

    def reset_for_recovery(self) -> None:
        """Drop the indexes' content, and everything that is known from it (§4.7). Raises StorageError."""
        self.offset_index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self._max_timestamp = self._offset_of_max_timestamp = UNKNOWN
        self.forget_what_was_checked()
        self._is_largest_checked = False
        self._rolling_based_timestamp = None
        self.bytes_since_last_index_entry = 0

    def install_recovered(
        self, valid_bytes: int, offset_entries: Bytes, time_entries: Bytes, max_timestamp: int, offset_of_max_timestamp: int
    ) -> int:
        """Truncate the `.log` to `valid_bytes` and install the rebuilt indexes; return how many bytes were removed (§4.7).

        The last time index entry is added here, and both indexes are trimmed. Entries beyond the capacity are left out. Raises
        StorageError.
        """
        removed = self.log.truncate_to(valid_bytes)
        self.offset_index.install(offset_entries)
        self.time_index.install(time_entries)
        if max_timestamp >= 0:
            self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, offset_of_max_timestamp
        self._finish_indexes()
        self.log.release()
        return removed

    def sanity_check(self, time_index_newly_created: bool) -> None:
        """Check what loading requires (§2.7): an `.index`, and a valid transaction index.

        A `.timeindex` that the caller found missing is created, empty. Raises CorruptIndexError, also for a missing `.index`.
        """
        if not self.offset_index.path.exists():
            raise CorruptIndexError("a segment has no offset index", path=self.offset_index.path)
        if time_index_newly_created:
            self.time_index.resize(0)
            self.time_index.rest()
        self.txn_index.sanity_check()

    # --- closing

    def on_become_inactive(self) -> None:
        """Finish the files at a roll: add the last time index entry, and trim the indexes and the `.log`. Nothing is synced.
        Raises StorageError.
        """
        self._finish_indexes()
        self.log.trim()

    def _finish_indexes(self) -> None:
        """Add the last time index entry, trim both indexes, and release their memory."""
        largest = self.max_timestamp_and_offset_so_far
        self.time_index.maybe_append(largest.timestamp, largest.offset, skip_full_check=True)
        self.offset_index.trim_to_valid_size()
        self.time_index.trim_to_valid_size()
        self.offset_index.rest()
        self.time_index.rest()

    def close(self) -> None:
        """Finish the files: add the last time index entry if the largest timestamp is known (§4.11), trim, sync and close.

        Raises StorageError, but only after everything was closed.
        """
        with contextlib.ExitStack() as stack:
            for part in (self.txn_index, self.log, self.time_index, self.offset_index):
                stack.callback(part.close)
            if self._max_timestamp != UNKNOWN:
                try:
                    timestamp, offset = self._largest()
                    # Kafka has entries with times for batches without timestamps (v0).
                    if timestamp > self.time_index.last_entry.timestamp:
                        self.time_index.maybe_append(timestamp, offset, skip_full_check=True)
                except Exception as error:
                    logger.warning("%s: the last entry could not be added: %s", self.time_index.path, error)

    def _largest(self) -> tuple[int, int]:
        """Return the largest timestamp so far (ms) and its batch's last offset, initially from the time index's last entry."""
        if self._max_timestamp == UNKNOWN:
            self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last_entry
        return self._max_timestamp, self._offset_of_max_timestamp

    def _first_timestamp(self) -> int | None:
        if self._rolling_based_timestamp is None:
            header = self.log.first_batch()
            if header is not None:
                self._rolling_based_timestamp = header.max_timestamp
        return self._rolling_based_timestamp
