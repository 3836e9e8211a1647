"""Collects a page of records, up to a number of records and of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tidelog.web.context import Answer
from tidelog.web.values import Decoder, rows

if TYPE_CHECKING:
    import pyarrow as pa

MAX_PAGE_BYTES = 4 << 20
"""The most bytes of records in a response, before they become JSON. At least one record fits."""


class Page:
    """Up to `limit` records, in the form of the response."""

    def __init__(self, limit: int, decoding: Decoder | None = None) -> None:
        self.limit = limit
        self.records: list[Answer] = []
        self.last_offset = -1
        self._decoding = decoding
        self._bytes = 0

    @property
    def room(self) -> int:
        """About how many more records fit."""
        return 0 if self._bytes >= MAX_PAGE_BYTES else self.limit - len(self.records)

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add the records of a batch. Return False if the page became full, possibly before the end of the batch."""
        return self.add_rows(self.rows(batch.slice(0, self.room)))

    def rows(self, batch: pa.RecordBatch, numbers: Sequence[int] | None = None) -> Iterator[tuple[Answer, int]]:
        """Yield the rows `numbers` of a batch (None for all) in the form of the response, each with its size."""
        return rows(batch, numbers, decoding=self._decoding)

    def add_rows(self, found: Iterable[tuple[Answer, int]]) -> bool:
        """Add records in the form of the response. Return False if the page is full."""
        for row, size in found:
            if not self.room:
                break
            self.records.append(row)
            self.last_offset = int(row["offset"])
            self._bytes += size
        return self.room > 0
