"""The lag of each group, for metrics: computed from this broker's own logs by the rules of `tidelog.groups.lag`.

The metrics thread computes the lag. It reads the broker's state a few partitions at a time, through `call`, which runs a function
on the event loop's thread and returns the function's result.

The next record is the first one at or after the group's committed offset.

| value | how it is obtained | cost |
|---|---|---|
| committed offsets, log ends | from memory, `AT_ONCE` partitions per call | a microsecond each |
| the next record | cached until the group commits past it; otherwise read, `READS_AT_ONCE` per call | a small read each |
| bytes not in the page cache | read on the metrics thread first, see `tidelog.formats.non_blocking_read` | |
| rates | from the scrapes of the last ten minutes | `MAX_SAMPLES` samples per partition |

All groups are treated as read_committed. For compacted topics nothing is kept between scrapes, because the next record may have
been removed. At most `MAX_PARTITIONS` partitions are checked, group by group; a metric reports how many are left out.
"""

from __future__ import annotations

import bisect
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from tidelog.broker.node import Node
from tidelog.errors import TidelogError
from tidelog.formats.non_blocking_read import NotCachedError, non_blocking
from tidelog.groups.lag import (
    MIN_SPAN_MS,
    NEVER_TAKEN,
    NOTHING_UNREAD,
    UNKNOWN_RETENTION,
    NextRecord,
    PartitionLag,
    Precision,
    Retention,
    search,
)
from tidelog.model import TopicPartition
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation

T = TypeVar("T")

MAX_PARTITIONS = 10_000
AT_ONCE = 500
READS_AT_ONCE = 16
READ_BYTES = 16 * 1024
MAX_READS = 64
"""Reads per partition and scrape. If they find no record, the next scrape continues there."""

WINDOW_MS = 10 * 60 * 1000
MAX_SAMPLES = 40
_SAMPLE_MS = WINDOW_MS // MAX_SAMPLES


class OnLoop(Protocol):
    """Runs a function on the event loop's thread, waits for it, and returns its result."""

    def __call__(self, work: Callable[[], T], /) -> T: ...


class GroupPartition(NamedTuple):
    """A partition for which a group has committed an offset."""

    group: str
    topic: str
    partition: int


class Scraped(NamedTuple):
    """The values for all groups in one scrape."""

    members: dict[str, int]
    lags: list[tuple[str, PartitionLag]]
    left_out: int
    """The number of partitions left out because of `MAX_PARTITIONS`."""


class _Facts(NamedTuple):
    """The values for a group's partition, as read on the event loop's thread. Use `log` only on that thread."""

    key: GroupPartition
    committed_offset: int
    log: PartitionLog
    log_start_offset: int
    end_offset: int
    high_watermark: int
    may_lose_records: bool


class _Known(NamedTuple):
    """The result of a search from `position`: the next record, or None if `[position, end_offset)` has no record."""

    log: PartitionLog
    position: int
    end_offset: int
    record: NextRecord | None


class _Sample(NamedTuple):
    time_ms: int
    committed_offset: int
    end_offset: int


