"""The tasks of a batch, and how one is read.

A batch of a few records is one task, which costs Spark tens of milliseconds; a large one has as many as the session runs at
once, and more where they would read too much at once. `minPartitions` and `maxRecordsPerPartition` ask for more.

A task reads what was planned, or fails: records that were deleted since are one clear error. With failOnDataLoss=false it
reads on behind them and says what is lost.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from tidelog.client.connections.cluster import Cluster
from tidelog.client.reading.offsets import NotFound, list_offsets
from tidelog.errors import OffsetOutOfRangeError, SegmentChangedError
from tidelog.model import EARLIEST, TopicPartition
from tidelog.sources.brokers import AnySplit, BrokerSplit, read_broker_split, scan_cluster
from tidelog.sources.reader import read_split
from tidelog.sources.report import ScanReport
from tidelog.spark.stream.places import StreamPlace
from tidelog.spark.tasks import TASK_BYTES, pack

LEAST_TASK_BYTES = 1024 * 1024
"""A task of less is not worth its while: a batch is cut so far only where somebody asks for it."""

_log = logging.getLogger("tidelog.spark")

_clusters: dict[str, Cluster] = {}
"""Of a worker, which runs one task after the other: connections outlive the tasks."""


@dataclass(frozen=True, slots=True)
class StreamTask:
    """What one task reads: splits, in order."""

    splits: tuple[AnySplit, ...]
    fail_on_data_loss: bool


def plan_batch(
    place: StreamPlace,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    wanted: int,
    is_wanted_by_user: bool,
    max_task_offsets: int | None,
    fail_on_data_loss: bool,
) -> list[StreamTask]:
    """Return the tasks that read ranges of offsets: `wanted` of them if the batch is large, or if the user wants so."""
    if not ranges:
        return []
    if max_task_offsets is None:
        splits = place.splits(ranges, wanted, TASK_BYTES)
        if not is_wanted_by_user:
            wanted = max(1, min(wanted, sum(split.size_bytes for split in splits) // LEAST_TASK_BYTES))
        return [StreamTask(task, fail_on_data_loss) for task in pack(splits, wanted)] if splits else []
    tasks: list[StreamTask] = []
    for key, (first, behind) in sorted(ranges.items()):
        pieces = -(-(behind - first) // max_task_offsets)
        cuts = [first + (behind - first) * piece // pieces for piece in range(pieces + 1)]
        for low, high in itertools.pairwise(cuts):
            splits = place.splits({key: (low, high)}, 1, TASK_BYTES)
            tasks += [StreamTask((split,), fail_on_data_loss) for split in splits]
    return tasks


def read_task(task: StreamTask, columns: tuple[str, ...], batch_rows: int, report: ScanReport) -> Iterator[pa.RecordBatch]:
    """Yield a task's records. Raises OffsetOutOfRangeError, SegmentChangedError where they are gone, and what reading raises."""
    for split in task.splits:
        if task.fail_on_data_loss:
            yield from _read(split, columns, batch_rows, report)
        else:
            yield from _read_what_is_there(split, columns, batch_rows, report)


def _read(split: AnySplit, columns: tuple[str, ...], batch_rows: int, report: ScanReport) -> Iterator[pa.RecordBatch]:
    if isinstance(split, BrokerSplit):
        cluster = _cluster(split.brokers)
        return read_broker_split(split, columns, batch_rows=batch_rows, report=report, cluster=cluster)
    return read_split(split, columns, batch_rows=batch_rows, report=report)


def _cluster(brokers: str) -> Cluster:
    if brokers not in _clusters:
        _clusters[brokers] = scan_cluster(brokers)
    return _clusters[brokers]


def _read_what_is_there(
    split: AnySplit, columns: tuple[str, ...], batch_rows: int, report: ScanReport
) -> Iterator[pa.RecordBatch]:
    """Yield what a split still holds, a batch at a time: rows that are out stay out, and what is lost is told by offset."""
    names = columns if "offset" in columns else (*columns, "offset")
    reached = split.start_offset if isinstance(split, BrokerSplit) else split.runs[0].first.base_offset
    while True:
        try:
            for batch in _read(split, names, batch_rows, report):
                reached = batch.column("offset")[-1].as_py() + 1
                yield batch if names is columns else batch.select(columns)
            return
        except (OffsetOutOfRangeError, SegmentChangedError) as error:
            lost = error
        start = _start_behind(split, reached)
        if start is None:
            _log.warning("%s: left out, lost from offset %d on: %s", split, reached, lost)
            return
        _log.warning("%s: offsets [%d, %d) are lost: %s", split, reached, start, lost)
        assert isinstance(split, BrokerSplit)
        split, reached = replace(split, start_offset=start), start


def _start_behind(split: AnySplit, reached: int) -> int | None:
    """Return where a partition's log begins again behind `reached` and inside a split; None where the rest of it is gone."""
    if not isinstance(split, BrokerSplit):
        return None
    key = TopicPartition(split.topic, split.partition)
    start = list_offsets(_cluster(split.brokers), {key: EARLIEST})[key]
    return start.offset if not isinstance(start, NotFound) and reached < start.offset < split.end_offset else None
