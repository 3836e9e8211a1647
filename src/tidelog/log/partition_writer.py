"""One partition's log being written: offsets, rolls, and the small files beside the segments (spec §5).

====================================  ==================================================================================
``<base>.log .index .timeindex``      `segment_writer`; a roll takes the batch's first offset as the new base (§5.2)
``<offset>.snapshot``                 producer state, at every roll and at the log end (§9.2)
``leader-epoch-checkpoint``           epoch and first offset; epoch 0 begins with the log (§14)
``partition.metadata``                the topic's id (§7)
``<base>.txnindex``                   transactions whose ABORT marker lies in the segment
====================================  ==================================================================================

Invariants: offsets only grow; the log end offset moves after the batch is in the file; what a batch needs (a roll, a
snapshot) is there before it. Nothing is forced to the disk before `close`, which syncs every file and then the folder:
who writes a new log shows it to nobody before (`new_topic`).

A writer begins a new log in an empty folder. It is not for use by two threads at a time.
"""

from __future__ import annotations

import random
import uuid
from pathlib import Path

from tidelog.clock import Clock
from tidelog.config import INT32_MAX, LogConfig
from tidelog.errors import InvalidArgumentError, InvalidOffsetError, RecordTooLargeError
from tidelog.log.leader_epochs import LeaderEpochs
from tidelog.log.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SNAPSHOT_SUFFIX, file_name
from tidelog.log.partition_metadata import write_topic_id
from tidelog.log.producer_snapshot import build_snapshot
from tidelog.log.producer_state import ProducerState
from tidelog.log.segment_writer import RollParams, SegmentWriter, flush, write_new_file
from tidelog.records.batch import BatchHeader, check_crc, iter_headers, read_header
from tidelog.records.builder import set_base_offset_and_epoch
from tidelog.records.control import ControlType, EndTxnMarker, parse_control_type, parse_end_txn_marker
from tidelog.records.records import iter_records