class GroupLags:
    """Computes the lag of all groups for each scrape. `call` runs a function on the event loop's thread; everything else runs on
    the metrics thread, one scrape at a time.
    """

    def __init__(self, node: Node, call: OnLoop) -> None:
        self._node = node
        self._call = call
        self._lock = threading.Lock()
        self._known: dict[GroupPartition, _Known] = {}
        self._samples: dict[GroupPartition, deque[_Sample]] = {}

    def scrape(self) -> Scraped:
        """Return the current lag of all groups."""
        with self._lock:
            now_ms = self._call(self._node.clock.now_ms)
            members, facts, left_out = self._gather()
            self._search([one for one in facts if not self._is_known(one)])
            segments = self._segments(facts)
            lags = [(one.key.group, self._lag(one, segments[one.log], now_ms)) for one in facts]
            keys = {one.key for one in facts}
            self._known = {key: known for key, known in self._known.items() if key in keys}
            self._samples = {key: samples for key, samples in self._samples.items() if key in keys}
            return Scraped(members, lags, left_out)

    # --- what groups have committed

    def _gather(self) -> tuple[dict[str, int], list[_Facts], int]:
        members: dict[str, int] = {}
        facts: list[_Facts] = []
        left_out = 0
        names = self._call(lambda: [group.group_id for group in self._node.groups.all()])
        waiting = self._each(names, members)
        while True:
            more, found = self._call(partial(_some, waiting))
            room = MAX_PARTITIONS - len(facts)
            facts += found[:room]
            left_out += max(0, len(found) - room)
            if not more:
                return members, facts, left_out

    def _each(self, names: list[str], members: dict[str, int]) -> Iterator[_Facts | None]:
        """Yield the values for each group's partitions; yield None between groups and for partitions without a log. Runs on the
        event loop's thread.
        """
        groups, logs = self._node.groups, self._node.manager.logs
        for name in names:
            yield None
            group = groups.get(name)
            if group is None:
                continue
            members[name] = group.member_count
            committed_in = {topic: list(partitions.items()) for topic, partitions in group.offsets.by_topic().items()}
            for topic, partitions in committed_in.items():
                for partition, committed in partitions:
                    log = logs.get(TopicPartition(topic, partition))
                    if log is None:
                        yield None
                        continue
                    marks = log.watermarks
                    yield _Facts(
                        GroupPartition(name, topic, partition),
                        committed.offset,
                        log,
                        marks.log_start_offset,
                        marks.last_stable_offset,
                        marks.high_watermark,
                        log.config.is_compacted,
                    )

    # --- the next record

    def _is_known(self, facts: _Facts) -> bool:
        known = self._known.get(facts.key)
        if known is None or known.log is not facts.log or facts.may_lose_records:
            return False
        position = max(facts.committed_offset, facts.log_start_offset)
        if position < known.position:
            return False
        return known.end_offset == facts.end_offset if known.record is None else position <= known.record.offset

    def _search(self, wanted: list[_Facts]) -> None:
        for at in range(0, len(wanted), READS_AT_ONCE):
            pieces = [_Search(one) for one in wanted[at : at + READS_AT_ONCE]]
            for one in pieces:
                self._known.pop(one.facts.key, None)
            for _ in range(MAX_READS):
                for missing in self._call(partial(_steps, pieces)):
                    missing.prefetch()
                for one in pieces:
                    if one.result is not None:
                        self._known[one.facts.key] = one.result
                pieces = [one for one in pieces if not one.is_done]
                if not pieces:
                    break

    # --- what is reported

    def _segments(self, facts: list[_Facts]) -> dict[PartitionLog, _Segments | None]:
        logs = list({one.log: None for one in facts})
        found: dict[PartitionLog, _Segments | None] = {}
        for at in range(0, len(logs), READS_AT_ONCE):
            found.update(self._call(partial(_all_segments, logs[at : at + READS_AT_ONCE])))
        return found

    def _lag(self, facts: _Facts, segments: _Segments | None, now_ms: int) -> PartitionLag:
        known = self._known.get(facts.key)
        group_rate, topic_rate = self._rates(facts, now_ms)
        lag = PartitionLag(
            topic=facts.key.topic,
            partition=facts.key.partition,
            now_ms=now_ms,
            committed_offset=facts.committed_offset,
            log_start_offset=facts.log_start_offset,
            end_offset=facts.end_offset,
            high_watermark=facts.high_watermark,
            # An unfinished search does not prove that there is no record.
            next_record=NextRecord(facts.committed_offset, -1) if known is None else known.record,
            group_per_second=group_rate,
            topic_per_second=topic_rate,
        )
        if known is None or segments is None:
            return lag
        if known.record is None:
            return replace(lag, retention=NOTHING_UNREAD)
        offsets = facts.high_watermark - facts.log_start_offset
        bytes_per_second = None if topic_rate is None or offsets < 1 else topic_rate * segments.size_bytes / offsets
        return replace(lag, retention=segments.retention_of(known.record, now_ms, bytes_per_second))

    def _rates(self, facts: _Facts, now_ms: int) -> tuple[float | None, float | None]:
        samples = self._samples.setdefault(facts.key, deque())
        now = _Sample(now_ms, facts.committed_offset, facts.high_watermark)
        if samples and (now_ms < samples[-1].time_ms or now.committed_offset < samples[-1].committed_offset):
            samples.clear()  # The clock or the group's offsets were set back, so earlier samples are useless.
        while len(samples) > 1 and now_ms - samples[1].time_ms >= WINDOW_MS:
            samples.popleft()
        if not samples or now_ms - samples[-1].time_ms >= _SAMPLE_MS:
            samples.append(now)
        first = samples[0]
        span_ms = now_ms - first.time_ms
        if span_ms < MIN_SPAN_MS:
            return None, None
        return (
            (now.committed_offset - first.committed_offset) * 1000 / span_ms,
            max(0, now.end_offset - first.end_offset) * 1000 / span_ms,
        )


