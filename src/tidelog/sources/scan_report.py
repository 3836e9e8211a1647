"""Counts of a scan, made while it reads.

A scan leaves some records out on purpose, and some that it delivers need a word of caution. The report holds the
numbers; the notices put them into one line each for people. Reports of several splits add up with `+=`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from tidelog.reader.missing.missing_offsets import MissingOffsets, is_any_lost
from tidelog.reader.salvage.salvage import LeftOut


@dataclass(slots=True)
class ScanReport:
    """Counters of one scan. All are complete once its reader is exhausted."""

    records: int = 0
    """Records delivered."""
    without_timestamp: int = 0
    """Records met that have no timestamp and were left out because the scan has a time bound. Regions that an index rules
    out are not opened, and what lies in them is not counted; a segment that begins with such records is always opened. A time
    map knows how many there are in the blocks that it rules out: those are counted."""
    above_high_watermark: int = 0
    """Records delivered although they lie at or past the high-watermark checkpoint: on disk, but perhaps not on every replica."""
    aborted_batches: int = 0
    """Batches of aborted transactions withheld (read_committed)."""
    batches: int = 0
    """Batches read, those included that their header ruled out: each is checked, and only the others are decompressed."""
    bytes_read: int = 0
    """Bytes read from segment files."""
    blocks_read: int = 0
    """Blocks of time maps (64 KiB of log and more) that had to be read."""
    blocks_skipped: int = 0
    """Blocks that a time map ruled out. Both are 0 if there is no time bound, or no map."""

    missing: tuple[MissingOffsets, ...] = ()
    """Offsets of what was asked for that should be in the folder and are not: what is delivered is not all there was."""

    left_out: tuple[LeftOut, ...] = ()
    """Damaged batches that were read around, with `skip_damaged`."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is known to be missing from what was delivered."""
        return not is_any_lost(self.missing) and not self.left_out

    def __iadd__(self, other: ScanReport) -> ScanReport:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def notices(self) -> list[str]:
        """Return what a reader of the result should know, one sentence each; empty when there is nothing to say."""
        lines = [str(one) for one in (*self.missing, *self.left_out)]
        if self.without_timestamp:
            lines.append(f"{_count(self.without_timestamp)} without timestamp left out: a time bound cannot place them")
        if self.above_high_watermark:
            lines.append(f"{_count(self.above_high_watermark)} at or past the high-watermark checkpoint delivered")
        return lines


def _count(records: int) -> str:
    return "1 record" if records == 1 else f"{records:,} records"
