"""How far behind a group is: formulas alone, for callers that have the facts: a client, a data folder's reader, a broker.

| | is | unknown (None) |
|---|---|---|
| lag | offsets from the group's position to the end of its reading, as Kafka's tools count | without a committed offset |
| lag in time | now less the timestamp of the next record; 0 where there is none | that record has no timestamp |
| group's rate | offsets that it moved on by, a second | fewer than two commits are known, or they are too close |
| topic's rate | offsets that came, a second, since the first of those commits | the topic's records have no timestamps |
| time to the end | lag / (group's rate - topic's rate); *never* unless the group is the faster one | one of the rates is |
| time until retention | see `Retention` | |

The **next record** is the first one at or after the committed offset that a consumer is handed: offsets that a compaction left
empty, control records and, with read_committed, aborted records are skipped; the first open transaction ends the reading.
A record of the future has a negative age, which is reported as it is.

The group's **position** is its committed offset, but not below the log start: what lies below is lost, whatever the group does.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.config import LogConfig
from tidelog.model import TopicPartition
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.markers import data_batches
from tidelog.records.records import Bounds, iter_records

MIN_SPAN_MS = 1_000
"""A shorter time says nothing about a rate."""


class NextRecord(NamedTuple):
    """A record's offset and timestamp (epoch ms, -1 for none)."""

    offset: int
    timestamp: int


class Searched(NamedTuple):
    """The result of reading a piece of a log: the next record, or else the `position` to continue at."""

    record: NextRecord | None
    position: int


def search(
    records: memoryview, position: int, end_offset: int, aborted: Sequence[tuple[int, int]] = (), *, path: str
) -> Searched:
    """Look for the first record in `[position, end_offset)` that a consumer is handed, in whole batches as a fetch returns them.

    `aborted` are the fetch's aborted transactions (first offset, producer id); none of read_uncommitted. Raises CorruptDataError.
    """
    headers = [header for header in iter_headers(records, 0, path) if header.last_offset >= position]
    for header, is_aborted in data_batches(headers, records, aborted, path):
        if not is_aborted:
            found = first_in(header, records[header.position : header.position + header.size], position, end_offset, path=path)
            if found is not None:
                return Searched(found, found.offset)
    return Searched(None, headers[-1].next_offset if headers else position)


def first_in(header: BatchHeader, batch: memoryview, position: int, end_offset: int, *, path: str) -> NextRecord | None:
    """Return the first record of a batch in `[position, end_offset)`, None if it holds none there. Raises CorruptDataError."""
    for record in iter_records(header, batch, path=path, bounds=Bounds(None, None, position, end_offset)):
        return NextRecord(record.offset, record.timestamp)
    return None


class Commit(NamedTuple):
    """An offset that was committed, and when (epoch ms)."""

    offset: int
    time_ms: int


class GroupRate(NamedTuple):
    """Offsets a second that a group moved on by since `since_ms`."""

    per_second: float
    since_ms: int


def group_rate(commits: Sequence[Commit], now_ms: int, window_ms: int) -> GroupRate | None:
    """Return a group's rate in a partition by its commits of the last `window_ms`, oldest first; None if they say too little.

    Without a commit in the window the group stood still. A commit that went back, as after a reset, starts over. Time counts up
    to the last commit while the group is alive, up to now if it has been silent for longer than it is used to.
    """
    if not commits:
        return GroupRate(0.0, now_ms - window_ms)
    first = len(commits) - 1
    while first and commits[first - 1].offset <= commits[first].offset:
        first -= 1
    known = commits[first:]
    start, last = known[0], known[-1]
    if len(known) < 2:
        return None
    usual_ms = (last.time_ms - start.time_ms) / (len(known) - 1)
    until_ms = now_ms if now_ms - last.time_ms > 2 * usual_ms else last.time_ms
    if until_ms - start.time_ms < MIN_SPAN_MS:
        return None
    return GroupRate((last.offset - start.offset) * 1000 / (until_ms - start.time_ms), start.time_ms)


def topic_rate(
    log_start: NextRecord | None, then: NextRecord | None, end_offset: int, since_ms: int, now_ms: int
) -> float | None:
    """Return how many offsets a second a partition grew by since `since_ms`.

    `then` is the first record at or after that time, None if there is none; `log_start` is the first record that is left. Where
    both are one, the partition is younger than that, or lost what was older: time counts from that record on.
    """
    if then is None:
        return 0.0
    if then.timestamp < 0:
        return None
    begin_ms = max(since_ms, then.timestamp) if log_start is not None and log_start.offset == then.offset else since_ms
    if now_ms - begin_ms < MIN_SPAN_MS:
        return None
    return max(0, end_offset - then.offset) * 1000 / (now_ms - begin_ms)


class CatchUp(enum.Enum):
    """Whether a group reaches the end of the log."""

    AT_END = "at the end"
    IN = "in"
    NEVER = "never"
    UNKNOWN = "unknown"


