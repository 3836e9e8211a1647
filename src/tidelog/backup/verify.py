"""Verifies a backup: every point, every manifest, every byte of records.

| damage | how it is found |
|---|---|
| an object changed, truncated, swapped, or replaced by an older one | names contain the SHA-256; a point has a checksum |
| an object missing | a manifest names it; a point has a seal, a successor, and a place in the sequence |
| offsets missing or repeated | segments and pieces must be contiguous, except at noted gaps |

If the newest point is deleted together with its seal, nothing in the backup can show it.

If `backup expire` removes points meanwhile, objects that only these points need may be missing. This is not damage. `expire`
writes its mark first, so the mark exists before anything is missing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from tidelog.backup.backup import Backup, read_head
from tidelog.backup.layout import (
    EXPIRED,
    EXPIRED_CONTENT,
    MANIFESTS,
    POINTS,
    SEALS,
    PointName,
    Seal,
    parse_expired,
    parse_point,
    parse_seal,
)
from tidelog.backup.manifest import Gap, PartitionManifest, Piece, Point, Snapshot, StoredFile, TopicEntry
from tidelog.backup.target import Target
from tidelog.errors import CorruptDataError, NotFoundError, TidelogError
from tidelog.formats import names
from tidelog.model import NO_TIMESTAMP
from tidelog.ordered_map import ordered_map
from tidelog.times import format_time

THREADS = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage that was found. Offsets are [start, end), times are epoch milliseconds; None if the damage concerns no
    particular records.
    """

    text: str
    object: str
    """The address of the object."""
    topic: str | None = None
    partition: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    first_time: int | None = None
    last_time: int | None = None
    first_point: int | None = None
    """The oldest and the newest point that need the object."""
    last_point: int | None = None

    def __str__(self) -> str:
        parts = [self.text]
        if self.topic is not None:
            parts.append(self.topic if self.partition is None else names.log_dir_name(self.topic, self.partition))
        if self.start_offset is not None:
            parts.append(f"offsets {self.start_offset} to {self.end_offset}")
        if self.first_time is not None and self.first_time >= 0:
            parts.append(f"times {format_time(self.first_time)} to {format_time(self.last_time or self.first_time)}")
        if self.first_point is not None:
            is_one = self.first_point == self.last_point
            parts.append(f"point {self.first_point}" if is_one else f"points {self.first_point} to {self.last_point}")
        return f"{', '.join(parts)} ({self.object})"


@dataclass
class BackupReport:
    """The result of a verification: `findings`, and how much was read."""

    findings: list[Finding] = field(default_factory=list)
    gaps: dict[tuple[str, int], list[Gap]] = field(default_factory=dict)
    """Records that were removed before the backup could read them, by topic and partition. They are not damage of the backup."""
    points: int = 0
    files: int = 0
    size_bytes: int = 0


class Place(NamedTuple):
    """The topic, partition and offsets to which a file belongs."""

    partition: PartitionManifest
    piece: Piece | Snapshot
    suffix: str
    facts: StoredFile


Elsewhere = Callable[[list[tuple[str, Place]]], Iterable[list[Finding]]]


def verify_backup(
    target: Target,
    advance: Callable[[int], None] = lambda _: None,
    threads: int = THREADS,
    elsewhere: Elsewhere | None = None,
) -> BackupReport:
    """Check the backup at `target`. `advance` is called with the size in bytes of each checked file of records, on any thread.

    `elsewhere` calls `check_file` for files in other processes, and returns the results in the order of the files.

    Raises NotFoundError if there is no backup, StorageError or AuthenticationError if an object cannot be reached.
    """
    try:
        read_head(target)
    except CorruptDataError as error:
        # The points are complete, but without the head their format is unknown.
        return BackupReport([Finding(error.message, error.path or str(target))])
    backup = Backup(target)
    if elsewhere is None:
        return _Verification(backup, advance, threads).run()
    files: dict[str, Place] = {}

    def is_listed(file: tuple[str, Place]) -> list[Finding]:
        files.setdefault(*file)
        return []

    _Verification(backup, advance, 1, is_listed).run()
    found = dict(zip(files, elsewhere(list(files.items())), strict=True))
    return _Verification(backup, advance, 1, lambda file: found.get(file[0], [])).run()


