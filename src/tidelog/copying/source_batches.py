"""Turns the batches of a source into batches that a producer can send.

From a producer, a leader accepts only batches whose relative offsets are 0, 1, 2..., with CreateTime and without a delete
horizon. Therefore:

| a batch of the source | becomes |
|---|---|
| v2, whole, without gaps, CreateTime | the same bytes; the header's offset, leader epoch, producer and transaction are reset |
| the same with LogAppendTime | `TimeRule.PRODUCER`: the same bytes; the header gets CreateTime and the largest CreateTime |
| | rebuilt, if a record has no producer's timestamp: the record gets the append time |
| | `TimeRule.LOG`: rebuilt |
| cut by a bound of time or offset; with gaps (compaction); with a delete horizon | rebuilt from the requested rows |
| v0, v1 | rebuilt as v2 |
| control; of an aborted transaction; empty; wholly outside | nothing |

If records are spread over partitions (`spreading`), all batches are rebuilt.

If a copy shifts times, only the headers of whole batches change, because records' times are relative to the header's. Codecs are
kept. `column_rebuilding` rebuilds batches. The checksum of every batch is checked first.

Each copied batch has the source offsets of its records (`runs`, without gaps), and the source offset at which an interrupted copy
resumes (`next_offset`). All requested records below `next_offset` have been returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow.compute as pc

from tidelog.copying.column_rebuilding import Rebuilder, SourceRun, TimeRule, shifted, time_array
from tidelog.copying.spreading import Spread
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME, BatchHeader, check_crc
from tidelog.records.builder import pack_header_v2
from tidelog.records.columns import Columns
from tidelog.records.patch import Writable
from tidelog.sources.chunks import Chunks
from tidelog.sources.reader_resources import ReaderResources
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.split import Split


@dataclass(frozen=True, slots=True)
class CopyRules:
    """A copy's rules for timestamps and partitions."""

    time: TimeRule = TimeRule.PRODUCER
    shift_ms: int = 0
    """Added to every timestamp."""
    spread: Spread | None = None
    """How records are spread over the target's partitions; None to keep each record's partition number."""


class CopiedBatch(NamedTuple):
    """A finished v2 batch with base offset 0 and no producer, ready for `BatchAppender.append`."""

    data: Writable
    runs: tuple[SourceRun, ...]
    """The source offsets of the batch's records; the counts of the runs add up to the record count."""
    record_count: int
    max_timestamp: int
    """The largest timestamp as written, epoch ms, -1 for none."""
    next_offset: int
    """Every requested record below this offset is in this batch or an earlier one; -1 if only a later batch has that information.
    """
    is_rebuilt: bool
    partition: int | None = None
    """The target partition, if a source partition's records are spread over several."""


@dataclass(slots=True)
class CopyCounts:
    """Counts of the source's batches and records."""

    records: int = 0
    batches: int = 0
    rebuilt_batches: int = 0
    """The number of rebuilt batches: their bytes differ from the source's."""
    size_bytes: int = 0
    without_timestamp: int = 0
    """The number of records that a time bound left out because they have no timestamp."""


def copied_or_skipped(
    splits: Sequence[Split], rules: CopyRules, start_offset: int, counts: CopyCounts | None = None
) -> Iterator[CopiedBatch | None]:
    """Yield the copied batches of one partition's splits, in order, from `start_offset` on.

    Also yields None after each batch of the source. So the caller gets control even if gigabytes lie between two requested
    batches. `splits` are from a read_committed plan. `counts` is updated.

    Raises:
        SegmentChangedError, OffsetOutOfRangeError: the source lost planned records.
        CorruptDataError: damaged batches.
        InvalidArgumentError: shifted times would be negative or too large.
        BrokerUnreachableError, BrokerError, ProtocolError
    """
    counts = CopyCounts() if counts is None else counts
    memory = Chunks()
    with ReaderResources() as reading:
        for split in splits:
            if split.end_offset > start_offset:
                wanted = replace(split, start_offset=max(start_offset, split.start_offset))
                yield from _SplitCopier(wanted, rules, counts, memory).copy(reading)


