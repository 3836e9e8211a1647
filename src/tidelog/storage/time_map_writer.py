"""Writes time maps of finished segments in the background, a slice at a time (`reader.time_map_file`).

| when | which segment | |
|---|---|---|
| after a roll or compaction | the finished one | up to `SLICE_BYTES` per tick; with threads, all of it ahead of the tick |
| at a clean shutdown | pending ones; last segments of logs with appends | up to `BYTES_AT_THE_END`, `SECONDS_AT_THE_END` |

With threads the maps are written one after the other. After `AT_ONCE_S` of processor time the writer pauses for `REST_PER_WORK`
times as long: maps thus take at most a quarter of one processor, however many segments are finished at once.

Each slice extends the map, so that an unfinished map is valid, too. A map is optional: if a full disk or a deleted segment
prevents it, at most a notice is logged, and `tidelog index rebuild` can write it later. Maps of deleted, replaced or truncated
segments are removed with them (`file_deletion`, `local_log`).

`log_manager` owns one `TimeMapWriter`, unless tidelog.time.map.enable is false. Only one thread at a time may use it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from time import monotonic, thread_time

from tidelog.errors import CorruptDataError, StorageError
from tidelog.formats.files import Notices
from tidelog.formats.offset_index import OffsetPosition
from tidelog.formats.paths.file_path import FilePath
from tidelog.storage.partition.log_events import ReportingLog
from tidelog.storage.scheduler import ScheduledTask, Scheduler
from tidelog.storage.segment.log_segment import LogSegment

logger = logging.getLogger("tidelog.storage")

SLICE_BYTES = 8 * 1024 * 1024
"""Bytes of log that one tick reads: this takes a few milliseconds, during which a broker's clients wait."""

SEGMENT_COST_BYTES = 1024 * 1024
"""The least cost of a segment in bytes, however small it is: its files are opened, and one is written."""

AT_ONCE_S = 0.02
REST_PER_WORK = 3

BYTES_AT_THE_END = 2 * 1024 * 1024 * 1024
SECONDS_AT_THE_END = 3.0


class _Waiting:
    """A segment to map, and how many of its bytes are mapped."""

    def __init__(self, log: ReportingLog, segment: LogSegment, mapped_bytes: int = 0) -> None:
        self.log = log
        self.segment = segment
        self.mapped_bytes = mapped_bytes

    @property
    def is_there(self) -> bool:
        """Whether the log still has this segment and is online."""
        return not self.log.is_offline and self.log.segments.get(self.segment.base_offset) is self.segment

    @property
    def left_bytes(self) -> int:
        return self.segment.size_bytes - self.mapped_bytes


class _UnlessGone(Notices):
    """Logs no notice about a segment that was removed while it was being mapped."""

    def __init__(self, segment: Path) -> None:
        super().__init__()
        self._segment = segment

    def note(self, path: FilePath, text: str) -> None:
        if self._segment.exists():
            super().note(path, text)


class _Ahead:
    """Maps a whole segment on any thread. It uses only the segment's file."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.is_done = False
        self.processor_s = 0.0
        self._path = path
        self._size_bytes = size_bytes

    def __call__(self) -> None:
        from tidelog.reader.time_map_file import write_time_map

        began = thread_time()  # Do not count the import.
        if self._size_bytes:
            write_time_map(self._path, end_position=self._size_bytes, notices=_UnlessGone(self._path))
        self.processor_s = thread_time() - began
        self.is_done = True

    def undo(self) -> None:
        """Remove the map of a segment that was removed before its map was ready."""
        from tidelog.reader.time_map_file import remove_time_map

        with suppress(StorageError):
            remove_time_map(self._path)


class TimeMapWriter:
    """Writes the time maps of the segments that it is given."""

    def __init__(self, scheduler: Scheduler, *, slice_bytes: int = SLICE_BYTES) -> None:
        self._scheduler = scheduler
        self._slice_bytes = slice_bytes
        self._waiting: deque[_Waiting] = deque()
        self._task: ScheduledTask | None = None
        self._ahead: _Ahead | None = None
        self._worked_s = 0.0
        """Processor time of other threads since the last pause, in seconds."""

    def add(self, log: ReportingLog, segment: LogSegment) -> None:
        """Map a finished segment in one of the next ticks."""
        self._waiting.append(_Waiting(log, segment))
        if self._task is None:
            self._schedule()

    def finish(self, closed: Iterable[ReportingLog], max_bytes: int = BYTES_AT_THE_END) -> None:
        """Map the pending segments, and the last segments of closed logs that had appends, up to `max_bytes` of log."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        for log in closed:
            segment = log.segments.last
            if segment is not None:
                # Comparing an earlier map with the log before extending it has a cost, too.
                self._waiting.append(_Waiting(log, segment))
        left_out = 0
        until = monotonic() + SECONDS_AT_THE_END
        for one in self._waiting:
            if one.left_bytes > max_bytes or monotonic() >= until:
                left_out += 1
            elif one.is_there:
                max_bytes -= max(one.left_bytes, SEGMENT_COST_BYTES)
                self._map(one, one.segment.size_bytes)
        self._waiting.clear()
        if left_out:
            logger.info("%d segments have no time map yet", left_out)

    def _tick(self) -> None:
        self._task = None
        left, rest_s = self._slice_bytes, 0.0
        if self._waiting and self._ahead is not None and self._ahead.is_done:
            left = 0
            self._worked_s += self._ahead.processor_s
            if self._worked_s >= AT_ONCE_S:
                rest_s, self._worked_s = self._worked_s * REST_PER_WORK, 0.0
            one = self._waiting.popleft()
            if not one.is_there:
                self._ahead.undo()
        while self._waiting and left > 0:
            one = self._waiting[0]
            left -= max(self._next_slice(one, left), SEGMENT_COST_BYTES)
            if one.left_bytes <= 0:
                self._waiting.popleft()
        self._schedule(rest_s)

    def _schedule(self, rest_s: float = 0.0) -> None:
        while self._waiting and not self._waiting[0].is_there:
            self._waiting.popleft()
        if not self._waiting:
            return
        log = self._waiting[0].segment.log
        self._ahead = _Ahead(log.path, log.size_bytes)
        self._task = self._scheduler.schedule("time-map", self._tick, delay_ms=int(rest_s * 1000), ahead=self._ahead)

    def _next_slice(self, one: _Waiting, max_bytes: int) -> int:
        """Map about `max_bytes` more; return how many bytes of the log were mapped. A removed segment counts as done."""
        size = one.segment.size_bytes
        before = one.mapped_bytes
        one.mapped_bytes = size
        if not one.is_there:
            return 0
        end = size if size - before <= max_bytes else _batch_behind(one.segment, before + max_bytes)
        if self._map(one, end):
            one.mapped_bytes = end
        return end - before

    def _map(self, one: _Waiting, end_position: int) -> bool:
        # Import the map code with the first map: a broker does not need it to start.
        from tidelog.reader.time_map_file import write_time_map

        segment = one.segment
        return end_position > 0 and write_time_map(segment.log.path, end_position=end_position) is not None


def _batch_behind(segment: LogSegment, position: int) -> int:
    """Return the start of a batch at or soon after a position, or the segment's end if the index has none."""
    try:
        offset = segment.fetch_upper_bound_offset(OffsetPosition(segment.base_offset, position), 0)
        found = None if offset is None else segment.translate_offset(offset)
        segment.close_idle()
    except (CorruptDataError, StorageError):
        return segment.size_bytes
    return segment.size_bytes if found is None or found.position < position else found.position
