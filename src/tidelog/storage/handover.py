"""Hands a data folder of Tidelog over to Apache Kafka: copies its partitions under topics that Kafka itself has created.

A KRaft broker sets aside (``-stray``) every partition whose topic id its metadata does not know. So the topics are created
through Kafka's own admin API first (`tidelog handover` does that), Kafka is stopped, and then, under both folders' locks::

    1  each partition is copied into a staging folder of the target, with Kafka's topic id       a crash leaves a staging folder
    2  the target's checkpoints get the partitions' offsets                                      Kafka keeps them in bounds
    3  Kafka's own, empty folder is renamed away, the staging folder takes its name              a crash leaves some placed

Kafka removes the staging folders at its start, by their names. A second run completes what is missing: it skips a partition whose
batches are already in the target, perhaps with later ones, and refuses a partition for which Kafka has other records. The source
is not changed, except that a folder that was not shut down cleanly is recovered first.

| file | in the target |
|---|---|
| `.log`, `.index`, `.timeindex`, `.txnindex` | unchanged |
| `.snapshot` | without the producers whose ids Kafka may assign itself (`_copy_snapshot`) |
| `partition.metadata` | with Kafka's id |
| `leader-epoch-checkpoint`, leader epochs in batches | unchanged if none is above 0, in the batches as well; otherwise all 0 |
| time maps | bound to the copy; Kafka does not remove them when it deletes their segments |

Kafka's epochs of a new topic begin at 0 and increase with each start, so a higher epoch of ours would be one that Kafka has not
reached yet. The checksum of a batch does not cover its epoch.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.errors import CorruptBatchError, CorruptSnapshotError, InvalidArgumentError, SegmentChangedError, StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import sync_directory, sync_file, write_offset_checkpoint
from tidelog.formats.dir_lock import DirLock
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.partition_metadata import read_topic_id, write_topic_id
from tidelog.formats.paths.file_path import local_path
from tidelog.formats.producer_snapshot import build_snapshot, parse_snapshot
from tidelog.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition, is_hidden
from tidelog.reader import transactions
from tidelog.reader.log_dir import LogDir
from tidelog.reader.segment import Segment
from tidelog.reader.time_map_file import write_time_maps
from tidelog.records.batch import HEADER_BYTES, BatchHeader, iter_headers, read_header
from tidelog.records.patch import set_leader_epoch
from tidelog.storage.folder.dir_checkpoints import DirCheckpoints
from tidelog.storage.folder.write_journal import is_pending
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.retention import Reason
from tidelog.storage.producers.producer_ids import LOWEST_ID
from tidelog.storage.retention_forecast import forecast
from tidelog.storage.topics.topic_settings import DELETING, Source, TopicSettings

GROUP_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
"""The topics with consumer groups and transactions."""

_DELETES_NOTHING = {"cleanup_policy": "delete", "retention_ms": -1, "retention_bytes": -1}

CHUNK_BYTES = 4 << 20
_COPIED = (
    names.LOG_SUFFIX,
    names.INDEX_SUFFIX,
    names.TIME_INDEX_SUFFIX,
    names.TXN_INDEX_SUFFIX,
    names.TIME_MAP_SUFFIX,
    names.SNAPSHOT_SUFFIX,
)
_MARK = b"tidelog".hex()

Advance = Callable[[int], None]


class TopicToHand(NamedTuple):
    """A topic to hand over: what Kafka must create, and how much must be copied."""

    name: str
    partitions: int
    properties: dict[str, str]
    """The settings for Kafka, under Kafka's names: all that differ from Kafka's defaults, and all that decide what is deleted."""
    config: LogConfig
    """The settings that apply in the folder. If the folder does not know the topic, these settings delete nothing."""
    is_configuration_known: bool
    is_retention_default: bool
    """Whether records expire by time but the folder does not say when, so that Kafka's default applies."""
    size_bytes: int
    oldest_format: int
    """The oldest message format (0, 1 or 2) among the partitions' last batches."""
    open_transactions: list[tuple[int, int]]
    """The partitions with open transactions, each with the first offset of its first open transaction."""


