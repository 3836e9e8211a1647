"""Reads a data folder's ``__cluster_metadata-0``: the newest complete snapshot and the log after it, as one image (KIP-630,
KIP-631).

| in ``__cluster_metadata-0`` | |
|---|---|
| ``<base offset>.log`` | segments, without gaps |
| ``<end offset>-<epoch>.checkpoint`` | a snapshot of everything below its end offset; ignored if incomplete |
| ``quorum-state`` | the last vote; not read |

Beside the folder, ``bootstrap.checkpoint`` contains the initial records of a formatted node; it is used while the log is empty.

The quorum's high watermark is not stored on disk. The whole log counts as committed, as for a node that is the only voter.
`segment_end` determines the end of the last segment. A torn tail is skipped, with a notice. Damage followed by sound batches is
an error that names the offset; Kafka would truncate the log there and lose the topics after it. A tail may also be torn within
its base offset, which no checksum covers. So a last batch also counts as torn if leading bytes of its base offset are replaced by
zeros.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.errors import (
    CorruptBatchError,
    CorruptDataError,
    ProtocolError,
    SegmentChangedError,
    StorageError,
    TidelogError,
    UnsupportedVersionError,
)
from tidelog.formats import names
from tidelog.formats.batch_walk import walk
from tidelog.formats.files import Notices, ReadOnlyFile
from tidelog.formats.paths.file_path import FilePath
from tidelog.metadata.batches import ValueReader, control_message
from tidelog.metadata.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)
from tidelog.metadata.frame import UnknownRecord, decode_record
from tidelog.metadata.image import MetadataImage, Replay
from tidelog.metadata.voters_record import VotersRecord
from tidelog.model import METADATA_TOPIC, NO_TIMESTAMP
from tidelog.reader.segment_end import find_end, last_nonzero
from tidelog.records.batch import HEADER_BYTES, BatchHeader, read_header
from tidelog.wire.codec import Message

METADATA_DIR = f"{METADATA_TOPIC}-0"
ASIDE_DIR = f"{METADATA_TOPIC}-1"
"""The folder that Tidelog writes if the data folder belongs to a Kafka broker that keeps its metadata elsewhere. Kafka refuses to
start if it finds an unexpected METADATA_DIR, but ignores other partitions of the metadata topic.
"""
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
QUORUM_STATE = "quorum-state"

MAX_READS = 5
"""The maximum number of attempts to read the log while its owner changes it."""

_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotFile(NamedTuple):
    """A snapshot's file name. The snapshot replaces all records below `end_offset`; the newest of these records has `epoch`."""

    end_offset: int
    epoch: int
    path: FilePath


class SnapshotContent(NamedTuple):
    """A snapshot's records, its quorum, and the time (epoch ms) of the newest record that it includes."""

    records: list[Message | UnknownRecord]
    control: list[Message]
    timestamp: int


@dataclass
class MetadataLog:
    """The image that a metadata log describes, and the log's end: the end of the snapshot or of the last segment
    (`log_end_offset`).

    `leader_id` is -1 if the log has no LeaderChange record. `voters` come from the newest LeaderChange, or from the newest
    VotersRecord (`dynamic_voters`). `snapshot` is the snapshot that was read. `torn_bytes` is the number of bytes after the last
    complete batch, and `log_bytes` the number of bytes replayed.
    """

    directory: FilePath
    image: MetadataImage = field(default_factory=MetadataImage)
    start_offset: int = 0
    end_offset: int = 0
    log_end_offset: int = 0
    epoch: int = 0
    leader_id: int = -1
    voters: tuple[int, ...] = ()
    kraft_version: int = 0
    dynamic_voters: VotersRecord | None = None
    last_timestamp: int = NO_TIMESTAMP
    snapshot: SnapshotFile | None = None
    segments: list[FilePath] = field(default_factory=list)
    torn_bytes: int = 0
    log_bytes: int = 0
    is_in_transaction: bool = False


def metadata_dir(data_dir: FilePath) -> FilePath:
    """Return the path of a data folder's metadata log: METADATA_DIR, or ASIDE_DIR if only that exists."""
    own, aside = data_dir / METADATA_DIR, data_dir / ASIDE_DIR
    return aside if aside.exists() and not own.exists() else own


def read_metadata_log(data_dir: FilePath, notices: Notices | None = None, *, end_offset: int | None = None) -> MetadataLog | None:
    """Read the metadata log in a data folder; return None if there is none. Segments that begin at or after `end_offset` are
    ignored.

    Raises CorruptDataError if the log is damaged, lacks its beginning, or has a record about something that does not exist;
    UnsupportedVersionError for a newer Kafka's records about topics; StorageError.
    """
    directory = metadata_dir(data_dir)
    for last_try in (*[False] * (MAX_READS - 1), True):
        if not directory.is_dir():
            return None
        try:
            return _read(directory, notices or Notices(), end_offset)
        except SegmentChangedError:
            if last_try:
                raise
    raise AssertionError


