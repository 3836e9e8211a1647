"""A page of records that is being filled, bounded in records and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.web.context import Answer
from tidelog.web.values import rows

if TYPE_CHECKING:
    import pyarrow as pa

MAX_PAGE_BYTES = 4 << 20
"""The most bytes of records in an answer, before they are written as JSON. At least one record fits."""


class Page:
    """Up to `limit` records, as they are sent."""

    def __init__(self, limit: int, *, is_hex: bool = False) -> None:
        self.limit = limit
        self.records: list[Answer] = []
        self.last_offset = -1
        self._is_hex = is_hex
        self._bytes = 0

    @property
    def room(self) -> int:
        """How many more records fit, as far as is known."""
        return 0 if self._bytes >= MAX_PAGE_BYTES else self.limit - len(self.records)

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add the records of a batch; return False when the page is full, perhaps before the end of the batch."""
        for row, size in rows(batch.slice(0, self.room), is_hex=self._is_hex):
            self.records.append(row)
            self.last_offset = int(row["offset"])
            self._bytes += size
            if not self.room:
                break
        return self.room > 0
