"""Logs to compact, cleaners, and what is left of the keys; after the helpers of Kafka's LogCleanerTest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.storage.partition_logs import NOW_MS, end_txn, headers, open_log
from tidelog.clock import ManualClock
from tidelog.formats.txn_index import AbortedTxn
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME, iter_headers
from tidelog.records.builder import NO_PRODUCER, Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.records import Record, iter_records
from tidelog.records.validation import AppendOrigin
from tidelog.storage.compaction.cleanable import LogToClean
from tidelog.storage.compaction.cleaned_transactions import CleanedTransactions
from tidelog.storage.compaction.cleaner import Cleaner, Steps, run
from tidelog.storage.compaction.cleaner_stats import CleanerStats
from tidelog.storage.partition.append.append_info import AppendInfo
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation
from tidelog.storage.segment.log_segment import LogSegment

DELETE_RETENTION_MS = 86_400_000
LARGE_TIMESTAMP = 2**63 - 1 - DELETE_RETENTION_MS - 1
"""A time at which everything is old, and from which one more delete.retention.ms can still be reported."""
LATEST = 2**62
"""An offset above all others, for keys that a log is to lose."""


def compacted_log(
    directory: Path, clock: ManualClock | None = None, *, clean: bool = True, **properties: int | str | bool
) -> PartitionLog:
    """A log as LogCleanerTest has it; `properties` with `_` for `.`."""
    settings: dict[str, int | str | bool] = {"segment_bytes": 1024, "segment_index_bytes": 1024, "cleanup_policy": "compact"}
    return open_log(directory, clock, clean=clean, **{**settings, **properties})


def make_cleaner(slots: int = 10_000, clock: ManualClock | None = None, io_buffer_bytes: int = 64 * 1024) -> Cleaner:
    return Cleaner(clock or ManualClock(NOW_MS), memory_bytes=24 * slots, load_factor=0.75, io_buffer_bytes=io_buffer_bytes)


def to_clean(log: PartitionLog, first_dirty: int = 0, first_uncleanable: int | None = None) -> LogToClean:
    end = log.segments.active.base_offset if first_uncleanable is None else first_uncleanable
    return LogToClean.of(log, first_dirty, end)


def clean(cleaner: Cleaner, log: PartitionLog, first_dirty: int = 0, now_ms: int | None = None) -> int:
    """One pass up to the active segment; where the next one begins."""
    result = cleaner.clean(to_clean(log, first_dirty), now_ms)
    assert result is not None
    return result.end_offset


def clean_twice(cleaner: Cleaner, log: PartitionLog, first_dirty: int, now_ms: int = LARGE_TIMESTAMP) -> int:
    """One pass that sets delete horizons, one after they have come (runTwoPassClean)."""
    clean(cleaner, log, first_dirty, now_ms)
    return clean(cleaner, log, first_dirty, now_ms + DELETE_RETENTION_MS + 1)


def clean_segments(
    cleaner: Cleaner,
    log: PartitionLog,
    segments: Iterable[LogSegment],
    now_ms: int = 0,
    old_format_horizon_ms: int = -1,
    stats: CleanerStats | None = None,
) -> bool:
    """Only the second half of a pass: by what is in the cleaner's map already."""
    return run(
        cleaner.clean_segments(log, list(segments), CleanedTransactions(), now_ms, old_format_horizon_ms, stats or CleanerStats())
    )


def do_next(steps: Steps[Any]) -> None:
    """One step of a pass; what another thread may do is done here."""
    step = next(steps)
    if not isinstance(step, int):
        step()


def forget(cleaner: Cleaner, keys: Iterable[int]) -> None:
    """Pretend that these keys come again far above."""
    for key in keys:
        cleaner.offset_map.put(b"%d" % key, LATEST)


# --- records


def record(
    key: int | None, value: int | bytes | None, timestamp: int = NO_TIMESTAMP, producer: Producer = NO_PRODUCER, offset: int = 0
) -> bytearray:
    data = b"%d" % value if isinstance(value, int) else value
    key_data = None if key is None else b"%d" % key
    return build_batch_v2([Record(offset, timestamp, CREATE_TIME, key_data, data)], producer=producer)


def append(log: PartitionLog, key: int | None, value: int | bytes | None, timestamp: int = NO_TIMESTAMP) -> AppendInfo:
    return log.append_as_leader(record(key, value, timestamp), 0)


