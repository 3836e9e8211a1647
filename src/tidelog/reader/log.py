"""One partition's log, opened read-only: the segments in order, and where it starts, ends and is decided (spec §5, §6).

===================  ======================================================================================================
log_start_offset     the larger of the log-start-offset checkpoint and the first segment's base
last_stable_offset   what read_committed may see ends here: the first open transaction, or the high watermark
high_watermark       from the replication checkpoint, None if there is none; records at or above it may not have been
                     replicated when the checkpoint was written (Kafka writes it every few seconds and when it stops)
log_end_offset       after the last whole batch with a right checksum
===================  ======================================================================================================

A `Log` is what the folder held when it was opened: later appends, rolls and compactions do not show (open again for
those), and a segment removed meanwhile is read as long as it can be, then SegmentChangedError. Opening lists the folder
and reads nothing; each property reads what it needs, once. One thread at a time.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType

from tidelog.errors import CorruptCheckpointError, InvalidArgumentError, SegmentChangedError
from tidelog.formats import names
from tidelog.formats.files import Notices
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.formats.txn_index import AbortedTxn
from tidelog.model import MAX_OFFSET
from tidelog.reader import transactions
from tidelog.reader.log_segments import LogSegments
from tidelog.reader.missing.claims import Claims, newest_epoch
from tidelog.reader.missing.missing_offsets import MissingOffsets, missing_offsets
from tidelog.reader.proven_head import WalkBudget
from tidelog.reader.salvage.salvage import LeftOut
from tidelog.reader.salvage.salvaged_segment import SalvagedSegment
from tidelog.reader.segment import Segment
from tidelog.reader.segment_files import SegmentFile, list_partition
from tidelog.records.batch import BatchHeader

NEWEST_MESSAGE_FORMAT = 2


class Log(LogSegments):
    """One partition of a data folder, read-only: its segments, offsets, batches and transactions. Made by `open`."""

    _given_message_format: int | None = None
    _names_are_checked = False

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        log_start_offset: int | None = None,
        high_watermark: int | None = None,
        message_format: int | None = None,
        claims: Claims | None = None,
        skip_damaged: bool = False,
    ) -> Log:
        """Open a partition's folder, named ``<topic>-<partition>``.

        `log_start_offset` and `high_watermark` are the checkpoints' (`LogDir` passes them, and what else they say as `claims`);
        `message_format` is the topic's format, 0, 1 or 2, where the last batch's is not to be taken for it.

        With `skip_damaged` damaged batches are not seen; `left_out` says which.

        Raises NotFoundError, InvalidArgumentError, SegmentChangedError if the folder does not hold still, StorageError.
        """
        if message_format not in (None, 0, 1, 2):
            raise InvalidArgumentError("a message format", found=message_format, expected="0, 1 or 2")
        path = Path(directory)
        topic, partition = names.parse_topic_partition_name(path.name or path.resolve().name)
        notices = Notices()
        claims = claims or Claims(high_watermark=high_watermark, log_start_offset=log_start_offset)
        claims = claims._replace(newest_epoch=newest_epoch(path))  # Before the folder is listed: so far it went then.
        listing = list_partition(path, lambda file: _swap_end(file, notices))
        bases: list[int | None] = [file.base_offset for file in listing.segments[1:]]
        budget = WalkBudget()
        kind = SalvagedSegment if skip_damaged else Segment
        segments: list[Segment] = [
            kind(file, after, notices, budget) for file, after in zip(listing.segments, [*bases, None], strict=False)
        ]
        log = cls(
            path,
            topic,
            partition,
            segments,
            listing.snapshots,
            notices,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            claims=claims,
        )
        log._given_message_format = message_format
        return log

    def __enter__(self) -> Log:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Log({str(self.directory)!r})"

    # --- offsets

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed ends: the first offset of a transaction not yet decided, or the high watermark (log end)."""
        return self._transactions.last_stable_offset

    @cached_property
    def message_format(self) -> int:
        """The topic's message format: as given, else the last batch's, else (an empty log) 2."""
        if self._given_message_format is not None:
            return self._given_message_format
        for segment in reversed(self.segments):
            last = segment.valid_end().last_header
            if last is not None:
                return last.magic
        return NEWEST_MESSAGE_FORMAT

    def go_on_from(self, before: Log) -> None:
        """Take over what `before`, an earlier opening of the same folder, knows of transactions, if this log continues from
        there.

        A reader that follows a log opens it often, and need not replay its last segment each time. Raises CorruptBatchError,
        SegmentChangedError.
        """
        if not before.segments or not self.segments or "_transactions" not in before.__dict__:
            return
        last = before.segments[-1].valid_end().last_header
        segment = self.segment_for(before.segments[-1].base_offset)
        if last is None or segment is None or segment.identity != before.segments[-1].identity:
            return
        if next(segment.headers(last.position), None) == last:
            self._transactions.go_on_from(before._transactions)

    # --- reading

    def check_names(self) -> None:
        """Make sure that what is skipped because of a segment's name is not there: that batches and names fit each other.

        Of each segment the first header is read, and where a hole precedes it, or it is empty, what the one before ends with.
        Then the log start is compared with the leader epochs: that it hides too much, `missing` says. Raises CorruptBatchError.
        """
        if self._names_are_checked:
            return
        before: Segment | None = None
        for segment in self.segments:
            try:
                if not (segment.size_bytes and segment.check_name()) and before is not None:
                    before.valid_end()  # which raises if it reaches beyond this one's base
            except SegmentChangedError:
                pass  # The next reader reports it.
            segment.close()
            if before is not None:
                before.close()
            before = segment
        self._names_are_checked = True
        if self.segments:
            self._check_start()

    def _check_start(self) -> None:
        """Log which records are read though the leader epochs say that they were deleted.

        Deleting records moves both the log start and the first epoch's start, so that each vouches for the other.
        """
        start, earliest = self.log_start_offset, self.leader_epochs.earliest
        if earliest is None or earliest.start_offset <= start:
            return
        begin = earliest.start_offset
        batch = self.segments[0].translate_offset(start)
        if batch is not None and batch.leader_epoch >= 0 and batch.last_offset < begin:
            text = f"the leader epochs begin at {begin}: offsets [{start}, {begin}) may have been deleted, and are read"
            self.notices.note(self.directory, text)

    def headers(
        self, offset: int | None = None, end_offset: int | None = None, *, check_crc: bool = False
    ) -> Iterator[BatchHeader]:
        """Yield the batches that have offsets in [offset, end_offset), by default those of the whole log."""
        for _, header in self.segment_headers(offset, end_offset, check_crc=check_crc):
            yield header

    def segment_headers(
        self, offset: int | None = None, end_offset: int | None = None, *, check_crc: bool = False
    ) -> Iterator[tuple[Segment, BatchHeader]]:
        """Yield the same with the segment of each."""
        start = max(self.log_start_offset, offset or 0)
        end = self.log_end_offset if end_offset is None else end_offset
        self.check_names()
        for segment in self.segments_from(start):
            if segment.base_offset >= end:
                return
            for header in segment.headers(segment.floor_position(start), check_crc=check_crc):
                if header.last_offset < start:
                    continue
                if (header.base_offset if header.magic == 2 else header.last_offset) >= end:
                    return
                yield segment, header
            segment.close()  # A log may have more segments than a process may have descriptors.

    def missing(self, start_offset: int = 0, end_offset: int | None = None) -> list[MissingOffsets]:
        """Return what should be there of `[start_offset, end_offset)`, None: to where the log should end, and is not.

        Reads the end of each segment. Raises CorruptBatchError, SegmentChangedError, StorageError.
        """
        return list(missing_offsets(self, self._claims, start_offset, end_offset))

    def left_out(self, start_offset: int, end_offset: int) -> list[LeftOut]:
        """Return what is left out of `[start_offset, end_offset)` because it is damaged; nothing without `skip_damaged`.

        To what ends with the log, damage after the last sound batch belongs, too.
        """
        if end_offset == self.log_end_offset:
            end_offset = MAX_OFFSET
        return [
            one
            for segment in self.segments_from(start_offset)
            if isinstance(segment, SalvagedSegment) and segment.base_offset < end_offset
            for one in segment.left_out(self.topic, self.partition)
            if one.end_offset > start_offset and one.first_offset < end_offset
        ]

    # --- transactions

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records in [start_offset, end_offset), by their markers' offsets.

        A transactional record does not count if its producer has one here with `first_offset <= offset <= last_offset`.
        Those still open are not among them: they begin at or above `last_stable_offset`.
        """
        return self._transactions.aborted(start_offset, end_offset)

    @cached_property
    def _transactions(self) -> transactions.Transactions:
        return transactions.Transactions(self)

    # --- what is kept beside the segments

    @cached_property
    def leader_epochs(self) -> LeaderEpochs:
        """The leader epochs; none, with a notice, where the checkpoint is damaged."""
        path = self.directory / names.LEADER_EPOCH_CHECKPOINT
        try:
            return LeaderEpochs.read(path)
        except CorruptCheckpointError as error:
            self.notices.note(path, f"{error.message}: leader epochs are unknown")
            return LeaderEpochs()

    @cached_property
    def topic_id(self) -> uuid.UUID | None:
        """The topic's id, None if the folder does not say (Kafka before 2.8)."""
        return read_topic_id(self.directory / names.PARTITION_METADATA)


def _swap_end(file: SegmentFile, notices: Notices) -> int:
    """Return the offset after a ``.log.swap``: the segments below it are those that it stands for."""
    if not file.stat.st_size:
        notices.note(file.path, "it is empty, and replaces the segment with its base offset, which is not read")
    segment = Segment(file, MAX_OFFSET, notices)
    try:
        return segment.next_offset
    finally:
        segment.close()
