"""Migrates one segment to format v2: the new ``.log`` and the files next to it.

| file | |
|---|---|
| `.log` | `up_conversion`; synced, with the old file's modification time, which retention uses if there are no timestamps |
| `.index`, `.timeindex` | from the new log, by the rules of a recovery (`log_scan`), with the topic's interval |
| `.timemap` | from the new log |
| `.txnindex` | not written here: transactions span segments, see `folder_migration` |

A segment remains one segment even if it exceeds segment.bytes. If its positions, or its offsets relative to the base
(KAFKA-6264), overflow int32, a new segment begins at the batch that would overflow.

Bytes after the last complete batch of a last segment (a torn append) are skipped and counted; any other damage is an error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tidelog.check.migration.up_conversion import v2_batches
from tidelog.errors import CorruptBatchError, StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import replace_file
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.index_entries import MAX_RELATIVE_OFFSET
from tidelog.reader.segment import Segment
from tidelog.reader.segment_end import last_nonzero
from tidelog.reader.time_map_file import rebuild_time_map
from tidelog.storage.loading.log_scan import scan_log

MAX_SEGMENT_BYTES = 2**31 - 1
"""The largest segment: positions in an offset index are int32, and so is a file's size in Kafka."""

_BUFFER_BYTES = 1 << 20


class SegmentToMigrate(NamedTuple):
    """The task to migrate one segment. It can be pickled."""

    topic: str
    partition: int
    log_path: Path
    next_base_offset: int | None
    size_bytes: int
    target: Path
    """The partition's new folder, which must exist."""
    index_interval_bytes: int
    max_segment_bytes: int = MAX_SEGMENT_BYTES


class MigratedSegment(NamedTuple):
    """The result for one segment."""

    topic: str
    partition: int
    base_offset: int
    batches: int
    """The number of batches in the new segment."""
    records: int
    """The number of records, including those of control batches."""
    converted_batches: int
    """The number of batches that differ from the original."""
    old_bytes: int
    new_bytes: int
    old_format: str
    """The formats of its batches, such as "v0" or "v0, v2"; empty for an empty segment."""
    new_format: str
    new_segments: int
    """1, or more if the segment had to be split."""
    torn_bytes: int
    """The number of bytes after the last complete batch, which were left out; 0 except in a last segment."""
    next_offset: int
    has_control_batches: bool


def migrate_segment(task: SegmentToMigrate) -> MigratedSegment:
    """Rewrite a segment. Raises CorruptDataError or SegmentChangedError for the old segment, StorageError for either."""
    segment = Segment.open(task.log_path, task.next_base_offset)
    try:
        end_position = segment.end_position
        last_byte = last_nonzero(segment.file, end_position, segment.size_bytes)
        writer = _Writer(task, segment.base_offset)
        formats, batches, records, converted, has_control = set(), 0, 0, 0, False
        with writer:
            for batch in v2_batches(segment):
                writer.write(batch.data, batch.base_offset, batch.last_offset)
                formats.add(batch.old_magic)
                batches += 1
                records += batch.records
                converted += batch.old_magic < 2
                has_control |= batch.is_control
        next_offset = segment.next_offset
    finally:
        segment.close()
    status = task.log_path.stat()
    found = sum(_write_beside(part, task.index_interval_bytes, status) for part in writer.parts)
    if found != batches:
        raise StorageError(
            "a new segment does not have the batches that were written to it", path=writer.parts[0], found=found, expected=batches
        )
    return MigratedSegment(
        task.topic,
        task.partition,
        segment.base_offset,
        batches,
        records,
        converted,
        segment.size_bytes,
        writer.size_bytes,
        ", ".join(f"v{magic}" for magic in sorted(formats)),
        "v2",
        len(writer.parts),
        0 if last_byte is None else last_byte + 1 - end_position,
        next_offset,
        has_control,
    )


@dataclass
class _Writer:
    """Writes batches to one segment, or to several if they do not fit. A context manager: leaving it syncs the last segment."""

    task: SegmentToMigrate
    base_offset: int

    def __enter__(self) -> _Writer:
        self.parts: list[Path] = []
        self.size_bytes = 0
        self._begin(self.base_offset)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                self._sync()
        finally:
            self._file.close()

    def write(self, data: bytes | bytearray | memoryview, base_offset: int, last_offset: int) -> None:
        """Append a batch. Raises StorageError; CorruptBatchError if the batch is too large for a segment."""
        if self._part_bytes + len(data) > self.task.max_segment_bytes or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            if last_offset - base_offset > MAX_RELATIVE_OFFSET or len(data) > MAX_SEGMENT_BYTES:
                raise CorruptBatchError("a batch is too large for a segment", path=self.task.log_path, found=f"{len(data)} bytes")
            if self._part_bytes:
                self._sync()
                self._file.close()
                self._begin(base_offset)
        try:
            self._file.write(data)
        except OSError as error:
            raise StorageError(f"cannot write a segment: {error.strerror}", path=self.parts[-1]) from error
        self._part_bytes += len(data)
        self.size_bytes += len(data)

    def _begin(self, base_offset: int) -> None:
        self.base_offset = base_offset
        path = self.task.target / names.file_name(base_offset, names.LOG_SUFFIX)
        try:
            self._file = path.open("xb", _BUFFER_BYTES)
        except OSError as error:
            raise StorageError(f"cannot create a segment: {error.strerror}", path=path) from error
        self._part_bytes = 0
        self.parts.append(path)

    def _sync(self) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageError(f"cannot write a segment: {error.strerror}", path=self.parts[-1]) from error


def _write_beside(path: Path, index_interval_bytes: int, status: os.stat_result) -> int:
    """Write the files next to a new ``.log``, set its modification time to that of the old file, and return its number of
    batches.
    """
    base_offset = names.offset_from_file_name(path.name)
    with ReadOnlyFile(path) as file:
        size = file.size_bytes()
        scanned = scan_log(file, size, base_offset, index_interval_bytes)
    if not scanned.is_whole:
        raise StorageError(f"a new segment is damaged: {scanned.fault}", path=path, found=scanned.valid_bytes, expected=size)
    replace_file(path.with_suffix(names.INDEX_SUFFIX), scanned.offset_entries)
    replace_file(path.with_suffix(names.TIME_INDEX_SUFFIX), scanned.time_entries)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    if size:
        rebuild_time_map(
            path, end_position=size
        )  # The map records the modification time, so it is written after the file's last change.
    return scanned.batches
