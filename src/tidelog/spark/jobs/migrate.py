"""The job `migrate`: rewrites a data folder in message formats v0 and v1, or in mixed formats, as v2 in a new folder.

| column of the rows | |
|---|---|
| topic, partition, base_offset | identify the old segment |
| batches, records | the number of each in the new segment, including records of control batches |
| converted_batches | the number of batches that were converted |
| old_bytes, new_bytes | sizes of the ``.log`` files |
| old_format, new_format | the formats of the batches: "v0", "v0, v2", ...; empty for an empty segment |
| new_segments | 1, or more if the segment had to be split |
| torn_bytes | bytes of an incomplete last batch that a crash has left; not copied; only in a last segment |

The unit of work is a segment; several small segments share a task. `tidelog.check.migration` documents what is preserved. The old
folder is only read. The new folder is named ``….unfinished`` until everything is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.spark.jobs.bundles import bundle
from tidelog.spark.jobs.distribute import Progress, Row, run_tasks
from tidelog.spark.jobs.result import JobResult, Summary, logged_missing

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import SparkSession

    from tidelog.check.migration.folder_migration import TransactionsToIndex
    from tidelog.check.migration.segment_migration import MigratedSegment, SegmentToMigrate

__all__ = ["migrate"]

SCHEMA = (
    "topic string, partition int, base_offset long, batches long, records long, converted_batches long, "
    "old_bytes long, new_bytes long, old_format string, new_format string, new_segments int, torn_bytes long"
)
SUMMARY_COLUMNS = (
    "topic", "partition", "segments", "batches", "converted", "records", "old_bytes", "new_bytes", "torn_bytes", "formats"
)  # fmt: skip


def migrate(
    spark: SparkSession,
    directory: str | PathLike[str],
    out_dir: str | PathLike[str],
    topic: str | None = None,
    *,
    progress: Progress | None = None,
) -> JobResult:
    """Write the data folder `directory` (or only `topic`) in v2 to the new folder `out_dir`. The module's docstring describes the
    rows.

    On a Spark cluster, both folders must have the same path on every machine.

    Raises InvalidArgumentError if `out_dir`, or its unfinished folder, exists; NotFoundError, CorruptDataError for damage in the
    old folder, SegmentChangedError, StorageError. After an error, the new folder is removed.
    """
    from pathlib import Path

    from tidelog.check.migration import folder_migration
    from tidelog.clock import SystemClock
    from tidelog.reader.log_dir import LogDir

    parallelism = spark.sparkContext.defaultParallelism
    migration = folder_migration.begin(Path(directory).absolute(), Path(out_dir).absolute(), topic)
    try:
        tasks = bundle(migration.segments, lambda task: task.size_bytes, parallelism)
        done: list[MigratedSegment] = [one for (one,) in run_tasks(spark, "segments to v2", tasks, _migrate, progress)]
        transactional = folder_migration.transactions_to_index(migration, done)
        run_tasks(spark, "transactions of the new segments", transactional, _index_transactions, progress)
        folder_migration.finish(migration, done, SystemClock(), threads=parallelism)
    except BaseException:
        folder_migration.abandon(migration)
        raise
    done.sort(key=lambda one: (one.topic, one.partition, one.base_offset))
    columns = len(SCHEMA.split(","))
    rows = spark.createDataFrame([tuple(one[:columns]) for one in done], SCHEMA)
    return JobResult(rows, _summary(done), missing=logged_missing(LogDir(directory).missing(topic)))


def _migrate(tasks: list[SegmentToMigrate]) -> Iterator[Row]:
    from tidelog.check.migration.segment_migration import migrate_segment

    for task in tasks:
        yield (migrate_segment(task),)


def _index_transactions(task: TransactionsToIndex) -> list[Row]:
    from tidelog.check.migration.folder_migration import index_transactions

    index_transactions(task)
    return []


def _summary(done: list[MigratedSegment]) -> Summary:
    """Return a summary with a line for each partition. `done` must be in the order of partitions."""
    partitions: dict[tuple[str, int], list[MigratedSegment]] = {}
    for one in done:
        partitions.setdefault((one.topic, one.partition), []).append(one)
    lines = []
    for key, segments in partitions.items():
        formats = sorted({name for one in segments for name in one.old_format.split(", ") if name})
        lines.append(
            (
                *key,
                sum(one.new_segments for one in segments),
                sum(one.batches for one in segments),
                sum(one.converted_batches for one in segments),
                sum(one.records for one in segments),
                sum(one.old_bytes for one in segments),
                sum(one.new_bytes for one in segments),
                sum(one.torn_bytes for one in segments),
                ", ".join(formats),
            )
        )
    return Summary(SUMMARY_COLUMNS, tuple(lines))
