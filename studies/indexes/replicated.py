"""KIP-32 option 3 between replicas: append times exist only in the time index, which fetch responses carry.

A leader records (append time, offset) for a segment's first message, for its last one when it rolls, and for the first message
received in a minute. It rolls by the first entry, and retention uses the last. Followers get the entries with the data::

    FetchResponse partition    ErrorCode int16, HighwaterMarkOffset int64, MessageSetSize int32, MessageSet,
                               [TimeIndexEntry]: count int32, then each LogAppendTime int64, Offset int32

The document leaves some points open; these are the choices made here:

* An int32 cannot hold an absolute offset, so it is relative to the segment's base. A response never crosses a segment, and an
  entry of offset 0 tells the follower to begin one: that is why there must always be one for the first message.
* "The entries in the message set" are those of its offsets. Then the last message's entry, which is only made at the roll, comes
  too late for a follower that has that message already. `with_closing` sends it along with the next segment's first messages, as
  offset -1.

Only the number of log bytes is kept, because only the index matters here.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from studies.workload import MINUTE_MS
from tidelog.errors import InvalidArgumentError
from tidelog.storage.partition.retention import SegmentFacts

_PREFIX = struct.Struct(">hqi")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qi")
CLOSING = -1
"""The relative offset of the message before a segment."""


class Batch(NamedTuple):
    """Messages appended in one batch."""

    first_offset: int
    last_offset: int
    size_bytes: int


class TimeEntry(NamedTuple):
    """An entry: a message's append time on the leader (epoch ms) and its absolute offset."""

    append_ms: int
    offset: int


class Fetched(NamedTuple):
    """A response for one partition. Offsets of `entries` are relative."""

    batches: tuple[Batch, ...]
    entries: tuple[TimeEntry, ...]


def encode(message_set: bytes, entries: Sequence[TimeEntry], high_watermark: int, *, is_follower: bool = True) -> bytes:
    """Return a partition's part of a response; a consumer's has no entries."""
    sent = entries if is_follower else ()
    body = b"".join(_ENTRY.pack(*entry) for entry in sent)
    return _PREFIX.pack(0, high_watermark, len(message_set)) + message_set + _COUNT.pack(len(sent)) + body


def decode(data: bytes) -> tuple[bytes, tuple[TimeEntry, ...], int]:
    """Return message set, entries and high watermark. Raise InvalidArgumentError for an impossible length."""
    _, high_watermark, size = _PREFIX.unpack_from(data)
    end = _PREFIX.size + size
    (count,) = _COUNT.unpack_from(data, end)
    if len(data) != end + _COUNT.size + count * _ENTRY.size:
        raise InvalidArgumentError("a response of invalid length", found=len(data))
    entries = tuple(TimeEntry(*entry) for entry in _ENTRY.iter_unpack(data[end + _COUNT.size :]))
    return data[_PREFIX.size : end], entries, high_watermark


def entry_overhead_bytes(entries: int) -> int:
    """Return by how many bytes the entries lengthen a response."""
    return _COUNT.size + entries * _ENTRY.size


@dataclass
class Part:
    """A segment of a replica."""

    base_offset: int
    batches: list[Batch] = field(default_factory=list)
    entries: list[TimeEntry] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.base_offset


