"""What there is to say about an index file: a fault, or a note about something odd that is right all the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tidelog.times import format_time

MOST_PER_FILE = 20
"""Faults told of one file; the others are counted."""


class Finding(NamedTuple):
    """One thing about one file."""

    path: Path
    what: str
    slot: int | None = None
    """Number of the entry, or of the one before which an entry is missing."""
    position: int | None = None
    """Byte in the file."""
    found: str | None = None
    expected: str | None = None
    is_fault: bool = True
    is_sparse: bool = False
    """Entries are missing, or not where the interval has them; what is there is true. A broker that was started again, and a
    follower that was truncated, leave it so."""

    def __str__(self) -> str:
        place = "" if self.position is None else f" byte {self.position}"
        place = place if self.slot is None else f" entry {self.slot}" + (place and f",{place}")
        text = f"{self.path}{place}: {self.what}"
        if self.found is not None:
            text += f", found {self.found}"
        return text if self.expected is None else f"{text}, expected {self.expected}"


def show_offset_entry(offset: int, position: int) -> str:
    """Return an entry of an offset index as text."""
    return f"offset {offset} at byte {position}"


def show_time_entry(timestamp: int, offset: int) -> str:
    """Return an entry of a time index as text."""
    time = f"{format_time(timestamp)} ({timestamp})" if timestamp >= 0 else str(timestamp)
    return f"{time} at offset {offset}"


def shortened(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings about one file with those beyond `MOST_PER_FILE` counted only."""
    found = list(findings)
    if len(found) <= MOST_PER_FILE:
        return found
    rest = found[MOST_PER_FILE:]
    is_fault = any(one.is_fault for one in rest)
    return [*found[:MOST_PER_FILE], Finding(rest[0].path, f"and {len(rest)} more of this kind", is_fault=is_fault)]