def recover(source: Path, clock: Clock) -> bool:
    """Recover and close a folder that was not shut down cleanly, or has an interrupted write; False if that is not needed.

    Raises what `LogManager` raises, also if another process holds the folder.
    """
    if (source / names.CLEAN_SHUTDOWN_FILE).exists() and not is_pending(source):
        return False
    LogDir(source)  # Do not turn any other folder into a data folder.
    with LogManager(source, clock):
        pass
    return True


class Deletion(NamedTuple):
    """The segments of a partition that Kafka would delete as soon as it starts, oldest first."""

    topic: str
    partition: int
    segments: int
    offsets: int
    """The number of offsets from the log start; in a log without gaps these are records."""
    size_bytes: int
    reason: str
    """Kafka's name of the setting that deletes the last of the segments."""


def topics_to_hand(
    source: Path, settings: TopicSettings, wanted: Sequence[str] = (), *, with_groups: bool = False
) -> list[TopicToHand]:
    """Return the topics of `source`, or only the topics in `wanted`. Internal topics are included only if they are in `wanted`,
    or with `with_groups`.

    `settings` are the folder's settings. A topic without a known configuration keeps its records forever, because Kafka would
    delete old ones within minutes. Raises InvalidArgumentError if the folder was not shut down cleanly (`recover`),
    NotFoundError, and what reading the logs raises.
    """
    log_dir = LogDir(source)
    if not (source / names.CLEAN_SHUTDOWN_FILE).exists():
        raise InvalidArgumentError(
            "the folder's last broker did not shut down cleanly, and the folder could not be recovered", path=source
        )
    found = []
    names_wanted = [*wanted] or [name for name in log_dir.topics() if not is_hidden(name)]
    if with_groups:
        names_wanted += [name for name in GROUP_TOPICS if name in log_dir.topics() and name not in names_wanted]
    for name in names_wanted:
        numbers = log_dir.partitions(name)
        lost = [one.partition for one in log_dir.missing_partitions(name)]
        if numbers != list(range(len(numbers))) or lost:
            more = f"; a checkpoint names {', '.join(map(str, lost))} as well" if lost else ""
            raise InvalidArgumentError(f"topic {name!r} lacks partitions", path=source, found=f"{numbers}{more}")
        known = settings.of(name)
        config = known.config if known.is_known else replace(known.config, **_DELETES_NOTHING)  # type: ignore[arg-type]
        size_bytes, oldest = 0, 2
        open_transactions = []
        for number in numbers:
            with log_dir.log(name, number) as log:
                size_bytes += sum(segment.size_bytes for segment in log.segments)
                oldest = min(oldest, log.message_format)
                first_unstable = transactions.Transactions(log).end_state().first_unstable_offset()
                if first_unstable is not None:
                    open_transactions.append((number, first_unstable))
        properties = _reported(config)
        is_default = (
            known.is_known and config.is_deleted and not known.is_broker_known and known.source("retention.ms") is Source.DEFAULT
        )
        found.append(
            TopicToHand(name, len(numbers), properties, config, known.is_known, is_default, size_bytes, oldest, open_transactions)
        )
    return found


def deletions(source: Path, topic: str, config: LogConfig, now_ms: int) -> list[Deletion]:
    """Return what a broker with these settings would now delete from a topic in `source`. Raises what reading the logs raises."""
    log_dir = LogDir(source)
    found = []
    for number in log_dir.partitions(topic):
        with log_dir.log(topic, number) as log:
            # After the handover everything counts as replicated.
            planned = forecast(log, config, now_ms, high_watermark=log.log_end_offset)
            due = [one for one in planned if one.goes_ms is not None and one.goes_ms <= now_ms]
            going = [one for one in due if one.size_bytes and one.reason != Reason.LOG_START.value]
            if going:
                offsets = going[-1].next_offset - max(going[0].base_offset, log.log_start_offset)
                size = sum(one.size_bytes for one in going)
                found.append(Deletion(topic, number, len(going), offsets, size, going[-1].reason))
    return found