class Replica:
    """One broker's copy of the partition, leader or follower."""

    def __init__(self, roll_ms: int) -> None:
        self.roll_ms = roll_ms
        self.parts: list[Part] = []
        self._last_append_ms = -1

    @property
    def end_offset(self) -> int:
        """The offset after the last message."""
        return self.parts[-1].end_offset if self.parts else 0

    @property
    def index(self) -> list[tuple[int, tuple[TimeEntry, ...]]]:
        """The whole time index: base offset and entries of each segment."""
        return [(part.base_offset, tuple(part.entries)) for part in self.parts]

    def facts(self) -> list[SegmentFacts]:
        """Return the segments in the form that the retention rules need."""
        last = self.parts[-1]
        return [SegmentFacts(part.base_offset, part.end_offset, part.size_bytes, part is last) for part in self.parts]

    def largest(self, base_offset: int) -> int:
        """Return the append time from which a segment's retention counts: that of its last entry."""
        return next(part.entries[-1].append_ms for part in self.parts if part.base_offset == base_offset)

    # --- as leader

    def append(self, records: int, size_bytes: int, now_ms: int) -> int:
        """Append messages; return their append time, which never decreases."""
        append_ms = max(now_ms, self._last_append_ms)
        offset = self.end_offset
        if self.parts and append_ms - self.parts[-1].entries[0].append_ms > self.roll_ms:
            self._close_part()
        if not self.parts:
            self.parts.append(Part(offset))
        part = self.parts[-1]
        if not part.entries or append_ms // MINUTE_MS > part.entries[-1].append_ms // MINUTE_MS:
            part.entries.append(TimeEntry(append_ms, offset))
        part.batches.append(Batch(offset, offset + records - 1, size_bytes))
        self._last_append_ms = append_ms
        return append_ms

    def _close_part(self) -> None:
        part = self.parts[-1]
        if part.entries[-1].offset != part.end_offset - 1:
            part.entries.append(TimeEntry(self._last_append_ms, part.end_offset - 1))
        self.parts.append(Part(part.end_offset))

    def fetch(self, offset: int, max_bytes: int, *, with_closing: bool) -> Fetched:
        """Return the response to a follower at `offset`: whole batches of one segment, at least one, with their entries."""
        number = next((at for at, part in enumerate(self.parts) if part.base_offset <= offset < part.end_offset), None)
        if number is None:
            return Fetched((), ())
        part = self.parts[number]
        taken: list[Batch] = []
        size = 0
        for batch in part.batches[bisect_left(part.batches, offset, key=lambda batch: batch.first_offset) :]:
            if taken and size + batch.size_bytes > max_bytes:
                break
            taken.append(batch)
            size += batch.size_bytes
        entries = [
            TimeEntry(entry.append_ms, entry.offset - part.base_offset)
            for entry in part.entries
            if offset <= entry.offset <= taken[-1].last_offset
        ]
        if with_closing and offset == part.base_offset and number:
            entries.insert(0, TimeEntry(self.parts[number - 1].entries[-1].append_ms, CLOSING))
        return Fetched(tuple(taken), tuple(entries))

    # --- as follower

    def take(self, fetched: Fetched) -> None:
        """Append a leader's response; begin a segment at the same offset as the leader."""
        if not fetched.batches:
            return
        for entry in fetched.entries:
            if entry.offset == CLOSING:
                before = self.parts[-1]
                if before.entries[-1].offset != before.end_offset - 1:
                    before.entries.append(TimeEntry(entry.append_ms, before.end_offset - 1))
            else:
                if entry.offset == 0:
                    self.parts.append(Part(fetched.batches[0].first_offset))
                base = self.parts[-1].base_offset
                self.parts[-1].entries.append(TimeEntry(entry.append_ms, base + entry.offset))
        self.parts[-1].batches.extend(fetched.batches)
        self._last_append_ms = max(self._last_append_ms, self.parts[-1].entries[-1].append_ms)

    def truncate_to(self, offset: int, *, entries_too: bool = True) -> None:
        """Truncate the messages that the new leader does not have, with their entries, as the document requires."""
        self.parts = [part for part in self.parts if part.base_offset < offset] or self.parts[:1]
        part = self.parts[-1]
        part.batches = [batch for batch in part.batches if batch.last_offset < offset]
        if entries_too:
            part.entries = [entry for entry in part.entries if entry.offset < part.end_offset]

    # --- after a crash

    def rebuild(self, now_ms: int, parts: int) -> None:
        """Rebuild the index of the last segments from the log alone; the only time available is the current one."""
        for part in self.parts[-parts:]:
            part.entries = [TimeEntry(now_ms, part.base_offset)]
            if part is not self.parts[-1] and part.end_offset - 1 > part.base_offset:
                part.entries.append(TimeEntry(now_ms, part.end_offset - 1))
        self._last_append_ms = now_ms

    def copy_index(self, leader: Replica, parts: int) -> int:
        """Fetch the index of the last segments from the leader instead; return the number of entries."""
        theirs = {part.base_offset: part for part in leader.parts}
        count = 0
        for part in self.parts[-parts:]:
            part.entries = [entry for entry in theirs[part.base_offset].entries if entry.offset < part.end_offset]
            count += len(part.entries)
        self._last_append_ms = self.parts[-1].entries[-1].append_ms
        return count
