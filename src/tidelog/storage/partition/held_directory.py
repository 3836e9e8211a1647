"""A partition's folder, held by a descriptor: writes through it go to that folder even if it is renamed.

Other threads write small files of a log. Meanwhile the topic may be deleted, which renames its folder, and a topic of the same
name may be created, with a new folder of the old name. A write by path would then give the new topic the old topic's id and
leader epochs. `LogFlusher` creates a `HeldDirectory` on the log's thread for each such write.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from types import TracebackType

from tidelog.errors import StorageError
from tidelog.storage.segment.descriptors import few_files, open_file

_held: set[int] = set()
"""The descriptors of all folders that any thread holds."""


class HeldDirectory:
    """Holds the folder that `path` names now. A context manager: its end closes the descriptor, as does the finalizer."""

    @staticmethod
    def are_many() -> bool:
        """Whether so many folders are held open that too few file descriptors may be left for other files. If so, writes should
        wait.
        """
        return len(_held) >= few_files()

    def __init__(self, path: Path) -> None:
        """Raises StorageError if the folder cannot be opened."""
        self.path = path
        try:
            self._fd = open_file(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(f"cannot open a partition's folder: {error.strerror}", path=path) from error
        _held.add(self._fd)
        self._close = weakref.finalize(self, _close, self._fd)
        # At the program's end a broker may still write, and another file might have this descriptor's number.
        self._close.atexit = False

    def replace_file(self, name: str, data: bytes) -> None:
        """Write `data` to ``<name>.tmp``, sync it and rename it to `name`, as `formats.checkpoints.replace_file` does by path.

        Any thread may call it. Raises StorageError.
        """
        temporary = f"{name}.tmp"
        try:
            try:
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666, dir_fd=self._fd)
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            except OSError:
                # On a full disk, an incomplete file must not stay.
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=self._fd)
                raise
            os.fsync(self._fd)
        except OSError as error:
            raise StorageError(f"cannot write a file: {error.strerror}", path=self.path / name) from error

    def __enter__(self) -> HeldDirectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()


def _close(fd: int) -> None:
    _held.discard(fd)
    os.close(fd)