class _SplitCopier:
    """Copies one split."""

    def __init__(self, split: Split, rules: CopyRules, counts: CopyCounts, memory: Chunks) -> None:
        self._split = split
        self._memory = memory
        self._rules = rules
        self._counts = counts
        self._low, self._end = split.start_offset, split.end_offset
        time = split.time
        self._is_timed = time.is_bounded
        bounds = (time.start_ms, time.end_ms, self._low, self._end)
        self._probe = Columns(*bounds, names=("timestamp", "create_time"), check_crc=False)
        self._rebuilder = Rebuilder(Columns(*bounds, check_crc=False), rules.time, rules.shift_ms, rules.spread)
        self._path = split.place
        self._next_offset = self._low

    def copy(self, reading: ReaderResources) -> Iterator[CopiedBatch | None]:
        for header, buffer, index in self._split.batches(reading, ScanReport()):
            yield from self._take(header, buffer, index)
            yield None
            self._next_offset = max(self._next_offset, header.last_offset + 1)
        yield from self._flush()

    def _take(self, header: BatchHeader, buffer: memoryview, index: int) -> Iterator[CopiedBatch]:
        batch = buffer[index : index + header.size]
        check_crc(header, batch, self._path)
        if header.is_control or (header.magic == 2 and header.record_count == 0):
            return
        if header.last_offset < self._low or (header.magic == 2 and header.base_offset >= self._end):
            return
        if self._is_passable(header):
            if self._needs_probe(header) and not self._probed(header, batch):
                return
            passed = self._passed(header, batch)
            if passed is not None:
                yield from self._flush()
                yield self._counted(passed)
                return
        if not self._rebuilder.takes(header.codec):
            yield from self._flush()
        self._rebuilder.add(header, buffer, index, self._path)

    def _is_passable(self, header: BatchHeader) -> bool:
        """Whether the header permits copying the batch unchanged."""
        return (
            header.magic == 2
            and self._rules.spread is None
            and header.last_offset - header.base_offset + 1 == header.record_count
            and not header.has_delete_horizon
            and header.base_offset >= self._low
            and header.last_offset < self._end
            and (header.timestamp_type == CREATE_TIME or self._rules.time is TimeRule.PRODUCER)
        )

    def _needs_probe(self, header: BatchHeader) -> bool:
        """Whether the records' timestamps must be checked before the batch may be copied unchanged."""
        return self._is_timed or header.timestamp_type != CREATE_TIME or self._rules.shift_ms != 0

    def _probed(self, header: BatchHeader, batch: memoryview) -> int:
        """Check the records' timestamps; return how many records are requested."""
        self._probe.clear()
        wanted = self._probe.add(header, batch, 0, self._path)
        if not wanted:
            self._counts.without_timestamp += self._probe.without_timestamp
        return wanted

    def _passed(self, header: BatchHeader, batch: memoryview) -> CopiedBatch | None:
        """Return the batch as a producer would send it; None if records must be left out or changed."""
        base_timestamp, max_timestamp = header.base_timestamp, header.max_timestamp
        shift_ms, is_append_time = self._rules.shift_ms, header.timestamp_type != CREATE_TIME
        if self._needs_probe(header) and self._probe.rows < header.record_count:
            return None
        if shift_ms or is_append_time:
            times = time_array(self._probe.create_times(), header.record_count)
            if times.null_count and (is_append_time or times.null_count < header.record_count):
                return None  # Records without a producer's timestamp get the append time, or are not shifted with the others.
            if shift_ms and not times.null_count:
                times = shifted(times, shift_ms)
                base_timestamp += shift_ms
            # With LogAppendTime the header lacks the largest of the producer's timestamps.
            largest = pc.max(times).as_py()
            max_timestamp = NO_TIMESTAMP if largest is None else largest
        data = self._memory.take(len(batch))
        data[:] = batch
        pack_header_v2(
            data,
            base_offset=0,
            last_offset=header.last_offset - header.base_offset,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=header.record_count,
            codec=header.codec,
        )
        runs = (SourceRun(header.base_offset, header.last_offset),)
        return CopiedBatch(data, runs, header.record_count, max_timestamp, header.last_offset + 1, False)

    def _flush(self) -> Iterator[CopiedBatch]:
        """Yield the collected rows in batches. The last batch's `next_offset` is the reading position."""
        self._counts.without_timestamp += self._rebuilder.take_without_timestamp()
        pending, ends = None, 0
        for built in self._rebuilder.take():
            if pending is not None:
                yield self._counted(pending)
            next_offset = built.runs[-1].last + 1 if built.partition is None else -1
            ends = max(ends, built.runs[-1].last + 1)
            pending = CopiedBatch(*built[:4], next_offset, True, built.partition)
        if pending is not None:
            reached = max(ends, min(self._next_offset, self._end))
            yield self._counted(pending._replace(next_offset=reached))

    def _counted(self, batch: CopiedBatch) -> CopiedBatch:
        counts = self._counts
        counts.batches += 1
        counts.rebuilt_batches += batch.is_rebuilt
        counts.records += batch.record_count
        counts.size_bytes += len(batch.data)
        return batch