def append_by(log: PartitionLog, producer_id: int, key: int, sequence: int, epoch: int = 0) -> AppendInfo:
    """One idempotent record."""
    return log.append_as_leader(record(key, key, producer=Producer(producer_id, epoch, sequence)), 0)


def fill(log: PartitionLog, segments: int, keys: int | None = None) -> None:
    """Append records, key and value their offset (key modulo `keys`), until there are so many segments."""
    while len(log.segments) < segments:
        offset = log.log_end_offset
        append(log, offset if keys is None else offset % keys, offset)


def producer(
    log: PartitionLog, producer_id: int, epoch: int = 0, *, transactional: bool = True, replicated: bool = False
) -> Callable[..., AppendInfo]:
    """What appends a batch of keys, in one producer's sequence."""
    sequence = 0

    def write(*keys: int) -> AppendInfo:
        nonlocal sequence
        records = [Record(i, NOW_MS, CREATE_TIME, b"%d" % key, b"%d" % key) for i, key in enumerate(keys)]
        data = build_batch_v2(records, producer=Producer(producer_id, epoch, sequence), is_transactional=transactional)
        sequence += len(keys)
        origin = AppendOrigin.REPLICATION if replicated else AppendOrigin.CLIENT
        return log.append_as_leader(data, 0, origin=origin)

    return write


def commit(log: PartitionLog, producer_id: int) -> None:
    end_txn(log, ControlType.COMMIT, producer_id)


def abort(log: PartitionLog, producer_id: int) -> None:
    end_txn(log, ControlType.ABORT, producer_id)


def compressed(keys: Iterable[int], codec: Codec, offset: int = 0) -> bytearray:
    records = [Record(offset + i, NOW_MS, CREATE_TIME, b"%d" % key, b"%d" % key) for i, key in enumerate(keys)]
    return build_batch_v2(records, codec=codec)


# --- what is in a log


def all_records(log: PartitionLog, *, control: bool = False) -> list[Record]:
    """Every record in the segments, control records only if asked for."""
    return [
        found
        for segment in log.segments
        for header in segment.batches()
        if control or not header.is_control
        for found in iter_records(header, segment.log.read_batch(header))
    ]


def keys(log: PartitionLog) -> list[int]:
    """The keys of records with a value (keysInLog)."""
    return [int(found.key) for found in all_records(log) if found.value is not None and found.key is not None]


def offsets_with_values(log: PartitionLog) -> list[int]:
    """Offsets of records with key and value, control records among them (offsetsInLog)."""
    found = all_records(log, control=True)
    return [one.offset for one in found if one.key is not None and one.value is not None]


def batch_base_offsets(log: PartitionLog) -> list[int]:
    return [header.base_offset for header in headers(log)]


def batch_last_offsets(log: PartitionLog) -> list[int]:
    return [header.last_offset for header in headers(log)]


def last_sequences(log: PartitionLog) -> dict[int, int]:
    """Each producer's last sequence, by the batches in the log (lastSequencesInLog)."""
    return {
        header.producer_id: header.last_sequence for header in headers(log) if header.has_producer_id and not header.is_control
    }


def aborted(log: PartitionLog, end_offset: int | None = None) -> list[AbortedTxn]:
    return log.local.collect_aborted_transactions(0, log.log_end_offset if end_offset is None else end_offset)


def read_committed(log: PartitionLog, max_bytes: int = 1 << 20) -> list[Record]:
    """What a consumer of committed records gets, which leaves out by itself what the log says was aborted."""
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        data = log.read(offset, max_bytes, FetchIsolation.TXN_COMMITTED)
        if not len(data.data):
            break
        coming = sorted(data.aborted_transactions or [], key=lambda txn: txn.first_offset)
        gone: set[int] = set()
        for header in iter_headers(data.data):
            while coming and coming[0].first_offset <= header.last_offset:
                gone.add(coming.pop(0).producer_id)
            batch = data.data[header.position : header.end_position]
            inside = list(iter_records(header, batch))
            if header.is_control:
                if inside and parse_control_type(inside[0].key) is ControlType.ABORT:
                    gone.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in gone):
                found += [record for record in inside if record.offset >= offset]
            next_offset = header.next_offset
        offset = next_offset
    return found
