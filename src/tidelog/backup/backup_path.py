"""Presents a point of a backup as a data folder: Kafka's file names, with bytes from the backup's objects.

| name | made of |
|---|---|
| ``<topic>-<partition>/<base offset>.log``, ``.txnindex`` | the objects of the segment's pieces, concatenated |
| ``….index``, ``….timeindex`` | the same; a small piece has no index, and gets entries: its first batch, its largest timestamp |
| ``….snapshot``, ``leader-epoch-checkpoint``, ``partition.metadata`` | the partition's manifest |
| ``replication-offset-checkpoint`` and other checkpoints, ``meta.properties`` | the point and its catalog |

No objects are listed: the point, its catalog, and the manifests of topics and partitions are read once, on first use. If
`backup expire` removes the point meanwhile, reading raises PointExpiredError as soon as an object is missing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat as stat_modes
import struct
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from tidelog.backup.backup import Backup
from tidelog.backup.joined_file import JoinedFile, Part
from tidelog.backup.layout import INDEX_INTERVAL_BYTES, SCHEME, data_key, known_topic_id
from tidelog.backup.manifest import PartitionManifest, Piece, Point, Segment, Snapshot, TopicEntry
from tidelog.backup.target import Target, open_target
from tidelog.errors import InvalidArgumentError, TidelogError
from tidelog.formats import names
from tidelog.formats.checkpoints import encode_lines
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.partition_metadata import encode_topic_id
from tidelog.formats.paths.named_path import NamedPath
from tidelog.formats.summary.segment_summary import SegmentFacts
from tidelog.model import NO_TIMESTAMP
from tidelog.objects.address import ObjectAddress, options_of

META_PROPERTIES = "meta.properties"

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_DEVICE = 1 << 41
"""The device number of all files in backups; no disk has it."""


class Content(NamedTuple):
    """A file's bytes, and the stamp by which readers notice that the file has changed."""

    parts: tuple[Part, ...]
    modified_ms: int

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