def check_file(backup: Backup, file: tuple[str, Place]) -> list[Finding]:
    """Read a file of records, and return the damage in the file, if any. Raises StorageError, AuthenticationError."""
    key, place = file
    try:
        backup.check(key, place.facts)
    except (CorruptDataError, NotFoundError) as error:
        return [_finding(error, key, **_concerned(place))]
    return []


def refuse_damaged(backup: Backup, entries: Iterable[TopicEntry], sequence: int, threads: int = THREADS) -> None:
    """Check every object of some topics. `sequence` is the oldest of the points whose catalogs list the topics.

    Raises CorruptDataError with the first finding, PointExpiredError if `backup expire` has removed the point, StorageError.
    """
    verification = _Verification(backup, lambda _: None, threads)
    found = [one for entry in entries for one in verification.of_topic(entry)]
    if found:
        expired = backup.expiry_of(sequence, CorruptDataError(str(found[0])))
        if expired is not None:
            raise expired
        more = f"; {len(found) - 1:,} more: to list them, run `tidelog backup verify`" if len(found) > 1 else ""
        raise CorruptDataError(f"the backup is damaged: {found[0]}{more}")


class _Verification:
    def __init__(
        self,
        backup: Backup,
        advance: Callable[[int], None],
        threads: int,
        check: Callable[[tuple[str, Place]], list[Finding]] | None = None,
    ) -> None:
        self._backup = backup
        self._check_file = check or partial(check_file, backup)
        self._advance = advance
        self._threads = threads
        self._report = BackupReport()
        self._catalogs: dict[str, list[Finding]] = {}
        self._topics: dict[str, list[Finding]] = {}
        self._partitions: dict[str, list[Finding]] = {}
        self._pages: set[str] = set()
        self._files: dict[str, list[Finding]] = {}

    def run(self) -> BackupReport:
        found = [
            replace(one, first_point=point.sequence, last_point=point.sequence)
            for point in reversed(self._points())
            for one in self._of_point(point)
        ]
        start = self._backup.expired_before()
        self._report.findings += _joined(found)
        self._report.findings = [one for one in self._report.findings if one.last_point is None or one.last_point >= start]
        return self._report

    # --- points

    def _points(self) -> list[Point]:
        """Return the intact points. Note missing and replaced points, which seals and sequences reveal."""
        target = self._backup.target
        for folder, is_known in ((POINTS, parse_point), (SEALS, parse_seal), (EXPIRED, parse_expired)):
            for key, facts in target.list(folder):
                if is_known(key) is None:
                    self._note("an object that does not belong to a backup", key)
                elif folder == EXPIRED and (facts.size_bytes != len(EXPIRED_CONTENT) or target.get(key) != EXPIRED_CONTENT):
                    self._note("an expiry marker has unexpected content", key)
        names_of = {name.sequence: name for name in self._backup.points()}
        if len(names_of) < len(self._backup.points()):
            self._note("two points have the same sequence number: two processes have written to this backup", POINTS)
        seals = self._backup.seals()
        start = self._backup.expired_before()
        last = max((*names_of, *seals), default=start - 1)
        if last < start and (start > 1 or any(True for _ in target.list(MANIFESTS))):
            self._note("the backup has no points", POINTS)
        found: list[Point] = []
        before: str | None = None
        lost: list[int] = []
        for sequence in range(start, last + 1):
            sealed = [one.sha256 for one in seals.get(sequence, ())]
            name = names_of.get(sequence)
            data = None if name is None else self._content(name.key)
            if name is None or data is None:
                lost.append(sequence)
                before = sealed[0] if len(sealed) == 1 else None
                continue
            sha256 = hashlib.sha256(data).hexdigest()
            self._check_seal(name, sealed, sha256)
            try:
                point = self._backup.checked_point(name, data)
            except CorruptDataError as error:
                self._report.findings.append(_finding(error, name.key, first_point=sequence, last_point=sequence))
                before = sealed[0] if len(sealed) == 1 else None
                continue
            if before is not None and point.previous != before:
                self._note("a point does not have the checksum of the previous point", name.key, sequence)
            before = sha256
            found.append(point)
            self._report.points += 1
        for first, end in _runs(lost):
            text = "a point is missing" if first == end else f"{end - first + 1} points are missing"
            self._report.findings.append(Finding(text, f"{target}/{POINTS}/{first:08d}-…", first_point=first, last_point=end))
        return found

    def _content(self, key: str) -> bytes | None:
        try:
            return self._backup.target.get(key)
        except NotFoundError:
            return None

    def _check_seal(self, name: PointName, sealed: list[str], sha256: str) -> None:
        key = Seal(name.sequence, sha256).key
        if not sealed:
            text = "a point has no seal: the backup was interrupted (the next one writes the seal), or the seal was removed"
            self._note(text, key, name.sequence)
        elif sealed != [sha256]:
            self._note("a point does not match its seal", name.key, name.sequence)
        elif self._content(key) != sha256.encode():
            self._note("a seal is damaged", key, name.sequence)

    def _note(self, text: str, key: str, sequence: int | None = None) -> None:
        place = f"{self._backup.target}/{key}"
        self._report.findings.append(Finding(text, place, first_point=sequence, last_point=sequence))

    def _of_point(self, point: Point) -> list[Finding]:
        found = list(self._catalogs.get(point.catalog, ()))
        if point.catalog not in self._catalogs:
            try:
                catalog = self._backup.catalog(point)
            except (CorruptDataError, NotFoundError) as error:
                found = [_finding(error, f"catalog of point {point.sequence}")]
            else:
                found = [one for entry in catalog.values() for one in self.of_topic(entry)]
            self._catalogs[point.catalog] = found
        if point.rights is not None:
            try:
                self._backup.rights(point)
            except (CorruptDataError, NotFoundError) as error:
                found = [*found, _finding(error, f"rights of point {point.sequence}")]
        return found

    # --- topics and partitions

    def of_topic(self, entry: TopicEntry) -> list[Finding]:
        """Return the damage found in the topic that a catalog's entry describes."""
        if entry.sha256 in self._topics:
            return self._topics[entry.sha256]
        try:
            topic = self._backup.topic(entry)
        except (CorruptDataError, NotFoundError) as error:
            found = [_finding(error, "topic", topic=entry.name)]
        else:
            found = []
            if (topic.name, topic.topic_id) != (entry.name, entry.topic_id):
                found.append(
                    Finding("a catalog names a different topic than the topic's manifest", str(self._backup.target), entry.name)
                )
            ends = {one.partition: one for one in entry.partitions}
            if ends.keys() != topic.partitions.keys():
                found.append(
                    Finding(
                        "a catalog lists different partitions than the topic's manifest", str(self._backup.target), entry.name
                    )
                )
            for number, sha256 in topic.partitions.items():
                if sha256 not in self._partitions:
                    self._partitions[sha256] = self._of_partition(entry, number, sha256)
                found += self._partitions[sha256]
        self._topics[entry.sha256] = found
        return found

    def _of_partition(self, entry: TopicEntry, number: int, sha256: str) -> list[Finding]:
        ends = next((one for one in entry.partitions if one.partition == number), None)
        place: dict[str, Any] = {"topic": entry.name, "partition": number}
        if ends is not None:
            place |= {"start_offset": ends.log_start_offset, "end_offset": ends.end_offset, "last_time": ends.max_time}
        try:
            partition = self._backup.read_partition(sha256)
            segments = list(self._backup.segments(partition))
        except (CorruptDataError, NotFoundError) as error:
            return [_finding(error, "partition", **place)]
        found: list[Finding] = []
        if (partition.topic, partition.topic_id, partition.partition) != (entry.name, entry.topic_id, number):
            found.append(
                Finding(
                    "a topic's manifest names a different partition than the partition's manifest",
                    str(self._backup.target),
                    **place,
                )
            )
        if ends is not None and partition.ends != ends:
            found.append(
                Finding("a catalog has different offsets than the partition's manifest", str(self._backup.target), **place)
            )
        if partition.gaps:
            known = self._report.gaps.setdefault((entry.name, number), [])
            known += [gap for gap in partition.gaps if gap not in known]
        position: int | None = None
        for segment in segments:
            if position is not None and segment.base_offset != position:
                found.append(self._hole(partition, position, segment.base_offset))
            position = segment.base_offset
            for piece in segment.pieces:
                if piece.base_offset < position and position != segment.base_offset:
                    found.append(self._hole(partition, piece.base_offset, position))
                position = piece.end_offset
        if position is not None and position != partition.end_offset:
            found.append(self._hole(partition, position, partition.end_offset))
        return [*found, *self._of_files(partition, segments)]

    def _of_files(self, partition: PartitionManifest, segments: list[Any]) -> list[Finding]:
        places = [
            Place(partition, piece, suffix, facts)
            for segment in segments
            for piece in segment.pieces
            for suffix, facts in piece.files.items()
        ]
        places += [Place(partition, one, names.SNAPSHOT_SUFFIX, one.file) for one in self._backup.snapshots(partition)]
        keyed = [(self._backup.key(partition, place.piece, place.suffix), place) for place in places]
        new = [(key, place) for key, place in keyed if key not in self._files]
        for (key, place), found in zip(new, ordered_map(self._check, new, self._threads), strict=True):
            self._files[key] = found
            self._report.files += 1
            self._report.size_bytes += place.facts.size_bytes
        return [one for key, _ in keyed for one in self._files[key]]

    def _check(self, file: tuple[str, Place]) -> list[Finding]:
        try:
            return self._check_file(file)
        finally:
            self._advance(file[1].facts.size_bytes)

    # --- findings

    def _hole(self, partition: PartitionManifest, start: int, end: int) -> Finding:
        if start < end:
            return Finding(
                "offsets are missing: no piece has them",
                str(self._backup.target),
                partition.topic,
                partition.partition,
                start,
                end,
            )
        return Finding(
            "offsets are repeated: two pieces have them",
            str(self._backup.target),
            partition.topic,
            partition.partition,
            end,
            start,
        )