class TimeToEnd(NamedTuple):
    """How long it takes a group to reach the end, if everything continues as it did; `time_ms` only if it does."""

    catch_up: CatchUp
    time_ms: int | None = None


def time_to_end(lag: int, group_per_second: float | None, topic_per_second: float | None) -> TimeToEnd:
    """Return how long a group with that lag (offsets) takes to reach the end."""
    if lag == 0:
        return TimeToEnd(CatchUp.AT_END, 0)
    if group_per_second == 0:
        return TimeToEnd(CatchUp.NEVER)  # Whatever the topic does.
    if group_per_second is None or topic_per_second is None:
        return TimeToEnd(CatchUp.UNKNOWN)
    gained = group_per_second - topic_per_second
    return TimeToEnd(CatchUp.IN, round(lag * 1000 / gained)) if gained > 0 else TimeToEnd(CatchUp.NEVER)


class Precision(enum.Enum):
    """When retention deletes the first unread record, as far as known."""

    EXACT = "exact"
    EARLIEST = "at the earliest"
    NEVER = "never"
    UNKNOWN = "unknown"
    NOTHING = "nothing unread"


class Retention(NamedTuple):
    """When retention takes the first unread record, epoch ms; the present for what is due already."""

    precision: Precision
    goes_ms: int | None = None


NOTHING_UNREAD = Retention(Precision.NOTHING)
NEVER_TAKEN = Retention(Precision.NEVER)
UNKNOWN_RETENTION = Retention(Precision.UNKNOWN)


def retention_at_the_earliest(
    config: LogConfig, record: NextRecord | None, now_ms: int, *, bytes_behind: int | None, bytes_per_second: float | None
) -> Retention:
    """Return when retention may take a record, by what can be known from outside: which segment it lies in cannot.

    A segment goes by time when its largest timestamp is old enough, which is the record's or a later one; by size when what lies
    after it is at least retention.bytes, which is at most `bytes_behind` the record, and grows by `bytes_per_second`.
    """
    if record is None:
        return NOTHING_UNREAD
    if not config.is_deleted:
        return NEVER_TAKEN
    found: list[int] = []
    is_known = True
    if config.retention_ms >= 0:
        if record.timestamp < 0:
            is_known = False
        else:
            found.append(max(now_ms, record.timestamp + config.retention_ms + 1))
    if config.retention_bytes >= 0:
        if bytes_behind is None:
            is_known = False
        elif bytes_behind >= config.retention_bytes:
            found.append(now_ms)
        elif bytes_per_second is None:
            is_known = False
        elif bytes_per_second > 0:
            found.append(now_ms + round((config.retention_bytes - bytes_behind) * 1000 / bytes_per_second))
    if found and (is_known or min(found) <= now_ms):
        return Retention(Precision.EARLIEST, min(found))
    return NEVER_TAKEN if is_known else UNKNOWN_RETENTION


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One group's state in one partition at `now_ms`. Offsets, epoch ms, and offsets a second; None: see the module."""

    topic: str
    partition: int
    now_ms: int
    committed_offset: int | None
    """None if the group has none: what it will be given is its own decision."""
    metadata: str = ""
    """The metadata committed with it."""
    delivered: int = 0
    """Of a share group: records after its start offset, which stands for the committed one, that need no delivery any more."""
    log_start_offset: int
    end_offset: int
    """Where the group's reading ends: the high watermark; with read_committed the last stable offset."""
    high_watermark: int
    next_record: NextRecord | None = None
    group_per_second: float | None = None
    topic_per_second: float | None = None
    retention: Retention = UNKNOWN_RETENTION

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def position(self) -> int | None:
        """Where the group continues."""
        return None if self.committed_offset is None else max(self.committed_offset, self.log_start_offset)

    @property
    def lost(self) -> int:
        """Offsets between the committed one and the log start: deleted before they were read."""
        return 0 if self.committed_offset is None else max(0, self.log_start_offset - self.committed_offset)

    @property
    def is_beyond_end(self) -> bool:
        """Whether what was committed lies after the log: another log had that name, or it lost its end."""
        return self.committed_offset is not None and self.committed_offset > self.high_watermark

    @property
    def lag(self) -> int | None:
        return None if self.position is None else max(0, self.end_offset - self.position - self.delivered)

    @property
    def lag_ms(self) -> int | None:
        """Age of the next record, negative if it is of the future; 0 without one."""
        if self.position is None:
            return None
        if self.next_record is None:
            return 0
        return None if self.next_record.timestamp < 0 else self.now_ms - self.next_record.timestamp

    @property
    def time_to_end(self) -> TimeToEnd:
        lag = self.lag
        if lag is None:
            return TimeToEnd(CatchUp.UNKNOWN)
        # Offsets without a record for the group are no way to go.
        return time_to_end(0 if self.next_record is None else lag, self.group_per_second, self.topic_per_second)
