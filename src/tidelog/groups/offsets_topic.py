"""Where a group's records are: which partition of ``__consumer_offsets``."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: over UTF-16 code units, signed; 0 for -2^31, of which Java has no absolute value."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return 0 if signed == -(1 << 31) else signed


def partition_of(group: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` that a group's records are in, of so many: by Java's hash of its name."""
    return abs(java_hash(group)) % partitions
