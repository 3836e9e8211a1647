"""Compacts one log: of each key the latest record stays, everything else goes (spec §15).

| step | |
|---|---|
| 1 | the keys of the dirty section, each with its latest offset, go into an `SkimpyOffsetMap`, as far as it has room |
| 2 | the segments up to there are put into groups, each small enough for one segment (`segment_grouping`) |
| 3 | each group is read and filtered (`cleaning_filter`) into a new segment, ``<base>.log.cleaned`` and its indexes |
| 4 | the new segment is finished, synced, given the last source's modification time, and takes the group's place |

Offsets never change; the log below the map's end then holds each key's latest record, besides tombstones and markers whose time
has not come. The new segment's indexes are those that appending its batches makes, so its largest timestamp is that of what
stayed: it may be smaller than before.

A pass is a generator of short steps, so that the thread that owns the log can do other things in between: appends, reads and
rolls do not disturb it. Another thread, if there is one, reads the batches, maps and filters them, and waits for syncs: the
log's own thread appends what stays, and puts segments into place.
Truncation and deletion do disturb it: they end the pass first (`cleaner_manager`). A pass that is ended, or fails, removes what
it was writing; groups that are in place by then stay. It may run again at any time.

Differences from Kafka, on purpose: checksums are verified; what is left of a failed pass is removed at once; a full disk ends the
pass, not the partition, whose log is as it was.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from tidelog.clock import Clock
from tidelog.errors import CorruptBatchError, OffsetOverflowError, StorageError
from tidelog.formats import names
from tidelog.formats.non_blocking_read import NotCachedError, non_blocking
from tidelog.records.batch import LOG_OVERHEAD, MIN_HEADER_BYTES, BatchHeader, iter_headers, read_header
from tidelog.records.compaction import KeyMapper
from tidelog.records.filter import FilterResult, filter_to
from tidelog.storage.compaction.cleanable import LogToClean
from tidelog.storage.compaction.cleaned_transactions import CleanedTransactions
from tidelog.storage.compaction.cleaning_filter import CleaningFilter, last_records_of_active_producers
from tidelog.storage.compaction.segment_grouping import group_segments_by_size
from tidelog.storage.compaction.skimpy_offset_map import DEFAULT_DEDUPE_BUFFER_BYTES, DEFAULT_LOAD_FACTOR, SkimpyOffsetMap
from tidelog.storage.loading.overflow import split_overflowed_segment
from tidelog.storage.partition.flush_job import sync_files
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.segment.log_file import LogFile, delete_file
from tidelog.storage.segment.log_segment import LogSegment

logger = logging.getLogger("tidelog.storage")

MAX_WARMINGS = 16
"""So often one read may find that bytes are not in memory. Then memory is short, and it waits for the disk."""

DEFAULT_IO_BUFFER_BYTES = 1024 * 1024
"""How much of a log is read in one step; a larger batch has a step of its own."""

JOB_BYTES = 8 * 1024 * 1024
"""So much another thread reads at a time: each time that it hands over costs milliseconds on a machine with much to do."""

_T = TypeVar("_T")
Steps = Generator[int | Callable[[], object], None, _T]
"""Yields after each step the bytes that it read and wrote; or a function that waits for a disk, or keeps a processor busy,
to be called on any thread before it continues. Its exceptions are thrown into it. If the steps are given up meanwhile, nobody
needs what it comes to.
"""


@dataclass
class CleanerStats:
    """A pass's result. Times in epoch ms, by the injected clock."""

    start_ms: int = 0
    end_ms: int = 0
    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    """Records without a key."""
    buffer_utilization: float = 0.0


class CleanResult(NamedTuple):
    """`end_offset` is where the next pass begins."""

    end_offset: int
    stats: CleanerStats


def run(steps: Steps[_T]) -> _T:
    """Do all the steps and return what they come to."""
    error: Exception | None = None
    try:
        while True:
            step = next(steps) if error is None else steps.throw(error)
            error = None if isinstance(step, int) else _error_of(step)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


