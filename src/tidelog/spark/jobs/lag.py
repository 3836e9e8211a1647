"""The job `lag`: how far behind all groups are, in offsets and in time, in every partition: of brokers, or of a data folder.

| column of the rows | |
|---|---|
| now | when the ends of the logs were asked for; the numbers are of that moment |
| group, state, members | the group; members null where nobody tells |
| topic, partition, member_id | a partition that it has committed in or is assigned, and who reads it |
| committed_offset, metadata | what it committed; null without |
| log_start_offset, end_offset, high_watermark | the log, and where the group's reading ends |
| lag, lag_ms | offsets, and the age of the next record |
| lost | offsets that were deleted before they were read |
| next_offset, next_time | the next record that it would be given; null: it is at the end |
| group_per_second, topic_per_second | rates |
| catches_up, time_to_end_ms | whether and when it reaches the end at these rates |
| retention, retention_at | when retention takes the next record, and how that is known |
| note | why there are no numbers: a partition that is gone, or has no leader |

`tidelog.client.lag` says what each number is; `tidelog groups describe` shows the same of one group.

| of | a task is | rates from |
|---|---|---|
| brokers | some groups whose commits are in the same partition of ``__consumer_offsets``: read once for all of them | the same |
| a data folder | a partition of ``__consumer_offsets`` | the same |

Executors ask the brokers themselves, or open the folder under the same path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.client.addresses import is_address
from tidelog.client.cluster import Cluster
from tidelog.client.group_lag import WINDOW_MS, GroupLag, group_lag, read_commits
from tidelog.client.groups import DEAD, list_groups
from tidelog.client.lag import CatchUp, PartitionLag
from tidelog.client.offsets import Isolation
from tidelog.clock import Clock, SystemClock
from tidelog.errors import BrokerError, NotFoundError
from tidelog.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from tidelog.log.names import TopicPartition
from tidelog.scanning.brokers import scan_cluster
from tidelog.spark.jobs.distribute import Progress, run_tasks
from tidelog.spark.jobs.result import JobResult, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_GROUPS = 50
"""A task asks for no more groups, one after the other: some ten requests each."""

SCHEMA = (
    "now timestamp, group string, state string, members int, topic string, partition int, member_id string, "
    "committed_offset bigint, metadata string, log_start_offset bigint, end_offset bigint, high_watermark bigint, "
    "lag bigint, lag_ms bigint, lost bigint, next_offset bigint, next_time timestamp, "
    "group_per_second double, topic_per_second double, catches_up string, time_to_end_ms bigint, "
    "retention string, retention_at timestamp, note string"
)

SUMMARY = ("group", "state", "members", "partitions", "lag", "lag_ms", "most_behind", "catches_up", "time_to_end_ms", "lost")

GONE = "no such partition now, or it has no leader"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, where Python's calendar ends."""

_WORST = (CatchUp.NEVER, CatchUp.UNKNOWN, CatchUp.IN, CatchUp.AT_END)
"""What a group as a whole is, by its worst partition."""


class _Task(NamedTuple):
    place: str
    offsets_partition: int
    groups: tuple[str, ...] | None
    isolation: Isolation
    window_ms: int
    clock: Clock


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
    """Measure how far behind groups are, all of them or those named; the module's docstring has the rows.

    `place` is `host:port` of brokers, with commas between, or a data folder. `isolation` is what the groups' consumers read
    with; rates are those of the last `window_ms`. A group that is further behind than `max_lag_ms` in a partition, or has lost
    offsets there, is a fault; without it nothing is.

    Raises NotFoundError for a group or folder that is not there, BrokerUnreachableError, BrokerError, CorruptDataError.
    """
    wanted = None if groups is None else tuple(dict.fromkeys(groups))
    plan = _plan_brokers if is_address(place) else _plan_folder
    tasks = plan(place, wanted, isolation, window_ms, SystemClock() if clock is None else clock)
    found = [one for (one,) in run_tasks(spark, "lags of groups", tasks, _measure, progress)]
    missing = set(wanted or ()) - {one.description.group for one in found}
    if missing:
        raise NotFoundError(f"there is no group {min(missing)!r}", path=place)
    found.sort(key=lambda one: one.description.group)
    summary = sorted(map(_summary, found), key=lambda row: (-1 if row[5] is None else row[5], row[4] or 0), reverse=True)
    rows = spark.createDataFrame([row for one in found for row in _rows(one)], SCHEMA)
    return JobResult(rows, Summary(SUMMARY, tuple(summary)), sum(_is_fault(one, max_lag_ms) for one in found))


