"""An offset with its position: its segment, and bytes from the segment's start (spec §5).

| form | segment_base_offset | relative_position | made by |
|---|---|---|---|
| complete | base of its segment | bytes into that segment's `.log` | reads, appends, the log end |
| message only | -1 | -1 | a high watermark or first unstable offset whose position was not looked up yet |

Plain values, passed between the log, its segments and the producer state.
"""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN_BASE_OFFSET = -1
UNKNOWN_POSITION = -1


class LogOffsetMetadata(NamedTuple):
    """An offset, and its position if known (bytes into the segment with base `segment_base_offset`)."""

    message_offset: int
    segment_base_offset: int = UNKNOWN_BASE_OFFSET
    relative_position: int = UNKNOWN_POSITION

    @property
    def is_message_offset_only(self) -> bool:
        """Whether the position is unknown."""
        return self.segment_base_offset == UNKNOWN_BASE_OFFSET and self.relative_position == UNKNOWN_POSITION

    def on_older_segment(self, other: LogOffsetMetadata) -> bool:
        """Whether this offset's segment is before the segment of `other`; False if either is unknown."""
        if self.is_message_offset_only or other.is_message_offset_only:
            return False
        return self.segment_base_offset < other.segment_base_offset


class LoadedLogOffsets(NamedTuple):
    """The offsets found by loading a partition (spec §6.2): log start, recovery point, log end."""

    log_start_offset: int
    recovery_point: int
    next_offset: LogOffsetMetadata
    """The log end offset: (offset, base of the active segment, its size in bytes)."""
