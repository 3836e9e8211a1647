"""The job `retention`: forecasts when each segment is deleted and which record keeps it until then, under each rule discussed in
the KIPs.

| rule | the time of a segment under the rule |
|---|---|
| `largest timestamp` | the largest timestamp of its records, of either type (KIP-33 as accepted, Kafka) |
| `file time` | its file's modification time (before KIP-33) |
| `last message` | the timestamp of its last record (KIP-32) |
| `LogAppendTime` | the append time of its last batch; unknown if that batch has CreateTime |
| `CreateTime` | the largest CreateTime of its records; unknown if no CreateTime is stored |

Under every rule a segment is deleted when its own time and the times of all earlier segments are older than retention.ms. Size,
log start and high watermark have their usual effect (`tidelog.storage.partition.retention`). If a segment's time is unknown, the
results for this segment and all later segments are unknown.

| column of the rows | |
|---|---|
| topic, partition, base_offset, next_offset, size_bytes | the segment |
| rule | the rule, as above; each segment has a row for each rule |
| own_offset, own_timestamp_ms | the segment's record that counts under the rule; the offset is null for a file's time |
| keeper_base_offset, keeper_offset, keeper_timestamp_ms | the record that keeps the segment: its own, or an earlier segment's |
| goes_ms | when the segment is deleted: now if that is due; null if retention does not delete it or the time is unknown |
| reason | why the segment is or is not deleted |
| pins_segments, pins_bytes | the later segments that this segment's record keeps beyond their own time: number and bytes |
| pinned_ms | how much longer an earlier segment's record keeps this segment than its own time does |

Each partition is a task. Records are read only for the rule `CreateTime`, and only in segments with LogAppendTime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.clock import Clock, SystemClock
from tidelog.config import LogConfig, PropertyValue
from tidelog.formats.paths.file_path import log_files
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.segment import Segment
from tidelog.records.batch import LOG_APPEND_TIME
from tidelog.records.columns import Columns
from tidelog.spark.jobs.bundles import bundle
from tidelog.spark.jobs.distribute import Progress, run_tasks
from tidelog.spark.jobs.result import JobResult, Summary, logged_missing
from tidelog.storage.partition.retention import Reason, SegmentFacts
from tidelog.storage.retention_forecast import Forecast, Keeper, facts_of_log, forecast_by, largest
from tidelog.storage.topics.topic_settings import TopicSettings
from tidelog.times import format_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["retention"]

LARGEST_TIMESTAMP = "largest timestamp"
FILE_TIME = "file time"
LAST_MESSAGE = "last message"
APPEND_TIME = "LogAppendTime"
CREATE_TIME = "CreateTime"
RULES = (LARGEST_TIMESTAMP, FILE_TIME, LAST_MESSAGE, APPEND_TIME, CREATE_TIME)

UNKNOWN = "unknown: a time is not in the log"

SCHEMA = (
    "topic string, partition int, base_offset bigint, next_offset bigint, size_bytes bigint, rule string, "
    "own_offset bigint, own_timestamp_ms bigint, keeper_base_offset bigint, keeper_offset bigint, keeper_timestamp_ms bigint, "
    "goes_ms bigint, reason string, pins_segments int, pins_bytes bigint, pinned_ms bigint"
)

SUMMARY = (
    "topic",
    "partition",
    "rule",
    "segments",
    "bytes",
    "bytes_going_now",
    "all_gone",
    "pinned_bytes",
    "pinned_most_by",
    "at",
)


class _Task(NamedTuple):
    directory: str
    topic: str
    partition: int
    size_bytes: int
    config: LogConfig
    now_ms: int


def retention(
    spark: SparkSession,
    directory: str,
    topic: str | None = None,
    *,
    partitions: Iterable[int] | None = None,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
    broker_properties: Mapping[str, PropertyValue] | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Forecast deletions. The module's docstring describes the rows.

    A setting comes from the topic's settings in the folder (`storage.topics.topic_settings`), or else from `broker_properties` (a
    server.properties file), or else it is Kafka's default. `retention_ms` and `retention_bytes` (-1: no limit) take
    precedence. Nothing is deleted. Raises NotFoundError, CorruptDataError, SegmentChangedError.
    """
    now_ms = (SystemClock() if clock is None else clock).now_ms()
    log_dir = LogDir(directory)
    settings = TopicSettings(log_dir.path, broker_properties)
    given = {"retention_ms": retention_ms, "retention_bytes": retention_bytes}
    wanted = None if partitions is None else list(partitions)
    tasks: list[_Task] = []
    for name in sorted(log_dir.topics()) if topic is None else [topic]:
        config = replace(settings.of(name).config, **{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]
        for partition in wanted or log_dir.partitions(name):
            size = sum(file.stat().st_size for file in log_files(log_dir.directory(name, partition)))
            tasks.append(_Task(str(directory), name, partition, size, config, now_ms))
    bundles = bundle(tasks, lambda task: task.size_bytes, spark.sparkContext.defaultParallelism)
    found = sorted(run_tasks(spark, "retention under each rule", bundles, _forecast_all, progress), key=_order)
    summary = Summary(SUMMARY, tuple(_summary(found, now_ms)))
    return JobResult(spark.createDataFrame(found, SCHEMA), summary, missing=logged_missing(log_dir.missing(topic, wanted)))


def _order(row: Sequence[Any]) -> tuple[Any, ...]:
    topic, partition, base_offset, _, _, rule = row[:6]
    return topic, partition, RULES.index(rule), base_offset


def _forecast_all(tasks: list[_Task]) -> Iterator[tuple[Any, ...]]:
    log_dir = LogDir(tasks[0].directory)
    for task in tasks:
        with log_dir.log(task.topic, task.partition) as log:
            facts = facts_of_log(log)
            for rule in RULES:
                own = [
                    _own(rule, segment, one, log_dir, log) if one.size_bytes else largest(segment, one)
                    for segment, one in zip(log.segments, facts, strict=True)
                ]
                yield from _rows(task, rule, _forecast(log, facts, own, task.config, task.now_ms))


def _own(rule: str, segment: Segment, facts: SegmentFacts, log_dir: LogDir, log: Log) -> Keeper | None:
    """Return the record or time that counts for a non-empty segment under a rule; None if the log does not have that time."""
    try:
        return _TIMES[rule](segment, facts, log_dir, log)
    finally:
        segment.close()


def _last_message(segment: Segment, facts: SegmentFacts, log_dir: LogDir, log: Log) -> Keeper | None:
    header = segment.valid_end().last_header
    assert header is not None, "a segment with bytes has a batch"
    columns = Columns(names=("timestamp",), include_control=True)
    rows = columns.add(header, segment.read_batch(header), 0, segment.log_path)
    timestamp = memoryview(columns.timestamps(rows - 1).data).cast("q")[0] if rows else header.max_timestamp
    if timestamp < 0:
        return Keeper(segment.base_offset, None, segment.modified_ms)
    return Keeper(segment.base_offset, header.last_offset, timestamp)


def _append_time(segment: Segment, facts: SegmentFacts, log_dir: LogDir, log: Log) -> Keeper | None:
    header = segment.valid_end().last_header
    if header is None or header.timestamp_type != LOG_APPEND_TIME:
        return None
    return Keeper(segment.base_offset, header.last_offset, header.max_timestamp)


def _create_time(segment: Segment, facts: SegmentFacts, log_dir: LogDir, log: Log) -> Keeper | None:
    if not any(header.timestamp_type == LOG_APPEND_TIME for header in segment.headers()):
        found = largest(segment, facts)
        return None if found is None or found.offset is None else found
    return _scanned_create_time(log_dir, log, facts)


def _scanned_create_time(log_dir: LogDir, log: Log, facts: SegmentFacts) -> Keeper | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    from tidelog.sources.plan import plan

    latest: Keeper | None = None
    offsets = {log.partition: (max(facts.base_offset, log.log_start_offset), facts.end_offset)}
    if offsets[log.partition][0] >= facts.end_offset:
        return None
    for split in plan(log_dir, log.topic, offsets=offsets).splits:
        for batch in split.read(("offset", "create_time")):
            times = batch.column("create_time").cast(pa.int64())
            time_ms = pc.max(times).as_py()
            if time_ms is not None and (latest is None or time_ms > latest.timestamp):
                offset = batch.column("offset")[pc.index(times, time_ms).as_py()].as_py()
                latest = Keeper(facts.base_offset, offset, time_ms)
    return latest


_TIMES: dict[str, Callable[[Segment, SegmentFacts, LogDir, Log], Keeper | None]] = {
    LARGEST_TIMESTAMP: lambda segment, facts, _, __: largest(segment, facts),
    FILE_TIME: lambda segment, _, __, ___: Keeper(segment.base_offset, None, segment.modified_ms),
    LAST_MESSAGE: _last_message,
    APPEND_TIME: _append_time,
    CREATE_TIME: _create_time,
}


def _forecast(
    log: Log, facts: Sequence[SegmentFacts], own: Sequence[Keeper | None], config: LogConfig, now_ms: int
) -> list[Forecast]:
    """Return the forecast for each segment. Results that depend on an unknown time are null."""
    known = [
        Keeper(one.base_offset, None, now_ms) if keeper is None and one.size_bytes else keeper
        for one, keeper in zip(facts, own, strict=True)
    ]
    found: list[Forecast] = []
    is_unknown = False
    for one, keeper in zip(forecast_by(log, facts, known, config, now_ms), own, strict=True):
        is_by_time = one.reason == Reason.TIME.value
        is_unknown = is_unknown or (keeper is None and one.size_bytes > 0 and is_by_time)
        if is_unknown and is_by_time:
            found.append(one._replace(keeper=None, own=keeper, goes_ms=None, reason=UNKNOWN))
        else:
            found.append(one._replace(own=keeper))
    return found


def _rows(task: _Task, rule: str, found: list[Forecast]) -> Iterator[tuple[Any, ...]]:
    for one in found:
        own, keeper = one.own, one.keeper
        pinned = [other.size_bytes for other in found if own is not None and other.keeper == own and _pinned_ms(other)]
        yield (
            *(task.topic, task.partition, one.base_offset, one.next_offset, one.size_bytes, rule),
            *((None, None) if own is None else (own.offset, own.timestamp)),
            *((None, None, None) if keeper is None else keeper),
            *(one.goes_ms, one.reason, len(pinned), sum(pinned), _pinned_ms(one)),
        )


def _pinned_ms(one: Forecast) -> int:
    """Return how much longer (ms) an earlier segment's record keeps a segment than the segment's own time does."""
    return 0 if one.own is None or one.keeper is None else one.keeper.timestamp - one.own.timestamp


def _summary(rows: list[tuple[Any, ...]], now_ms: int) -> Iterator[tuple[Any, ...]]:
    by_rule: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in rows:
        by_rule.setdefault((row[0], row[1], row[5]), []).append(row)
    for key, segments in by_rule.items():
        sizes = [(row[4], row[11]) for row in segments]
        goes = [goes_ms for size, goes_ms in sizes if size]
        most = max(segments, key=lambda row: row[14])
        yield (
            *key,
            len(segments),
            sum(size for size, _ in sizes),
            sum(size for size, goes_ms in sizes if goes_ms is not None and goes_ms <= now_ms),
            None if not goes or None in goes else format_time(max(goes)),
            sum(row[4] for row in segments if row[15]),
            None if not most[14] else ("the file's time" if most[6] is None else most[6]),
            None if not most[14] else format_time(most[7]),
        )
