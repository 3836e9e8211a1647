"""Writes the metadata log of a data folder, as its only writer: image, changes, snapshots.

A change is a list of records. `append` applies it to the image at once, and queues it for the next `flush`. A flush writes all
queued changes with one append and one fsync, on any thread. The changes of one turn of a broker's loop thus share a flush::

    change = store.append(records)     on the owner's thread; changes the image
    store.flush()                      on any thread; sets `change.is_durable` or `change.error`

| file | |
|---|---|
| ``__cluster_metadata-0/<base>.log`` | appended to; a new file begins with each snapshot |
| ``…/<end>-<epoch>.checkpoint`` | a snapshot, once the log has grown; the log below it is removed |
| ``…/quorum-state`` | replaced at each new epoch |

As with Kafka's leaders, the first change after a start begins a new epoch. It is one above the epochs of the log and of
``quorum-state``, and recorded by a LeaderChange. A start that changes nothing writes nothing.

A failed write leaves the log unchanged: the file is truncated again, and `restore` reverts the image to the state on disk. A torn
tail is truncated before the first append. If damage is followed by sound batches, `open` raises an error, and nothing is
truncated.

A large change is written as several batches in a metadata transaction (KIP-868), so that it is atomic.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError, StorageError, TidelogError
from tidelog.formats import names
from tidelog.formats.checkpoints import sync_directory
from tidelog.formats.files import Notices
from tidelog.formats.paths.file_path import local_path
from tidelog.metadata.batches import build_batch, build_control_batch, build_snapshot
from tidelog.metadata.control_records import KRaftVersionRecord, LeaderChangeMessage, Voter
from tidelog.metadata.frame import check_record, encode_record
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from tidelog.metadata.versions import LEVEL_3_9, METADATA_VERSION, record_version
from tidelog.reader.metadata_log import ASIDE_DIR, MetadataLog, list_segments, list_snapshots, metadata_dir, read_metadata_log
from tidelog.storage.metadata.quorum_state import read_quorum_state, write_quorum_state
from tidelog.wire.fields import ZERO_UUID, Message

logger = logging.getLogger("tidelog.storage")

MAX_BATCH_RECORDS = 5000
"""The most records of a batch, as in Kafka's controller."""

SNAPSHOT_BYTES = 4 << 20
"""A snapshot is due when the log has grown by this many bytes since the last one; after a larger snapshot, by more."""

TRANSACTIONS_LEVEL = 13
"""The level of metadata.version (3.6-IV1) that supports metadata transactions."""

_TEMPORARY_SUFFIX = ".part"
_LEFTOVERS = (f".checkpoint{_TEMPORARY_SUFFIX}", ".checkpoint.deleted")
"""Suffixes of unfinished or deleted snapshots, including Kafka's."""


