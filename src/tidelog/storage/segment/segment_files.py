"""The four files of a segment, which are opened, synced, renamed and removed together (spec §1, §4.12, §4.13).

| file | class | exists |
|---|---|---|
| `.log` | `log_file.LogFile` | always |
| `.index`, `.timeindex` | `offset_index_file`, `time_index_file` | since the first use |
| `.txnindex` | `txn_index_file.TxnIndexFile` | if a transaction was aborted |

Invariant: nothing is opened or created before it is needed, and every operation works with missing files.

This is the lowest layer of `LogSegment`, which interprets the content. Not thread-safe.
"""

from __future__ import annotations

import contextlib
import os
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.formats.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.offset_index_file import OffsetIndexFile
from tidelog.storage.segment.time_index_file import TimeIndexFile
from tidelog.storage.segment.txn_index_file import TxnIndexFile

_Index = TypeVar("_Index", OffsetIndexFile, TimeIndexFile)


class SegmentFiles:
    """A `.log` and the files beside it. They are named like the `.log`: a suffix after ".log" (".cleaned", ".swap") follows every
    name.
    """

    _is_active = False

    def __init__(self, log: LogFile, base_offset: int, max_index_bytes: int) -> None:
        self.base_offset = base_offset
        self.log = log
        self._max_index_bytes = max_index_bytes

    # Even the objects are created on demand: a folder may have ten thousand unused segments.

    @cached_property
    def offset_index(self) -> OffsetIndexFile:
        """The `.index`."""
        return self._made(OffsetIndexFile(self._beside(INDEX_SUFFIX), self.base_offset, self._max_index_bytes))

    @cached_property
    def time_index(self) -> TimeIndexFile:
        """The `.timeindex`."""
        return self._made(TimeIndexFile(self._beside(TIME_INDEX_SUFFIX), self.base_offset, self._max_index_bytes))

    def _made(self, index: _Index) -> _Index:
        if self._is_active:
            index.grow_later()
        return index

    @cached_property
    def txn_index(self) -> TxnIndexFile:
        """The `.txnindex`."""
        return TxnIndexFile(self._beside(TXN_INDEX_SUFFIX), self.base_offset)

    def _beside(self, kind: str) -> Path:
        return self.log.path.with_name(self.log.path.name.replace(LOG_SUFFIX, kind, 1))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_offset}, {self.log.size_bytes} bytes, {str(self.log.path)!r})"

    @property
    def size_bytes(self) -> int:
        """Bytes of the `.log` up to the last complete append."""
        return self.log.size_bytes

    def resize_indexes(self, max_index_bytes: int | None = None) -> None:
        """Give both indexes the capacity of an active segment's indexes, by default as configured when the segment was opened.

        Raises StorageError.
        """
        for index in (self.offset_index, self.time_index):
            if max_index_bytes is not None:
                index.max_index_bytes = max_index_bytes
            index.resize(index.max_index_bytes)

    def make_active(self) -> None:
        """Let both indexes grow like an active segment's indexes, starting with their first change. Nothing is opened now."""
        self._is_active = True
        for name in ("offset_index", "time_index"):
            index = self.__dict__.get(name)  # One that does not exist yet grows once it does.
            if index is not None:
                index.grow_later()

    def flush(self) -> None:
        """Wait until the files are on disk. Unused indexes are created. Raises StorageError."""
        self.log.flush()
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def begin_sync(self) -> list[Path]:
        """Mark the files as synced, and return the paths that the caller must sync. Raises StorageError."""
        if not self.log.path.exists():
            return []  # The segment was deleted meanwhile: its indexes must not be created.
        found = [part.begin_sync() for part in (self.log, self.offset_index, self.time_index)]
        # The transaction index is small and rare, so it is always synced.
        return [path for path in found if path is not None] + [self.txn_index.path]

    def sync_failed(self) -> None:
        """Record that the sync in progress failed."""
        for part in (self.log, self.offset_index, self.time_index):
            part.sync_failed()

    def close_handlers(self) -> None:
        """Close the descriptors without changing the files (when their disk has failed)."""
        self.offset_index.close_handlers()
        self.time_index.close_handlers()
        self.log.close_handlers()
        with contextlib.suppress(OSError):
            self.txn_index.close()

    def close_idle(self) -> None:
        """Close the descriptors until they are needed. Raises StorageError."""
        self.txn_index.flush()
        self.txn_index.close()
        self.offset_index.release()
        self.time_index.release()
        self.log.release()

    def give_descriptors_back(self) -> int:
        """Close the files that can be reopened, without changing them. Return the number of closed descriptors. Never raises."""
        closed = 0
        if self.log.is_open:
            self.log.close_handlers()
            closed += 1
        for name in ("offset_index", "time_index"):
            index = self.__dict__.get(name)  # Objects that were never used are not made.
            if index is not None and index.is_open:
                index.close_handlers()
                closed += 1
        return closed

    @property
    def paths(self) -> tuple[Path, Path, Path, Path]:
        """The `.log`, `.index`, `.timeindex` and `.txnindex`, whether they exist or not."""
        return self.log.path, self.offset_index.path, self.time_index.path, self.txn_index.path

    def change_file_suffixes(self, old_suffix: str, new_suffix: str) -> None:
        """Rename the existing files: replace `old_suffix` at the end of the names with `new_suffix`. Raises StorageError."""
        for part in (self.log, self.offset_index, self.time_index, self.txn_index):
            name = part.path.name
            if not name.endswith(old_suffix):
                raise InvalidArgumentError(f"a file's name does not end in {old_suffix}", path=part.path)
            part.rename_to(part.path.with_name(name.removesuffix(old_suffix) + new_suffix))

    def update_parent_dir(self, directory: Path) -> None:
        """Update the paths after the folder has been renamed."""
        for part in (self.log, self.offset_index, self.time_index, self.txn_index):
            part.update_parent_dir(directory)

    def delete_if_exists(self) -> None:
        """Remove the existing files. Raises StorageError, after all were tried."""
        with contextlib.ExitStack() as stack:
            for part in (self.txn_index, self.time_index, self.offset_index, self.log):
                stack.callback(part.delete_if_exists)

    @property
    def last_modified_ms(self) -> int:
        """When the `.log` was last written, epoch milliseconds."""
        return self.log.modified_ms

    def set_last_modified(self, modified_ms: int) -> None:
        """Set the modification time (ms) of the existing `.log`, `.index` and `.timeindex`. Raises StorageError."""
        for path in self.paths[:3]:
            try:
                os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageError(f"cannot set a file's time: {error.strerror or error}", path=path) from error
