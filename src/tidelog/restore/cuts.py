"""Plans a restore: which point of the backup, which topics, and where each partition begins and ends.

| asked for | the point |
|---|---|
| a point | that one |
| nothing | the newest |
| a time, in append order | the first point that was taken at or after it: it has everything up to then |
| a time, by the records' times | the newest: later points may have late records |

A topic that was deleted between two points is restored from the earlier one. A topic that was created between them is restored if
it has a record before the end.

A transaction that is open at a partition's end is committed if `__transaction_state`, cut at the same moment, says that its
commit was decided; then its records are restored in all partitions. Otherwise they are left out in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from glob import has_magic
from types import TracebackType
from typing import NamedTuple

from tidelog.backup.backup import Backup, open_backup
from tidelog.backup.manifest import Point, TopicManifest
from tidelog.backup.opening import point_address
from tidelog.errors import InvalidArgumentError, NotFoundError
from tidelog.model import INTERNAL_TOPICS, OFFSETS_TOPIC, READ_UNCOMMITTED, TRANSACTIONS_TOPIC, TopicPartition
from tidelog.near_names import near_topics
from tidelog.restore.moment import decided_commits
from tidelog.restore.request import APPEND, RestoreRequest
from tidelog.sources.bounds import TimeRange
from tidelog.sources.opening import open_source
from tidelog.sources.source import Source
from tidelog.times import format_time

INTERNAL = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
"""The internal topics that a restore reads."""

_SPLIT_BYTES = 64 << 20


class PartitionCut(NamedTuple):
    """What is restored of a partition: offsets `[start_offset, end_offset)` of the backup."""

    partition: int
    start_offset: int
    end_offset: int
    late_records: int
    """Records at or after `end_offset` that are older than the requested time. By time they are restored, in append order not."""
    committed: Mapping[int, int]
    """Transactions without their end here whose commit was decided: producer id to first offset."""
    left_out: Mapping[int, int]
    """The other transactions that are open at the end: producer id to first offset."""

    @property
    def size(self) -> int:
        """The number of offsets."""
        return max(0, self.end_offset - self.start_offset)


class TopicCut(NamedTuple):
    """A topic to restore."""

    manifest: TopicManifest
    name: str
    """In the target."""
    address: str
    """The point that it is restored from."""
    sequence: int
    partitions: tuple[PartitionCut, ...]

    @property
    def source(self) -> str:
        """Its name in the backup."""
        return self.manifest.name


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A restore that is ready to begin."""

    request: RestoreRequest
    backup_id: str
    point: Point
    address: str
    """The point's."""
    topics: tuple[TopicCut, ...]
    internal: tuple[TopicCut, ...]
    """`__consumer_offsets` and `__transaction_state` as of the moment, if the backup has them."""
    notes: tuple[str, ...]


def plan_restore(request: RestoreRequest) -> RestorePlan:
    """Plan a restore without writing anything.

    Raises:
        NotFoundError: no such backup or point, or no topic that fits.
        InvalidArgumentError: the backup ends before the requested time.
        CorruptDataError, StorageError
    """
    backup = open_backup(request.backup)
    before, point = _points(backup, request)
    notes: list[str] = []
    chosen = {name: (point, entry) for name, entry in backup.catalog(point).items()}
    if before is not None:
        ids = {entry.topic_id for _, entry in chosen.values()}
        for name, entry in backup.catalog(before).items():
            if entry.topic_id not in ids and name not in chosen:
                chosen[name] = before, entry
                notes.append(
                    f"{name}: deleted between points {before.sequence} and {point.sequence}; restored as of {before.sequence}"
                )
            elif entry.topic_id not in ids:
                chosen[name] = before, entry
                notes.append(f"{name}: created again after point {before.sequence}; restored as of that point")
    wanted = sorted(name for name in chosen if request.wants(name))
    _check_named(request, chosen)
    cuts = _Cuts(backup, request)
    known_before = set() if before is None else {entry.topic_id for entry in backup.catalog(before).values()}
    topics = []
    with cuts:
        for name in wanted:
            its_point, entry = chosen[name]
            cut = cuts.of(its_point, backup.topic(entry), request.name_of(name))
            is_new = before is not None and entry.topic_id not in known_before
            if is_new and all(one.size == 0 for one in cut.partitions):
                notes.append(f"{name}: created after the moment, left out")
                continue
            topics.append(cut)
        internal = tuple(
            cuts.of(point, backup.topic(chosen[name][1]), name)
            for name in INTERNAL
            if name in chosen and name not in {one.source for one in topics}
        )
    if not topics:
        raise NotFoundError("no topic of the backup fits", path=request.backup, found=", ".join(request.topics) or None)
    return RestorePlan(
        request,
        str(backup.head.backup_id),
        point,
        point_address(request.backup, point.sequence),
        tuple(topics),
        internal,
        tuple(notes),
    )


