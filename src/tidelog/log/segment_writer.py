"""One segment being written: batches in, `.log`, `.index` and `.timeindex` out, byte for byte as Kafka 3.9.1 (spec §3, §4).

What decides about an index entry, per batch and before the batch counts (§4.2)::

    max_timestamp  ← the batch's, if it is larger; with it the batch's last offset
    if bytes since the last entry > index.interval.bytes:
        offset index ← (last offset of the batch, position of its first byte)
        time index   ← (max_timestamp so far, last offset of the batch that first reached it), if larger than the last entry
        bytes since the last entry ← 0
    bytes since the last entry ← + size of the batch

so the first batch of a segment has no entry, and the batch that got one counts toward the next. When the segment rolls or
closes, the time index gets the largest timestamp as its last entry, into the slot that is reserved for it, and both
indexes are trimmed to their entries (§4.10, §4.11).

| roll before an append if (§4.1) | |
|---|---|
| size | the segment would exceed segment.bytes |
| time | event time since the first batch's largest timestamp > segment.ms - jitter; wall time where that batch has none |
| index | the offset index is full, or the time index but for its reserved slot |
| offsets | the last offset cannot be told relative to the base in an int32 |

Indexes are kept in memory and become files when the segment becomes inactive: at most segment.index.bytes each. The
`.txnindex` exists only where a transaction was aborted; what goes into it is the caller's to know.
`partition_writer` is the caller; nothing else writes segments.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tidelog.config import INT32_MAX, LogConfig
from tidelog.errors import InvalidArgumentError, OffsetOverflowError, StorageError
from tidelog.log.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name
from tidelog.log.offset_index import OffsetIndex
from tidelog.log.time_index import TimeIndex
from tidelog.log.txn_index import TxnIndex
from tidelog.records.batch import BatchHeader

NO_TIMESTAMP = -1


class RollParams(NamedTuple):
    """What `should_roll` has to know about an append: its largest timestamp and offset, its bytes, and the clock's time."""

    max_timestamp_in_messages: int
    max_offset_in_messages: int
    messages_size: int
    now_ms: int


