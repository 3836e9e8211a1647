"""The documents' figures, recomputed from their stated assumptions, in bytes and in the documents' units.

The documents write GB and MB. Computing the figures both ways shows whether they mean 1,000 or 1,024.
"""

from __future__ import annotations

GB, MB = 10**9, 10**6
GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10

PARTITIONS = 3_500
TIME_ENTRY_BYTES = 12
OFFSET_ENTRY_BYTES = 8
WIDE_ENTRY_BYTES = 16
SECONDS_A_DAY = 86_400
MINUTES_A_DAY = 1_440


def entries_for_a_day(partitions: int, entries_a_day: int, entry_bytes: int = TIME_ENTRY_BYTES) -> int:
    """Return the bytes of an index with that many entries per day in each partition (KIP-33's table by granularity)."""
    return partitions * entries_a_day * entry_bytes


def full_index(segment_bytes: int, interval_bytes: int, entry_bytes: int = TIME_ENTRY_BYTES) -> int:
    """Return the bytes of a segment's index if each interval adds an entry (KIP-33: 3 MB for 1 GB and 4 KB)."""
    return segment_bytes // interval_bytes * entry_bytes


def widened(index_bytes: float, old_entry_bytes: int = OFFSET_ENTRY_BYTES, new_entry_bytes: int = WIDE_ENTRY_BYTES) -> float:
    """Return the size of an index with larger entries (KIP-33: from 16 GB to 32 GB)."""
    return index_bytes / old_entry_bytes * new_entry_bytes


def with_time_index(offset_index_bytes: float) -> float:
    """Return the largest size of the accepted design: one time entry for each offset entry, so 1.5 times its size."""
    return offset_index_bytes / OFFSET_ENTRY_BYTES * (OFFSET_ENTRY_BYTES + TIME_ENTRY_BYTES)


def log_bytes_behind(index_bytes: float, interval_bytes: int, entry_bytes: int = OFFSET_ENTRY_BYTES) -> float:
    """Return how much log an offset index of that size covers, with one entry per interval."""
    return index_bytes / entry_bytes * interval_bytes


def more_files(files_before: int, files_added: int) -> float:
    """Return the growth in files (and handles) of a segment as a share."""
    return files_added / files_before
