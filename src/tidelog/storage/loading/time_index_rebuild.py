"""Builds a ``.timeindex`` that is missing beside an ``.index``, from the log.

Kafka creates an empty time index, as for segments from before 0.10.1, and then uses the segment's modification time (spec §2.7).
Tidelog uses the records' timestamps. If the records have no timestamps, the index is empty, as in Kafka. The entries are the same
as if the batches had been appended one by one.

The file appears atomically: it is written under a temporary name, synced, and renamed. `loader` calls this for segments that need
no recovery.
"""

from __future__ import annotations

import logging

from tidelog.formats.checkpoints import replace_file
from tidelog.formats.time_index import TimeIndex
from tidelog.storage.loading.recovery import scan_segment
from tidelog.storage.segment.log_segment import LogSegment

logger = logging.getLogger("tidelog.storage")


def rebuild_time_index(segment: LogSegment) -> None:
    """Rebuild a segment's missing time index, up to the first damaged batch. The segment must not have opened its time index yet.
    Raises StorageError.
    """
    scanned = scan_segment(segment)
    segment.log.release()
    path = segment.time_index.path
    replace_file(path, scanned.time_entries)
    logger.warning(
        "%s was missing and has been rebuilt from the log: %d entries%s",
        path,
        len(scanned.time_entries) // TimeIndex.entry_bytes,
        "" if scanned.is_whole else f", up to byte {scanned.valid_bytes}: {scanned.fault or 'no whole batch follows'}",
    )
