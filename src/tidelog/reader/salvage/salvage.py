"""Finds the sound batches of a damaged ``.log``, and the damaged bytes between them.

After a batch that is not sound (because of its header, length, checksum, offset or records), the following bytes are searched for
the next sound batch:

| damage | continues at |
|---|---|
| an invalid checksum, a valid length | the batch's end, if a sound batch with the next offset is there |
| anything else | the first sound batch with a possible offset that is followed by another sound batch or by the end |
| an offset that contradicts its neighbours | the batch is skipped, because no checksum covers the offset |

So a single batch inside a record's value is not mistaken for a batch of this log, because no batch follows it. Several
consecutive batches inside a value are mistaken for batches of the log if their offsets are possible and the length of the
enclosing batch is damaged. Index entries are not used. Only a torn tail, which a crash may have left after the last sound batch
of the last segment, is not damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import CorruptBatchError, CorruptDataError
from tidelog.formats.batch_walk import check_crc_by_pieces
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.index_entries import MAX_RELATIVE_OFFSET
from tidelog.model import MAX_OFFSET
from tidelog.reader.segment_end import candidates, last_nonzero, may_be_torn
from tidelog.records.batch import HEADER_BYTES, BatchHeader, check_crc, read_header
from tidelog.records.records import first_offset
from tidelog.records.scanner import scan_batch
from tidelog.times import format_time

if TYPE_CHECKING:
    from tidelog.records.kernel import Rows

READ_BYTES = 1024 * 1024


class LeftOut(NamedTuple):
    """Damaged bytes of a segment that were skipped, and the offsets that may have been in them."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    """No sound batch has an offset in `[first_offset, end_offset)`. In a compacted log, some of these offsets may have been
    absent before the damage.
    """
    path: str
    start_position: int
    end_position: int
    reason: str
    records: int | None
    """The number of lost records if known. If None, it is at most the number of offsets."""
    previous_timestamp: int | None
    next_timestamp: int | None

    def __str__(self) -> str:
        count = f"at most {self.end_offset - self.first_offset:,}" if self.records is None else f"{self.records:,}"
        times = ""
        if self.previous_timestamp is not None:
            times = f"; the batch before is from {format_time(self.previous_timestamp)}"
        if self.next_timestamp is not None:
            times += f"{',' if times else ';'} the batch after is from {format_time(self.next_timestamp)}"
        return (
            f"{self.topic}-{self.partition}: offsets [{self.first_offset}, {self.end_offset}) left out, {count} records: bytes "
            f"{self.start_position} to {self.end_position} of {self.path} are damaged: {self.reason}{times}"
        )

    def fields(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return self._asdict()


class Damage(NamedTuple):
    """Damaged bytes between sound batches. `claimed` is the header at the start of these bytes, if it is plausible."""

    start: int
    end: int
    reason: str
    before: BatchHeader | None
    behind: BatchHeader | None
    first_offset_behind: int
    claimed: BatchHeader | None


class Sound(NamedTuple):
    """The sound batches of a segment, and the damage between them."""

    headers: list[BatchHeader]
    damages: list[Damage]


def salvage(file: ReadOnlyFile, size_bytes: int, base_offset: int, next_base_offset: int | None) -> Sound:
    """Check every batch of a segment, with its records, and return what is sound and what is damaged. Raises SegmentChangedError,
    StorageError.

    Each header takes a few hundred bytes of memory.
    """
    return _Salvage(file, size_bytes, base_offset, next_base_offset).run()


class _Salvage:
    def __init__(self, file: ReadOnlyFile, size_bytes: int, base_offset: int, next_base_offset: int | None) -> None:
        from tidelog.records.kernel import Rows

        self._file = file
        self._size = size_bytes
        self._base_offset = base_offset
        self._limit = MAX_OFFSET if next_base_offset is None else next_base_offset
        self._is_last = next_base_offset is None
        self._rows: Rows = Rows()
        self._rows.set_bounds(None, None, None, None)
        self._sound: list[BatchHeader] = []
        self._damages: list[Damage] = []

    def run(self) -> Sound:
        position = 0
        while position < self._size:
            header, fault = self._batch_at(position)
            if header is not None and self._is_out_of_line(header):
                header, fault = None, "its offset contradicts those of the batches around it"
            if header is not None:
                self._sound.append(header)
                position = header.end_position
                continue
            behind = self._next_sound(position)
            if behind is None and self._is_last and may_be_torn(self._file, position, self._size, self._next_offset):
                break  # `missing` compares the log's end with the checkpoints.
            end = self._size if behind is None else behind.position
            before, claimed = self._sound[-1] if self._sound else None, self._header_at(position)
            first_behind = self._offset_after(claimed) if behind is None else first_offset(behind, self._read, self._file.path)
            self._damages.append(Damage(position, end, fault, before, behind, first_behind, claimed))
            position = end
        return Sound(self._sound, self._damages)

    def _offset_after(self, claimed: BatchHeader | None) -> int:
        """Return the offset after damage that extends to the segment's end: the base of the next segment or, in the last segment,
        the offset that the damaged header claims.
        """
        if not self._is_last:
            return self._limit
        is_near = claimed is not None and 0 <= claimed.last_offset - self._next_offset <= MAX_RELATIVE_OFFSET
        return claimed.next_offset if claimed is not None and is_near else self._next_offset + 1

    def _read(self, header: BatchHeader) -> memoryview:
        return memoryview(self._file.read(header.position, header.size))

    @property
    def _next_offset(self) -> int:
        return self._sound[-1].next_offset if self._sound else self._base_offset

    def _header_at(self, position: int) -> BatchHeader | None:
        try:
            header = read_header(self._file.read(position, HEADER_BYTES), 0, position, self._file.path)
        except CorruptBatchError:
            return None
        return header if header.end_position <= self._size else None

    def _batch_at(self, position: int) -> tuple[BatchHeader | None, str]:
        """Return the sound batch at a position, if its offset may follow the previous batch; otherwise None and the reason."""
        try:
            header = read_header(self._file.read(position, HEADER_BYTES), 0, position, self._file.path)
        except CorruptBatchError as error:
            return None, error.message
        if header.end_position > self._size:
            return None, "a batch extends beyond the end of its segment"
        first = header.base_offset if header.magic == 2 else header.last_offset
        if not self._next_offset <= first <= header.last_offset < self._limit:
            return None, "its offset is out of order"
        if header.last_offset - self._base_offset > MAX_RELATIVE_OFFSET:
            return None, "its offset is too far above the segment's base offset"
        try:
            if header.size > READ_BYTES:
                check_crc_by_pieces(self._file, header)
            batch = memoryview(self._file.read(position, header.size))
            check_crc(header, batch, self._file.path)
            self._rows.clear()
            scan_batch(self._rows, header, batch, path=self._file.path)
        except CorruptDataError as error:
            return None, error.message
        return header, ""

    def _is_out_of_line(self, header: BatchHeader) -> bool:
        """Return whether a batch's offset is too high: the batch after it continues from the batch before it."""
        first = header.base_offset if header.magic == 2 else header.last_offset
        if first == self._next_offset or header.end_position >= self._size:
            return False
        behind = self._header_at(header.end_position)
        if behind is None or behind.base_offset >= header.next_offset or behind.base_offset < self._next_offset:
            return False
        try:
            check_crc_by_pieces(self._file, behind)
        except CorruptBatchError:
            return False
        return True

    def _next_sound(self, position: int) -> BatchHeader | None:
        """Return the batch with which the log continues after damage."""
        claimed = self._header_at(position)
        if claimed is not None and claimed.end_position < self._size:
            behind, _ = self._batch_at(claimed.end_position)
            expected = behind is not None and claimed.base_offset >= self._next_offset
            if behind is not None and expected and behind.base_offset == claimed.next_offset:
                return behind
        last = last_nonzero(self._file, position, self._size)
        if last is None:
            return None
        for place in candidates(self._file, position + 1, last + 1, self._size, self._next_offset):
            found, _ = self._batch_at(place)
            if found is not None and (found.end_position == self._size or self._follows(found)):
                return found
        return None

    def _follows(self, header: BatchHeader) -> bool:
        """Return whether a batch is followed by a sound batch, or by nothing but zeros."""
        if last_nonzero(self._file, header.end_position, self._size) is None:
            return True
        self._sound.append(header)
        try:
            return self._batch_at(header.end_position)[0] is not None
        finally:
            self._sound.pop()


def left_out(damages: list[Damage], topic: str, partition: int, path: str, base_offset: int) -> Iterator[LeftOut]:
    """Yield a report for each damaged part of a segment."""
    for damage in damages:
        first = base_offset if damage.before is None else damage.before.next_offset
        end = damage.first_offset_behind
        claimed = damage.claimed
        is_one = claimed is not None and claimed.magic == 2 and claimed.end_position == damage.end
        is_whole = is_one and claimed is not None and (claimed.base_offset, claimed.next_offset) == (first, end)
        records = end - first if is_whole and claimed is not None and claimed.record_count == end - first else None
        yield LeftOut(
            topic,
            partition,
            first,
            end,
            path,
            damage.start,
            damage.end,
            damage.reason,
            records,
            _time(damage.before),
            _time(damage.behind),
        )


def _time(header: BatchHeader | None) -> int | None:
    return None if header is None or header.max_timestamp < 0 else header.max_timestamp
