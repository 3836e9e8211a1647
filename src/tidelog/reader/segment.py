"""Reads a segment: the ``.log`` and the indexes beside it (spec §2-§4).

Invariants
    * Nothing is read before it is needed; an unused object has no open file.
    * The ``.log`` is always the same inode. If the owner renames the file, it is read under its new name. If the file cannot be
      found, SegmentChangedError is raised.
    * An index is a hint. Each entry is checked against its batch before it is used. A wrong, missing or damaged index causes a
      notice and a walk through the log; it never changes an answer.
    * `segment_end` determines the end of the last segment. Any other segment ends with its file, and a torn batch there is an
      error. Later appends are not seen; index entries for them are skipped silently.

Not thread-safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidelog.errors import CorruptBatchError, CorruptDataError, CorruptIndexError, SegmentChangedError
from tidelog.formats import batch_walk, names
from tidelog.formats.files import FileIdentity, Notices, ReadOnlyFile
from tidelog.formats.index_entries import IndexEntries
from tidelog.formats.offset_index import OffsetIndex, OffsetPosition
from tidelog.formats.paths.file_path import FilePath, with_ending
from tidelog.formats.time_index import TimeIndex, TimestampOffset
from tidelog.formats.txn_index import TxnIndex
from tidelog.model import MAX_OFFSET
from tidelog.reader.proven_head import ProvenHead, WalkBudget
from tidelog.reader.segment_end import SegmentEnd, find_end
from tidelog.reader.segment_files import SegmentFile, segment_file
from tidelog.reader.trace import OffsetIndexStep, TimestampSource, Trace
from tidelog.records.batch import HEADER_BYTES, BatchHeader, check_crc, read_header
from tidelog.records.control import EndTxnMarker
from tidelog.records.markers import end_txn_marker
from tidelog.records.records import first_offset

if TYPE_CHECKING:
    from tidelog.formats.summary.segment_summary import SegmentFacts

SILENT_WITHOUT_INDEX_BYTES = 2 * 1024 * 1024
"""Up to this size, a last segment may lack an index: Kafka creates a live segment's index with the first entry."""

_Index = TypeVar("_Index", bound=IndexEntries)


class LargestTimestamp(NamedTuple):
    """A segment's largest timestamp (ms, -1 for none), an offset of the first batch with it, and the timestamp's source."""

    timestamp: int
    offset: int
    source: TimestampSource


