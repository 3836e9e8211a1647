"""Loads a partition's log from its folder, and recovers it unless it was closed cleanly (spec §6).

| step | what | module |
|---|---|---|
| 1 | temporary files of an interrupted run are removed | `temporary_files` |
| 2 | each ``.log`` becomes a segment | here |
| 3 | segments are recovered if necessary; those with offset overflow are split | `log_recovery`, `overflow` |
| 4 | a missing ``.timeindex`` is built | `time_index_rebuild` |
| 5 | the end is found; a log that ends below its log start offset is emptied; a log without segments gets one | here |
| 6 | leader epochs are truncated to the log, and compared with its batches | `proven_epochs` |
| 7 | producer state is read from the last snapshot, and replayed from there | `producer_rebuild` |
| 8 | after a crash: the producers' last batches, which the snapshot lacks, are read | `producer_recall` |

After a clean shutdown only a few bytes of each partition are read: the end of the last segment, a snapshot, the leader epochs,
and the batches at which the epochs begin. No file stays open or mapped.

`LogManager` may call `load` on several threads at the same time: two loads share only the scheduler.
"""

from __future__ import annotations

import logging
import random
import uuid
from pathlib import Path

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.errors import CorruptCheckpointError, CorruptIndexError, StorageError
from tidelog.formats import names
from tidelog.storage.loading.loading_log import LoadingLog
from tidelog.storage.loading.log_recovery import LogRecovery, Progress, RecoveryProgress
from tidelog.storage.loading.producer_recall import recall_batches
from tidelog.storage.loading.proven_epochs import prove_epochs, reread_epochs
from tidelog.storage.loading.temporary_files import clear_temporary_files, remove_orphan_indexes
from tidelog.storage.loading.time_index_rebuild import rebuild_time_index
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.partition.offset_metadata import LoadedLogOffsets, LogOffsetMetadata
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.producers.producer_state_manager import PRODUCER_ID_EXPIRATION_MS, ProducerStateManager
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.segment_names import check_name

__all__ = ["LOST_END", "Progress", "RecoveryProgress", "load"]

logger = logging.getLogger("tidelog.storage")

LOST_END = "%s: the log ends at offset %d, but according to %s it reached %d: the lost offsets will be assigned to new records"
"""A log message. Arguments: the log's folder, the log end offset, the name of a checkpoint, and the higher offset in that
checkpoint.
"""

_jitter = random.Random()
"""The random generator of logs for which the caller gives none. It is shared, because a generator takes two kilobytes and some
time.
"""


def load(
    directory: Path,
    config: LogConfig,
    clock: Clock,
    scheduler: Scheduler,
    *,
    had_clean_shutdown: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    progress: Progress | None = None,
    topic_id: uuid.UUID | None = None,
    jitter: random.Random | None = None,
) -> PartitionLog:
    """Load the log in `directory`, named ``<topic>-<partition>``; an empty folder becomes an empty log at `log_start_offset`.

    `recovery_point` and `log_start_offset` come from the checkpoints, and are 0 if they are missing there. `had_clean_shutdown`
    says whether the data folder had the clean-shutdown marker. `progress` is called at each step of a recovery. Raises
    StorageError, CorruptDataError if the damage cannot be repaired, InvalidArgumentError if the folder or a file does not have a
    log's name, InconsistentTopicIdError.
    """
    jitter = jitter or _jitter
    epochs = _read_epochs(directory, config)
    had_epochs = epochs is not None and not epochs.is_empty
    log = LoadingLog(
        directory,
        config,
        clock,
        scheduler,
        leader_epochs=LeaderEpochCache(directory, entries=()) if epochs is None else epochs,
        had_clean_shutdown=had_clean_shutdown,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        producer_id_expiration_ms=producer_id_expiration_ms,
        jitter=jitter,
    )
    producer_state = log.new_producer_state()
    try:
        offsets = _load(log, producer_state, progress, epochs_are_damaged=epochs is None, had_epochs=had_epochs)
        return PartitionLog(
            directory,
            config,
            clock,
            scheduler,
            segments=log.segments,
            producer_state=producer_state,
            leader_epochs=log.leader_epochs,
            offsets=offsets,
            topic_id=topic_id,
            jitter=jitter,
        )
    except BaseException:
        log.segments.close_handlers()
        raise


def _load(
    log: LoadingLog,
    producer_state: ProducerStateManager,
    progress: Progress | None,
    *,
    epochs_are_damaged: bool,
    had_epochs: bool,
) -> LoadedLogOffsets:
    found = clear_temporary_files(log.directory, lambda base_offset: _next_offset_of_swap(log, base_offset))
    found = remove_orphan_indexes(log.directory, found)
    broken = _open_segments(log, found)
    if log.directory.name.endswith(names.DELETE_DIR_SUFFIX):
        return _without_looking(log)
    recovery = LogRecovery(log, progress)
    clean_end = recovery.recover(broken)
    _check_names(log)
    _build_missing_time_indexes(log, found)
    end_offset = _find_end(log, producer_state, clean_end)
    _warn_of_a_lost_end(log, end_offset)
    active, first = log.segments.active, log.segments.first
    assert first is not None
    active.make_active()
    if epochs_are_damaged:
        log.leader_epochs.replace_all(reread_epochs(log).entries)
    log.leader_epochs.cut_to(log.log_start_offset, end_offset)
    if log.config.magic >= 2 and not epochs_are_damaged:
        prove_epochs(log, end_offset, had_entries=had_epochs)
    log_start_offset = max(log.log_start_offset, first.base_offset)
    is_unchanged = clean_end == end_offset and not recovery.has_changed_files
    producer_state.remove_stray_snapshots(log.segments.base_offsets, found if is_unchanged else None)
    log.rebuild_producer_state(producer_state, log_start_offset, end_offset, had_clean_shutdown=log.had_clean_shutdown)
    if not log.had_clean_shutdown:
        recall_batches(producer_state, log.segments)
    for segment in log.segments:
        if segment.log.is_open:
            segment.log.release()
    return LoadedLogOffsets(
        log_start_offset,
        # Only a flush raises the recovery point: after a crash soon after this start, the same bytes must be recovered again.
        end_offset if log.had_clean_shutdown else min(log.recovery_point, end_offset),
        LogOffsetMetadata(end_offset, active.base_offset, active.size_bytes),
    )


