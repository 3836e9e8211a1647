"""A ``.timeindex`` that is missing beside an ``.index``, built from the log.

Kafka makes an empty one then, meant for segments of before 0.10.1, so that a segment whose file was lost goes by its
modification time from now on (spec §2.7). Here the records' timestamps count where there are any; where there are none the
index is empty, as Kafka's. The entries are those that appending the batches one by one would have made.

The file appears whole: it is written beside, synced, and renamed. Called by `loader`, for segments that need no recovery.
"""

from __future__ import annotations

import logging

from tidelog.formats.checkpoints import replace_file
from tidelog.formats.time_index import TimeIndex
from tidelog.storage.loading.recovery import scan_segment
from tidelog.storage.segment.log_segment import LogSegment

logger = logging.getLogger("tidelog.storage")


def rebuild_time_index(segment: LogSegment) -> None:
    """Write the time index of a segment that has none and had none opened. A damaged batch ends it. Raises StorageError."""
    scanned = scan_segment(segment)
    segment.log.release()
    path = segment.time_index.path
    replace_file(path, scanned.time_entries)
    logger.warning(
        "%s: was missing, built from the log: %d entries%s",
        path,
        len(scanned.time_entries) // TimeIndex.entry_bytes,
        "" if scanned.is_whole else f", up to byte {scanned.valid_bytes}: {scanned.fault or 'no whole batch follows'}",
    )