class Cleaner:
    """Compacts logs, one at a time. `memory_bytes` and `load_factor` are about the map, see `skimpy_offset_map`."""

    def __init__(
        self,
        clock: Clock,
        *,
        memory_bytes: int = DEFAULT_DEDUPE_BUFFER_BYTES,
        load_factor: float = DEFAULT_LOAD_FACTOR,
        io_buffer_bytes: int = DEFAULT_IO_BUFFER_BYTES,
    ) -> None:
        self.memory_bytes = memory_bytes
        """Of the next pass."""
        self.offset_map = SkimpyOffsetMap(memory_bytes, load_factor=load_factor)
        self._load_factor = load_factor
        self._clock = clock
        self._io_buffer_bytes = io_buffer_bytes

    def clean(self, cleanable: LogToClean, now_ms: int | None = None) -> CleanResult | None:
        """Compact a log in one go, see `steps`."""
        return run(self.steps(cleanable, now_ms))

    def steps(self, cleanable: LogToClean, now_ms: int | None = None) -> Steps[CleanResult | None]:
        """Compact a log, at the time `now_ms` (default: the clock's) for tombstones and markers.

        Comes to None if a segment had to be split first (`overflow`): the next pass will do. Raises CorruptDataError for a
        log that is damaged, StorageError where the disk refuses; LogOfflineError if that was in the middle of a replacement.
        """
        if self.offset_map.memory_bytes != self.memory_bytes:
            self.offset_map = SkimpyOffsetMap(self.memory_bytes, load_factor=self._load_factor)
        log = cleanable.log
        now_ms = self._clock.now_ms() if now_ms is None else now_ms
        stats = CleanerStats(start_ms=self._clock.now_ms())
        clean = log.segments.values(0, cleanable.first_dirty_offset)
        old_format_horizon_ms = clean[-1].last_modified_ms - log.config.delete_retention_ms if clean else 0
        try:
            yield from self.build_offset_map(log, cleanable.first_dirty_offset, cleanable.first_uncleanable_offset, stats)
            end_offset = self.offset_map.latest_offset + 1
            stats.buffer_utilization = self.offset_map.utilization
            transactions = CleanedTransactions()
            for group in group_segments_by_size(
                log.segments.values(0, end_offset),
                log.config.segment_bytes,
                log.config.segment_index_bytes,
                cleanable.first_uncleanable_offset,
            ):
                if not (yield from self.clean_segments(log, group, transactions, now_ms, old_format_horizon_ms, stats)):
                    return None
        finally:
            self.offset_map.clear()
        stats.end_ms = self._clock.now_ms()
        return CleanResult(max(end_offset, cleanable.first_dirty_offset), stats)

    # --- the map

    def build_offset_map(self, log: PartitionLog, start_offset: int, end_offset: int, stats: CleanerStats) -> Steps[None]:
        """Fill the map with the keys of the records in [start_offset, end_offset), as far as there is room."""
        room = self.offset_map.begin(end_offset - start_offset)  # No more keys than offsets.
        transactions = CleanedTransactions()
        aborted = yield from in_memory(partial(log.local.collect_aborted_transactions, start_offset, end_offset))
        transactions.add_aborted_transactions(aborted)
        mapper = KeyMapper(self.offset_map.table, start_offset, room)
        dirty = log.segments.values(start_offset, end_offset)
        try:
            for i, segment in enumerate(dirty):
                yield from self._map_segment(segment, start_offset, mapper, transactions, stats)
                if mapper.is_full:
                    logger.debug("%s: the offset map is full at offset %d", segment.log.path, self.offset_map.latest_offset)
                    return
                # Offsets that are missing at the segment's end are skipped as well.
                next_base = dirty[i + 1].base_offset if i + 1 < len(dirty) else end_offset
                self.offset_map.latest_offset = next_base - 1
        finally:
            stats.map_messages_read = mapper.messages_read

    def _map_segment(
        self,
        segment: LogSegment,
        start_offset: int,
        mapper: KeyMapper,
        transactions: CleanedTransactions,
        stats: CleanerStats,
    ) -> Steps[None]:
        source, position = _opened(segment), 0
        if segment.base_offset < start_offset:
            first = yield from in_memory(lambda: next(segment.batches_from(start_offset), None))
            position = segment.size_bytes if first is None else first.position
        while position < segment.size_bytes:
            size = yield from _elsewhere(partial(self._map_batches, source, position, mapper, transactions))
            stats.map_bytes_read += size
            position += size
            yield size
            if mapper.is_full:
                return

    def _map_batches(self, source: LogFile, position: int, mapper: KeyMapper, transactions: CleanedTransactions) -> int:
        """Map the batches from `position` on; return how many bytes those are. One that fills the map is not among them."""
        done = 0
        while done < JOB_BYTES and position + done < source.size_bytes and not mapper.is_full:
            view = self._read_batches(source, position + done)
            done += _map_batches(mapper, transactions, view, position + done, source.path)
        return done

    # --- new segments

    def clean_segments(
        self,
        log: PartitionLog,
        segments: Sequence[LogSegment],
        transactions: CleanedTransactions,
        now_ms: int,
        old_format_horizon_ms: int,
        stats: CleanerStats,
    ) -> Steps[bool]:
        """Write what stays of `segments` into one, and put that into their place; False if one of them was split instead."""
        cleaned = _new_cleaned_segment(log, segments[0].base_offset, self._clock)
        transactions.cleaned_index = cleaned.txn_index
        last_records = last_records_of_active_producers(log.producer_state)
        try:
            for i, segment in enumerate(segments):
                if i + 1 < len(segments):
                    next_offset = segments[i + 1].base_offset
                else:
                    next_offset = yield from in_memory(segment.read_next_offset)
                # All of them, for the new index: also those whose records are below, in a segment that was done before.
                aborted = yield from in_memory(partial(log.local.collect_aborted_transactions, segment.base_offset, next_offset))
                transactions.add_aborted_transactions(aborted)
                record_filter = CleaningFilter(
                    self.offset_map,
                    transactions,
                    last_records,
                    now_ms=now_ms,
                    delete_retention_ms=log.config.delete_retention_ms,
                    retains_old_tombstones=segment.last_modified_ms > old_format_horizon_ms,
                    path=segment.log.path,
                )
                try:
                    max_bytes = log.config.max_message_bytes
                    yield from self._clean_into(cleaned, segment, record_filter, transactions, max_bytes, stats)
                except OffsetOverflowError:
                    cleaned.delete_if_exists()
                    _split(log, segment)
                    return False
                stats.invalid_messages_read += record_filter.without_key
            cleaned.on_become_inactive()
            yield partial(sync_files, cleaned.begin_sync())
            cleaned.set_last_modified(segments[-1].last_modified_ms)
            cleaned.close_idle()
        except BaseException:
            with contextlib.suppress(StorageError):
                cleaned.delete_if_exists()
            raise
        yield from log.replacing_segments([cleaned], segments)
        return True

    def _clean_into(
        self,
        cleaned: LogSegment,
        segment: LogSegment,
        record_filter: CleaningFilter,
        transactions: CleanedTransactions,
        max_batch_bytes: int,
        stats: CleanerStats,
    ) -> Steps[None]:
        source, position = _opened(segment), 0
        while position < segment.size_bytes:
            results = yield from _elsewhere(partial(self._filter_batches, source, position, record_filter, max_batch_bytes))
            transactions.write_noted()
            for result, headers in results:
                if result.data:
                    cleaned.append(headers[-1].last_offset, headers, result.data)
                position += result.bytes_read
                stats.bytes_read += result.bytes_read
                stats.messages_read += result.messages_read
                stats.bytes_written += result.bytes_retained
                stats.messages_written += result.messages_retained
                yield result.bytes_read + result.bytes_retained

    def _filter_batches(
        self, source: LogFile, position: int, record_filter: CleaningFilter, max_batch_bytes: int
    ) -> list[tuple[FilterResult, list[BatchHeader]]]:
        """Return what stays of the batches from `position` on, a result and its headers for each read."""
        results = []
        done = retained = 0
        while done < JOB_BYTES and retained < self._io_buffer_bytes and position + done < source.size_bytes:
            view = self._read_batches(source, position + done)
            result = filter_to(view, record_filter, position=position + done, path=source.path, max_batch_bytes=max_batch_bytes)
            results.append((result, result.headers()))
            done += result.bytes_read
            retained += result.bytes_retained
        return results

    def _read_batches(self, log: LogFile, position: int) -> memoryview:
        """Return bytes from `position` on that begin with a whole batch. Raises CorruptBatchError where there is none."""
        view = memoryview(log.read(position, self._io_buffer_bytes))
        if next(iter_headers(view, position, log.path), None) is not None:
            return view
        left = log.size_bytes - position
        if left < MIN_HEADER_BYTES:
            raise CorruptBatchError("a batch is cut off", path=log.path, position=position, found=f"{left} bytes")
        size = int.from_bytes(view[8:LOG_OVERHEAD]) + LOG_OVERHEAD
        if size > left:
            raise CorruptBatchError(
                "a batch is longer than the rest of its segment",
                path=log.path,
                position=position,
                found=f"{size} bytes",
                expected=f"at most {left}",
            )
        view = memoryview(log.read(position, size))
        read_header(view, 0, position, log.path)
        return view


