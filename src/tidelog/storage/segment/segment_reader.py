"""A segment's look-ups: the position of an offset, reads that start there, the record for a time (spec §4.4 to §4.9).

Invariant: the indexes are hints. If an offset index entry does not point to its batch, a warning is logged, and the log is walked
from its start. Each entry of a time index that was opened from disk is checked before it is used (`checked_times`). No look-up
walks batches for long: far from an index entry, it starts from headers walked earlier (`walked_headers`).

`LogSegment` adds writing. Not thread-safe.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import NamedTuple

from tidelog.config import INT32_MAX
from tidelog.errors import CorruptBatchError, InvalidArgumentError
from tidelog.formats.batch_walk import iter_times
from tidelog.formats.non_blocking_read import read_mode
from tidelog.formats.offset_index import OffsetPosition
from tidelog.formats.txn_index import AbortedTxn, CollectedTxns
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import HEADER_BYTES, LOG_OVERHEAD, BatchHeader, read_header
from tidelog.records.compression import Bytes
from tidelog.records.kernel import first_indexed_match, first_match
from tidelog.records.records import first_record_at
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.segment.checked_times import CheckedTimes, LogOffsetPosition, TimesBudget
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.searched_batches import SearchedBatches
from tidelog.storage.segment.segment_files import SegmentFiles
from tidelog.storage.segment.walked_headers import WalkedHeaders, WalkedSegment, is_far

logger = logging.getLogger("tidelog.storage")

MAX_SEARCH_BYTES = 64 * 1024
"""The most bytes that a search by time reads at once, estimated from the previous batch."""

WALK_READ_BYTES = 4096
"""The bytes that a look-up reads at once: one index interval, unless configured otherwise. Most look-ups walk no further."""

_read_place = Struct(">qi4xb6xi8xq").unpack_from
"""Base offset, length, magic, last offset delta and largest timestamp of a batch of format v2."""
_WALK_BYTES = 43

NEAR_BATCHES = 64
"""The most batches between two index entries, if batches are as small as possible and the interval is the default."""

UP_TO_SIZE = -1
"""`max_position` of a read up to the segment's end."""


class TimestampAndOffset(NamedTuple):
    """A record found by time (ms). `leader_epoch` is its batch's, -1 if the batch has none."""

    timestamp: int
    offset: int
    leader_epoch: int


class FetchData(NamedTuple):
    """The result of a read: bytes that start with a batch, which may begin below the requested offset. The bytes may end within a
    batch.
    """

    metadata: LogOffsetMetadata
    """The requested offset, and where its batch starts."""
    data: memoryview
    first_entry_incomplete: bool
    """Whether the first batch is incomplete, because it did not fit."""
    aborted_transactions: list[AbortedTxn] | None = None
    """For read_committed: the aborted transactions to skip; None for read_uncommitted."""


class LogSlice(NamedTuple):
    """The location of a read's bytes: `FetchData` before the bytes are read."""

    metadata: LogOffsetMetadata
    log: LogFile | None
    """The file with the bytes; None if there are no bytes."""
    position: int
    length: int
    first_entry_incomplete: bool = False
    aborted_transactions: list[AbortedTxn] | None = None

    def load(self) -> FetchData:
        """Read the bytes. Raises StorageError."""
        data = b"" if self.log is None or not self.length else self.log.read(self.position, self.length)
        return FetchData(self.metadata, memoryview(data), self.first_entry_incomplete, self.aborted_transactions)


