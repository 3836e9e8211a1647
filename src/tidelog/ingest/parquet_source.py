"""Reads Parquet files page by page, so that memory use does not grow with the size of row groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from tidelog.ingest.source import CHUNK_BYTES, CHUNK_ROWS, Rows, Wanted, arrow_errors, check_columns, slices


class ParquetSource:
    """A Parquet file. Raises InvalidArgumentError if a requested column is missing, CorruptDataError if the file is not
    Parquet.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._path = path
        with arrow_errors(path, "Parquet"):
            # Without a buffer size and with pre-buffering Arrow would hold whole column chunks.
            self._file = pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
            names = self._file.schema_arrow.names
            metadata = self._file.metadata
            stored = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        check_columns(path, wanted, names)
        self._columns = None if wanted.value is None else wanted.names()
        self._num_rows = metadata.num_rows
        self._batch_rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES * max(1, metadata.num_rows) // max(1, stored)))
        self.size_bytes = path.stat().st_size

    def rows(self) -> Iterator[Rows]:
        """Yield the rows in the order of the row groups."""
        row = 0
        batches = self._file.iter_batches(self._batch_rows, columns=self._columns)
        while True:
            with arrow_errors(self._path, "Parquet"):
                batch = next(batches, None)
            if batch is None:
                return
            for part in slices(batch):
                first_row, row = row + 1, row + part.num_rows
                yield Rows(first_row, part, None, self.size_bytes * row // max(1, self._num_rows))
