"""A log's segments in order, as of the folder's listing, and the log's start and end.

This is the base of `Log`, without transactions. `missing` and `Transactions` work on it.
"""

from __future__ import annotations

import bisect
from functools import cached_property

from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.formats.files import Notices
from tidelog.formats.paths.file_path import FilePath
from tidelog.reader.missing.claims import Claims
from tidelog.reader.segment import Segment


class LogSegments:
    """One partition's segments, the offsets of its producer snapshots, and the facts about the partition in the data folder's
    checkpoints and settings.
    """

    def __init__(
        self,
        directory: FilePath,
        topic: str,
        partition: int,
        segments: list[Segment],
        snapshots: list[int],
        notices: Notices,
        *,
        log_start_offset: int | None = None,
        high_watermark: int | None = None,
        claims: Claims | None = None,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.segments = segments
        self.snapshots = snapshots
        self.notices = notices
        self._bases = [segment.base_offset for segment in segments]
        self._given_log_start_offset = log_start_offset or 0
        self._given_high_watermark = high_watermark
        self._claims = claims or Claims()

    def close(self) -> None:
        """Close the segments' files. They are reopened when needed."""
        for segment in self.segments:
            segment.close()

    # --- offsets

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers see."""
        first = self._bases[0] if self._bases else 0
        return max(self._given_log_start_offset, first)

    @cached_property
    def log_end_offset(self) -> int:
        """The offset after the last record. Raises CorruptBatchError."""
        end = self.segments[-1].next_offset if self.segments else 0
        if self.segments and end < self.log_start_offset:
            behind = f"the log start offset checkpoint says {self.log_start_offset}, after the log's end at {end}"
            self.notices.note(self.directory, f"{behind}: no record is left to read")
        return max(end, self.log_start_offset)

    @cached_property
    def high_watermark(self) -> int | None:
        """The high watermark in the checkpoint, clamped to the log's offsets; None without a checkpoint."""
        if self._given_high_watermark is None:
            return None
        return max(self.log_start_offset, min(self._given_high_watermark, self.log_end_offset))

    # --- segments

    def segment_for(self, offset: int) -> Segment | None:
        """Return the segment that contains `offset`: the last segment if `offset` is above the log, None if it is below the first
        segment.
        """
        above = bisect.bisect_right(self._bases, offset)
        return self.segments[above - 1] if above else None

    def segments_from(self, offset: int) -> list[Segment]:
        """Return the segments that may hold records at or above `offset`."""
        return self.segments[max(0, bisect.bisect_right(self._bases, offset) - 1) :]

    @cached_property
    def is_compacted(self) -> bool:
        """Whether a cleaner may have removed records. Walks the batches if neither the settings nor a checkpoint show that the
        log is compacted.
        """
        return self._claims.is_compacted(self.topic) or any(_was_cleaned(segment) for segment in self.segments)


def _was_cleaned(segment: Segment) -> bool:
    """Return whether a segment's batches show that a cleaner has removed records."""
    next_offset: int | None = None
    try:
        for header in segment.headers():
            if header.magic == 2:
                if header.record_count < header.next_offset - header.base_offset:
                    return True
                if next_offset is not None and header.base_offset > next_offset:
                    return True
            elif not header.is_compressed and next_offset is not None and header.last_offset > next_offset:
                return True
            # The header of a compressed v0 or v1 message does not contain the first offset.
            next_offset = header.next_offset
    except (CorruptBatchError, SegmentChangedError):
        return False
    finally:
        segment.close()
    return False
