"""Verifies, builds or rebuilds the indexes and time maps of a data folder or backup on Spark.

    verify_indexes(spark, "/backup/kafka").rows.where("kind = 'fault'").show()
    rebuild_indexes(spark, "/backup/kafka", out_dir="/indexes", missing_only=True)

The unit of work is a segment, so that even one partition can keep all workers busy. The job uses the same functions (`check`) as
`tidelog index verify` and `tidelog index rebuild`, so it writes the same files, byte for byte.

| where | what |
|---|---|
| driver | partitions are listed, the folder is locked |
| workers | segments are walked; indexes and time maps are compared or written |
| driver | aborted transactions are followed from segment to segment; `.txnindex` files are compared or written |
| workers | verify: the rules of older releases are determined, and entries are checked by these rules |

Folders must have the same path on every machine. To rebuild, workers must be able to write the indexes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidelog.check.partitions import (
    PartitionRebuild,
    PartitionVerification,
    RebuildRules,
    RebuiltPartition,
    VerifiedPartition,
    checked_out_dir,
    checked_time_map_dir,
    partitions_to_verify,
    select_partitions,
)
from tidelog.check.segment_indexes import Survey
from tidelog.check.segments import (
    SURVEYED_SEGMENTS,
    SegmentToRebuild,
    SegmentToVerify,
    SurveySeed,
    check_prepared,
    examine_segment,
    make_survey,
    prepare_segment,
    rebuild_segment,
)
from tidelog.errors import InvalidArgumentError, SegmentChangedError, StorageError
from tidelog.formats.dir_lock import DirLock
from tidelog.formats.paths.file_path import local_path
from tidelog.reader.log_dir import LogDir
from tidelog.reader.segment import Segment
from tidelog.spark.jobs.bundles import bundle
from tidelog.spark.jobs.distribute import Progress, Row, run_tasks
from tidelog.spark.jobs.index_rows import rebuilt_result, verified_result
from tidelog.spark.jobs.result import logged_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.jobs.result import JobResult

__all__ = ["rebuild_indexes", "verify_indexes"]

Task = TypeVar("Task", SegmentToRebuild, SegmentToVerify)
Key = tuple[int, int]
"""A partition's number and a segment's number within that partition."""

PathLike = str | os.PathLike[str]


def rebuild_indexes(
    spark: SparkSession,
    directory: PathLike,
    topic: str | None = None,
    partitions: Sequence[int] = (),
    *,
    interval_bytes: int | None = None,
    out_dir: PathLike | None = None,
    time_maps: bool = True,
    missing_only: bool = False,
    progress: Progress | None = None,
) -> JobResult:
    """Write the offset, time and transaction indexes and the time maps from the logs. The logs are not changed.

    Args:
        spark: the session whose workers run the tasks.
        directory: the data folder. Without `out_dir` the folder's lock is taken, so no broker may be running on it.
        topic: the only topic to rebuild; None for all.
        partitions: the only partitions of the topic to rebuild; empty for all.
        interval_bytes: index.interval.bytes; None to derive it from the existing indexes.
        out_dir: the folder for the files, in subfolders `<topic>-<partition>/`; the data folder is then only read. None to write
            into the data folder.
        time_maps: whether time maps are built as well.
        missing_only: write only missing files, and leave existing files unchanged, correct or not.
        progress: called with the number of completed tasks.

    Rows are files (`kind` "file") and faults of the logs ("fault"). `faults` is the number of faults. See `index_rows`. Raises
    what opening the folder raises, InvalidArgumentError, StorageError, SegmentChangedError.
    """
    _check_no_speculation(spark)
    log_dir = LogDir(_absolute(directory))
    wanted = select_partitions(log_dir, topic, partitions)
    out = checked_out_dir(None if out_dir is None else _absolute(out_dir), log_dir.path)
    # An index without its log is reported and removed.
    missing = logged_missing(log_dir.missing(topic, partitions))
    rules = RebuildRules(out, interval_bytes, time_maps, missing_only)
    with nullcontext() if out is not None else DirLock(local_path(log_dir.path)):
        opened = [PartitionRebuild(partition, rules) for partition in partitions_to_verify(log_dir, wanted)]
        tasks = {(number, place): task for number, one in enumerate(opened) for place, task in enumerate(one.tasks)}
        what = "build indexes" if missing_only else "rebuild indexes"
        try:
            rows = _on_workers(spark, f"{what} of {log_dir.path}", tasks, rebuild_segment, progress)
        except SegmentChangedError as error:
            _check_shared([task.segment for task in tasks.values() if str(task.segment.log_path) == error.path])
            raise
        for (number, _), rebuilt in rows:
            opened[number].take(rebuilt)
    results: list[RebuiltPartition] = [one.result for one in opened]
    return replace(rebuilt_result(spark, results), missing=missing)


def verify_indexes(
    spark: SparkSession,
    directory: PathLike,
    topic: str | None = None,
    partitions: Sequence[int] = (),
    *,
    interval_bytes: int | None = None,
    time_map_dir: PathLike | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Check that every index and time map is correct and complete. Nothing is written, so a broker may be running on the folder.

    Arguments are those of `rebuild_indexes`. `time_map_dir` is a folder of time maps to verify as well. The result
    has a row for each finding (`kind` is "fault" or "note") and for each partition (`kind` is "partition"), see `index_rows`; its
    `faults` is the number of faults. Raises what opening the folder raises, NotFoundError, StorageError.
    """
    log_dir = LogDir(_absolute(directory))
    wanted = select_partitions(log_dir, topic, partitions)
    maps = checked_time_map_dir(None if time_map_dir is None else _absolute(time_map_dir))
    opened = [PartitionVerification(one, interval_bytes, maps) for one in partitions_to_verify(log_dir, wanted)]
    tasks = {(number, place): task for number, one in enumerate(opened) for place, task in enumerate(one.tasks)}
    examined = _on_workers(spark, f"verify indexes of {log_dir.path}", tasks, examine_segment, progress)
    _check_shared([tasks[key].segment for key, outcome in examined if outcome.size_bytes is None])
    for (number, _), outcome in examined:
        opened[number].take(outcome)
    _check_unclear(spark, f"check entries of {log_dir.path}", opened, progress)
    results: list[VerifiedPartition] = [one.result() for one in opened]
    missing = logged_missing(log_dir.missing(topic, partitions))
    return replace(verified_result(spark, results), missing=missing)