def place(source: Path, target: Path, ids: Mapping[str, uuid.UUID], advance: Advance = lambda _: None) -> list[TopicPartition]:
    """Put the partitions of the topics in `ids` into `target`, the folder of a stopped Kafka. Return the partitions that this
    call has placed.

    `ids` are Kafka's ids; `advance` gets the bytes copied. Raises StorageError if either folder is in use or a disk fails,
    InvalidArgumentError if the target is not as Kafka leaves a new topic.
    """
    with DirLock(source), DirLock(target):
        log_dir = LogDir(source)
        keys = [TopicPartition(name, number) for name in ids for number in log_dir.partitions(name)]
        missing = [key for key in keys if not _is_placed(source, target, key, ids[key.topic])]
        staged: dict[TopicPartition, Path] = {}
        try:
            for key in missing:
                staged[key] = _staging_folder(target, key)
                _stage(local_path(log_dir.directory(*key)), staged[key], ids[key.topic], advance)
            _checkpoint(log_dir, target, missing)
            for key, folder in staged.items():
                final = target / names.log_dir_name(*key)
                if final.exists():
                    final.rename(target / names.log_delete_dir_name(*key))
                folder.rename(final)
            sync_directory(target)
        except OSError as error:
            raise StorageError(f"cannot hand a partition over: {error.strerror or error}", path=target) from error
        finally:
            for folder in staged.values():
                shutil.rmtree(folder, ignore_errors=True)
        for folder in target.glob(f"*{names.DELETE_DIR_SUFFIX}"):
            if any(folder.name.startswith(f"{names.log_dir_name(*key)}.") for key in missing):
                shutil.rmtree(folder, ignore_errors=True)
        return missing


def _reported(config: LogConfig) -> dict[str, str]:
    """Return the properties that Kafka must be given for a topic: its properties that differ from Kafka's defaults and that Kafka
    knows, and always those that decide what is deleted.

    The target's configuration may have other defaults than Kafka's.
    """
    defaults = LogConfig().to_properties()
    differing = {
        name: value
        for name, value in config.to_properties().items()
        if (value != defaults[name] or name in DELETING) and not name.startswith("tidelog.")
    }
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in differing.items()}


def _is_placed(source: Path, target: Path, key: TopicPartition, topic_id: uuid.UUID) -> bool:
    """Return whether the target already has the partition; False if it has only the empty partition that Kafka created.
    Otherwise raises InvalidArgumentError.
    """
    folder = target / names.log_dir_name(*key)
    if not folder.is_dir():
        # A run was interrupted between the two renames.
        return False
    there = read_topic_id(folder / names.PARTITION_METADATA)
    if there is not None and there != topic_id:
        raise InvalidArgumentError(
            "Kafka's folder belongs to a different topic with the same name", path=folder, found=there, expected=topic_id
        )
    ours = source / names.log_dir_name(*key)
    logs = {path.name: path.stat().st_size for path in folder.glob(f"*{names.LOG_SUFFIX}")}
    if not any(logs.values()):
        return not any(path.stat().st_size for path in ours.glob(f"*{names.LOG_SUFFIX}")) and set(logs) >= _log_names(ours)
    if all(_begins_with(folder / path.name, path) for path in ours.glob(f"*{names.LOG_SUFFIX}")):
        return True
    raise InvalidArgumentError("Kafka's folder already holds records", path=folder)


def _begins_with(theirs: Path, ours: Path) -> bool:
    """Whether the log `theirs` begins with all batches of `ours`: it has the first and the last of them. Leader epochs may
    differ.
    """
    segment = Segment.open(ours)
    try:
        last = segment.valid_end().last_header
        first = next(segment.headers(), None)
        with ReadOnlyFile(theirs, fallbacks=()) as file:
            return all(
                _identity(read_header(file.read(one.position, HEADER_BYTES), 0, one.position, theirs)) == _identity(one)
                for one in (first, last)
                if one is not None
            )
    except (SegmentChangedError, CorruptBatchError):
        return False
    finally:
        segment.close()


def _identity(header: BatchHeader) -> tuple[int, ...]:
    return header.size, header.base_offset, header.last_offset, header.magic, header.crc


def _log_names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob(f"*{names.LOG_SUFFIX}")}


def _staging_folder(target: Path, key: TopicPartition) -> Path:
    tail = f"-{key.partition}.{_MARK}{uuid.uuid4().hex[: 32 - len(_MARK)]}{names.DELETE_DIR_SUFFIX}"
    return target / (key.topic[: names.MAX_NAME_LENGTH - len(tail)] + tail)


