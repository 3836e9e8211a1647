"""Checks the time index of a segment that was opened from disk against the log before a search uses it.

An index has no checksum: a crash may have left it short, and the disk may have changed it. Entries made by this process are
trusted, because it has seen the batches. Other entries are checked as in `reader.segment_time`: the entry's batch must have the
entry's timestamp, and no earlier batch may have a timestamp at or above it. For this the headers of all batches up to the entry
are walked, or up to the segment's end if the largest timestamp is needed. They are walked once, and not on the thread that serves
clients (`walked_headers`). An entry found correct is not checked again.

At most `MAX_BYTES` of one log are walked. In further segments only the batches since the previous entry are checked, which
detects single wrong entries; a warning says so. A wrong index is no longer used: the headers of the whole segment replace it.
"""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol

from tidelog.errors import CorruptBatchError
from tidelog.formats.batch_walk import iter_times
from tidelog.formats.time_index import TimestampOffset
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import BatchHeader
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.time_index_file import TimeIndexFile
from tidelog.storage.segment.walked_headers import Goal, NotWalkedError, WalkedHeaders

logger = logging.getLogger("tidelog.storage")

MAX_BYTES = 4 * 1024 * 1024 * 1024

MAX_KNOWN = 4096
"""The most entries that are remembered as correct."""


class TimesBudget:
    """How many bytes of a log's segments may still be walked to check their time indexes."""

    def __init__(self) -> None:
        self._left_bytes = MAX_BYTES
        self._is_noted = False

    def allows(self, segment: TimedSegment) -> bool:
        """Return whether enough of the budget is left to walk a segment, and if so, subtract the segment's bytes."""
        if segment.log.size_bytes <= self._left_bytes:
            self._left_bytes -= segment.log.size_bytes
            return True
        if not self._is_noted:
            self._is_noted = True
            logger.warning(
                "%s: the log is too large to check all of its time indexes. From this segment on, entries are only compared with "
                "their own batches and with each other. To check everything, run `tidelog index verify`",
                segment.log.path,
            )
        return False


class LogOffsetPosition(NamedTuple):
    """A batch: its last offset, its position in the `.log` and its size, in bytes."""

    offset: int
    position: int
    size: int


class TimedSegment(Protocol):
    """The part of a segment's interface that checking its times needs."""

    @property
    def base_offset(self) -> int: ...

    @property
    def log(self) -> LogFile: ...

    @property
    def time_index(self) -> TimeIndexFile: ...

    def headers_from(self, position: int) -> WalkedHeaders: ...

    def translate_offset(self, offset: int) -> LogOffsetPosition | None: ...


class CheckedTimes:
    """The checked time index of one segment. Raises what reading the log raises (CorruptBatchError, StorageError)."""

    def __init__(self, segment: TimedSegment, budget: TimesBudget) -> None:
        self._segment = segment
        self._budget = budget
        self._is_walked: bool | None = None
        self._known: set[TimestampOffset] = set()
        self._lies = False

    def is_true_for(self, timestamp: int) -> bool:
        """Whether the index can be used for a time (ms): the entry found for that time is correct, or there is no such entry."""
        if self._lies:
            return False
        slot = self._segment.time_index.slot(timestamp)
        return slot < 0 or self._is_true(slot)

    def first_reaching(self, timestamp: int) -> int | None:
        """Return a byte position at or shortly before the first batch with a timestamp at or after `timestamp` (ms), found in the
        batch headers, or None if there is no such batch.
        """
        return self._segment.headers_from(0).first_reaching(timestamp)

    def not_walked(self) -> NotWalkedError:
        """Return the error that makes another thread walk the headers that `largest` needs."""
        headers = self._segment.headers_from(0)
        return NotWalkedError(headers, Goal(self._segment.log.size_bytes if self._may_walk() else 0))

    def largest(self) -> TimestampOffset:
        """Return the largest timestamp (ms) and the last offset of the first batch that has it; (-1, base) without one."""
        segment = self._segment
        if self._may_walk():
            try:
                return self._largest_from(0)
            except CorruptBatchError:
                self._is_walked = False  # A batch is damaged; later ones can still be read.
        slots = 0 if self._lies else segment.time_index.entries
        found = None
        if slots and self._is_true(slots - 1):
            found = segment.translate_offset(segment.time_index.entry(slots - 1).offset)
        return self._largest_from(0 if found is None else found.position)

    def _largest_from(self, position: int) -> TimestampOffset:
        """Return the largest timestamp and its offset for the batches from `position` on."""
        segment = self._segment
        headers = segment.headers_from(position)
        largest = headers.largest()
        start = None if largest == NO_TIMESTAMP else headers.first_reaching(largest)
        if start is not None:
            for _, next_offset, timestamp in iter_times(segment.log, start, segment.log.size_bytes, segment.base_offset):
                if timestamp == largest:
                    return TimestampOffset(timestamp, next_offset - 1)
        return TimestampOffset(NO_TIMESTAMP, segment.base_offset)

    def _is_true(self, slot: int) -> bool:
        """Whether an entry is correct. If it is not, the index is no longer used."""
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
        if batch is None or batch.magic > 0:  # v0 has no timestamps, but Kafka indexed the append times.
            logger.warning(
                "%s: entry %d (timestamp %d, offset %d) does not agree with the log, which is read instead",
                index.path,
                slot,
                *entry,
            )
        return False

    def _agrees(self, entry: TimestampOffset, batch: BatchHeader, before: TimestampOffset | None) -> bool:
        if batch.max_timestamp != entry.timestamp:
            return False
        if before is not None and not (before.timestamp < entry.timestamp and before.offset <= entry.offset):
            return False
        segment = self._segment
        try:
            if self._may_walk():
                return segment.headers_from(0).largest_before(batch.position) < entry.timestamp
        except CorruptBatchError:
            self._is_walked = False  # An earlier batch is damaged; later ones can still be read.
        neighbour = None if before is None else self._batch_of(before)
        is_as_indexed = neighbour is not None and before is not None and neighbour.max_timestamp == before.timestamp
        start = neighbour.position if neighbour is not None and is_as_indexed else 0
        try:
            return segment.headers_from(min(start, batch.position)).largest_before(batch.position) < entry.timestamp
        except CorruptBatchError:
            return False  # The walk through the log will report it.

    def _may_walk(self) -> bool:
        if self._is_walked is None:
            self._is_walked = self._budget.allows(self._segment)
        return self._is_walked

    def _batch_of(self, entry: TimestampOffset) -> BatchHeader | None:
        if entry.offset < self._segment.base_offset:
            return None
        found = self._segment.translate_offset(entry.offset)
        batch = None if found is None else self._segment.log.first_batch(found.position)
        return None if batch is None or (batch.magic == 2 and batch.base_offset > entry.offset) else batch
