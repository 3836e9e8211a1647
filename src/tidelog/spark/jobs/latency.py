"""The job `latency`: measures by minute how long records were in transit, and how far out of order they arrived.

| column of the rows | |
|---|---|
| topic, partition | |
| kind | `latency`, `lateness` or `unknown`: see `tidelog.sources.latency` |
| minute | the minute of the append (lateness: of CreateTime); null without a timestamp; at most the last minute of 9999 |
| records | the number of records |
| p50_ms, p90_ms, p99_ms | exact percentiles of the delay, interpolated between two records, to the millisecond |
| min_ms, max_ms | the extremes |
| ahead | latency: the number of records whose CreateTime is later than their append time |
| out_of_order | lateness: the number of records whose CreateTime is before an earlier record's |

A topic whose timestamp type has changed has rows of both kinds. The summary has the same figures for each whole partition; in it,
`max_ms` of lateness is the longest step back in time.

Each segment is a task, except that small segments share a task. A task counts equal delays; Spark adds up the counts and computes
percentiles. Lateness depends on all earlier records, so the largest CreateTime of each segment is read first, from batch headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidelog.sources.files.folder_split import FolderSplit
from tidelog.spark.jobs.bundles import bundle
from tidelog.spark.jobs.distribute import Progress, run_arrow_tasks, run_tasks
from tidelog.spark.jobs.result import JobResult, Summary, logged_missing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["latency"]

LAST_MS = 253_402_300_740_000
"""The last minute of the year 9999 in epoch ms. Python's and SQL's calendars end with that year."""

_FIGURES = ("records", "p50_ms", "p90_ms", "p99_ms", "min_ms", "max_ms", "ahead", "out_of_order")


class _Task(NamedTuple):
    split: FolderSplit
    largest_before: int


def latency(
    spark: SparkSession,
    directory: str,
    topic: str | None = None,
    *,
    partitions: Iterable[int] | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Measure the latency of one topic or all topics of a data folder. The module's docstring describes the rows.

    Raises NotFoundError if the folder, the topic or a partition does not exist, CorruptDataError, SegmentChangedError.
    """
    import pyarrow as pa

    from tidelog.reader.tiered.tiered_log_dir import open_log_dir
    from tidelog.sources.files.folder_plan import plan_folder
    from tidelog.sources.latency import SCHEMA
    from tidelog.sources.plan import scan_request

    log_dir = open_log_dir(directory)
    topics = sorted(log_dir.topics()) if topic is None else [topic]
    plans = [plan_folder(log_dir, scan_request(name, partitions=partitions)) for name in topics]
    missing = logged_missing(one for each in plans for one in each.known.missing)
    splits = [split for each in plans for split in each.splits]
    tasks = _bundled(spark, _with_largest_before(spark, splits))
    schema = pa.schema([pa.field("topic", pa.string()), pa.field("partition", pa.int32()), *SCHEMA])
    with run_arrow_tasks(spark, "delays of records", tasks, _count, schema, progress) as counts:
        rows = _figures(counts, "minute_ms").orderBy("topic", "partition", "kind", "minute").persist()
        whole = sorted(_figures(counts).collect(), key=lambda row: row[:3])
        rows.count()
    places = ("topic", "partition", "kind")
    return JobResult(rows, Summary((*places, *_FIGURES), tuple(tuple(row) for row in whole)), missing=missing)


def _with_largest_before(spark: SparkSession, splits: list[FolderSplit]) -> list[_Task]:
    """Return each split with the largest CreateTime of the earlier splits of its partition."""
    from tidelog.model import NO_TIMESTAMP
    from tidelog.sources.latency import largest_create_time

    # No split follows a partition's last split, so its own CreateTime is not needed.
    asked = [_Task(split, NO_TIMESTAMP) for split, next_one in pairwise(splits) if _place(split) == _place(next_one)]

    def largest_of(pack: list[_Task]) -> list[tuple[tuple[str, int, int], int]]:
        return [((*_place(split), split.base_offset), largest_create_time(split)) for split, _ in pack]

    largest: dict[tuple[str, int, int], int] = dict(run_tasks(spark, "largest CreateTimes", _bundled(spark, asked), largest_of))
    tasks: list[_Task] = []
    before = NO_TIMESTAMP
    for split in splits:
        if not tasks or _place(tasks[-1].split) != _place(split):
            before = NO_TIMESTAMP
        tasks.append(_Task(split, before))
        before = max(before, largest.get((*_place(split), split.base_offset), NO_TIMESTAMP))
    return tasks


def _bundled(spark: SparkSession, tasks: list[_Task]) -> list[list[_Task]]:
    return bundle(tasks, lambda task: task.split.size_bytes, spark.sparkContext.defaultParallelism)


def _place(split: FolderSplit) -> tuple[str, int]:
    return split.topic, split.partition


def _count(pack: list[_Task]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from tidelog.sources.latency import count_delays

    for split, largest_before in pack:
        for batch in count_delays(split, largest_before):
            topics = pa.repeat(pa.scalar(split.topic), len(batch))
            partitions = pa.repeat(pa.scalar(split.partition, pa.int32()), len(batch))
            names = ["topic", "partition", *batch.schema.names]
            yield pa.RecordBatch.from_arrays([topics, partitions, *batch.columns], names=names)


def _figures(counts: DataFrame, *by: str) -> DataFrame:
    """Return the figures of the result, aggregated by partition, kind and the columns `by`."""
    from pyspark.sql import functions as f

    figures = counts.groupBy("topic", "partition", "kind", *by).agg(
        f.sum("records").alias("records"),
        f.percentile("value_ms", [0.5, 0.9, 0.99], f.col("records")).alias("percentiles"),
        f.min("value_ms").alias("min_ms"),
        f.max("value_ms").alias("max_ms"),
        f.sum(f.expr("IF(kind = 'latency', IF(value_ms < 0, records, 0), NULL)")).alias("ahead"),
        f.sum(f.expr("IF(kind = 'lateness', IF(value_ms > 0, records, 0), NULL)")).alias("out_of_order"),
    )
    percentiles = [
        f.round(f.col("percentiles")[place]).cast("bigint").alias(name)
        for place, name in enumerate(("p50_ms", "p90_ms", "p99_ms"))
    ]
    minutes = [f.expr(f"timestamp_millis(LEAST(minute_ms, {LAST_MS}))").alias("minute") for _ in by]
    return figures.select("topic", "partition", "kind", *minutes, "records", *percentiles, *_FIGURES[4:])
