"""Reads the `.log` of a segment: bytes and batches up to the logical end, and nothing after it.

The descriptor is opened when first needed. All reads are by `pread`; a mapping is made only for callers that pass the bytes on
unread (`mapped`). `log_file` writes. Not thread-safe.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from tidelog.errors import CorruptBatchError, InvalidArgumentError, StorageError
from tidelog.formats.non_blocking_read import pread
from tidelog.records.batch import HEADER_BYTES, LOG_OVERHEAD, MIN_HEADER_BYTES, MIN_LENGTH, BatchHeader, read_header
from tidelog.records.compression import Bytes
from tidelog.storage.segment.descriptors import is_shortage, open_file

FIRST_READ_BYTES = 8 * 1024
"""The bytes that a look-up reads first. Most look-ups walk one index interval, which is 4 KiB unless configured."""
MAX_READ_BYTES = 512 * 1024
HOP_READ_BYTES = 4096

MIN_MAPPED_BYTES = 128 * 1024
"""Fewer bytes are faster to copy than to map."""

_LENGTH = Struct(">i")


class LogFileReader:
    """The reading half of `LogFile`. Use the subclass."""

    _first: BatchHeader | None = None
    """The header at position 0, if it was read since the file was opened: a start needs it several times."""

    def __init__(self, path: Path | str, size_bytes: int, fd: int) -> None:
        self._path = path
        self.size_bytes = size_bytes
        self._fd = fd
        self._map: memoryview | None = None
        self._is_synced = False
        self._is_link = False
        """Whether the file is a symbolic link to another folder's file, as in a `read_only_view`. Such a file is never
        written.
        """

    @property
    def path(self) -> Path:
        """The file's path."""
        if isinstance(self._path, str):  # Made on demand: a folder may have ten thousand segments.
            self._path = Path(self._path)
        return self._path

    @path.setter
    def path(self, path: Path) -> None:
        self._path = path

    @property
    def path_text(self) -> str:
        """The file's path as text."""
        return str(self._path)

    @property
    def is_open(self) -> bool:
        """Whether a descriptor is open."""
        return self._fd >= 0

    def close_handlers(self) -> None:
        """Close the descriptor without changing the file (when its disk has failed). Never raises."""
        fd, self._fd = getattr(self, "_fd", -1), -1
        self._map = self._first = None
        if fd >= 0:
            try:
                os.close(fd)
            except OSError:
                self._is_synced = False

    def release(self) -> None:
        """Close the descriptor until the next use. Raises StorageError if closing reports a lost write."""
        fd, self._fd = self._fd, -1
        self._map = self._first = None
        if fd >= 0:
            try:
                os.close(fd)
            except OSError as error:
                raise refused("close", self.path, error) from error

    # --- reading

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position`; fewer only at the logical end.

        Raises InvalidArgumentError for a position after the end or a negative number, and StorageError, also if the file was
        truncated below its logical end.
        """
        length = self._available(position, length)
        if length == 0:
            return b""
        fd = self._open()
        try:
            data = pread(fd, length, position)
            while len(data) < length:
                more = pread(fd, length - len(data), position + len(data))
                if not more:
                    raise self._too_short(position + len(data))
                data += more
        except StorageError:
            raise
        except OSError as error:
            raise refused("read", self.path, error) from error
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Read bytes at `position` into `buffer`, and return their number, which is less than the buffer's size only at the
        logical end.

        Raises what `read` raises.
        """
        length = self._available(position, len(buffer))
        if length == 0:
            return 0
        fd = self._open()
        count = 0
        try:
            while count < length:
                more = os.preadv(fd, [buffer[count:length]], position + count)
                if not more:
                    raise self._too_short(position + count)
                count += more
        except StorageError:
            raise
        except OSError as error:
            raise refused("read", self.path, error) from error
        return count

    def view(self, position: int, length: int) -> Bytes:
        """Return the bytes, to be passed to a system call. Many bytes are mapped (see `mapped`), and the system may have to read
        them from disk; few bytes are copied.

        Raises what `read` raises. Within `non_blocking`, raises NotCachedError if the bytes would be copied but are not in
        memory.
        """
        if length >= MIN_MAPPED_BYTES:
            try:
                return self.mapped(position, length)
            except StorageError as error:
                if not is_shortage(error):  # A mapping needs one more descriptor; a copy serves as well.
                    raise
        return self.read(position, length)

    def mapped(self, position: int, length: int) -> memoryview:
        """Return the bytes without copying them, to be passed to a system call.

        Code that reads the bytes here may wait for the disk, and gets a fatal signal if the file was truncated; `writev` just
        fails in that case. The whole file is mapped, once, until `unmap`; slices in use keep their mapping. Raises what `read`
        raises.
        """
        end = position + length
        if self._available(position, length) < length:
            raise self._too_short(self.size_bytes)
        if self._map is None or len(self._map) < end:
            try:
                self._map = memoryview(mmap.mmap(self._open(), self.size_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))
            except (OSError, ValueError) as error:  # ValueError: the file was truncated.
                raise StorageError(f"cannot map a file: {error}", path=self.path, expected=f"{self.size_bytes} bytes") from error
        return self._map[position:end]

    def unmap(self) -> None:
        """Release the mapping; slices in use keep it until they are gone."""
        self._map = None

    def batches(self, position: int = 0, end_position: int | None = None) -> Iterator[BatchHeader]:
        """Yield the headers of the whole batches from `position`, where one starts, to `end_position` or the end.

        A partial batch at the end is skipped silently (spec §4.15). Raises CorruptBatchError for an invalid header; checksums and
        the order of offsets are not checked. Raises StorageError.
        """
        end = self.size_bytes if end_position is None else min(end_position, self.size_bytes)
        chunk, start, read_bytes = b"", position, FIRST_READ_BYTES // 2
        while end - position >= MIN_HEADER_BYTES:
            index = position - start
            if index + HEADER_BYTES > len(chunk) and start + len(chunk) < end:
                # Reads more at a time while batches are small, and only headers if they are large.
                far = index - len(chunk) > HOP_READ_BYTES
                read_bytes = HOP_READ_BYTES if far else min(read_bytes * 2, MAX_READ_BYTES)
                chunk, start, index = self.read(position, min(read_bytes, end - position)), position, 0
            (length,) = _LENGTH.unpack_from(chunk, index + 8)
            if length >= MIN_LENGTH and length + LOG_OVERHEAD > end - position:
                return
            header = read_header(chunk, index, position, self._path)
            yield header
            position += header.size

    def first_batch(self, position: int = 0) -> BatchHeader | None:
        """Return the header of the batch at `position`; None if it is not whole. Raises CorruptBatchError, StorageError."""
        if position == 0 and self._first is not None:
            return self._first
        room = self.size_bytes - position
        if room < MIN_HEADER_BYTES:
            return None
        data = self.read(position, min(HEADER_BYTES, room))
        (length,) = _LENGTH.unpack_from(data, 8)
        if length >= MIN_LENGTH and length + LOG_OVERHEAD > room:
            return None
        header = read_header(data, 0, position, self._path)
        if position == 0:
            self._first = header
        return header

    def read_batch(self, header: BatchHeader) -> bytes:
        """Return a batch's bytes; its checksum is not checked. Raises CorruptBatchError if it is no longer whole."""
        data = self.read(header.position, header.size)
        if len(data) < header.size:
            raise CorruptBatchError("a batch is truncated by the end of its segment", path=self.path, position=header.position)
        return data

    def descriptor(self) -> int:
        """Return a descriptor for reading, which this object keeps. Raises StorageError."""
        return self._open()

    # --- inside

    def _open(self) -> int:
        if self._fd < 0:
            try:
                self._fd = open_file(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise refused("open", self.path, error) from error
                self._fd = self._open_link()
        return self._fd

    def _open_link(self) -> int:
        self._is_link = True
        try:
            return open_file(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise refused("open", self.path, error) from error

    def _available(self, position: int, length: int) -> int:
        if not 0 <= position <= self.size_bytes or length < 0:
            raise InvalidArgumentError(
                "the range to read is outside the log file",
                path=self.path,
                found=f"{length} bytes at {position}",
                expected=f"0 to {self.size_bytes}",
            )
        return min(length, self.size_bytes - position)

    def _too_short(self, position: int) -> StorageError:
        return StorageError(
            "a log file was truncated: it is shorter than what was written to it",
            path=self.path,
            found=position,
            expected=f"{self.size_bytes} bytes",
        )


def refused(what: str, path: Path | str, error: OSError) -> StorageError:
    """Return the error for a failed operation on a file."""
    return StorageError(f"cannot {what} a file: {error.strerror or error}", path=path)
