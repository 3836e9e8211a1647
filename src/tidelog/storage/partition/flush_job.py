"""Flushes a log in the background: another thread waits for the disk, and the log's thread updates its state.

| step | thread | |
|---|---|---|
| begin | the log's | pending index entries are written; the names of files to sync are collected |
| `work` | any | the leader epochs' file, snapshots, the segments' files and their folder are synced |
| end | the log's | the recovery point moves; after a disk error the log goes offline |

Files are synced by name, because the kernel reports a failed write to one of the later openers of the file. A missing file was
truncated or deleted meanwhile. Records appended while the job runs belong to the next job.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tidelog.errors import StorageError
from tidelog.storage.partition.held_directory import HeldDirectory
from tidelog.storage.partition.leader_epoch_cache import EpochsWrite
from tidelog.storage.segment.log_segment import LogSegment


class FlushJob:
    """Flushes `segments`, which have the records below `offset`, and the files beside them. Created on the log's thread."""

    def __init__(
        self,
        offset: int,
        directory: Path,
        segments: Sequence[LogSegment],
        epochs: EpochsWrite | None,
        snapshots: tuple[Path, ...],
    ) -> None:
        """`epochs` writes the leader epochs. Raises StorageError if index entries cannot be written, or the folder cannot be
        opened.
        """
        self._held = None if epochs is None else HeldDirectory(directory)
        self.offset = offset
        self._epochs = epochs
        self._directory = directory
        self._snapshots = snapshots
        self._segments = segments
        self._paths = [path for segment in segments for path in segment.begin_sync()]

    def work(self) -> None:
        """Wait for the disk. Raises StorageError."""
        if self._epochs is not None and self._held is not None:
            with self._held:
                self._epochs(self._held)
        sync_files((*self._snapshots, *self._paths, self._directory))

    def take_back(self) -> None:
        """Mark all files as not synced, because the job was abandoned."""
        for segment in self._segments:
            segment.sync_failed()


def sync_files(paths: Iterable[Path]) -> None:
    """Sync files and folders by name, skipping missing ones. Any thread may call it. Raises StorageError."""
    for path in paths:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"cannot sync a file: {error.strerror or error}", path=path) from error
