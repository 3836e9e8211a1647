"""A whole scan as one stream of Arrow batches: `tidelog.scan`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa

from tidelog.client.connections.addresses import with_config
from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError
from tidelog.model import READ_UNCOMMITTED
from tidelog.reader.time_map_file import AnyPath
from tidelog.sources.arrow import coalesce
from tidelog.sources.bounds import LOG_END, OffsetRanges, check_positive
from tidelog.sources.opening import Address, kind_of, open_source
from tidelog.sources.plan import scan_request
from tidelog.sources.reader_resources import BATCH_ROWS, ReaderResources
from tidelog.sources.scan_plan import ScanPlan, ScanRequest
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.schema import resolve_columns, scan_schema
from tidelog.sources.source import Source
from tidelog.sources.split import Split
from tidelog.sources.split_reader import read_rows
from tidelog.times import MAX_TIME_MS, Time, doubtful_unit

logger = logging.getLogger("tidelog.sources")

PINNED_SPLITS = 256
"""How many splits have their file opened as soon as they are planned: retention takes a log's oldest segments, and an open
file outlives its deletion. The rest is opened when it is read, so that a log of many segments costs no descriptor each."""


def scan(
    source: Address,
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
    config: Mapping[str, object] | None = None,
    tz: str | None = None,
) -> pa.RecordBatchReader:
    """Return every record of a topic with `start <= timestamp < end`, however late it was appended.

    Records come in offset order per partition, one partition after the other; control records are left out, and, where there
    is a time bound, records without a timestamp. `scan` reads what is on disk, or below the broker's high watermark, when it is
    called; it never writes. `docs/scan.md` has the whole story.

    Args:
        source: a Kafka data folder, a `LogDir`, or brokers as `host:port` (several with commas between).
        topic: its name.
        start: inclusive; epoch milliseconds, `datetime`, `date` or a text as `2013-07-10T09:00`, `yesterday 09:00`, `-3d`.
            None: no bound.
        end: exclusive; the same, or `+15m`, that long after `start`.
        columns: names in the order wanted (`tidelog.sources.schema`). None: all but `create_time`.
        partitions: their numbers. None: all.
        isolation: `read_uncommitted`, or `read_committed`: nothing of aborted or unfinished transactions.
        offsets: `{partition: (first, end)}`, end exclusive, None for no bound.
        until: `log_end`, or `high_watermark`: nothing past the high-watermark checkpoint.
        time_map_dir: a folder of time maps, used before those beside the segments.
        views: keys and values as `binary_view`, pointing into the log's bytes.
        batch_rows: rows of an Arrow batch, at most.
        report: filled in while reading; complete when the reader is exhausted. `report.missing` is what the folder lacks,
            which is logged, too.
        clock: what `now` means; the machine's clock by default.
        skip_damaged: read around damaged batches; `report.left_out` and the log say what that left out. Of a folder only.
        config: Kafka's properties of a client, of brokers only: `{"security.protocol": "SSL", …}`, as `connect` takes them.
        tz: the zone of times without one, an IANA name. [default: that of TIDELOG_TZ, else UTC]

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
    for name, time in (("start", start), ("end", end)):
        doubt = doubtful_unit(time) if isinstance(time, int) and time < MAX_TIME_MS else None
        if doubt is not None:
            logger.warning("%s: %s %s", topic, name, doubt)
    request = scan_request(
        topic,
        start=start,
        end=end,
        tz=tz,
        partitions=partitions,
        isolation=isolation,
        offsets=offsets,
        until=until,
        time_map_dir=time_map_dir,
        clock=clock,
    )
    if config:
        if not isinstance(source, str) or not kind_of(source).is_cluster:
            raise InvalidArgumentError("config is for brokers", found=f"{kind_of(source).name}: {source}")
        source = with_config(source, config)
    opened = open_source(source, skip_damaged=skip_damaged)
    reading = opened.reading
    try:
        scan_plan = opened.planned(partial(_plan_and_pin, opened, request, reading))
    except BaseException:
        opened.close()
        raise
    batches = _read(scan_plan, names, batch_rows, views, ScanReport() if report is None else report, reading)
    return pa.RecordBatchReader.from_batches(scan_schema(names, views=views), batches)


def _plan_and_pin(source: Source, request: ScanRequest, reading: ReaderResources) -> ScanPlan[Split]:
    """Plan, and open the files of the first splits at once. Raises SegmentChangedError where one is gone: no row is out yet."""
    reading.unpin()
    scan_plan = source.plan(request)
    for split in scan_plan.splits[:PINNED_SPLITS]:
        split.pin(reading)
    return scan_plan


def _read(
    scan_plan: ScanPlan[Split], names: tuple[str, ...], batch_rows: int, views: bool, report: ScanReport, reading: ReaderResources
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of all splits, with what is kept for all of them, and log what their reader should know."""
    for note in scan_plan.notes:
        logger.warning("%s", note)
    report += scan_plan.known
    with reading:
        rows = (batch for split in scan_plan.splits for batch in read_rows(split, names, batch_rows, views, report, reading))
        yield from coalesce(rows, batch_rows)
    for notice in report.notices():
        logger.warning("%s: %s", scan_plan.topic, notice)
