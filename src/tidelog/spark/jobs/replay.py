"""The job `replay`: copies exactly the records of a time window from a topic to another topic or cluster, with an offset map.

| column of the rows | the offset map: a row for each run of records that are consecutive in both topics |
|---|---|
| topic, partition | names in the source |
| first_offset, last_offset | offsets of the run in the source |
| target_topic, target_partition | names in the target |
| target_offset | the target offset of the first record |
| records | the number of records; null if the target offsets of a run were not recorded |
| max_timestamp | the largest timestamp in the target, epoch ms; null if there is none |

The summary has a line for each partition, with what the whole replay has copied so far and what this run has copied.

Each partition is a task (`tidelog.copying.copier`), and each chunk of a few MiB is a transaction. If the job is killed and
started again with the same folder, it continues exactly where it was (`tidelog.copying.replay`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.errors import InvalidTimestampError
from tidelog.sources.opening import kind_of, open_source
from tidelog.spark.jobs.distribute import Progress, Row, run_tasks
from tidelog.spark.jobs.result import JobResult, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.copying.copier import CopyResult, CopyTask
    from tidelog.copying.replay import Replay, ReplayRequest
    from tidelog.reader.missing.missing_offsets import MissingOffsets

__all__ = ["replay"]

SCHEMA = (
    "topic string, partition int, first_offset bigint, last_offset bigint, target_topic string, target_partition int, "
    "target_offset bigint, records bigint, max_timestamp bigint"
)

COLUMNS = (
    "topic",
    "partition",
    "from_offset",
    "end_offset",
    "target",
    "records",
    "first_target_offset",
    "copied_now",
    "as_they_are",
    "exactly_once",
)


_WAY_OUT = (
    "; the target topic accepts only the times that message.timestamp.before.max.ms and message.timestamp.after.max.ms allow: "
    "change these and run again, or leave the records out (--from, --to, with a new --map)"
)


def replay(
    spark: SparkSession, request: ReplayRequest, map_dir: str | os.PathLike[str], *, progress: Progress | None = None
) -> JobResult:
    """Copy the records of a window that have not been copied yet. The module's docstring describes the rows.

    On a Spark cluster, `map_dir` and a source folder must have the same path on every machine. Raises what
    `tidelog.copying.replay.prepare` and `tidelog.copying.copier.copy_partition` raise.
    """
    from tidelog.copying.replay import prepare

    begun, tasks = prepare(request, map_dir)
    try:
        done = {result.source.partition: result for (result,) in run_tasks(spark, "replay", tasks, _copy, progress)}
    except InvalidTimestampError as error:
        error.message += _WAY_OUT
        raise
    rows, lines = _look_back(begun, Path(map_dir).absolute(), done)
    return JobResult(spark.createDataFrame(rows, SCHEMA), Summary(COLUMNS, tuple(lines)), missing=tuple(_missing(request)))


def _missing(request: ReplayRequest) -> Iterator[MissingOffsets]:
    """Yield the source folder's missing records. They have been logged when the work was planned."""
    if kind_of(request.source).reads_files:
        with open_source(request.source) as source:
            if source.log_dir is not None:
                yield from source.log_dir.missing(request.topic, request.partitions)


def _copy(task: CopyTask) -> Iterable[Row]:
    from tidelog.copying.copier import copy_partition

    return [(copy_partition(task),)]


def _look_back(begun: Replay, folder: Path, done: dict[int, CopyResult]) -> tuple[list[Row], list[tuple[Any, ...]]]:
    """Return the rows and the summary, computed from the offset map and this run's results."""
    from tidelog.copying.offset_map import OffsetMap

    offsets = OffsetMap.open(folder)
    mapped = set(offsets.partitions())
    target_topic = begun.request.target_topic
    rows: list[Row] = []
    lines: list[tuple[Any, ...]] = []
    for source in sorted(begun.targets()):
        runs = offsets.partition(source).runs if source in mapped else []
        for run in runs:
            count = run.record_count if run.record_count >= 0 else None
            time = run.max_timestamp if run.max_timestamp >= 0 else None
            target = (target_topic, run.target_partition, run.target_offset)
            rows.append((*source, run.source_offset, run.last_source_offset, *target, count, time))
        result = done.get(source.partition)
        start, end = begun.ranges[source.partition]
        lines.append(
            (
                *source,
                start,
                end,
                f"{target_topic}-{source.partition}",
                sum(max(0, run.record_count) for run in runs),
                runs[0].target_offset if runs else None,
                result.records if result else 0,
                f"{result.batches - result.rebuilt_batches} of {result.batches} batches" if result else None,
                "no" if result and not result.is_exact else "yes",
            )
        )
    return rows, lines