class PointFolder:
    """A point as a data folder. If `sequence` is None, this is the newest point, and `refresh` moves to a newer point."""

    def __init__(self, target: Target, sequence: int | None, *, is_pinned: bool = True) -> None:
        self.target = target
        self._sequence = sequence
        self._is_pinned = is_pinned and sequence is not None

    @cached_property
    def backup(self) -> Backup:
        """The backup to which the point belongs."""
        return Backup(self.target)

    @cached_property
    def point(self) -> Point:
        """The point that the folder presents."""
        return self.backup.point(self._sequence)

    @cached_property
    def _catalog(self) -> dict[str, TopicEntry]:
        with self.backup.naming_expiry(self.point.sequence):
            return self.backup.catalog(self.point)

    @cached_property
    def _entries(self) -> dict[str, TopicEntry]:
        return {
            names.log_dir_name(topic.name, one.partition): topic for topic in self._catalog.values() for one in topic.partitions
        }

    @cached_property
    def _partitions(self) -> dict[str, tuple[PartitionManifest, dict[int, Segment]]]:
        return {}

    def refresh(self) -> None:
        """Move to the newest point, unless the folder was opened at a given point."""
        if not self._is_pinned and "point" in self.__dict__ and self.backup.points(self.point.name):
            for name in ("point", "_catalog", "_entries", "_partitions", "_checkpoints"):
                self.__dict__.pop(name, None)

    @property
    def sequence(self) -> int:
        """The point's sequence."""
        return self.point.sequence if self._sequence is None else self._sequence

    @property
    def address(self) -> str:
        """The address with which another process can open this point."""
        text = f"{SCHEME}{self.target}#{self.sequence}"
        options = options_of(self.target.address)
        return ObjectAddress(text, options) if options else text

    def is_folder(self, parts: tuple[str, ...]) -> bool:
        """Return whether the path made of `parts` is a folder."""
        return not parts or (len(parts) == 1 and parts[0] in self._entries)

    def names(self, parts: tuple[str, ...]) -> Iterator[str]:
        """Yield the names in a folder. Names for which no further manifest is read come first."""
        if not parts:
            yield from self._entries
            yield from self._checkpoints
            return
        if known_topic_id(self._entries[parts[0]].topic_id) is not None:
            yield names.PARTITION_METADATA
        manifest, segments = self._partition(parts[0])
        yield names.LEADER_EPOCH_CHECKPOINT
        for segment in segments.values():
            for suffix in (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX):
                if suffix != names.TXN_INDEX_SUFFIX or any(suffix in piece.files for piece in segment.pieces):
                    yield names.file_name(segment.base_offset, suffix)
        for snapshot in self._snapshots(manifest):
            yield names.file_name(snapshot.offset, names.SNAPSHOT_SUFFIX)

    def segment_facts(self, parts: tuple[str, ...]) -> dict[int, SegmentFacts]:
        """Return what the manifests say about a partition's segments, by base offset.

        The manifests have neither the smallest timestamp nor the last batch. Whether a segment has records without timestamps is
        judged by its first batch, as when the segment itself is read.
        """
        if not self.is_folder(parts) or not parts:
            return {}
        _, segments = self._partition(parts[0])
        return {base_offset: _facts_of(segment) for base_offset, segment in segments.items() if segment.pieces}

    def index_pieces(self, parts: tuple[str, ...]) -> list[tuple[int, int | None]] | None:
        """Return for each piece of a segment's `.log` its size in bytes, and its index interval in bytes or, without an
        index, None. Return None for other files.
        """
        if len(parts) != 2 or parts[0] not in self._entries or not parts[1].endswith(names.LOG_SUFFIX):
            return None
        _, segments = self._partition(parts[0])
        segment = segments.get(names.offset_from_file_name(parts[1]))
        if segment is None:
            return None
        return [(one.size_bytes, INDEX_INTERVAL_BYTES if names.INDEX_SUFFIX in one.files else None) for one in segment.pieces]

    def topic_settings(self, topic: str) -> Mapping[str, str] | None:
        """Return the properties set for a topic; None if the point does not have them."""
        entry = self._catalog.get(topic)
        if entry is None:
            return None
        with self.backup.naming_expiry(self.point.sequence):
            return self.backup.topic(entry).settings

    def content(self, parts: tuple[str, ...]) -> Content | None:
        """Return a file's content, or None if there is no such file."""
        if len(parts) == 1:
            data = self._checkpoints.get(parts[0])
            return None if data is None else self._generated(data)
        if len(parts) != 2 or parts[0] not in self._entries:
            return None
        name = parts[1]
        if name == names.PARTITION_METADATA:
            topic_id = known_topic_id(self._entries[parts[0]].topic_id)
            return None if topic_id is None else self._generated(encode_topic_id(topic_id))
        if name != names.LEADER_EPOCH_CHECKPOINT and not (name[:1].isdigit() and "." in name):
            return None
        manifest, segments = self._partition(parts[0])
        if name == names.LEADER_EPOCH_CHECKPOINT:
            epochs = LeaderEpochs(EpochEntry(epoch, offset) for epoch, offset in manifest.leader_epochs)
            return self._generated(epochs.encode())
        try:
            offset = names.offset_from_file_name(name)
        except InvalidArgumentError:
            return None
        suffix = name[name.index(".") :]
        if suffix == names.SNAPSHOT_SUFFIX:
            for snapshot in self._snapshots(manifest):
                if snapshot.offset == offset:
                    part = self._object(manifest, snapshot.stem, suffix, snapshot.file.size_bytes)
                    return Content((part,), self.point.taken_ms)
            return None
        segment = segments.get(offset)
        return None if segment is None else self._of_segment(manifest, segment, suffix)

    def _of_segment(self, manifest: PartitionManifest, segment: Segment, suffix: str) -> Content | None:
        parts: list[Part] = []
        position, largest = 0, NO_TIMESTAMP
        for piece in segment.pieces:
            file = piece.files.get(suffix)
            if file is not None:
                parts.append(self._object(manifest, piece.stem, suffix, file.size_bytes))
            elif suffix == names.INDEX_SUFFIX and position:
                entry = _OFFSET_ENTRY.pack(piece.first_end - 1 - segment.base_offset, position)
                parts.append(Part(len(entry), None, entry))
            elif suffix == names.TIME_INDEX_SUFFIX:
                data = _time_entries(piece, segment.base_offset, largest, with_first=position > 0)
                parts += [Part(len(data), None, data)] if data else []
            position += piece.size_bytes
            largest = max(largest, piece.max_time)
        if not parts and suffix not in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.LOG_SUFFIX):
            return None
        return Content(tuple(parts), largest if largest >= 0 else self.point.taken_ms)

    def _object(self, manifest: PartitionManifest, stem: str, suffix: str, size_bytes: int) -> Part:
        key = data_key(manifest.topic_id, manifest.partition, stem, suffix)
        return Part(size_bytes, self.target.file(key, size_bytes))

    def _generated(self, data: bytes) -> Content:
        return Content((Part(len(data), None, data),), self.point.taken_ms)

    def _partition(self, name: str) -> tuple[PartitionManifest, dict[int, Segment]]:
        known = self._partitions.get(name)
        if known is None:
            key = names.parse_topic_partition_name(name)
            with self.backup.naming_expiry(self.point.sequence):
                manifest = self.backup.partition(self.backup.topic(self._entries[name]), key.partition)
                known = manifest, {one.base_offset: one for one in self.backup.segments(manifest)}
            self._partitions[name] = known
        return known

    def _snapshots(self, manifest: PartitionManifest) -> list[Snapshot]:
        with self.backup.naming_expiry(self.point.sequence):
            return list(self.backup.snapshots(manifest))

    def cause_of(self, error: TidelogError) -> TidelogError:
        """Return the error that explains why an object is missing: PointExpiredError, or `error` itself."""
        return self.backup.expiry_of(self.sequence, error) or error

    @cached_property
    def _checkpoints(self) -> Mapping[str, bytes]:
        found: dict[str, list[str]] = {
            names.HIGH_WATERMARK_CHECKPOINT: [],
            names.LOG_START_OFFSET_CHECKPOINT: [],
            names.RECOVERY_POINT_CHECKPOINT: [],
            names.CLEANER_CHECKPOINT: [],
        }
        for topic in self._catalog.values():
            for one in topic.partitions:
                place = f"{topic.name} {one.partition}"
                found[names.HIGH_WATERMARK_CHECKPOINT].append(f"{place} {one.end_offset}")
                found[names.RECOVERY_POINT_CHECKPOINT].append(f"{place} {one.end_offset}")
                if one.log_start_offset:
                    found[names.LOG_START_OFFSET_CHECKPOINT].append(f"{place} {one.log_start_offset}")
                if topic.is_compacted:
                    found[names.CLEANER_CHECKPOINT].append(f"{place} {one.end_offset}")
        made = {name: encode_lines(lines) for name, lines in found.items()}
        if self.point.cluster_id is not None:
            made[META_PROPERTIES] = f"version=1\ncluster.id={self.point.cluster_id}\nnode.id=0\n".encode()
        return made


