"""Writes the kept batches of a group of segments into a new segment: the third step of a pass (`cleaner`).

Until the new segment replaces the group, only the pass uses it, so another thread may read, filter, append and sync. If the pass
is aborted meanwhile, that thread stops after its current read and removes the files: `discard` never waits for the thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence

from tidelog.errors import StorageError
from tidelog.records.filter import filter_to
from tidelog.storage.compaction.cleaned_transactions import CleanedTransactions
from tidelog.storage.compaction.cleaner_stats import CleanerStats
from tidelog.storage.compaction.cleaning_filter import CleaningFilter
from tidelog.storage.compaction.source_reader import read_batches, take_share
from tidelog.storage.partition.flush_job import sync_files
from tidelog.storage.segment.append_spans import append_spans
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.log_segment import LogSegment

logger = logging.getLogger("tidelog.storage")


class GroupWriter:
    """Fills `cleaned` from one source after the other. `old_format_horizon_ms` decides which tombstones of formats v0 and v1 are
    kept.
    """

    def __init__(
        self,
        cleaned: LogSegment,
        transactions: CleanedTransactions,
        record_filter: CleaningFilter,
        stats: CleanerStats,
        *,
        buffer_bytes: int,
        max_batch_bytes: int,
        old_format_horizon_ms: int,
    ) -> None:
        self.cleaned = cleaned
        self.index = -1
        """The number of the source that is being read."""
        self._transactions = transactions
        self._filter = record_filter
        self._stats = stats
        self._buffer_bytes = buffer_bytes
        self._max_batch_bytes = max_batch_bytes
        self._old_format_horizon_ms = old_format_horizon_ms
        self._guard = threading.Lock()
        """Held while a thread runs steps."""
        self._is_stopped = False
        self._is_discarded = self._is_deleted = False

    def copy(self, sources: Sequence[LogFile]) -> Iterator[None]:
        """Append the kept batches of these sources; each step is one read."""
        for source in sources:
            self.index += 1
            self._filter.begin_source(source.path, retains_old_tombstones=source.modified_ms > self._old_format_horizon_ms)
            position = 0
            while position < source.size_bytes:
                position += self._copy(source, position)
                yield
            source.release()

    def finish(self, modified_ms: int) -> Iterator[None]:
        """Complete the new segment on the disk, in one step; `modified_ms` becomes its modification time."""
        cleaned = self.cleaned
        cleaned.on_become_inactive()
        sync_files(cleaned.begin_sync())
        cleaned.set_last_modified(modified_ms)
        cleaned.close_idle()
        yield

    def run(self, steps: Iterator[None], is_aside: bool) -> bool:
        """Run some of these steps, on any thread. Return whether all steps have been run."""
        try:
            with self._guard:
                return not self._is_stopped and take_share(steps, is_aside, lambda: self._is_stopped)
        finally:
            if self._is_discarded:
                self._delete()

    def stop(self) -> None:
        """Make a thread that is running steps stop early. The files are kept, and closed by their last user."""
        self._is_stopped = True

    def discard(self) -> None:
        """Remove the new segment, now or once the thread that is running steps has stopped. Never raises."""
        self._is_stopped = self._is_discarded = True
        self._delete()

    def _delete(self) -> None:
        # A share's thread checks the flag after it has released the guard, so one of the two threads gets the guard here.
        if self._guard.acquire(blocking=False):
            try:
                if not self._is_deleted:
                    self._is_deleted = True
                    self.cleaned.delete_if_exists()
            except StorageError as error:
                logger.warning("%s: cannot remove the unfinished segment of a compaction: %s", self.cleaned.log.path, error)
            finally:
                self._guard.release()

    def _copy(self, source: LogFile, position: int) -> int:
        """Append the kept part of one read, and return how many bytes were read."""
        view = read_batches(source, position, self._buffer_bytes)
        result = filter_to(view, self._filter, position=position, path=source.path, max_batch_bytes=self._max_batch_bytes)
        self._transactions.write_noted()
        if result.data:
            cleaned = self.cleaned
            spans, last = append_spans(result.data, cleaned.bytes_since_last_index_entry, cleaned.index_interval_bytes)
            cleaned.append(last, spans, result.data)
        stats = self._stats
        stats.bytes_read += result.bytes_read
        stats.messages_read += result.messages_read
        stats.bytes_written += result.bytes_retained
        stats.messages_written += result.messages_retained
        return result.bytes_read
