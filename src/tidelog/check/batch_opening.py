"""Batches opened as every reader opens them: decompressed, and each record read to its end.

A right checksum says that a batch is as it was written, not that it was written well. What this finds nothing wrong with ends no
`cat`, scan or search with an error. Beside the walk over a segment, on the bytes that it has just read.
"""

from __future__ import annotations

from pathlib import Path

from tidelog.check.finding import Finding, shortened
from tidelog.errors import CorruptDataError
from tidelog.records import kernel
from tidelog.records.batch import read_header
from tidelog.records.markers import end_txn_marker
from tidelog.records.scanner import scan_batch


class BatchOpening:
    """Opens the batches of one segment, in order. Memory: what the largest of them decompresses to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = kernel.Rows()
        self._rows.set_bounds(None, None, 0, 0)  # All are read, none is kept.
        self._found: list[Finding] = []

    @property
    def findings(self) -> list[Finding]:
        """What could not be read."""
        return shortened(self._found)

    def open(self, data: memoryview, position: int) -> None:
        """Open the batches of `data`, whole and with right checksums, the first of which stands at `position` of the log."""
        index = 0
        while (index := kernel.scan_plain_batches(self._rows, data, index, len(data))) < len(data):
            header = read_header(data, index, position + index, self._path)
            batch = data[index : index + header.size]
            try:
                scan_batch(self._rows, header, batch, path=self._path)
                if header.is_control:
                    end_txn_marker(header, batch, self._path)
            except CorruptDataError as error:
                self._found.append(Finding.of_error(error, self._path))
            index += header.size
