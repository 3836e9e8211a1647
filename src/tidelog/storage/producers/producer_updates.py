"""What one append means for the producers: worked out before anything is written, taken over once it is (spec §5.1, §9.7).

| append | before the write | after it |
|---|---|---|
| as leader | the batch is checked against what its producer wrote before, or found to repeat it | the producer's new state |
| as follower | markers are read; nothing is refused that a leader took | batch by batch, as if each had come alone |

A leader's set with producers in it is a single batch. A follower's may hold several transactions of one producer; the last
stable offset noted with an aborted one must be that of its marker, not that of the set's end, or reads would miss those between.

`appending` calls it for appends with a producer id in them, and for no others.
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
    """The producer's part of an append, the transaction that it completes, or the batch that it repeats."""

    info: ProducerAppendInfo | None
    completed: CompletedTxn | None
    duplicate: BatchMetadata | None

    def apply(self, producer_state: ProducerStateManager, segment: LogSegment) -> None:
        """Take it over; `segment` is where the records are, and where an aborted transaction is noted. Raises StorageError."""
        if self.info is not None:
            producer_state.update(self.info)
        if self.completed is not None:
            last_stable_offset = producer_state.last_stable_offset(self.completed)
            segment.update_txn_index(self.completed, last_stable_offset)
            producer_state.complete_txn(self.completed)


class FollowerUpdates(NamedTuple):
    """The batches of producers, and what those among them say that are markers."""

    batches: list[tuple[BatchHeader, EndTxnMarker | None]]
    duplicate: BatchMetadata | None = None

    def apply(self, producer_state: ProducerStateManager, segment: LogSegment) -> None:
        """Take it over; `segment` is where the records are, and where aborted transactions are noted. Raises StorageError."""
        for header, marker in self.batches:
            completed = producer_state.replay(header, marker)
            if completed is not None:
                segment.update_txn_index(*completed)


def analyze_as_leader(
    producer_state: ProducerStateManager, header: BatchHeader, data: memoryview, origin: AppendOrigin, where: LogOffsetMetadata
) -> LeaderUpdates:
    """Check the batch `data`, which is to be written at `where`.

    Raises a ProducerError where it does not follow what its producer wrote before, InvalidRecordError for a marker that is none.
    """
    if origin is AppendOrigin.CLIENT:
        duplicate = producer_state.duplicate_of(header)
        if duplicate is not None:
            return LeaderUpdates(None, None, duplicate)
    info = producer_state.prepare_update(header.producer_id, origin)
    completed = info.append(header, where, _end_txn_marker(header, data))
    return LeaderUpdates(info, completed, None)


def analyze_as_follower(headers: Sequence[BatchHeader], data: memoryview) -> FollowerUpdates:
    """Read the markers among batches, `data`. Raises InvalidRecordError for one that is none."""
    return FollowerUpdates([(header, _end_txn_marker(header, data)) for header in headers if header.has_producer_id])


def _end_txn_marker(header: BatchHeader, data: memoryview) -> EndTxnMarker | None:
    """Return what a control batch says about its producer's transaction; None if it is no marker, or an emptied one."""
    if not header.attributes & CONTROL_BIT:
        return None
    batch = data[header.position : header.end_position]
    for record in iter_records(header, batch, check_crc=False):
        if parse_control_type(record.key) in (ControlType.ABORT, ControlType.COMMIT):
            return parse_end_txn_marker(record.key, record.value)
    return None
