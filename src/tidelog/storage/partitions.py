"""The partitions of a data folder: loading, creation, removal, closing (spec §6.1, §6.4, §6.5).

| a partition is | in | because |
|---|---|---|
| served | `logs` | it was loaded |
| offline, readable | `logs`, with an `offline_reason` | an I/O error occurred later; acknowledged records can be read |
| offline | `failed`, with the reason | it could not be loaded, or its folder could not be removed |

`TRANSITIONS` has the allowed state changes.

An error affects only its partition, and is reported once. `loading.partition_loader` loads partitions.

`log_manager` owns one `Partitions`; `topic_lifecycle` creates and removes partitions in it.
"""

from __future__ import annotations

import gc
import logging
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.errors import LogOfflineError, StorageError, UnknownTopicOrPartitionError
from tidelog.formats import names
from tidelog.model import TopicPartition, is_hidden
from tidelog.storage.close_logs import close_logs
from tidelog.storage.folder.dir_checkpoints import DirCheckpoints
from tidelog.storage.loading.loader import RecoveryProgress
from tidelog.storage.loading.partition_loader import PartitionFolder, PartitionLoader
from tidelog.storage.partition.log_events import NO_EVENTS, LogEvents
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.producers.producer_state_manager import PRODUCER_ID_EXPIRATION_MS
from tidelog.storage.scheduler import Rest, Scheduler
from tidelog.transitions import Transitions, checked

logger = logging.getLogger("tidelog.storage")


_NUMBER = attrgetter("partition")

LOGS_A_STEP = 256
"""How many created partitions are checked before other work runs."""

DELETION_MARK = b"deletes".hex()
"""The beginning of the ids of folders that a deletion has renamed. If the topic is still in the metadata, the deletion was
interrupted.
"""


class PartitionState(Enum):
    """The state of an existing partition: see the module's docstring."""

    SERVED = "served"
    READABLE = "offline, readable"
    OFFLINE = "offline"


TRANSITIONS: Final[Transitions[PartitionState | None]] = {
    None: {
        PartitionState.SERVED: "it is loaded or created",
        PartitionState.OFFLINE: "it cannot be loaded or created; its folder cannot be renamed for deletion",
    },
    PartitionState.SERVED: {
        PartitionState.READABLE: "the disk fails during a write",
        None: "it is deleted",
    },
    PartitionState.READABLE: {
        PartitionState.SERVED: "it is loaded again, and recovered",
        None: "it is deleted",
    },
    PartitionState.OFFLINE: {
        PartitionState.SERVED: "it is loaded again, and recovered",
        None: "it is deleted",
    },
}


class LoadProgress(NamedTuple):
    """The progress of a start."""

    partitions_done: int
    partitions: int
    loaded: TopicPartition
    is_offline: bool


class Removal(NamedTuple):
    """A folder that was renamed for removal, and how long readers may still use it."""

    directory: Path
    delay_ms: int


Progress = Callable[[LoadProgress], None]


