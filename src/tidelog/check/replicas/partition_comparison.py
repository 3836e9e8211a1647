"""Compares the replicas of one partition: topic ids, leader epochs, and every byte of the batches.

If log cleaners have left different batches in the folders, the latest record of each key is compared instead.

All replicas are read side by side in pieces, so memory is needed for one piece per replica. A replica that is damaged at the
start or end of the range is a fault that names its folder; the other replicas are still compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.check.finding import Finding, fault, note
from tidelog.check.replicas.batch_bytes import BatchBytes
from tidelog.check.replicas.compared_range import Bounds, ComparedRange, compared_range, epochs_within
from tidelog.check.replicas.difference import Difference, Standing, batch_difference
from tidelog.check.replicas.latest_records import MOST_KEYS, TooManyKeysError, latest_difference
from tidelog.check.replicas.replica import Replica
from tidelog.errors import CorruptBatchError, CorruptCheckpointError, CorruptDataError
from tidelog.formats import names
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.partition_metadata import format_topic_id
from tidelog.formats.paths.file_path import FilePath
from tidelog.model import TopicPartition

PIECE_BYTES = 1 << 20


@dataclass
class PartitionComparison:
    """The findings about the replicas of a partition."""

    key: TopicPartition
    directories: list[FilePath]
    """The data folders with a replica."""
    range: ComparedRange | None = None
    """The compared range of offsets. None if nothing was compared; then a finding gives the reason."""
    bytes_from: int | None = None
    """The offset from which every byte is compared; below it, the latest record of each key is compared."""
    size_bytes: int = 0
    """The number of bytes compared from `bytes_from` on, up to the first difference."""
    sha256: str | None = None
    """The SHA-256 of the compared bytes if they are equal in all folders; None if they differ."""
    differences: list[Difference] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether no difference and no damage was found."""
        return not self.differences and not any(finding.is_fault for finding in self.findings)


def compare_replicas(replicas: Sequence[Replica]) -> PartitionComparison:
    """Compare two or more replicas of a partition. Raises SegmentChangedError, StorageError."""
    result = PartitionComparison(replicas[0].key, [replica.directory for replica in replicas])
    result.differences += _topic_ids(result, replicas)
    if result.differences:
        return result  # Different topics have different records.
    found = result.range = compared_range([_bounds(result, replica) for replica in replicas])
    if found is None:
        result.findings.append(
            _note(result, replicas[0], "not compared: it is unknown up to which offset the partition was replicated")
        )
        return result
    _note_ends(result, replicas, found)
    result.bytes_from = found.start
    if found.is_empty:
        result.sha256 = hashlib.sha256().hexdigest()
        return result
    whole = _compare_batches(replicas, found, found.start)
    if whole.difference is not None and (whole.difference.offset or 0) < found.cleaned_to:
        # Every byte is equal if nothing was cleaned, or if all replicas copied the cleaned log. Otherwise they differ.
        result.bytes_from = max(found.start, min(found.cleaned_to, found.end))
        _compare_latest(result, replicas, found)
        whole = _compare_batches(replicas, found, found.cleaned_to)
    result.findings += whole.findings
    result.size_bytes, result.sha256 = whole.size_bytes, whole.sha256
    # After copying or recovering a cleaned log, an epoch begins at its first remaining record.
    result.differences += _leader_epochs(result, replicas, max(result.bytes_from, found.cleaned_to), found.end)
    if whole.difference is not None:
        result.differences.append(whole.difference)
        if found.cleaned_to <= found.start and any(replica.is_compacted for replica in replicas):
            what = (
                "the topic is compacted, but not cleaned in these folders: a replica that was copied later may have fewer records"
            )
            result.findings.append(_note(result, replicas[0], what))
    return result


def _bounds(result: PartitionComparison, replica: Replica) -> Bounds:
    high_watermark, log_end = replica.claims.high_watermark, None
    if high_watermark is None:
        try:
            log_end = replica.log.log_end_offset
        except CorruptBatchError as error:
            result.findings.append(Finding.of_error(error, replica.log.directory, *result.key))
    return Bounds(replica.directory, replica.log.log_start_offset, replica.cleaned_to, high_watermark, log_end)


def _note_ends(result: PartitionComparison, replicas: Sequence[Replica], found: ComparedRange) -> None:
    without = [replica for replica in replicas if replica.claims.high_watermark is None]
    for replica in without if found.has_high_watermark else []:
        what = f"{names.HIGH_WATERMARK_CHECKPOINT} has no high watermark of the partition: using the end of the log"
        result.findings.append(_note(result, replica, what))
    if not found.has_high_watermark:
        what = (
            f"no folder has a high watermark of the partition: compared up to {found.end}; the last records may not be replicated"
        )
        result.findings.append(_note(result, replicas[0], what))


def _compare_latest(result: PartitionComparison, replicas: Sequence[Replica], found: ComparedRange) -> None:
    assert result.bytes_from is not None
    what = f"cleaned at different times up to offset {result.bytes_from}: below it the latest record of each key is compared"
    try:
        difference = latest_difference(replicas, found.start, result.bytes_from)
    except TooManyKeysError:
        difference = None
        what = f"cleaned at different times up to offset {result.bytes_from}: not compared below it: more than {MOST_KEYS} keys"
    except CorruptDataError as error:
        result.findings.append(Finding.of_error(error, replicas[0].log.directory, *result.key))
        return
    result.findings.append(_note(result, replicas[0], what))
    if difference is not None:
        result.differences.append(difference)


# --- ids and epochs


