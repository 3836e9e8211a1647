"""Writes topics of a backup into a data folder: unchanged batches, with their offsets, leader epochs and producers.

Each topic is created atomically (`storage.topics.new_topic`), so a restore that was killed continues with the first missing
topic. A batch is rewritten only if some of its records are left out. The remaining records keep their offsets, as after
compaction. A transaction that is open at the end gets a COMMIT or ABORT marker at the next offset.

The internal topics are restored last, unless the folder already has them. They preserve the groups' positions and the state of
Kafka's coordinators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tidelog.clock import Clock
from tidelog.config import INT64_MAX
from tidelog.model import READ_UNCOMMITTED, TopicPartition
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.builder import Producer, build_end_txn_marker
from tidelog.records.control import ControlType
from tidelog.records.filter import BatchDecision, BatchRetention, RecordFilter, filter_to
from tidelog.records.records import Record
from tidelog.restore.cuts import PartitionCut, RestorePlan, TopicCut
from tidelog.restore.request import BY_TIME, RestoreRequest
from tidelog.restore.result import RestoredPartition
from tidelog.sources.reader_resources import ReaderResources
from tidelog.sources.scan_plan import ALL_TIMES
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.source import Source
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.topics.new_topic import NewTopic

APPENDED_BYTES = 1 << 20
"""The most bytes that one append writes, unless a single batch is larger."""

_SPLIT_BYTES = 256 << 20


def restore_topic(
    plan: RestorePlan, topic: TopicCut, source: Source, folder: Path, clock: Clock, progress: Callable[[int], object]
) -> list[RestoredPartition]:
    """Restore a topic of the point `source` into a data folder, which is created if missing. `progress` is called with the number
    of bytes written.

    Raises TopicExistsError, InvalidArgumentError for an invalid name or setting, SegmentChangedError or CorruptDataError if the
    backup is damaged, StorageError. After an error, no part of the topic remains.
    """
    topic_id = topic.manifest.topic_id
    with NewTopic(folder, topic.name, topic.partition_count, topic.settings, clock, topic_id=topic_id) as new:
        written = [_restore(plan.request, source, topic, cut, new.logs[cut.partition], progress) for cut in topic.partitions]
        new.commit()
    return written


def _restore(
    request: RestoreRequest,
    source: Source,
    topic: TopicCut,
    cut: PartitionCut,
    log: PartitionLog,
    progress: Callable[[int], object],
) -> RestoredPartition:
    key = TopicPartition(topic.source, cut.partition)
    if cut.start_offset > 0:
        log.truncate_fully_and_start_at(cut.start_offset)
    kept = _Kept(request, cut)
    records: int | None = 0
    size_bytes = 0
    latest = None
    for data, rewritten in _pieces(source, key, cut, kept, min(APPENDED_BYTES, log.config.segment_bytes)):
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
    source: Source, key: TopicPartition, cut: PartitionCut, kept: _Kept, limit_bytes: int
) -> Iterator[tuple[bytes, list[BatchHeader]]]:
    """Yield the kept records in pieces, each with its batches. A piece has at most `limit_bytes`, or a single batch."""
    if not cut.size:
        return
    piece, headers = bytearray(), list[BatchHeader]()
    ranges = {key: (cut.start_offset, cut.end_offset)}
    splits = source.splits(ranges, ALL_TIMES, READ_UNCOMMITTED, split_bytes=_SPLIT_BYTES)
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
