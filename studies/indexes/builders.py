"""Builders for the rejected designs: they follow a log and write entries to separate files.

| builder | adds an entry if | entry |
|---|---|---|
| `GranularIndex` | the offset index gets one, in a later minute (second) than the last entry's | its time, its offset |
| `MinuteMap` | a message's minute is new in the segment, in any order | the minute's start, the message's offset |
| `WideOffsetIndex` | the offset index gets one | offset, position, a timestamp |
| `AppendTimeIndex` | a message is its segment's first or last, or the first received in a minute | append time, offset |

Offsets are relative to the segment's base, as int32. The documents leave some points open; these are the choices made here:

* The wide entry's timestamp is the largest so far in the segment, including the batch. With `own_timestamp` it is the largest of
  the batch alone.
* An offset index entry is about a batch: its offset is the batch's last. So are the entries of `GranularIndex`.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import ClassVar

from studies.indexes.written_log import Append
from studies.workload import MINUTE_MS
from tidelog.formats.names import file_name

TIME_ENTRY = struct.Struct(">qi")
WIDE_ENTRY = struct.Struct(">iiq")


class EntryFiles:
    """A file of entries for each segment, written when the segment is finished. A base class; do not use it alone."""

    SUFFIX: ClassVar[str]
    LOOKS_INTO_BATCHES: ClassVar[bool] = False
    """Whether the builder needs each record's timestamp. If so, followers must open compressed batches, too."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.segment = -1
        self._pending = bytearray()

    def path(self, segment: int) -> Path:
        """Return a segment's file."""
        return self.folder / file_name(segment, self.SUFFIX)

    def append(self, batch: Append) -> None:
        """Process a batch. A new segment finishes the previous one."""
        if batch.segment != self.segment:
            self.finish_segment()
            self.segment = batch.segment
            self.begin_segment(batch)
        self.add(batch)

    def begin_segment(self, batch: Append) -> None:
        """Reset the state for a new segment."""

    def add(self, batch: Append) -> None:
        """Add the batch's entries."""
        raise NotImplementedError

    def finish_segment(self) -> None:
        """Write the pending entries; a segment's file exists even without entries."""
        if self.segment >= 0:
            with self.path(self.segment).open("ab") as file:
                file.write(self._pending)
            self._pending.clear()

    def close(self) -> None:
        """Finish the last segment."""
        self.finish_segment()

    def delete_segment(self, segment: int) -> None:
        """Delete the data of a segment that the log deleted."""
        self.path(segment).unlink()

    def _write(self, raw: bytes) -> None:
        self._pending += raw

    def entry_bytes_of(self, segment: int) -> bytes:
        """Return a segment's entries as they are in its file."""
        return self.path(segment).read_bytes()


class GranularIndex(EntryFiles):
    """KIP-33's option 1: at most one entry per minute (or `granule_ms`), and only if the offset index gets one."""

    SUFFIX = ".time.index"

    def __init__(self, folder: Path, granule_ms: int = MINUTE_MS) -> None:
        super().__init__(folder)
        self.granule_ms = granule_ms
        self._last_granule = -1

    def begin_segment(self, batch: Append) -> None:
        self._last_granule = -1

    def add(self, batch: Append) -> None:
        if not batch.is_indexed:
            return
        timestamp = batch.max_timestamp
        if timestamp // self.granule_ms > self._last_granule:
            self._last_granule = timestamp // self.granule_ms
            self._write(TIME_ENTRY.pack(timestamp, batch.last_offset - batch.segment))


class MinuteMap(EntryFiles):
    """KIP-33's option 2: `minutes` is Map[segment, Map[minute's start, first offset]]; the files are its persistent copy."""

    SUFFIX = ".minutes"
    LOOKS_INTO_BATCHES = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.minutes: dict[int, dict[int, int]] = {}

    def begin_segment(self, batch: Append) -> None:
        self.minutes[batch.segment] = {}

    def add(self, batch: Append) -> None:
        known = self.minutes[batch.segment]
        for index, timestamp in enumerate(batch.timestamps.tolist()):
            minute = timestamp - timestamp % MINUTE_MS
            if minute not in known:
                known[minute] = batch.first_offset + index
                self._write(TIME_ENTRY.pack(minute, batch.first_offset + index - batch.segment))

    def delete_segment(self, segment: int) -> None:
        del self.minutes[segment]
        super().delete_segment(segment)


class WideOffsetIndex(EntryFiles):
    """The offset index with a timestamp in each entry."""

    SUFFIX = ".wide.index"

    def __init__(self, folder: Path, *, own_timestamp: bool = False) -> None:
        super().__init__(folder)
        self.own_timestamp = own_timestamp
        self._largest = -1

    def begin_segment(self, batch: Append) -> None:
        self._largest = -1

    def add(self, batch: Append) -> None:
        self._largest = max(self._largest, batch.max_timestamp)
        if batch.is_indexed:
            timestamp = batch.max_timestamp if self.own_timestamp else self._largest
            self._write(WIDE_ENTRY.pack(batch.last_offset - batch.segment, batch.position, timestamp))


class AppendTimeIndex(EntryFiles):
    """KIP-32 option 3's index of append times, which the messages do not contain."""

    SUFFIX = ".appended"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._last = (0, 0)
        self._written = (-1, -1)

    def begin_segment(self, batch: Append) -> None:
        self._written = (-1, -1)

    def add(self, batch: Append) -> None:
        if batch.append_ms // MINUTE_MS > self._written[0] // MINUTE_MS:
            self._add(batch.append_ms, batch.first_offset)
        self._last = (batch.append_ms, batch.last_offset)

    def finish_segment(self) -> None:
        if self.segment >= 0 and self._last[1] != self._written[1]:
            self._add(*self._last)
        super().finish_segment()

    def _add(self, append_ms: int, offset: int) -> None:
        self._written = (append_ms, offset)
        self._write(TIME_ENTRY.pack(append_ms, offset - self.segment))