def _some(waiting: Iterator[_Facts | None]) -> tuple[bool, list[_Facts]]:
    """Return whether there may be more values, and the next ones from the iterator. Runs on the event loop's thread."""
    taken = list(islice(waiting, AT_ONCE))
    return len(taken) == AT_ONCE, [one for one in taken if one is not None]


class _Search:
    """The search for one partition's next record. Each step runs on the event loop's thread."""

    def __init__(self, facts: _Facts) -> None:
        self.facts = facts
        self.is_done = False
        self.result: _Known | None = None
        self._start = self._at = max(facts.committed_offset, facts.log_start_offset)

    def step(self) -> NotCachedError | None:
        """Read the next part of the log. If it is not in memory, return the error that says which bytes to read."""
        facts = self.facts
        if self._at >= facts.end_offset:
            self._end(None)
            return None
        try:
            with non_blocking():
                read = facts.log.read(self._at, READ_BYTES, FetchIsolation.TXN_COMMITTED)
            aborted = [(txn.first_offset, txn.producer_id) for txn in read.aborted_transactions or ()]
            found, position = search(read.data, self._at, facts.end_offset, aborted, path=str(facts.log.directory))
        except NotCachedError as missing:
            return missing
        except TidelogError:
            self.is_done = True  # The log was deleted meanwhile, or is damaged, which is reported elsewhere.
            return None
        if found is not None or position <= self._at:
            self._end(found)
        else:
            self._at = position
        return None

    def _end(self, record: NextRecord | None) -> None:
        self.is_done = True
        self.result = _Known(self.facts.log, self._start, self.facts.end_offset, record)


def _steps(pieces: Iterable[_Search]) -> list[NotCachedError]:
    return [missing for one in pieces if (missing := one.step()) is not None]


class _Segments(NamedTuple):
    """The data on which retention depends: for each segment its base offset, the largest timestamp in the log up to its end, and
    the number of bytes after it.
    """

    bases: list[int]
    largest: list[int]
    bytes_behind: list[int]
    size_bytes: int
    is_deleted: bool
    retention_ms: int
    retention_bytes: int

    def retention_of(self, record: NextRecord, now_ms: int, bytes_per_second: float | None) -> Retention:
        """Return when retention will delete the record's segment. For retention by size, assume that the log continues to
        grow at its current rate.
        """
        at = bisect.bisect_right(self.bases, record.offset) - 1
        if not self.is_deleted:
            return NEVER_TAKEN
        if at < 0:
            return UNKNOWN_RETENTION
        found: list[Retention] = []
        if self.retention_ms >= 0:
            found.append(Retention(Precision.EXACT, max(now_ms, self.largest[at] + self.retention_ms + 1)))
        if self.retention_bytes >= 0:
            room = self.retention_bytes - self.bytes_behind[at]
            if room <= 0:
                return Retention(Precision.EXACT, now_ms)
            if bytes_per_second is None:
                return found[0] if found else UNKNOWN_RETENTION
            if bytes_per_second > 0:
                found.append(Retention(Precision.EARLIEST, now_ms + round(room * 1000 / bytes_per_second)))
        return min(found, key=lambda one: one.goes_ms or 0, default=NEVER_TAKEN)


def _all_segments(logs: Iterable[PartitionLog]) -> dict[PartitionLog, _Segments | None]:
    """Return the segments of each log, or None for a log whose segments cannot be read. Runs on the event loop's thread."""
    return {log: _segments(log) for log in logs}


def _segments(log: PartitionLog) -> _Segments | None:
    config = log.config
    bases: list[int] = []
    largest: list[int] = []
    ends: list[int] = []
    total = 0
    try:
        for segment in log.segments.values():
            bases.append(segment.base_offset)
            largest.append(max(segment.largest_timestamp, largest[-1] if largest else -1))
            total += segment.size_bytes
            ends.append(total)
    except TidelogError:
        return None
    behind = [total - end for end in ends]
    return _Segments(bases, largest, behind, total, config.is_deleted, config.retention_ms, config.retention_bytes)
