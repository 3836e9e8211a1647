"""A segment that shows only its sound batches, for `skip_damaged` (see `salvage`).

The whole ``.log`` is read and checked on first use. Its indexes are not used.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from functools import cached_property
from typing import TypeVar

from tidelog.formats.index_entries import IndexEntries
from tidelog.reader.salvage.salvage import LeftOut, Sound, left_out, salvage
from tidelog.reader.segment import Segment
from tidelog.reader.segment_end import SegmentEnd, last_nonzero, torn_tail
from tidelog.records.batch import BatchHeader

_Index = TypeVar("_Index", bound=IndexEntries)


class SalvagedSegment(Segment):
    """A segment that shows only its sound batches."""

    @cached_property
    def sound(self) -> Sound:
        """The sound batches and the damage between them."""
        return salvage(self._file, self.size_bytes, self.base_offset, self.next_base_offset)

    def left_out(self, topic: str, partition: int) -> list[LeftOut]:
        """Return a report for each part of the segment that is skipped."""
        return list(left_out(self.sound.damages, topic, partition, str(self.log_path), self.base_offset))

    @property
    def is_damaged_at_end(self) -> bool:
        """Whether the segment ends with damage. The last segment of a log then ends before the damage, because the extent of the
        damage is unknown.
        """
        return bool(self.sound.damages) and self.sound.damages[-1].behind is None

    def valid_end(self) -> SegmentEnd:
        if self._end is None:
            headers, damages = self.sound
            last, torn = headers[-1] if headers else None, None
            position, next_offset = (0, self.base_offset) if last is None else (last.end_position, last.next_offset)
            if not self.is_last:
                # Offsets after the last batch are reported as skipped, not as a gap.
                if self.is_damaged_at_end:
                    next_offset = damages[-1].first_offset_behind
                position = self.size_bytes
            elif not self.is_damaged_at_end and last_nonzero(self._file, position, self.size_bytes) is not None:
                torn = torn_tail(self._file, position, self.size_bytes, next_offset)
                self.notices.note(self.log_path, str(torn))
            self._end = SegmentEnd(position, next_offset, last, torn)
        return self._end

    def check_name(self) -> bool:
        return True  # Offsets outside the range that the segment's name allows are reported as skipped.

    def floor_position(self, offset: int, trace: object = None) -> int:
        return 0

    def _walk(
        self, position: int, end_position: int, *, crc: bool, min_offset: int | None = None, stop_at_partial: bool = False
    ) -> Iterator[BatchHeader]:
        headers = self.sound.headers
        for number in range(bisect.bisect_left(headers, position, key=lambda header: header.position), len(headers)):
            if headers[number].end_position > end_position:
                return
            yield headers[number]

    def _index(self, suffix: str, kind: type[_Index]) -> _Index | None:
        return None
