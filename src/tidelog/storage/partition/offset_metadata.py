"""Where an offset lies: in which segment, and how many bytes into it (spec §5).

| form | segment_base_offset | relative_position | who makes it |
|---|---|---|---|
| complete | base of the segment that holds it | bytes into that segment's `.log` | reads, appends, the log end |
| message only | -1 | -1 | a high watermark or first unstable offset whose place was not looked up yet |

Plain values; the log, its segments and the producer state hand them to each other.
"""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN_BASE_OFFSET = -1
UNKNOWN_POSITION = -1


class LogOffsetMetadata(NamedTuple):
    """An offset, and its place if that is known (bytes into the segment with base `segment_base_offset`)."""

    message_offset: int
    segment_base_offset: int = UNKNOWN_BASE_OFFSET
    relative_position: int = UNKNOWN_POSITION

    @property
    def is_message_offset_only(self) -> bool:
        """Whether the place is unknown."""
        return self.segment_base_offset == UNKNOWN_BASE_OFFSET and self.relative_position == UNKNOWN_POSITION

    def on_older_segment(self, other: LogOffsetMetadata) -> bool:
        """Whether this offset's segment comes before that of `other`; False if either is unknown."""
        if self.is_message_offset_only or other.is_message_offset_only:
            return False
        return self.segment_base_offset < other.segment_base_offset


class LoadedLogOffsets(NamedTuple):
    """What loading a partition finds out (spec §6.2): where it starts, up to where it is on disk, and where it ends."""

    log_start_offset: int
    recovery_point: int
    next_offset: LogOffsetMetadata
    """The log end offset: (offset, base of the active segment, its size in bytes)."""
