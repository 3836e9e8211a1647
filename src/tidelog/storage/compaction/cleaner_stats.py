"""The statistics of one compaction pass."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class CleanerStats:
    """The statistics of a pass. Times are in epoch ms, by the injected clock."""

    start_ms: int = 0
    end_ms: int = 0
    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    """The number of records without a key."""
    buffer_utilization: float = 0.0

    @property
    def work_bytes(self) -> int:
        """The bytes that the pass has read and written."""
        return self.map_bytes_read + self.bytes_read + self.bytes_written