class SegmentReader(SegmentFiles):
    """Look-ups in one segment's log, by offset and by time."""

    _batch_bytes = 0
    """The size of the batch that the last search by time found, as an estimate of the next one's size."""

    times_budget: TimesBudget | None = None
    """The budget that the log's segments share; None if the segment has a separate budget."""

    is_name_checked = False
    """Whether the previous segments are known to end at or below this segment's name: see `segment_names`."""

    _checked_times: CheckedTimes | None = None
    _walked: WalkedSegment | None = None
    _searched: SearchedBatches | None = None
    _is_warned = False
    _reached: OffsetPosition | None = None
    """The last index entry that was found correct: reads at a log's end use the same entry repeatedly."""

    @property
    def checked_times(self) -> CheckedTimes:
        """The time index, checked against the log, for an index that this process did not write."""
        if self._checked_times is None:
            self._checked_times = CheckedTimes(self, self.times_budget or TimesBudget())
        return self._checked_times

    def headers_from(self, position: int) -> WalkedHeaders:
        """Return the headers walked from `position` on, where a batch begins."""
        if self._walked is None:
            self._walked = WalkedSegment(self.log, self.base_offset)
        return self._walked.beginning_at(position)

    def forget_what_was_checked(self) -> None:
        """Drop everything learned about the log and its indexes, because the log has changed."""
        self._checked_times = self._walked = self._searched = self._reached = None
        self._is_warned = False

    def batches(self, position: int = 0, end_position: int | None = None) -> Iterator[BatchHeader]:
        """Yield the headers of the whole batches in [position, end_position); see `LogFile.batches`."""
        return self.log.batches(position, end_position)

    def batches_from(self, offset: int) -> Iterator[BatchHeader]:
        """Yield the headers from a position before which all offsets are below `offset`.

        The offset index gives the position; if the log contradicts it, the walk begins at 0.
        """
        return self.log.batches(self._start_for(offset))

    def _start_for(self, offset: int) -> int:
        """Return the position where a walk to `offset` begins."""
        entry = self._floor(offset)
        position = entry.position if self._is_as_indexed(entry, offset) else 0
        return position if self._walked is None else self._walked.known_floor(position, offset)

    def _is_as_indexed(self, entry: OffsetPosition, offset: int) -> bool:
        """Whether an entry points to a batch that may contain its offset. If not, the entry is logged, once."""
        if entry.position == 0:
            return True
        try:
            header = self.log.first_batch(entry.position) if entry.position < self.log.size_bytes else None
            if header is not None and header.base_offset <= entry.offset <= offset:
                return True
        except CorruptBatchError:
            pass
        self._warn(entry)
        return False

    def _warn(self, entry: OffsetPosition) -> None:
        if not self._is_warned:
            self._is_warned = True
            logger.warning(
                "%s: the entry (offset %d, byte %d) does not point to a batch with that offset; the log is read instead",
                self.offset_index.path,
                *entry,
            )

    def _floor(self, offset: int) -> OffsetPosition:
        """Return the position from the offset index, or the segment's start if the index is wrong."""
        index = self.offset_index
        entry = index.lookup(offset)
        if index.is_own or entry.position == 0 or entry == self._reached or self._is_reached(entry):
            return entry
        self._warn(entry)
        return OffsetPosition(self.base_offset, 0)

    def _is_reached(self, entry: OffsetPosition) -> bool:
        """Whether walking the headers from the previous entry leads to the batch of `entry`. If not, the entry points to bytes
        within a record's value.
        """
        before = self.offset_index.lookup(entry.offset - 1)
        if not (self.base_offset <= before.offset < entry.offset and 0 <= before.position < entry.position < self.log.size_bytes):
            return False
        near = islice(iter_times(self.log, before.position, entry.position, self.base_offset), NEAR_BATCHES)
        try:
            (end, _, _), *_ = deque(near, maxlen=1)
            if end < entry.position:
                self.headers_from(before.position).largest_before(entry.position)
        except CorruptBatchError:
            return False
        self._reached = entry
        return True

    def translate_offset(self, offset: int, start: int = 0) -> LogOffsetPosition | None:
        """Return the first batch whose last offset is at or above `offset`, or None if there is no such batch (§4.4).

        The caller knows that no such batch begins before the position `start`. The walk begins there or at the index's position,
        whichever is later. Raises CorruptBatchError, StorageError.
        """
        entry = self._floor(offset)
        if start <= entry.position:
            found = self._walk_to_fast(offset, entry)
            if found is not None:
                return found[0]
            start = self._start_for(offset)
        passed, position = 0, start
        for header in self.log.batches(start):
            if header.last_offset >= offset:
                return LogOffsetPosition(header.last_offset, header.position, header.size)
            passed, position = passed + 1, header.position + header.size
            if is_far(passed, position - start):
                break
        else:
            return None
        for header in self.log.batches(self.headers_from(start).floor(offset)):
            if header.last_offset >= offset:
                return LogOffsetPosition(header.last_offset, header.position, header.size)
        return None

    def _walk_to_fast(
        self, offset: int, entry: OffsetPosition, timestamp: int = NO_TIMESTAMP, batch_bytes: int = 0
    ) -> tuple[LogOffsetPosition, bytes, int] | None:
        """Return the first batch from `entry` on whose last offset is at least `offset` and whose largest timestamp is at least
        `timestamp`.

        Reads only five fields of each whole batch of format v2, without creating objects. Returns None if there is no such batch,
        or if anything is unusual, so that the caller must look again. The last bytes read are returned with their position.

        For callers that then need the whole batch, `batch_bytes` is the estimated size of batches. The batch of the entry is
        usually not the result. If it is large, only its header is read, and the next batch is read whole.
        """
        log = self.log
        position, end = entry.position, log.size_bytes
        if self._walked is not None:
            position = self._walked.known_floor(position, offset)
        base, chunk, start = entry.offset, b"", 0
        first_position, passed = position, 0
        read_bytes = HEADER_BYTES if batch_bytes > WALK_READ_BYTES else WALK_READ_BYTES
        while end - position >= HEADER_BYTES:
            index = position - start
            if index + _WALK_BYTES > len(chunk):
                chunk, start, index = log.read(position, min(read_bytes, end - position)), position, 0
                read_bytes = max(WALK_READ_BYTES, batch_bytes)
            first, length, magic, delta, max_timestamp = _read_place(chunk, index)
            size = length + LOG_OVERHEAD
            if magic != 2 or size < HEADER_BYTES or size > end - position or delta < 0 or first < self.base_offset:
                return None
            if position == entry.position and position and not first <= base <= offset:
                return None
            if first + delta >= offset and max_timestamp >= timestamp:
                return LogOffsetPosition(first + delta, position, size), chunk, start
            position += size
            passed += 1
            if is_far(passed, position - first_position):
                return None
        return None

    def read(
        self, start_offset: int, max_size: int, max_position: int | None = UP_TO_SIZE, min_one_message: bool = False
    ) -> FetchData | None:
        """Read and return the bytes that `locate` finds, or None if it finds none."""
        found = self.locate(start_offset, max_size, max_position, min_one_message)
        return None if found is None else found.load()

    def locate(
        self, start_offset: int, max_size: int, max_position: int | None = UP_TO_SIZE, min_one_message: bool = False
    ) -> LogSlice | None:
        """Return the location of up to `max_size` bytes, beginning with the batch that has `start_offset`, or the next batch
        (§4.5).

        Returns None after the last batch. `max_position` is the byte to stop at; if it is None (unknown), the result has the
        location but no bytes. With `min_one_message` the first batch is returned whole, whatever its size. Raises
        InvalidArgumentError, CorruptBatchError, StorageError.
        """
        if max_size < 0:
            raise InvalidArgumentError("the size to read is negative", path=self.log.path, found=max_size)
        found = self.translate_offset(start_offset)
        if found is None:
            return None
        metadata = LogOffsetMetadata(start_offset, self.base_offset, found.position)
        adjusted = max(max_size, found.size) if min_one_message else max_size
        if adjusted == 0 or max_position is None:
            return LogSlice(metadata, None, found.position, 0)
        end = self.log.size_bytes if max_position == UP_TO_SIZE else max_position
        length = max(0, min(end - found.position, adjusted))
        return LogSlice(metadata, self.log, found.position, length, adjusted < found.size)

    def read_next_offset(self) -> int:
        """Return the offset after the last record; the base offset if the segment is empty (§4.6). Raises CorruptBatchError,
        StorageError.
        """
        last = None
        for header in self.batches_from(self.offset_index.last_offset):
            last = header
        return self.base_offset if last is None else last.next_offset

    def find_offset_by_timestamp(self, timestamp: int, starting_offset: int | None = None) -> TimestampAndOffset | None:
        """Return the first record at or above `starting_offset` (default: the base offset) with at least that timestamp (ms)
        (§4.9).

        Control records count. Raises CorruptBatchError, InvalidRecordError, DecompressionError, StorageError.
        """
        start = self.base_offset if starting_offset is None else starting_offset
        # The batch of the index entry is usually not the result: it and the next are read together, unless they are too large.
        read_bytes = 2 * self._batch_bytes + HEADER_BYTES
        log = self.log
        if HEADER_BYTES < read_bytes <= MAX_SEARCH_BYTES:
            times, positions = self.time_index.own_bytes, self.offset_index.own_bytes
            if times is not None and positions is not None:
                mode, size = read_mode(), max(read_bytes, WALK_READ_BYTES)
                place = log.descriptor(), log.size_bytes, size, mode.flags, mode.scratch
                match = first_indexed_match(*place, times, positions, self.base_offset, timestamp, start)
                if match is not None:
                    return TimestampAndOffset(match[1], match[0], match[2])
        if not self.time_index.is_own and not self.checked_times.is_true_for(timestamp):
            reaching = self.checked_times.first_reaching(timestamp)
            return None if reaching is None else self._first_record(reaching, timestamp, start)
        offset = max(self.time_index.lookup(timestamp).offset, start)
        entry = self._floor(offset)
        position = entry.position
        if HEADER_BYTES < read_bytes <= MAX_SEARCH_BYTES and position < log.size_bytes:
            chunk = log.read(position, min(max(read_bytes, WALK_READ_BYTES), log.size_bytes - position))
            match = first_match(chunk, entry.offset if position else -1, offset, timestamp, start)
            if match is not None:
                return TimestampAndOffset(match[1], match[0], match[2])
        walked = self._walk_to_fast(offset, entry, timestamp, self._batch_bytes)
        if walked is not None:
            (_, position, size), chunk, chunk_start = walked
            self._batch_bytes = min(size, MAX_SEARCH_BYTES)
            index = position - chunk_start
            if index + size <= len(chunk):
                data = memoryview(chunk)[index : index + size]
            else:
                data = memoryview(self.log.read(position, size))
            match = first_match(data, -1, offset, timestamp, start)
            if match is not None:
                return TimestampAndOffset(match[1], match[0], match[2])
            header = read_header(data, 0, position, self.log.path)
            record = self._first_in(header, data, timestamp, start)
            if record is not None:
                return TimestampAndOffset(record[1], record[0], header.leader_epoch)
        found = self.translate_offset(offset)
        return None if found is None else self._first_record(found.position, timestamp, start)

    def _first_in(self, header: BatchHeader, batch: Bytes, timestamp: int, start: int) -> tuple[int, int] | None:
        return self.searched.find(
            (header, timestamp, start),
            lambda limit: first_record_at(header, batch, timestamp, start, path=self.log.path, limit_bytes=limit),
        )

    @property
    def searched(self) -> SearchedBatches:
        """Searches for records inside the segment's batches. Inside `non_blocking`, a search raises NotSearchedError."""
        if self._searched is None:
            self._searched = SearchedBatches()
        return self._searched

    def _first_record(self, position: int, timestamp: int, start: int) -> TimestampAndOffset | None:
        """Return the first record at or above `start` with at least that timestamp (ms), in the batches from `position` on."""
        if start > self.base_offset:
            found = self.translate_offset(start)
            if found is None:
                return None
            position = max(position, found.position)
        is_near = self._walked is None or not self._walked.has_begun_at(position)
        while True:
            first, passed = position, 0
            for header in self.log.batches(position) if is_near else ():
                if header.max_timestamp >= timestamp and header.last_offset >= start:
                    record = self._first_in(header, self.log.read_batch(header), timestamp, start)
                    if record is not None:
                        return TimestampAndOffset(record[1], record[0], header.leader_epoch)
                    first, passed = header.position + header.size, 0
                else:
                    passed += 1
                    if is_far(passed, header.position + header.size - first):
                        break
            else:
                if is_near:
                    return None
            reaching = self.headers_from(first).first_reaching(timestamp)
            if reaching is None:
                return None
            position, is_near = reaching, True

    def fetch_upper_bound_offset(self, start: OffsetPosition, fetch_size_bytes: int) -> int | None:
        """Return an upper bound of the offsets of a fetch. Return None if the index has none: the caller then uses the next
        segment's base offset.
        """
        entry = self.offset_index.fetch_upper_bound_offset(start, fetch_size_bytes)
        if entry is None or self.offset_index.is_own:
            return None if entry is None else entry.offset
        try:
            header = self.log.first_batch(entry.position) if self._is_reached(entry) else None
        except CorruptBatchError:
            header = None
        # An entry that is too low would hide aborted transactions: the fetched records lie below this batch.
        return None if header is None or header.base_offset > entry.offset else entry.offset

    def collect_aborted_txns(self, fetch_offset: int, upper_bound_offset: int) -> CollectedTxns:
        """Return the aborted transactions of this segment for a fetch of [fetch_offset, upper_bound_offset) (§5.4)."""
        return self.txn_index.collect_aborted_txns(fetch_offset, upper_bound_offset)

    def can_convert_to_relative_offset(self, offset: int) -> bool:
        """Whether `offset` fits in an int32 relative to the base offset, as the indexes require."""
        return 0 <= offset - self.base_offset <= INT32_MAX
