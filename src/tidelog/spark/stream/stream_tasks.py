"""Plans the tasks of a batch, and reads a task.

A batch of a few records is one task, because a task costs Spark tens of milliseconds. A large batch has as many tasks as the
session runs in parallel, or more if each task would read too many bytes. `minPartitions` and `maxRecordsPerPartition` request
more tasks.

A task reads exactly what was planned, or fails: deleted records are an error. With failOnDataLoss=false, the task continues after
the deleted records and logs the loss.
"""

from __future__ import annotations

import atexit
import itertools
import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tidelog.errors import OffsetOutOfRangeError, SegmentChangedError
from tidelog.model import TopicPartition
from tidelog.reader.salvage.salvage import LeftOut
from tidelog.sources.bounds import TimeRange
from tidelog.sources.reader_resources import Closable, ReaderResources
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.source import Source
from tidelog.sources.split import Split, announced
from tidelog.spark.options import ReadOptions
from tidelog.spark.tasks import TASK_BYTES, pack

LEAST_TASK_BYTES = 1024 * 1024
"""The smallest size of a task. A batch is cut into smaller tasks only if an option requests that."""

_log = logging.getLogger("tidelog.spark")

_connections: dict[Hashable, Closable] = {}
"""The connections of a worker process. They stay open between tasks, which run one after the other."""


@atexit.register
def _close_connections() -> None:
    for connection in _connections.values():
        connection.close()


class SplitsOf(Protocol):
    """Returns splits that read ranges of offsets: at least `min_splits` splits if there are enough offsets."""

    def __call__(self, ranges: Mapping[TopicPartition, tuple[int, int]], *, min_splits: int = 1) -> Sequence[Split]: ...


@dataclass(frozen=True, slots=True)
class StreamTask:
    """One task's splits, in order."""

    splits: tuple[Split, ...]
    fail_on_data_loss: bool


def batch_splits(
    source: Source,
    options: ReadOptions,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    reported: set[LeftOut],
    *,
    min_splits: int = 1,
) -> list[Split]:
    """Return the splits that read ranges of offsets from a stream's source. Skipped damage is logged only once."""
    report = ScanReport()
    splits = source.splits(
        ranges,
        TimeRange(options.start_ms, None),
        options.isolation,
        split_bytes=TASK_BYTES,
        min_splits=min_splits,
        time_map_dir=options.time_map_dir,
        report=report,
    )
    for one in report.left_out:
        if one not in reported:
            reported.add(one)
            _log.warning("%s", one)
    return splits


def plan_batch(
    splits_of: SplitsOf,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    wanted: int,
    is_wanted_by_user: bool,
    max_task_offsets: int | None,
    fail_on_data_loss: bool,
) -> list[StreamTask]:
    """Return the tasks that read ranges of offsets. There are `wanted` tasks if the batch is large or the user requests that
    number.
    """
    if not ranges:
        return []
    if max_task_offsets is None:
        splits = splits_of(ranges, min_splits=wanted)
        if not is_wanted_by_user:
            wanted = max(1, min(wanted, sum(split.size_bytes for split in splits) // LEAST_TASK_BYTES))
        return [StreamTask(task, fail_on_data_loss) for task in pack(splits, wanted)] if splits else []
    tasks: list[StreamTask] = []
    for key, (first, behind) in sorted(ranges.items()):
        pieces = -(-(behind - first) // max_task_offsets)
        cuts = [first + (behind - first) * piece // pieces for piece in range(pieces + 1)]
        for low, high in itertools.pairwise(cuts):
            splits = splits_of({key: (low, high)})
            tasks += [StreamTask((split,), fail_on_data_loss) for split in splits]
    return tasks


def read_task(task: StreamTask, columns: tuple[str, ...], batch_rows: int, report: ScanReport) -> Iterator[pa.RecordBatch]:
    """Yield a task's records. Raises OffsetOutOfRangeError or SegmentChangedError if they were deleted, and what
    reading raises.
    """
    with ReaderResources(_connections) as reading:
        for split in announced(task.splits, reading):
            if task.fail_on_data_loss:
                yield from split.read(columns, batch_rows=batch_rows, report=report, reading=reading)
            else:
                yield from _read_what_is_there(split, columns, batch_rows, report, reading)


def _read_what_is_there(
    split: Split, columns: tuple[str, ...], batch_rows: int, report: ScanReport, reading: ReaderResources
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split that still exist, one batch at a time. If records are deleted meanwhile, log the lost offsets
    and continue after them, without repeating rows.
    """
    names = columns if "offset" in columns else (*columns, "offset")
    reached = split.first_offset
    while True:
        try:
            for batch in split.read(names, batch_rows=batch_rows, report=report, reading=reading):
                reached = batch.column("offset")[-1].as_py() + 1
                yield batch if names is columns else batch.select(columns)
            return
        except (OffsetOutOfRangeError, SegmentChangedError) as error:
            lost = error
        rest = split.after_loss(reached, reading)
        if rest is None:
            _log.warning(
                "%s: skipping the rest of this split, because records from offset %d on were lost: %s", split, reached, lost
            )
            return
        _log.warning("%s: offsets [%d, %d) are lost: %s", split, reached, rest.start_offset, lost)
        split, reached = rest, rest.start_offset