def _time_entries(piece: Piece, base_offset: int, largest: int, *, with_first: bool) -> bytes:
    """Return the time index entries of a piece that has no index: one for its first batch, if `with_first`, and one for its
    largest timestamp. `largest` is the largest timestamp before the piece. Entries that do not increase are left out.
    """
    entries = b""
    if with_first and largest < piece.first_time < piece.max_time:
        entries = _TIME_ENTRY.pack(piece.first_time, piece.first_end - 1 - base_offset)
    if piece.max_time > largest:
        entries += _TIME_ENTRY.pack(piece.max_time, piece.max_time_offset - base_offset)
    return entries


def _facts_of(segment: Segment) -> SegmentFacts:
    first = segment.pieces[0]
    largest = max(segment.pieces, key=lambda piece: piece.max_time)  # The first of several equal timestamps.
    return SegmentFacts(
        base_offset=segment.base_offset,
        size_bytes=segment.size_bytes,
        first_offset=first.base_offset,
        next_offset=segment.end_offset,
        largest=largest.max_time,
        largest_offset=largest.max_time_offset,
        smallest=NO_TIMESTAMP,
        without_timestamp=int(first.first_time < 0),
        last_position=-1,
        last_crc=0,
        last_magic=2 if segment.pieces[-1].last_epoch >= 0 else -1,
    )


