"""Plans a restore: which point of the backup, which topics, and where each partition begins and ends.

| request | point |
|---|---|
| a point | that one |
| nothing | the newest |
| a time, in append order | the first point at or after it, which contains everything before it |
| a time, by timestamps | the newest, because later points may have late records |

A topic that was deleted between two points is restored from the earlier point. If a topic with the same name was created
later, the newer topic is restored instead if it has a record before the end. A topic that was created between two points is
restored if it has a record before the end.

A transaction that is open at a partition's end counts as committed if `__transaction_state`, cut at the same moment, holds the
decision to commit it. Its records are then restored in all partitions, otherwise in none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from glob import has_magic
from typing import NamedTuple

from tidelog.backup.backup import Backup, open_backup
from tidelog.backup.manifest import Point, TopicEntry, TopicManifest
from tidelog.backup.opening import point_address
from tidelog.backup.verify import refuse_damaged
from tidelog.copying.spreading import Spread
from tidelog.errors import CorruptDataError, InvalidArgumentError, NotFoundError
from tidelog.model import INTERNAL_TOPICS, OFFSETS_TOPIC, READ_COMMITTED, READ_UNCOMMITTED, TRANSACTIONS_TOPIC, TopicPartition
from tidelog.near_names import did_you_mean, near_topics
from tidelog.restore.moment import Positions, decided_commits, positions_at
from tidelog.restore.points import Points
from tidelog.restore.request import APPEND, BY_TIME, RestoreRequest
from tidelog.restore.result import RestoredPartition
from tidelog.sources.bounds import TimeRange
from tidelog.sources.opening import kind_of
from tidelog.sources.scan_plan import ALL_TIMES
from tidelog.sources.source import Source
from tidelog.sources.split import Split
from tidelog.times import format_time

INTERNAL = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
"""The internal topics that a restore reads."""

SPLIT_BYTES = 64 << 20


class PartitionCut(NamedTuple):
    """The part of a partition to restore: offsets `[start_offset, end_offset)` of the backup."""

    partition: int
    start_offset: int
    end_offset: int
    late_records: int
    """The number of records at or after `end_offset` that are older than the requested time. The order `time` restores them, the
    order `append` does not.
    """
    committed: Mapping[int, int]
    """Transactions that have no marker before the end, but whose commit was decided: producer id to first offset."""
    left_out: Mapping[int, int]
    """All other transactions that are open at the end: producer id to first offset."""

    @property
    def size(self) -> int:
        """The number of offsets."""
        return max(0, self.end_offset - self.start_offset)


class TopicCut(NamedTuple):
    """A topic to restore."""

    manifest: TopicManifest
    entry: TopicEntry
    name: str
    """The topic's name in the target."""
    address: str
    """The address of the point from which the topic is restored."""
    sequence: int
    partitions: tuple[PartitionCut, ...]
    settings: Mapping[str, str]
    """The topic's settings in the backup, changed as requested."""
    spread: Spread | None = None
    """How records are spread over the new partitions; None if the number of partitions stays the same."""

    @property
    def source(self) -> str:
        """The topic's name in the backup."""
        return self.manifest.name

    def result(self, cut: PartitionCut, end_offset: int | None, records: int | None, size_bytes: int) -> RestoredPartition:
        """Return a partition's result: its end in the target, and the number of records written."""
        return RestoredPartition(
            TopicPartition(self.source, cut.partition),
            TopicPartition(self.name, cut.partition),
            cut.start_offset,
            end_offset,
            records,
            size_bytes,
            cut.late_records,
            len(cut.left_out),
        )

    @property
    def partition_count(self) -> int:
        """The number of partitions in the target. Partitions that the backup could not read are empty in the target."""
        return self.partitions[-1].partition + 1 if self.spread is None else self.spread.partitions

    @property
    def targets(self) -> list[TopicPartition]:
        """The partitions in the target to which records are written."""
        numbers = [cut.partition for cut in self.partitions] if self.spread is None else range(self.spread.partitions)
        return [TopicPartition(self.name, number) for number in numbers]


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A restore that is ready to begin."""

    request: RestoreRequest
    backup_id: str
    point: Point
    topics: tuple[TopicCut, ...]
    internal: tuple[TopicCut, ...]
    """`__consumer_offsets` and `__transaction_state` as of the requested time, if the backup has them."""
    notes: tuple[str, ...]

    @property
    def identity(self) -> dict[str, object]:
        """The values that identify the restore. A later run continues an interrupted restore only if all its values are equal."""
        request = self.request
        return {
            "backup": self.backup_id,
            "point": self.point.sequence,
            "until_ms": request.until_ms,
            "from_ms": request.from_ms,
            "order": request.order,
            "topics": {topic.source: topic.name for topic in self.topics},
            **({"partitions": dict(request.partitions), "partitioner": request.partitioner} if request.partitions else {}),
        }

    @property
    def sequences(self) -> set[int]:
        """The points from which topics are restored."""
        return {self.point.sequence, *(topic.sequence for topic in self.topics)}

    def splits_of(self, source: Source, topic: TopicCut, cut: PartitionCut) -> list[Split]:
        """Return splits that read the restored part of a partition as a consumer would. `source` is the topic's point."""
        if not cut.size:
            return []
        request = self.request
        time = TimeRange(request.from_ms, request.until_ms) if request.order == BY_TIME else ALL_TIMES
        ranges = {TopicPartition(topic.source, cut.partition): (cut.start_offset, cut.end_offset)}
        splits = source.splits(ranges, time, READ_COMMITTED, split_bytes=SPLIT_BYTES)
        return [split.without_transactions(cut.left_out) for split in splits] if cut.left_out else splits


