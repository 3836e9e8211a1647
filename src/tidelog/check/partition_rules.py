"""Checks a partition's small files against its log. No I/O: the functions take facts and yield messages.

| file | is correct if |
|---|---|
| leader-epoch-checkpoint | the batches' epochs only grow, and each batch has the epoch that the file gives for its offset |
| `.snapshot` | it is complete, no producer in it has a later offset, and no snapshot is missing: Kafka takes one at each roll |
| checkpoints | the cleaner offset is not above the log end; after a clean shutdown the recovery point is the log end |
| gaps inside segments | the log was, or may have been, compacted |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.records.batch import BatchHeader


class BatchFacts(NamedTuple):
    """Epochs and gaps found by a walk over a log's headers."""

    epochs: list[tuple[int, int, int]]
    """Runs of batches with the same epoch: (epoch, first offset, base offset of the last batch). Batches without an epoch (v0,
    v1) are left out.
    """
    first_gap: tuple[int, int] | None
    """The first gap of offsets between two batches of a segment: its first offset, and the offset after it."""


def batch_facts(segments: Iterable[Iterable[BatchHeader]]) -> BatchFacts:
    """Return the facts from the batch headers of a log, given segment by segment."""
    epochs: list[tuple[int, int, int]] = []
    gap: tuple[int, int] | None = None
    for headers in segments:
        next_offset: int | None = None
        for header in headers:
            if header.magic == 2:
                if gap is None and next_offset is not None and header.base_offset > next_offset:
                    gap = (next_offset, header.base_offset)
                if header.leader_epoch >= 0:
                    is_same = epochs and epochs[-1][0] == header.leader_epoch
                    first = epochs.pop()[1] if is_same else header.base_offset
                    epochs.append((header.leader_epoch, first, header.base_offset))
            next_offset = header.next_offset
    return BatchFacts(epochs, gap)


def joined_facts(parts: Iterable[BatchFacts]) -> BatchFacts:
    """Combine the facts of a log's segments, given in order, into the facts of the log."""
    epochs: list[tuple[int, int, int]] = []
    gap: tuple[int, int] | None = None
    for part in parts:
        gap = part.first_gap if gap is None else gap
        for epoch, first, last in part.epochs:
            first = epochs.pop()[1] if epochs and epochs[-1][0] == epoch else first
            epochs.append((epoch, first, last))
    return BatchFacts(epochs, gap)


def epoch_faults(
    known: LeaderEpochs, has_file: bool, epochs: Sequence[tuple[int, int, int]], log_start_offset: int
) -> Iterator[str]:
    """Yield the faults of a leader-epoch-checkpoint or of the batches' epochs."""
    if epochs and not known.entries:
        yield (
            "has no epochs, but the batches have leader epochs" if has_file else "is missing, but the batches have leader epochs"
        )
        return
    before = -1
    for epoch, first, last in epochs:
        if epoch < before:
            yield f"the batch at offset {first} has leader epoch {epoch}, but the batch before it has {before}"
        before = epoch
        for offset in dict.fromkeys((first, last)):
            expected = known.epoch_for_offset(offset)
            if offset >= log_start_offset and expected is not None and expected != epoch:
                yield f"has epoch {expected} for offset {offset}, but the batch there has epoch {epoch}"


class SnapshotFacts(NamedTuple):
    """The existing producer snapshots, and the facts that determine the expected ones."""

    offsets: Sequence[int]
    bases: Sequence[int]
    """Base offsets of the segments, ascending."""
    log_start_offset: int
    log_end_offset: int
    is_closed: bool
    """Whether the broker was shut down cleanly."""
    has_topic_id: bool
    """Whether Kafka 2.8 or later wrote the partition; it keeps the snapshots of all segments."""


def missing_snapshots(facts: SnapshotFacts) -> list[int]:
    """Return the offsets that must have a producer snapshot, in order.

    Older releases kept only the newest snapshots, so a log that such a release began may lack several at its start.
    """
    have = set(facts.offsets)
    wanted = [base for base in facts.bases[1:] if base > facts.log_start_offset]
    lowest = min(have, default=None)
    lost = [base for base in wanted if base not in have]
    leading = [base for base in lost if lowest is None or base < lowest]
    if len(leading) > 1 or not facts.has_topic_id:
        lost = [base for base in lost if base not in leading]
    end = facts.log_end_offset
    if facts.is_closed and end > facts.log_start_offset and end not in have and (have or facts.has_topic_id):
        lost.append(end)
    return lost


def checkpoint_faults(
    log_start_offset: int, log_end_offset: int, recovery_point: int | None, cleaner_offset: int | None, *, is_closed: bool
) -> Iterator[tuple[str, str]]:
    """Yield (checkpoint, fault) for each fault of a partition in the folder's checkpoints."""
    if is_closed and recovery_point is None:
        yield "recovery-point", "does not have the partition, although the broker was shut down cleanly"
    elif is_closed and recovery_point is not None and recovery_point < log_end_offset:
        yield (
            "recovery-point",
            f"has offset {recovery_point}, although the broker was shut down cleanly and the log ends at {log_end_offset}",
        )
    if cleaner_offset is not None and cleaner_offset > log_end_offset:
        yield "cleaner", f"has offset {cleaner_offset}, above the log end offset {log_end_offset}"
