"""Verifies a whole data folder: indexes, batches, missing data, checkpoints, epochs, snapshots, metadata.

| checked | by |
|---|---|
| batches, indexes, time maps, aborted transactions | `tidelog.check.folder_indexes` |
| missing segments and partitions, offsets missing at a log's start or end | `tidelog.reader.missing` |
| leader epochs, producer snapshots, checkpoints, gaps inside segments | `partition_rules` |
| expected topics and partitions, and their ids | `expected_partitions`, from the folder's `__cluster_metadata-0` |

A running broker changes its folder during the check. Faults are therefore checked again after Kafka's checkpoint interval, and
count only if they persist.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tidelog.check.expected_partitions import Owner, expected_partitions, strangers
from tidelog.check.finding import Finding, fault, note
from tidelog.check.folder_indexes import VerifyOptions, verify_partitions
from tidelog.check.partition_rules import (
    BatchFacts,
    SnapshotFacts,
    batch_facts,
    checkpoint_faults,
    epoch_faults,
    missing_snapshots,
)
from tidelog.check.partitions import VerifiedPartition, partitions_to_verify
from tidelog.errors import (
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptSnapshotError,
    NotFoundError,
    PointExpiredError,
    SegmentChangedError,
    StorageError,
    TidelogError,
)
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.formats.dir_lock import is_locked
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.formats.partition_metadata import parse_topic_id, read_topic_id
from tidelog.formats.paths.file_path import FilePath, list_names, log_files
from tidelog.formats.producer_snapshot import read_snapshot
from tidelog.model import TopicPartition
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.metadata_log import MetadataLog, metadata_dir, read_metadata_log
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.reader.segment import Segment
from tidelog.storage.folder.meta_properties import META_PROPERTIES, read_meta_properties
from tidelog.storage.folder.served_settings import SERVED_FILE, read_served_settings

SETTLES_SECONDS = 6.0
"""How many seconds to wait before faults in a running broker's folder are checked again. Kafka writes the high watermarks every
five seconds, so a disagreement that lasts longer is a fault.
"""

CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
)


@dataclass
class PartitionReport:
    """The findings about a partition. `verified` is None if the partition is missing, was removed, or could not be opened."""

    topic: str
    partition: int
    topic_id: uuid.UUID | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    verified: VerifiedPartition | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not any(finding.is_fault for finding in self.findings)


@dataclass
class FolderReport:
    """A folder's findings: those of each partition, in order, and those that concern no partition."""

    directory: FilePath
    partitions: list[PartitionReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found missing or damaged."""
        return not any(finding.is_fault for finding in self.all_findings())

    def all_findings(self) -> Iterator[Finding]:
        """Yield all findings, the folder's own first."""
        yield from self.findings
        for partition in self.partitions:
            yield from partition.findings


def verify_folder(
    directory: FilePath,
    topics: Sequence[str] = (),
    options: VerifyOptions | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
    found: Callable[[PartitionReport], None] | None = None,
) -> FolderReport:
    """Verify a data folder or some of its topics. Calls `found` with each finished partition.

    Raises DataDirNotFoundError, UnknownTopicOrPartitionError, StorageError.
    """
    options = options or VerifyOptions()
    report = _Look(directory, topics, None).report(options, found)
    if report.is_sound or not is_locked(directory):
        return report
    # The folder's owner may have been in the middle of a change.
    sleep(SETTLES_SECONDS)
    doubtful = {TopicPartition(one.topic, one.partition) for one in report.partitions if not one.is_sound}
    again = _Look(directory, topics, doubtful).report(options, None)
    settled = {(one.topic, one.partition): one for one in again.partitions}
    partitions = [one if one.is_sound else settled.get((one.topic, one.partition)) for one in report.partitions]
    return FolderReport(directory, [one for one in partitions if one is not None], again.findings)


class _Look:
    """One pass over a folder. `only` are the partitions to check; None means all requested ones."""

    def __init__(self, directory: FilePath, topics: Sequence[str], only: set[TopicPartition] | None) -> None:
        self._directory = directory
        self._topics = topics
        self._only = only
        self._findings: list[Finding] = []
        self._is_closed = (directory / names.CLEAN_SHUTDOWN_FILE).exists()
        # Metadata and checkpoints are read before the folder is listed.
        self._metadata = self._read_metadata()
        self._is_kraft = False
        self._check_checkpoints()
        self._log_dir = LogDir(directory)
        for topic in topics:
            if not self._is_expected(topic):
                self._log_dir.partitions(topic)

    def report(self, options: VerifyOptions, found: Callable[[PartitionReport], None] | None) -> FolderReport:
        """Check the folder once, and return the findings."""
        keys = [
            TopicPartition(topic, number)
            for topic, numbers in sorted(self._log_dir.topics().items())
            for number in numbers
            if self._is_wanted(topic)
        ]
        ids = {key: self._topic_id(key) for key in keys}
        partitions = {key: PartitionReport(*key, topic_id=ids[key][0], findings=ids[key][1]) for key in keys}
        self._find_missing(partitions)
        self._compare_ids({key: one.topic_id for key, one in partitions.items()}, partitions)
        walked = [key for key in keys if self._only is None or key in self._only]
        self._walk(walked, partitions, options, found)
        in_order = [partitions[key] for key in sorted(partitions) if self._only is None or key in self._only]
        return FolderReport(self._directory, in_order, self._findings)

    def _is_wanted(self, topic: str) -> bool:
        return not self._topics or topic in self._topics

    # --- the folder

    def _read_metadata(self) -> MetadataLog | None:
        try:
            return read_metadata_log(self._directory)
        except TidelogError as error:
            self._findings.append(Finding.of_error(error, metadata_dir(self._directory)))
            return None

    def _check_checkpoints(self) -> None:
        """Check the files that exist once per folder. A copy of a few partitions has none of these files."""
        there = [name for name in CHECKPOINTS if (self._directory / name).exists()]
        for name in CHECKPOINTS:
            path = self._directory / name
            try:
                read_offset_checkpoint(path)
            except (CorruptCheckpointError, StorageError) as error:
                self._findings.append(Finding.of_error(error, path))
            if there and name not in there and name != names.CLEANER_CHECKPOINT:
                if name == names.LOG_START_OFFSET_CHECKPOINT and self._is_before_0_11():
                    self._findings.append(note(path, "is missing (normal for a folder last used before Kafka 0.11)"))
                else:
                    self._findings.append(fault(path, "is missing"))
        path = self._directory / META_PROPERTIES
        try:
            meta = read_meta_properties(self._directory)
            self._is_kraft = meta is not None and meta.version > 0
            if meta is None and there:
                if self._metadata is not None and not self._metadata.image.brokers:
                    what = "is missing: no broker has used the folder yet, or its node and cluster are lost"
                    self._findings.append(note(path, what))
                else:
                    self._findings.append(fault(path, "is missing"))
        except (CorruptCheckpointError, StorageError) as error:
            self._findings.append(Finding.of_error(error, path))
        try:
            read_served_settings(self._directory)
        except (CorruptCheckpointError, StorageError) as error:
            self._findings.append(Finding.of_error(error, self._directory / SERVED_FILE))

    def _is_before_0_11(self) -> bool:
        """Whether only releases before 0.11 have written to the folder: no partition has leader epochs, a snapshot or a
        topic id.
        """
        written = (names.LEADER_EPOCH_CHECKPOINT, names.PARTITION_METADATA, names.SNAPSHOT_SUFFIX)
        return not any(
            name.endswith(written) for folder in self._directory.iterdir() if folder.is_dir() for name in list_names(folder)
        )

    def _owner(self) -> Owner | None:
        assert self._metadata is not None
        try:
            meta = read_meta_properties(self._directory)
        except (CorruptCheckpointError, StorageError):
            meta = None
        if meta is not None:
            return Owner(meta.node_id, None if meta.directory_id is None else parse_topic_id(meta.directory_id))
        image = self._metadata.image
        nodes = set(image.brokers) or {
            node for topic in image.topics.values() for partition in topic.partitions.values() for node in partition.replicas
        }
        return Owner(nodes.pop(), None) if len(nodes) == 1 else None

    def _is_expected(self, topic: str) -> bool:
        return self._metadata is not None and topic in self._metadata.image.topics

    def _find_missing(self, partitions: dict[TopicPartition, PartitionReport]) -> None:
        missing = {TopicPartition(one.topic, one.partition): one for one in self._log_dir.missing_partitions()}
        owner = None if self._metadata is None else self._owner()
        if self._metadata is not None and owner is None:
            what = "it is unknown which node this folder belongs to, so missing partitions cannot be found"
            self._findings.append(note(self._directory / META_PROPERTIES, what))
        if self._metadata is not None and owner is not None:
            expected = expected_partitions(self._metadata.image, owner)
            # A deleted partition disappears from the metadata first and from the checkpoints later.
            missing = {key: one for key, one in missing.items() if key in expected}
            for key in sorted(expected.keys() - partitions.keys() - missing.keys()):
                if self._is_wanted(key.topic) and not self._log_dir.is_there(key):
                    reason = "the cluster metadata lists the partition, but its folder is missing"
                    claims = self._log_dir.claims(key)
                    end = max(claims.recovery_point or 0, claims.high_watermark or 0)
                    missing[key] = MissingOffsets(*key, claims.log_start_offset or 0, end, "partition", reason)
            for key in sorted(partitions.keys() - expected.keys()):
                what = "the cluster metadata does not list the partition for this folder"
                partitions[key].findings.append(note(self._directory / names.log_dir_name(*key), what, *key))
        for key, one in missing.items():
            if self._is_wanted(key.topic) and key not in partitions:
                finding = Finding.of_missing(one, self._directory / names.log_dir_name(*key))
                partitions[key] = PartitionReport(*key, findings=[finding])

    def _topic_id(self, key: TopicPartition) -> tuple[uuid.UUID | None, list[Finding]]:
        path = self._directory / names.log_dir_name(*key) / names.PARTITION_METADATA
        try:
            return read_topic_id(path), []
        except (CorruptCheckpointError, StorageError) as error:
            return None, [Finding.of_error(error, path, *key)]

    def _compare_ids(
        self, ids: dict[TopicPartition, uuid.UUID | None], partitions: dict[TopicPartition, PartitionReport]
    ) -> None:
        def blame(key: TopicPartition, what: str) -> None:
            path = self._directory / names.log_dir_name(*key) / names.PARTITION_METADATA
            partitions[key].findings.append(fault(path, what, *key))

        has_ids = any(topic_id is not None for topic_id in ids.values()) or self._metadata is not None or self._is_kraft
        of_topic: dict[str, uuid.UUID] = {}
        for key, topic_id in sorted(ids.items()):
            one = partitions[key]
            if topic_id is None and not one.findings and has_ids and self._holds_records(key):
                blame(key, "is missing: Kafka would set the folder aside as a stray")
            elif topic_id is not None and of_topic.setdefault(key.topic, topic_id) != topic_id:
                blame(
                    key, f"has a different topic id from the topic's other partitions, {topic_id} and not {of_topic[key.topic]}"
                )
        if self._metadata is not None:
            for key, what in strangers(ids, self._metadata.image).items():
                blame(key, what)

    def _holds_records(self, key: TopicPartition) -> bool:
        directory = self._directory / names.log_dir_name(*key)
        return any(path.stat().st_size for path in log_files(directory))

    # --- partitions

    def _walk(
        self,
        keys: list[TopicPartition],
        partitions: dict[TopicPartition, PartitionReport],
        options: VerifyOptions,
        found: Callable[[PartitionReport], None] | None,
    ) -> None:
        for one in partitions.values():
            if one.findings and TopicPartition(one.topic, one.partition) not in keys and found is not None:
                found(one)
        for key in keys:
            report = partitions[key]
            try:
                (report.verified,) = verify_partitions(partitions_to_verify(self._log_dir, [key]), options)
                report.findings += [finding.in_folder(*key) for finding in report.verified.findings]
                with self._log_dir.log(*key) as log:
                    report.log_start_offset, report.log_end_offset = log.log_start_offset, log.log_end_offset
                    report.findings += self._check_log(key, log, report.topic_id is not None, report.verified.facts)
            except NotFoundError:
                report.findings.append(note(self._log_dir.path, "was removed by its owner during the check", *key))
            except SegmentChangedError as error:
                report.findings.append(note(self._log_dir.path, f"changed while it was being checked: {error}", *key))
            except PointExpiredError:
                raise  # It concerns all partitions, and is no damage.
            except TidelogError as error:
                if not any(finding.is_fault for finding in report.findings):
                    report.findings.append(Finding.of_error(error, self._log_dir.path, *key))
            if found is not None:
                found(report)

    def _check_log(self, key: TopicPartition, log: Log, has_topic_id: bool, walked: BatchFacts | None) -> Iterator[Finding]:
        """Yield the partition's faults outside the indexes. `walked` has the facts found while walking the log for the indexes;
        if it is None, the headers are read again.
        """
        claims = self._log_dir.claims(key)
        directory = log.directory
        try:
            log.check_names()
        except CorruptBatchError as error:
            yield Finding.of_error(error, directory, *key)
        for one in log.missing():
            yield Finding.of_missing(one, directory)
        yield from self._check_snapshots(key, log, has_topic_id)
        points = claims.recovery_point, claims.cleaner_offset
        for checkpoint, what in checkpoint_faults(log.log_start_offset, log.log_end_offset, *points, is_closed=self._is_closed):
            path = self._directory / f"{checkpoint}-offset-checkpoint"
            if path.exists():  # Already reported as missing.
                yield fault(path, f"{key.topic} {key.partition}: {what}", *key)
        path = directory / names.LEADER_EPOCH_CHECKPOINT
        try:
            epochs = LeaderEpochs.read(path)
            facts = walked or batch_facts(segment.headers() for segment in _each(log))
        except CorruptCheckpointError as error:
            yield Finding.of_error(error, path, *key)
            return
        except CorruptBatchError:
            return  # Already reported by the walk.
        for what in epoch_faults(epochs, path.exists(), facts.epochs, log.log_start_offset):
            yield fault(path, what, *key)
        if facts.first_gap is not None and not claims.is_compacted(log.topic):
            first, end = facts.first_gap
            what = f"offsets [{first}, {end}) are in no batch of the segment, as in a compacted log"
            yield note(directory, what, *key)

    def _check_snapshots(self, key: TopicPartition, log: Log, has_topic_id: bool) -> Iterator[Finding]:
        for offset in log.snapshots:
            path = log.directory / names.file_name(offset, names.SNAPSHOT_SUFFIX)
            try:
                ahead = [entry for entry in read_snapshot(path) if entry.last_offset >= offset]
            except FileNotFoundError:
                continue
            except (CorruptSnapshotError, StorageError) as error:
                if path.exists():
                    yield Finding.of_error(error, path, *key)
                continue
            if ahead:
                what = (
                    f"producer {ahead[0].producer_id} is at offset {ahead[0].last_offset}, but the snapshot is of offset {offset}"
                )
                yield fault(path, what, *key)
        facts = SnapshotFacts(
            log.snapshots,
            [segment.base_offset for segment in log.segments],
            log.log_start_offset,
            log.log_end_offset,
            self._is_closed,
            has_topic_id,
        )
        for offset in missing_snapshots(facts):
            path = log.directory / names.file_name(offset, names.SNAPSHOT_SUFFIX)
            if not self._is_closed and offset == facts.bases[-1]:
                what = "is missing: the broker was killed between creating the segment and this file; the next start writes it"
                yield note(path, what, *key)
            else:
                yield fault(path, "is missing: the producer state up to its offset is lost", *key)


def _each(log: Log) -> Iterator[Segment]:
    for segment in log.segments:
        yield segment
        segment.close()
