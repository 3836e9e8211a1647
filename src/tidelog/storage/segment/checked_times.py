"""What the time index of a segment says that was opened from disk, checked against the log before a search goes by it.

A crash may have left it short, and the disk may have changed it since; no checksum would show it. Entries that this process has
made are believed. Of others the rule is that of `reader.segment_time`: the batch that an entry is about has its timestamp, and no
batch before reaches it. For that all headers are read, up to `HEAD_BYTES`, once; beyond, those from the entry before on. An entry
that was found true is not looked at again.

An index that lies is not asked any more: the headers of the whole segment are read, once, and answer in its place.
"""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol

from tidelog.errors import CorruptBatchError
from tidelog.formats.batch_walk import iter_times
from tidelog.formats.time_index import TimestampOffset
from tidelog.model import NO_TIMESTAMP
from tidelog.reader.proven_head import ProvenHead, WalkBudget
from tidelog.records.batch import BatchHeader
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.time_index_file import TimeIndexFile

logger = logging.getLogger("tidelog.storage")

HEAD_BYTES = 1024 * 1024
HEAD_BATCHES = 512
"""Of each segment: a search shares its thread with other requests."""

_NO_LIMIT = 2**63

MAX_KNOWN = 4096
"""Entries that are remembered as true."""


class LogOffsetPosition(NamedTuple):
    """A batch: its last offset, its position in the `.log` and its size, in bytes."""

    offset: int
    position: int
    size: int


class TimedSegment(Protocol):
    """A segment, as far as its times are asked for."""

    @property
    def base_offset(self) -> int: ...

    @property
    def log(self) -> LogFile: ...

    @property
    def time_index(self) -> TimeIndexFile: ...

    def translate_offset(self, offset: int) -> LogOffsetPosition | None: ...


class CheckedTimes:
    """The time index of one segment, for searches. Raises what reading the log raises (CorruptBatchError, StorageError)."""

    def __init__(self, segment: TimedSegment) -> None:
        self._segment = segment
        self._head = ProvenHead(segment.log, segment.base_offset, WalkBudget(HEAD_BYTES, HEAD_BATCHES))
        self._known: set[TimestampOffset] = set()
        self._lies = False

    def is_true_for(self, timestamp: int) -> bool:
        """Whether the index may be asked for a time (ms): whether the entry that is found then is true, or there is none."""
        if self._lies:
            return False
        slot = self._segment.time_index.slot(timestamp)
        return slot < 0 or self._is_true(slot)

    def first_reaching(self, timestamp: int) -> int | None:
        """Return where the first batch begins that reaches a time (ms), None without one: by the headers of the whole segment."""
        self._head.budget = WalkBudget(_NO_LIMIT, _NO_LIMIT)
        self._head.largest_before(self._segment.log.size_bytes)
        return self._head.first_reaching(timestamp)

    def largest(self) -> TimestampOffset:
        """Return the largest timestamp (ms) and the last offset of the first batch that has it; (-1, base) without one."""
        segment = self._segment
        largest, position = TimestampOffset(NO_TIMESTAMP, segment.base_offset), 0
        slots = 0 if self._lies else segment.time_index.entries
        if slots and self._is_true(slots - 1):
            largest = segment.time_index.entry(slots - 1)
            found = segment.translate_offset(largest.offset)
            position = 0 if found is None else found.position
        for _, next_offset, timestamp in iter_times(segment.log, position, segment.log.size_bytes, segment.base_offset):
            if timestamp > largest.timestamp:
                largest = TimestampOffset(timestamp, next_offset - 1)
        return largest

    def _is_true(self, slot: int) -> bool:
        """Say whether an entry is true. If not, the index is not asked any more."""
        index = self._segment.time_index
        entry = index.entry(slot)
        if entry in self._known:
            return True
        batch = self._batch_of(entry)
        if batch is not None and self._agrees(entry, batch, index.entry(slot - 1) if slot else None):
            if len(self._known) == MAX_KNOWN:
                self._known.clear()
            self._known.add(entry)
            return True
        self._lies = True
        if batch is None or batch.magic > 0:  # v0 has no timestamps, but Kafka noted when it appended.
            logger.warning(
                "%s: entry %d (%d at offset %d) does not agree with the log, which is read instead", index.path, slot, *entry
            )
        return False

    def _agrees(self, entry: TimestampOffset, batch: BatchHeader, before: TimestampOffset | None) -> bool:
        if batch.max_timestamp != entry.timestamp:
            return False
        if before is not None and not (before.timestamp < entry.timestamp and before.offset <= entry.offset):
            return False
        try:
            largest = self._head.largest_before(batch.position)
            if largest is None:
                neighbour = None if before is None else self._batch_of(before)
                is_as_indexed = neighbour is not None and before is not None and neighbour.max_timestamp == before.timestamp
                start = neighbour.position if neighbour is not None and is_as_indexed else 0
                times = iter_times(self._segment.log, min(start, batch.position), batch.position, self._segment.base_offset)
                largest = max((timestamp for _, _, timestamp in times), default=NO_TIMESTAMP)
        except CorruptBatchError:
            return False  # The walk through the log will report it.
        return largest < entry.timestamp

    def _batch_of(self, entry: TimestampOffset) -> BatchHeader | None:
        if entry.offset < self._segment.base_offset:
            return None
        found = self._segment.translate_offset(entry.offset)
        batch = None if found is None else self._segment.log.first_batch(found.position)
        return None if batch is None or (batch.magic == 2 and batch.base_offset > entry.offset) else batch
