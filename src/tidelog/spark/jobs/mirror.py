"""The job `mirror`: copies topics of a cluster or data folder to another cluster and keeps them up to date, with offset maps.

A round lists the source's topics, creates missing topics in the target, and copies new records, one task per source partition
(`copying.copier`). Each chunk is a transaction that includes the position, so a round may be interrupted anywhere. Without
`follow` there is one round. With `follow`, rounds continue until the process ends.

| rows | |
|---|---|
| topic, partition | names in the source |
| target_topic | the topic's name in the target |
| from_offset, next_offset | source offsets: where this run began, and where it will continue |
| log_start_offset, end_offset | the bounds of the source's log in the last round; `end_offset` is the last stable offset |
| lost | offsets that retention deleted from the source before they were copied |
| records, batches, rebuilt_batches, size_bytes | what was copied; the bytes of rebuilt batches differ from the source's |
| is_exact | false if the target lacks transactions, so that a killed run may leave duplicates |

The summary has a line for each topic. docs/mirror.md lists which properties of records a mirror preserves.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.client.connections.cluster import Cluster
from tidelog.clock import Clock, SystemClock
from tidelog.copying.copier import CopyResult, CopyTask, committed_positions, copy_partition, settled_position
from tidelog.copying.copy_plan import CLIENT_ID, PlannedPartition, plan_copy
from tidelog.copying.mirror_folder import MirrorIdentity, SeenGroups, claim_folder, write_groups
from tidelog.copying.mirror_groups import JOB_PREFIX, offsets_of_groups, sync_group
from tidelog.copying.offset_map import OffsetMap, OffsetMapWriter
from tidelog.copying.target_topics import ensure_topics, shapes_of
from tidelog.errors import InvalidArgumentError, NotFoundError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from tidelog.model import TopicPartition, is_hidden
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.sources.opening import kind_of, open_source, settled
from tidelog.spark.jobs.distribute import Progress, run_tasks
from tidelog.spark.jobs.result import JobResult, Summary, logged_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MirrorOptions", "mirror"]

DEFAULT_PAUSE_MS = 1_000
SCHEMA = (
    "topic string, partition int, target_topic string, from_offset bigint, next_offset bigint, log_start_offset bigint, "
    "end_offset bigint, lost bigint, records bigint, batches bigint, rebuilt_batches bigint, size_bytes bigint, is_exact boolean"
)

_log = logging.getLogger("tidelog.mirror")


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """The options of a mirror."""

    source: str
    """Bootstrap servers as `host:port`, or a data folder."""
    target: str
    """Bootstrap servers as `host:port`, separated by commas."""
    map_dir: str
    """The folder of the mirror's offset maps. Workers and driver must have access to it."""
    topics: Sequence[str] | None = None
    """The only topics to mirror; None for all but internal topics."""
    pattern: str | None = None
    """Mirror only topics whose whole name matches this regular expression."""
    prefix: str = ""
    """A prefix for topic names in the target."""
    job_id: str | None = None
    """The name of the group that stores positions, and the prefix of transactional ids; by default `mirror-` and the source's
    cluster id or name.
    """
    replication_factor: int | None = None
    """The replication factor of created topics; None for the target's default."""
    groups: Sequence[str] | None = ()
    """The groups whose offsets are mirrored to the target, and to the folder for a failover. None means all groups. The default
    is no group.
    """
    skip_lost: bool = False
    """Continue if retention has deleted records before they were copied. Otherwise such a loss is an error."""


@dataclass(slots=True)
class _Row:
    """The figures of a partition in this run."""

    source: TopicPartition
    target: TopicPartition
    from_offset: int
    next_offset: int
    log_start_offset: int
    end_offset: int
    lost: int = 0
    records: int = 0
    batches: int = 0
    rebuilt_batches: int = 0
    size_bytes: int = 0
    is_exact: bool = True

    def add(self, result: CopyResult) -> None:
        self.next_offset = max(self.next_offset, result.next_offset)
        self.records += result.records
        self.batches += result.batches
        self.rebuilt_batches += result.rebuilt_batches
        self.size_bytes += result.size_bytes
        self.is_exact &= result.is_exact


