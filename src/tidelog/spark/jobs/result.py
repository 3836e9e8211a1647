"""A job's result: its rows as a DataFrame, and a summary that fits a terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.reader.missing.missing_offsets import MissingOffsets

__all__ = ["JobResult", "Summary"]

_log = logging.getLogger("tidelog.spark")


@dataclass(frozen=True)
class Summary:
    """A table of a few lines, printed at the end of a job."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def __str__(self) -> str:
        cells = [self.columns, *(tuple("" if cell is None else str(cell) for cell in row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)


@dataclass(frozen=True)
class JobResult:
    """A job's result."""

    rows: DataFrame
    """All results, one per row. The docstring of the job's module describes the columns."""
    summary: Summary
    faults: int = 0
    """The number of faults found. If there are any, the command exits with 1."""
    missing: tuple[MissingOffsets, ...] = ()
    """Records missing from the source folder. If there are any, the command exits with 3."""


def logged_missing(missing: Iterable[MissingOffsets]) -> tuple[MissingOffsets, ...]:
    """Log a folder's missing records, and return them as a tuple."""
    found = tuple(missing)
    for one in found:
        _log.warning("%s", one.sentence)
    return found
