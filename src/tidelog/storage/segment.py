"""One segment, owned: a `.log` that grows at its end, and the indexes beside it (spec §3, §4).

What decides about an index entry, per batch and before the batch counts (§4.2)::

    max_timestamp  ← the batch's, if it is larger; with it the batch's last offset
    if bytes since the last entry > index.interval.bytes:
        offset index ← (last offset of the batch, position of its first byte)
        time index   ← (max_timestamp so far, last offset of the batch that first reached it), if larger than the last entry
        bytes since the last entry ← 0
    bytes since the last entry ← + size of the batch

so the first batch of a segment has no entry, and the batch that got one counts toward the next. When the segment rolls or closes,
the time index gets the largest timestamp as its last entry, into the slot that is reserved for it, and both indexes are trimmed
to their entries (§4.10, §4.11).

| roll before an append if (§4.1) | |
|---|---|
| size | the segment would exceed segment.bytes |
| time | event time since the first batch's largest timestamp > segment.ms - jitter; wall time where that batch has none |
| index | the offset index is full, or the time index but for its reserved slot |
| offsets | the last offset cannot be told relative to the base in an int32 |

Invariants
    * An append is whole or it did not happen: `.log`, entries and what is known about the segment go back together.
    * The offset index is a hint. Where no such batch stands at its entry's position, the log is walked from its start.
    * Where an index gets full in the middle of an append of several batches (Kafka fails there), entries are left out.
    * A segment opened from disk opens no file before that is needed, and reads no index that nobody asked for.

`partition_log` appends, rolls and truncates; `loader` opens, `recovery` rebuilds, the cleaner writes new ones. One thread at a
time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.config import INT32_MAX, INT64_MAX, LogConfig
from tidelog.errors import CorruptBatchError, CorruptIndexError, InvalidArgumentError, OffsetOverflowError, StorageError
from tidelog.log.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name
from tidelog.log.offset_index import OffsetPosition
from tidelog.log.producer_state import CompletedTxn
from tidelog.log.time_index import TimestampOffset
from tidelog.log.txn_index import AbortedTxn, CollectedTxns
from tidelog.records.batch import BatchHeader
from tidelog.records.compression import Bytes
from tidelog.records.records import first_record_at
from tidelog.storage.file_records import LogFile
from tidelog.storage.index_files import OffsetIndexFile, TimeIndexFile
from tidelog.storage.offset_metadata import LogOffsetMetadata
from tidelog.storage.txn_index_file import TxnIndexFile

logger = logging.getLogger("tidelog.storage")

COPY_BYTES = 1024 * 1024
"""How much `append_from_file` copies at a time; a larger batch goes alone."""

UNKNOWN = -2
"""Stands for a largest timestamp that was not looked up yet: -1 is what a segment without timestamps has."""

UP_TO_SIZE = -1
"""`max_position` of a read that may go to the segment's end."""


class RollParams(NamedTuple):
    """What `should_roll` has to know: limits, the append's largest timestamp (ms) and offset, its bytes, the clock's time."""

    max_segment_ms: int
    max_segment_bytes: int
    max_timestamp_in_messages: int
    max_offset_in_messages: int
    messages_size: int
    now_ms: int


class LogOffsetPosition(NamedTuple):
    """A batch: its last offset, its position in the `.log` and its size, in bytes."""

    offset: int
    position: int
    size: int


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


