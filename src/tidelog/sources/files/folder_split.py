"""A split of a folder: runs of whole batches of one segment, and how to detect that they have changed when they are read.

A plan is read later, perhaps by another process on another machine, while a broker may append to the log, roll it, compact it,
truncate it or delete its files. So a split stores how its batches looked:

| stored | shows |
|---|---|
| path, device, inode | that this is the same file, not a replacement |
| first batch of a run: position, size, | that the run still begins with this batch; this also works for a copy of |
| offset, checksum | the folder |
| last batch: the same | that nothing in the run has changed: a truncation removes the end, a compaction moves it |

Most splits have one run. With a time map there may be several runs, with skipped blocks in between.

A compaction that removed anything before the last batch has moved that batch, and one that only rewrote a batch has changed its
checksum. The walk from the first mark must end exactly at the last mark, so rows cannot be missing without an error. The same
file is tried first, under its name and with the suffix `.deleted`, which a broker gives to a replaced or expired segment for a
minute. Then any file of that name is tried. If no file fits the marks, a `SegmentChangedError` is raised.

`folder_plan` makes splits, `folder_batches` walks through them. A split is a few hundred bytes and can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.formats import names
from tidelog.formats.files import FileIdentity, ReadOnlyFile
from tidelog.formats.paths.file_path import FilePath
from tidelog.records.batch import HEADER_BYTES, read_header
from tidelog.sources.files.folder_batches import folder_batches
from tidelog.sources.files.runs import AbortedRange, BatchMark, Run
from tidelog.sources.reader_resources import LocatedBatch, ReaderResources
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.split import Split

_REPLACED = "the segment was replaced after the scan was planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSplit(Split):
    """Runs of whole batches of one segment, in order, and the bounds of the records to return."""

    log_path: FilePath
    base_offset: int
    """Base offset of the segment."""
    device: int
    inode: int
    runs: tuple[Run, ...]
    """The runs of batches to read, at least one."""
    aborted: tuple[AbortedRange, ...] = ()

    @property
    def path(self) -> str:
        """The path of the `.log` file."""
        return str(self.log_path)

    @property
    def place(self) -> str:
        return self.path

    @property
    def first_offset(self) -> int:
        return self.runs[0].first_offset

    @property
    def start_position(self) -> int:
        return self.runs[0].start_position

    @property
    def end_position(self) -> int:
        return self.runs[-1].end_position

    def batches(self, reading: ReaderResources, report: ScanReport) -> Iterator[LocatedBatch]:
        pinned = reading.pinned(self._pin, ReadOnlyFile)
        with self.open() if pinned is None else pinned as file:
            file.will_read([(run.start_position, run.end_position) for run in self.runs])
            yield from folder_batches(file, self.path, self.runs, self.aborted, report, reading.chunks)

    def without_transactions(self, producers: Mapping[int, int]) -> FolderSplit:
        more = (AbortedRange(producer_id, first, self.end_offset) for producer_id, first in producers.items())
        return replace(self, aborted=(*self.aborted, *more))

    def pin(self, reading: ReaderResources) -> None:
        reading.pin(self._pin, self.open())

    def announce(self, reading: ReaderResources) -> int:
        if isinstance(self.log_path, Path):
            return 0
        file = self.open()
        file.will_read([(run.start_position, run.end_position) for run in self.runs])
        reading.pin(self._pin, file)
        return self.size_bytes

    @property
    def _pin(self) -> tuple[str, int]:
        return self.path, self.start_position

    def open(self) -> ReadOnlyFile:
        """Open the segment and check that it still has the runs as planned. The caller closes the file.

        Raises:
            SegmentChangedError: the segment vanished, shrank or was replaced.
        """
        try:
            return self._open(FileIdentity(self.device, self.inode))
        except SegmentChangedError:
            return self._open(None)

    def _open(self, identity: FileIdentity | None) -> ReadOnlyFile:
        plain = self.log_path.name.removesuffix(names.SWAP_SUFFIX)
        others = [self.log_path.with_name(plain + suffix) for suffix in ("", names.DELETED_SUFFIX, names.SWAP_SUFFIX)]
        file = ReadOnlyFile(self.log_path, identity, [path for path in others if path != self.log_path])
        try:
            self._verify(file)
        except BaseException:
            file.close()
            raise
        return file

    def _verify(self, file: ReadOnlyFile) -> None:
        size = file.size_bytes()
        if size < self.end_position:
            expected = f"at least {self.end_position}"
            raise SegmentChangedError(
                "the segment was truncated after the scan was planned", path=self.path, found=f"{size} bytes", expected=expected
            )
        if file.is_constant() and file.identity == FileIdentity(self.device, self.inode):
            return
        # Check the marks even in the same file: a broker may have truncated it and appended other batches.
        for mark in (self.runs[0].first, self.runs[-1].last):
            data = file.read(mark.position, HEADER_BYTES)
            try:
                found = read_header(data, 0, mark.position, self.path)
            except CorruptBatchError as error:
                raise SegmentChangedError(_REPLACED, path=self.path, position=mark.position, found=error.message) from error
            if not mark.fits(found):
                what = BatchMark.of(found)
                raise SegmentChangedError(_REPLACED, path=self.path, position=mark.position, found=what, expected=mark)

    def __str__(self) -> str:
        runs = "" if len(self.runs) == 1 else f" in {len(self.runs):,} runs"
        where = f"bytes {self.start_position:,}..{self.end_position:,}{runs}"
        return f"{self.topic}-{self.partition}/{self.log_path.name} {where}"
