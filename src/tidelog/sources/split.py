"""A split: a piece of one partition that is planned now and read later, perhaps by another process on another machine.

Each kind of source has its own class of splits. It says how the piece's batches are got (`batches`); everything else is the same
for all: `read` makes Arrow batches of them. A split is small and can be pickled.

Importing this loads nothing heavy: `read` imports Arrow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.sources.bounds import TimeRange
from tidelog.sources.reader_resources import BATCH_ROWS, LocatedBatch, ReaderResources
from tidelog.sources.scan_report import ScanReport

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(ABC):
    """Some batches of a partition, in offset order, and what to take from them."""

    topic: str
    partition: int
    start_offset: int
    """Records below it are left out: it may lie inside a batch."""
    end_offset: int
    """Records at or above it are left out."""
    time: TimeRange
    size_bytes: int
    """Bytes of the log that are read; an estimate where these are unknown."""
    high_watermark: int | None = None
    """Records at or above it are counted: perhaps not every replica has them. None if that is unknown."""

    @property
    def place(self) -> str:
        """Where the records are, for messages: a file, or what names it as well."""
        return str(self)

    @property
    def first_offset(self) -> int:
        """The first offset that may be delivered."""
        return self.start_offset

    @abstractmethod
    def batches(self, reading: ReaderResources, report: ScanReport) -> Iterator[LocatedBatch]:
        """Yield the batches, without those of aborted transactions if the plan is read_committed.

        Control batches may be among them, and what lies outside of the split's bounds at either end. `report` gets the bytes and
        the batches that are read. Raises OffsetOutOfRangeError or SegmentChangedError where records are gone since the plan.
        """

    def read(
        self,
        columns: Iterable[str] | None = None,
        *,
        batch_rows: int = BATCH_ROWS,
        views: bool = False,
        report: ScanReport | None = None,
        reading: ReaderResources | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records as Arrow batches with the schema `scan_schema(columns, views=views)`, in offset order.

        Batches have `batch_rows` rows at most and 10,000 at least; fewer only at the end, and where records are so large
        that 32 MiB hold fewer. `reading` keeps what several splits share; it is the caller's to close.

        Raises:
            SegmentChangedError, OffsetOutOfRangeError: records are gone, or others, since the plan.
            CorruptDataError: damaged batches, with path and position. Raises what the source's connections raise.
        """
        from tidelog.sources.split_reader import read_split

        return read_split(self, columns, batch_rows=batch_rows, views=views, report=report, reading=reading)

    def pin(self, reading: ReaderResources) -> None:
        """Open what the split reads, where that keeps it from being deleted. Raises SegmentChangedError."""
        return

    def after_loss(self, reached: int, reading: ReaderResources) -> Split | None:
        """Return what can still be read after `reached`, where records were deleted; None if the rest is gone."""
        return None
