"""The offset checkpoints of a data folder: one line per partition, replaced as a whole (spec §7).

======================================  =======================================================================
``recovery-point-offset-checkpoint``    records below it are on disk; recovery after a crash begins here
``log-start-offset-checkpoint``         a log's start, if that is not its first segment's base offset
``replication-offset-checkpoint``       high watermarks
``cleaner-offset-checkpoint``           where compaction continues (owned by `cleaner_manager`)
======================================  =======================================================================

A damaged file counts as empty, as in Kafka, and a warning is logged. A partition that could not be loaded keeps its lines. A file
is written only if its content changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Mapping
from pathlib import Path

from tidelog.errors import CorruptCheckpointError, StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from tidelog.model import TopicPartition
from tidelog.storage.partition.partition_log import PartitionLog

logger = logging.getLogger("tidelog.storage")

_FILES = (names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_OFFSET_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT)

Offsets = dict[TopicPartition, int]
Logs = Mapping[TopicPartition, PartitionLog]
OffsetOf = Callable[[PartitionLog], int | None]


class DirCheckpoints:
    """The checkpoints of one folder, as read at startup. The `write_…` methods update a file from `logs`, and keep the lines of
    the partitions in `unloaded`. If they raise StorageError, the file is unchanged.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._missing: set[str] = set()
        self._guard = threading.Lock()
        """Held while a file is written, on any thread; the disk may be slow."""
        self.recovery_points = self._read(names.RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = self._read(names.LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = self._read(names.HIGH_WATERMARK_CHECKPOINT)

    def begin(self) -> None:
        """Write empty files into a folder that has none of them, as Kafka does. If a file is missing later, it is then known to
        be lost.
        """
        paths = [self._directory / name for name in _FILES]
        try:
            if not any(path.exists() for path in paths):
                for path in paths:
                    path.touch()
        except OSError as error:
            raise StorageError(f"cannot write a checkpoint: {error.strerror}", path=self._directory) from error

    def __contains__(self, key: TopicPartition) -> bool:
        """Whether one of the files has a line for the partition."""
        return key in self.recovery_points or key in self.log_start_offsets or key in self.high_watermarks

    def write_recovery_points(self, logs: Logs, unloaded: Container[TopicPartition]) -> None:
        """Write each log's recovery point."""
        self.note_recovery_points(logs, unloaded)()

    def note_recovery_points(self, logs: Logs, unloaded: Container[TopicPartition]) -> Callable[[], None]:
        """Record each log's current recovery point. The returned function writes the recorded points to the file, on any
        thread.
        """
        offsets = self._collect(self.recovery_points, logs, unloaded, lambda log: log.recovery_point)

        def write() -> None:
            with self._guard:
                self._replace(names.RECOVERY_POINT_CHECKPOINT, self.recovery_points, offsets)
                self.recovery_points = offsets

        return write

    def write_log_start_offsets(self, logs: Logs, unloaded: Container[TopicPartition]) -> None:
        """Write the log start offsets that are above the base offset of their log's first segment."""
        self.note_log_start_offsets(logs, unloaded)()

    def note_log_start_offsets(self, logs: Logs, unloaded: Container[TopicPartition]) -> Callable[[], None]:
        """Record the log start offsets that are above the base offset of their log's first segment. The returned function writes
        them, on any thread.
        """
        offsets = self._collect(self.log_start_offsets, logs, unloaded, _start_inside_a_segment)

        def write() -> None:
            with self._guard:
                self._replace(names.LOG_START_OFFSET_CHECKPOINT, self.log_start_offsets, offsets)
                self.log_start_offsets = offsets

        return write

    def write_high_watermarks(self, logs: Logs, unloaded: Container[TopicPartition]) -> None:
        """Write the high watermarks."""
        self.note_high_watermarks(logs, unloaded)()

    def note_high_watermarks(self, logs: Logs, unloaded: Container[TopicPartition]) -> Callable[[], None]:
        """Record the current high watermarks. The returned function writes them, on any thread."""
        offsets = self._collect(self.high_watermarks, logs, unloaded, lambda log: log.high_watermark)

        def write() -> None:
            with self._guard:
                self._replace(names.HIGH_WATERMARK_CHECKPOINT, self.high_watermarks, offsets)
                self.high_watermarks = offsets

        return write

    def drop(self, is_gone: Callable[[TopicPartition], bool]) -> None:
        """Remove the lines of the partitions for which `is_gone` returns True. Any thread may call it."""
        with self._guard:
            points, starts, watermarks = (
                {key: offset for key, offset in before.items() if not is_gone(key)}
                for before in (self.recovery_points, self.log_start_offsets, self.high_watermarks)
            )
            self._replace(names.RECOVERY_POINT_CHECKPOINT, self.recovery_points, points)
            self._replace(names.LOG_START_OFFSET_CHECKPOINT, self.log_start_offsets, starts)
            self._replace(names.HIGH_WATERMARK_CHECKPOINT, self.high_watermarks, watermarks)
            self.recovery_points, self.log_start_offsets, self.high_watermarks = points, starts, watermarks

    def _collect(self, before: Offsets, logs: Logs, unloaded: Container[TopicPartition], offset_of: OffsetOf) -> Offsets:
        offsets = {key: offset for key, offset in before.items() if key in unloaded}
        for key, log in logs.items():
            offset = offset_of(log)
            if offset is not None:
                offsets[key] = offset
        return offsets

    def _replace(self, name: str, before: Offsets, offsets: Offsets) -> None:
        if offsets != before or name in self._missing:
            write_offset_checkpoint(self._directory / name, dict(sorted(offsets.items())))
            self._missing.discard(name)

    def _read(self, name: str) -> Offsets:
        path = self._directory / name
        try:
            offsets = read_offset_checkpoint(path)
        except CorruptCheckpointError as error:
            logger.warning("%s: the checkpoint is treated as empty", error)
            offsets = {}
        if not offsets:
            self._missing.add(name)
        return offsets


def _start_inside_a_segment(log: PartitionLog) -> int | None:
    first = log.segments.first
    return log.log_start_offset if first is not None and log.log_start_offset > first.base_offset else None
