"""What a segment answers: where an offset is, what is in the log from there on, which record reaches a time (spec §4.4 to §4.9).

Invariant: the indexes are hints. If no such batch stands where an offset index entry says, the log is walked from its start, with
a warning. Of a time index that was opened from disk each entry is checked before it is used (`checked_times`). And no look-up
goes from batch to batch for long: where an index leaves it far from its place, the headers that were walked once say more
(`walked_headers`).

`LogSegment` adds writing. One thread at a time.
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
from tidelog.formats.offset_index import OffsetPosition
from tidelog.formats.txn_index import AbortedTxn, CollectedTxns
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import HEADER_BYTES, LOG_OVERHEAD, BatchHeader, read_header
from tidelog.records.compression import Bytes
from tidelog.records.kernel import first_match
from tidelog.records.records import first_record_at
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.segment.checked_times import CheckedTimes, LogOffsetPosition, TimesBudget
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.searched_batches import SearchedBatches
from tidelog.storage.segment.segment_files import SegmentFiles
from tidelog.storage.segment.walked_headers import POINT_BATCHES, POINT_BYTES, WalkedHeaders, WalkedSegment, is_far

logger = logging.getLogger("tidelog.storage")

MAX_SEARCH_BYTES = 64 * 1024
"""A search by time reads no more at once on the word of the one before."""

WALK_READ_BYTES = 4096
"""One index interval, unless configured otherwise: mostly that is as far as a look-up walks."""

_read_place = Struct(">qi4xb6xi8xq").unpack_from
"""Base offset, length, magic, last offset delta and largest timestamp of a batch of format v2."""
_WALK_BYTES = 43

NEAR_BATCHES = 64
"""As many of the smallest lie between two entries, unless configured otherwise."""

UP_TO_SIZE = -1
"""`max_position` of a read that may go to the segment's end."""


class TimestampAndOffset(NamedTuple):
    """A record found by time (ms); `leader_epoch` is its batch's, -1 where it has none."""

    timestamp: int
    offset: int
    leader_epoch: int


class FetchData(NamedTuple):
    """What a read gives: bytes from a batch's start on, which may begin below the offset asked for and end within a batch."""

    metadata: LogOffsetMetadata
    """The offset asked for, and where its batch starts."""
    data: memoryview
    first_entry_incomplete: bool
    """Whether the first batch did not fit."""
    aborted_transactions: list[AbortedTxn] | None = None
    """For read_committed: what to leave out; None for read_uncommitted."""