class Segment:
    """A read-only segment. `next_base_offset` is the next segment's base, or None. The whole log shares `budget`."""

    facts: SegmentFacts | None = None
    """Facts that are known without reading the segment. Only a `KnownSegment` has any."""

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
        self._file = ReadOnlyFile(file.path, file.identity, partial(_other_names, plain))
        self._plain = plain
        self._indexes: dict[str, IndexEntries | None] = {}
        self._bytes_of_distrusted = 0
        self._end: SegmentEnd | None = None
        self.head = ProvenHead(self._file, file.base_offset, budget or WalkBudget(), self._claimed_after)
        self.largest: LargestTimestamp | None = None
        """The result of `segment_time.largest_timestamp`, once known."""

    @classmethod
    def open(cls, path: FilePath, next_base_offset: int | None = None, notices: Notices | None = None) -> Segment:
        """Open a ``.log`` file by itself. Raises NotFoundError, InvalidArgumentError for a name that is not an offset."""
        return cls(segment_file(path), next_base_offset, notices)

    def __repr__(self) -> str:
        return f"Segment({str(self.log_path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the listing, not what has been read."""
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
        """Close the segment's files. They are reopened when needed."""
        self._file.close()
        for index in self._indexes.values():
            if index is not None:
                index.close()

    # --- the log

    @property
    def end_position(self) -> int:
        """The position after the last batch: from `segment_end` in the last segment, the file's size in all other segments."""
        return self.valid_end().position if self.is_last else self.size_bytes

    @property
    def next_offset(self) -> int:
        """The offset after the last record. In an empty segment it is the base offset."""
        return self.valid_end().next_offset

    def valid_end(self) -> SegmentEnd:
        """Return the end of the batches. Reads the index's last entry and the log after it. Raises CorruptBatchError."""
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
        """Whether index entries that point past the end may refer to batches appended after the listing.

        That is the case if the file has grown, or was longer than its batches (preallocated, or in the middle of an append).
        """
        return self.is_last and (self.size_bytes > self.end_position or self._file.size_bytes() > self.size_bytes)

    def check_name(self) -> bool:
        """Return whether the first batch begins at the base offset. False if it begins higher (a gap) or there is no batch.

        Reads one header, or a whole compressed v0 or v1 message. A damaged header is not reported here. Raises CorruptBatchError
        if the first batch is below the base or extends beyond the next segment's base, because look-ups by name would miss
        records; SegmentChangedError.
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
                self.check_follower(header)  # A flipped bit in the offset would look like a gap.
            return first == self.base_offset
        raise CorruptBatchError("a segment's name does not match its batches", path=self.log_path, found=found, expected=expected)

    def headers(self, position: int = 0, end_position: int | None = None, *, check_crc: bool = False) -> Iterator[BatchHeader]:
        """Yield the batches from `position`, which must be the start of a batch, up to `end_position` or the segment's end.

        Raises CorruptBatchError, SegmentChangedError.
        """
        end = self.end_position
        if end_position is None or end_position >= end:
            yield from self._walk(position, end, crc=check_crc)
        else:
            yield from self._walk(position, end_position, crc=check_crc, stop_at_partial=True)

    def check_follower(self, header: BatchHeader) -> None:
        """Check an offset, which no checksum covers, against the next batch. Raises CorruptBatchError, SegmentChangedError."""
        next(self._walk(header.end_position, self.end_position, crc=False, min_offset=header.next_offset), None)

    def times(self, position: int, end_position: int) -> Iterator[int]:
        """Yield the largest timestamp of each batch in [position, end_position). Both must be batch boundaries.

        Raises CorruptBatchError, also if `end_position` is not a batch boundary, SegmentChangedError.
        """
        return (timestamp for _, _, timestamp in batch_walk.iter_times(self._file, position, end_position, self.base_offset))

    def read_batch(self, header: BatchHeader) -> memoryview:
        """Return the batch's bytes. The checksum is not verified."""
        data = self._file.read(header.position, header.size)
        if len(data) < header.size:
            raise SegmentChangedError(
                "a segment was truncated while it was being read", path=self.log_path, position=header.position
            )
        return memoryview(data)

    def translate_offset(self, offset: int, trace: Trace | None = None) -> BatchHeader | None:
        """Return the first batch whose last offset is at or above `offset`, None after the last one (spec §4.4)."""
        headers = self.headers(self.floor_position(offset, trace), check_crc=True)
        for header in headers:
            if header.last_offset >= offset:
                if header.base_offset > offset:
                    next(headers, None)  # No checksum covers an offset; the next batch shows whether this offset is too high.
                return header
        return None

    def floor_position(self, offset: int, trace: Trace | None = None) -> int:
        """Return the position of a batch at or before the batch with `offset`: the position in the index, or 0."""
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
                if entry.offset > offset:  # The index's positions do not increase with the offsets.
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
        """Return a control batch's transaction marker, None if the batch has no such marker or was emptied by compaction.

        Raises CorruptBatchError, also for an invalid checksum.
        """
        batch = self.read_batch(header)
        check_crc(header, batch, self.log_path)
        return end_txn_marker(header, batch, self.log_path)

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
        """The offset index, None if it is missing or unusable."""
        return self._index(names.INDEX_SUFFIX, OffsetIndex)

    def _claimed_after(self, position: int) -> int | None:
        """Return a position at or after `position` at which a batch begins according to the offset index, None if unknown."""
        index = self.offset_index
        try:
            slot = 0 if index is None else index.entries_before(position)
            return None if index is None or slot >= index.entries else index.entry(slot).position
        except (CorruptIndexError, SegmentChangedError):
            return None

    @property
    def time_index(self) -> TimeIndex | None:
        """The time index, None if it is missing or unusable."""
        return self._index(names.TIME_INDEX_SUFFIX, TimeIndex)

    def distrust_time_index(self, reason: str | None) -> None:
        """Ignore the time index from now on, with a notice if a reason is given."""
        self._distrust(names.TIME_INDEX_SUFFIX, reason)

    @cached_property
    def unchecked_last_time_entry(self) -> TimestampOffset:
        """The time index's last entry, unchecked; (-1, base) if there is none. Used to explain what Kafka would do."""
        file = self._open_beside(names.TIME_INDEX_SUFFIX)
        if file is None:
            return TimestampOffset(-1, self.base_offset)
        with file:
            return TimeIndex.open(file, self.base_offset).last_entry

    def open_txn_index(self) -> TxnIndex | None:
        """Read the transaction index and return it; return None if there is none. Raises CorruptIndexError."""
        file = self._open_beside(names.TXN_INDEX_SUFFIX)
        if file is None:
            return None
        index = TxnIndex.open(file, self.base_offset)
        index.sanity_check()
        return index

    def index_path(self, suffix: str) -> FilePath:
        """Return the path of one of the segment's index files, whether it exists or not."""
        return self._plain.with_suffix(suffix)

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
                self.notices.note(self.index_path(suffix), "is missing; the log is read instead")
            return None
        try:
            index = kind.open(file, self.base_offset)
            index.sanity_check()
        except (CorruptIndexError, SegmentChangedError) as error:
            file.close()
            self._bytes_of_distrusted += file.bytes_read
            found = "" if error.found is None else f" ({error.found})"
            self.notices.note(file.path, f"{error.message}{found}; the log is read instead")
            return None
        return index

    def _open_beside(self, suffix: str) -> ReadOnlyFile | None:
        """Open the index file that belongs to this inode of the ``.log``; return None if there is none.

        The index must have the same suffix as the ``.log``, whose name must not change while the index is being opened.
        """
        for _ in range(3):
            log_path = self._file.locate()
            if log_path is None:
                return None  # The log has been unlinked. It is still read through its descriptor, but its indexes are gone.
            ending = log_path.name.removeprefix(self._plain.name)
            # A crash may leave the log renamed and an index of the same swap not yet renamed.
            endings = [ending] if ending else ["", names.SWAP_SUFFIX]
            file = None
            for candidate in endings:
                file = ReadOnlyFile(with_ending(self.index_path(suffix), candidate), fallbacks=())
                try:
                    file.open()
                except SegmentChangedError:
                    file = None
                    continue
                break
            if self._file.locate() == log_path:
                if file is not None:
                    file.fallbacks = partial(_other_names, self.index_path(suffix))  # From here on, its inode identifies it.
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
            self.notices.note(index.path or self.index_path(suffix), f"{reason}; the log is read instead")
        self._indexes[suffix] = None

    def _batch_of(self, index: OffsetIndex, slot: int, entry: OffsetPosition, end_position: int) -> BatchHeader | None:
        """Return the batch at an offset index entry's position, if the batch is valid and fits the entry; else None.

        Look-ups need every batch before the position to be below the entry's offset, so this batch must not start above that
        offset. It need not end there: older releases wrote the offset of a different record, or one entry for several batches. A
        batch inside a record's value does not pass, because the walk from the previous entry does not lead to it.
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
        """Return the batch of the last valid offset index entry, and the entries after that entry, which are not (yet) valid."""
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
    """Return a segment that another process has listed, perhaps on another machine with the same folder."""
    segment = Segment(file, next_base_offset)
    try:
        # Device numbers differ between machines; inode numbers belong to the file system.
        device = file.path.parent.stat().st_dev
    except OSError:
        return segment  # Reading reports the error.
    segment.file.identity = FileIdentity(device, file.identity.inode)
    return segment


def _other_names(path: FilePath) -> list[FilePath]:
    """Return the names that a segment's file may have had before or may get later."""
    return [path, with_ending(path, names.DELETED_SUFFIX), with_ending(path, names.SWAP_SUFFIX)]