class BackupPath(NamedPath):
    """A path in a `PointFolder`. Paths can be pickled; the path of a file then carries the file's content."""

    __slots__ = ("_content", "folder", "parts")

    def __init__(self, folder: PointFolder, parts: tuple[str, ...] = (), content: Content | None = None) -> None:
        self.folder = folder
        self.parts = parts
        self._content = content

    def __reduce__(self) -> tuple[Any, ...]:
        place = self.folder.target.address
        return (_rebuilt, (place, self.folder.sequence, self.parts, self._known() if len(self.parts) == 2 else None))

    def __str__(self) -> str:
        return "/".join((str(self.folder.address), *self.parts))

    @property
    def address(self) -> str:
        """The folder's address with its options."""
        return self.folder.address

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else str(self.folder.target).rpartition("/")[2]

    @property
    def parent(self) -> BackupPath:
        return BackupPath(self.folder, self.parts[:-1])

    def __truediv__(self, name: str) -> BackupPath:
        return BackupPath(self.folder, (*self.parts, *name.split("/")))

    def with_name(self, name: str) -> BackupPath:
        return BackupPath(self.folder, (*self.parts[:-1], name))

    def at(self, text: str) -> BackupPath:
        names_below = text.removeprefix(str(self.folder.address)).strip("/")
        return BackupPath(self.folder, tuple(names_below.split("/")) if names_below else ())

    def iterdir(self) -> Iterator[BackupPath]:
        if not self.folder.is_folder(self.parts):
            raise self._missing(errno.ENOTDIR if self._known() else errno.ENOENT)
        return (self / name for name in self.folder.names(self.parts))

    def stat(self) -> os.stat_result:
        content = self._known()
        if content is not None:
            return self._stat(content)
        if self.folder.is_folder(self.parts):
            return os.stat_result((stat_modes.S_IFDIR | 0o555, self._identity(), _DEVICE, *[0] * 7))
        raise self._missing(errno.ENOENT)

    def segment_facts(self) -> dict[int, SegmentFacts]:
        """Return what is known about a partition's segments without reading the segments
        (`formats/summary/known_segments.py`).
        """
        return self.folder.segment_facts(self.parts)

    def index_pieces(self) -> list[tuple[int, int | None]] | None:
        """Return the pieces of a segment's `.log`, which are indexed separately (`check/piece_indexes.py`)."""
        return self.folder.index_pieces(self.parts)

    def topic_settings(self, topic: str) -> Mapping[str, str] | None:
        """Return the properties set for a topic; None if the backup does not have them (`storage/topics/topic_settings.py`)."""
        return self.folder.topic_settings(topic)

    def is_dir(self) -> bool:
        return self.folder.is_folder(self.parts)

    def is_file(self) -> bool:
        return self._known() is not None

    def open_handle(self) -> JoinedFile:
        content = self._known()
        if content is None:
            raise self._missing(errno.EISDIR if self.is_dir() else errno.ENOENT)
        return JoinedFile(content.parts, self._stat(content), self.folder.cause_of)

    def _known(self) -> Content | None:
        if self._content is None:
            self._content = self.folder.content(self.parts)
        return self._content

    def _identity(self) -> int:
        place = "/".join((str(self.folder.target), *self.parts))
        return int.from_bytes(hashlib.blake2b(place.encode(), digest_size=8).digest(), "big") >> 1

    def _stat(self, content: Content) -> os.stat_result:
        seconds, modified_ns = content.modified_ms // 1000, content.modified_ms * 1_000_000
        fields = (stat_modes.S_IFREG | 0o444, self._identity(), _DEVICE, 1, 0, 0, content.size_bytes, seconds, seconds, seconds)
        return os.stat_result(fields, {"st_atime_ns": modified_ns, "st_mtime_ns": modified_ns, "st_ctime_ns": modified_ns})

    def _missing(self, number: int) -> OSError:
        return OSError(number, os.strerror(number), str(self))


def _rebuilt(address: str, sequence: int, parts: tuple[str, ...], content: Content | None) -> BackupPath:
    return BackupPath(PointFolder(open_target(address), sequence), parts, content)