METADATA_TOPIC_ID = uuid.UUID(int=1)
"""The topic id of the metadata log, in every cluster (KIP-595)."""


def list_snapshots(directory: FilePath) -> list[SnapshotFile]:
    """Return the snapshots in a metadata log's folder, the newest first. Raises StorageError."""
    found = [_SNAPSHOT_NAME.fullmatch(path.name) for path in _list(directory)]
    return sorted((SnapshotFile(int(m[1]), int(m[2]), directory / m[0]) for m in found if m), reverse=True)


def list_segments(directory: FilePath) -> list[FilePath]:
    """Return the ``.log`` files in a metadata log's folder, by base offset. Raises StorageError."""
    paths = [path for path in _list(directory) if path.suffix == names.LOG_SUFFIX and path.stem.isdecimal()]
    return sorted(paths, key=lambda path: int(path.stem))


def _read(directory: FilePath, notices: Notices, end_offset: int | None) -> MetadataLog:
    log = MetadataLog(directory)
    log.segments = [path for path in list_segments(directory) if end_offset is None or int(path.stem) < end_offset]
    log.start_offset = int(log.segments[0].stem) if log.segments else 0
    _take_snapshot(log, list_snapshots(directory), notices)
    replay, reader, at = Replay(log.image), ValueReader(), log.start_offset
    for number, path in enumerate(log.segments):
        base = int(path.stem)
        if base != at:
            raise CorruptDataError("the metadata log has a gap", path=path, found=f"offset {base}", expected=f"offset {at}")
        with ReadOnlyFile(path) as file:
            size = file.size_bytes()
            try:
                is_checked = number == len(log.segments) - 1 and end_offset is None
                headless = None
                if is_checked:
                    end, headless = _find_end(file, size, base, notices)
                    log.torn_bytes = size - end
                else:
                    end = size
                for header in walk(file, 0, end, crc=not is_checked, min_offset=base):
                    if header.base_offset != at:
                        if is_checked and header.end_position == end and _has_lost_bytes(header.base_offset, at):
                            headless, log.torn_bytes = header, size - header.position
                            break
                        expected = f"offset {at}"
                        raise CorruptBatchError(
                            "a gap", position=header.position, found=f"offset {header.base_offset}", expected=expected
                        )
                    _take_batch(log, replay, reader, file, header)
                    at = header.next_offset
                if headless is not None:
                    _check_headless(headless, at, notices, path)
            except (CorruptDataError, ProtocolError) as error:
                raise _damage(error, path, at) from error
            except UnsupportedVersionError as error:
                raise UnsupportedVersionError(f"{error.message}, at offset {at}", path=path, found=error.found) from error
    log.is_in_transaction = replay.is_in_transaction
    log.log_end_offset = at
    log.end_offset = max(at, log.end_offset)
    bootstrap = directory.parent / BOOTSTRAP_CHECKPOINT
    if log.end_offset == 0 and bootstrap.is_file():
        for record in read_snapshot(bootstrap).records:
            log.image.replay(record)
    return log


def _find_end(file: ReadOnlyFile, size: int, base: int, notices: Notices) -> tuple[int, BatchHeader | None]:
    """Return the last segment's end, and the header of a batch after it (or None) whose offset is too low for the segment."""
    try:
        return find_end(file, size, 0, base, notices).position, None
    except CorruptBatchError as error:
        position = error.position
        if not position:
            raise
        header = read_header(file.read(position, HEADER_BYTES), 0, position, file.path)
        if header.end_position > size or last_nonzero(file, header.end_position, size) is not None:
            raise
        return position, header


def _has_lost_bytes(offset: int, right: int) -> bool:
    """Whether an offset is the expected one except for leading zero bytes."""
    return offset != right and any(offset == right & ((1 << 8 * left) - 1) for left in range(8))


def _check_headless(header: BatchHeader, at: int, notices: Notices, path: FilePath) -> None:
    """Log a notice that the last batch is torn. Raises CorruptBatchError unless the batch's offset can be `at` with leading bytes
    lost.
    """
    if not _has_lost_bytes(header.base_offset, at):
        found = f"offset {header.base_offset}"
        raise CorruptBatchError(
            "a batch has an unexpected offset", position=header.position, found=found, expected=f"offset {at}"
        )
    notices.note(path, f"torn tail: skipped the batch at byte {header.position}, which has lost the first bytes of its offset")


