"""Writes batches to many partitions of a data folder atomically, without a running broker.

    with StagedWrite(directory, clock, writer="sink") as write:
        if write.note != mine:                        # what this writer committed last
            write.begin(keys)
            write.append(keys[0], batch)
            write.commit(mine)

Each partition's batches become new segments after the existing ones, so that no existing file changes. The storage engine writes
the segments, with its indexes, limits and formats. `write_journal` makes them all visible at once, and handles crashes.

Batches get the partition's latest leader epoch.

Writers wait for each other (`TURN_FILE`), so two streams can share a folder. They never wait for a broker.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.errors import DataDirNotFoundError, LogOfflineError, StorageError, UnknownTopicOrPartitionError
from tidelog.formats import names
from tidelog.formats.checkpoints import sync_directory, sync_file
from tidelog.formats.dir_lock import DirLock
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.formats.paths.file_path import local_path
from tidelog.model import TopicPartition
from tidelog.records.batch import iter_headers
from tidelog.records.patch import set_base_offset_and_epoch
from tidelog.storage.folder import data_folder
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.folder.write_journal import (
    COMMITTED_FILE,
    INDEX_SUFFIXES,
    RESTAGING,
    STAGING,
    STAGING_FILE,
    Journal,
    finish_committed,
    finish_pending,
    read_journal,
    staged_folder,
    undo_staging,
    writer_file,
)
from tidelog.storage.loading.loader import load
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.topics.new_topics import finish_interrupted
from tidelog.storage.topics.topic import Topic

TURN_FILE = "tidelog-write.lock"
"""Locked by the writer whose turn it is; the file itself is kept."""

_MAGIC = 16


class StagedWrite:
    """One atomic write to many partitions. A context manager; leaving it without `commit` discards everything.

    `writer` is a name under which `note` is stored for the next write; None stores nothing. Entering raises DataDirNotFoundError,
    StorageError if a broker or an import holds the folder, CorruptCheckpointError.
    """

    def __init__(self, directory: Path, clock: Clock, *, writer: str | None = None) -> None:
        self.directory = directory
        self.note: str | None = None
        """The note of this writer's last commit, None if there was none."""
        self._writer = writer
        self._clock = clock
        self._held = ExitStack()
        self._stager: _Stager | None = None
        self._is_committed = False

    def __enter__(self) -> StagedWrite:
        if not self.directory.is_dir():
            raise DataDirNotFoundError("no such folder", path=self.directory)
        try:
            self._held.enter_context(writers_turn(self.directory))
            self._held.enter_context(DirLock(self.directory))
            finish_interrupted_writes(self.directory, self._clock)
            data_folder.raise_open_files_limit()
            if self._writer is not None:
                last = read_journal(writer_file(self.directory, self._writer))
                self.note = None if last is None else last.note
            self._stager = _Stager(self.directory, self._clock)
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._stager is not None and not self._is_committed:
                self._stager.abandon()
        finally:
            self._held.close()
        if isinstance(error, LogOfflineError) and isinstance(error.__cause__, StorageError):
            raise error.__cause__  # No partition can be offline here.

    def begin(self, keys: Iterable[TopicPartition]) -> None:
        """Declare which partitions will be written. Call it once.

        Raises UnknownTopicOrPartitionError for a partition that does not exist, and StorageError, also for a log that ends inside
        a batch.
        """
        assert self._stager is not None
        self._stager.begin(keys)

    def append(self, key: TopicPartition, batch: bytearray) -> None:
        """Append one v2 batch, which is changed in place. Raises what `PartitionLog.append_as_leader` raises."""
        assert self._stager is not None
        self._stager.append(key, batch)

    def commit(self, note: str | None = None) -> None:
        """Make all appended batches visible, durably. Does nothing if nothing was appended. Raises StorageError.

        An error before the commit leaves nothing behind; after a later error, the next writer or broker finishes the write.
        """
        assert self._stager is not None
        if not self._stager.logs:
            return
        self._stager.finish()
        journal = Journal(self._writer, note, tuple(self._stager.logs))
        # From here on nothing is undone: if the sync fails, the rename may or may not be on disk.
        self._is_committed = True
        try:
            journal.write(self.directory / STAGING_FILE)
            (self.directory / STAGING_FILE).replace(self.directory / COMMITTED_FILE)
            sync_directory(self.directory)
        except OSError as error:
            raise StorageError(f"cannot commit a write: {error.strerror}", path=self.directory) from error
        finish_committed(self.directory, journal)
        self.note = note


