"""The changes of producer state by one append: computed before the write, applied after it (spec §5.1, §9.7).

| append | before the write | after it |
|---|---|---|
| as leader | the batch is checked against the producer's earlier batches, or is a duplicate | the producer's new state |
| as follower | markers are read; nothing that a leader accepted is refused | batch by batch, as if each had been appended alone |

A leader's append with a producer is a single batch. A follower's append may contain several transactions of one producer. An
aborted transaction must be stored with the last stable offset at its marker. With the last stable offset at the end of the
append, reads would miss the aborted transactions in between.

`Appends` calls these functions only for appends with a producer id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.reader.producer_state import CompletedTxn
from tidelog.records.batch import CONTROL_BIT, BatchHeader
from tidelog.records.control import ControlType, EndTxnMarker, parse_control_type, parse_end_txn_marker
from tidelog.records.records import iter_records
from tidelog.records.validation import AppendOrigin
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.producers.producer_append_info import ProducerAppendInfo
from tidelog.storage.producers.producer_state_entry import BatchMetadata
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.segment.log_segment import LogSegment


class LeaderUpdates(NamedTuple):
    """A leader's append of a producer: the producer's part of it, the transaction that it completes, or the batch that it
    duplicates.
    """

    info: ProducerAppendInfo | None
    completed: CompletedTxn | None
    duplicate: BatchMetadata | None

    def apply(self, producer_state: ProducerStateManager, segment: LogSegment) -> None:
        """Apply the changes to the producer state. An aborted transaction is recorded in `segment`, which has the records. Raises
        StorageError.
        """
        if self.info is not None:
            producer_state.update(self.info)
        if self.completed is not None:
            last_stable_offset = producer_state.last_stable_offset(self.completed)
            segment.update_txn_index(self.completed, last_stable_offset)
            producer_state.complete_txn(self.completed)


class FollowerUpdates(NamedTuple):
    """What a follower's append changes: the batches with a producer id, each with its marker if it is one."""

    batches: list[tuple[BatchHeader, EndTxnMarker | None]]
    duplicate: BatchMetadata | None = None

    def apply(self, producer_state: ProducerStateManager, segment: LogSegment) -> None:
        """Apply the changes to the producer state. Aborted transactions are recorded in `segment`, which has the records. Raises
        StorageError.
        """
        for header, marker in self.batches:
            completed = producer_state.replay(header, marker)
            if completed is not None:
                segment.update_txn_index(*completed)


def analyze_as_leader(
    producer_state: ProducerStateManager, header: BatchHeader, data: memoryview, origin: AppendOrigin, where: LogOffsetMetadata
) -> LeaderUpdates:
    """Check the batch `data`, which is to be written at `where`, and return the changes.

    Raises a ProducerError if the batch does not follow the producer's earlier batches, InvalidRecordError for an invalid marker.
    """
    if origin is AppendOrigin.CLIENT:
        duplicate = producer_state.duplicate_of(header)
        if duplicate is not None:
            return LeaderUpdates(None, None, duplicate)
    info = producer_state.prepare_update(header.producer_id, origin)
    completed = info.append(header, where, _end_txn_marker(header, data))
    return LeaderUpdates(info, completed, None)


def analyze_as_follower(headers: Sequence[BatchHeader], data: memoryview) -> FollowerUpdates:
    """Read the markers among the batches in `data`, and return the changes. Raises InvalidRecordError for an invalid marker."""
    return FollowerUpdates([(header, _end_txn_marker(header, data)) for header in headers if header.has_producer_id])


def _end_txn_marker(header: BatchHeader, data: memoryview) -> EndTxnMarker | None:
    """Return the transaction marker in a control batch. Return None for any other control record, and if compaction has removed
    the marker.
    """
    if not header.attributes & CONTROL_BIT:
        return None
    batch = data[header.position : header.end_position]
    for record in iter_records(header, batch, check_crc=False):
        if parse_control_type(record.key) in (ControlType.ABORT, ControlType.COMMIT):
            return parse_end_txn_marker(record.key, record.value)
    return None