def plan_restore(request: RestoreRequest) -> RestorePlan:
    """Plan a restore without writing anything.

    Raises:
        NotFoundError: no such backup, point or group, or no matching topic.
        InvalidArgumentError: the backup ends before the requested time, or begins after it; two topics would get the same name;
            the target is a bucket.
        CorruptDataError, StorageError
    """
    if not kind_of(request.target).is_cluster:
        _ = request.folder  # Raises for a target that is not a local folder.
    backup = open_backup(request.backup)
    before, point = _points(backup, request)
    notes = [f"point {point.sequence}: {text}" for text in point.incomplete]
    near = [before] if before is not None else _points_around(backup, request, point)
    if before is None:
        notes += _deleted_before(request, point, backup)
    with backup.naming_expiry(*(one.sequence for one in (*near, point))):
        catalog = backup.catalog(point)
        older = {} if before is None else backup.catalog(before)
        earlier = [(one.sequence, backup.catalog(one)) for one in near]
    _check_named(request, {**older, **catalog})
    topics: list[TopicCut] = []
    with Points() as points:
        cuts = _Cuts(backup, request, points)
        for name in sorted(filter(request.wants, {**older, **catalog})):
            new, old = catalog.get(name), older.get(name)
            cut = None if new is None else cuts.of(point, new, request.name_of(name))
            is_other = old is not None and (new is None or old.topic_id != new.topic_id)
            is_empty = cut is None or all(one.size == 0 for one in cut.partitions)
            if before is not None and old is not None and is_other and is_empty:
                cut = cuts.of(before, old, request.name_of(name))
                if new is None:
                    between = f"between points {before.sequence} and {point.sequence}"
                    notes.append(f"{name}: deleted {between}; restored as of {before.sequence}")
            elif before is not None and old is None and is_empty:
                notes.append(f"{name}: not restored, because it was created after the requested time")
                continue
            if cut is None or not cut.partitions:
                notes.append(f"{name}: not restored, because none of its partitions could be backed up")
                continue
            topics.append(cut)
            notes += _created_again(cut, new, earlier, point)
            lacking = sorted(set(range(cut.partitions[-1].partition)) - {one.partition for one in cut.partitions})
            what = "the partition will be empty" if cut.spread is None else "its records are left out"
            notes += [f"{name}-{number}: not in the backup, {what}" for number in lacking]
        here = {one.source for one in topics}
        internal = tuple(cuts.of(point, catalog[name], name) for name in INTERNAL if name in catalog and name not in here)
        _check_groups(request, points, (*topics, *internal))
    if not topics:
        raise NotFoundError(
            "no topic in the backup matches the requested names", path=request.backup, found=", ".join(request.topics) or None
        )
    _check_not_empty(request, topics)
    return RestorePlan(
        request,
        str(backup.head.backup_id),
        point,
        tuple(topics),
        internal,
        tuple(notes),
    )


def _points(backup: Backup, request: RestoreRequest) -> tuple[Point | None, Point]:
    """Return two points. The second is the point to restore from. The first is the last point before the requested time, from
    which topics that were deleted afterwards are restored; None if no such point exists or the request excludes it.
    """
    until_ms = request.until_ms
    if request.point is not None or until_ms is None:
        chosen = backup.point(request.point)
        if until_ms is not None and chosen.taken_ms < until_ms:
            raise _ends_before(request, until_ms, chosen, f"point {chosen.sequence} ends", "omit --until or --point")
        return None, chosen
    names = backup.points()
    earlier = [name for name in names if name.time_ms < until_ms]
    points = (backup.read_point(name) for name in backup.points_since(until_ms))
    fitting = next((point for point in points if point.taken_ms >= until_ms), None)
    if fitting is None:
        if not names:
            return None, backup.point()  # Raises.
        newest = backup.read_point(names[-1])
        raise _ends_before(request, until_ms, newest, "the backup ends", "to restore everything, omit --until")
    before = backup.read_point(earlier[-1]) if earlier and request.order == APPEND else None
    if before is not None and before.sequence >= fitting.sequence:
        before = None
    return before, fitting if request.order == APPEND else backup.read_point(names[-1])


