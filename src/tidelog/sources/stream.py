"""A whole scan as one stream of Arrow batches: `tidelog.scan`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from typing import Any

import pyarrow as pa

from tidelog.client.connections.addresses import is_address
from tidelog.client.connections.cluster import Cluster
from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError, SegmentChangedError
from tidelog.formats.files import ReadOnlyFile
from tidelog.model import READ_UNCOMMITTED
from tidelog.reader.time_map_file import AnyPath
from tidelog.sources.arrow import BATCH_ROWS, coalesce
from tidelog.sources.bounds import LOG_END, OffsetRanges, check_positive
from tidelog.sources.brokers import BrokerPlan, plan_from_brokers, read_broker_rows, scan_cluster
from tidelog.sources.chunks import Chunks
from tidelog.sources.plan import ScanPlan, Source, plan
from tidelog.sources.reader import read_rows
from tidelog.sources.report import ScanReport
from tidelog.sources.schema import resolve_columns, scan_schema
from tidelog.times import MAX_TIME_MS, Time, doubtful_unit

logger = logging.getLogger("tidelog.sources")

PINNED_SPLITS = 256
"""How many splits have their file opened as soon as they are planned: retention takes a log's oldest segments, and an open
file outlives its deletion. The rest is opened when it is read, so that a log of many segments costs no descriptor each."""

PLAN_ATTEMPTS = 5
"""How often a plan is made before a folder is given up in which files vanish faster than they can be opened."""


def scan(
    source: Source,
    topic: str,
    start: Time | None = None,
    end: Time | None = None,
    columns: Iterable[str] | None = None,
    partitions: Iterable[int] | None = None,
    isolation: str = READ_UNCOMMITTED,
    *,
    offsets: OffsetRanges | None = None,
    until: str = LOG_END,
    time_map_dir: AnyPath | None = None,
    views: bool = False,
    batch_rows: int = BATCH_ROWS,
    report: ScanReport | None = None,
    clock: Clock | None = None,
    skip_damaged: bool = False,
) -> pa.RecordBatchReader:
    """Return every record of a topic with `start <= timestamp < end`, however late it was appended.

    Records come in offset order per partition, one partition after the other; control records are left out, and, where there
    is a time bound, records without a timestamp. What is on disk, or below the broker's high watermark, when `scan` is called
    is what is read; nothing is ever written. `docs/scan.md` has the whole story.

    Args:
        source: a Kafka data folder, a `LogDir`, or brokers as `host:port` (several with commas between).
        topic: its name.
        start: inclusive; epoch milliseconds, `datetime`, `date` or a text as `2013-07-10T09:00`, `now`, `-3d`. None: no bound.
        end: exclusive; the same.
        columns: names in the order wanted (`tidelog.sources.schema`). None: all but `create_time`.
        partitions: their numbers. None: all.
        isolation: `read_uncommitted`, or `read_committed`: nothing of aborted or unfinished transactions.
        offsets: `{partition: (first, end)}`, end exclusive, None for no bound.
        until: `log_end`, or `high_watermark`: nothing past the high-watermark checkpoint.
        time_map_dir: a folder of time maps, looked at before those beside the segments.
        views: keys and values as `binary_view`, pointing into the log's bytes.
        batch_rows: rows of an Arrow batch, at most.
        report: filled in while reading; complete when the reader is exhausted. `report.missing` is what the folder lacks,
            which is logged, too.
        clock: what `now` means; the machine's clock by default.
        skip_damaged: read around damaged batches; `report.left_out` and the log say what that left out. Of a folder only.

    Raises:
        InvalidArgumentError: an argument makes no sense.
        NotFoundError: no such folder, topic or partition, or no such folder of time maps.
        CorruptDataError: damaged files; also while reading.
        SegmentChangedError: a segment vanished or was replaced while reading.
        StorageError: the file system refused; also while reading.
        OffsetOutOfRangeError: a broker deleted records before they were read. BrokerUnreachableError, BrokerError, ProtocolError.
    """
    names = resolve_columns(columns)
    check_positive("batch_rows", batch_rows)
    report = ScanReport() if report is None else report
    arguments: dict[str, Any] = {
        "start": start,
        "end": end,
        "partitions": partitions,
        "isolation": isolation,
        "offsets": offsets,
        "until": until,
        "time_map_dir": time_map_dir,
        "clock": clock,
    }
    for name, time in (("start", start), ("end", end)):
        doubt = doubtful_unit(time) if isinstance(time, int) and time < MAX_TIME_MS else None
        if doubt is not None:
            logger.warning("%s: %s %s", topic, name, doubt)
    if isinstance(source, str) and is_address(source):
        if skip_damaged:
            raise InvalidArgumentError("skip_damaged is for folders: what a broker sends is checked by the broker")
        cluster = scan_cluster(source)
        try:
            broker_plan = plan_from_brokers(source, topic, cluster=cluster, **arguments)
        except BaseException:
            cluster.close()
            raise
        batches = _read_from_brokers(broker_plan, cluster, names, batch_rows, views, report)
    else:
        scan_plan, pinned = _plan_and_pin(partial(plan, source, topic, skip_damaged=skip_damaged, **arguments))
        batches = _read(scan_plan, pinned, names, batch_rows, views, report)
    return pa.RecordBatchReader.from_batches(scan_schema(names, views=views), batches)


def _plan_and_pin(make_plan: Callable[[], ScanPlan]) -> tuple[ScanPlan, list[ReadOnlyFile]]:
    """Plan, and open the files of the first splits at once; plan again where one is gone already: no row is out yet."""
    for attempt in range(1, PLAN_ATTEMPTS + 1):
        pinned: list[ReadOnlyFile] = []
        try:
            scan_plan = make_plan()
            pinned.extend(split.open() for split in scan_plan.splits[:PINNED_SPLITS])
        except SegmentChangedError:
            for file in pinned:
                file.close()
            if attempt == PLAN_ATTEMPTS:
                raise
        else:
            break
    return scan_plan, pinned


def _read(
    scan_plan: ScanPlan, pinned: list[ReadOnlyFile], names: tuple[str, ...], batch_rows: int, views: bool, report: ScanReport
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of all splits, and say on the log what their reader should know."""
    for note in scan_plan.notes:
        logger.warning("%s", note)
    report += scan_plan.known
    chunks = Chunks()
    one_after_the_other = (
        batch
        for split, file in zip(scan_plan.splits, chain(pinned, repeat(None)), strict=False)
        for batch in read_rows(split, names, batch_rows, views, report, chunks, file)
    )
    yield from coalesce(one_after_the_other, batch_rows)
    for notice in report.notices():
        logger.warning("%s: %s", scan_plan.topic, notice)


def _read_from_brokers(
    scan_plan: BrokerPlan, cluster: Cluster, names: tuple[str, ...], batch_rows: int, views: bool, report: ScanReport
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of all splits over connections that are kept for all of them, and say what their reader should know."""
    for note in scan_plan.notes:
        logger.warning("%s", note)
    chunks = Chunks()
    rows = (
        batch
        for split in scan_plan.splits
        for batch in read_broker_rows(split, names, batch_rows, views, report, chunks, cluster)
    )
    try:
        yield from coalesce(rows, batch_rows)
    finally:
        cluster.close()
    for notice in report.notices():
        logger.warning("%s: %s", scan_plan.topic, notice)