class Change:
    """Records to be written. After a flush the change is durable, or has failed with an error."""

    __slots__ = ("error", "is_durable", "records")

    def __init__(self, records: Sequence[Message]) -> None:
        self.records = records
        self.is_durable = False
        self.error: StorageError | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the change is on disk, or could not be written."""
        return self.is_durable or self.error is not None


class MetadataStore:
    """The writer of the metadata log. Call all methods except `flush`, `settle` and `take_snapshot` on the owner's thread. The
    owner holds the folder's lock.
    """

    def __init__(
        self, directory: Path, log: MetadataLog, node_id: int, directory_id: uuid.UUID, clock: Clock, *, is_new: bool
    ) -> None:
        """For `open` only."""
        self.image: MetadataImage
        self._epoch: int
        self._next_offset: int
        self._bytes_behind_snapshot: int
        self._snapshot_bytes: int
        self._preamble: list[bytes]
        """Records to be written before the first change."""
        self.directory = directory
        self.node_id = node_id
        self.directory_id = directory_id
        """The id of the directory in which new partitions are placed; zero if the folder has no id."""
        self.is_new = is_new
        self._folder = local_path(log.directory)
        self._clock = clock
        self._is_stale = False
        self._take(log)
        self.on_restore: Callable[[], None] = lambda: None
        """Called when the image has been reverted."""
        self.on_written: Callable[[], object] = lambda: None
        """Called on the flushing thread when changes have reached the disk."""
        self._path: Path | None = None
        """The segment to append to, once a new epoch has begun. It is opened for each append, to save descriptors."""
        self._size = 0
        self._waiting: list[Change] = []
        self._guard = threading.Lock()
        """Guards the queue of changes; held only briefly."""
        self._writing = threading.RLock()
        """Held while the file is written."""

    @classmethod
    def open(
        cls, directory: Path, node_id: int, directory_id: uuid.UUID | None, clock: Clock, *, is_kafkas: bool = False
    ) -> MetadataStore:
        """Read the folder's metadata log, if it exists. Nothing is written before the first change.

        With `is_kafkas`, a new log is created in ASIDE_DIR, because the folder is of a Kafka broker whose metadata is elsewhere.
        Raises InvalidArgumentError if the log has other voters: only they may write to it; CorruptDataError if it is damaged,
        UnsupportedVersionError if it is from a newer Kafka, StorageError.
        """
        found = read_metadata_log(directory, Notices())
        is_new = found is None or found.end_offset == 0
        log = found or MetadataLog(directory / ASIDE_DIR if is_kafkas else metadata_dir(directory))
        voters = set(log.voters)
        state = read_quorum_state(local_path(log.directory)) if found is not None else None
        if state is not None:
            log.epoch = max(log.epoch, state.leader_epoch)
            voters |= set(state.voters or ())
        is_heir = state is not None and list(state.voters or ()) == [node_id] and len(log.voters) <= 1
        if len(voters) > 1 and not is_heir:  # After an interrupted start the log still names the node before.
            raise InvalidArgumentError(
                "this folder's metadata log belongs to a quorum, and only its members may write to it. To serve "
                "a copy of this folder, move __cluster_metadata-0 out of the copy: the topics' settings are lost with it",
                path=log.directory,
                found=f"voters {', '.join(map(str, sorted(voters)))}",
                expected=f"{node_id} alone",
            )
        return cls(directory, log, node_id, directory_id or ZERO_UUID, clock, is_new=is_new)

    # --- changes

    def append(self, records: Sequence[Message]) -> Change:
        """Apply records to the image, and queue them for the next flush. The caller must not change them afterwards.

        Raises InvalidArgumentError for a record that cannot be written; nothing has changed then. Raises StorageError if the
        image differs from the disk and cannot be reverted.
        """
        change = Change(records)
        while True:
            if self._is_stale:
                self.restore()
            level = self.image.metadata_version
            for record in records:
                check_record(record, record_version(type(record), level))
            try:
                for record in records:
                    self.image.replay(record)
            except BaseException as error:  # The image may have a part of this change, on top of other queued changes.
                self._refuse([], error)
                with suppress(TidelogError):  # It is retried before the next change.
                    self.restore()
                raise
            with self._guard:
                # Otherwise a flush on another thread has failed meanwhile, and this change depends on failed ones.
                if not self._is_stale:
                    self._waiting.append(change)
                    return change

    def commit(self, records: Sequence[Message]) -> None:
        """Append records and wait until they are on disk. Raises StorageError; nothing has changed then."""
        if records:
            self.settle(self.append(records))

    def settle(self, change: Change) -> None:
        """Wait until a change is on disk. Raises StorageError; the change has no effect then."""
        while not change.is_settled:
            with suppress(StorageError):  # Each change has its own error.
                self.flush()
        self.check(change)

    def check(self, change: Change) -> None:
        """Raise StorageError if a change failed, after reverting the image. Call it on the owner's thread, after a flush."""
        if change.error is not None:
            with suppress(TidelogError):  # It is retried before the next change.
                self.restore()
            raise change.error

    def begin(self) -> None:
        """Write the log of a new folder, although nothing has changed. Raises StorageError."""
        with self._writing:
            if self._path is None:
                try:
                    self._begin_epoch()
                except OSError as error:
                    raise self._refused(error) from error

    @property
    def log_folder(self) -> Path:
        """The folder of the log."""
        return self._folder

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._next_offset

    @property
    def epoch(self) -> int:
        """The epoch in which records are written."""
        return self._epoch

    @property
    def is_waiting(self) -> bool:
        """Whether changes are queued for a flush."""
        return bool(self._waiting)

    def flush(self) -> None:
        """Write and sync all queued changes. Afterwards all of them are settled, even after an error. Any thread may call it.
        Raises StorageError.
        """
        with self._writing:
            with self._guard:
                changes, self._waiting = self._waiting, []
            if not changes:
                return
            try:
                self._write(changes)
            except BaseException as error:
                refusal = self._refuse(changes, error)
                if not isinstance(error, Exception):
                    raise
                raise refusal from error
            for change in changes:
                change.is_durable = True
        self.on_written()

    def restore(self) -> None:
        """Revert the image to the state on disk, after a failed change. Raises what `open` raises."""
        with self._writing:
            if not self._is_stale:
                return
            self._path = None
            log = read_metadata_log(self.directory) or MetadataLog(self._folder)
            log.epoch = max(log.epoch, self._epoch)
            self._take(log)
            self._is_stale = False
        self.on_restore()

    # --- snapshots

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the log has grown enough for a snapshot."""
        return self._bytes_behind_snapshot > max(SNAPSHOT_BYTES, 2 * self._snapshot_bytes)

    def take_snapshot(self) -> None:
        """Write the state on disk as a snapshot, and remove the log below it. Any thread may call it. Raises StorageError."""
        with self._writing:
            if self._bytes_behind_snapshot == 0:
                return
            if self._path is None:
                self._begin_epoch()
            end_offset, before = self._next_offset, self._bytes_behind_snapshot
            try:
                self._begin_segment()
            except OSError as error:
                raise self._refused(error) from error
        log = read_metadata_log(self.directory, end_offset=end_offset)
        assert log is not None
        assert log.end_offset == end_offset
        control: list[Message] = []
        if log.dynamic_voters is not None:
            control = [KRaftVersionRecord(0, log.kraft_version), log.dynamic_voters]
        epoch = log.epoch
        target = self._folder / f"{end_offset:020}-{epoch:010}.checkpoint"
        temporary = Path(f"{target}{_TEMPORARY_SUFFIX}")
        try:
            with temporary.open("wb") as file:
                file.writelines(build_snapshot(log.image.to_values(), epoch, log.last_timestamp, control))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
            sync_directory(self._folder)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise self._refused(error) from error
        with self._writing:
            self._bytes_behind_snapshot -= before
            self._snapshot_bytes = target.stat().st_size
        self._remove_below(end_offset)
        logger.info("%s: wrote a metadata snapshot at offset %d, with %d topics", self._folder, end_offset, len(log.image.topics))

    def _remove_below(self, end_offset: int) -> None:
        """Remove what the newest snapshot replaces, and leftovers of crashes. Files that cannot be removed do no harm."""
        old = [local_path(path) for path in list_segments(self._folder) if int(path.stem) < end_offset]
        paths = [local_path(snapshot.path) for snapshot in list_snapshots(self._folder) if snapshot.end_offset < end_offset]
        beside = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX, names.SNAPSHOT_SUFFIX)
        begun = [path for suffix in _LEFTOVERS for path in self._folder.glob(f"*{suffix}")]
        for path in (*old, *(log.with_suffix(suffix) for log in old for suffix in beside), *paths, *begun):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("%s: cannot remove the file, which is no longer needed: %s", path, error.strerror)

    # --- inside

    def _refuse(self, changes: Sequence[Change], error: BaseException) -> StorageError:
        """Fail `changes` and all queued changes, because later changes depend on earlier ones. The image is stale afterwards."""
        refusal = error if isinstance(error, StorageError) else self._refused(error)
        with self._guard:
            later, self._waiting = self._waiting, []
            self._is_stale = True
        for change in (*changes, *later):
            change.error = refusal
        return refusal

    def _write(self, changes: Sequence[Change]) -> None:
        if self._path is None:
            self._begin_epoch()
        data, offset = [], self._next_offset
        for values in self._in_batches(changes):
            data.append(build_batch(values, offset, self._epoch, self._clock.now_ms()))
            offset += len(values)
        self._append(data)
        self._next_offset = offset

    def _in_batches(self, changes: Sequence[Change]) -> Iterator[list[bytes]]:
        """Yield records in batches. Changes of one flush share batches; a change that needs several batches is a transaction."""
        level = self.image.metadata_version
        batch: list[bytes] = []
        for change in changes:
            values = [encode_record(record, record_version(type(record), level)) for record in change.records]
            if len(values) > MAX_BATCH_RECORDS and level >= TRANSACTIONS_LEVEL:
                values.insert(0, encode_record(BeginTransactionRecord("a change of many records"), 0))
                values.append(encode_record(EndTransactionRecord(), 0))
            if batch and len(batch) + len(values) > MAX_BATCH_RECORDS:
                yield batch
                batch = []
            batch += values
            while len(batch) > MAX_BATCH_RECORDS:
                yield batch[:MAX_BATCH_RECORDS]
                batch = batch[MAX_BATCH_RECORDS:]
        if batch:
            yield batch

    def _append(self, batches: Iterable[bytes]) -> None:
        """Write batches after the durable end, and sync them. Raises OSError; the file is then truncated, if possible.

        Each batch is on disk before the next is written, so that after a power failure no sound batch follows a torn one.
        """
        assert self._path is not None
        position = self._size
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            for batch in batches:
                rest = memoryview(batch)
                while rest:
                    written = os.pwrite(fd, rest, position)
                    rest, position = rest[written:], position + written
                os.fsync(fd)
        except BaseException:
            # Bytes that may have been written must not count: the next append or start overwrites them.
            with suppress(OSError):
                os.ftruncate(fd, self._size)
                os.fsync(fd)
            raise
        finally:
            os.close(fd)
        self._bytes_behind_snapshot += position - self._size
        self._size = position

    def _begin_epoch(self) -> None:
        """Open the last segment for appending, without its torn tail, and become the leader. Raises OSError."""
        self._folder.mkdir(exist_ok=True)
        segments = list(map(local_path, self._log.segments))
        if segments and self._log.log_end_offset == self._next_offset:
            self._open(segments[-1], segments[-1].stat().st_size - self._log.torn_bytes)
        else:
            # Without segments, or with a newer snapshot, the log continues where the snapshot ends.
            for path in segments:
                path.unlink()
            self._open(self._segment_path(), 0)
        epoch, now_ms, version = self._epoch + 1, self._clock.now_ms(), min(self._log.kraft_version, 1)
        voters = [Voter(self.node_id, self.directory_id)]
        message = LeaderChangeMessage(version, self.node_id, voters, voters)
        data = [build_control_batch(message, self._next_offset, epoch, now_ms, version)]
        if self._preamble:
            data.append(build_batch(self._preamble, self._next_offset + 1, epoch, now_ms))
        try:
            write_quorum_state(self._folder, self.node_id, epoch, kraft_version=self._log.kraft_version)
            self._append(data)
            for directory in (self._folder, self.directory):
                sync_directory(directory)
        except BaseException:
            self._path = None
            raise
        self._next_offset += 1 + len(self._preamble)
        self._epoch = epoch
        self._preamble = []

    def _begin_segment(self) -> None:
        """Begin a new segment, to which later batches are appended. Raises OSError."""
        self._open(self._segment_path(), 0)
        sync_directory(self._folder)

    def _open(self, path: Path, size: int) -> None:
        """Append to this segment from now on, after its first `size` bytes. Later bytes are truncated."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)
        self._path, self._size = path, size

    def _segment_path(self) -> Path:
        return self._folder / names.file_name(self._next_offset, names.LOG_SUFFIX)

    def _take(self, log: MetadataLog) -> None:
        """Start from the state on disk. Records that a log must have, but this one lacks, are written before the first change."""
        self.image, self._log, self._preamble = log.image, log, []
        self._epoch, self._next_offset, self._bytes_behind_snapshot = log.epoch, log.end_offset, log.log_bytes
        self._snapshot_bytes = 0 if log.snapshot is None else log.snapshot.path.stat().st_size
        if log.is_in_transaction:
            self._preamble.append(encode_record(AbortTransactionRecord("its leader is gone"), 0))
        if METADATA_VERSION not in log.image.features:
            log.image.replay(FeatureLevelRecord(METADATA_VERSION, LEVEL_3_9))
            self._preamble.append(encode_record(FeatureLevelRecord(METADATA_VERSION, LEVEL_3_9), 0))
        if log.end_offset == 0:
            # The initial values of a formatted node no longer count once the log has a record.
            self._preamble = list(log.image.to_values())

    def _refused(self, error: BaseException) -> StorageError:
        reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        return StorageError(f"cannot write the metadata log: {reason}", path=self._folder)
