"""The job `failover`: finds where a group continues in a mirror after the source has failed, and how much the group reads twice.

`tidelog.copying.failover` does the work without Spark. This module returns the result as a job's rows.

| rows | |
|---|---|
| source_topic, topic, partition | the names in the source and in the mirror |
| committed_offset | the group's committed offset in the source; null if only a time is known |
| last_read_ms | the time of the last record read |
| by_map, is_exact | the offset by the map, and whether that is exactly the first unread record |
| by_time | the offset by time and MaxLatency |
| position | where the group continues; null if unknown |
| read_again, read_again_is_exact | how many records the group reads twice; whether this is exact or an upper bound |
| note | remarks, such as why the position is unknown |

The summary has the same columns. If commits are missing from a source folder, that is reported, because the group may have read
further.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.client.connections.cluster import Cluster
from tidelog.copying.copy_plan import CLIENT_ID
from tidelog.copying.failover import FailoverOptions, apply_failover, plan_failover
from tidelog.sources.group_lags import missing_of
from tidelog.spark.jobs.result import JobResult, Summary, logged_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["failover"]

SCHEMA = (
    "source_topic string, topic string, partition int, committed_offset bigint, last_read_ms bigint, by_map bigint, "
    "is_exact boolean, by_time bigint, position bigint, read_again bigint, read_again_is_exact boolean, note string"
)


def failover(spark: SparkSession, target: str, options: FailoverOptions, *, apply: bool = False) -> JobResult:
    """Find the positions of a group in the target, and return them as a result. With `apply`, also commit them. Raises what
    `plan_failover` and `apply_failover` raise.
    """
    source = options.source
    missing = logged_missing(() if source is None else missing_of(source, (options.group,), ()))
    with Cluster.at(target, CLIENT_ID) as cluster:
        planned = plan_failover(cluster.reach(), options)
        if apply:
            apply_failover(cluster, options.group, planned)
    values = tuple(
        (
            *(one.source.topic, one.target.topic, one.target.partition, one.committed_offset, one.last_read_ms),
            *(one.by_map, one.is_exact, one.by_time, one.position, one.again, one.again_is_exact, one.note),
        )
        for one in planned
    )
    columns = tuple(column.split()[0] for column in SCHEMA.split(", "))
    return JobResult(spark.createDataFrame(list(values), SCHEMA), Summary(columns, values), missing=missing)
