"""The indexes and time maps of a data folder built anew, partition by partition, several segments at a time.

| where | what is written |
|---|---|
| in place | files that are missing, or differ from what the log says; each appears whole, or stays as it was |
| in another folder | all files, below ``<topic>-<partition>/``; the data folder is only read |

Logs are never touched: what follows a batch that is wrong is not indexed, and told. Whoever writes in place holds the folder's
lock (`dir_lock`); nobody may be appending then. The rules are those of `index_rebuild` and `formats.time_map_builder`; a segment
is `segment_rebuild`'s, a partition `partition_rebuild`'s. This runs them on threads; `tidelog.spark.jobs` has Spark run them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.check.indexes.in_order import in_order
from tidelog.check.indexes.index_files import RebuiltFile
from tidelog.check.indexes.partition_interval import PartitionToVerify
from tidelog.check.indexes.partition_rebuild import PartitionRebuild, RebuildRules, RebuiltPartition
from tidelog.check.indexes.segment_rebuild import RebuiltSegment, SegmentToRebuild, rebuild_segment
from tidelog.storage.loading.log_scan import Progress

__all__ = ["RebuildOptions", "RebuiltFile", "RebuiltPartition", "rebuild_partitions"]


class RebuildOptions(NamedTuple):
    """How a folder is rebuilt."""

    out_dir: Path | None = None
    """Where the files go; None stands for their own places."""
    interval_bytes: int | None = None
    """None: as the indexes that are there were written."""
    time_maps: bool = True
    threads: int = 1
    progress: Progress | None = None
    """Hears, from the walking threads, how many bytes more of the logs were walked."""


def rebuild_partitions(partitions: Iterable[PartitionToVerify], options: RebuildOptions) -> Iterator[RebuiltPartition]:
    """Yield what was done for each partition, in order, when its files are there.

    Raises StorageError, SegmentChangedError for a log that goes or shrinks meanwhile; what was written till then stays.
    """
    rules = RebuildRules(options.out_dir, options.interval_bytes, options.time_maps)
    waiting: list[PartitionRebuild] = []

    def tasks() -> Iterator[tuple[PartitionRebuild, SegmentToRebuild]]:
        for partition in partitions:
            opened = PartitionRebuild(partition, rules)
            waiting.append(opened)
            for task in opened.tasks:
                yield opened, task

    def work(one: tuple[PartitionRebuild, SegmentToRebuild]) -> tuple[PartitionRebuild, RebuiltSegment]:
        return one[0], rebuild_segment(one[1], options.progress)

    for opened, rebuilt in in_order(work, tasks(), options.threads):
        while waiting[0] is not opened:
            yield waiting.pop(0).result
        waiting[0].take(rebuilt)
    for partition in waiting:
        yield partition.result
