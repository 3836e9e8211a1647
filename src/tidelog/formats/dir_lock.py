"""The lock on a data folder: `.lock`, the file that Kafka itself locks while it runs (spec §7).

A process that writes to a data folder holds the lock; readers ignore it. Kafka takes a POSIX record lock on the whole file, and
Tidelog makes the same call, so each respects the other's lock. The file remains after the lock is released, as in Kafka.

A thread may be stuck on a disk that does not respond, and write when the disk responds again. Kafka's shutdown waits for its
threads before it releases the lock, however long that takes. Tidelog's shutdown gives up after a time. So such threads hold the
lock, too (`DirLock.shared`): no other process gets the folder until the last such thread, or the whole process, has ended.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from tidelog.errors import StorageError
from tidelog.formats.paths.file_path import FilePath

LOCK_FILE = ".lock"

_held: set[str] = set()
_held_guard = threading.Lock()


def is_locked(directory: FilePath) -> bool:
    """Return whether a running process owns a data folder. Takes no lock and needs no write permission."""
    if not isinstance(directory, Path):
        return False  # A folder elsewhere.
    path = directory / LOCK_FILE
    with _held_guard:
        if os.path.realpath(path) in _held:
            return True
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return bool(struct.unpack("hhqqi", fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(fd)


class DirLock:
    """An exclusive lock on a data folder, as a context manager. Raises StorageError if the lock is held elsewhere."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK_FILE
        self._fd = -1
        self._key = ""
        self._is_new = False
        self._holders = 0

    def __enter__(self) -> DirLock:
        key = os.path.realpath(self.path)
        # POSIX locks belong to the process. This set prevents two owners within the process.
        with _held_guard:
            if key in _held:
                raise self._taken()
            self._fd = self._locked()
            self._key = key
            self._holders = 1
            _held.add(key)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the lock inside the `with` block, even if the owner releases it meanwhile. Other threads that write use this.
        Raises StorageError if the lock has already been released.
        """
        with _held_guard:
            if not self._holders:
                raise StorageError("the folder's lock has been released", path=self.path)
            self._holders += 1
        try:
            yield
        finally:
            self._leave()

    @property
    def is_shared(self) -> bool:
        """Whether another thread holds the lock besides its owner."""
        return self._holders > 1

    def _leave(self) -> None:
        with _held_guard:
            self._holders -= 1
            if not self._holders:
                _held.discard(self._key)
                fd, self._fd = self._fd, -1
                os.close(fd)

    def remove_if_new(self) -> None:
        """Remove the lock file if this lock created it. Holders that must leave no trace call this."""
        if self._fd >= 0 and self._is_new:
            self.path.unlink(missing_ok=True)

    def _locked(self) -> int:
        self._is_new = not self.path.exists()
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise StorageError(f"cannot open the folder's lock: {error.strerror}", path=self.path) from error
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # EAGAIN and EACCES: POSIX allows either for a lock that is held.
            os.close(fd)
            raise self._taken() from None
        except OSError as error:
            os.close(fd)
            raise StorageError(f"cannot lock the folder: {error.strerror}", path=self.path) from error
        return fd

    def _taken(self) -> StorageError:
        return StorageError("a running broker or another import is using this folder", path=self.path)
