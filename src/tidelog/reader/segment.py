"""A segment, read-only: the ``.log`` and the indexes beside it (spec §2-§4).

Invariants
    * Nothing is read before it is asked for; an object costs no descriptor.
    * The ``.log`` is one inode for good. If the owner deletes or replaces it, what was listed is still read under its new
      name, or SegmentChangedError says that it is gone.
    * An index is a hint. Each entry that is used is checked against the batch that it points to. An index that lies, or
      is missing or broken, costs a notice and a walk through the log, never an answer.
    * The last segment ends where `segment_end` says; any other ends with its file, and a torn batch there is an error.
      Later appends of its owner are not seen, and index entries about them are skipped silently.

One thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tidelog.errors import CorruptBatchError, CorruptDataError, CorruptIndexError, SegmentChangedError
from tidelog.formats import batch_walk, names
from tidelog.formats.files import FileIdentity, Notices, ReadOnlyFile
from tidelog.formats.index_entries import IndexEntries
from tidelog.formats.offset_index import OffsetIndex, OffsetPosition
from tidelog.formats.time_index import TimeIndex, TimestampOffset
from tidelog.formats.txn_index import TxnIndex
from tidelog.model import MAX_OFFSET
from tidelog.reader.proven_head import ProvenHead, WalkBudget
from tidelog.reader.segment_end import SegmentEnd, find_end
from tidelog.reader.segment_files import SegmentFile, segment_file
from tidelog.reader.trace import OffsetIndexStep, TimestampSource, Trace
from tidelog.records.batch import HEADER_BYTES, BatchHeader, check_crc, read_header
from tidelog.records.control import ControlType, EndTxnMarker, parse_control_type, parse_end_txn_marker
from tidelog.records.records import first_offset, iter_records

SILENT_WITHOUT_INDEX_BYTES = 2 * 1024 * 1024
"""Kafka makes a live segment's index with its first entry; up to this size a last segment may well have none."""

_Index = TypeVar("_Index", bound=IndexEntries)


class LargestTimestamp(NamedTuple):
    """The largest timestamp of a segment (ms, -1 none), an offset of the first batch that has it, and where it was found."""

    timestamp: int
    offset: int
    source: TimestampSource