# --- step 2: existing segments


def _open_segments(log: LoadingLog, found: set[str]) -> set[int]:
    """Open all segments. Return the base offsets of the segments that must be recovered even after a clean shutdown."""
    broken = set()
    for name in sorted(name for name in found if name.endswith(names.LOG_SUFFIX)):
        segment = log.open_segment(names.offset_from_file_name(name))
        log.segments.add(segment)
        stem = name.removesuffix(names.LOG_SUFFIX)
        if segment.size_bytes and stem + names.INDEX_SUFFIX not in found:
            if log.had_clean_shutdown or segment.base_offset < log.recovery_point:
                logger.error("%s is missing: rebuilding it from the log", segment.offset_index.path)
            broken.add(segment.base_offset)
        elif stem + names.TXN_INDEX_SUFFIX in found and not _has_sound_txn_index(segment):
            broken.add(segment.base_offset)
    return broken


def _has_sound_txn_index(segment: LogSegment) -> bool:
    try:
        segment.txn_index.sanity_check()
    except CorruptIndexError as error:
        logger.warning("%s: rebuilt from the log", error)
        return False
    finally:
        segment.txn_index.close()
    return True


def _next_offset_of_swap(log: LoadingLog, base_offset: int) -> int:
    """Return the end offset of a ``.log.swap`` by walking the file, because opening its index would create an index."""
    last = None
    segment = log.open_segment(base_offset, suffix=names.SWAP_SUFFIX)
    try:
        for header in segment.batches():
            last = header
    finally:
        segment.close_handlers()
    return base_offset if last is None else last.next_offset


def _without_looking(log: LoadingLog) -> LoadedLogOffsets:
    """Return the offsets of an empty log, without examining the folder: it is being deleted."""
    if not log.segments:
        log.begin_segment(0)
    active = log.segments.active
    return LoadedLogOffsets(0, 0, LogOffsetMetadata(0, active.base_offset, active.size_bytes))


def _check_names(log: LoadingLog) -> None:
    """Check the names of segments that are trusted before anything is read: the names of the first and the last segment, of the
    segment with the log start offset, and of empty segments.

    Other names are checked after the start (`HoleSearch`), and when a read finds a hole before a segment (`LocalLog.locate`).
    Raises CorruptBatchError, StorageError.
    """
    segments = log.segments
    relied_on = (segments.first, segments.floor(log.log_start_offset), segments.last)
    for segment in segments:
        if segment in relied_on or not segment.size_bytes:
            check_name(log.segments, segment)


# --- steps 4 and 5: time indexes, and the end


def _build_missing_time_indexes(log: LoadingLog, found: set[str]) -> None:
    for segment in log.segments:
        if segment.size_bytes:
            name = names.file_name(segment.base_offset, names.TIME_INDEX_SUFFIX)
            if name not in found and not segment.time_index.path.exists():
                rebuild_time_index(segment)


def _find_end(log: LoadingLog, producer_state: ProducerStateManager, clean_end: int | None) -> int:
    """Return the log end offset. A log that ends below its log start offset is emptied, and a log without segments gets one."""
    if log.segments:
        end_offset = log.segments.active.read_next_offset() if clean_end is None else clean_end
        if end_offset >= log.log_start_offset:
            return end_offset
        logger.warning(
            "%s: the log ends at offset %d, below its log start offset %d: emptying it",
            log.directory,
            end_offset,
            log.log_start_offset,
        )
        log.delete_segments(log.segments)
        log.leader_epochs.clear_and_flush()
        producer_state.truncate_fully_and_start_at(log.log_start_offset)
    log.begin_segment(log.log_start_offset)
    return log.log_start_offset


def _warn_of_a_lost_end(log: LoadingLog, end_offset: int) -> None:
    """Warn if the log is known to have reached a higher offset than its current end.

    A leader epoch begins at the log end offset of that time. So if an epoch begins above the current end, the records in between
    are lost.
    """
    latest = log.leader_epochs.latest
    said = [(log.recovery_point, names.RECOVERY_POINT_CHECKPOINT)]
    said += [] if latest is None else [(latest.start_offset, names.LEADER_EPOCH_CHECKPOINT)]
    offset, path = max(said)
    if end_offset < offset:
        logger.warning(LOST_END, log.directory, end_offset, path, offset)


# --- step 6: leader epochs


def _read_epochs(directory: Path, config: LogConfig) -> LeaderEpochCache | None:
    """Read the leader epochs. Return None if the checkpoint is damaged. Message formats before v2 have no epochs: the file is
    deleted.
    """
    path = directory / names.LEADER_EPOCH_CHECKPOINT
    if config.magic < 2:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"cannot remove the leader epoch checkpoint: {error.strerror}", path=path) from error
        return LeaderEpochCache(directory, entries=())
    try:
        return LeaderEpochCache(directory)
    except CorruptCheckpointError as error:
        logger.warning("%s: rebuilding the leader epochs from the log", error)
        return None