def _plan_brokers(place: str, wanted: tuple[str, ...] | None, isolation: Isolation, window_ms: int, clock: Clock) -> list[_Task]:
    cluster = scan_cluster(place)
    try:
        names = wanted if wanted is not None else [one.group for one in list_groups(cluster)]
        try:
            count = len(cluster.topic_now(OFFSETS_TOPIC).partitions) if names else 1
        except (NotFoundError, BrokerError):
            count = 1  # Clients may not see it: rates will not be known, everything else will.
    finally:
        cluster.close()
    by_partition: dict[int, list[str]] = defaultdict(list)
    for name in names:
        by_partition[partition_of(name, count)].append(name)
    return [
        _Task(place, partition, tuple(together[at : at + TASK_GROUPS]), isolation, window_ms, clock)
        for partition, together in sorted(by_partition.items())
        for at in range(0, len(together), TASK_GROUPS)
    ]


def _plan_folder(place: str, wanted: tuple[str, ...] | None, isolation: Isolation, window_ms: int, clock: Clock) -> list[_Task]:
    from tidelog.storage.groups_folder import FolderGroups

    partitions = FolderGroups(place).offsets_partitions()
    return [_Task(place, partition, wanted, isolation, window_ms, clock) for partition in partitions]


def _measure(task: _Task) -> Iterator[tuple[GroupLag]]:
    """On a worker."""
    if not is_address(task.place):
        from tidelog.storage.groups_folder import FolderGroups

        only = None if task.groups is None else frozenset(task.groups)
        now_ms = task.clock.now_ms()
        for one in FolderGroups(task.place).describe_all(task.offsets_partition, now_ms, task.isolation, task.window_ms, only):
            yield (one,)
        return
    assert task.groups is not None
    cluster = scan_cluster(task.place)
    try:
        yield from _ask(cluster, task, task.groups)
    finally:
        cluster.close()


def _ask(cluster: Cluster, task: _Task, groups: tuple[str, ...]) -> Iterator[tuple[GroupLag]]:
    history = read_commits(cluster, groups, task.clock.now_ms() - task.window_ms)
    for group in groups:
        found = group_lag(cluster, group, task.clock, isolation=task.isolation, window_ms=task.window_ms, history=history)
        if found.description.state != DEAD or found.partitions:
            yield (found,)


def _rows(found: GroupLag) -> Iterator[tuple[Any, ...]]:
    description = found.description
    head = (description.group, description.state, description.member_count)
    readers: dict[TopicPartition, str] = {
        key: member.member_id for member in description.members for key in member.assignment or ()
    }
    for one in found.partitions:
        record, to_end = one.next_record, one.time_to_end
        yield (
            *(_instant(one.now_ms), *head, *one.key, readers.get(one.key)),
            *(one.committed_offset, None if one.committed_offset is None else one.metadata),
            *(one.log_start_offset, one.end_offset, one.high_watermark, one.lag, one.lag_ms, one.lost),
            *((None, None) if record is None else (record.offset, _instant(record.timestamp))),
            *(one.group_per_second, one.topic_per_second, to_end.catch_up.value, to_end.time_ms),
            *(one.retention.precision.value, _instant(one.retention.goes_ms), None),
        )
    for key in found.without_log:
        yield (None, *head, *key, readers.get(key), *(None,) * 16, GONE)


def _instant(time_ms: int | None) -> datetime | None:
    """Return it as Spark takes it, to the millisecond; None for none. What is later than the calendar is its end."""
    return None if time_ms is None or time_ms < 0 else _EPOCH + timedelta(milliseconds=min(time_ms, _LAST_MS))


def _summary(found: GroupLag) -> tuple[Any, ...]:
    head = (found.description.group, found.description.state, found.description.member_count, len(found.partitions))
    known = [one for one in found.partitions if one.lag is not None]
    if not known:
        return (*head, *(None,) * 5, 0)
    worst = max(known, key=_behind)
    catches_up = min((one.time_to_end.catch_up for one in known), key=_WORST.index)
    times = [one.time_to_end.time_ms or 0 for one in known]
    return (
        *(*head, sum(one.lag or 0 for one in known), worst.lag_ms),
        f"{worst.topic}-{worst.partition}" if worst.lag else None,
        *(catches_up.value, max(times) if catches_up in (CatchUp.IN, CatchUp.AT_END) else None),
        sum(one.lost for one in known),
    )


def _behind(one: PartitionLag) -> tuple[int, int]:
    return -1 if one.lag_ms is None else one.lag_ms, one.lag or 0


def _is_fault(found: GroupLag, max_lag_ms: int | None) -> bool:
    return max_lag_ms is not None and any(one.lost or (one.lag_ms or 0) > max_lag_ms for one in found.partitions)