def _deleted_before(request: RestoreRequest, point: Point, backup: Backup) -> Iterator[str]:
    """Return a note if topics that existed at the requested time may be missing in the only point that is read.

    No note is needed if all topics are requested by name: a topic that the point lacks is then an error.
    """
    until_ms = request.until_ms
    if until_ms is None or until_ms >= point.taken_ms or (request.topics and not any(map(has_magic, request.topics))):
        return
    why = "the backup has no earlier point"
    if backup.points()[0].sequence != point.sequence and (request.point is not None or request.order == BY_TIME):
        why = f"{'--by time' if request.point is None else '--point'} reads only that point"
    yield f"topics that were deleted between {format_time(until_ms)} and point {point.sequence} are not restored, because {why}"


def _points_around(backup: Backup, request: RestoreRequest, point: Point) -> list[Point]:
    """Return the points on both sides of the requested time that are older than `point`, the only point that is read."""
    until_ms = request.until_ms
    if until_ms is None:
        return []
    names = [name for name in backup.points() if name.sequence < point.sequence]
    sides = [name for name in names if name.time_ms < until_ms][-1:] + [name for name in names if name.time_ms >= until_ms][:1]
    return [backup.read_point(name) for name in sides]


def _created_again(
    cut: TopicCut, new: TopicEntry | None, earlier: Iterable[tuple[int, Mapping[str, TopicEntry]]], point: Point
) -> Iterator[str]:
    """Return a note if an earlier point has a different topic with this name. The note says which of the two is restored."""
    for sequence, catalog in earlier:
        old = catalog.get(cut.source)
        if new is not None and old is not None and old.topic_id != new.topic_id:
            between = f"between points {sequence} and {point.sequence}"
            yield f"{cut.source}: deleted and created again {between}; restored as of {cut.sequence}"
            return


def _ends_before(request: RestoreRequest, until_ms: int, last: Point, what: str, advice: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{what} before this time: {advice}",
        path=request.backup,
        found=format_time(until_ms),
        expected=f"at most {format_time(last.taken_ms)}, the time of point {last.sequence}",
    )


def _check_not_empty(request: RestoreRequest, topics: Iterable[TopicCut]) -> None:
    """Raise InvalidArgumentError if the backup has no record before the requested time."""
    if request.until_ms is None or request.order != APPEND or any(cut.size for topic in topics for cut in topic.partitions):
        return
    if any(one.end_offset > one.log_start_offset for topic in topics for one in topic.entry.partitions):
        text = "no record of these topics was appended before this time"
        raise InvalidArgumentError(text, path=request.backup, found=format_time(request.until_ms))


def _check_named(request: RestoreRequest, chosen: Iterable[str]) -> None:
    """Raise NotFoundError for a named topic that the backup lacks, and InvalidArgumentError for names or options that
    conflict.
    """
    known = list(chosen)
    taken: dict[str, str] = {}
    for name in filter(request.wants, known):
        other = taken.setdefault(request.name_of(name), name)
        if other != name:
            text = f"topics {other!r} and {name!r} would get the same name"
            raise InvalidArgumentError(text, path=request.backup, found=request.name_of(name))
    for name in (*request.topics, *request.excepted, *request.renames, *request.partitions):
        if not has_magic(name) and name not in known:
            raise NotFoundError(f"no topic {name!r} in the backup{near_topics(name, known)}", path=request.backup)
    for name in (*request.renames, *request.partitions):
        if not request.wants(name):
            what = "has a new name" if name in request.renames else "has a new number of partitions"
            raise InvalidArgumentError(f"topic {name!r} {what}, but is not restored", found=", ".join(request.topics) or None)
    for name in request.excepted:
        if not has_magic(name) and not request.names(name):
            text = f"topic {name!r} cannot be excepted, because it is not among the topics to restore"
            raise InvalidArgumentError(text, found=", ".join(request.topics) or None)


def _check_groups(request: RestoreRequest, points: Points, topics: Iterable[TopicCut]) -> None:
    """Raise NotFoundError for a named group that has no committed offsets in the backup at the requested time."""
    if not request.groups:
        return
    topic = next((topic for topic in topics if topic.source == OFFSETS_TOPIC), None)
    known = {} if topic is None else positions_of(topic, points)
    when = "" if request.until_ms is None else f" before {format_time(request.until_ms)}"
    for group in request.groups:
        if group not in known:
            why = f", which has no {OFFSETS_TOPIC}" if topic is None else f"{when}{did_you_mean(group, known)}"
            raise NotFoundError(f"no group {group!r} in the backup{why}", path=request.backup)


