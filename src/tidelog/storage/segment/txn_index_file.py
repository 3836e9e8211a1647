"""The writable ``.txnindex`` of a segment: the transactions whose ABORT marker is in it (spec §2, §5.4; KIP-98).

`formats.txn_index` has the entries and their rules; this module owns the file. The first entry creates the file, which grows by
34 bytes per entry, without preallocation. It is opened when first used, so a segment without aborted transactions costs nothing.
Entries stay in memory until `close`.

Invariants: the file has exactly the entries in memory; last offsets increase strictly. A failed write is truncated, so that no
torn entry stays before later ones. Not thread-safe. A segment, its recovery and the cleaner use it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tidelog.errors import StorageError
from tidelog.formats.checkpoints import sync_directory
from tidelog.formats.txn_index import ENTRY_BYTES, AbortedTxn, CollectedTxns, TxnIndex
from tidelog.storage.segment.descriptors import open_file


class TxnIndexFile:
    """Aborted transactions of the segment at `base_offset`, oldest first. Nothing is opened before it is needed."""

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._fd = -1
        self._index: TxnIndex | None = None
        self._is_new = False

    def __del__(self) -> None:
        self.close()

    @property
    def aborted(self) -> list[AbortedTxn]:
        """The entries. Raises CorruptIndexError, StorageError."""
        return list(self._loaded().aborted)

    @property
    def is_empty(self) -> bool:
        """Whether there is no entry. Raises CorruptIndexError, StorageError."""
        return not self._loaded().aborted

    @property
    def size_bytes(self) -> int:
        """Bytes of all entries. Raises CorruptIndexError, StorageError."""
        return len(self._loaded().aborted) * ENTRY_BYTES

    def append(self, txn: AbortedTxn) -> None:
        """Add an entry; the first one creates the file.

        Raises InvalidArgumentError unless the entry's last offset is above the previous entry's, and StorageError if it cannot be
        written.
        """
        index = self._loaded()
        position = len(index.aborted) * ENTRY_BYTES
        index.append(txn)
        try:
            self._write(txn.to_bytes(), position)
        except StorageError:
            index.aborted.pop()
            raise

    def truncate_to(self, offset: int) -> None:
        """Remove the first entry whose last offset is at or above `offset`, and all later entries (spec §2.6)."""
        index = self._loaded()
        before = len(index.aborted)
        index.truncate_to(offset)
        if len(index.aborted) < before:
            self._cut(len(index.aborted) * ENTRY_BYTES)

    def reset(self) -> None:
        """Remove every entry without reading any. An existing file is kept, empty."""
        if self._fd >= 0 or self.path.exists():
            self._cut(0)
        self._index = TxnIndex(self.base_offset, path=self.path)

    def collect_aborted_txns(self, fetch_offset: int, upper_bound_offset: int) -> CollectedTxns:
        """Return the aborted transactions for a fetch of [fetch_offset, upper_bound_offset) (spec §5.4)."""
        return self._loaded().collect_aborted_txns(fetch_offset, upper_bound_offset)

    def sanity_check(self) -> None:
        """Raise CorruptIndexError for an invalid length, version or order, or a marker below the segment's base (spec §2.7)."""
        self._loaded().sanity_check()

    def flush(self) -> None:
        """Sync the written entries. Raises StorageError."""
        if self._fd < 0:
            return
        try:
            os.fsync(self._fd)
            if self._is_new:
                sync_directory(self.path.parent)
                self._is_new = False
        except OSError as error:
            raise self._refused("sync", error) from error

    def close(self) -> None:
        """Release descriptor and memory; a later use opens the file again."""
        fd, self._fd = getattr(self, "_fd", -1), -1
        self._index = None
        if fd >= 0:
            os.close(fd)

    def rename_to(self, path: Path) -> None:
        """Rename the file, if it exists; the new path applies even if that fails. Raises StorageError."""
        old, self.path = self.path, path
        if self._index is not None:
            self._index.path = path
        try:
            old.replace(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._refused("rename", error) from error

    def update_parent_dir(self, directory: Path) -> None:
        """Update the path after the folder has been renamed."""
        self.path = directory / self.path.name
        if self._index is not None:
            self._index.path = self.path

    def delete_if_exists(self) -> bool:
        """Close and remove the file; return whether it existed. Raises StorageError."""
        self.close()
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._refused("delete", error) from error
        return True

    def _loaded(self) -> TxnIndex:
        if self._index is None:
            if self.path.exists():
                self._index = TxnIndex.open(self.path, self.base_offset)
            else:
                self._index = TxnIndex(self.base_offset, path=self.path)
        return self._index

    def _open(self) -> int:
        if self._fd < 0:
            try:
                self._is_new = not self.path.exists()
                self._fd = open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            except OSError as error:
                raise self._refused("open", error) from error
        return self._fd

    def _write(self, data: bytes, position: int) -> None:
        fd = self._open()
        try:
            written = os.pwrite(fd, data, position)
        except OSError as error:
            self._cut_back(fd, position)
            raise self._refused("write", error) from error
        if written != len(data):
            self._cut_back(fd, position)
            raise StorageError("a transaction index was only partly written", path=self.path, found=written, expected=len(data))

    def _cut(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self._open(), size_bytes)
        except OSError as error:
            raise self._refused("truncate", error) from error

    @staticmethod
    def _cut_back(fd: int, size_bytes: int) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, size_bytes)

    def _refused(self, what: str, error: OSError) -> StorageError:
        return StorageError(f"cannot {what} a transaction index: {error.strerror}", path=self.path)