class LogSegment:
    """A segment. Made by `open`; `created_ms` is when that was (or when it was last emptied), by the injected clock."""

    def __init__(
        self,
        log: LogFile,
        offset_index: OffsetIndexFile,
        time_index: TimeIndexFile,
        txn_index: TxnIndexFile,
        base_offset: int,
        *,
        index_interval_bytes: int,
        clock: Clock,
        roll_jitter_ms: int = 0,
    ) -> None:
        self.log = log
        self.offset_index = offset_index
        self.time_index = time_index
        self.txn_index = txn_index
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self.roll_jitter_ms = roll_jitter_ms
        self.created_ms = clock.now_ms()
        self.bytes_since_last_index_entry = 0
        self._clock = clock
        self._rolling_based_timestamp: int | None = None
        self._max_timestamp = UNKNOWN
        self._offset_of_max_timestamp = UNKNOWN

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
        """Take the files of a segment, or begin them: only the `.log` is created, the others once they are needed.

        `suffix` comes behind every name (".cleaned", ".swap"). `jitter` is where the segment takes its part of segment.jitter.ms
        from. Raises StorageError, InvalidArgumentError for a `.log` larger than an int32 can tell.
        """

        def path(kind: str) -> Path:
            return directory / (file_name(base_offset, kind) + suffix)

        log = LogFile.open(
            path(LOG_SUFFIX), file_already_exists=file_already_exists, init_file_size=init_file_size, preallocate=preallocate
        )
        limit_ms = min(config.segment_jitter_ms, config.segment_ms)
        return cls(
            log,
            OffsetIndexFile(path(INDEX_SUFFIX), base_offset, config.segment_index_bytes),
            TimeIndexFile(path(TIME_INDEX_SUFFIX), base_offset, config.segment_index_bytes),
            TxnIndexFile(path(TXN_INDEX_SUFFIX), base_offset),
            base_offset,
            index_interval_bytes=config.index_interval_bytes,
            clock=clock,
            roll_jitter_ms=(jitter or random.Random()).randrange(limit_ms) if limit_ms else 0,
        )

    def __repr__(self) -> str:
        return f"LogSegment({self.base_offset}, {self.log.size_bytes} bytes, {str(self.log.path)!r})"

    # --- what it is

    @property
    def size_bytes(self) -> int:
        """Bytes of the `.log`, as far as it was appended in whole."""
        return self.log.size_bytes

    @property
    def max_timestamp_and_offset_so_far(self) -> TimestampOffset:
        """The largest timestamp (ms) and the last offset of the batch that first had it; (-1, base) without one.

        Of a segment opened from disk, the time index's last entry (§3): a roll and a clean close see to it that this is right.
        """
        return TimestampOffset(*self._largest())

    def check_largest_timestamp(self) -> TimestampOffset:
        """Return the same, after a look at the batches behind the time index's last entry: a larger timestamp wins, and is kept.

        Raises CorruptBatchError, StorageError.
        """
        self._max = self._reread_largest()
        return self._max

    @property
    def largest_record_timestamp(self) -> int | None:
        """The largest timestamp (ms), None if no record has one."""
        timestamp = self.max_timestamp_and_offset_so_far.timestamp
        return timestamp if timestamp >= 0 else None

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp (ms); where no record has one, when the `.log` was last written."""
        timestamp = self.max_timestamp_and_offset_so_far.timestamp
        return timestamp if timestamp >= 0 else self.log.modified_ms

    @property
    def first_batch_timestamp(self) -> int:
        """The first batch's largest timestamp (ms), 2^63 - 1 if there is none."""
        timestamp = self._first_timestamp()
        return INT64_MAX if timestamp is None or timestamp < 0 else timestamp

    @property
    def has_overflow(self) -> bool:
        """Whether the last offset cannot be told relative to the base (§4.14): such a segment must be split."""
        next_offset = self.read_next_offset()
        return next_offset > self.base_offset and not self.can_convert_to_relative_offset(next_offset - 1)

    def can_convert_to_relative_offset(self, offset: int) -> bool:
        """Whether this segment's indexes can tell `offset`."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    # --- rolling

    def should_roll(self, params: RollParams) -> bool:
        """Whether an append like this one belongs into a new segment; the table above."""
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

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """Return milliseconds since the first batch: event time if it has a timestamp, wall time since `created_ms` if not."""
        first = self._first_timestamp()
        if first is not None and first >= 0:
            return message_timestamp - first
        return now_ms - self.created_ms

    # --- appending

    def append(self, largest_offset: int, headers: Sequence[BatchHeader], data: Bytes) -> None:
        """Write whole batches, `data`, with their `headers` in order; `largest_offset` is that of the last.

        Of the headers only sizes, last offsets and largest timestamps count; checksums are the caller's. Raises
        OffsetOverflowError before anything is written, InvalidOffsetError for an offset at or below an index entry's, and
        StorageError where the disk refuses. Then nothing was appended, or the message says that the file could not be cut back.
        """
        if not data:
            return
        if not 0 <= largest_offset - self.base_offset <= INT32_MAX:
            raise OffsetOverflowError(
                f"offset {largest_offset} does not fit the segment of base {self.base_offset}", path=self.log.path
            )
        position = self.log.size_bytes
        since = self.bytes_since_last_index_entry
        if since + len(data) - headers[-1].size > self.index_interval_bytes:
            self._append_with_entries(headers, data)
        else:
            max_timestamp, offset_of_max = self._largest()
            self.log.append(data)
            for header in headers:
                if header.max_timestamp > max_timestamp:
                    max_timestamp, offset_of_max = header.max_timestamp, header.last_offset
            self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, offset_of_max
            self.bytes_since_last_index_entry = since + len(data)
        if position == 0:
            self._rolling_based_timestamp = headers[0].max_timestamp

    def _append_with_entries(self, headers: Sequence[BatchHeader], data: Bytes) -> None:
        """Append what gives at least one index entry. All of it happens, or nothing."""
        position = start = self.log.size_bytes
        since, interval = self.bytes_since_last_index_entry, self.index_interval_bytes
        offset_index, time_index = self.offset_index.live(), self.time_index.live()
        offset_entries, time_entries = offset_index.entries, time_index.entries
        max_timestamp, offset_of_max = self._largest()
        self.log.append(data)
        try:
            for header in headers:
                if header.max_timestamp > max_timestamp:
                    max_timestamp, offset_of_max = header.max_timestamp, header.last_offset
                if since > interval:
                    # Full is only what has become so in the middle of this append: else the segment would have rolled.
                    if offset_index.entries < offset_index.max_entries:
                        offset_index.append(header.last_offset, position)
                    if time_index.entries < time_index.max_entries - 1:
                        time_index.maybe_append(max_timestamp, offset_of_max)
                    since = 0
                position += header.size
                since += header.size
            self.offset_index.write_entries()
            self.time_index.write_entries()
        except BaseException as error:
            self.offset_index.keep(offset_entries)
            self.time_index.keep(time_entries)
            self._take_back(start, error)
            raise
        self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, offset_of_max
        self.bytes_since_last_index_entry = since

    def _take_back(self, size_bytes: int, error: BaseException) -> None:
        """Cut the `.log` back after an append whose index entries failed with `error`."""
        try:
            self.log.take_back(size_bytes)
        except StorageError as second:
            raise StorageError(
                f"{error}; nor could the log be cut back to {size_bytes} bytes, which will be tried again: {second.message}",
                path=self.log.path,
            ) from error

    def append_from_file(self, source: LogFile, start: int) -> int:
        """Copy whole batches from `source`, from byte `start` on, up to the first that this segment cannot tell (§4.3).

        Returns how many bytes were copied. Raises what `append` raises, CorruptBatchError.
        """
        copied = 0
        taken: list[BatchHeader] = []
        size = 0
        for header in source.batches(start):
            if not self.can_convert_to_relative_offset(header.last_offset):
                break
            if taken and size + header.size > COPY_BYTES:
                self._copy(source, taken, size)
                copied += size
                taken, size = [], 0
            taken.append(header)
            size += header.size
        if taken:
            self._copy(source, taken, size)
        return copied + size

    def _copy(self, source: LogFile, headers: list[BatchHeader], size: int) -> None:
        self.append(headers[-1].last_offset, headers, source.read(headers[0].position, size))

    def update_txn_index(self, completed: CompletedTxn, last_stable_offset: int) -> None:
        """Note a transaction that ended in this segment, if it was aborted. Raises StorageError."""
        if completed.is_aborted:
            self.txn_index.append(
                AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)
            )

    # --- reading

    def batches(self, position: int = 0, end_position: int | None = None) -> Iterator[BatchHeader]:
        """Yield the headers of the whole batches in [position, end_position); see `LogFile.batches`."""
        return self.log.batches(position, end_position)

    def batches_from(self, offset: int) -> Iterator[BatchHeader]:
        """Yield the headers of the batches from a place on before which every offset is below `offset`.

        The offset index says where; if what stands there contradicts it, the walk begins at 0.
        """
        entry = self.offset_index.lookup(offset)
        if entry.position > 0:
            try:
                header = self.log.first_batch(entry.position) if entry.position < self.log.size_bytes else None
                if header is not None and (header.magic < 2 or header.base_offset <= entry.offset <= offset):
                    return self.log.batches(entry.position)
            except CorruptBatchError:
                pass
            logger.warning(
                "%s: entry (offset %d, byte %d) points to no such batch, the log is read instead", self.offset_index.path, *entry
            )
        return self.log.batches()

    def translate_offset(self, offset: int, start: int = 0) -> LogOffsetPosition | None:
        """Return the first batch whose last offset is at or above `offset`, None behind the last one (§4.4).

        `start` is a position before which there is none; where it is behind what the index says, the walk begins there.
        Raises CorruptBatchError, StorageError.
        """
        is_behind_index = start > 0 and start > self.offset_index.lookup(offset).position
        for header in self.log.batches(start) if is_behind_index else self.batches_from(offset):
            if header.last_offset >= offset:
                return LogOffsetPosition(header.last_offset, header.position, header.size)
        return None

    def read(
        self, start_offset: int, max_size: int, max_position: int | None = UP_TO_SIZE, min_one_message: bool = False
    ) -> FetchData | None:
        """Return up to `max_size` bytes from the batch with `start_offset`, or the next one, on; None behind the last (§4.5).

        `max_position` is the byte to stop at; None, if it is not known, gives no bytes but the place. With `min_one_message` the
        first batch comes whole, whatever its size. Raises InvalidArgumentError, CorruptBatchError, StorageError.
        """
        if max_size < 0:
            raise InvalidArgumentError("a read of a negative size", path=self.log.path, found=max_size)
        found = self.translate_offset(start_offset)
        if found is None:
            return None
        metadata = LogOffsetMetadata(start_offset, self.base_offset, found.position)
        adjusted = max(max_size, found.size) if min_one_message else max_size
        if adjusted == 0 or max_position is None:
            return FetchData(metadata, memoryview(b""), False)
        end = self.log.size_bytes if max_position == UP_TO_SIZE else max_position
        length = max(0, min(end - found.position, adjusted))
        return FetchData(metadata, memoryview(self.log.read(found.position, length)), adjusted < found.size)

    def read_next_offset(self) -> int:
        """Return the offset behind the last record; the base if it is empty (§4.6). Raises CorruptBatchError, StorageError."""
        last = None
        for header in self.batches_from(self.offset_index.last_offset):
            last = header
        return self.base_offset if last is None else last.next_offset

    def find_offset_by_timestamp(self, timestamp: int, starting_offset: int | None = None) -> TimestampAndOffset | None:
        """Return the first record from `starting_offset` (default: the base) on whose timestamp (ms) is at least that (§4.9).

        Control records count. Raises CorruptBatchError, InvalidRecordError, DecompressionError, StorageError.
        """
        start = self.base_offset if starting_offset is None else starting_offset
        entry = self.time_index.lookup(timestamp)
        for header in self.batches_from(max(entry.offset, start)):
            if header.max_timestamp < timestamp or header.last_offset < start:
                continue
            record = first_record_at(header, self.log.read_batch(header), timestamp, start, path=self.log.path)
            if record is not None:
                offset, found = record
                return TimestampAndOffset(found, offset, header.leader_epoch)
        return None

    def fetch_upper_bound_offset(self, start: OffsetPosition, fetch_size_bytes: int) -> int | None:
        """Return an offset that no record of a fetch exceeds, None if the index knows none: the next segment's base is one."""
        entry = self.offset_index.fetch_upper_bound_offset(start, fetch_size_bytes)
        return None if entry is None else entry.offset

    def collect_aborted_txns(self, fetch_offset: int, upper_bound_offset: int) -> CollectedTxns:
        """Return what a fetch of [fetch_offset, upper_bound_offset) must know of this segment's aborted transactions (§5.4)."""
        return self.txn_index.collect_aborted_txns(fetch_offset, upper_bound_offset)

    # --- truncating

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that holds `offset`, or the first one above it, and all behind; return how many bytes went (§4.8).

        The indexes get room again, as the segment may become the active one. Raises CorruptBatchError, StorageError.
        """
        found = self.translate_offset(offset)
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
        """Return the largest timestamp by the time index's last entry and the batches behind it."""
        largest = self.time_index.last_entry
        for header in self.batches_from(largest.offset):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest

    def resize_indexes(self, max_index_bytes: int | None = None) -> None:
        """Give both indexes room (default: as configured when the segment was opened), as the active segment's have it."""
        for index in (self.offset_index, self.time_index):
            if max_index_bytes is not None:
                index.max_index_bytes = max_index_bytes
            index.resize(index.max_index_bytes)

    # --- recovering

    def reset_for_recovery(self) -> None:
        """Forget what the indexes say and what is known from them (§4.7). Raises StorageError."""
        self.offset_index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self._max_timestamp = self._offset_of_max_timestamp = UNKNOWN
        self._rolling_based_timestamp = None
        self.bytes_since_last_index_entry = 0

    def install_recovered(
        self, valid_bytes: int, offset_entries: Bytes, time_entries: Bytes, max_timestamp: int, offset_of_max_timestamp: int
    ) -> int:
        """Cut the `.log` to `valid_bytes` and take the indexes that were rebuilt from it; return how many bytes went (§4.7).

        The last time index entry is added here; both are trimmed. Entries that there is no room for are left out.
        Raises StorageError.
        """
        removed = self.log.truncate_to(valid_bytes)
        self.offset_index.install(offset_entries)
        self.time_index.install(time_entries)
        if max_timestamp >= 0:
            self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, offset_of_max_timestamp
        self._finish_indexes()
        return removed

    def sanity_check(self, time_index_newly_created: bool) -> None:
        """Check what loading checks (§2.7): that there is an `.index`, and the transaction index.

        A `.timeindex` that the caller found missing is made, empty. Raises CorruptIndexError, also for a missing `.index`.
        """
        if not self.offset_index.path.exists():
            raise CorruptIndexError("a segment without its offset index", path=self.offset_index.path)
        if time_index_newly_created:
            self.time_index.resize(0)
        self.txn_index.sanity_check()

    # --- finishing

    def on_become_inactive(self) -> None:
        """Finish at a roll: last time index entry, indexes and `.log` trimmed; nothing is synced. Raises StorageError."""
        self._finish_indexes()
        self.log.trim()
        self.offset_index.rest()
        self.time_index.rest()

    def _finish_indexes(self) -> None:
        largest = self.max_timestamp_and_offset_so_far
        self.time_index.maybe_append(largest.timestamp, largest.offset, skip_full_check=True)
        self.offset_index.trim_to_valid_size()
        self.time_index.trim_to_valid_size()

    def flush(self) -> None:
        """Wait until the files are on the disk; both indexes are created if nobody needed them yet. Raises StorageError."""
        self.log.flush()
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def close(self) -> None:
        """Finish the files: last time index entry if the largest timestamp is known here (§4.11), trim, sync the `.log`, close.

        Raises StorageError, after everything was closed.
        """
        with contextlib.ExitStack() as stack:
            for part in (self.txn_index, self.log, self.time_index, self.offset_index):
                stack.callback(part.close)
            if self._max_timestamp != UNKNOWN:
                try:
                    self.time_index.maybe_append(*self._largest(), skip_full_check=True)
                except Exception as error:
                    logger.warning("%s: its last entry could not be added: %s", self.time_index.path, error)

    def close_handlers(self) -> None:
        """Give the descriptors back and leave the files as they are (when their disk has failed)."""
        self.offset_index.close_handlers()
        self.time_index.close_handlers()
        self.log.close_handlers()
        with contextlib.suppress(OSError):
            self.txn_index.close()

    def close_idle(self) -> None:
        """Give the descriptors back until they are needed again. Raises StorageError."""
        self.txn_index.flush()
        self.txn_index.close()
        self.offset_index.release()
        self.time_index.release()
        self.log.release()

    # --- the files and their names

    @property
    def paths(self) -> tuple[Path, Path, Path, Path]:
        """The `.log`, `.index`, `.timeindex` and `.txnindex`, there or not."""
        return self.log.path, self.offset_index.path, self.time_index.path, self.txn_index.path

    def change_file_suffixes(self, old_suffix: str, new_suffix: str) -> None:
        """Rename the files that are there: `new_suffix` for `old_suffix` at the end of the names. Raises StorageError."""
        for part in (self.log, self.offset_index, self.time_index, self.txn_index):
            name = part.path.name
            if not name.endswith(old_suffix):
                raise InvalidArgumentError(f"a file's name does not end in {old_suffix}", path=part.path)
            part.rename_to(part.path.with_name(name.removesuffix(old_suffix) + new_suffix))

    def has_suffix(self, suffix: str) -> bool:
        """Whether the files' names end in `suffix`."""
        return all(path.name.endswith(suffix) for path in self.paths)

    def update_parent_dir(self, directory: Path) -> None:
        """Note that the folder was renamed."""
        for part in (self.log, self.offset_index, self.time_index, self.txn_index):
            part.update_parent_dir(directory)

    def delete_if_exists(self) -> None:
        """Remove the files, each that is there. Raises StorageError, after all were tried."""
        with contextlib.ExitStack() as stack:
            for part in (self.txn_index, self.time_index, self.offset_index, self.log):
                stack.callback(part.delete_if_exists)

    @property
    def last_modified_ms(self) -> int:
        """When the `.log` was last written, epoch milliseconds."""
        return self.log.modified_ms

    def set_last_modified(self, modified_ms: int) -> None:
        """Give `.log`, `.index` and `.timeindex`, each that is there, a modification time (ms). Raises StorageError."""
        for path in self.paths[:3]:
            try:
                os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageError(f"cannot set a file's time: {error.strerror or error}", path=path) from error

    def _largest(self) -> tuple[int, int]:
        """Return the largest timestamp so far (ms) and its batch's last offset, from the time index's last entry at first."""
        if self._max_timestamp == UNKNOWN:
            self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last_entry
        return self._max_timestamp, self._offset_of_max_timestamp

    def _first_timestamp(self) -> int | None:
        if self._rolling_based_timestamp is None:
            header = self.log.first_batch()
            if header is not None:
                self._rolling_based_timestamp = header.max_timestamp
        return self._rolling_based_timestamp