def _points(backup: Backup, request: RestoreRequest) -> tuple[Point | None, Point]:
    """Return the last point before the moment, if a topic may have been deleted since, and the point to restore from."""
    until_ms = request.until_ms
    if request.point is not None or until_ms is None:
        return None, backup.point(request.point)
    names = backup.points()
    later = [name for name in names if name.time_ms + 999 >= until_ms]  # A name has whole seconds.
    earlier = [name for name in names if name.time_ms < until_ms]
    points = (backup.read_point(name) for name in later)
    fitting = next((point for point in points if point.taken_ms >= until_ms), None)
    if fitting is None:
        if not names:
            return None, backup.point()  # Raises.
        newest = backup.read_point(names[-1])
        raise InvalidArgumentError(
            "the backup ends before this time: without --until everything is restored",
            path=request.backup,
            found=format_time(until_ms),
            expected=f"at most {format_time(newest.taken_ms)}, the time of point {newest.sequence}",
        )
    before = backup.read_point(earlier[-1]) if earlier and request.order == APPEND else None
    if before is not None and before.sequence >= fitting.sequence:
        before = None
    return before, fitting if request.order == APPEND else backup.read_point(names[-1])


def _check_named(request: RestoreRequest, chosen: Iterable[str]) -> None:
    """Raise NotFoundError for a topic that is named, and not in the backup."""
    known = list(chosen)
    for name in (*request.topics, *request.renames):
        if not has_magic(name) and name not in known:
            raise NotFoundError(f"no topic {name!r} in the backup{near_topics(name, known)}", path=request.backup)


class _Cuts:
    """Finds the ends of topics. The points that it reads stay open until it is closed."""

    def __init__(self, backup: Backup, request: RestoreRequest) -> None:
        self._backup = backup
        self._request = request
        self._opened = ExitStack()
        self._sources: dict[int, Source] = {}
        self._decided: dict[int, frozenset[int]] = {}

    def __enter__(self) -> _Cuts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._opened.close()

    def of(self, point: Point, topic: TopicManifest, name: str) -> TopicCut:
        """Return where a topic's partitions begin and end."""
        request, source = self._request, self._source(point)
        keys = [TopicPartition(topic.name, number) for number in sorted(topic.partitions)]
        manifests = {key: self._backup.partition(topic, key.partition) for key in keys}
        starts = {key: one.log_start_offset for key, one in manifests.items()}
        ends = {key: one.stable_offset for key, one in manifests.items()}
        late: dict[TopicPartition, int] = {}
        is_own = topic.name in INTERNAL_TOPICS  # Whose times are those of their appends.
        if request.from_ms is not None and request.order == APPEND and not is_own:
            starts = self._found(source, ends, request.from_ms)
        if request.until_ms is not None:
            cut = self._found(source, ends, request.until_ms)
            if not is_own:
                late = {key: self._late(source, key, cut[key], ends[key]) for key in keys if cut[key] < ends[key]}
            if request.order == APPEND or is_own:
                ends = cut
        cuts = []
        for key in keys:
            open_here = self._open(source, key, ends[key]) if ends[key] > starts[key] and not is_own else {}
            decided = self._commits(point) if open_here else frozenset()
            committed = {producer: first for producer, first in open_here.items() if producer in decided}
            left_out = {producer: first for producer, first in open_here.items() if producer not in committed}
            start = min(starts[key], ends[key])
            cuts.append(PartitionCut(key.partition, start, ends[key], late.get(key, 0), committed, left_out))
        return TopicCut(topic, name, point_address(self._request.backup, point.sequence), point.sequence, tuple(cuts))

    def _found(self, source: Source, ends: Mapping[TopicPartition, int], time_ms: int) -> dict[TopicPartition, int]:
        """Return the first offset at or after a time, the end where there is none."""
        found = source.find(dict.fromkeys(ends, time_ms))
        return {key: end if (one := found[key]) is None else min(end, one.offset) for key, end in ends.items()}

    def _source(self, point: Point) -> Source:
        if point.sequence not in self._sources:
            address = point_address(self._request.backup, point.sequence)
            self._sources[point.sequence] = self._opened.enter_context(open_source(address))
        return self._sources[point.sequence]

    def _late(self, source: Source, key: TopicPartition, start: int, end: int) -> int:
        """Count the records in `[start, end)` that are older than the moment."""
        time = TimeRange(self._request.from_ms, self._request.until_ms)
        splits = source.splits({key: (start, end)}, time, READ_UNCOMMITTED, split_bytes=_SPLIT_BYTES)
        return sum(batch.num_rows for split in splits for batch in split.read(["offset"]))

    def _open(self, source: Source, key: TopicPartition, offset: int) -> dict[int, int]:
        """Return the transactions that are open at an offset: producer id to first offset."""
        assert source.log_dir is not None
        with source.log_dir.log(*key) as log:
            return log.open_transactions(offset)

    def _commits(self, point: Point) -> frozenset[int]:
        """Return the producers whose last transaction was committed at the moment."""
        if point.sequence not in self._decided:
            log_dir = self._source(point).log_dir
            assert log_dir is not None
            self._decided[point.sequence] = decided_commits(log_dir, self._state_ends(point))
        return self._decided[point.sequence]

    def _state_ends(self, point: Point) -> dict[int, int]:
        """Return where the partitions of the transactions' own topic are cut; none if the backup lacks it."""
        entry = self._backup.catalog(point).get(TRANSACTIONS_TOPIC)
        if entry is None:
            return {}
        ends = {TopicPartition(TRANSACTIONS_TOPIC, one.partition): one.stable_offset for one in entry.partitions}
        if self._request.until_ms is not None:
            ends = self._found(self._source(point), ends, self._request.until_ms)
        return {key.partition: end for key, end in ends.items()}
