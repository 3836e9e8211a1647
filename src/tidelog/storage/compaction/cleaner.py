"""Compacts one log: it keeps the latest record of each key and removes the others (spec §15).

| step | |
|---|---|
| 1 | the keys of the dirty section are put into a `SkimpyOffsetMap` with their latest offsets, until it is full |
| 2 | the segments up to that offset are grouped, each group small enough for one segment (`segment_grouping`) |
| 3 | each group is read and filtered (`cleaning_filter`) into a new segment, ``<base>.log.cleaned`` and its indexes |
| 4 | the new segment is closed, synced, given the last source's modification time, and replaces the group |

Offsets never change. Below the map's end the log then holds each key's latest record, and tombstones and markers whose delete
horizon has not passed. Appending the kept batches builds the new segment's indexes. So its largest timestamp is that of the kept
records, and may be smaller than before.

A pass is a generator of short steps, so that the log's thread can do other work in between. Appends, reads and rolls do not
disturb a pass. Another thread, if there is one, reads, maps and filters the batches, and waits for syncs. The log's own thread
appends the kept batches and swaps the segments.
Truncation and deletion must abort the pass first (`cleaner_manager`). A pass that is aborted (`ReplacementAbortedError`) or fails
removes its unfinished segment; groups that were already replaced stay replaced. It may run again at any time. A pass that is only
closed, perhaps by the garbage collector after its folder was given up, leaves the files as a crash does.

It differs from Kafka on purpose: checksums are verified; the files of a failed pass are removed at once; a full disk aborts the
pass and leaves the partition online and its log unchanged.
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
"""After this many attempts in a row that found bytes not in memory, memory is short, and the read waits for the disk."""

DEFAULT_IO_BUFFER_BYTES = 1024 * 1024
"""How many bytes of a log one step reads; a larger batch takes a step by itself."""

JOB_BYTES = 8 * 1024 * 1024
"""How many bytes another thread reads at a time: each handover between threads costs milliseconds on a busy machine."""

_T = TypeVar("_T")
Steps = Generator[int | Callable[[], object], None, _T]
"""A generator of steps. It yields the bytes that a step has read and written, or a function that waits for a disk or takes long
to compute. Any thread may call that function before the generator continues; its exception is raised in the generator. If the
generator is closed meanwhile, the function's result is ignored.
"""


@dataclass
class CleanerStats:
    """The statistics of a pass. Times are in epoch ms, by the injected clock."""

    start_ms: int = 0
    end_ms: int = 0
    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    """The number of records without a key."""
    buffer_utilization: float = 0.0


class CleanResult(NamedTuple):
    """A pass's result; `end_offset` is where the next pass begins."""

    end_offset: int
    stats: CleanerStats


def run(steps: Steps[_T]) -> _T:
    """Run all steps and return their result."""
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
    """Compacts logs, one at a time. `memory_bytes` and `load_factor` configure the map, see `skimpy_offset_map`."""

    def __init__(
        self,
        clock: Clock,
        *,
        memory_bytes: int = DEFAULT_DEDUPE_BUFFER_BYTES,
        load_factor: float = DEFAULT_LOAD_FACTOR,
        io_buffer_bytes: int = DEFAULT_IO_BUFFER_BYTES,
    ) -> None:
        self.memory_bytes = memory_bytes
        """The map's memory from the next pass on."""
        self.offset_map = SkimpyOffsetMap(memory_bytes, load_factor=load_factor)
        self._load_factor = load_factor
        self._clock = clock
        self._io_buffer_bytes = io_buffer_bytes

    def clean(self, cleanable: LogToClean, now_ms: int | None = None) -> CleanResult | None:
        """Compact a log without interruption, see `steps`."""
        return run(self.steps(cleanable, now_ms))

    def steps(self, cleanable: LogToClean, now_ms: int | None = None) -> Steps[CleanResult | None]:
        """Compact a log. `now_ms` decides about tombstones and markers; the default is the clock's time.

        The result is None if a segment had to be split first (`overflow`); run another pass then. Raise CorruptDataError for a
        damaged log, StorageError for a disk error, LogOfflineError for a disk error during the replacement of segments.
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
        """Fill the map with the keys of the records in [start_offset, end_offset), until it is full."""
        room = self.offset_map.begin(end_offset - start_offset)  # There are no more keys than offsets.
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
                # Missing offsets at the segment's end are skipped, too.
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
        """Map the batches from `position` on; return their size in bytes. The size does not include a batch that no
        longer fits in the map.
        """
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
        """Write the kept batches of `segments` into one segment that replaces them. Return False if one of them was split
        instead.
        """
        cleaned = _new_cleaned_segment(log, segments[0].base_offset, self._clock)
        transactions.cleaned_index = cleaned.txn_index
        last_records = last_records_of_active_producers(log.producer_state)
        try:
            for i, segment in enumerate(segments):
                if i + 1 < len(segments):
                    next_offset = segments[i + 1].base_offset
                else:
                    next_offset = yield from in_memory(segment.read_next_offset)
                # The new index needs all of them, also those whose records are in a segment that was compacted before.
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
        except GeneratorExit:
            cleaned.close_handlers()
            raise
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
        """Return the kept part of the batches from `position` on: a filter result and its headers for each read."""
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
        """Return bytes from `position` on that begin with a complete batch. Raise CorruptBatchError if there is none."""
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
    """Map the batches of one read; return their size in bytes."""
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
    """Return the result of `work`, which any thread may run."""
    results: list[_T] = []
    yield lambda: results.append(work())
    return results[0]


def in_memory(read: Callable[[], _T]) -> Steps[_T]:
    """Return the result of `read`. If bytes are not in memory, another thread reads them first."""
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
    """Open a segment's `.log` with a separate descriptor for other threads. Its last user closes it."""
    log = LogFile(segment.log.path, segment.size_bytes)
    log.descriptor()  # If descriptors run out, logs of this thread can release some.
    return log


def _new_cleaned_segment(log: PartitionLog, base_offset: int, clock: Clock) -> LogSegment:
    """Create a segment with the suffix `.cleaned`, after removing the files of an earlier pass."""
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
