"""The offset checkpoints of a data folder: one line a partition, replaced whole (spec §7).

======================================  =======================================================================
``recovery-point-offset-checkpoint``    up to here everything is on the disk; a crash is recovered from here on
``log-start-offset-checkpoint``         where a log begins, if that is not its first segment's base
``replication-offset-checkpoint``       high watermarks
``cleaner-offset-checkpoint``           where compaction goes on (`cleaner_manager` owns that one)
======================================  =======================================================================

A damaged file counts as empty, with a notice, as in Kafka. A partition that could not be loaded keeps the lines it had.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from tidelog.errors import CorruptCheckpointError
from tidelog.log import names
from tidelog.log.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from tidelog.log.names import TopicPartition

logger = logging.getLogger("tidelog.storage")

Offsets = dict[TopicPartition, int]


class DirCheckpoints:
    """The checkpoints of one folder, as read at the start; `write_*` replace the files. Raises StorageError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.recovery_points = self._read(names.RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = self._read(names.LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = self._read(names.HIGH_WATERMARK_CHECKPOINT)

    def write_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the recovery points."""
        self.recovery_points = self._write(names.RECOVERY_POINT_CHECKPOINT, offsets)

    def write_log_start_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the log start offsets; only of logs that begin inside their first segment."""
        self.log_start_offsets = self._write(names.LOG_START_OFFSET_CHECKPOINT, offsets)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the high watermarks."""
        self.high_watermarks = self._write(names.HIGH_WATERMARK_CHECKPOINT, offsets)

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> Offsets:
        written = dict(sorted(offsets.items()))
        write_offset_checkpoint(self._directory / name, written)
        return written

    def _read(self, name: str) -> Offsets:
        path = self._directory / name
        try:
            return read_offset_checkpoint(path)
        except CorruptCheckpointError as error:
            logger.warning("%s: taken as empty", error)
            return {}
