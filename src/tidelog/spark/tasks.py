"""Plans the Spark tasks of a load: its splits, and which splits each task reads.

| the log has | a task reads |
|---|---|
| large segments | a piece of a segment, at most `TASK_BYTES` |
| many small segments | several segments, together at most `TASK_BYTES` |
| little data | an equal share: there are at least as many tasks as requested, unless there are fewer batches |

Without access to files a piece is a range of offsets, and its size is an estimate. Every task costs Spark tens of milliseconds,
however little it reads. Tasks are in the order of topic, partition and offset.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.sources.bounds import TimeRange
from tidelog.sources.opening import open_source
from tidelog.sources.scan_plan import ScanRequest
from tidelog.sources.source import Source
from tidelog.sources.split import Split
from tidelog.spark.bounds import (
    OffsetRange,
    existing_topics,
    missing_partitions,
    report_missing,
    resolve_ranges,
    select_partitions,
)
from tidelog.spark.options import ReadOptions

TASK_BYTES = 128 * 1024 * 1024
"""The most log bytes that one task reads, except for a single larger batch. The limit is that of Spark's file sources."""

SIFTED_TASK_BYTES = 2 * TASK_BYTES
"""The limit if the end of a time range cannot be looked up, as on brokers. Most of the records that are read are then left
out.
"""

Task = tuple[Split, ...]

_log = logging.getLogger("tidelog.spark")


def plan_tasks(options: ReadOptions, wanted: int) -> list[Task]:
    """Resolve a load's options against the source, and return the load's tasks: at least `wanted` if possible.

    Raises what `select_partitions`, `resolve_ranges` and `Source.plan` raise.
    """
    with open_source(options.source, skip_damaged=options.skip_damaged) as source:
        return _plan(options, source, wanted)


def _plan(options: ReadOptions, source: Source, wanted: int) -> list[Task]:
    by_topic: dict[str, dict[int, OffsetRange]] = defaultdict(dict)
    keys = select_partitions(options, source, existing_topics(options, source))
    for (topic, partition), found in resolve_ranges(options, source, keys).items():
        by_topic[topic][partition] = found
    shares = dict.fromkeys(by_topic, wanted if len(by_topic) == 1 else 1)
    planned = {topic: _plan_topic(options, source, topic, offsets, shares[topic]) for topic, offsets in by_topic.items()}
    if sum(len(splits) for splits, _, _ in planned.values()) < wanted:
        # Plan again with more splits for each topic, in proportion to its size. Double the number, because the planner rounds the
        # number of pieces of a segment.
        sizes = {topic: sum(split.size_bytes for split in splits) for topic, (splits, _, _) in planned.items()}
        total = max(1, sum(sizes.values()))
        for topic, offsets in by_topic.items():
            share = -(-2 * wanted * sizes[topic] // total)
            if share > len(planned[topic][0]):
                planned[topic] = _plan_topic(options, source, topic, offsets, share)
    lost = missing_partitions(options, source)
    report_missing(options, [*lost, *(one for _, _, missing in planned.values() for one in missing)])
    for _, notes, _ in planned.values():
        for note in notes:
            _log.warning("%s", note)
    return pack([split for splits, _, _ in planned.values() for split in splits], wanted, _task_bytes(options))


def _plan_topic(
    options: ReadOptions, source: Source, topic: str, offsets: dict[int, OffsetRange], min_splits: int
) -> tuple[Sequence[Split], Iterable[str], Iterable[MissingOffsets]]:
    request = ScanRequest(
        topic=topic,
        time=TimeRange(options.start_ms, options.end_ms),
        partitions=tuple(offsets),
        isolation=options.isolation,
        offsets=offsets,
        time_map_dir=options.time_map_dir,
        split_bytes=_task_bytes(options),
        min_splits=min_splits,
    )
    planned = source.plan(request)
    missing, planned.known.missing = planned.known.missing, ()
    damaged, planned.known.left_out = map(str, planned.known.left_out), ()
    in_blocks = (f"{topic}: {notice} (in blocks that time maps rule out)" for notice in planned.known.notices())
    return planned.splits, [*planned.notes, *damaged, *in_blocks], missing


def _task_bytes(options: ReadOptions) -> int:
    return TASK_BYTES if options.reads_files or options.end_ms is None else SIFTED_TASK_BYTES


def pack(splits: Sequence[Split], wanted: int, task_bytes: int = TASK_BYTES) -> list[Task]:
    """Combine adjacent splits into tasks of up to `task_bytes`, but keep at least `wanted` tasks. If there are fewer splits than
    that, each is a task.

    Tasks have about the same size, and if splits are small, their number is a multiple of `wanted`: tasks that run at the same
    time end at the same time.
    """
    sizes = [max(1, split.size_bytes) for split in splits]
    # A task may get half a split more than its share at each end.
    room_bytes = max(task_bytes // 2, task_bytes - max(sizes, default=0))
    rounds = max(1, -(-sum(sizes) // (wanted * room_bytes)))
    tasks = _cut(splits, sizes, wanted * rounds, task_bytes)
    while len(tasks) < min(wanted, len(splits)):
        # This happens only if splits have very different sizes.
        rounds *= 2
        tasks = _cut(splits, sizes, wanted * rounds, task_bytes)
    return tasks


def _cut(splits: Sequence[Split], sizes: Sequence[int], count: int, task_bytes: int) -> list[Task]:
    """Divide the bytes into `count` equal shares. A split belongs to the share that contains its middle; a task has the splits of
    one share, up to `task_bytes`.
    """
    tasks: list[list[Split]] = []
    total, done, filled, last = sum(sizes), 0, 0, -1
    for split, size in zip(splits, sizes, strict=True):
        share = (2 * done + size) * count // (2 * total)
        if share != last or filled + size > task_bytes:
            tasks.append([])
            filled, last = 0, share
        tasks[-1].append(split)
        filled += size
        done += size
    return [tuple(task) for task in tasks]
