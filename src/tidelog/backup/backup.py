"""Reads a backup: its points, and their topics, partitions, segments and files.

::

    backup = open_backup("s3://bucket/prefix")
    point = backup.point()                              # the newest; or a sequence, or the last one before a time
    topic = backup.topics(point)["orders"]
    partition = backup.partition(topic, 0)
    for segment in backup.segments(partition):
        for piece in segment.pieces:
            data = backup.read(backup.key(partition, piece, ".log"), piece.files[".log"])

Every manifest is checked against the checksum in its name. `read` checks the files of records. To read records by offset or
time, open the point as a data folder: `tidelog.backup.opening.folder_at`.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tidelog.backup.layout import (
    EXPIRED,
    FORMAT,
    HEAD,
    POINTS,
    SEALS,
    VERSION,
    PointName,
    Seal,
    data_key,
    manifest_key,
    parse_expired,
    parse_point,
    parse_seal,
)
from tidelog.backup.manifest import (
    PartitionManifest,
    Piece,
    Point,
    Segment,
    Snapshot,
    StoredFile,
    TopicEntry,
    TopicManifest,
    checksum_of,
    decode_point,
    shaped_manifest,
)
from tidelog.backup.target import Target, open_target
from tidelog.clock import Clock
from tidelog.errors import (
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    PointExpiredError,
    SegmentChangedError,
    TidelogError,
    UnknownTopicOrPartitionError,
)
from tidelog.formats import names
from tidelog.formats.paths.file_path import FilePath
from tidelog.times import format_time, parse_time

_KEPT_MANIFESTS = 2000
_POINT_DIGITS = 8
"""A number with more digits is read as a time."""


class Head(NamedTuple):
    """The content of `tidelog-backup.json`."""

    backup_id: uuid.UUID
    created_ms: int


class Backup:
    """The backup at `target`. Raises NotFoundError if there is no backup, CorruptDataError if `tidelog-backup.json` is damaged or
    has an unknown version.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.head = read_head(target)
        self._kept: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Backup({self.target.address!r})"

    def points(self, after: PointName | None = None) -> list[PointName]:
        """Return the points, oldest first. With an argument, return only the points after that one. This needs one listing."""
        keys = self.target.list(POINTS, "" if after is None else after.key)
        return sorted(name for key, _ in keys if (name := parse_point(key)) is not None)

    def seals(self) -> dict[int, list[Seal]]:
        """Return the seals, by the sequences of their points."""
        found: dict[int, list[Seal]] = {}
        for key, _ in self.target.list(SEALS):
            seal = parse_seal(key)
            if seal is not None:
                found.setdefault(seal.sequence, []).append(seal)
        return found

    def expired_before(self) -> int:
        """Return the sequence before which all points have expired, or 1 if no point has expired."""
        return max((before for key, _ in self.target.list(EXPIRED) if (before := parse_expired(key)) is not None), default=1)

    def missing_points(self) -> list[int]:
        """Return the sequences of missing points, which seals and later points reveal. Expired points do not count as missing."""
        sealed = self.seals()  # First, because a running backup writes a point before its seal.
        known = {one.sequence for one in self.points()}
        start = self.expired_before()  # Last, because `expire` writes its mark before it removes points.
        return [number for number in range(start, max((*known, *sealed), default=0) + 1) if number not in known]

    def point(self, which: int | None = None, *, time_ms: int | None = None) -> Point:
        """Return the point with the sequence `which`, or the last point at or before a time, or by default the newest point.

        Raises NotFoundError if there is no such point, PointExpiredError if `backup expire` has removed it, CorruptDataError.
        """
        known = self.points()
        wanted = [one for one in known if (which in (None, one.sequence)) and (time_ms is None or one.time_ms <= time_ms)]
        if not wanted:
            what = "no point" if which is None else f"no point {which}"
            what += "" if time_ms is None else f" at or before {format_time(time_ms)}"
            have = _span(known)
            if which is not None and 0 < which < self.expired_before():
                text = f"point {which} of this backup was removed by `backup expire`; {have}"
                raise PointExpiredError(text, path=str(self.target))
            raise NotFoundError(f"{what} in this backup; {have}", path=str(self.target))
        return self.read_point(wanted[-1])

    def points_since(self, time_ms: int) -> list[PointName]:
        """Return the points taken at or after a time, to the second.

        A point with a later time than one of its successors is left out. The clock may have been ahead when the point was taken,
        so that the point lacks records from before its time. Raises StorageError.
        """
        found: list[PointName] = []
        for one in reversed(self.points()):
            if one.time_ms + 999 < time_ms:
                break
            if not found or one.time_ms <= found[-1].time_ms:
                found.append(one)
        return found[::-1]

    def point_named(self, text: str | None, clock: Clock) -> Point:
        """Return the point that a text names. The text is the point's number or a time (`tidelog.times`). A time names the
        last point at or before it. Without a text, return the newest point.

        Raises InvalidArgumentError, NotFoundError, CorruptDataError.
        """
        if text is None:
            return self.point()
        if text.isascii() and text.isdigit() and len(text) <= _POINT_DIGITS:
            return self.point(int(text))
        return self.point(time_ms=parse_time(text, clock))

    def read_point(self, name: PointName) -> Point:
        """Return the point with this name. Raises NotFoundError, PointExpiredError, CorruptDataError."""
        with self.naming_expiry(name.sequence):
            return self.checked_point(name, self.target.get(name.key))

    @contextmanager
    def naming_expiry(self, *sequences: int) -> Iterator[None]:
        """A context for reading these points. If an object is missing because `backup expire` has removed one of the points, it
        raises PointExpiredError instead of the original error.
        """
        try:
            yield
        except (CorruptDataError, NotFoundError, SegmentChangedError) as error:
            expired = self.expiry_of(min(sequences), error)
            if expired is None:
                raise
            raise expired from error

    def expiry_of(self, sequence: int, error: TidelogError) -> PointExpiredError | None:
        """Return the error to raise if `backup expire` has removed this point, otherwise None. `error` says what is missing."""
        if sequence >= self.expired_before():
            return None
        return PointExpiredError(
            f"point {sequence} of this backup was removed by `backup expire` while it was being read: {error.message}; "
            f"{_span(self.points())}",
            path=error.path or str(self.target),
        )

    def checked_point(self, name: PointName, data: bytes) -> Point:
        """Decode a point from its bytes. Raises CorruptDataError."""
        point = decode_point(data, name, f"{self.target}/{name.key}")
        if point.backup_id != self.head.backup_id:
            place = f"{self.target}/{name.key}"
            raise CorruptDataError(
                "the point belongs to a different backup", path=place, found=point.backup_id, expected=self.head.backup_id
            )
        return point

    def catalog(self, point: Point) -> dict[str, TopicEntry]:
        """Return a point's topics by name, without their settings and partitions. Raises NotFoundError, CorruptDataError."""
        return {one.name: one for one in self._manifest("catalog", point.catalog)}

    def topic(self, entry: TopicEntry) -> TopicManifest:
        """Return a topic of a catalog. Raises NotFoundError, CorruptDataError."""
        found: TopicManifest = self._manifest("topic", entry.sha256)
        return found

    def topics(self, point: Point) -> dict[str, TopicManifest]:
        """Return a point's topics by name, with one request per topic. Raises NotFoundError, CorruptDataError."""
        return {name: self.topic(entry) for name, entry in self.catalog(point).items()}

    def partition(self, topic: TopicManifest, number: int) -> PartitionManifest:
        """Return a partition of a topic. Raises UnknownTopicOrPartitionError, NotFoundError, CorruptDataError."""
        sha256 = topic.partitions.get(number)
        if sha256 is None:
            known = ", ".join(map(str, sorted(topic.partitions)))
            text = f"topic {topic.name!r} has no partition {number}, only {known}"
            raise UnknownTopicOrPartitionError(text, path=str(self.target))
        return self.read_partition(sha256)

    def read_partition(self, sha256: str) -> PartitionManifest:
        """Return a partition by its manifest's checksum. Raises NotFoundError, CorruptDataError."""
        found: PartitionManifest = self._manifest("partition", sha256)
        return found

    def partitions(self, topic: TopicManifest) -> dict[int, PartitionManifest]:
        """Return all partitions of a topic, with one request per partition."""
        return {number: self.partition(topic, number) for number in sorted(topic.partitions)}

    def segments(self, partition: PartitionManifest) -> Iterator[Segment]:
        """Yield a partition's segments in order. The pages of its manifest are read on demand."""
        for page in partition.pages:
            yield from self._manifest("page", page.sha256)
        yield from partition.segments

    def snapshots(self, partition: PartitionManifest) -> Iterator[Snapshot]:
        """Yield a partition's producer snapshots in order: one before each segment except the first, and one at the end."""
        for segment in self.segments(partition):
            if segment.snapshot is not None:
                yield Snapshot(segment.base_offset, segment.snapshot)
        if partition.snapshot is not None:
            yield partition.snapshot

    def rights(self, point: Point) -> dict[str, Any] | None:
        """Return ACLs, quotas and SCRAM users as the cluster described them, or None if they were not requested."""
        return None if point.rights is None else self._manifest("rights", point.rights)

    # --- files

    def key(self, partition: PartitionManifest, piece: Piece | Snapshot, suffix: str = names.SNAPSHOT_SUFFIX) -> str:
        """Return the name of the object with a piece's file, or with a snapshot."""
        return data_key(partition.topic_id, partition.partition, piece.stem, suffix)

    def file(self, key: str, facts: StoredFile) -> FilePath:
        """Return the path of a file in the backup. This needs no request."""
        return self.target.file(key, facts.size_bytes)

    def read(self, key: str, facts: StoredFile) -> bytes:
        """Return a file's bytes after checking their size and checksum. Raises NotFoundError, CorruptDataError."""
        data = self.target.get(key)
        self._compare(key, StoredFile.of(data), facts)
        return data

    def check(self, key: str, facts: StoredFile) -> None:
        """Check a file's size and checksum. Raises NotFoundError, CorruptDataError."""
        self._compare(key, self.target.facts(key), facts)

    def _compare(self, key: str, found: StoredFile, facts: StoredFile) -> None:
        if found != facts:
            text = f"{found.size_bytes} bytes, SHA-256 {found.sha256}"
            expected = f"{facts.size_bytes} bytes, SHA-256 {facts.sha256}"
            raise CorruptDataError(
                "an object has the wrong checksum or size", path=f"{self.target}/{key}", found=text, expected=expected
            )

    def _manifest(self, kind: str, sha256: str) -> Any:
        with self._lock:  # Partitions are read on several threads.
            kept = self._kept.pop((kind, sha256), None)
            if kept is not None:
                self._kept[kind, sha256] = kept
        if kept is None:
            key = manifest_key(sha256)
            kept = shaped_manifest(kind, sha256, self.target.get(key), f"{self.target}/{key}")
            with self._lock:
                self._kept[kind, sha256] = kept
                if len(self._kept) > _KEPT_MANIFESTS:
                    self._kept.popitem(last=False)
        return kept


