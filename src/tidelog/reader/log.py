"""One partition's log, opened read-only: its segments in order, and its offsets (spec §5, §6).

===================  ======================================================================================================
log_start_offset     the larger of the log-start-offset checkpoint and the first segment's base
last_stable_offset   the end for read_committed: the start of the first open transaction, or the high watermark
high_watermark       from the replication checkpoint, None without a checkpoint; records at or above it may not have been
                     replicated when the checkpoint was written (Kafka writes it every few seconds and when it stops)
log_end_offset       after the last complete batch with a valid checksum
===================  ======================================================================================================

A `Log` shows the folder as of its opening; open it again to see later appends, rolls and compactions. A removed segment remains
readable while its file can still be found; after that, reads raise SegmentChangedError. Opening lists the folder and reads no
segment. Each property reads what it needs, once. Not thread-safe.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType

from tidelog.errors import CorruptCheckpointError, InvalidArgumentError, SegmentChangedError
from tidelog.formats import names
from tidelog.formats.files import Notices
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.formats.paths.file_path import AnyPath, as_path
from tidelog.formats.txn_index import AbortedTxn
from tidelog.model import MAX_OFFSET
from tidelog.objects.object_path import ObjectPath, prefetch
from tidelog.reader import transactions
from tidelog.reader.log_segments import LogSegments
from tidelog.reader.missing.claims import Claims, newest_epoch
from tidelog.reader.missing.missing_offsets import MissingOffsets, missing_offsets
from tidelog.reader.offset_targets import TieredOffsets
from tidelog.reader.proven_head import WalkBudget
from tidelog.reader.salvage.salvage import LeftOut
from tidelog.reader.salvage.salvaged_segment import SalvagedSegment
from tidelog.reader.segment import Segment
from tidelog.reader.segment_files import SegmentFile, list_partition
from tidelog.records.batch import BatchHeader

NEWEST_MESSAGE_FORMAT = 2
ELSEWHERE_BYTES = 1024 * 1024
"""How many bytes of a log in remote storage are read to verify time indexes. Reading every header means reading every byte there,
because requests for single headers take longer.
"""
ELSEWHERE_MAP_BYTES = 64 * 1024
ELSEWHERE = "checking every batch's timestamp would fetch the whole log from remote storage"


class Log(LogSegments):
    """One partition of a data folder, read-only: its segments, offsets, batches and transactions. Create it with `open`."""

    tiered: TieredOffsets | None = None
    """The offsets of the log's local and remote parts; None if no part is in remote storage."""
    _given_message_format: int | None = None
    _names_are_checked = False

    @classmethod
    def open(
        cls,
        directory: AnyPath,
        *,
        log_start_offset: int | None = None,
        high_watermark: int | None = None,
        message_format: int | None = None,
        claims: Claims | None = None,
        skip_damaged: bool = False,
    ) -> Log:
        """Open a partition's folder, named ``<topic>-<partition>``.

        `log_start_offset` and `high_watermark` come from the checkpoints. `LogDir` passes both, and other facts about the
        partition as `claims`. `message_format` is the topic's message format: 0, 1 or 2. The default is the format of the last
        batch.

        With `skip_damaged`, damaged batches are skipped; `left_out` lists the skipped parts.

        Raises NotFoundError, InvalidArgumentError, SegmentChangedError if the folder keeps changing, StorageError.
        """
        if message_format not in (None, 0, 1, 2):
            raise InvalidArgumentError("unknown message format", found=message_format, expected="0, 1 or 2")
        path = as_path(directory)
        topic, partition = names.parse_topic_partition_name(path.name or path.absolute().name)
        notices = Notices()
        prefetch((path / names.LEADER_EPOCH_CHECKPOINT, path / names.SEGMENT_SUMMARY))
        claims = claims or Claims(high_watermark=high_watermark, log_start_offset=log_start_offset)
        # Read this before listing the folder, so that it is not newer than the listing.
        claims = claims._replace(newest_epoch=newest_epoch(path))
        listing = list_partition(path, lambda file: _swap_end(file, notices))
        bases: list[int | None] = [file.base_offset for file in listing.segments[1:]]
        far = WalkBudget(ELSEWHERE_BYTES, why=ELSEWHERE, map_bytes=ELSEWHERE_MAP_BYTES)
        make: Callable[[SegmentFile, int | None, Notices, WalkBudget], Segment] = SalvagedSegment if skip_damaged else Segment
        if not skip_damaged and (isinstance(path, ObjectPath) or hasattr(path, "segment_facts")):
            from tidelog.formats.summary.known_segments import KnownSegments
            from tidelog.reader.known.known_segment import KnownSegment

            make = partial(KnownSegment, known=KnownSegments(path, notices))
        segments: list[Segment] = []
        budget, begin = WalkBudget(), 0
        for file, after in zip(listing.segments, [*bases, None], strict=False):
            # Each segment gets a budget of its own, so that several segments can be examined in parallel.
            if not isinstance(path, Path):
                budget = far.share(max(0, ELSEWHERE_BYTES - begin))
                begin += file.stat.st_size
            segments.append(make(file, after, notices, budget))
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
        """The end for read_committed: the first offset of an undecided transaction, or the high watermark, or the log end."""
        return self._transactions.last_stable_offset

    @cached_property
    def message_format(self) -> int:
        """The topic's message format: the one passed to `open`, otherwise the format of the last batch, or 2 in an empty log."""
        if self._given_message_format is not None:
            return self._given_message_format
        for segment in reversed(self.segments):
            if segment.facts is not None and segment.facts.last_magic >= 0:
                return segment.facts.last_magic
            last = segment.valid_end().last_header
            if last is not None:
                return last.magic
        return NEWEST_MESSAGE_FORMAT

    def go_on_from(self, before: Log) -> None:
        """Reuse the transactions found by `before`, an earlier opening of the same folder, if this log is a continuation of
        `before`.

        A reader that follows a log opens the log often; this saves replaying the last segment each time. Raises
        CorruptBatchError, SegmentChangedError.
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
        """Check that each segment's name agrees with its batches. Otherwise look-ups by name would miss records.

        Reads each segment's first header and, if the segment is empty or follows a gap, the end of the previous segment. Then
        compares the log start with the leader epochs; `missing` reports records that the log start hides. Raises
        CorruptBatchError.
        """
        if self._names_are_checked:
            return
        before: Segment | None = None
        prefetch(segment.log_path for segment in self.segments if segment.facts is None)
        for segment in self.segments:
            try:
                begins_there = segment.size_bytes and segment.check_name()
                if not begins_there and before is not None and before.facts is None:
                    before.valid_end()  # raises if the previous segment extends beyond this segment's base
            except SegmentChangedError:
                pass  # Reading that segment will raise the error.
            segment.close()
            if before is not None:
                before.close()
            before = segment
        self._names_are_checked = True
        if self.segments:
            self._check_start()

    def _check_start(self) -> None:
        """Log a notice about records that are read although the leader epochs say that they were deleted.

        Deleting records moves both the log start and the start of the first epoch, so the two should agree.
        """
        start, earliest = self.log_start_offset, self.leader_epochs.earliest
        if earliest is None or earliest.start_offset <= start:
            return
        begin = earliest.start_offset
        batch = self.segments[0].translate_offset(start)
        if batch is not None and batch.leader_epoch >= 0 and batch.last_offset < begin:
            text = f"the leader epochs begin at {begin}: offsets [{start}, {begin}) may have been deleted, but are read"
            self.notices.note(self.directory, text)

    def expect_search(self, *, by_time: bool = True) -> None:
        """Prefetch what a look-up in every segment will read: its end and, with `by_time`, its largest timestamp. In remote
        storage, this saves waiting for one segment after the other.
        """
        suffixes = (names.TIME_INDEX_SUFFIX, names.INDEX_SUFFIX) if by_time else (names.INDEX_SUFFIX,)
        prefetch(segment.index_path(suffix) for segment in self.segments if segment.facts is None for suffix in suffixes)

    def headers(
        self, offset: int | None = None, end_offset: int | None = None, *, check_crc: bool = False
    ) -> Iterator[BatchHeader]:
        """Yield the batches with offsets in [offset, end_offset), by default all batches of the log."""
        for _, header in self.segment_headers(offset, end_offset, check_crc=check_crc):
            yield header

    def segment_headers(
        self, offset: int | None = None, end_offset: int | None = None, *, check_crc: bool = False
    ) -> Iterator[tuple[Segment, BatchHeader]]:
        """Yield the batches of `headers`, each with its segment."""
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
            segment.close()  # A log may have more segments than a process may open files.

    def missing(self, start_offset: int = 0, end_offset: int | None = None) -> list[MissingOffsets]:
        """Return the missing parts of `[start_offset, end_offset)`. An end of None stands for the offset at which the log should
        end.

        Reads the end of each segment. Raises CorruptBatchError, SegmentChangedError, StorageError.
        """
        return list(missing_offsets(self, self._claims, start_offset, end_offset))

    def left_out(self, start_offset: int, end_offset: int) -> list[LeftOut]:
        """Return the damage that was skipped in `[start_offset, end_offset)`. The list is empty without `skip_damaged`.

        If the range ends at the log's end, damage after the last sound batch is included.
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
        """Return the aborted transactions with records in [start_offset, end_offset), ordered by their markers.

        A transactional record is aborted if the result has a transaction of its producer with `first_offset <= offset <=
        last_offset`. Open transactions are not included: they begin at or above `last_stable_offset`.
        """
        return self._transactions.aborted(start_offset, end_offset)

    def open_transactions(self, offset: int) -> dict[int, int]:
        """Return the transactions that are open at an offset: their first offsets by producer id."""
        return self._transactions.open_at(offset)

    @cached_property
    def _transactions(self) -> transactions.Transactions:
        return transactions.Transactions(self)

    # --- what is kept beside the segments

    @cached_property
    def leader_epochs(self) -> LeaderEpochs:
        """The leader epochs. If the checkpoint is damaged, there are none, and a notice says so."""
        path = self.directory / names.LEADER_EPOCH_CHECKPOINT
        try:
            return LeaderEpochs.read(path)
        except CorruptCheckpointError as error:
            self.notices.note(path, f"{error.message}: leader epochs are unknown")
            return LeaderEpochs()

    @cached_property
    def topic_id(self) -> uuid.UUID | None:
        """The topic id, or None if the folder has none (Kafka before 2.8)."""
        return read_topic_id(self.directory / names.PARTITION_METADATA)


def _swap_end(file: SegmentFile, notices: Notices) -> int:
    """Return the offset after the last record of a ``.log.swap``, which replaces the segments below that offset."""
    if not file.stat.st_size:
        notices.note(file.path, "this file is empty and replaces the segment with the same base offset, which is not read")
    segment = Segment(file, MAX_OFFSET, notices)
    try:
        return segment.next_offset
    finally:
        segment.close()
