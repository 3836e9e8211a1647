"""Checks that all data folders that contain a partition have the same records in it, up to the high watermark.

The brokers may be running. Differences are checked again after Kafka's checkpoint interval and count only if they persist. If
segments are deleted or compacted during a comparison, the partition is compared again at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tidelog.check.finding import Finding, fault, note
from tidelog.check.folder_verify import CHECKPOINTS, SETTLES_SECONDS
from tidelog.check.replicas.partition_comparison import PartitionComparison, compare_replicas
from tidelog.check.replicas.replica import Replica
from tidelog.errors import (
    CorruptCheckpointError,
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    SegmentChangedError,
    StorageError,
    TidelogError,
    UnknownTopicOrPartitionError,
)
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.formats.dir_lock import is_locked
from tidelog.formats.paths.file_path import FilePath
from tidelog.model import TopicPartition
from tidelog.near_names import near_topics
from tidelog.ordered_map import ordered_map
from tidelog.reader.log_dir import LogDir
from tidelog.storage.folder.meta_properties import META_PROPERTIES, known_cluster_id

MOST_LOOKS = 5
"""The largest number of attempts for a partition whose segments change each time. Each attempt starts with a new listing."""

_SHOWN_PARTITIONS = 5


@dataclass
class ReplicasReport:
    """The findings: those of each partition, in order, and those that concern no partition."""

    directories: list[FilePath]
    partitions: list[PartitionComparison] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether no difference and no damage was found."""
        return not any(one.is_fault for one in self.findings) and all(one.is_equal for one in self.partitions)


def verify_replicas(
    directories: Sequence[FilePath],
    topics: Sequence[str] = (),
    *,
    threads: int = 1,
    sleep: Callable[[float], None] = time.sleep,
) -> ReplicasReport:
    """Compare the partitions of some or all topics that are in at least two data folders, `threads` at a time.

    Raises InvalidArgumentError for fewer than two folders or a repeated one; DataDirNotFoundError; UnknownTopicOrPartitionError
    if there is nothing to compare; StorageError.
    """
    _check_directories(directories)
    report = ReplicasReport(list(directories), findings=_of_folders(directories))
    shared, single = _partitions(directories, topics)
    if single:
        shown = ", ".join(f"{one.topic}-{one.partition}" for one in single[:_SHOWN_PARTITIONS])
        more = ", ..." if len(single) > _SHOWN_PARTITIONS else ""
        what = (
            f"{len(single)} partition{'s are' if len(single) > 1 else ' is'} in one folder only, and not compared: {shown}{more}"
        )
        report.findings.append(note(directories[0], what))
    report.partitions = _look(directories, shared, threads)
    doubtful = [one.key for one in report.partitions if not one.is_equal]
    if doubtful and any(map(is_locked, directories)):
        sleep(SETTLES_SECONDS)  # A folder's owner may have been in the middle of a change.
        settled = {one.key: one for one in _look(directories, doubtful, threads)}
        report.partitions = [settled.get(one.key, one) for one in report.partitions]
    return report


def _check_directories(directories: Sequence[FilePath]) -> None:
    if len(directories) < 2:
        raise InvalidArgumentError(
            "there are too few data folders to compare", found=f"{len(directories)} folder", expected="two data folders or more"
        )
    real = [directory.resolve() if isinstance(directory, Path) else directory for directory in directories]
    for number, one in enumerate(real):
        if one in real[:number]:
            raise InvalidArgumentError("a data folder is given twice", path=directories[number])


def _of_folders(directories: Sequence[FilePath]) -> list[Finding]:
    findings = []
    for directory in directories:
        for name in CHECKPOINTS:
            try:
                read_offset_checkpoint(directory / name)
            except (CorruptCheckpointError, StorageError) as error:
                findings.append(Finding.of_error(error, directory / name))
    clusters = {directory: cluster for directory in directories if (cluster := known_cluster_id(directory)) is not None}
    for directory, cluster in clusters.items():
        first = next(iter(clusters.values()))
        if cluster != first:
            findings.append(
                fault(
                    directory / META_PROPERTIES,
                    f"the folder belongs to a different cluster: its cluster id is {cluster}, not {first}",
                )
            )
    return findings


def _partitions(directories: Sequence[FilePath], topics: Sequence[str]) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Return the partitions that are in several folders, and the partitions that are in only one."""
    folders = [LogDir(directory) for directory in directories]
    counts: dict[TopicPartition, int] = {}
    for folder in folders:
        for topic, numbers in folder.topics().items():
            for number in numbers if not topics or topic in topics else ():
                key = TopicPartition(topic, number)
                counts[key] = counts.get(key, 0) + 1
    unknown = [topic for topic in topics if all(key.topic != topic for key in counts)]
    if unknown:
        near = near_topics(unknown[0], sorted({key.topic for key in counts}))
        raise UnknownTopicOrPartitionError(f"no topic {unknown[0]!r} in any of the folders{near}", path=directories[0])
    shared = sorted(key for key, count in counts.items() if count > 1)
    if not shared:
        raise UnknownTopicOrPartitionError("no partition is in two of the folders", path=directories[0])
    return shared, sorted(key for key, count in counts.items() if count == 1)


def _look(directories: Sequence[FilePath], keys: Sequence[TopicPartition], threads: int) -> list[PartitionComparison]:
    folders = [LogDir(directory) for directory in directories]
    for folder in folders:
        folder.claims(keys[0])  # Loaded now, so that the threads do not load it at the same time.
    return list(ordered_map(partial(_compare, folders), keys, threads))


def _compare(folders: Sequence[LogDir], key: TopicPartition) -> PartitionComparison:
    changed: TidelogError | None = None
    for _ in range(MOST_LOOKS):
        try:
            return _compare_once(folders, key)
        except SegmentChangedError as error:
            changed = error
            folders = [LogDir(folder.path) for folder in folders]
        except TidelogError as error:
            return _not_compared(folders, key, Finding.of_error(error, folders[0].path, *key))
    what = f"not compared: the partition changed during each of {MOST_LOOKS} comparisons ({changed})"
    return _not_compared(folders, key, note(folders[0].path, what, *key))


def _compare_once(folders: Sequence[LogDir], key: TopicPartition) -> PartitionComparison:
    faults: list[Finding] = []
    replicas: list[Replica] = []
    with ExitStack() as stack:
        for folder in folders:
            try:
                replica = Replica.open(folder, key)
            except NotFoundError:
                continue  # Not every folder has every partition, and a partition may have been deleted.
            except CorruptDataError as error:
                faults.append(Finding.of_error(error, folder.path, *key))
                continue
            stack.callback(replica.close)
            replicas.append(replica)
        if len(replicas) < 2:
            gone = note(folders[0].path, "not compared: the partition is no longer in two folders", *key)
            return _not_compared(folders, key, *faults or [gone])
        result = compare_replicas(replicas)
        result.findings += faults
        return result


def _not_compared(folders: Sequence[LogDir], key: TopicPartition, *findings: Finding) -> PartitionComparison:
    return PartitionComparison(key, [folder.path for folder in folders], findings=list(findings))
