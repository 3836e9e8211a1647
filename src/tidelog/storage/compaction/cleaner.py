"""Compacts one log: it keeps the latest record of each key and removes the others (spec §15).

| step | |
|---|---|
| 1 | the keys of the dirty section are put into a `SkimpyOffsetMap` with their latest offsets, until it is full |
| 2 | the segments up to that offset are grouped, each group small enough for one segment (`segment_grouping`) |
| 3 | each group is read and filtered (`cleaning_filter`) into a new segment, ``<base>.log.cleaned`` and its indexes |
| 4 | the new segment is closed, synced, given the last source's modification time, and replaces the group |

Offsets never change. Below the map's end the log then holds each key's latest record, and tombstones and markers whose delete
horizon has not passed. Appending the kept batches builds the new segment's indexes. The segment's largest timestamp is therefore
the largest one of the kept records, and may be smaller than before.

A pass is a generator of short steps, so that the log's thread can do other work in between. Appends, reads and rolls do not
disturb a pass. Another thread, if there is one, reads and maps the batches, and writes and syncs the new segment. The log's own
thread swaps the segments.

Truncation and deletion must abort the pass first (`cleaner_manager`). A pass that is aborted (`ReplacementAbortedError`) or fails
removes its unfinished segment; groups that were already replaced stay replaced. The log can be compacted again at any time. If
the generator is only closed, for example by the garbage collector, the files stay as they are after a crash.

Intended differences from Kafka: checksums are verified; the files of a failed pass are removed at once; a full disk aborts the
pass, and leaves the partition online and its log unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from tidelog.clock import Clock
from tidelog.errors import OffsetOverflowError
from tidelog.formats import names
from tidelog.formats.non_blocking_read import NotCachedError, non_blocking
from tidelog.records.batch import iter_headers
from tidelog.records.compaction import KeyMapper
from tidelog.storage.compaction.cleanable import LogToClean
from tidelog.storage.compaction.cleaned_transactions import CleanedTransactions
from tidelog.storage.compaction.cleaner_stats import CleanerStats
from tidelog.storage.compaction.cleaning_filter import CleaningFilter, last_records_of_active_producers
from tidelog.storage.compaction.group_writer import GroupWriter
from tidelog.storage.compaction.segment_grouping import group_segments_by_size
from tidelog.storage.compaction.skimpy_offset_map import DEFAULT_DEDUPE_BUFFER_BYTES, DEFAULT_LOAD_FACTOR, SkimpyOffsetMap
from tidelog.storage.compaction.source_reader import OPEN_AT_ONCE, in_parts, opened, read_batches, take_share
from tidelog.storage.loading.overflow import split_overflowed_segment
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.segment.log_file import LogFile, delete_file
from tidelog.storage.segment.log_segment import LogSegment

logger = logging.getLogger("tidelog.storage")

MAX_WARMINGS = 16
"""After this many attempts in a row that found bytes not in memory, memory is assumed to be short, and the read waits for the
disk.
"""

DEFAULT_IO_BUFFER_BYTES = 1024 * 1024
"""How many bytes of a log are read at a time; a larger batch is read by itself."""

INDEX_BYTES = 16 * 1024
"""The cost of looking up the sizes of a segment's indexes, given as the number of bytes that a pass processes in the same
time.
"""

_T = TypeVar("_T")
Steps = Generator[int | Callable[[], object], None, _T]
"""A generator of steps. It yields the bytes that a step has read and written, or a function that waits for a disk or takes long
to compute. Any thread may call that function before the generator continues; its exception is raised in the generator. If the
generator is closed meanwhile, the function's result is ignored.
"""


class CleanResult(NamedTuple):
    """A pass's result. `end_offset` is the offset at which the next pass begins."""

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
    """Compacts logs, one at a time. `memory_bytes` and `load_factor` configure the map: see `skimpy_offset_map`."""

    def __init__(
        self,
        clock: Clock,
        *,
        memory_bytes: int = DEFAULT_DEDUPE_BUFFER_BYTES,
        load_factor: float = DEFAULT_LOAD_FACTOR,
        io_buffer_bytes: int = DEFAULT_IO_BUFFER_BYTES,
    ) -> None:
        self.memory_bytes = memory_bytes
        """The memory of the map, starting with the next pass."""
        self.offset_map = SkimpyOffsetMap(memory_bytes, load_factor=load_factor)
        self._load_factor = load_factor
        self._clock = clock
        self._io_buffer_bytes = io_buffer_bytes
        self.has_threads = False
        """Whether another thread calls the functions that the steps yield."""

    def clean(self, cleanable: LogToClean, now_ms: int | None = None) -> CleanResult | None:
        """Compact a log without interruption: see `steps`."""
        return run(self.steps(cleanable, now_ms))

    def steps(self, cleanable: LogToClean, now_ms: int | None = None) -> Steps[CleanResult | None]:
        """Compact a log in steps. `now_ms` decides which tombstones and markers have passed their delete horizon; the default is
        the clock's time.

        The result of the last step says what was cleaned. It is None if a segment's offsets overflowed, and the segment was split
        instead (`overflow`): run another pass in that case. Raises CorruptDataError for a
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
            segments = log.segments.values(0, end_offset)
            for number, segment in enumerate(segments, 1):
                _ = segment.offset_index.size_bytes, segment.time_index.size_bytes  # The file is read only once.
                if not number % OPEN_AT_ONCE:
                    yield OPEN_AT_ONCE * INDEX_BYTES
            for group in group_segments_by_size(
                segments,
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
        # Missing offsets at a segment's end are skipped, too.
        ends = [segment.base_offset for segment in dirty[1:]] + [end_offset] * bool(dirty)
        for part in in_parts(list(zip(dirty, ends, strict=True))):
            sources = []
            for segment, end in part:
                position = 0
                if segment.base_offset < start_offset:
                    first = yield from in_memory(lambda: next(segment.batches_from(start_offset), None))  # noqa: B023
                    position = segment.size_bytes if first is None else first.position
                sources.append((opened(segment), position, end))
            steps = self._mapping(sources, mapper, transactions, stats)
            yield from self._shares(partial(take_share, steps), stats)
            if mapper.is_full:
                logger.debug("%s: the offset map is full at offset %d", log.directory, self.offset_map.latest_offset)
                return

    def _mapping(
        self,
        sources: Sequence[tuple[LogFile, int, int]],
        mapper: KeyMapper,
        transactions: CleanedTransactions,
        stats: CleanerStats,
    ) -> Iterator[None]:
        """Map the batches of these sources (file, start position, end offset) until the map is full. After each source, the map
        covers all offsets below that source's end offset. Each step is one read.
        """
        table = self.offset_map.table  # This pass's map: the pass may have ended.
        for source, position, end in sources:
            while position < source.size_bytes:
                view = read_batches(source, position, self._io_buffer_bytes)
                size = _map_batches(mapper, transactions, view, position, source.path)
                position += size
                stats.map_bytes_read += size
                stats.map_messages_read = mapper.messages_read
                yield
                if mapper.is_full:
                    return
            table.latest_offset = end - 1
            source.release()

    def _shares(self, take: Callable[[bool], bool], stats: CleanerStats) -> Steps[None]:
        """Call `take` until it returns True. The argument of `take` says whether another thread calls it."""
        while True:
            before = stats.work_bytes
            if (yield from _elsewhere(partial(take, self.has_threads))):
                return
            if not self.has_threads:
                yield stats.work_bytes - before

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
        start = segments[0].base_offset
        end = yield from in_memory(segments[-1].read_next_offset)
        # The new index needs all aborted transactions, even if their records are in a segment that was compacted before.
        aborted = yield from in_memory(partial(log.local.collect_aborted_transactions, start, end))
        transactions.add_aborted_transactions(aborted)
        cleaned = _new_cleaned_segment(log, start, self._clock)
        transactions.cleaned_index = cleaned.txn_index
        record_filter = CleaningFilter(
            self.offset_map,
            transactions,
            last_records_of_active_producers(log.producer_state),
            now_ms=now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
        )
        writer = GroupWriter(
            cleaned,
            transactions,
            record_filter,
            stats,
            buffer_bytes=self._io_buffer_bytes,
            max_batch_bytes=log.config.max_message_bytes,
            old_format_horizon_ms=old_format_horizon_ms,
        )
        try:
            for part in in_parts(segments):
                steps = writer.copy([opened(segment) for segment in part])
                if part[-1] is segments[-1]:
                    steps = chain(steps, writer.finish(segments[-1].last_modified_ms))
                yield from self._shares(partial(writer.run, steps), stats)
        except OffsetOverflowError:
            writer.discard()
            _split(log, segments[writer.index])
            return False
        except GeneratorExit:
            writer.stop()
            raise
        except BaseException:
            writer.discard()
            raise
        stats.invalid_messages_read += record_filter.without_key
        yield from log.replacing_segments([cleaned], segments)
        return True


def _map_batches(mapper: KeyMapper, transactions: CleanedTransactions, view: memoryview, position: int, path: Path) -> int:
    """Map the batches of one read, and return their size in bytes."""
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
    """Run `work`, possibly on another thread, and return its result."""
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
