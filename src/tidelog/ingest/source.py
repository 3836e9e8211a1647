"""The interface of a file to import: a stream of Arrow record batches of bounded size.

A source knows the requested columns (timestamp, key, value) and reads no other columns unless it has to. Rows are in the order of
the file. Arrow's errors about a damaged file become a CorruptDataError with the file's path. `formats` opens a source.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from tidelog.errors import CorruptDataError, InvalidArgumentError, StorageError

CHUNK_BYTES = 16 << 20
"""The approximate number of bytes of a file that are in memory at a time, as columns."""

CHUNK_ROWS = 1 << 16
"""The most rows of a chunk."""


@dataclass(frozen=True)
class Wanted:
    """The names of the columns that an import uses. If `value` is None, the value is the whole row."""

    timestamp: str
    key: str | None = None
    value: str | None = None

    def names(self) -> list[str]:
        """Return the columns' names, without duplicates."""
        return list(dict.fromkeys(name for name in (self.timestamp, self.key, self.value) if name is not None))


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of a file."""

    first_row: int
    """The number of the first row, counted from 1. A header line does not count."""
    columns: pa.RecordBatch
    """The requested columns, possibly with others. If the value is the whole row, these are all columns of the file."""
    texts: pa.StringArray | None
    """The rows as they appear in the file, if the file is JSON; otherwise None."""
    bytes_done: int
    """How many bytes of the file have been read, for progress."""


class Source(Protocol):
    """A file to import."""

    size_bytes: int
    """The value of `bytes_done` at the end of the file."""

    def rows(self) -> Iterator[Rows]:
        """Yield the rows in the file's order. Raises CorruptDataError and StorageError."""


def check_columns(path: Path, wanted: Wanted, names: list[str]) -> None:
    """Raise InvalidArgumentError unless each requested column exists exactly once."""
    for name in wanted.names():
        count = names.count(name)
        if count != 1:
            what = f"there is no column {name!r}" if count == 0 else f"{count} columns are named {name!r}"
            raise InvalidArgumentError(what, path=path, expected=f"one of {', '.join(names)}" if count == 0 else None)


class FileState(NamedTuple):
    """A file's identity and state, to detect changes."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


def file_state(path: Path) -> FileState | None:
    """Return the state of a file to be read; None if the file does not exist or is not a regular file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def check_unchanged(path: Path, before: FileState | None) -> None:
    """Raise CorruptDataError if the file has changed since `before`, because the rows may then be a mixture of old and new."""
    after = file_state(path)
    if before is None or after == before:
        return
    if after is None:
        raise CorruptDataError("the file was deleted while it was being read", path=path)
    if (after.device, after.inode) != (before.device, before.inode):
        raise CorruptDataError("the file was replaced while it was being read", path=path)
    if after.size_bytes != before.size_bytes:
        raise CorruptDataError(
            "the file's size changed while it was being read",
            path=path,
            found=f"{after.size_bytes} bytes",
            expected=before.size_bytes,
        )
    raise CorruptDataError("the file was written to while it was being read", path=path)


@contextmanager
def arrow_errors(path: Path, kind: str) -> Iterator[None]:
    """Convert errors of Arrow and the file system to Tidelog's errors, with a message of one line and the file's path."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, pa.ArrowSerializationError) as error:
        raise CorruptDataError(f"cannot be read as {kind}: {first_line(error)}", path=path) from error
    except pa.ArrowCapacityError as error:
        raise CorruptDataError(f"a row is too large to be read as {kind}: {first_line(error)}", path=path) from error
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        # Decompressors report damage as an OSError without an error number.
        if error.errno is None:
            raise CorruptDataError(f"cannot be read as {kind}: {first_line(error)}", path=path) from error
        raise StorageError(f"cannot read the file: {error.strerror or first_line(error)}", path=path) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without a full stop at its end."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def slices(batch: pa.RecordBatch, limit_bytes: int = CHUNK_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the batch, cut into slices of equal length if it has more than `limit_bytes`."""
    pieces = max(1, -(-batch.nbytes // limit_bytes), -(-batch.num_rows // CHUNK_ROWS))
    rows = max(1, -(-batch.num_rows // pieces))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
