"""One segment's indexes and time map built anew: the unit of work of a rebuild, on a thread or on another machine.

What it is told (`SegmentToRebuild`) and what it tells (`RebuiltSegment`) can be pickled. Everything is written here but the
`.txnindex`: transactions reach over segments, and whoever has all of a partition's outcomes folds them in order
(`partition_rebuild`). What a segment tells of them is small: batches that open or end one.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tidelog.check.indexes.index_content import index_path
from tidelog.check.indexes.index_files import RebuiltFile, put, put_time_map
from tidelog.check.indexes.index_finding import Finding
from tidelog.check.indexes.index_rebuild import ProducerBatch, transaction_batches
from tidelog.check.indexes.log_faults import log_faults
from tidelog.errors import CorruptDataError
from tidelog.formats import names
from tidelog.formats.file_stamp import settled_stamp
from tidelog.formats.time_map_builder import TimeMapBuilder, add_batches
from tidelog.reader.segment import Segment
from tidelog.reader.time_map_file import unchanged
from tidelog.storage.loading.log_scan import Progress, scan_log


class SegmentToRebuild(NamedTuple):
    """A segment, and what is wanted of it."""

    segment: Segment
    out_dir: Path | None
    """Where its files go, a folder that is there; None stands for their own place."""
    interval_bytes: int
    time_maps: bool = True
    missing_only: bool = False
    """Files that are there stay as they are."""

    def target(self, suffix: str) -> Path:
        """Return where a file of the segment belongs."""
        path = index_path(self.segment.log_path, suffix)
        return path if self.out_dir is None else self.out_dir / names.file_name(self.segment.base_offset, suffix)


class RebuiltSegment(NamedTuple):
    """What was done."""

    size_bytes: int
    files: list[RebuiltFile]
    findings: list[Finding]
    """What is wrong with the log."""
    transactions: list[ProducerBatch]


def rebuild_segment(task: SegmentToRebuild, progress: Progress | None = None) -> RebuiltSegment:
    """Walk a segment and write its files. Raises StorageError, SegmentChangedError for a log that goes or shrinks meanwhile."""
    segment = task.segment
    scanned = scan_log(segment.file, segment.size_bytes, segment.base_offset, task.interval_bytes, progress=progress)
    files: list[RebuiltFile] = []
    # An empty segment's indexes are made with their first entry.
    for suffix, data in ((names.INDEX_SUFFIX, scanned.offset_entries), (names.TIME_INDEX_SUFFIX, scanned.time_entries)):
        path = task.target(suffix)
        if scanned.batches or path.exists():
            files += put(path, data, missing_only=task.missing_only)
    findings = log_faults(segment, segment.size_bytes, scanned)
    path = task.target(names.TIME_MAP_SUFFIX)
    # One that is there and stays is not worth another walk.
    if task.time_maps and not (task.missing_only and path.exists()):
        builder = TimeMapBuilder(segment.base_offset)
        try:
            stamp = settled_stamp(segment.file.stamp)
            add_batches(builder, segment.file, scanned.valid_bytes)
            files += put_time_map(path, builder.build(unchanged(stamp, segment.file)))
        except CorruptDataError as error:
            findings.append(Finding(segment.log_path, f"no time map: {error.message}", position=error.position))
    transactions = transaction_batches(segment.file, scanned)
    segment.close()
    return RebuiltSegment(scanned.size_bytes, files, findings, transactions)
