"""What a verification has to say: something missing, something damaged, or a note about what is odd and right all the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tidelog.check.indexes.index_finding import Finding
from tidelog.errors import TidelogError
from tidelog.reader.missing import MissingOffsets

FindingKind = Literal["missing", "fault", "note"]


@dataclass(frozen=True, slots=True)
class FolderFinding:
    """One thing about a folder, a partition or a file. Only notes leave a folder whole and sound."""

    kind: FindingKind
    what: str
    path: Path
    topic: str | None = None
    partition: int | None = None
    position: int | None = None
    """Byte in the file."""
    entry: int | None = None
    """Number of an index entry."""
    found: str | None = None
    expected: str | None = None
    missing: MissingOffsets | None = None

    @property
    def is_fault(self) -> bool:
        """Whether the folder is not whole, or not sound."""
        return self.kind != "note"

    @classmethod
    def of_missing(cls, one: MissingOffsets, path: Path) -> FolderFinding:
        """Return a finding about missing offsets."""
        return cls("missing", str(one), path, one.topic, one.partition, missing=one)

    @classmethod
    def of_index(cls, one: Finding, topic: str, partition: int) -> FolderFinding:
        """Return a finding about an index, a time map or a log's batches."""
        # An index that is only sparse says less, and nothing that is untrue; one that is emptied is another matter.
        is_sparse = one.is_sparse and (_has_entries(one.path) or not _MANY.match(one.what))
        kind: FindingKind = "fault" if one.is_fault and not is_sparse else "note"
        return cls(kind, one.what, one.path, topic, partition, one.position, one.slot, one.found, one.expected)

    @classmethod
    def of_error(cls, error: TidelogError, path: Path, topic: str | None = None, partition: int | None = None) -> FolderFinding:
        """Return a fault from the error that reading something ended with."""
        where = path if error.path is None else Path(error.path)
        found = None if error.found is None else str(error.found)
        expected = None if error.expected is None else str(error.expected)
        return cls("fault", error.message, where, topic, partition, error.position, None, found, expected)

    def __str__(self) -> str:
        if self.missing is not None:
            return self.what
        return str(Finding(self.path, self.what, self.entry, self.position, self.found, self.expected))

    def fields(self) -> dict[str, Any]:
        """Return what scripts get."""
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
            **({} if lost is None else {name: value for name, value in lost.fields().items() if name not in _TOLD}),
        }


_MANY = re.compile(r"[0-9]{2,} entries are missing")


def _has_entries(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return True


_TOLD = ("topic", "partition", "reason")
