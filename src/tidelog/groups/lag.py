"""The formulas for a group's lag. The caller provides the facts: a client, a data folder's reader, or a broker.

| value | definition | unknown (None) if |
|---|---|---|
| lag | offsets from the group's position to the end that it may read, as in Kafka's tools | there is no committed offset |
| lag in time | now minus the next record's timestamp; 0 without a next record | that record has no timestamp |
| group's rate | offsets per second by which its commits advanced | fewer than two commits are known, or they are too close |
| topic's rate | offsets per second appended since the first such commit | the topic's records have no timestamps |
| time to the end | lag / (group's rate - topic's rate); *never* unless the group is faster | a rate is unknown |
| time until retention | see `Retention` | |

The **next record** is the first record at or after the committed offset that a consumer receives. Offsets removed by compaction,
control records and, with read_committed, aborted records are skipped. With read_committed the log ends at the first open
transaction. A record with a future timestamp has a negative age, which is reported unchanged.

The group's **position** is its committed offset, or the log start if that is higher: records below it are lost.
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
"""The shortest time span, in ms, from which a rate is computed."""


class NextRecord(NamedTuple):
    """A record's offset and timestamp (epoch ms, -1 for none)."""

    offset: int
    timestamp: int


class Searched(NamedTuple):
    """The result of reading part of a log: the next record, or the `position` at which to continue."""

    record: NextRecord | None
    position: int


def search(
    records: memoryview, position: int, end_offset: int, aborted: Sequence[tuple[int, int]] = (), *, path: str
) -> Searched:
    """Find the first record in `[position, end_offset)` that a consumer receives. `records` are whole batches, as in a fetch
    response.

    `aborted` are the fetch's aborted transactions (first offset, producer id); empty with read_uncommitted. Raises
    CorruptDataError.
    """
    headers = [header for header in iter_headers(records, 0, path) if header.last_offset >= position]
    for header, is_aborted in data_batches(headers, records, aborted, path):
        if not is_aborted:
            found = first_in(header, records[header.position : header.position + header.size], position, end_offset, path=path)
            if found is not None:
                return Searched(found, found.offset)
    return Searched(None, headers[-1].next_offset if headers else position)


def first_in(header: BatchHeader, batch: memoryview, position: int, end_offset: int, *, path: str) -> NextRecord | None:
    """Return a batch's first record in `[position, end_offset)`, None if there is none. Raises CorruptDataError."""
    for record in iter_records(header, batch, path=path, bounds=Bounds(None, None, position, end_offset)):
        return NextRecord(record.offset, record.timestamp)
    return None


class Commit(NamedTuple):
    """A committed offset and the time of the commit (epoch ms)."""

    offset: int
    time_ms: int


class GroupRate(NamedTuple):
    """Offsets per second by which a group has advanced since `since_ms`."""

    per_second: float
    since_ms: int


def group_rate(commits: Sequence[Commit], now_ms: int, window_ms: int) -> GroupRate | None:
    """Return a group's rate in a partition from its commits in the last `window_ms`, oldest first; None if there are too few.

    Without a commit in the window the rate is 0. A commit of a lower offset, as after a reset, restarts the count. The time span
    ends at the last commit, or now if the group has not committed for longer than usual.
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
    """Return the offsets per second by which a partition has grown since `since_ms`.

    `then` is the first record at or after that time, None if there is none; `log_start` is the first remaining record. If both
    are the same record, the partition is younger than `since_ms` or has lost older records. The time span then starts at that
    record.
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
    """Whether a group will reach the end of the log at the current rates."""

    AT_END = "at the end"
    IN = "in"
    NEVER = "never"
    UNKNOWN = "unknown"


class TimeToEnd(NamedTuple):
    """The time until a group reaches the end at the current rates. `time_ms` is None if it will not, or if a rate is unknown."""

    catch_up: CatchUp
    time_ms: int | None = None


def time_to_end(lag: int, group_per_second: float | None, topic_per_second: float | None) -> TimeToEnd:
    """Return the time until a group with that lag (offsets) reaches the end."""
    if lag == 0:
        return TimeToEnd(CatchUp.AT_END, 0)
    if group_per_second == 0:
        return TimeToEnd(CatchUp.NEVER)  # It does not advance, so the topic's rate does not matter.
    if group_per_second is None or topic_per_second is None:
        return TimeToEnd(CatchUp.UNKNOWN)
    gained = group_per_second - topic_per_second
    return TimeToEnd(CatchUp.IN, round(lag * 1000 / gained)) if gained > 0 else TimeToEnd(CatchUp.NEVER)


class Precision(enum.Enum):
    """How precisely it is known when retention deletes the first unread record."""

    EXACT = "exact"
    EARLIEST = "at the earliest"
    NEVER = "never"
    UNKNOWN = "unknown"
    NOTHING = "nothing unread"


class Retention(NamedTuple):
    """When retention deletes the first unread record, in epoch ms; the current time if the deletion is overdue."""

    precision: Precision
    goes_ms: int | None = None


NOTHING_UNREAD = Retention(Precision.NOTHING)
NEVER_TAKEN = Retention(Precision.NEVER)
UNKNOWN_RETENTION = Retention(Precision.UNKNOWN)


def retention_at_the_earliest(
    config: LogConfig, record: NextRecord | None, now_ms: int, *, bytes_behind: int | None, bytes_per_second: float | None
) -> Retention:
    """Return the earliest time at which retention may delete a record, for callers that do not know the record's segment.

    A segment is deleted by time when its largest timestamp, which is the record's or a later one, is old enough. It is deleted by
    size when at least retention.bytes follow it. At most `bytes_behind` follow the record; they grow by `bytes_per_second`.
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
    """One group's state in one partition at `now_ms`. Units: offsets, epoch ms, offsets per second. The module's docstring says
    when a value is None.
    """

    topic: str
    partition: int
    now_ms: int
    committed_offset: int | None
    """The committed offset. None if the group has none; auto.offset.reset then decides."""
    metadata: str = ""
    """The metadata committed with the offset."""
    delivered: int = 0
    """For a share group, whose start offset counts as its committed offset: the number of records after it that need no further
    delivery."""
    log_start_offset: int
    end_offset: int
    """The end of the records that the group may read: the high watermark; with read_committed the last stable offset."""
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
        """The offset at which the group continues, None without a committed offset."""
        return None if self.committed_offset is None else max(self.committed_offset, self.log_start_offset)

    @property
    def lost(self) -> int:
        """The number of offsets from the committed offset to the log start. Their records were deleted before the group
        committed past them.
        """
        return 0 if self.committed_offset is None else max(0, self.log_start_offset - self.committed_offset)

    @property
    def is_beyond_end(self) -> bool:
        """Whether the committed offset is above the log end, because the topic was recreated, or the log has lost records
        at its end.
        """
        return self.committed_offset is not None and self.committed_offset > self.high_watermark

    @property
    def lag(self) -> int | None:
        return None if self.position is None else max(0, self.end_offset - self.position - self.delivered)

    @property
    def lag_ms(self) -> int | None:
        """The age of the next record, negative for a future timestamp; 0 without a next record."""
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
        # Without a next record the group is at the end, even if the lag is above 0.
        return time_to_end(0 if self.next_record is None else lag, self.group_per_second, self.topic_per_second)