def _topic_ids(result: PartitionComparison, replicas: Sequence[Replica]) -> list[Difference]:
    standings, ids = [], set()
    for replica in replicas:
        path = replica.log.directory / names.PARTITION_METADATA
        try:
            topic_id = replica.log.topic_id
        except CorruptCheckpointError as error:
            result.findings.append(Finding.of_error(error, path, *result.key))
            continue
        if topic_id is None:
            result.findings.append(_note(result, replica, f"has no {names.PARTITION_METADATA}: the topic id is not compared"))
            continue
        ids.add(topic_id)
        standings.append(Standing(replica.directory, path, None, f"topic id {format_topic_id(topic_id)}", is_sound=True))
    what = "the replicas have different topic ids: their records are not compared"
    return [Difference("topic id", result.key, what, standings)] if len(ids) > 1 else []


def _leader_epochs(result: PartitionComparison, replicas: Sequence[Replica], start: int, end: int) -> list[Difference]:
    found: list[tuple[Replica, LeaderEpochs]] = []
    for replica in replicas:
        path = replica.log.directory / names.LEADER_EPOCH_CHECKPOINT
        try:
            epochs = replica.leader_epochs()
        except CorruptCheckpointError as error:
            result.findings.append(Finding.of_error(error, path, *result.key))
            continue
        if epochs is not None and epochs.entries:
            found.append((replica, epochs))
        else:
            what = f"{names.LEADER_EPOCH_CHECKPOINT} has no leader epochs: leader epochs are not compared"
            result.findings.append(_note(result, replica, what))
    if len(found) < 2:
        return []
    # DeleteRecords moves the first epoch at once, the log start checkpoint within a minute, and the segments later.
    start = max(start, *(epochs.entries[0].start_offset for _, epochs in found))
    known = [(replica, epochs_within(epochs.entries, start, end)) for replica, epochs in found]
    lists = [set(entries) for _, entries in known]
    if all(entries == lists[0] for entries in lists):
        return []
    common = set.intersection(*lists)
    offset = min(entry.start_offset for entries in lists for entry in entries - common)
    standings = [
        Standing(
            replica.directory,
            replica.log.directory / names.LEADER_EPOCH_CHECKPOINT,
            None,
            _shown([entry for entry in entries if entry.start_offset >= offset]),
            is_sound=True,
        )
        for replica, entries in known
    ]
    return [Difference("leader epochs", result.key, f"the leader epochs differ from offset {offset} on", standings, offset)]


_MOST_EPOCHS = 3


def _shown(entries: list[EpochEntry]) -> str:
    if not entries:
        return "no epoch begins at or above this offset"
    shown = ", ".join(f"epoch {entry.epoch} at {entry.start_offset}" for entry in entries[:_MOST_EPOCHS])
    return shown + (", ..." if len(entries) > _MOST_EPOCHS else "")


# --- batches


class _Batches(NamedTuple):
    """The result of comparing batches."""

    size_bytes: int = 0
    sha256: str | None = None
    difference: Difference | None = None
    findings: Sequence[Finding] = ()


def _compare_batches(replicas: Sequence[Replica], found: ComparedRange, start: int) -> _Batches:
    if start >= found.end:
        return _Batches(0, hashlib.sha256().hexdigest())
    streams: list[BatchBytes] = []
    readable: list[Replica] = []
    lengths: list[int] = []
    faults: list[Finding] = []
    hidden: list[Finding] = []
    """Findings that are left out if there is a difference, which explains them."""
    for replica in replicas:
        try:
            stream = BatchBytes(replica.log, start)
        except CorruptBatchError as error:
            faults.append(Finding.of_error(error, replica.log.directory, *replica.key))
            continue
        streams.append(stream)
        readable.append(replica)
        try:
            lengths.append(stream.length_to(found.end))
        except CorruptBatchError as error:
            hidden.append(Finding.of_error(error, replica.log.directory, *replica.key))
    if len(streams) < 2 or not lengths:
        return _Batches(findings=faults + hidden)
    # A damaged replica may seem to end too early.
    length = max(lengths)
    at, digest = _first_difference(streams, length)
    if at is not None:
        return _Batches(at, None, batch_difference(readable, streams, at, start), faults)
    # Equal replicas may all be damaged above the high watermark, or end below it.
    return _Batches(length, digest, None, faults + hidden + [one for replica in readable for one in _ends_early(replica, found)])


def _ends_early(replica: Replica, found: ComparedRange) -> Iterator[Finding]:
    try:
        end = replica.log.log_end_offset
    except CorruptBatchError:
        return  # The damage is already among the findings, or is above the requested range.
    if end < found.end:
        what = f"the log ends at {end}, below the high watermark {found.end} of {found.end_of}"
        yield fault(replica.log.directory, what, *replica.key)


def _first_difference(streams: Sequence[BatchBytes], length: int) -> tuple[int | None, str | None]:
    """Return the position of the first differing byte below `length`, or None and the SHA-256 of all bytes if all are equal."""
    digest = hashlib.sha256()
    for at in range(0, length, PIECE_BYTES):
        pieces = [stream.read(at, min(PIECE_BYTES, length - at)) for stream in streams]
        first = pieces[0]
        if any(piece != first for piece in pieces):
            return at + min(_same_bytes(first, piece) for piece in pieces), None
        digest.update(first)
    return None, digest.hexdigest()


def _same_bytes(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix."""
    low, high = 0, min(len(one), len(other)) + (one == other)
    if one == other:
        return len(one)
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _note(result: PartitionComparison, replica: Replica, what: str) -> Finding:
    return note(replica.log.directory, what, *result.key)
