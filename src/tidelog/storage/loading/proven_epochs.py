"""Checks a ``leader-epoch-checkpoint`` against the batches. If it differs, the epochs are rebuilt from the batches (spec §14).

A follower with wrong epochs truncates committed records, or never finds the offset at which its log and the leader's log diverge.
The file has no checksum, but each v2 batch has its leader epoch. If epochs never decrease from batch to batch, an entry (epoch,
start) is right if the first batch at or after `start` has that epoch, and the batch before it has the epoch of the previous
entry. Batches in between need no check.

| read in each partition | |
|---|---|
| the newest batch | already known after a clean shutdown |
| the batches on both sides of each entry's start | found by the offset index; for the newest `MAX_ENTRIES` entries |
| the headers of all batches | only if one of these batches contradicts the file, or the file is lost or empty |

Files that Kafka may have written must not change, so a batch does not contradict the file if the batch

* has no epoch: format v0 or v1, or -1. After such messages Kafka starts again with an empty file;
* lies below the first entry: deleting records moves the first entry, and a crash may lose the log start;
* is missing: compaction may remove every batch of an epoch.

The file also stays if the epochs of batches decrease. Then Kafka's file depends on the order of appends, truncations and
recoveries, which the batches do not show.

The index is a hint, and batches may be damaged: a contradiction counts only once all headers have been read. `loader` uses this
module.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.errors import CorruptBatchError
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.records.batch import BatchHeader
from tidelog.storage.loading.clean_end import batches_from, last_batch
from tidelog.storage.loading.loading_log import LoadingLog
from tidelog.storage.segment.log_segment import LogSegment

logger = logging.getLogger("tidelog.storage")

MAX_ENTRIES = 64
"""How many of the newest entries are compared with the log. Leaders need older entries only for a follower that was away for as
many elections.
"""


class _Contradiction(NamedTuple):
    """An offset, its leader epoch in the file (None if the file has no epoch for it), and its leader epoch in the batch."""

    offset: int
    found: int | None
    expected: int


def prove_epochs(log: LoadingLog, end_offset: int, *, had_entries: bool) -> None:
    """Compare a loaded log's epochs, which have been truncated to the log, with its batches. If they differ, replace the epochs,
    with a warning.

    `had_entries` says whether the file had any entries. Raises StorageError.
    """
    newest = log.newest if log.newest is not None and log.newest.next_offset == end_offset else None
    contradiction = _EpochProof(log).find_contradiction(newest, had_entries=had_entries)
    if contradiction is None:
        return
    reread = reread_epochs(log, while_they_rise=True)
    known = list(log.leader_epochs.entries)
    is_confirmed = bool(known) and had_entries and reread.contradiction is None
    # Recovery may have found all epochs without a file, if the crash came before the file was first written.
    if is_confirmed or reread.goes_back or not reread.is_whole or reread.entries == known:
        return
    offset, found, expected = reread.contradiction or contradiction
    logger.warning(
        "%s: found leader epoch %s for offset %d, expected %d as in its batch: rebuilding all epochs from the log",
        *(log.leader_epochs.path, "none" if found is None else found, offset, expected),
    )
    log.leader_epochs.replace_all(reread.entries)


class RereadEpochs(NamedTuple):
    """The epochs read again from the headers of all batches."""

    entries: list[EpochEntry]
    contradiction: _Contradiction | None
    """The first batch that contradicts the epochs before it."""
    goes_back: bool
    """Whether a batch has a lower epoch than an earlier one."""
    is_whole: bool
    """Whether no header was damaged."""


def reread_epochs(log: LoadingLog, *, while_they_rise: bool = False) -> RereadEpochs:
    """Read the headers of all batches from the log start offset to the end, or to the first batch whose epoch decreases.

    The start offset of an entry stays unless a batch contradicts it: compaction may have removed the first batch of an epoch.
    """
    proof = _EpochProof(log)
    starts = {entry.epoch: entry.start_offset for entry in log.leader_epochs.entries}
    found = LeaderEpochs()
    latest, end, goes_back, is_whole = -1, 0, False, True
    contradiction = None
    try:
        for header in proof.batches():
            if _has_epoch(header):
                contradiction = contradiction or proof.contradiction_of(header)
                goes_back |= header.leader_epoch < latest
                if goes_back and while_they_rise:
                    break
                latest = max(latest, header.leader_epoch)
                if found.latest is None or header.leader_epoch > found.latest.epoch:
                    start = starts.get(header.leader_epoch, -1)
                    found.assign(header.leader_epoch, start if end <= start <= header.base_offset else header.base_offset)
            elif header.magic < 2:
                found.clear()  # As in an append: the epoch of such a batch is unknown.
            end = header.next_offset
    except CorruptBatchError:
        is_whole = False
    found.truncate_from_start(log.log_start_offset)
    return RereadEpochs(found.entries, contradiction, goes_back, is_whole)


class _EpochProof:
    """Looks up batches of a log that is being loaded."""

    def __init__(self, log: LoadingLog) -> None:
        first = log.segments.first
        self._segments = log.segments
        self._epochs = log.leader_epochs
        self._start = log.log_start_offset if first is None else max(log.log_start_offset, first.base_offset)

    def find_contradiction(self, newest: BatchHeader | None, *, had_entries: bool) -> _Contradiction | None:
        try:
            if newest is None:
                newest = self._last_batch(self._segments.last)
            earliest = self._epochs.earliest
            if earliest is None:
                return self._without_epoch(newest)
            if not had_entries:
                # All entries are from recovered batches: earlier entries may have been lost.
                lost = self._without_epoch(self._around(earliest.start_offset)[0])
                if lost is not None:
                    return lost
            return self.contradiction_of(newest) or self._at_entries()
        except CorruptBatchError:
            return None

    def contradiction_of(self, header: BatchHeader | None) -> _Contradiction | None:
        """Return the contradiction between a batch and the epochs, or None. All offsets of a batch must have its epoch."""
        earliest = self._epochs.earliest
        if header is None or earliest is None or not _has_epoch(header):
            return None
        first, last = max(header.base_offset, self._start, earliest.start_offset), header.last_offset
        for offset in (first, last) if first <= last else ():
            known = self._epochs.epoch_for_offset(offset)
            if known != header.leader_epoch:
                return _Contradiction(offset, known, header.leader_epoch)
        return None

    def _without_epoch(self, header: BatchHeader | None) -> _Contradiction | None:
        if header is None or not _has_epoch(header) or header.last_offset < self._start:
            return None
        return _Contradiction(max(header.base_offset, self._start), None, header.leader_epoch)

    def batches(self) -> Iterator[BatchHeader]:
        """Yield the batch headers from the log start offset to the end."""
        for segment in self._segments.values(self._start):
            for header in segment.batches():
                if header.last_offset >= self._start:
                    yield header
            segment.log.release()

    def _at_entries(self) -> _Contradiction | None:
        for entry in self._epochs.entries[: -MAX_ENTRIES - 1 : -1]:
            for header in self._around(entry.start_offset):
                contradiction = self.contradiction_of(header)
                if contradiction is not None:
                    return contradiction
        return None

    def _around(self, offset: int) -> tuple[BatchHeader | None, BatchHeader | None]:
        """Return the last batch that ends below `offset`, and the first batch that does not."""
        before = at = None
        segment = self._segments.floor(offset)
        if segment is not None and segment.base_offset == offset:
            at = segment.log.first_batch()
            if at is not None and at.last_offset < offset:  # Damage: the batches have lower offsets than the segment's name.
                at = None
        if segment is not None and at is None:
            for header in batches_from(segment, offset - 1):
                if header.last_offset >= offset:
                    at = header
                    break
                before = header
        lower = None if segment is None else self._segments.lower(segment.base_offset)
        if before is None and offset > self._start:
            before = self._last_batch(lower)
        while at is None:
            segment = self._segments.first if segment is None else self._segments.higher(segment.base_offset)
            if segment is None:
                break
            at = segment.log.first_batch()
        return before, at

    def _last_batch(self, segment: LogSegment | None) -> BatchHeader | None:
        """Return the last batch of a segment or, if the segment is empty, of the nearest lower segment that has batches."""
        while segment is not None:
            found = last_batch(segment)
            if found is not None:
                return found
            segment = self._segments.lower(segment.base_offset)
        return None


def _has_epoch(header: BatchHeader) -> bool:
    return header.magic >= 2 and header.leader_epoch >= 0
