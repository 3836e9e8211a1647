"""The job `lag`: measures the lag of all groups in every partition, in offsets and in time, on brokers or in a data folder.

| column of the rows | |
|---|---|
| now | the time at which the log ends were read; all numbers refer to this time |
| group, state, members | the group; members is null if unknown |
| topic, partition, member_id | a partition with a committed offset or an assigned member, and the member's id |
| committed_offset, metadata | the committed offset and its metadata; null if there is no commit |
| log_start_offset, end_offset, high_watermark | the bounds of the log; `end_offset` is the end of the readable part |
| lag, lag_ms | offsets, and the age of the next record |
| lost | offsets that were deleted before they were read |
| next_offset, next_time | the next record that the group would get; null if the group is at the end |
| group_per_second, topic_per_second | the rates at which the group commits and the topic grows |
| catches_up, time_to_end_ms | whether the group reaches the end at these rates, and how long that takes |
| retention, retention_at | how exact `retention_at` is; the time at which retention deletes the next record |
| note | why numbers are missing (a deleted partition, no leader) or meaningless |

`tidelog.groups.lag` explains each number. `tidelog groups describe` shows these numbers for one group, and `tidelog groups lag`
for all groups without Spark. `sources.group_lags` defines the tasks. Executors connect to the brokers themselves, or open the
folder under the same path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidelog.client.consumer_groups.group_lag import WINDOW_MS, GroupLag
from tidelog.clock import Clock, SystemClock
from tidelog.model import Isolation, TopicPartition
from tidelog.sources.group_lags import (
    SUMMARY,
    LagTask,
    check_all_there,
    is_fault,
    keeps_positions,
    measure,
    missing_of,
    plan,
    summary_rows,
)
from tidelog.spark.jobs.distribute import Progress, run_tasks
from tidelog.spark.jobs.result import JobResult, Summary, logged_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["lag"]

SCHEMA = (
    "now timestamp, group string, state string, members int, topic string, partition int, member_id string, "
    "committed_offset bigint, metadata string, log_start_offset bigint, end_offset bigint, high_watermark bigint, "
    "lag bigint, lag_ms bigint, lost bigint, next_offset bigint, next_time timestamp, "
    "group_per_second double, topic_per_second double, catches_up string, time_to_end_ms bigint, "
    "retention string, retention_at timestamp, note string"
)

GONE = "the partition no longer exists, or has no leader"
POSITION = "the position of one of Tidelog's writers: its numbers are not a lag"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999 in epoch ms, the last time that `datetime` supports."""


def lag(
    spark: SparkSession,
    place: str,
    groups: Iterable[str] | None = None,
    *,
    isolation: Isolation = "read_committed",
    window_ms: int = WINDOW_MS,
    max_lag_ms: int | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Measure the lag of the named groups, or of all groups. The module's docstring describes the rows.

    `place` is the bootstrap servers as `host:port`, separated by commas, or a data folder. `isolation` is the isolation level of
    the groups' consumers. Rates are averages over the last `window_ms`. A group counts as a fault if its lag exceeds `max_lag_ms`
    in a partition, or if it has lost offsets. Without `max_lag_ms` there are no faults. Groups in which Tidelog's writers store
    positions are never faults.

    Raises NotFoundError if a group or the folder does not exist, BrokerUnreachableError, BrokerError, CorruptDataError.
    """
    wanted = None if groups is None else tuple(dict.fromkeys(groups))
    tasks = plan(place, wanted, isolation, window_ms, SystemClock() if clock is None else clock)
    found = [one for (one,) in run_tasks(spark, "lags of groups", tasks, _measure, progress)]
    missing = logged_missing(missing_of(place, wanted, found))
    check_all_there(found, wanted, place)
    found.sort(key=lambda one: one.description.group)
    rows = spark.createDataFrame([row for one in found for row in _rows(one)], SCHEMA)
    faults = sum(is_fault(one, max_lag_ms) for one in found)
    return JobResult(rows, Summary(SUMMARY, tuple(summary_rows(found))), faults, missing)


def _measure(task: LagTask) -> Iterator[tuple[GroupLag]]:
    """On a worker: measure a task's groups."""
    return ((one,) for one in measure(task))


def _rows(found: GroupLag) -> Iterator[tuple[Any, ...]]:
    description = found.description
    head = (description.group, description.state, description.member_count)
    readers: dict[TopicPartition, str] = {
        key: member.member_id for member in description.members for key in member.assignment or ()
    }
    has_no_lag = keeps_positions(found)
    for one in found.partitions:
        record, to_end = one.next_record, one.time_to_end
        yield (
            *(_instant(one.now_ms), *head, *one.key, readers.get(one.key)),
            *(one.committed_offset, None if one.committed_offset is None else one.metadata),
            *(one.log_start_offset, one.end_offset, one.high_watermark, one.lag, one.lag_ms, one.lost),
            *((None, None) if record is None else (record.offset, _instant(record.timestamp))),
            *(one.group_per_second, one.topic_per_second, to_end.catch_up.value, to_end.time_ms),
            *(one.retention.precision.value, _instant(one.retention.goes_ms), POSITION if has_no_lag else None),
        )
    for key in found.without_log:
        yield (None, *head, *key, readers.get(key), *(None,) * 16, GONE)


def _instant(time_ms: int | None) -> datetime | None:
    """Return a time as a timestamp for Spark, to the millisecond; None for None. Times after the year 9999 become the end of that
    year.
    """
    return None if time_ms is None or time_ms < 0 else _EPOCH + timedelta(milliseconds=min(time_ms, _LAST_MS))
