"""Counts of a scan, updated while it reads.

A scan leaves out some records on purpose, and some of the delivered records need a warning. The report counts both kinds of
records, and each notice describes one of the counts in a line. Reports of several splits are added with `+=`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from tidelog.reader.missing.missing_offsets import MissingOffsets, is_any_lost
from tidelog.reader.salvage.salvage import LeftOut


@dataclass(slots=True)
class ScanReport:
    """Counters of one scan. They are complete once the scan's reader is exhausted."""

    records: int = 0
    """Records delivered."""
    without_timestamp: int = 0
    """Records without a timestamp that were left out because the scan has a time bound. Regions that an index rules out are not
    read, so records without a timestamp in them are not counted; but a segment that begins with such records is always read. In
    blocks that a time map rules out, such records are counted, because the map has their number.
    """
    above_high_watermark: int = 0
    """Delivered records at or past the high-watermark checkpoint: on disk, but perhaps not on every replica."""
    aborted_batches: int = 0
    """Batches of aborted transactions that were left out (read_committed)."""
    batches: int = 0
    """Batches read. This includes batches that their header rules out, which are checked but not decompressed."""
    bytes_read: int = 0
    """Bytes read from segment files."""
    blocks_read: int = 0
    """Blocks of time maps (at least 64 KiB of log) that had to be read."""
    blocks_skipped: int = 0
    """Blocks that a time map ruled out. This and `blocks_read` are 0 without a time bound or a map."""

    undecoded: int = 0
    """Keys and values that `decode` could not decode; their bytes are in the columns `key_undecoded` and `value_undecoded`."""

    missing: tuple[MissingOffsets, ...] = ()
    """Requested offsets that should be in the folder but are not. If there are any, the result is incomplete."""

    left_out: tuple[LeftOut, ...] = ()
    """Damaged batches that were skipped, with `skip_damaged`."""

    @property
    def is_complete(self) -> bool:
        """Whether the result is known to be complete: no record is missing from the folder, and no damage was skipped."""
        return not is_any_lost(self.missing) and not self.left_out

    def __iadd__(self, other: ScanReport) -> ScanReport:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def notices(self) -> list[str]:
        """Return notices about the result, one sentence each; empty if there are none."""
        lines = [str(one) for one in (*self.missing, *self.left_out)]
        if self.without_timestamp:
            lines.append(f"{_count(self.without_timestamp)} without a timestamp left out, because the scan has a time bound")
        if self.above_high_watermark:
            lines.append(f"delivered {_count(self.above_high_watermark)} at or past the high-watermark checkpoint")
        return lines


def _count(records: int) -> str:
    return "1 record" if records == 1 else f"{records:,} records"
