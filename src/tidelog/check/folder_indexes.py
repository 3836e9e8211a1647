"""Verifies the indexes and time maps of a data folder against its logs, or rebuilds them.

| file | is correct if it is |
|---|---|
| `.index`, `.timeindex` | what Kafka 3.9.1 writes for the log; otherwise it is checked entry by entry (`segment_indexes`) |
| `.txnindex` | the list of the segment's aborted transactions according to the producer state (`txn_index`) |
| `.timemap` | equal to the one built from the log (`segments`) |
| `.log` | sound: checksums, offsets, lengths. No index covers the part after the first damaged batch |

If the interval (index.interval.bytes) is not given, it is inferred from the indexes: first from the start of a few segments, then
from all segments whose indexes differ. Entries that older releases wrote by other rules are also correct, and are reported as
notes.

| a rebuild | writes |
|---|---|
| in place | files that are missing or differ from the log; each is replaced atomically |
| in another folder | all files, under ``<topic>-<partition>/``; the data folder is only read |

Logs are never changed: the part after a damaged batch is reported and not indexed. Callers that rebuild in place hold the
folder's lock (`dir_lock`); no process may append meanwhile.

Verifying and rebuilding both walk segment by segment on threads (`_walk`): `segments` handles one segment, `partitions` handles
what spans segments. Spark's workers process the same segments in `tidelog.spark.jobs`. Tidelog treats an index as a hint (ADR 3)
and answers correctly without it; Kafka trusts its indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from tidelog.check.partitions import (
    PartitionRebuild,
    PartitionToVerify,
    PartitionVerification,
    RebuildRules,
    RebuiltPartition,
    VerifiedPartition,
)
from tidelog.check.segments import (
    SURVEYED_SEGMENTS,
    check_prepared,
    examine_segment,
    make_survey,
    prepare_segment,
    rebuild_segment,
)
from tidelog.ordered_map import ordered_map
from tidelog.storage.loading.log_scan import Progress


class VerifyOptions(NamedTuple):
    """Options for verifying a folder."""

    interval_bytes: int | None = None
    """The index.interval.bytes; None to infer it from the indexes."""
    time_map_dir: Path | None = None
    """A folder with time maps in addition to those next to the segments."""
    threads: int = 1
    progress: Progress | None = None
    """Called by the walking threads with the number of further log bytes walked."""


class RebuildOptions(NamedTuple):
    """Options for rebuilding a folder."""

    out_dir: Path | None = None
    """The target folder; None means in place."""
    interval_bytes: int | None = None
    """The index.interval.bytes; None to use the interval of the existing indexes."""
    time_maps: bool = True
    threads: int = 1
    progress: Progress | None = None
    """Called by the walking threads with the number of further log bytes walked."""


def verify_partitions(partitions: Iterable[PartitionToVerify], options: VerifyOptions) -> Iterator[VerifiedPartition]:
    """Verify partitions, and yield each partition's result in order. Writes nothing.

    Raises StorageError, and the errors of opening a partition. A segment that its owner removes meanwhile is skipped.
    """
    opened = (PartitionVerification(one, options.interval_bytes, options.time_map_dir) for one in partitions)
    for walked in _walk(opened, lambda task: examine_segment(task, options.progress), options.threads):
        yield _result(walked, options.threads)


def rebuild_partitions(partitions: Iterable[PartitionToVerify], options: RebuildOptions) -> Iterator[RebuiltPartition]:
    """Rebuild partitions, and yield each partition's result, in order, once its files are written.

    Raises StorageError, and SegmentChangedError for a log that is removed or truncated meanwhile. Files written before the error
    remain.
    """
    rules = RebuildRules(options.out_dir, options.interval_bytes, options.time_maps)
    opened = (PartitionRebuild(one, rules) for one in partitions)
    for walked in _walk(opened, lambda task: rebuild_segment(task, options.progress), options.threads):
        yield walked.result


# --- the driver


class _Walked(Protocol):
    """A partition that is being verified or rebuilt. Each segment is a task; the partition takes the tasks' outcomes in order."""

    tasks: list[Any]

    def take(self, outcome: Any, /) -> None: ...


_Partition = TypeVar("_Partition", bound=_Walked)


def _walk(opened: Iterable[_Partition], work: Callable[[Any], Any], threads: int) -> Iterator[_Partition]:
    """Run the tasks of all partitions, up to `threads` at a time, and yield each partition after its last outcome."""
    waiting: list[_Partition] = []

    def tasks() -> Iterator[tuple[_Partition, Any]]:
        for partition in opened:
            waiting.append(partition)
            for task in partition.tasks:
                yield partition, task

    def done(one: tuple[_Partition, Any]) -> tuple[_Partition, Any]:
        return one[0], work(one[1])

    for partition, outcome in ordered_map(done, tasks(), threads):
        # A partition without segments has no last outcome.
        while waiting[0] is not partition:
            yield waiting.pop(0)
        partition.take(outcome)
    yield from waiting


def _result(partition: PartitionVerification, threads: int) -> VerifiedPartition:
    """Return a partition's result. Indexes that differ from Kafka 3.9.1's are first checked by the rules under which they were
    written.
    """
    if partition.unclear:
        prepared = ordered_map(prepare_segment, partition.unclear, threads)
        surveyed = list(islice(prepared, SURVEYED_SEGMENTS))
        survey = make_survey(partition.survey_seed, surveyed, map(prepare_segment, partition.usual))
        for one in chain(surveyed, prepared):
            partition.take_checked(check_prepared(one, survey, partition.restarts))
    return partition.result()
