"""One producer's part of an append: checked against the producer's earlier batches, and kept separate until it is written.

The origin of the append decides what happens to a batch that fails a check (spec §9.7); "-" means that the check is not made:

===========  ==============  ========  ======================================  =================
origin       producer epoch  sequence  non-transactional, transaction is open  coordinator epoch
===========  ==============  ========  ======================================  =================
CLIENT       refused         refused   refused                                 refused
COORDINATOR  refused         -         refused                                 refused
REPLICATION  logged          -         logged (Kafka refuses it)               logged
===========  ==============  ========  ======================================  =================

The caller handles duplicates (`ProducerStateManager.duplicate_of`): here they would be out of order.
"""

from __future__ import annotations

import logging

from tidelog.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    ProducerError,
    TransactionCoordinatorFencedError,
)
from tidelog.model import TopicPartition
from tidelog.reader.producer_state import CompletedTxn
from tidelog.records.batch import (
    CONTROL_BIT,
    NO_PRODUCER_EPOCH,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from tidelog.records.control import ControlType, EndTxnMarker
from tidelog.records.validation import AppendOrigin
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.producers.producer_state_entry import NO_OFFSET, BatchMetadata, ProducerStateEntry
from tidelog.storage.producers.txn_metadata import TxnMetadata
from tidelog.storage.producers.verification_state_entry import VerificationStateEntry

logger = logging.getLogger("tidelog.storage")

_CLIENT = AppendOrigin.CLIENT
_REPLICATION = AppendOrigin.REPLICATION
_MAX_SEQUENCE = 2**31 - 1


class ProducerAppendInfo:
    """A producer's part of an append. `ProducerStateManager.prepare_update` creates it, and `update` applies it once the records
    are written.
    """

    __slots__ = (
        "_may_begin_anywhere",
        "_origin",
        "_topic_partition",
        "_verification",
        "entry",
        "is_marker",
        "is_transactional",
        "started_transactions",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        current: ProducerStateEntry,
        origin: AppendOrigin,
        verification: VerificationStateEntry | None = None,
    ) -> None:
        """`current` is not changed. For an unknown producer it is an entry without an epoch."""
        self.entry = current.copy()
        self.started_transactions: tuple[TxnMetadata, ...] = ()
        self.is_transactional = False
        self.is_marker = False
        # If all records of the producer were deleted, the next sequence is unknown.
        self._may_begin_anywhere = current.producer_epoch == NO_PRODUCER_EPOCH
        self._topic_partition = topic_partition
        self._origin = origin
        self._verification = verification

    @property
    def producer_id(self) -> int:
        return self.entry.producer_id

    def append(
        self, header: BatchHeader, first_offset_metadata: LogOffsetMetadata | None = None, marker: EndTxnMarker | None = None
    ) -> CompletedTxn | None:
        """Add one batch, with its final offsets. Return the transaction that the batch completes, or None.

        `marker` is a control batch's marker, None if compaction has removed it. `first_offset_metadata` is the position of the
        batch. Raises a ProducerError if the batch does not follow the earlier ones; nothing may be written then.
        """
        attributes = header.attributes
        if attributes & CONTROL_BIT:
            if marker is None:
                return None
            return self.append_end_txn_marker(marker, header.producer_epoch, header.base_offset, header.max_timestamp)
        self.append_data_batch(
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.max_timestamp,
            header.base_offset,
            header.last_offset,
            is_transactional=attributes & TRANSACTIONAL_BIT != 0,
            first_offset_metadata=first_offset_metadata,
        )
        return None

    def append_data_batch(
        self,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        timestamp: int,
        first_offset: int,
        last_offset: int,
        *,
        is_transactional: bool,
        first_offset_metadata: LogOffsetMetadata | None = None,
    ) -> None:
        """Add a batch of data; see `append`."""
        entry = self.entry
        if epoch < entry.producer_epoch:
            self._refuse_epoch(epoch, first_offset)
        if self._origin is _CLIENT:
            self._check_sequence(epoch, first_sequence, first_offset)
        if entry.current_txn_first_offset >= 0:
            if not is_transactional:
                self._refuse(
                    InvalidTxnStateError,
                    "the batch is outside the open transaction",
                    first_offset,
                    "a non-transactional batch",
                    f"the transaction that began at offset {entry.current_txn_first_offset}",
                )
        elif is_transactional:
            entry.current_txn_first_offset = first_offset
            where = LogOffsetMetadata(first_offset) if first_offset_metadata is None else first_offset_metadata
            self.started_transactions += (TxnMetadata(entry.producer_id, where),)
        self.is_transactional |= is_transactional
        entry.add_batch(epoch, BatchMetadata(last_sequence, last_offset, last_offset - first_offset, timestamp))

    def append_end_txn_marker(self, marker: EndTxnMarker, epoch: int, offset: int, timestamp: int) -> CompletedTxn | None:
        """End the open transaction at `offset`, and return it; return None if no transaction is open. See `append`.

        A marker with a higher epoch fences the producer, whose batches are then forgotten.
        """
        entry = self.entry
        if epoch < entry.producer_epoch:
            self._refuse_epoch(epoch, offset)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            self._refuse(
                TransactionCoordinatorFencedError,
                "the marker comes from a fenced coordinator",
                offset,
                f"coordinator epoch {marker.coordinator_epoch}",
                f">= {entry.coordinator_epoch}",
            )
        self.is_transactional = self.is_marker = True
        first_offset = entry.current_txn_first_offset
        entry.set_epoch(epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        entry.current_txn_first_offset = NO_OFFSET
        if first_offset < 0:
            return None  # A transaction without data makes no offset unstable, and is not recorded as aborted.
        return CompletedTxn(entry.producer_id, first_offset, offset, marker.type is ControlType.ABORT)

    def _check_sequence(self, epoch: int, first_sequence: int, offset: int) -> None:
        verification = self._verification
        if verification is not None and first_sequence > verification.lowest_sequence:
            self._refuse_sequence(first_sequence, offset, f"{verification.lowest_sequence}, seen before and not yet written")
        entry = self.entry
        if epoch != entry.producer_epoch:
            if first_sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
                self._refuse_sequence(first_sequence, offset, f"0, the first one of epoch {epoch} after {entry.producer_epoch}")
        elif not self._may_begin_anywhere:
            last_sequence = entry.last_sequence
            if first_sequence != last_sequence + 1 and not (first_sequence == 0 and last_sequence == _MAX_SEQUENCE):
                self._refuse_sequence(first_sequence, offset, f"the one after {last_sequence}")

    def _refuse_epoch(self, epoch: int, offset: int) -> None:
        self._refuse(
            InvalidProducerEpochError,
            "the batch comes from a fenced producer",
            offset,
            f"epoch {epoch}",
            f">= {self.entry.producer_epoch}",
        )

    def _refuse_sequence(self, sequence: int, offset: int, expected: str) -> None:
        self._refuse(OutOfOrderSequenceError, "the batch is out of order", offset, f"sequence {sequence}", expected)

    def _refuse(self, kind: type[ProducerError], what: str, offset: int, found: str, expected: str) -> None:
        """Raise the error. If a leader has already accepted the batch, it is in the log, so the error is only logged."""
        topic, partition = self._topic_partition
        text = f"{what}: producer {self.entry.producer_id}, {topic}-{partition}, offset {offset}"
        error = kind(text, found=found, expected=expected)
        if self._origin is not _REPLICATION:
            raise error
        logger.warning("%s", error)