def _take_batch(log: MetadataLog, replay: Replay, reader: ValueReader, file: ReadOnlyFile, header: BatchHeader) -> None:
    if header.leader_epoch < log.epoch and header.last_offset >= log.end_offset:
        raise CorruptBatchError(
            "the leader epoch decreases",
            position=header.position,
            found=f"epoch {header.leader_epoch}",
            expected=f"{log.epoch} or more",
        )
    log.epoch = max(log.epoch, header.leader_epoch)
    log.last_timestamp = max(log.last_timestamp, header.max_timestamp)
    if header.last_offset >= log.end_offset:
        log.log_bytes += header.size
    buffer = file.read(header.position, header.size)
    if len(buffer) < header.size:
        raise SegmentChangedError("a segment was truncated while it was being read", path=file.path, position=header.position)
    if header.is_control:
        _, message = control_message(header, buffer)
        _take_control(log, message)
    elif header.last_offset >= log.end_offset:
        # A snapshot ends between two batches, so reading can start at a batch boundary.
        skipped = log.end_offset - header.base_offset
        for value in reader.values(header, buffer)[max(skipped, 0) :]:
            replay.add(decode_record(value))


def _take_control(log: MetadataLog, message: Message | None) -> None:
    if isinstance(message, LeaderChangeMessage):
        log.leader_id = message.leader_id
        log.voters = tuple(sorted(voter.voter_id for voter in message.voters))
    elif isinstance(message, KRaftVersionRecord):
        log.kraft_version = message.kraft_version
    elif isinstance(message, VotersRecord):
        log.dynamic_voters = message
        log.voters = tuple(sorted(voter.voter_id for voter in message.voters))


def _take_snapshot(log: MetadataLog, snapshots: list[SnapshotFile], notices: Notices) -> None:
    """Load the newest complete snapshot. If it is damaged, load an older snapshot, provided that the log has all records since
    then.
    """
    damage: TidelogError | None = None
    for snapshot in snapshots:
        image = MetadataImage()
        try:
            content = read_snapshot(snapshot.path)
            for record in content.records:
                image.replay(record)
        except TidelogError as error:
            if isinstance(error, SegmentChangedError):
                raise
            damage = damage or error
            continue
        log.image, log.snapshot, log.end_offset, log.epoch = image, snapshot, snapshot.end_offset, snapshot.epoch
        log.last_timestamp = content.timestamp
        for message in content.control:
            _take_control(log, message)
        break
    if log.start_offset > log.end_offset or (damage is not None and not log.segments):
        raise damage or CorruptDataError(
            "the beginning of the metadata log is missing, and no snapshot has it",
            path=log.segments[0],
            found=f"offset {log.start_offset}",
            expected=f"offset {log.end_offset} or less",
        )
    if damage is not None:
        notices.note(snapshots[0].path, f"ignored; an older snapshot and the log after it are read instead: {damage}")


def read_snapshot(path: FilePath) -> SnapshotContent:
    """Read a snapshot.

    Raises CorruptDataError if the snapshot is incomplete, SegmentChangedError if it is gone, StorageError.
    """
    records: list[Message | UnknownRecord] = []
    control: list[Message] = []
    timestamp, is_whole, reader, at = NO_TIMESTAMP, False, ValueReader(), 0
    with ReadOnlyFile(path, fallbacks=()) as file:
        try:
            size = file.size_bytes()
            for header in walk(file, 0, size, crc=True):
                if header.base_offset != at:
                    raise CorruptBatchError("a gap", position=header.position, found=header.base_offset, expected=at)
                buffer, at = file.read(header.position, header.size), header.next_offset
                if not header.is_control:
                    records.extend(map(decode_record, reader.values(header, buffer)))
                    continue
                _, message = control_message(header, buffer)
                if isinstance(message, SnapshotHeaderRecord):
                    timestamp = message.last_contained_log_timestamp
                elif isinstance(message, KRaftVersionRecord | VotersRecord):
                    control.append(message)
                is_whole = isinstance(message, SnapshotFooterRecord)
        except TidelogError as error:
            if isinstance(error, SegmentChangedError | StorageError):
                raise
            raise CorruptDataError(
                f"a metadata snapshot is damaged at offset {at}: {error.message}", path=path, position=error.position
            ) from error
    if not is_whole:
        raise CorruptDataError("a metadata snapshot is incomplete: it has no footer", path=path, position=size)
    return SnapshotContent(records, control, timestamp)


def _damage(error: CorruptDataError | ProtocolError, path: FilePath, offset: int) -> CorruptDataError:
    return CorruptDataError(
        f"the metadata log is damaged at offset {offset}: {error.message}",
        path=path,
        position=None if isinstance(error, ProtocolError) else error.position,
        found=error.found,
        expected=error.expected,
    )


def _list(directory: FilePath) -> Iterator[FilePath]:
    try:
        return iter(sorted(directory.iterdir()))
    except OSError as error:
        raise StorageError(f"cannot list a folder: {error.strerror}", path=directory) from error
