"""A split: a piece of one partition that is planned now and read later, perhaps by another process on another machine.

Each kind of source has its own class of splits, whose `batches` reads the piece's batches. `read` is common to all kinds: it
converts these batches to Arrow batches. A split is small and can be pickled.

Importing this loads nothing heavy: `read` imports Arrow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.errors import UnsupportedForMessageFormatError
from tidelog.sources.bounds import TimeRange
from tidelog.sources.reader_resources import BATCH_ROWS, LocatedBatch, ReaderResources
from tidelog.sources.scan_report import ScanReport

if TYPE_CHECKING:
    import pyarrow as pa

AHEAD_BYTES = 24 * 1024 * 1024
AHEAD_SPLITS = 64
"""The most splits that are announced ahead of the current split. Fewer are announced if they have `AHEAD_BYTES` together, but at
least one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(ABC):
    """Some batches of a partition, in offset order, and the bounds of the records to return."""

    topic: str
    partition: int
    start_offset: int
    """Records below this offset are left out. The offset may be within a batch."""
    end_offset: int
    """Records at or above this offset are left out."""
    time: TimeRange
    size_bytes: int
    """The number of log bytes to be read; an estimate if the exact number is unknown."""
    high_watermark: int | None = None
    """Records at or above this offset are counted, because possibly not every replica has them. None if unknown."""

    @property
    def place(self) -> str:
        """Where the records are, for messages: a file, or something equally specific."""
        return str(self)

    @property
    def first_offset(self) -> int:
        """The first offset that may be delivered."""
        return self.start_offset

    @abstractmethod
    def batches(self, reading: ReaderResources, report: ScanReport) -> Iterator[LocatedBatch]:
        """Yield the batches, without those of aborted transactions if the plan is read_committed.

        Control batches may be included, and records outside the split's bounds at either end. `report` gets the bytes and batches
        read. Raises OffsetOutOfRangeError or SegmentChangedError if records were deleted since the plan.
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

        Batches have at most `batch_rows` rows, and usually at least 10,000: fewer at the end, if `batch_rows` is small, or if the
        records are so large that 32 MiB contain fewer. `reading` has the resources that several splits share; the caller closes
        it.

        Raises:
            SegmentChangedError, OffsetOutOfRangeError: records were deleted or changed since the plan.
            CorruptDataError: damaged batches, with path and position.
            BrokerUnreachableError, BrokerError, ProtocolError: an error of brokers.
        """
        from tidelog.sources.split_reader import read_split

        return read_split(self, columns, batch_rows=batch_rows, views=views, report=report, reading=reading)

    def without_transactions(self, producers: Mapping[int, int]) -> Split:
        """Return a split that also leaves out transactional batches of these producers. `producers` maps a producer id to the
        offset from which its batches are left out.

        Raises UnsupportedForMessageFormatError if the kind of source does not support this.
        """
        raise UnsupportedForMessageFormatError(
            "only data folders can be read with some producers' transactions left out", path=self.place
        )

    def announce(self, reading: ReaderResources) -> int:
        """Start to fetch a split that will be read soon. Return the number of bytes to fetch; 0 if the source does not fetch
        ahead.
        """
        return 0

    def pin(self, reading: ReaderResources) -> None:
        """Open the split's file now, so that the split can be read even if the file is deleted. Raises SegmentChangedError."""
        return

    def after_loss(self, reached: int, reading: ReaderResources) -> Split | None:
        """Return a split of the records that remain at or after `reached` after records were deleted; None if nothing remains."""
        return None


def announced(splits: Sequence[Split], reading: ReaderResources) -> Iterator[Split]:
    """Yield the splits. While a split is being read, the splits after it are announced, so that their first bytes are fetched in
    time.
    """
    told, sizes = 0, deque[int]()
    for number, split in enumerate(splits):
        told = max(told, number)
        while told < len(splits) and len(sizes) <= AHEAD_SPLITS and sum(sizes) - (sizes[0] if sizes else 0) < AHEAD_BYTES:
            size_bytes = splits[told].announce(reading)
            if not size_bytes:
                break
            sizes.append(size_bytes)
            told += 1
        yield split
        if sizes:
            sizes.popleft()