class _ToSurvey(NamedTuple):
    """A partition whose indexes were written by rules that must still be determined."""

    number: int
    seed: SurveySeed
    unclear: list[SegmentToVerify]
    usual: list[SegmentToVerify]


def _check_unclear(spark: SparkSession, what: str, opened: list[PartitionVerification], progress: Progress | None) -> None:
    """Check segments with unexpected indexes again, by the rules of the release that wrote the indexes."""
    to_survey = [
        _ToSurvey(number, one.survey_seed, one.unclear[:SURVEYED_SEGMENTS], one.usual)
        for number, one in enumerate(opened)
        if one.unclear
    ]

    def survey(one: _ToSurvey) -> list[Row]:
        return [(one.number, make_survey(one.seed, map(prepare_segment, one.unclear), map(prepare_segment, one.usual)))]

    surveys: dict[int, Survey] = dict(run_tasks(spark, what, to_survey, survey, progress))
    restarts = {number: opened[number].restarts for number in surveys}
    tasks = {(number, place): task for number in surveys for place, task in enumerate(opened[number].unclear)}

    def check(piece: tuple[Key, SegmentToVerify]) -> Row:
        key, task = piece
        return key, check_prepared(prepare_segment(task), surveys[key[0]], restarts[key[0]])

    for (number, _), checked in _sorted(spark, what, tasks, check, progress):
        opened[number].take_checked(checked)


def _on_workers(
    spark: SparkSession, what: str, tasks: dict[Key, Task], work: Callable[[Task], object], progress: Progress | None
) -> list[Row]:
    """Run tasks on the workers. Return each segment's key and result, in the order of the keys."""

    def one(piece: tuple[Key, Task]) -> Row:
        key, task = piece
        return key, work(task)

    return _sorted(spark, what, tasks, one, progress)


def _sorted(
    spark: SparkSession,
    what: str,
    tasks: dict[Key, Task],
    work: Callable[[tuple[Key, Task]], Row],
    progress: Progress | None,
) -> list[Row]:
    bundles = bundle(list(tasks.items()), lambda piece: piece[1].segment.size_bytes, spark.sparkContext.defaultParallelism)

    def each(pieces: list[tuple[Key, Task]]) -> Iterator[Row]:
        return map(work, pieces)

    return sorted(run_tasks(spark, what, bundles, each, progress), key=itemgetter(0))


def _check_no_speculation(spark: SparkSession) -> None:
    """Raise InvalidArgumentError if the session may run a task twice at the same time: both attempts would write the same
    files.
    """
    if spark.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise InvalidArgumentError(
            "spark.speculation may run a task twice, but each file must be written by one task: set spark.speculation=false",
            found="true",
        )


def _check_shared(gone: Sequence[Segment]) -> None:
    """Raise StorageError if a segment that a worker did not find exists on the driver: the worker sees a different folder."""
    for segment in gone:
        try:
            is_there = segment.file.locate() is not None
        except SegmentChangedError:
            continue
        finally:
            segment.close()
        if is_there:
            raise StorageError(
                "a worker cannot find a file: folders must have the same path on every machine", path=segment.log_path
            )


def _absolute(path: PathLike) -> str:
    # A worker has a different working directory.
    return os.path.abspath(path)  # noqa: PTH100  # links stay as they were given
