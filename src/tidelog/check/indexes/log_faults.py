"""What is wrong with the batches of a segment, as a finding."""

from __future__ import annotations

from tidelog.check.indexes.index_finding import Finding
from tidelog.errors import CorruptBatchError
from tidelog.reader.segment import Segment
from tidelog.reader.segment_end import find_end
from tidelog.storage.loading.log_scan import ScannedLog


def log_faults(segment: Segment, size_bytes: int, scanned: ScannedLog) -> list[Finding]:
    """Say what is wrong with a log; what a crash or a running broker leaves at the end of the last one is no fault."""
    if scanned.is_whole:
        return []
    path, position = segment.log_path, scanned.valid_bytes
    if segment.is_last:
        try:
            find_end(segment.file, size_bytes, position, scanned.next_offset, segment.notices)
        except CorruptBatchError as error:
            return [Finding(path, error.message, position=position)]
        return []
    why = scanned.fault or "a batch is cut off by the end of its segment"
    return [Finding(path, f"{why}; there is no index from here on", position=position)]
