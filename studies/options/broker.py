"""A minimal broker for one partition, with the formats and rules of KIP-32's draft.

| rule | `TimeSource` | retention goes by | rolling goes by |
|---|---|---|---|
| before | FILE | the file's last modification | when the segment was created or opened |
| options 1, 2 | MESSAGE | LogAppendTime of the last message | LogAppendTime of the first message |
| option 3 | INDEX | the last entry of the segment's time index | the first entry |

Option 3's index has an entry (LogAppendTime, offset) for the first message of a segment, the first one of a minute, and the last
one of a segment, which is known when the next segment begins. `IndexCopy` defines how followers get the index:

| | a follower's entries | after a crash |
|---|---|---|
| FETCHED | the entries of messages in the response, as in the draft's FetchResponse | fetched from the leader |
| FETCHED_LATE | also entries that the leader has added later for messages that the follower already has | the same |
| OWN | its own, by its own clock when it fetches | rebuilt from the log, by the clock at that time |

It has no threads, flushing, high watermark or elections. A response never spans two segments, as in Kafka, and a follower appends
it as a whole. Truncation follows the draft's requirement 4.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from studies.options import fetch_response
from studies.options.fetch_response import INDEX_ENTRY_BYTES, IndexEntry
from studies.options.formats import Message, Option, assign, decode, decode_at, places
from studies.workload import MINUTE_MS
from tidelog.config import LogConfig
from tidelog.model import NO_TIMESTAMP
from tidelog.records.compression import Bytes
from tidelog.storage.partition.retention import SegmentFacts, due

FETCH_BYTES = 64 * 1024
"""The most bytes that a follower requests in one fetch."""

_INDEX_ENTRY = Struct(">qi")


class TimeSource(enum.Enum):
    """The source of the times for retention and rolling."""

    FILE = "file"
    MESSAGE = "message"
    INDEX = "index"


class IndexCopy(enum.Enum):
    """How followers get their time index with option 3."""

    FETCHED = "index fetched as drafted"
    FETCHED_LATE = "index fetched, late entries too"
    OWN = "index rebuilt locally"


class Fetched(NamedTuple):
    """A FetchResponse for one partition. For consumers `entries` is always empty."""

    data: bytes
    first_offset: int
    next_offset: int
    entries: tuple[IndexEntry, ...]


@dataclass
class Segment:
    """A segment's files, with the two times (ms) that the file system and the broker's memory hold for it."""

    base_offset: int
    created_ms: int
    modified_ms: int
    data: bytearray = field(default_factory=bytearray)
    starts: list[int] = field(default_factory=list)
    """Where each message begins. Messages are not compressed here, so the n-th has the offset base + n."""
    entries: list[IndexEntry] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.starts)

    def slice(self, first: int, last: int) -> bytes:
        """Return the messages of offsets `first` to `last` (exclusive)."""
        ends = [*self.starts, len(self.data)]
        return bytes(self.data[ends[first - self.base_offset] : ends[last - self.base_offset]])

    def index_file(self) -> bytes:
        """Return the time index in its file format."""
        return b"".join([_INDEX_ENTRY.pack(entry.append_ms, entry.offset - self.base_offset) for entry in self.entries])


class Broker:
    """One replica of a partition, leader or follower. `copy` applies to option 3 only."""

    def __init__(
        self,
        option: Option,
        *,
        segment_ms: int,
        segment_bytes: int,
        now_ms: int,
        copy: IndexCopy = IndexCopy.FETCHED_LATE,
    ) -> None:
        self.option = option
        self.segment_ms = segment_ms
        self.segment_bytes = segment_bytes
        self.copy = copy
        self.segments = [Segment(0, now_ms, now_ms)]
        self.last_append_ms = NO_TIMESTAMP
        """The latest LogAppendTime known here; a leader assigns none before it."""
        self.fetched_bytes = 0
        """Total bytes of the responses that this follower received."""
        self.fetched_index_bytes = 0
        """Bytes of index entries in those responses."""

    @property
    def source(self) -> TimeSource:
        if self.option.has_append_time:
            return TimeSource.MESSAGE
        return TimeSource.INDEX if self.option is Option.CREATE_TIME else TimeSource.FILE

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset

    @property
    def base_offsets(self) -> list[int]:
        return [segment.base_offset for segment in self.segments]

    # --- appending

    def append_as_leader(self, request: Bytes, now_ms: int) -> int:
        """Append a produce request at `now_ms` of this broker's clock; return its LogAppendTime."""
        append_ms = max(self.last_append_ms, now_ms)
        data = bytearray(request)
        assign(self.option, data, self.end_offset, append_ms)
        segment = self._segment_for(data, append_ms, now_ms, closes_index=True)
        first = segment.end_offset
        self._write(segment, data, now_ms)
        self._add_entry(segment, append_ms, first)
        self.last_append_ms = append_ms
        return append_ms

    def append_as_follower(self, fetched: Fetched, now_ms: int) -> None:
        """Append a leader's response unchanged, at `now_ms` of this broker's clock."""
        takes_entries = self.source is TimeSource.INDEX and self.copy is not IndexCopy.OWN
        if takes_entries:
            self._take_entries([entry for entry in fetched.entries if entry.offset < fetched.first_offset])
        if not fetched.data:
            return
        append_ms = self._append_time_of(fetched, now_ms)
        segment = self._segment_for(fetched.data, append_ms, now_ms, closes_index=not takes_entries)
        first = segment.end_offset
        self._write(segment, fetched.data, now_ms)
        if takes_entries:
            self._take_entries([entry for entry in fetched.entries if entry.offset >= fetched.first_offset])
        else:
            self._add_entry(segment, append_ms, first)
        self.last_append_ms = max(self.last_append_ms, self._last_time(segment, append_ms))

    def _append_time_of(self, fetched: Fetched, now_ms: int) -> int:
        """Return the append time of a response's first message if this follower knows it; rolling needs it."""
        if self.source is TimeSource.MESSAGE:
            return decode_at(self.option, fetched.data, *next(places(fetched.data))).append_ms
        if self.source is TimeSource.INDEX and self.copy is not IndexCopy.OWN:
            at_first = [entry.append_ms for entry in fetched.entries if entry.offset == fetched.first_offset]
            return at_first[0] if at_first else self.last_append_ms
        return now_ms

    def _last_time(self, segment: Segment, append_ms: int) -> int:
        return self._message_time(segment, -1) if self.source is TimeSource.MESSAGE else append_ms

    def _segment_for(self, data: Bytes, append_ms: int, now_ms: int, *, closes_index: bool) -> Segment:
        """Return the segment for `data`, a new one if the rules require a roll."""
        active = self.segments[-1]
        if not active.starts:
            return active
        is_full = len(active.data) + len(data) > self.segment_bytes
        moment_ms = now_ms if self.source is TimeSource.FILE else append_ms
        if not is_full and moment_ms - self.first_time(active) <= self.segment_ms:
            return active
        last = active.end_offset - 1
        if self.source is TimeSource.INDEX and closes_index and (not active.entries or active.entries[-1].offset < last):
            active.entries.append(IndexEntry(self.last_append_ms, last))
        self.segments.append(Segment(active.end_offset, now_ms, now_ms))
        return self.segments[-1]

    def _write(self, segment: Segment, data: Bytes, now_ms: int) -> None:
        base = len(segment.data)
        segment.starts += [base + start for start, _ in places(data)]
        segment.data += data
        segment.modified_ms = now_ms

    def _add_entry(self, segment: Segment, append_ms: int, offset: int) -> None:
        """Add an index entry for a message that is the first of its segment or of its minute."""
        if self.source is not TimeSource.INDEX:
            return
        if not segment.entries or append_ms // MINUTE_MS > segment.entries[-1].append_ms // MINUTE_MS:
            segment.entries.append(IndexEntry(append_ms, offset))

    def _take_entries(self, entries: Sequence[IndexEntry]) -> None:
        for entry in entries:
            segment = next(one for one in reversed(self.segments) if one.base_offset <= entry.offset)
            if not segment.entries or segment.entries[-1].offset < entry.offset:
                segment.entries.append(entry)

    # --- fetching

    def fetch(self, offset: int, *, follower: Broker | None = None) -> Fetched:
        """Return messages of one segment from `offset` on, up to `FETCH_BYTES`; only followers get index entries."""
        found = [segment for segment in self.segments if segment.base_offset <= offset < segment.end_offset]
        data, end = b"", offset
        if found:
            segment = found[0]
            limit = segment.starts[offset - segment.base_offset] + FETCH_BYTES
            end = offset + 1
            while end < segment.end_offset and (
                end - segment.base_offset + 1 >= len(segment.starts) or segment.starts[end - segment.base_offset + 1] <= limit
            ):
                end += 1
            data = segment.slice(offset, end)
        if follower is None or follower.copy is IndexCopy.OWN:
            return Fetched(data, offset, end, ())
        first = offset
        if follower.copy is IndexCopy.FETCHED_LATE:
            known = [segment.entries[-1].offset for segment in follower.segments if segment.entries]
            first = known[-1] + 1 if known else 0
        return Fetched(data, offset, end, tuple(entry for entry in self._entries() if first <= entry.offset < end))

    def replicate(self, follower: Broker, now_ms: int) -> None:
        """Fetch for a follower, with the draft's responses, until it has everything. `now_ms` is by the follower's clock."""
        while True:
            start = follower.end_offset
            answer = self.fetch(start, follower=follower)
            high_watermark = answer.next_offset
            sent = fetch_response.PartitionData("t", 0, 0, high_watermark, answer.data, answer.entries)
            response = fetch_response.encode(sent, start)
            got = fetch_response.decode(response, start)
            follower.fetched_bytes += len(response)
            follower.fetched_index_bytes += INDEX_ENTRY_BYTES * len(got.entries)
            follower.append_as_follower(Fetched(got.message_set, start, answer.next_offset, got.entries), now_ms)
            if not got.message_set:
                return

    def _entries(self) -> Iterator[IndexEntry]:
        for segment in self.segments:
            yield from segment.entries

    def read(self) -> list[Message]:
        """Return all messages as consumers see them."""
        return [message for segment in self.segments for message in decode(self.option, segment.data)]

    # --- crashes

    def crash(self, now_ms: int, *, first_lost: int = 0, leader: Broker | None = None) -> None:
        """Simulate a crash, and recover at `now_ms`: appended messages are kept, but state in memory is lost.

        The indexes of segments from offset `first_lost` on are lost, too. An incomplete end is truncated, which modifies the last
        segment's file. `leader` is the replica from which the index is fetched, if this replica fetches it.
        """
        for segment in self.segments:
            segment.created_ms = now_ms
            if self.source is not TimeSource.INDEX or segment.end_offset <= first_lost:
                continue
            if leader is not None and self.copy is not IndexCopy.OWN:
                wanted = range(segment.base_offset, segment.end_offset)
                segment.entries = [entry for entry in leader._entries() if entry.offset in wanted]
            elif segment.starts:
                # All messages get the same time, so only the first message, and the last one of a finished segment, have entries.
                last = segment.end_offset - 1
                segment.entries = [IndexEntry(now_ms, segment.base_offset)]
                if segment is not self.segments[-1] and last > segment.base_offset:
                    segment.entries.append(IndexEntry(now_ms, last))
        active = self.segments[-1]
        active.modified_ms = now_ms
        self.last_append_ms = NO_TIMESTAMP
        if active.starts and self.source is not TimeSource.FILE:
            self.last_append_ms = self.largest_timestamp(active)

    def truncate_to(self, offset: int) -> None:
        """Truncate the messages from `offset` on, with their index entries."""
        while len(self.segments) > 1 and self.segments[-1].base_offset >= offset:
            self.segments.pop()
        active = self.segments[-1]
        keep = max(0, offset - active.base_offset)
        if keep < len(active.starts):
            del active.data[active.starts[keep] :]
            del active.starts[keep:]
        active.entries = [entry for entry in active.entries if entry.offset < offset]

    # --- what the rules go by

    def first_time(self, segment: Segment) -> int:
        """Return the time from which rolling counts."""
        if self.source is TimeSource.MESSAGE:
            return self._message_time(segment, 0)
        if self.source is TimeSource.INDEX and segment.entries:
            return segment.entries[0].append_ms
        return segment.created_ms

    def largest_timestamp(self, segment: Segment) -> int:
        """Return the time from which retention counts."""
        if self.source is TimeSource.MESSAGE:
            return self._message_time(segment, -1)
        if self.source is TimeSource.INDEX and segment.entries:
            return segment.entries[-1].append_ms
        return segment.modified_ms

    def _message_time(self, segment: Segment, index: int) -> int:
        ends = [*segment.starts[1:2], len(segment.data)] if index == 0 else [len(segment.data)]
        return decode_at(self.option, segment.data, segment.starts[index], ends[0]).append_ms

    def deletion_times(self, retention_ms: int) -> dict[int, int]:
        """Return when each segment is deleted (ms), by base offset."""
        return deletion_times(
            [(segment.base_offset, segment.end_offset, len(segment.data)) for segment in self.segments],
            [self.largest_timestamp(segment) for segment in self.segments],
            retention_ms,
        )


def deletion_times(segments: Sequence[tuple[int, int, int]], largest_ms: Sequence[int], retention_ms: int) -> dict[int, int]:
    """Return when the engine's rule (`retention.due`) deletes each segment, by base offset, if it is checked every millisecond.

    `segments` are (base offset, end offset, bytes). `largest_ms` are their largest timestamps as retention sees them.
    """
    config = LogConfig(retention_ms=retention_ms)
    facts = [SegmentFacts(*segment, is_last=index == len(segments) - 1) for index, segment in enumerate(segments)]
    by_base = {segment[0]: largest for segment, largest in zip(segments, largest_ms, strict=True)}
    gone: dict[int, int] = {}
    # The result can only change in the millisecond after a segment has reached its age.
    for now_ms in sorted({largest + retention_ms + 1 for largest in largest_ms}):
        going = due(
            facts,
            config,
            now_ms=now_ms,
            high_watermark=facts[-1].end_offset,
            log_start_offset=0,
            largest_timestamp=by_base.__getitem__,
        )
        for one in going:
            gone.setdefault(one.facts.base_offset, now_ms)
    return gone
