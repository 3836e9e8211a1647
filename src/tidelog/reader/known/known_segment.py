"""A segment in a bucket or in a backup. If possible, its properties come from a summary of all segments
(`formats/summary/known_segments.py`).
"""

from __future__ import annotations

from contextlib import suppress

from tidelog.errors import CorruptDataError
from tidelog.formats import names
from tidelog.formats.files import Notices
from tidelog.formats.summary.known_segments import KnownSegments
from tidelog.reader.proven_head import WalkBudget
from tidelog.reader.segment import Segment
from tidelog.reader.segment_end import SegmentEnd
from tidelog.reader.segment_files import SegmentFile


class KnownSegment(Segment):
    """A segment whose `facts` come from `known`. If `known` has no facts about it, `facts` is None and the segment is read like
    any other.
    """

    def __init__(
        self, file: SegmentFile, next_base_offset: int | None, notices: Notices, budget: WalkBudget, known: KnownSegments
    ) -> None:
        super().__init__(file, next_base_offset, notices, budget)
        self.facts = known.of(file.base_offset, next_base_offset, file.stat.st_size, file.stat.st_mtime_ns)

    @property
    def end_position(self) -> int:
        return super().end_position if self.facts is None else self.size_bytes

    @property
    def next_offset(self) -> int:
        return super().next_offset if self.facts is None else self.facts.next_offset

    def check_name(self) -> bool:
        return super().check_name() if self.facts is None else self.facts.first_offset == self.base_offset

    def valid_end(self) -> SegmentEnd:
        if self._end is None and self.facts is not None and (self.facts.last_position >= 0 or not self.facts.size_bytes):
            self._end = self._known_end()
        return super().valid_end()

    def _known_end(self) -> SegmentEnd | None:
        """Return the end that the facts give, after checking the last batch. If the log has a different last batch, log a notice,
        drop all facts and return None.
        """
        facts = self.facts
        assert facts is not None
        if not facts.size_bytes:
            return SegmentEnd(0, facts.next_offset, None)
        with suppress(CorruptDataError, StopIteration):
            last = next(self._walk(facts.last_position, self.size_bytes, crc=True))
            if (last.crc, last.end_position, last.next_offset) == (facts.last_crc, self.size_bytes, facts.next_offset):
                return SegmentEnd(self.size_bytes, facts.next_offset, last)
        self.facts = self.largest = None
        self.notices.note(self.log_path, f"{names.SEGMENT_SUMMARY} describes a different log; the log itself is read instead")
        return None