class SegmentWriter:
    """The files of one new segment. `created_ms` is the clock's time; `roll_jitter_ms` shortens segment.ms for this segment."""

    def __init__(self, directory: Path, base_offset: int, config: LogConfig, *, created_ms: int, roll_jitter_ms: int = 0) -> None:
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.size_bytes = 0
        self.bytes_since_last_index_entry = 0
        self.rolling_based_timestamp: int | None = None
        self.max_timestamp_so_far = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        self.offset_index = OffsetIndex.create(base_offset, config.segment_index_bytes)
        self.time_index = TimeIndex.create(base_offset, config.segment_index_bytes)
        self.txn_index = TxnIndex(base_offset)
        self.log_path = directory / file_name(base_offset, LOG_SUFFIX)
        self.offset_index_path = directory / file_name(base_offset, INDEX_SUFFIX)
        self.time_index_path = directory / file_name(base_offset, TIME_INDEX_SUFFIX)
        self.txn_index_path = directory / file_name(base_offset, TXN_INDEX_SUFFIX)
        self._config = config
        try:
            self._fd = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _refused("create", self.log_path, error) from error

    def should_roll(self, params: RollParams) -> bool:
        """Whether an append like this one belongs into a new segment; the table above."""
        if self.size_bytes > self._config.segment_bytes - params.messages_size:
            return True
        if self.size_bytes > 0:
            waited_ms = self.time_waited_for_roll(params.now_ms, params.max_timestamp_in_messages)
            if waited_ms > self._config.segment_ms - self.roll_jitter_ms:
                return True
        full = self.offset_index.is_full or self.time_index.is_full
        return full or not self.can_convert_to_relative_offset(params.max_offset_in_messages)

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """Return milliseconds since the first batch: event time if it has a timestamp, wall time since creation if not."""
        if self.rolling_based_timestamp is not None and self.rolling_based_timestamp >= 0:
            return message_timestamp - self.rolling_based_timestamp
        return now_ms - self.created_ms

    def can_convert_to_relative_offset(self, offset: int) -> bool:
        """Whether this segment's indexes can tell `offset`."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def append(self, largest_offset: int, headers: Iterable[BatchHeader], records: bytes | bytearray | memoryview) -> None:
        """Write whole batches, `records`, with their `headers` in order; `largest_offset` is that of the last.

        Raises OffsetOverflowError before anything is written, and StorageError where the file system refuses: the file is
        then cut back to what it was.
        """
        size = len(records)
        if size == 0:
            return
        if not self.can_convert_to_relative_offset(largest_offset):
            raise OffsetOverflowError(
                f"offset {largest_offset} does not fit the segment of base {self.base_offset}", path=self.log_path
            )
        position = self.size_bytes
        if position + size > INT32_MAX:
            raise InvalidArgumentError("a segment cannot grow beyond an int32", path=self.log_path, found=position + size)
        self._write(records)
        for header in headers:
            if self.rolling_based_timestamp is None:
                self.rolling_based_timestamp = header.max_timestamp
            if header.max_timestamp > self.max_timestamp_so_far:
                self.max_timestamp_so_far = header.max_timestamp
                self.offset_of_max_timestamp = header.last_offset
            if self.bytes_since_last_index_entry > self._config.index_interval_bytes:
                self.offset_index.append(header.last_offset, position)
                self.time_index.maybe_append(self.max_timestamp_so_far, self.offset_of_max_timestamp)
                self.bytes_since_last_index_entry = 0
            position += header.size
            self.bytes_since_last_index_entry += header.size

    def on_become_inactive(self) -> None:
        """Finish the segment at a roll or a close: last time index entry, index files, log file closed (not synced)."""
        self.time_index.maybe_append(self.max_timestamp_so_far, self.offset_of_max_timestamp, skip_full_check=True)
        self.offset_index.trim_to_valid_size()
        self.time_index.trim_to_valid_size()
        write_new_file(self.offset_index_path, self.offset_index.to_bytes())
        write_new_file(self.time_index_path, self.time_index.to_bytes())
        if self.txn_index.aborted:
            write_new_file(self.txn_index_path, self.txn_index.to_bytes())
        self.close_handlers()

    def close_handlers(self) -> None:
        """Close the file as it is; for a segment that is given up, and safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                os.close(fd)
            except OSError as error:
                raise _refused("close", self.log_path, error) from error

    def paths(self) -> list[Path]:
        """Return the files of a segment that has become inactive."""
        txn_index = [self.txn_index_path] if self.txn_index.aborted else []
        return [self.log_path, self.offset_index_path, self.time_index_path, *txn_index]

    def _write(self, records: bytes | bytearray | memoryview) -> None:
        try:
            _write_all(self._fd, records)
        except OSError as error:
            # Half a batch must not stay: whoever reads next would find a torn tail in the middle of what follows.
            os.ftruncate(self._fd, self.size_bytes)
            os.lseek(self._fd, self.size_bytes, os.SEEK_SET)
            raise _refused("write", self.log_path, error) from error
        self.size_bytes += len(records)


def write_new_file(path: Path, data: bytes) -> None:
    """Write a small file in one go; raises StorageError."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            _write_all(fd, data)
        finally:
            os.close(fd)
    except OSError as error:
        raise _refused("write", path, error) from error


def flush(path: Path) -> None:
    """Force a file, or a folder's entries, to the disk; raises StorageError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise _refused("sync", path, error) from error


def _write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    written = os.write(fd, data)
    if written < len(data):
        rest = memoryview(data)
        while written < len(data):
            written += os.write(fd, rest[written:])


def _refused(what: str, path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot {what} a file: {error.strerror or error}", path=path)