def _map_batches(mapper: KeyMapper, transactions: CleanedTransactions, view: memoryview, position: int, path: Path) -> int:
    """Map the batches of one read; return how many bytes those are."""
    index = 0
    while True:
        index, producers = mapper.add_run(view, index, transactions.undisturbed_end)
        transactions.on_committed(producers)
        header = None if mapper.is_full else next(iter_headers(view[index:], position + index, path), None)
        if header is None:
            return index
        batch = view[index : index + header.size]
        if header.is_control:
            transactions.on_control_batch(header, batch, path)
            mapper.skip(header, 1)
        elif transactions.on_batch(header):
            mapper.skip(header, header.record_count)
        else:
            mapper.add(header, batch, path=path)
            if mapper.is_full:
                return index
        index += header.size


def _elsewhere(work: Callable[[], _T]) -> Steps[_T]:
    """Return what `work` returns, which any thread does."""
    results: list[_T] = []
    yield lambda: results.append(work())
    return results[0]


def in_memory(read: Callable[[], _T]) -> Steps[_T]:
    """Return what `read` returns, which finds all that it needs in memory: what is not there is read by another thread first."""
    warmings = 0
    while warmings < MAX_WARMINGS:
        try:
            with non_blocking():
                return read()
        except NotCachedError as missing:
            warmings += not missing.is_progress
            yield missing.prefetch
    return read()


def _opened(segment: LogSegment) -> LogFile:
    """Return a segment's `.log` with a descriptor of its own, for other threads; what holds it last gives that back."""
    log = LogFile(segment.log.path, segment.size_bytes)
    log.descriptor()  # Where descriptors are short, this thread's logs can give some back.
    return log


def _new_cleaned_segment(log: PartitionLog, base_offset: int, clock: Clock) -> LogSegment:
    """Begin a segment that is not in its place yet; what an earlier pass left of it goes."""
    for suffix in (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX):
        delete_file(log.directory / (names.file_name(base_offset, suffix) + names.CLEANED_SUFFIX))
    return LogSegment.open(
        log.directory,
        base_offset,
        log.config,
        clock,
        init_file_size=log.config.segment_bytes,
        preallocate=log.config.preallocate,
        suffix=names.CLEANED_SUFFIX,
    )


def _split(log: PartitionLog, segment: LogSegment) -> None:
    with log.writing("split a segment"):
        split = split_overflowed_segment(segment, log.segments, log.directory, log.config, log.clock, log.scheduler)
        log.delete_producer_snapshots(split.removed)