def mirror(
    spark: SparkSession,
    options: MirrorOptions,
    *,
    follow: bool = False,
    pause_ms: int = DEFAULT_PAUSE_MS,
    is_done: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Mirror existing records. With `follow`, also poll for new records every `pause_ms` until `is_done` returns true.

    Raises InvalidArgumentError if `map_dir` belongs to a different mirror or the pattern is invalid, OffsetOutOfRangeError if
    retention has deleted records before they were copied, UnknownTopicOrPartitionError, and what `copy_partition`,
    `ensure_topics` and `plan_copy` raise.
    """
    with ExitStack() as opened:
        running = _Mirror(spark, options, clock or SystemClock(), progress, opened)
        running.round()
        while follow and not is_done():
            time.sleep(pause_ms / 1000)
            running.round()
        return running.result()


class _Mirror:
    """The state of one run."""

    def __init__(
        self, spark: SparkSession, options: MirrorOptions, clock: Clock, progress: Progress | None, opened: ExitStack
    ) -> None:
        self._spark = spark
        # Workers may have a different working directory.
        options = replace(options, map_dir=os.path.abspath(options.map_dir))  # noqa: PTH100  # links stay as they are
        options = replace(options, source=settled(options.source))
        self._options = options
        self._clock = clock
        self._progress = progress
        self._rows: dict[TopicPartition, _Row] = {}
        self._target = opened.enter_context(Cluster.at(options.target, CLIENT_ID)).reach()
        self._target.refresh(None)
        self._reported: set[MissingOffsets] = set()
        self._source = source = opened.enter_context(open_source(options.source))
        source_cluster, target_id = source.cluster_id(), self._target.cluster_id or options.target
        if source.cluster is not None:
            source.cluster.refresh(None)
            job = source_id = source_cluster = source.cluster_id() or options.source
        else:
            source_id = os.path.abspath(options.source) if kind_of(options.source).is_local else options.source  # noqa: PTH100
            job = _folder_id(source_id)
        if source_cluster == target_id and not options.prefix:
            raise InvalidArgumentError(
                "source and target are the same cluster: set a topic prefix, so that the copies get different names"
            )
        self._job_id = options.job_id or JOB_PREFIX + job
        claim_folder(options.map_dir, MirrorIdentity(self._job_id, source_id, target_id, options.prefix))

    def round(self) -> None:
        """Copy the records that are new since the last round."""
        self._source.refresh()
        there = self._source_topics()
        topics = self._wanted(there)
        self._look_for_partitions(topics)
        self._make_topics({topic: there[topic] for topic in topics})
        tasks = [task for topic in topics for task in self._plan(topic, there[topic])]
        tasks.sort(key=lambda task: -task.size_bytes)
        for (result,) in run_tasks(self._spark, "mirror", tasks, _copy, self._progress):
            self._rows[result.source].add(result)
        self._sync_groups()

    def result(self) -> JobResult:
        rows = [self._rows[key] for key in sorted(self._rows)]
        values = [
            (
                *(*row.source, row.target.topic, row.from_offset, row.next_offset, row.log_start_offset, row.end_offset),
                *(row.lost, row.records, row.batches, row.rebuilt_batches, row.size_bytes, row.is_exact),
            )
            for row in rows
        ]
        return JobResult(self._spark.createDataFrame(values, SCHEMA), _summary(rows), missing=tuple(self._missing()))

    def _missing(self) -> Iterator[MissingOffsets]:
        """Yield the offset ranges of mirrored topics that are missing from a source folder. Each was logged before."""
        yield from self._reported
        log_dir = self._source.log_dir
        if log_dir is not None:
            for key in sorted(self._rows):
                with contextlib.suppress(NotFoundError), log_dir.log(*key) as log:
                    yield from log_dir.missing_of(log)

    def _look_for_partitions(self, topics: Sequence[str]) -> None:
        self._report(one for one in self._source.missing_partitions() if one.topic in topics)

    def _report(self, missing: Iterable[MissingOffsets]) -> None:
        """Log missing records, each once."""
        found = set(missing)
        logged_missing(sorted(found - self._reported, key=lambda one: (one.topic, one.partition, one.first_offset)))
        self._reported |= found

    def _source_topics(self) -> dict[str, list[int]]:
        """Return the partitions of each of the source's topics, without internal topics."""
        if self._source.cluster is None:
            found = self._source.topics()
        else:
            found = {
                name: sorted(topic.partitions) for name, topic in self._source.cluster.topics().items() if not topic.is_internal
            }
        return {name: numbers for name, numbers in found.items() if not is_hidden(name)}

    def _wanted(self, there: Mapping[str, list[int]]) -> list[str]:
        options = self._options
        if options.topics is not None:
            missing = sorted(set(options.topics) - there.keys())
            if missing:
                self._source.partitions(missing[0])  # This raises an error that says why the topic is not in the list.
                raise UnknownTopicOrPartitionError(f"topic {missing[0]!r} is not mirrored: it is internal", path=options.source)
            return sorted(set(options.topics))
        if options.pattern is None:
            return sorted(there)
        try:
            wanted = re.compile(options.pattern)
        except re.error as error:
            raise InvalidArgumentError(f"invalid pattern of topic names: {error}", found=options.pattern) from None
        return sorted(name for name in there if wanted.fullmatch(name))

    def _make_topics(self, wanted: Mapping[str, list[int]]) -> None:
        options = self._options
        known = self._target.topics()
        lacking = [
            name
            for name, numbers in wanted.items()
            if (there := known.get(options.prefix + name)) is None or len(there.partitions) < len(numbers)
        ]
        if not lacking:
            return
        shapes = shapes_of(self._source, lacking)
        shapes = {options.prefix + name: shape for name, shape in shapes.items()}
        for change in ensure_topics(self._target, shapes, replication_factor=options.replication_factor):
            what = f"{change.partitions} partitions"
            what += f" instead of {change.had_partitions}" if change.had_partitions else " and is new"
            _log.info("%s: topic %s has %s", options.target, change.topic, what)

    def _plan(self, topic: str, numbers: list[int]) -> Iterator[CopyTask]:
        """Yield a copy task for each of a topic's partitions that have records to copy."""
        options = self._options
        targets = {TopicPartition(topic, number): TopicPartition(options.prefix + topic, number) for number in numbers}
        positions = committed_positions(self._target, self._job_id, targets, require_stable=False)
        maps = OffsetMap.open(options.map_dir)
        for source in targets.keys() - positions.keys():
            with contextlib.suppress(NotFoundError):
                known = maps.partition(source)
                if known.runs or known.next_source_offset > known.start_offset:
                    positions[source] = known.next_source_offset  # The committed position has expired in the target.
        offsets = {source.partition: (positions.get(source), None) for source in targets}
        ends = self._source.ends(targets)
        for planned in plan_copy(self._source, topic, offsets=offsets):
            source, position = planned.source, positions.get(planned.source)
            if position is not None and position < planned.start_offset:
                # Retention has deleted records in the source, which an open transaction of a killed run may have copied.
                position = max(position, settled_position(self._target, self._job_id, source, targets[source]) or 0)
            self._note(planned, targets[source], position, ends[source].log_start_offset, ends[source].log_end_offset)
            if position is None:
                OffsetMapWriter(options.map_dir, source, options.prefix + topic, start_offset=planned.start_offset).close()
            if planned.start_offset < planned.end_offset:
                yield CopyTask(
                    job_id=self._job_id,
                    source=source,
                    splits=planned.splits,
                    start_offset=planned.start_offset,
                    end_offset=planned.end_offset,
                    brokers=options.target,
                    target=targets[source],
                    map_dir=options.map_dir,
                )

    def _note(
        self, planned: PlannedPartition, target: TopicPartition, position: int | None, log_start_offset: int, log_end_offset: int
    ) -> None:
        """Record a partition's state in this round. Raise OffsetOutOfRangeError if records were lost before they were copied,
        unless `skip_lost` is set.
        """
        source = planned.source
        name = f"{source.topic}-{source.partition}"
        lost = 0
        if position is not None and position > log_end_offset:
            raise OffsetOutOfRangeError(
                f"{name} ends before the mirrored position: if the topic was recreated, start a new mirror",
                path=self._options.source,
                found=log_end_offset,
                expected=f"{position} or later",
            )
        if position is not None and position < planned.start_offset:
            lost = planned.start_offset - position
            if not self._options.skip_lost:
                raise OffsetOutOfRangeError(
                    f"{name}: {lost} offsets were deleted before they were mirrored; to continue without them, use --skip-lost",
                    path=self._options.source,
                    found=f"the log starts at {planned.start_offset}",
                    expected=position,
                )
            _log.warning(
                "%s: offsets [%d, %d) were deleted in the source and are missing from the mirror",
                name,
                position,
                planned.start_offset,
            )
        begin = planned.start_offset if position is None else position
        row = self._rows.setdefault(source, _Row(source, target, begin, begin, 0, 0))
        row.log_start_offset, row.end_offset = log_start_offset, planned.end_offset
        row.next_offset = max(row.next_offset, begin)
        row.lost += lost

    def _sync_groups(self) -> None:
        groups = self._options.groups
        if groups is not None and not groups:
            return
        kept = self._source.groups()
        self._report(kept.missing_commits(groups))
        offsets = offsets_of_groups(kept, groups)
        write_groups(self._options.map_dir, SeenGroups(self._clock.now_ms(), offsets))
        maps = OffsetMap.open(self._options.map_dir)
        for group, committed in offsets.items():
            sync_group(self._target, group, committed, maps)


def _copy(task: CopyTask) -> Iterator[tuple[CopyResult]]:
    """On a worker: copy a partition."""
    yield (copy_partition(task),)


def _folder_id(path: str) -> str:
    """Return an id for a folder. Folders with the same name but different paths have different ids."""
    return f"{Path(path).name}-{zlib.crc32(os.fsencode(path)):08x}"


def _summary(rows: list[_Row]) -> Summary:
    by_topic: dict[str, list[_Row]] = {}
    for row in rows:
        by_topic.setdefault(row.source.topic, []).append(row)
    columns = ("topic", "target_topic", "partitions", "records", "bytes", "rebuilt_batches", "behind", "lost", "is_exact")
    return Summary(
        columns,
        tuple(
            (
                *(topic, its[0].target.topic, len(its), sum(row.records for row in its), sum(row.size_bytes for row in its)),
                *(sum(row.rebuilt_batches for row in its), sum(max(0, row.end_offset - row.next_offset) for row in its)),
                *(sum(row.lost for row in its), all(row.is_exact for row in its)),
            )
            for topic, its in by_topic.items()
        ),
    )
