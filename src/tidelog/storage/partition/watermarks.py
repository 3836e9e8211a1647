"""The log start offset, high watermark and last stable offset of a log (spec §5.5, §13.2).

===================  =====================================================================================================
log_start_offset     nothing below is readable; moves forward by DeleteRecords and retention, back only by truncation
last_stable_offset   read_committed ends here: at the high watermark, or at the first transaction that does not end below it
high_watermark       read_uncommitted ends here: every in-sync replica has the records below
log_end_offset       the end of the local log
===================  =====================================================================================================

Invariant: log start ≤ high watermark ≤ log end, and last stable offset ≤ high watermark. If the position of an offset is unknown,
it is looked up once, when a read needs it.

Each `PartitionLog` has a `Watermarks`. Not thread-safe.
"""

from __future__ import annotations

import enum
import logging

from tidelog.errors import InvalidArgumentError, OffsetOutOfRangeError
from tidelog.storage.partition.local_log import LocalLog
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.producers.producer_state_manager import ProducerStateManager

logger = logging.getLogger("tidelog.storage")


class FetchIsolation(enum.Enum):
    """The bound of a read: `LOG_END` for followers, the others for consumers (read_uncommitted, read_committed)."""

    LOG_END = "log_end"
    HIGH_WATERMARK = "high_watermark"
    TXN_COMMITTED = "txn_committed"


class Watermarks:
    """The offsets of one log between its start and its end. The high watermark begins at the log start."""

    def __init__(self, local: LocalLog, producer_state: ProducerStateManager, log_start_offset: int) -> None:
        self.log_start_offset = log_start_offset
        self._local = local
        self._producer_state = producer_state
        self._high_watermark = LogOffsetMetadata(log_start_offset)
        self._first_unstable: LogOffsetMetadata | None = None

    # --- asking

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.message_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the first transaction that may still be aborted, None if all are decided."""
        return None if self._first_unstable is None else self._first_unstable.message_offset

    @property
    def last_stable_offset(self) -> int:
        first, mark = self._first_unstable, self._high_watermark.message_offset
        return mark if first is None else min(first.message_offset, mark)

    def fetch_high_watermark_metadata(self) -> LogOffsetMetadata:
        """Return the high watermark with its position, which is looked up if unknown."""
        if self._high_watermark.is_message_offset_only:
            self._set_high_watermark(self._with_place(self._high_watermark.message_offset))
        return self._high_watermark

    def fetch_last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """Return the last stable offset with its position."""
        mark = self.fetch_high_watermark_metadata()
        first = self._first_unstable
        if first is None or first.message_offset >= mark.message_offset:
            return mark
        if first.is_message_offset_only:
            first = self._first_unstable = self._with_place(first.message_offset)
        return first

    def end_of(self, isolation: FetchIsolation) -> LogOffsetMetadata:
        """Return the bound of a read with this isolation, with its position: the log end, the high watermark or the last stable
        offset.
        """
        if isolation is FetchIsolation.LOG_END:
            return self._local.log_end_offset_metadata
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.fetch_high_watermark_metadata()
        return self.fetch_last_stable_offset_metadata()

    # --- the high watermark

    def update_high_watermark(self, offset: int | LogOffsetMetadata) -> int:
        """Set the high watermark, limited to the log's offsets, and return it."""
        wanted = LogOffsetMetadata(offset) if isinstance(offset, int) else offset
        if wanted.message_offset < self.log_start_offset:
            wanted = LogOffsetMetadata(self.log_start_offset)
        elif wanted.message_offset >= self._local.log_end_offset:
            wanted = self._local.log_end_offset_metadata
        self._set_high_watermark(wanted)
        return wanted.message_offset

    def update_high_watermark_fast(self) -> None:
        """Set the high watermark to the log end, for a leader that is the only replica."""
        local = self._local
        active = local.segments.active
        metadata = (local.log_end_offset, active.base_offset, active.log.size_bytes)
        self._high_watermark = tuple.__new__(LogOffsetMetadata, metadata)
        producer_state = self._producer_state
        if self._first_unstable is not None or producer_state.has_undecided:
            producer_state.on_high_watermark_updated(local.log_end_offset)
            self.update_first_unstable_offset()

    def on_log_end_moved(self) -> None:
        """Limit the high watermark to the log end, and update its position. Call it after a truncation, an append or a roll."""
        if self._high_watermark.message_offset >= self._local.log_end_offset:
            self._set_high_watermark(self._local.log_end_offset_metadata)

    # --- the others

    def set_log_start_offset(self, offset: int) -> None:
        """Set the log start, and raise the high watermark and the recovery point if they are below it."""
        self.log_start_offset = offset
        if self.high_watermark < offset:
            self.update_high_watermark(offset)
        self._local.recovery_point = max(self._local.recovery_point, offset)

    def update_first_unstable_offset(self) -> None:
        """Update the start of the producers' first undecided transaction."""
        first = self._producer_state.first_unstable_offset
        if first is not None and (first.is_message_offset_only or first.message_offset < self.log_start_offset):
            first = self._with_place(max(first.message_offset, self.log_start_offset))
        self._first_unstable = first

    # --- inside

    def _set_high_watermark(self, new: LogOffsetMetadata) -> None:
        if new.message_offset < 0:
            raise InvalidArgumentError(
                "the high watermark cannot be negative", path=self._local.directory, found=new.message_offset
            )
        if new.message_offset < self._high_watermark.message_offset:
            logger.warning(
                "%s: the high watermark moves back from %d to %d",
                self._local.directory,
                self._high_watermark.message_offset,
                new.message_offset,
            )
        self._high_watermark = new
        self._producer_state.on_high_watermark_updated(new.message_offset)
        self.update_first_unstable_offset()

    def _with_place(self, offset: int) -> LogOffsetMetadata:
        """Return an offset with its position, or without a position if the log does not contain the offset."""
        if offset < self.log_start_offset:
            return LogOffsetMetadata(offset)
        try:
            return self._local.convert_to_offset_metadata(offset)
        except OffsetOutOfRangeError:
            return LogOffsetMetadata(offset)