class Segment:
    """One segment. `next_base_offset` is the next segment's base, None of the last one; `budget` is the whole log's."""

    def __init__(
        self,
        file: SegmentFile,
        next_base_offset: int | None = None,
        notices: Notices | None = None,
        budget: WalkBudget | None = None,
    ) -> None:
        self._listed = file
        self.base_offset = file.base_offset
        self.next_base_offset = next_base_offset
        self.log_path = file.path
        self.size_bytes = file.stat.st_size
        self.modified_ms = file.stat.st_mtime_ns // 1_000_000
        self.notices = notices or Notices()
        plain = file.path.with_suffix("") if file.path.suffix == names.SWAP_SUFFIX else file.path
        self._file = ReadOnlyFile(file.path, file.identity, _other_names(plain))
        self._stem = str(plain).removesuffix(names.LOG_SUFFIX)
        self._indexes: dict[str, IndexEntries | None] = {}
        self._bytes_of_distrusted = 0
        self._end: SegmentEnd | None = None
        self.head = ProvenHead(self._file, file.base_offset, budget or WalkBudget(), self._claimed_after)
        self.largest: LargestTimestamp | None = None
        """The result of `segment_time.largest_timestamp`; None before."""

    @classmethod
    def open(cls, path: Path, next_base_offset: int | None = None, notices: Notices | None = None) -> Segment:
        """Take a ``.log`` file by itself. Raises NotFoundError, InvalidArgumentError for a name that is not an offset."""
        return cls(segment_file(path), next_base_offset, notices)

    def __repr__(self) -> str:
        return f"Segment({str(self.log_path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A segment goes to another process as it was listed, with nothing of what was read."""
        return (_listed_elsewhere, (self._listed, self.next_base_offset))

    @property
    def identity(self) -> FileIdentity:
        """The ``.log``'s device and inode."""
        assert self._file.identity is not None
        return self._file.identity

    @property
    def is_last(self) -> bool:
        return self.next_base_offset is None

    @property
    def file(self) -> ReadOnlyFile:
        """The ``.log``."""
        return self._file

    @property
    def bytes_read(self) -> int:
        """Bytes read from the segment's files so far."""
        indexes = (index.bytes_read for index in self._indexes.values() if index is not None)
        return self._file.bytes_read + self._bytes_of_distrusted + sum(indexes)

    def close(self) -> None:
        """Give the descriptors back; they are taken again when needed."""
        self._file.close()
        for index in self._indexes.values():
            if index is not None:
                index.close()

    # --- the log

    @property
    def end_position(self) -> int:
        """The byte after the last batch: of the last segment, see `segment_end`; of another, the file's size."""
        return self.valid_end().position if self.is_last else self.size_bytes

    @property
    def next_offset(self) -> int:
        """The offset after the last record; the base of an empty segment."""
        return self.valid_end().next_offset

    def valid_end(self) -> SegmentEnd:
        """Return where the batches end. Reads the index's last entry and what follows it. Raises CorruptBatchError."""
        if self._end is None:
            start, min_offset = 0, self.base_offset
            entry, lies = self._last_true_entry()
            if entry is not None:
                start, min_offset = entry.position, entry.base_offset
            if self.is_last:
                self._end = find_end(self._file, self.size_bytes, start, min_offset, self.notices)
            else:
                walked = deque(self._walk(start, self.size_bytes, crc=True, min_offset=min_offset), maxlen=1)
                last = walked[0] if walked else None
                next_offset = self.base_offset if last is None else last.next_offset
                self._end = SegmentEnd(self.size_bytes, next_offset, last)
            for slot, lie in lies:
                if not (lie.position >= self._end.position and self.may_have_grown):
                    self.notices.note(self.index_path(names.INDEX_SUFFIX), _no_such_batch(slot, lie))
        return self._end

    @property
    def may_have_grown(self) -> bool:
        """Whether index entries at or after the end may be about batches that were appended since the segment was listed.

        That is so if the file has grown, or was longer than its batches (preallocated, or in the middle of an append).
        """
        return self.is_last and (self.size_bytes > self.end_position or self._file.size_bytes() > self.size_bytes)

    def check_name(self) -> bool:
        """Say whether the first batch begins at the base offset; with a hole between them, or in an empty segment, it does not.

        Reads one header; of a compressed v0 or v1 message, all of it. A header that is damaged is left to those who read it.
        Raises CorruptBatchError where the first batch is below the base, or reaches beyond the next segment's: then who goes by
        names misses records; SegmentChangedError.
        """
        try:
            header = read_header(self._file.read(0, min(HEADER_BYTES, self.size_bytes)), 0, 0, self.log_path)
            first = first_offset(header, self.read_batch, self.log_path)
        except CorruptDataError:
            return False
        next_base_offset = MAX_OFFSET if self.next_base_offset is None else self.next_base_offset
        if first < self.base_offset:
            found, expected = first, f">= {self.base_offset}"
        elif header.last_offset >= next_base_offset:
            found, expected = header.last_offset, f"< {next_base_offset}, where the next segment begins"
        else:
            if first != self.base_offset and header.magic == 2:
                self.check_follower(header)  # An offset that is too high by a bit looks like a hole.
            return first == self.base_offset
        raise CorruptBatchError("a segment's name does not fit its batches", path=self.log_path, found=found, expected=expected)

    def headers(self, position: int = 0, end_position: int | None = None, *, check_crc: bool = False) -> Iterator[BatchHeader]:
        """Yield the batches from `position`, where one starts, up to `end_position` or the segment's end.

        Raises CorruptBatchError, SegmentChangedError.
        """
        end = self.end_position
        if end_position is None or end_position >= end:
            yield from self._walk(position, end, crc=check_crc)
        else:
            yield from self._walk(position, end_position, crc=check_crc, stop_at_partial=True)

    def check_follower(self, header: BatchHeader) -> None:
        """Make sure that the batch after another one fits to it: no checksum covers the offset that an answer is.

        Raises CorruptBatchError, SegmentChangedError.
        """
        next(self._walk(header.end_position, self.end_position, crc=False, min_offset=header.next_offset), None)

    def times(self, position: int, end_position: int) -> Iterator[int]:
        """Yield the largest timestamp of each batch in [position, end_position), at both of which one begins (or the log ends).

        Raises CorruptBatchError, also where none begins at `end_position`, SegmentChangedError.
        """
        return (timestamp for _, _, timestamp in batch_walk.iter_times(self._file, position, end_position, self.base_offset))

    def read_batch(self, header: BatchHeader) -> memoryview:
        """Return exactly the batch's bytes; the checksum is not looked at."""
        data = self._file.read(header.position, header.size)
        if len(data) < header.size:
            raise SegmentChangedError("a segment became shorter while it was read", path=self.log_path, position=header.position)
        return memoryview(data)

    def translate_offset(self, offset: int, trace: Trace | None = None) -> BatchHeader | None:
        """Return the first batch whose last offset is at or above `offset`, None after the last one (spec §4.4)."""
        headers = self.headers(self.floor_position(offset, trace), check_crc=True)
        for header in headers:
            if header.last_offset >= offset:
                if header.base_offset > offset:
                    next(headers, None)  # No checksum covers an offset: the next batch shows that this one is too high.
                return header
        return None

    def floor_position(self, offset: int, trace: Trace | None = None) -> int:
        """Return a position where a batch starts and before which all offsets are below `offset`: by the index, or 0."""
        index = self.offset_index
        if index is None:
            return 0
        end_position = self.end_position
        try:
            slot = index.slot(offset)
            entry = OffsetPosition(self.base_offset, 0) if slot < 0 else index.entry(slot)
            if slot >= 0 and entry.position >= end_position and self.may_have_grown:
                slot = index.entries_before(end_position) - 1
                entry = OffsetPosition(self.base_offset, 0) if slot < 0 else index.entry(slot)
                if entry.offset > offset:  # Positions that do not grow with the offsets.
                    slot, entry = -1, OffsetPosition(self.base_offset, 0)
        except SegmentChangedError as error:
            self._distrust(names.INDEX_SUFFIX, error.message)
            return 0
        if slot >= 0 and self._batch_of(index, slot, entry, end_position) is None:
            self._distrust(names.INDEX_SUFFIX, _no_such_batch(slot, entry))
            return 0
        if trace is not None and index.path is not None:
            trace.add(OffsetIndexStep(index.path, offset, slot, index.entries, entry.offset, entry.position))
        return entry.position

    def end_txn_marker(self, header: BatchHeader) -> EndTxnMarker | None:
        """Return what a control batch says about its producer's transaction; None if it is none or was emptied by compaction.

        Raises CorruptBatchError, also for a wrong checksum.
        """
        path, position = self.log_path, header.position
        batch = self.read_batch(header)
        check_crc(header, batch, path)
        for record in iter_records(header, batch, path=path):
            if parse_control_type(record.key, path=path, position=position) in (ControlType.ABORT, ControlType.COMMIT):
                return parse_end_txn_marker(record.key, record.value, path=path, position=position)
        return None

    def _walk(
        self, position: int, end_position: int, *, crc: bool, min_offset: int | None = None, stop_at_partial: bool = False
    ) -> Iterator[BatchHeader]:
        return batch_walk.walk(
            self._file,
            position,
            end_position,
            crc=crc,
            min_offset=self.base_offset if min_offset is None else min_offset,
            next_base_offset=MAX_OFFSET if self.next_base_offset is None else self.next_base_offset,
            stop_at_partial=stop_at_partial,
        )

    # --- the indexes

    @property
    def offset_index(self) -> OffsetIndex | None:
        """The offset index; None if there is none, or none that is of use."""
        return self._index(names.INDEX_SUFFIX, OffsetIndex)

    def _claimed_after(self, position: int) -> int | None:
        """Return where the offset index says that a batch begins, at or after a byte position; None if it says nothing."""
        index = self.offset_index
        try:
            slot = 0 if index is None else index.entries_before(position)
            return None if index is None or slot >= index.entries else index.entry(slot).position
        except (CorruptIndexError, SegmentChangedError):
            return None

    @property
    def time_index(self) -> TimeIndex | None:
        """The time index; None if there is none, or none that is of use."""
        return self._index(names.TIME_INDEX_SUFFIX, TimeIndex)

    def distrust_time_index(self, reason: str | None) -> None:
        """Do without the time index from now on, with a notice if there is a reason to give."""
        self._distrust(names.TIME_INDEX_SUFFIX, reason)

    @cached_property
    def unchecked_last_time_entry(self) -> TimestampOffset:
        """The time index's last entry, whether the log agrees or not; (-1, base) without one. To say what Kafka would do."""
        file = self._open_beside(names.TIME_INDEX_SUFFIX)
        if file is None:
            return TimestampOffset(-1, self.base_offset)
        with file:
            return TimeIndex.open(file, self.base_offset).last_entry

    def open_txn_index(self) -> TxnIndex | None:
        """Read the transaction index; None if there is none. Raises CorruptIndexError."""
        file = self._open_beside(names.TXN_INDEX_SUFFIX)
        if file is None:
            return None
        index = TxnIndex.open(file, self.base_offset)
        index.sanity_check()
        return index

    def index_path(self, suffix: str) -> Path:
        """Return the path of one of the segment's index files, there or not."""
        return Path(f"{self._stem}{suffix}")

    def _index(self, suffix: str, kind: type[_Index]) -> _Index | None:
        if suffix not in self._indexes:
            self._indexes[suffix] = self._open_index(suffix, kind)
        index = self._indexes[suffix]
        assert index is None or isinstance(index, kind)
        return index

    def _open_index(self, suffix: str, kind: type[_Index]) -> _Index | None:
        file = self._open_beside(suffix)
        if file is None:
            if self.size_bytes > (SILENT_WITHOUT_INDEX_BYTES if self.is_last else 0):
                self.notices.note(self.index_path(suffix), "is missing, the log is read instead")
            return None
        try:
            index = kind.open(file, self.base_offset)
            index.sanity_check()
        except (CorruptIndexError, SegmentChangedError) as error:
            file.close()
            self._bytes_of_distrusted += file.bytes_read
            found = "" if error.found is None else f" ({error.found})"
            self.notices.note(file.path, f"{error.message}{found}, the log is read instead")
            return None
        return index

    def _open_beside(self, suffix: str) -> ReadOnlyFile | None:
        """Open an index file that belongs to this inode of the ``.log``, None if there is none.

        That is one with the same kind of name, opened in between two looks that find the ``.log`` under that name.
        """
        for _ in range(3):
            log_path = self._file.locate()
            if log_path is None:
                return None  # Unlinked: what is read under an open descriptor has lost its indexes.
            ending = str(log_path).removeprefix(f"{self._stem}{names.LOG_SUFFIX}")
            # A crash may leave the log in its place and an index of the same swap still under its old name.
            endings = [ending] if ending else ["", names.SWAP_SUFFIX]
            file = None
            for candidate in endings:
                file = ReadOnlyFile(Path(f"{self._stem}{suffix}{candidate}"), fallbacks=())
                try:
                    file.open()
                except SegmentChangedError:
                    file = None
                    continue
                break
            if self._file.locate() == log_path:
                if file is not None:
                    file.fallbacks = _other_names(self.index_path(suffix))  # From here on it is known by its inode.
                return file
            if file is not None:
                file.close()
        return None

    def _distrust(self, suffix: str, reason: str | None) -> None:
        index = self._indexes.get(suffix)
        if index is not None:
            index.close()
            self._bytes_of_distrusted += index.bytes_read
        if index is not None and reason is not None:
            self.notices.note(index.path or self.index_path(suffix), f"{reason}, the log is read instead")
        self._indexes[suffix] = None

    def _batch_of(self, index: OffsetIndex, slot: int, entry: OffsetPosition, end_position: int) -> BatchHeader | None:
        """Return the batch that an offset index entry points to, if there is one with a right checksum that may bear it.

        Look-ups need every batch before the position to be below the entry's offset: so the batch must not start above it. That
        it ends at it is not asked (older releases wrote other offsets of the batch, or of several). A batch within a record's
        value may pass for it, but the headers from the entry before on do not lead there.
        """
        try:
            before = 0 if slot == 0 else index.entry(slot - 1).position
        except SegmentChangedError:
            return None
        is_after = 0 <= before < entry.position or before == entry.position == slot
        if not (is_after and entry.position < end_position and entry.offset >= self.base_offset):
            return None
        try:
            deque(self.times(before, entry.position), maxlen=0)
            header = next(self._walk(entry.position, end_position, crc=True))
            first = header.last_offset
            if first > entry.offset:
                first = first_offset(header, self.read_batch, self.log_path)
        except (CorruptDataError, StopIteration):
            return None
        return header if first <= entry.offset else None

    def _last_true_entry(self) -> tuple[BatchHeader | None, list[tuple[int, OffsetPosition]]]:
        """Return the batch of the last offset index entry that is true, and the entries after it that are not (yet)."""
        index = self.offset_index
        lies: list[tuple[int, OffsetPosition]] = []
        step, slot = 1, 0 if index is None else index.entries - 1
        while index is not None and slot >= 0:
            try:
                entry = index.entry(slot)
                if not lies and self.is_last and entry.position >= self.size_bytes:
                    lies.append((slot, entry))
                    slot = min(slot, index.entries_before(self.size_bytes)) - 1
                    continue
            except SegmentChangedError:
                break
            header = self._batch_of(index, slot, entry, self.size_bytes)
            if header is not None:
                return header, lies
            lies.append((slot, entry))
            slot, step = slot - step, step * 2
        return None, lies


def _no_such_batch(slot: int, entry: OffsetPosition) -> str:
    return f"entry {slot} (offset {entry.offset}, byte {entry.position}) points to no such batch"


def _listed_elsewhere(file: SegmentFile, next_base_offset: int | None) -> Segment:
    """Return a segment that was listed by another process, perhaps on another machine that has the same folder."""
    segment = Segment(file, next_base_offset)
    try:
        # Each machine numbers its devices by itself; the inode is the file system's.
        device = file.path.parent.stat().st_dev
    except OSError:
        return segment  # The reader reports it.
    segment.file.identity = FileIdentity(device, file.identity.inode)
    return segment


def _other_names(path: Path) -> list[Path]:
    """Return the names that a file of a segment may bear before and after its own."""
    return [path, Path(f"{path}{names.DELETED_SUFFIX}"), Path(f"{path}{names.SWAP_SUFFIX}")]
