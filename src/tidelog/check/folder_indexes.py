"""The indexes and time maps of a data folder: compared with its logs, or rebuilt from them. The way in for both.

| file | is right if it is |
|---|---|
| `.index`, `.timeindex` | what Kafka 3.9.1's rules give for the log; where they differ, entry by entry (`segment_indexes`) |
| `.txnindex` | the transactions that the producers' state sees aborted, segment by segment (`txn_index`) |
| `.timemap` | the one that is built from the log (`segments`) |
| `.log` | sound: checksums, offsets, lengths. No index covers what follows the first wrong batch |

The interval, index.interval.bytes, is taken from the indexes themselves unless it is given: first from the beginning of a few
segments, then from all that differ. Entries that older releases wrote by other rules are correct, too, and are noted.

| a rebuild | writes |
|---|---|
| in place | files that are missing, or differ from what the log says; each appears whole, or stays as it was |
| in another folder | all files, below ``<topic>-<partition>/``; the data folder is only read |

Logs are never touched: what follows a batch that is wrong is not indexed, and reported. Callers that rebuild in place hold the
folder's lock (`dir_lock`); no process may be appending then.

Both walk segment by segment on threads (`_walk`): a segment is the work of `segments`, what reaches over segments that of
`partitions`. Spark's workers do the same segments in `tidelog.spark.jobs`. An index is a hint in Tidelog (ADR 3), so none of this
is needed for right answers; Kafka believes its indexes.
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
    """How a folder is verified."""

    interval_bytes: int | None = None
    """None: found from the indexes."""
    time_map_dir: Path | None = None
    """A folder of time maps, beside those beside the segments."""
    threads: int = 1
    progress: Progress | None = None
    """Hears, from the walking threads, how many bytes more of the logs were walked."""


class RebuildOptions(NamedTuple):
    """How a folder is rebuilt."""

    out_dir: Path | None = None
    """Where the files go; None stands for their own places."""
    interval_bytes: int | None = None
    """None: as the indexes that are there were written."""
    time_maps: bool = True
    threads: int = 1
    progress: Progress | None = None
    """Hears, from the walking threads, how many bytes more of the logs were walked."""


def verify_partitions(partitions: Iterable[PartitionToVerify], options: VerifyOptions) -> Iterator[VerifiedPartition]:
    """Yield what was found of each partition, in order; nothing is written.

    Raises StorageError, and what opening raises. A segment that its owner removes meanwhile is skipped.
    """
    opened = (PartitionVerification(one, options.interval_bytes, options.time_map_dir) for one in partitions)
    for walked in _walk(opened, lambda task: examine_segment(task, options.progress), options.threads):
        yield _result(walked, options.threads)


def rebuild_partitions(partitions: Iterable[PartitionToVerify], options: RebuildOptions) -> Iterator[RebuiltPartition]:
    """Yield what was done for each partition, in order, when its files are there.

    Raises StorageError, SegmentChangedError for a log that goes or shrinks meanwhile; what was written till then stays.
    """
    rules = RebuildRules(options.out_dir, options.interval_bytes, options.time_maps)
    opened = (PartitionRebuild(one, rules) for one in partitions)
    for walked in _walk(opened, lambda task: rebuild_segment(task, options.progress), options.threads):
        yield walked.result


# --- the driver


class _Walked(Protocol):
    """A partition on its way: its segments as tasks, whose outcomes it takes in order."""

    tasks: list[Any]

    def take(self, outcome: Any, /) -> None: ...


_Partition = TypeVar("_Partition", bound=_Walked)


def _walk(opened: Iterable[_Partition], work: Callable[[Any], Any], threads: int) -> Iterator[_Partition]:
    """Do the tasks of all partitions, up to `threads` at a time; yield each partition when it has taken its last outcome."""
    waiting: list[_Partition] = []

    def tasks() -> Iterator[tuple[_Partition, Any]]:
        for partition in opened:
            waiting.append(partition)
            for task in partition.tasks:
                yield partition, task

    def done(one: tuple[_Partition, Any]) -> tuple[_Partition, Any]:
        return one[0], work(one[1])

    for partition, outcome in ordered_map(done, tasks(), threads):
        # A partition without segments has none that could show its end.
        while waiting[0] is not partition:
            yield waiting.pop(0)
        partition.take(outcome)
    yield from waiting


def _result(partition: PartitionVerification, threads: int) -> VerifiedPartition:
    """Check the segments that are not just what their logs say, by the rules that they were written by."""
    if partition.unclear:
        prepared = ordered_map(prepare_segment, partition.unclear, threads)
        surveyed = list(islice(prepared, SURVEYED_SEGMENTS))
        survey = make_survey(partition.survey_seed, surveyed, map(prepare_segment, partition.usual))
        for one in chain(surveyed, prepared):
            partition.take_checked(check_prepared(one, survey, partition.restarts))
    return partition.result()
