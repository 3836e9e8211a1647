"""A log forced to the disk while others continue: the waiting is done on another thread, what is known of it changes on the
log's.

| step | thread | |
|---|---|---|
| begin | the log's | index entries that wait are written; what is to be synced is noted, by name |
| `work` | any | the leader epochs' file, snapshots, the segments' files and their folder are synced |
| end | the log's | the recovery point moves; where the disk refused the log goes offline |

Files are synced by name, as the kernel reports a failed write to one of those who open the file later. A file that is gone was
truncated or deleted meanwhile. What is appended while the job runs is the next one's.
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
    """Forces `segments`, which hold what lies below `offset`, to the disk, and files beside them. Made on the log's thread."""

    def __init__(
        self,
        offset: int,
        directory: Path,
        segments: Sequence[LogSegment],
        epochs: EpochsWrite | None,
        snapshots: tuple[Path, ...],
    ) -> None:
        """`epochs` writes the leader epochs. Raises StorageError where index entries cannot be written, the folder not opened."""
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
        """Note that nothing is known to be synced: the job was given up."""
        for segment in self._segments:
            segment.sync_failed()


def sync_files(paths: Iterable[Path]) -> None:
    """Force files and folders to the disk, by name; those that are gone are skipped. On any thread. Raises StorageError."""
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