class PartitionWriter:
    """The log of one partition, from its first batch on.

    `clock` decides about rolls where batches have no timestamps; `leader_epoch` (-1: none) goes into each batch
    appended as leader; `start_offset` is the base of the first segment. `jitter` is where each segment takes its part of
    segment.jitter.ms from.
    """

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        clock: Clock,
        *,
        topic_id: uuid.UUID,
        leader_epoch: int = 0,
        start_offset: int = 0,
        jitter: random.Random | None = None,
    ) -> None:
        self.directory = directory
        self.log_start_offset = start_offset
        self.log_end_offset = start_offset
        self.size_bytes = 0
        self.segment_count = 0
        self._config = config
        self._clock = clock
        self._topic_id = topic_id
        self._leader_epoch = leader_epoch
        self._epochs = LeaderEpochs()
        if leader_epoch >= 0:
            self._epochs.assign(leader_epoch, start_offset)
        self._producers = ProducerState(map_end_offset=start_offset)
        self._jitter = jitter or random.Random()
        self._last_snapshot_offset = start_offset
        self._written: list[Path] = []
        self.active_segment = self._new_segment(start_offset)

    def append_as_leader(self, batch: bytearray) -> int:
        """Append one v2 batch; its base offset and leader epoch are set in place. Return its base offset.

        The batch comes from `records.builder`, so its checksum is not computed again (neither field is under it).
        Raises RecordTooLargeError for a batch larger than segment.bytes, StorageError.
        """
        set_base_offset_and_epoch(batch, self.log_end_offset, self._leader_epoch)
        header = read_header(batch)
        if header.magic != 2 or header.size != len(batch):
            raise InvalidArgumentError(
                "a leader's append is one whole v2 batch", found=f"magic {header.magic}, {len(batch)} bytes"
            )
        self._append([header], batch)
        return header.base_offset

    def append_as_follower(self, records: bytes | bytearray | memoryview) -> None:
        """Append whole batches as they came: offsets, epochs and timestamps stay.

        Raises CorruptBatchError for a wrong checksum, InvalidOffsetError for an offset below the log end or one that goes
        back, RecordTooLargeError, StorageError. Bytes of a partial batch at the end are left out.
        """
        view = memoryview(records)
        headers = list(iter_headers(view))
        last_offset = self.log_end_offset - 1
        for header in headers:
            check_crc(header, view[header.position : header.end_position])
            first = header.base_offset if header.magic >= 2 else header.last_offset
            if first <= last_offset:
                raise InvalidOffsetError("an append goes back in offsets", found=first, expected=f"at least {last_offset + 1}")
            last_offset = header.last_offset
        if headers:
            self._append(headers, view[: headers[-1].end_position])

    def roll(self, expected_next_offset: int = 0) -> None:
        """Finish the active segment and begin one at `expected_next_offset`, or at the log end if that is more."""
        base_offset = max(expected_next_offset, self.log_end_offset)
        if base_offset == self.active_segment.base_offset:
            # Nothing was appended since the last roll: the segment is made anew.
            self.active_segment.close_handlers()
            self.active_segment.log_path.unlink()
            self.segment_count -= 1
        else:
            self._finish_active()
            self._take_snapshot(base_offset)
        self.active_segment = self._new_segment(base_offset)

    def close(self) -> None:
        """Finish the log: last segment, snapshot at the log end, epochs, metadata; then sync all of it to the disk."""
        self._finish_active()
        self._take_snapshot(self.log_end_offset)
        self._epochs.write(self.directory / LEADER_EPOCH_CHECKPOINT)
        write_topic_id(self.directory / PARTITION_METADATA, self._topic_id)
        for path in self._written:
            flush(path)
        flush(self.directory)

    def abandon(self) -> None:
        """Close the files as they are; the folder is to be removed."""
        self.active_segment.close_handlers()

    def _append(self, headers: list[BatchHeader], records: bytes | bytearray | memoryview) -> None:
        first, last = headers[0], headers[-1]
        size = len(records)
        if size > self._config.segment_bytes:
            raise RecordTooLargeError(
                "a batch larger than segment.bytes", found=size, expected=f"at most {self._config.segment_bytes}"
            )
        for header in headers:
            if header.magic < 2:
                self._epochs.clear()
            elif header.leader_epoch >= 0:
                self._epochs.assign(header.leader_epoch, header.base_offset)
        params = RollParams(max(header.max_timestamp for header in headers), last.last_offset, size, self._clock.now_ms())
        if self.active_segment.should_roll(params):
            # v0 and v1 do not tell the first offset; the lowest one that leaves the last within an int32 is sure to do (§5.2).
            self.roll(first.base_offset if first.magic >= 2 else last.last_offset - INT32_MAX)
        self.active_segment.append(last.last_offset, headers, records)
        for header in headers:
            completed = self._producers.apply(header, _marker(header, memoryview(records)) if header.is_control else None)
            if completed is not None and completed.is_aborted:
                self.active_segment.txn_index.append(self._producers.aborted[-1])
        self.size_bytes += size
        self.log_end_offset = last.next_offset

    def _new_segment(self, base_offset: int) -> SegmentWriter:
        segment = SegmentWriter(
            self.directory, base_offset, self._config, created_ms=self._clock.now_ms(), roll_jitter_ms=self._roll_jitter_ms()
        )
        self.segment_count += 1
        return segment

    def _roll_jitter_ms(self) -> int:
        limit_ms = min(self._config.segment_jitter_ms, self._config.segment_ms)
        return self._jitter.randrange(limit_ms) if limit_ms else 0

    def _finish_active(self) -> None:
        self.active_segment.on_become_inactive()
        self._written += self.active_segment.paths()

    def _take_snapshot(self, offset: int) -> None:
        if offset > self._last_snapshot_offset:
            path = self.directory / file_name(offset, SNAPSHOT_SUFFIX)
            write_new_file(path, build_snapshot(self._producers.entries()))
            self._written.append(path)
            self._last_snapshot_offset = offset


def _marker(header: BatchHeader, records: memoryview) -> EndTxnMarker | None:
    """Return the transaction's end that a control batch tells, None if it is of another kind or empty."""
    for record in iter_records(header, records[header.position : header.end_position]):
        if parse_control_type(record.key) in (ControlType.ABORT, ControlType.COMMIT):
            return parse_end_txn_marker(record.key, record.value)
    return None