class Partitions:
    """All partitions of one data folder. `events` gets the events of logs, `recovery_progress` the progress of a recovery."""

    events: LogEvents = NO_EVENTS

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        scheduler: Scheduler,
        checkpoints: DirCheckpoints,
        *,
        had_clean_shutdown: bool,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        recovery_progress: Callable[[RecoveryProgress], None] | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        self.directory = directory
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.changed: set[str] = set()
        """Topics with a partition that was added, removed, went offline or was loaded again; a reader clears it."""
        self.failed: dict[TopicPartition, str] = {}
        self.loader = PartitionLoader(
            clock,
            scheduler,
            checkpoints,
            had_clean_shutdown=had_clean_shutdown,
            producer_id_expiration_ms=producer_id_expiration_ms,
            recovery_progress=recovery_progress,
            jitter=jitter,
        )
        self._scheduler = scheduler
        self._checkpoints = checkpoints
        self._loaded_ends: dict[TopicPartition, int] = {}
        self._by_topic: dict[str, dict[TopicPartition, None]] = {}
        """Each topic's partitions, in the order in which they came: sorting thousands that are nearly in order is fast."""
        self._of_the_disk: set[TopicPartition] = set()
        """The partitions in `failed` that may come back once the disk works again."""

    # --- asking

    def all_keys(self) -> list[TopicPartition]:
        """Return every partition that exists, offline ones included, in order."""
        return sorted({*self.logs, *self.failed})

    def keys_of(self, topic: str) -> list[TopicPartition]:
        """Return a topic's partitions, in order."""
        return sorted(self._by_topic.get(topic, ()), key=_NUMBER)

    def topics(self) -> list[str]:
        """Return the names of all topics with a partition here."""
        return list(self._by_topic)

    def get(self, key: TopicPartition) -> PartitionLog:
        """Return a log, even one with an I/O error. Raises UnknownTopicOrPartitionError, LogOfflineError with the reason."""
        log = self.logs.get(key)
        if log is not None:
            return log
        if key in self.failed:
            raise LogOfflineError(f"the partition is offline: {self.failed[key]}", path=self.directory_of(key))
        raise UnknownTopicOrPartitionError(f"no partition {key.partition} of topic {key.topic!r}", path=self.directory)

    def state(self, key: TopicPartition) -> PartitionState | None:
        """Return a partition's state, None if it does not exist."""
        if key in self.failed:
            return PartitionState.OFFLINE
        log = self.logs.get(key)
        return None if log is None else PartitionState.READABLE if log.is_offline else PartitionState.SERVED

    def _check(self, key: TopicPartition, after: PartitionState) -> None:
        checked(TRANSITIONS, self.state(key), after, f"partition {key.topic}-{key.partition}")

    def online(self) -> list[tuple[TopicPartition, PartitionLog]]:
        """Return the writable logs."""
        return [(key, log) for key, log in self.logs.items() if not log.is_offline]

    def offline(self) -> dict[TopicPartition, str]:
        """Return the partitions that cannot be written, and why."""
        reasons = {key: log.offline_reason for key, log in self.logs.items() if log.offline_reason is not None}
        return dict(sorted({**reasons, **self.failed}.items()))

    def was_appended_to(self, key: TopicPartition) -> bool:
        """Whether a log's end has moved since it was loaded."""
        return self.logs[key].log_end_offset != self._loaded_ends.get(key)

    def directory_of(self, key: TopicPartition) -> Path:
        """Return the path of a partition's folder, whether it exists or not."""
        return self.directory / names.log_dir_name(*key)

    # --- loading

    def load_all(self, folders: Iterable[PartitionFolder], threads: int, progress: Progress | None) -> None:
        """Load partitions, on several threads if they must be recovered. Partitions that cannot be loaded are added to
        `failed`.
        """
        waiting = list(folders)
        is_quick = self.loader.had_clean_shutdown
        with (
            _without_garbage_collection() if is_quick else nullcontext(),
            self.loader.loaded(waiting, 1 if is_quick else threads) as results,
        ):
            for done, (folder, result) in enumerate(zip(waiting, results, strict=True), start=1):
                if isinstance(result, PartitionLog):
                    self._add(folder.key, result)
                else:
                    self.fail(folder.key, str(result))
                    if isinstance(result, OSError):
                        self._of_the_disk.add(folder.key)
                if progress is not None:
                    progress(LoadProgress(done, len(waiting), folder.key, not isinstance(result, PartitionLog)))

    def reload(self, folder: PartitionFolder) -> PartitionLog:
        """Load an offline partition again, with recovery. Raises what loading raises; the partition stays offline then."""
        old = self.logs.get(folder.key)
        if old is not None and not old.is_offline:
            return old
        log = self.loader.loading_again(folder, old)()
        self.put_into_place(folder.key, log)
        return log

    def put_into_place(self, key: TopicPartition, log: PartitionLog) -> None:
        """Make a newly loaded log the partition's log."""
        old = self.logs.get(key)
        self._add(key, log)
        if old is not None:
            old.close_handlers()

    def recoverable(self) -> set[TopicPartition]:
        """Return the partitions that are offline because of an operating system error: they may come back."""
        return {key for key in (*self.logs, *self._of_the_disk) if self.is_recoverable(key)}

    def is_recoverable(self, key: TopicPartition) -> bool:
        """Whether a partition is one of `recoverable`."""
        log = self.logs.get(key)
        return (log is not None and log.is_offline) or key in self._of_the_disk

    def create(self, folder: PartitionFolder) -> None:
        """Create a partition's folder with an empty log. Raises StorageError, and leaves nothing behind then."""
        self._add(folder.key, self.loader.made(folder))

    def adding(self, logs: Sequence[PartitionLog]) -> Iterator[None]:
        """Publish newly created partitions, all at once in the last step. Other work may run between the steps."""
        by_key, ends, by_topic = {}, {}, dict[str, dict[TopicPartition, None]]()
        for number, log in enumerate(logs, 1):
            key = log.topic_partition
            self._check(key, PartitionState.SERVED)
            log.events = self.events
            by_key[key], ends[key] = log, log.log_end_offset
            by_topic.setdefault(key.topic, {})[key] = None
            if not number % LOGS_A_STEP:
                yield
        for key in self.failed.keys() & by_key.keys():
            del self.failed[key]
        self._of_the_disk.difference_update(by_key)
        self.logs.update(by_key)
        self._loaded_ends.update(ends)
        for topic, keys in by_topic.items():
            self._by_topic.setdefault(topic, {}).update(keys)
        self.changed.update(by_topic)

    def _add(self, key: TopicPartition, log: PartitionLog) -> None:
        self._check(key, PartitionState.SERVED)
        self.failed.pop(key, None)
        self._of_the_disk.discard(key)
        log.events = self.events
        self.logs[key] = log
        self._by_topic.setdefault(key.topic, {})[key] = None
        self.changed.add(key.topic)
        self._loaded_ends[key] = log.log_end_offset

    def fail(self, key: TopicPartition, reason: str) -> None:
        """Record that a partition exists but cannot be used."""
        self._check(key, PartitionState.OFFLINE)
        self.failed[key] = reason
        self._by_topic.setdefault(key.topic, {})[key] = None
        self.changed.add(key.topic)
        logger.error("%s: offline: %s", self.directory_of(key), reason)

    # --- checkpoints

    def checkpoint_recovery_points(self) -> None:
        """Write each log's recovery point. Raises StorageError."""
        self._checkpoints.write_recovery_points(self.logs, self.failed)

    def checkpoint_log_start_offsets(self) -> None:
        """Write the log start offsets that are above the base of their first segment. Raises StorageError."""
        self._checkpoints.write_log_start_offsets(self.logs, self.failed)

    def note_recovery_points(self) -> Rest:
        """Record each log's recovery point. Return the work that writes them to disk; any thread may do it."""
        return Rest(self._checkpoints.note_recovery_points(self.logs, self.failed))

    def note_log_start_offsets(self) -> Rest:
        """Record the log start offsets above the base of their first segment. Return the work that writes them; any thread may do
        it.
        """
        return Rest(self._checkpoints.note_log_start_offsets(self.logs, self.failed))

    def note_high_watermarks(self) -> Rest:
        """Record the current high watermarks. Return the work that writes them to disk; any thread may do it."""
        return Rest(self._checkpoints.note_high_watermarks(self.logs, self.failed))

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks. Raises StorageError."""
        self._checkpoints.write_high_watermarks(self.logs, self.failed)

    def write_checkpoints(self) -> None:
        """Write all these checkpoints. Raises StorageError."""
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_high_watermarks()

    def is_in_checkpoints(self, key: TopicPartition) -> bool:
        """Whether a checkpoint has a line for the partition. For a new partition such a line would be wrong."""
        return key in self._checkpoints

    def drop_gone(self) -> None:
        """Remove the checkpoint lines of partitions that do not exist. Any thread may call it. Raises StorageError."""
        self._checkpoints.drop(lambda key: key not in self.logs and key not in self.failed)

    # --- removal

    def unmake(self, log: PartitionLog) -> None:
        """Remove a newly created partition that was not published. Any thread may call it. Errors are logged."""
        log.close_handlers()
        remove_directory(log.directory)

    def remove(self, key: TopicPartition, name: str | None = None, *, what: str = "deleted") -> Removal | None:
        """Rename a partition's folder for later removal. Return None if it cannot be renamed.

        The partition is then in `failed`, with the reason. `name` is the folder's new name, by default a name for a deleted
        folder. `what` says in the log message what happens to the folder.
        """
        self.events.before_removal(key)
        log = self._forget(key)
        target = self.directory / (name or names.log_delete_dir_name(*key, mark=DELETION_MARK))
        delay_ms = LogConfig().file_delete_delay_ms if log is None else log.config.file_delete_delay_ms
        if log is not None:
            # Nothing more is written: the disk may be full.
            log.close_handlers()
        try:
            # The caller syncs the data folder, once for all: a topic may have thousands of partitions.
            _rename(self.directory_of(key), target)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # Another process has removed it.
                return Removal(target, 0)
            self.fail(key, f"it is being {what}, but {error}")
            return None
        return Removal(target, delay_ms)

    def remove_later(self, directory: Path, delay_ms: int) -> None:
        """Remove a folder once it has no readers."""
        self._scheduler.schedule(
            "delete-directory",
            lambda: remove_directory(directory),
            delay_ms=delay_ms,
            ahead=lambda: remove_directory(directory),
        )

    def _forget(self, key: TopicPartition) -> PartitionLog | None:
        self.changed.add(key.topic)
        self.failed.pop(key, None)
        self._of_the_disk.discard(key)
        self._loaded_ends.pop(key, None)
        there = self._by_topic.get(key.topic)
        if there is not None:
            there.pop(key, None)
            if not there:
                del self._by_topic[key.topic]
        return self.logs.pop(key, None)

    # --- descriptors

    def give_descriptors_back(self) -> int:
        """Close files of the logs that can be reopened, and return their number. Use only on the logs' thread.

        Coordinators' logs are left alone, because other threads may be reading them.
        """
        logs = (log for key, log in self.logs.items() if not is_hidden(key.topic))
        return sum(log.segments.give_descriptors_back() for log in logs)

    # --- the end

    def close_all(
        self, locked: Callable[[], AbstractContextManager[None]], progress: Callable[[], object] = lambda: None
    ) -> bool:
        """Flush and close every log; return whether all partitions, including those never loaded, ended cleanly.

        Raises StorageError if the disk does not respond. Threads that still wait for it stay in `locked`.
        """
        self.give_descriptors_back()  # Other threads cannot ask this one for descriptors.
        return close_logs(self.logs.values(), locked, progress) and not self.failed

    def close_handlers(self) -> None:
        """Release the descriptors and leave the files unchanged."""
        for log in self.logs.values():
            log.close_handlers()


def _rename(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        raise StorageError(f"cannot rename a partition's folder: {error.strerror}", path=source) from error


def remove_directory(directory: Path) -> None:
    """Remove a folder with its content; what cannot be removed is logged, and removed at the next start."""
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("%s could not be removed: %s", directory, error.strerror)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector: thousands of long-lived logs are created, and looking for garbage among them takes a fifth
    of a clean start.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
