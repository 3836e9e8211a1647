"""Writes topics of a backup into a data folder: unchanged batches, with their offsets, leader epochs and producers.

Topics are created atomically (`storage.topics.new_topics`), small ones in groups, because a group waits for the disk as often as
one topic. A restore that was killed continues with the first missing group. `WRITTEN_AT_ONCE` partitions are written at a time,
each in pieces of `APPENDED_BYTES`, and closed before the next one is begun, which bounds memory and open files.

A batch is rewritten only if some of its records are left out. The remaining records keep their offsets, as after
compaction. A transaction that is open at the end gets a COMMIT or ABORT marker at the next offset.

The internal topics are restored last, unless the folder already has them. They preserve the groups' positions and the state of
Kafka's coordinators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tidelog.clock import Clock
from tidelog.config import INT64_MAX
from tidelog.model import READ_UNCOMMITTED, TopicPartition
from tidelog.ordered_map import ordered_map
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.builder import Producer, build_end_txn_marker
from tidelog.records.control import ControlType
from tidelog.records.filter import BatchDecision, BatchRetention, RecordFilter, filter_to
from tidelog.records.records import Record
from tidelog.restore.cuts import PartitionCut, RestorePlan, TopicCut
from tidelog.restore.points import Points
from tidelog.restore.request import BY_TIME, RestoreRequest
from tidelog.restore.result import RestoredPartition
from tidelog.restore.runner import WRITTEN_AT_ONCE
from tidelog.sources.reader_resources import ReaderResources
from tidelog.sources.scan_plan import ALL_TIMES
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.source import Source
from tidelog.sources.split import Split
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.topics.new_topics import NewTopics, StagedTopic

APPENDED_BYTES = 1 << 20
"""The most bytes that one append writes, unless a single batch is larger."""

GROUP_PARTITIONS = 500
GROUP_BYTES = 256 << 20
"""The most partitions and bytes of topics that are created together: so much is written again after a crash."""

_SPLIT_BYTES = 256 << 20


def groups_of(topics: Iterable[TopicCut]) -> Iterator[list[TopicCut]]:
    """Yield the topics in groups that are created together. A group has at most `GROUP_PARTITIONS` partitions and `GROUP_BYTES`,
    or a single topic.
    """
    group: list[TopicCut] = []
    partitions = size_bytes = 0
    for topic in topics:
        count, size = topic.partition_count, sum(one.size_bytes for one in topic.entry.partitions)
        if group and (partitions + count > GROUP_PARTITIONS or size_bytes + size > GROUP_BYTES):
            yield group
            group, partitions, size_bytes = [], 0, 0
        group.append(topic)
        partitions, size_bytes = partitions + count, size_bytes + size
    if group:
        yield group


def restore_topics(
    plan: RestorePlan, topics: Sequence[TopicCut], points: Points, folder: Path, clock: Clock, progress: Callable[[int], object]
) -> list[RestoredPartition]:
    """Restore topics into a data folder, which is created if missing. `progress` is called with the number of bytes written, on
    any thread.

    Raises TopicExistsError, InvalidArgumentError for an invalid name or setting, SegmentChangedError or CorruptDataError if the
    backup is damaged, StorageError. After an error, no part of the topics remains.
    """
    staged = [StagedTopic(one.name, one.partition_count, one.settings, topic_id=one.manifest.topic_id) for one in topics]

    def work(task: tuple[TopicCut, StagedTopic, PartitionCut, list[Split]]) -> RestoredPartition:
        topic, new, cut, splits = task
        done = _restore(plan.request, topic, cut, splits, new.logs[cut.partition], progress)
        new.finish(cut.partition)
        return done

    def tasks() -> Iterator[tuple[TopicCut, StagedTopic, PartitionCut, list[Split]]]:
        for topic, new in zip(topics, staged, strict=True):
            for cut in topic.partitions:
                yield topic, new, cut, _splits(points.at(topic.address), topic, cut)

    with NewTopics(folder, clock) as added:
        added.add(*staged)
        written = list(ordered_map(work, tasks(), WRITTEN_AT_ONCE))
        added.commit()
    return written


def _splits(source: Source, topic: TopicCut, cut: PartitionCut) -> list[Split]:
    if not cut.size:
        return []
    ranges = {TopicPartition(topic.source, cut.partition): (cut.start_offset, cut.end_offset)}
    return list(source.splits(ranges, ALL_TIMES, READ_UNCOMMITTED, split_bytes=_SPLIT_BYTES))


def _restore(
    request: RestoreRequest,
    topic: TopicCut,
    cut: PartitionCut,
    splits: Sequence[Split],
    log: PartitionLog,
    progress: Callable[[int], object],
) -> RestoredPartition:
    if cut.start_offset > 0:
        log.truncate_fully_and_start_at(cut.start_offset)
    kept = _Kept(request, cut)
    records: int | None = 0
    size_bytes = 0
    latest = None
    for data, rewritten in _pieces(splits, cut, kept, min(APPENDED_BYTES, log.config.segment_bytes)):
        first = next(iter(rewritten))
        if log.log_end_offset == cut.start_offset and first.base_offset < cut.start_offset:
            log.truncate_fully_and_start_at(first.base_offset, cut.start_offset)
        _append(log, data)
        counts = [header.record_count for header in rewritten if not header.is_control]
        records = None if records is None or min(counts, default=0) < 0 else records + sum(counts)
        size_bytes += len(data)
        latest = rewritten[-1]
        progress(len(data))
    if latest is not None:
        _decide(cut, log, latest)
    return topic.result(cut, log.log_end_offset, records, size_bytes)


def _append(log: PartitionLog, data: bytes) -> None:
    """Append batches. A log refuses a batch that is larger than a segment; a batch from before `segment.bytes` was lowered gets a
    segment of its own.
    """
    config = log.config
    if len(data) <= config.segment_bytes:
        log.append_as_follower(data)
        return
    log.update_config(replace(config, segment_bytes=len(data)))
    log.append_as_follower(data)
    log.update_config(config)


def _pieces(
    splits: Sequence[Split], cut: PartitionCut, kept: _Kept, limit_bytes: int
) -> Iterator[tuple[bytes, list[BatchHeader]]]:
    """Yield the kept records in pieces, each with its batches. A piece has at most `limit_bytes`, or a single batch."""
    piece, headers = bytearray(), list[BatchHeader]()
    with ReaderResources() as reading:
        for split in splits:
            for header, buffer, index in split.batches(reading, ScanReport()):
                if header.base_offset >= cut.end_offset or header.last_offset < cut.start_offset:
                    continue
                batch = buffer[index : index + header.size]
                if piece and len(piece) + len(batch) > limit_bytes:
                    yield bytes(piece), headers
                    piece, headers = bytearray(), []
                if kept.is_whole(header):
                    piece += batch
                    headers.append(header)
                else:
                    result = filter_to(batch, kept, path=split.place)
                    piece += result.data
                    headers += iter_headers(result.data)
    if piece:
        yield bytes(piece), headers


class _Kept(RecordFilter):
    """Decides which records of a partition are restored."""

    def __init__(self, request: RestoreRequest, cut: PartitionCut) -> None:
        super().__init__(INT64_MAX, 1)  # So that no batch gets a delete horizon.
        self._low, self._high = cut.start_offset, cut.end_offset
        is_by_time = request.order == BY_TIME
        self._from_ms = request.from_ms if is_by_time else None
        self._until_ms = request.until_ms if is_by_time else None

    def is_whole(self, header: BatchHeader) -> bool:
        """Whether the header alone shows that the batch is kept unchanged."""
        if header.magic < 2 and (self._from_ms is not None or self._until_ms is not None):
            return False
        inside = self._low <= header.base_offset and header.last_offset < self._high
        below = self._until_ms is None or header.max_timestamp < self._until_ms
        return header.is_control or (inside and below and self._from_ms is None)

    def check_batch_retention(self, header: BatchHeader, batch: memoryview) -> BatchDecision:
        """Keep the last sequence number of a producer whose records are left out, so that the producer can continue."""
        has_producer = header.magic >= 2 and header.has_producer_id
        return BatchDecision(BatchRetention.RETAIN_EMPTY if has_producer else BatchRetention.DELETE_EMPTY)

    def should_retain_record(self, header: BatchHeader, record: Record) -> bool:
        return (
            self._low <= record.offset < self._high
            and (self._until_ms is None or record.timestamp < self._until_ms)
            and (self._from_ms is None or record.timestamp >= self._from_ms)
        )


def _decide(cut: PartitionCut, log: PartitionLog, latest: BatchHeader) -> None:
    """Append a COMMIT or ABORT marker for each transaction that is open at the end."""
    for producer_id, _ in sorted({**cut.committed, **cut.left_out}.items()):
        entry = log.producer_state.last_entry(producer_id)
        if entry is None or entry.current_txn_first_offset is None:
            continue
        marker = build_end_txn_marker(
            log.log_end_offset,
            latest.max_timestamp,
            ControlType.COMMIT if producer_id in cut.committed else ControlType.ABORT,
            Producer(producer_id, entry.producer_epoch, -1),
            coordinator_epoch=max(0, entry.coordinator_epoch),
            leader_epoch=latest.leader_epoch,
        )
        log.append_as_follower(bytes(marker))