def positions_of(offsets: TopicCut, points: Points) -> Positions:
    """Return the groups' positions at the cut of `__consumer_offsets`. Raises CorruptDataError, ProtocolError."""
    log_dir = points.at(offsets.address).log_dir
    assert log_dir is not None
    return positions_at(log_dir, {cut.partition: cut.end_offset for cut in offsets.partitions})


class _Cuts:
    """Computes where the partitions of topics begin and end."""

    def __init__(self, backup: Backup, request: RestoreRequest, points: Points) -> None:
        self._backup = backup
        self._request = request
        self._points = points
        self._decided: dict[int, frozenset[int]] = {}

    def of(self, point: Point, entry: TopicEntry, name: str) -> TopicCut:
        """Return where a topic's partitions begin and end. Raises CorruptDataError with the topic's name."""
        try:
            return self._of(point, entry, name)
        except (CorruptDataError, NotFoundError):
            refuse_damaged(self._backup, [entry], point.sequence)
            raise

    def _of(self, point: Point, entry: TopicEntry, name: str) -> TopicCut:
        request, source, topic = self._request, self._source(point), self._backup.topic(entry)
        keys = [TopicPartition(topic.name, number) for number in sorted(topic.partitions)]
        manifests = {key: self._backup.partition(topic, key.partition) for key in keys}
        starts = {key: one.log_start_offset for key, one in manifests.items()}
        ends = {key: one.stable_offset for key, one in manifests.items()}
        late: dict[TopicPartition, int] = {}
        is_own = topic.name in INTERNAL_TOPICS  # The records' timestamps are their append times.
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
            # If the last stable offset is the log end offset, every transaction has ended.
            is_decided = is_own or ends[key] <= starts[key] or ends[key] == manifests[key].end_offset
            open_here = {} if is_decided else self._open(source, key, ends[key])
            decided = self._commits(point) if open_here else frozenset()
            committed = {producer: first for producer, first in open_here.items() if producer in decided}
            left_out = {producer: first for producer, first in open_here.items() if producer not in committed}
            start = min(starts[key], ends[key])
            cuts.append(PartitionCut(key.partition, start, ends[key], late.get(key, 0), committed, left_out))
        settings = {**(topic.settings or {}), **({} if is_own else request.settings)}
        address = point_address(request.backup, point.sequence)
        spread = request.spread_of(topic.name)
        return TopicCut(topic, entry, name, address, point.sequence, tuple(cuts), settings, spread)

    def _found(self, source: Source, ends: Mapping[TopicPartition, int], time_ms: int) -> dict[TopicPartition, int]:
        """Return the first offset at or after a time, or the end offset if there is none."""
        found = source.find(dict.fromkeys(ends, time_ms))
        return {key: end if (one := found[key]) is None else min(end, one.offset) for key, end in ends.items()}

    def _source(self, point: Point) -> Source:
        return self._points.at(point_address(self._request.backup, point.sequence))

    def _late(self, source: Source, key: TopicPartition, start: int, end: int) -> int:
        """Count the records in `[start, end)` that are older than the requested time."""
        time = TimeRange(self._request.from_ms, self._request.until_ms)
        splits = source.splits({key: (start, end)}, time, READ_UNCOMMITTED, split_bytes=SPLIT_BYTES)
        return sum(batch.num_rows for split in splits for batch in split.read(["offset"]))

    def _open(self, source: Source, key: TopicPartition, offset: int) -> dict[int, int]:
        """Return the transactions that are open at an offset: producer id to first offset."""
        assert source.log_dir is not None
        with source.log_dir.log(*key) as log:
            return log.open_transactions(offset)

    def _commits(self, point: Point) -> frozenset[int]:
        """Return the producers whose last transaction was committed by the requested time."""
        if point.sequence not in self._decided:
            log_dir = self._source(point).log_dir
            assert log_dir is not None
            self._decided[point.sequence] = decided_commits(log_dir, self._state_ends(point))
        return self._decided[point.sequence]

    def _state_ends(self, point: Point) -> dict[int, int]:
        """Return the cuts of the partitions of `__transaction_state`; empty if the backup lacks the topic."""
        entry = self._backup.catalog(point).get(TRANSACTIONS_TOPIC)
        if entry is None:
            return {}
        ends = {TopicPartition(TRANSACTIONS_TOPIC, one.partition): one.stable_offset for one in entry.partitions}
        if self._request.until_ms is not None:
            ends = self._found(self._source(point), ends, self._request.until_ms)
        return {key.partition: end for key, end in ends.items()}