class _Stager:
    """Creates the logs in staging folders, and appends to them."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._directory = directory
        self._clock = clock
        self._scheduler = Scheduler(clock)
        self._topics: dict[str, Topic] = read_topics(directory)
        self._journal: Journal | None = None

    def begin(self, keys: Iterable[TopicPartition]) -> None:
        folders = {key: self._directory / names.log_dir_name(*key) for key in keys}
        for key, folder in folders.items():
            if not folder.is_dir():
                raise UnknownTopicOrPartitionError(f"topic {key.topic!r} has no partition {key.partition}", path=self._directory)
        # The folder is recorded before it exists: otherwise a crash would leave it behind.
        self._journal = Journal(None, None, tuple(folders))
        self._journal.write(self._directory / STAGING_FILE)
        for key, folder in folders.items():
            topic = self._topics.get(key.topic)
            config = LogConfig.from_properties({} if topic is None else topic.properties)
            self.logs[key] = stage(folder, STAGING, log_end(folder), config, self._clock, self._scheduler)

    def append(self, key: TopicPartition, batch: bytearray) -> None:
        log = self.logs[key]
        epoch = log.leader_epochs.latest_epoch
        log.append_as_leader(batch, 0 if epoch is None else epoch)

    def finish(self) -> None:
        """Close the logs cleanly, with every file and folder on disk. Raises StorageError."""
        # Rolled segments wait here for their flush; if it fails, the log is offline, which is reported below.
        self._scheduler.shutdown()
        for log in self.logs.values():
            close(log)

    def abandon(self) -> None:
        self._scheduler.shutdown()
        for log in self.logs.values():
            log.close_handlers()
        if self._journal is not None:
            undo_staging(self._directory, self._journal)


def finish_interrupted_writes(directory: Path, clock: Clock) -> None:
    """Clean up after killed writers of topics and batches. The caller must hold the folder's lock.

    Raises StorageError, CorruptDataError.
    """
    finish_interrupted(directory)

    def restage(folder: Path, staged: Path, end_offset: int) -> None:
        scheduler = Scheduler(clock)
        key = names.parse_topic_partition_name(folder.name)
        topic = read_topics(directory).get(key.topic)
        config = LogConfig.from_properties({} if topic is None else topic.properties)
        # Records keep their timestamps.
        log = stage(folder, RESTAGING, end_offset, replace(config, message_timestamp_type="CreateTime"), clock, scheduler)
        epoch = log.leader_epochs.latest_epoch
        for batch in _batches(staged):
            if batch[_MAGIC] == 2:
                set_base_offset_and_epoch(batch, 0, 0)  # These are the values of the caller's batch.
            log.append_as_leader(batch, 0 if epoch is None else epoch)
        scheduler.shutdown()
        close(log)

    finish_pending(directory, restage)


def log_end(folder: Path) -> int:
    """Return the end offset of a partition's log, after syncing everything below it. Raises StorageError if the log ends inside a
    batch.
    """
    from tidelog.reader.log import Log  # A broker only checks for unfinished writes, so it starts without this import.

    with Log.open(folder) as log:
        if not log.segments:
            return log.log_end_offset
        last = log.segments[-1]
        end_position = last.valid_end().position
        if end_position < last.size_bytes:
            raise StorageError(
                "the log ends inside a batch: its writer was killed; start a broker on the folder once to recover it",
                path=last.log_path,
                position=end_position,
            )
        sync_file(local_path(last.log_path))
        return log.log_end_offset


def stage(partition: Path, staging: str, end_offset: int, config: LogConfig, clock: Clock, scheduler: Scheduler) -> PartitionLog:
    """Replace the partition's staging folder, and return an empty log in it that starts at an offset. Raises StorageError."""
    folder = staged_folder(partition, staging)
    try:
        if folder.parent.exists():
            shutil.rmtree(folder.parent)
        folder.mkdir(parents=True)
    except OSError as error:
        raise StorageError(f"cannot create a folder: {error.strerror}", path=folder) from error
    log = load(folder, config, clock, scheduler, had_clean_shutdown=True, log_start_offset=end_offset)
    latest = LeaderEpochs.read(partition / names.LEADER_EPOCH_CHECKPOINT).latest
    log.maybe_assign_epoch_start_offset(0 if latest is None else latest.epoch, end_offset)
    return log


def close(log: PartitionLog) -> None:
    """Close a staged log, with everything synced to disk. Raises StorageError."""
    log.flush(force_active=True)
    log.close()
    try:
        for path in log.directory.iterdir():
            if path.suffix in (names.LOG_SUFFIX, *INDEX_SUFFIXES):
                sync_file(path)
        for folder in (log.directory, log.directory.parent, log.directory.parent.parent):
            sync_directory(folder)
    except OSError as error:
        raise StorageError(f"cannot sync a staged log: {error.strerror}", path=log.directory) from error


@contextmanager
def writers_turn(directory: Path) -> Iterator[None]:
    """Wait until no other process writes into the folder, then lock it. The lock ends with the process. Raises StorageError."""
    path = directory / TURN_FILE
    fd = -1
    try:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            # Not a POSIX lock like the folder's, which does not exclude threads of the same process.
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as error:
            raise StorageError(f"cannot lock the folder: {error.strerror}", path=path) from error
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def _batches(staged: Path) -> Iterable[bytearray]:
    """Yield the batches of staged segments, with one segment in memory at a time."""
    for path in sorted(staged.glob(f"*{names.LOG_SUFFIX}")):
        data = memoryview(path.read_bytes())
        for header in iter_headers(data):
            yield bytearray(data[header.position : header.position + header.size])