class LogSlice(NamedTuple):
    """Where the bytes are that a read gives: what `FetchData` is once they are read."""

    metadata: LogOffsetMetadata
    log: LogFile | None
    """None if there are none."""
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
    """How large the last batch was that a search by time has found: the next one is taken to be as large."""

    times_budget: TimesBudget | None = None
    """That of its log, shared with its other segments; None: one of its own."""

    is_name_checked = False
    """Whether what lies before this segment is known to end where its name says, or below: `segment_names`."""

    _checked_times: CheckedTimes | None = None
    _walked: WalkedSegment | None = None
    _searched: SearchedBatches | None = None
    _is_warned = False
    _reached: OffsetPosition | None = None
    """The index entry that was found true last: reads at the end of a log ask for the same one again and again."""

    @property
    def checked_times(self) -> CheckedTimes:
        """The time index where it is not this process's own."""
        if self._checked_times is None:
            self._checked_times = CheckedTimes(self, self.times_budget or TimesBudget())
        return self._checked_times

    def headers_from(self, position: int) -> WalkedHeaders:
        """Return the headers that were walked from a position on, where a batch begins."""
        if self._walked is None:
            self._walked = WalkedSegment(self.log, self.base_offset)
        return self._walked.beginning_at(position)

    def forget_what_was_checked(self) -> None:
        """Forget what is known of the log and of its indexes beside what they say: the log is no longer the same."""
        self._checked_times = self._walked = self._searched = self._reached = None
        self._is_warned = False

    def batches(self, position: int = 0, end_position: int | None = None) -> Iterator[BatchHeader]:
        """Yield the headers of the whole batches in [position, end_position); see `LogFile.batches`."""
        return self.log.batches(position, end_position)

    def batches_from(self, offset: int) -> Iterator[BatchHeader]:
        """Yield the headers of the batches from a place on before which every offset is below `offset`.

        The offset index says where; if what stands there contradicts it, the walk begins at 0.
        """
        return self.log.batches(self._start_for(offset))

    def _start_for(self, offset: int) -> int:
        """Return where such a walk begins."""
        entry = self._floor(offset)
        position = entry.position if self._is_as_indexed(entry, offset) else 0
        return position if self._walked is None else self._walked.known_floor(position, offset)

    def _is_as_indexed(self, entry: OffsetPosition, offset: int) -> bool:
        """Whether a batch stands where an entry says, and may hold its offset. If not, a warning names the entry, once."""
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
                "%s: entry (offset %d, byte %d) points to no such batch, the log is read instead", self.offset_index.path, *entry
            )

    def _floor(self, offset: int) -> OffsetPosition:
        """Return what the offset index says, or the segment's start where that cannot be."""
        index = self.offset_index
        entry = index.lookup(offset)
        if index.is_own or entry.position == 0 or entry == self._reached or self._is_reached(entry):
            return entry
        self._warn(entry)
        return OffsetPosition(self.base_offset, 0)

    def _is_reached(self, entry: OffsetPosition) -> bool:
        """Whether the headers from the entry before on lead to an entry's batch; not to one that is within a record's value."""
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
        """Return the first batch whose last offset is at or above `offset`, None after the last one (§4.4).

        `start` is a position before which there is none; where it lies after what the index says, the walk begins there.
        Raises CorruptBatchError, StorageError.
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
        """Return the first batch from `entry` on that reaches both `offset` and `timestamp`.

        Of whole batches of format v2, each is asked for five fields, and nothing is made of it. None if there is none, or if
        something is not as it mostly is: who cares looks again. What was read last comes along, with its position.

        For who wants the whole batch then, `batch_bytes` is how large batches may be. The one that has the entry is mostly
        not the one: of a large one only the header is read, and the next is read in whole.
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
            if passed >= POINT_BATCHES or position - first_position > POINT_BYTES:
                return None
        return None

    def read(
        self, start_offset: int, max_size: int, max_position: int | None = UP_TO_SIZE, min_one_message: bool = False
    ) -> FetchData | None:
        """Return what `locate` finds, read."""
        found = self.locate(start_offset, max_size, max_position, min_one_message)
        return None if found is None else found.load()

    def locate(
        self, start_offset: int, max_size: int, max_position: int | None = UP_TO_SIZE, min_one_message: bool = False
    ) -> LogSlice | None:
        """Return where up to `max_size` bytes are, from the batch with `start_offset`, or the next one, on (§4.5).

        None behind the last batch. `max_position` is the byte to stop at; None, if it is unknown, gives no bytes but the place.
        With `min_one_message` the first batch comes whole, whatever its size. Raises InvalidArgumentError, CorruptBatchError,
        StorageError.
        """
        if max_size < 0:
            raise InvalidArgumentError("a read of a negative size", path=self.log.path, found=max_size)
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
        """Return the offset after the last record; the base if it is empty (§4.6). Raises CorruptBatchError, StorageError."""
        last = None
        for header in self.batches_from(self.offset_index.last_offset):
            last = header
        return self.base_offset if last is None else last.next_offset

    def find_offset_by_timestamp(self, timestamp: int, starting_offset: int | None = None) -> TimestampAndOffset | None:
        """Return the first record from `starting_offset` (default: the base) on whose timestamp (ms) is at least that (§4.9).

        Control records count. Raises CorruptBatchError, InvalidRecordError, DecompressionError, StorageError.
        """
        start = self.base_offset if starting_offset is None else starting_offset
        if not self.time_index.is_own and not self.checked_times.is_true_for(timestamp):
            reaching = self.checked_times.first_reaching(timestamp)
            return None if reaching is None else self._first_record(reaching, timestamp, start)
        offset = max(self.time_index.lookup(timestamp).offset, start)
        entry = self._floor(offset)
        # The batch that has the entry is mostly not the one: it and the next are read at once, where that is not too much.
        read_bytes = 2 * self._batch_bytes + HEADER_BYTES
        log, position = self.log, entry.position
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
        """Searches within its batches. Raises NotSearchedError within `non_blocking`."""
        if self._searched is None:
            self._searched = SearchedBatches()
        return self._searched

    def _first_record(self, position: int, timestamp: int, start: int) -> TimestampAndOffset | None:
        """Return the first record from `start` on that reaches a time (ms), of the batches from `position` on."""
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
        """Return an offset that no record of a fetch exceeds, None if the index knows none: the next segment's base is one."""
        entry = self.offset_index.fetch_upper_bound_offset(start, fetch_size_bytes)
        if entry is None or self.offset_index.is_own:
            return None if entry is None else entry.offset
        try:
            header = self.log.first_batch(entry.position) if self._is_reached(entry) else None
        except CorruptBatchError:
            header = None
        # An entry that is too low would hide aborted transactions: what the fetch gives lies below this batch.
        return None if header is None or header.base_offset > entry.offset else entry.offset

    def collect_aborted_txns(self, fetch_offset: int, upper_bound_offset: int) -> CollectedTxns:
        """Return what a fetch of [fetch_offset, upper_bound_offset) must know of this segment's aborted transactions (§5.4)."""
        return self.txn_index.collect_aborted_txns(fetch_offset, upper_bound_offset)

    def can_convert_to_relative_offset(self, offset: int) -> bool:
        """Whether this segment's indexes can express `offset`."""
        return 0 <= offset - self.base_offset <= INT32_MAX