def _stage(source: Path, folder: Path, topic_id: uuid.UUID, advance: Advance) -> None:
    folder.mkdir()
    epochs = LeaderEpochs.read(source / names.LEADER_EPOCH_CHECKPOINT)
    is_renumbered = (epochs.latest is not None and epochs.latest.epoch > 0) or _has_epochs_above_0(source)
    for path in sorted(source.iterdir()):
        if path.name.endswith(_COPIED):
            copy = folder / path.name
            if path.name.endswith(names.SNAPSHOT_SUFFIX):
                _copy_snapshot(path, copy)
            else:
                _copy(path, copy, advance)
            if is_renumbered and path.name.endswith(names.LOG_SUFFIX):
                _set_epochs(copy)
            shutil.copystat(path, copy)
    # Copied maps are compared with the copied logs, and bound to them.
    write_time_maps(sorted(folder.glob(f"*{names.LOG_SUFFIX}")))
    if is_renumbered:
        bases = [names.offset_from_file_name(name) for name in _log_names(source)]
        epochs = LeaderEpochs([EpochEntry(0, min(bases) if epochs.earliest is None else epochs.earliest.start_offset)])
    epochs.write(folder / names.LEADER_EPOCH_CHECKPOINT)
    write_topic_id(folder / names.PARTITION_METADATA, topic_id)
    for path in folder.iterdir():
        sync_file(path)
    sync_directory(folder)


def _copy(source: Path, target: Path, advance: Advance) -> None:
    with source.open("rb") as reading, target.open("xb") as writing:
        while chunk := reading.read(CHUNK_BYTES):
            writing.write(chunk)
            advance(len(chunk))


def _copy_snapshot(source: Path, target: Path) -> None:
    """Leave out producers with ids from another Kafka: the next producer that gets such an id would be out of sequence.

    Producers with Tidelog's ids (`producer_ids`) and with open transactions stay. A damaged snapshot is copied; Kafka handles it.
    """
    data = source.read_bytes()
    with suppress(CorruptSnapshotError):
        entries = parse_snapshot(data, source)
        data = build_snapshot(one for one in entries if one.producer_id >= LOWEST_ID or one.current_txn_first_offset >= 0)
    target.write_bytes(data)


def _has_epochs_above_0(source: Path) -> bool:
    """Whether any batch has an epoch above 0: the checkpoint may be lost, or belong to another log."""
    for path in source.glob(f"*{names.LOG_SUFFIX}"):
        segment = Segment.open(path)
        try:
            if any(header.magic >= 2 and header.leader_epoch > 0 for header in segment.headers()):
                return True
        except CorruptBatchError:
            continue  # It is copied unchanged.
        finally:
            segment.close()
    return False


def _set_epochs(path: Path) -> None:
    """Set the epoch of every batch of a log to 0. A segment is read whole: this is rare, and segments are bounded."""
    data = bytearray(path.read_bytes())
    for header in iter_headers(data):
        if header.magic >= 2 and header.leader_epoch > 0:
            set_leader_epoch(data, 0, header.position)
    path.write_bytes(data)


def _checkpoint(log_dir: LogDir, target: Path, keys: Iterable[TopicPartition]) -> None:
    """Write the partitions' start and end offsets into the target's checkpoints, keeping all other lines."""
    ends, starts = {}, {}
    for key in keys:
        with log_dir.log(*key) as log:
            ends[key] = log.log_end_offset
            if log.segments and log.log_start_offset > log.segments[0].base_offset:
                starts[key] = log.log_start_offset
    before = DirCheckpoints(target)
    write_offset_checkpoint(target / names.RECOVERY_POINT_CHECKPOINT, {**before.recovery_points, **ends})
    write_offset_checkpoint(target / names.HIGH_WATERMARK_CHECKPOINT, {**before.high_watermarks, **ends})
    kept = {key: offset for key, offset in before.log_start_offsets.items() if key not in ends}
    write_offset_checkpoint(target / names.LOG_START_OFFSET_CHECKPOINT, {**kept, **starts})
