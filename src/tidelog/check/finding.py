"""A check's finding: something missing, something damaged, or a note about something odd but correct."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from tidelog.errors import TidelogError
from tidelog.formats.paths.file_path import FilePath, path_at
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.times import show_timestamp

MOST_PER_FILE = 20
"""The largest number of faults listed per file; further faults are only counted."""

FindingKind = Literal["missing", "fault", "note"]


class Finding(NamedTuple):
    """One finding about a folder, a partition or a file. Anything but a note is a fault."""

    path: FilePath
    what: str
    entry: int | None = None
    """The number of the index entry; if an entry is missing, the number of the entry after it."""
    position: int | None = None
    """The position in the file, in bytes."""
    found: str | None = None
    expected: str | None = None
    kind: FindingKind = "fault"
    is_sparse: bool = False
    """Whether the index only lacks entries, or has them at other gaps than the interval: all existing entries are correct. A
    broker restart, or the truncation of a follower's log, causes this.
    """
    topic: str | None = None
    partition: int | None = None
    missing: MissingOffsets | None = None

    @property
    def is_fault(self) -> bool:
        """Whether something is missing or damaged."""
        return self.kind != "note"

    @classmethod
    def of_missing(cls, one: MissingOffsets, path: FilePath) -> Finding:
        """Return a finding about missing offsets."""
        kind: FindingKind = "missing" if one.is_loss else "note"
        return cls(path, str(one), kind=kind, topic=one.topic, partition=one.partition, missing=one)

    @classmethod
    def of_error(cls, error: TidelogError, path: FilePath, topic: str | None = None, partition: int | None = None) -> Finding:
        """Return the fault for an error that occurred while reading."""
        where = path if error.path is None else path_at(error.path, path)
        found = None if error.found is None else str(error.found)
        expected = None if error.expected is None else str(error.expected)
        return cls(where, error.message, None, error.position, found, expected, topic=topic, partition=partition)

    def in_folder(self, topic: str, partition: int) -> Finding:
        """Return the finding as a folder check reports it. A fault becomes a note if the index is only sparse.

        A sparse index lacks entries, but all its entries are correct. An emptied index remains a fault.
        """
        is_sparse = self.is_sparse and (_has_entries(self.path) or not _MANY.match(self.what))
        return self._replace(kind="note" if is_sparse else self.kind, topic=topic, partition=partition)

    def __str__(self) -> str:
        if self.missing is not None:
            return self.what
        place = "" if self.position is None else f" byte {self.position}"
        place = place if self.entry is None else f" entry {self.entry}" + (place and f",{place}")
        text = f"{self.path}{place}: {self.what}"
        if self.found is not None:
            text += f", found {self.found}"
        return text if self.expected is None else f"{text}, expected {self.expected}"

    def fields(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        lost = self.missing
        return {
            "type": self.kind,
            "topic": self.topic,
            "partition": self.partition,
            "path": str(self.path),
            "entry": self.entry,
            "position": self.position,
            "what": self.what if lost is None else lost.reason,
            "found": self.found,
            "expected": self.expected,
            **({} if lost is None else {name: value for name, value in lost.fields().items() if name not in _PLACE}),
        }


_MANY = re.compile(r"[0-9]{2,} entries are missing")
_PLACE = ("topic", "partition", "reason")


def _has_entries(path: FilePath) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return True


def note(path: FilePath, what: str, topic: str | None = None, partition: int | None = None) -> Finding:
    """Return a note about a file or a folder."""
    return Finding(path, what, kind="note", topic=topic, partition=partition)


def fault(path: FilePath, what: str, topic: str | None = None, partition: int | None = None) -> Finding:
    """Return a fault of a file or a folder."""
    return Finding(path, what, topic=topic, partition=partition)


def show_offset_entry(offset: int, position: int) -> str:
    """Return an entry of an offset index as text."""
    return f"offset {offset} at byte {position}"


def show_time_entry(timestamp: int, offset: int) -> str:
    """Return an entry of a time index as text."""
    return f"{show_timestamp(timestamp)} at offset {offset}"


def shortened(findings: Iterable[Finding]) -> list[Finding]:
    """Return the first `MOST_PER_FILE` findings about one file, and one finding that counts the others."""
    found = list(findings)
    if len(found) <= MOST_PER_FILE:
        return found
    rest = found[MOST_PER_FILE:]
    more = f"and {len(rest)} more of this kind"
    kind: FindingKind = "fault" if any(one.is_fault for one in rest) else "note"
    is_sparse = all(one.is_sparse or not one.is_fault for one in rest)
    return [*found[:MOST_PER_FILE], Finding(rest[0].path, more, kind=kind, is_sparse=is_sparse)]