def _span(points: list[PointName]) -> str:
    if not points:
        return "it has none"
    first, last = points[0], points[-1]
    if first == last:
        return f"it has only point {first.sequence} ({format_time(first.time_ms)})"
    return f"it has points {first.sequence} ({format_time(first.time_ms)}) to {last.sequence} ({format_time(last.time_ms)})"


def read_head(target: Target) -> Head:
    """Return the content of `tidelog-backup.json`. Raises NotFoundError if there is no backup, CorruptDataError."""
    place = f"{target}/{HEAD}"
    try:
        data = target.get(HEAD)
    except NotFoundError:
        raise NotFoundError(f"no backup here: {HEAD} does not exist", path=str(target)) from None
    try:
        content = json.loads(data)
        version = content["version"]
        if content["format"] != FORMAT:
            raise ValueError(content["format"])
        checksum = content.pop("checksum")
        if checksum_of(content) != checksum:
            raise ValueError("its checksum is wrong")
        head = Head(uuid.UUID(content["backup_id"]), int(content["created_ms"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptDataError(f"{HEAD} is damaged: {error!r}", path=place) from None
    if version != VERSION:
        raise CorruptDataError("the backup format has an unknown version", path=place, found=version, expected=VERSION)
    return head


def encode_head(head: Head) -> bytes:
    """Return the bytes of `tidelog-backup.json`."""
    content = {"format": FORMAT, "version": VERSION, "backup_id": str(head.backup_id), "created_ms": head.created_ms}
    return json.dumps({**content, "checksum": checksum_of(content)}, indent=1).encode() + b"\n"


def open_backup(address: str | os.PathLike[str]) -> Backup:
    """Open the backup at an address, which carries the options for object storage.

    Raises NotFoundError if there is no backup, InvalidArgumentError for an invalid address, CorruptDataError.
    """
    text = address if isinstance(address, str) else os.fspath(address)
    if text.startswith("backup:"):
        raise InvalidArgumentError("expected the address of a backup, not of a point", found=text)
    return Backup(open_target(text))