def _finding(error: TidelogError, where: str, **concerned: Any) -> Finding:
    text = error.message
    if error.found is not None and error.expected is not None:
        text = f"{text}: found {error.found}, expected {error.expected}"
    return Finding(text, os.fspath(error.path) if error.path is not None else where, **concerned)


def _concerned(place: Place) -> dict[str, Any]:
    """Return the topic, partition and offsets of the records in a file."""
    found: dict[str, Any] = {"topic": place.partition.topic, "partition": place.partition.partition}
    piece = place.piece
    if isinstance(piece, Piece):
        times = [time for time in (piece.first_time, piece.last_time, piece.max_time) if time != NO_TIMESTAMP]
        return found | {
            "start_offset": piece.base_offset,
            "end_offset": piece.end_offset,
            "first_time": min(times, default=None),
            "last_time": max(times, default=None),
        }
    return found | {"start_offset": piece.offset, "end_offset": piece.offset}


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of each run of consecutive numbers."""
    first = None
    for slot, number in enumerate(numbers):
        first = number if first is None else first
        if slot + 1 == len(numbers) or numbers[slot + 1] != number + 1:
            yield first, number
            first = None


def _joined(findings: list[Finding]) -> Iterator[Finding]:
    """Yield each finding once, with the first and the last point that the damage concerns."""
    known: dict[Finding, list[int]] = {}
    for one in findings:
        points = known.setdefault(replace(one, first_point=None, last_point=None), [])
        points += [number for number in (one.first_point, one.last_point) if number is not None]
    for one, points in known.items():
        yield replace(one, first_point=min(points, default=None), last_point=max(points, default=None))
