"""Opens batches as every reader does: decompresses them and parses each record completely.

A valid checksum shows that a batch is unchanged, not that it was written correctly. A batch that passes this check causes no
error in `cat`, scans or searches. The check runs during the walk over a segment, on the bytes just read.
"""

from __future__ import annotations

from tidelog.check.finding import Finding, shortened
from tidelog.errors import CorruptDataError
from tidelog.formats.paths.file_path import FilePath
from tidelog.records import kernel
from tidelog.records.batch import read_header
from tidelog.records.markers import end_txn_marker
from tidelog.records.scanner import scan_batch


class BatchOpening:
    """Opens the batches of one segment in order. Needs memory for the largest batch, decompressed."""

    def __init__(self, path: FilePath) -> None:
        self._path = path
        self._rows = kernel.Rows()
        self._rows.set_bounds(None, None, 0, 0)  # Parses all records and keeps none of them.
        self._found: list[Finding] = []

    @property
    def findings(self) -> list[Finding]:
        """A finding for each batch that could not be read."""
        return shortened(self._found)

    def open(self, data: memoryview, position: int) -> None:
        """Open the batches in `data`. They must be complete and have valid checksums. The first one is at byte
        `position` of the `.log`.
        """
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
