"""A whole scan as one stream of Arrow batches: `tidelog.scan`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain

import pyarrow as pa

from tidelog.clock import Clock
from tidelog.decoding.decodings import Decode, Decodings
from tidelog.decoding.topic_decoding import UNDECODED, TopicDecoding
from tidelog.formats.paths.file_path import AnyPath
from tidelog.model import READ_UNCOMMITTED
from tidelog.sources.arrow import coalesce
from tidelog.sources.bounds import LOG_END, OffsetRanges, check_positive
from tidelog.sources.opening import Address, configured, open_source, tiered
from tidelog.sources.plan import scan_request
from tidelog.sources.reader_resources import BATCH_ROWS, ReaderResources
from tidelog.sources.scan_plan import ScanPlan, ScanRequest
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.schema import resolve_columns, scan_schema
from tidelog.sources.source import Source
from tidelog.sources.split import Split, announced
from tidelog.sources.split_reader import read_rows
from tidelog.times import MAX_TIME_MS, Time, doubtful_unit

logger = logging.getLogger("tidelog.sources")

PINNED_SPLITS = 256
"""How many splits have their file opened as soon as they are planned: retention deletes a log's oldest segments, and an open file
outlives its deletion. The others are opened when they are read, so that a log of many segments needs no descriptor for each.
"""


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
    decode: Decode | None = None,
    tier: str | None = None,
    tier_keys: Iterable[str] = (),
) -> pa.RecordBatchReader:
    """Return every record of a topic with `start <= timestamp < end`, however late it was appended.

    Records are in offset order per partition, one partition after the other. Control records are left out, and with a time bound
    records without a timestamp as well. `scan` reads what is on disk, or below the broker's high watermark, when it is called;
    it never writes. `docs/scan.md` has the details.

    Args:
        source: a Kafka data folder, a `LogDir`, or brokers as `host:port` (several separated by commas).
        topic: its name.
        start: inclusive; epoch milliseconds, `datetime`, `date` or a text as `2013-07-10T09:00`, `yesterday 09:00`, `-3d`.
            None: no bound.
        end: exclusive; the same, or `+15m`, that long after `start`.
        columns: names, in order (`tidelog.sources.schema`). None: all but `create_time`.
        partitions: their numbers. None: all.
        isolation: `read_uncommitted`, or `read_committed`: no records of aborted or open transactions.
        offsets: `{partition: (first, end)}`, end exclusive, None for no bound.
        until: `log_end`, or `high_watermark`: nothing past the high-watermark checkpoint.
        time_map_dir: a folder of time maps, used before those beside the segments.
        views: keys and values as `binary_view`, pointing into the log's bytes.
        batch_rows: the most rows of an Arrow batch.
        report: updated while reading; complete when the reader is exhausted. `report.missing` has the records missing from the
            folder, which are also logged.
        clock: the clock for `now`; the machine's by default.
        skip_damaged: skip damaged batches; `report.left_out` and the log say what was left out. For folders only.
        config: Kafka's client properties, for brokers only: `{"security.protocol": "SSL", …}`, as for `connect`.
        tz: the zone of times without one, an IANA name. [default: that of TIDELOG_TZ, else UTC]
        decode: how to decode keys and values into typed columns: `json` (the values), `{"key": "utf8", "value": "avro"}`, or a
            `tidelog.decoding.Decodings`, which has a schema registry and schemas too. The columns `key_undecoded` and
            `value_undecoded` are added; they have the bytes that could not be decoded. Types are those of the schema or, without
            one, of the first batch, which is read before `scan` returns. `docs/values.md` has the details.
        tier: the remote storage of the folder's tiered topics (KIP-405): a folder, or an address of object storage. The topic is
            then one log, from its first remote record on. `docs/tiered-storage.md` has the details.
        tier_keys: the files of RSA private keys, `FILE` or `ID=FILE`, for encrypted segments.

    Raises:
        InvalidArgumentError: an invalid argument.
        NotFoundError: no such folder, topic or partition, or no such folder of time maps.
        CorruptDataError: damaged files; also while reading.
        SegmentChangedError: a segment vanished or was replaced while reading.
        StorageError: an error of the file system; also while reading.
        OffsetOutOfRangeError: a broker deleted records before they were read. BrokerUnreachableError, BrokerError, ProtocolError.
    """
    names = resolve_columns(columns)
    check_positive("batch_rows", batch_rows)
    decoding = None if decode is None else Decodings.of(decode).topic(topic)
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
    opened = open_source(configured(tiered(source, tier, tuple(tier_keys)), config), skip_damaged=skip_damaged)
    reading = opened.reading
    try:
        scan_plan = opened.planned(partial(_plan_and_pin, opened, request, reading))
    except BaseException:
        opened.close()
        raise
    report = ScanReport() if report is None else report
    if decoding is not None:
        read_names = decoding.columns_to_read(names)
        rows = _read(scan_plan, read_names, batch_rows, views, report, reading)
        return _decoded(rows, names, scan_schema(read_names, views=views), decoding, report)
    batches = _read(scan_plan, names, batch_rows, views, report, reading)
    return pa.RecordBatchReader.from_batches(scan_schema(names, views=views), batches)


def _plan_and_pin(source: Source, request: ScanRequest, reading: ReaderResources) -> ScanPlan[Split]:
    """Plan, and open the files of the first splits at once. Raises SegmentChangedError if one is gone, before any row is
    delivered.
    """
    reading.unpin()
    scan_plan = source.plan(request)
    for split in scan_plan.splits[:PINNED_SPLITS]:
        split.pin(reading)
    return scan_plan


def _read(
    scan_plan: ScanPlan[Split], names: tuple[str, ...], batch_rows: int, views: bool, report: ScanReport, reading: ReaderResources
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of all splits, with shared resources, and log notices for the reader."""
    for note in scan_plan.notes:
        logger.warning("%s", note)
    report += scan_plan.known
    with reading:
        splits = announced(scan_plan.splits, reading)
        rows = (batch for split in splits for batch in read_rows(split, names, batch_rows, views, report, reading))
        yield from coalesce(rows, batch_rows)
    for notice in report.notices():
        logger.warning("%s: %s", scan_plan.topic, notice)


def _decoded(
    batches: Iterator[pa.RecordBatch], names: tuple[str, ...], schema: pa.Schema, decoding: TopicDecoding, report: ScanReport
) -> pa.RecordBatchReader:
    """Return the batches with decoded columns. Reads the first batch, whose values may determine the types."""
    first = next(batches, None)
    decoding.learn(pa.RecordBatch.from_pylist([], schema=schema) if first is None else first)
    decoded_schema = decoding.schema(schema)
    added = [name for name in decoded_schema.names if name not in schema.names and name.removesuffix(UNDECODED) in names]
    wanted = [*names, *added]

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in batches if first is None else chain([first], batches):
            decoded = decoding.decode(batch)
            report.undecoded = decoding.undecoded.total()
            yield decoded.select(wanted)
        for notice in decoding.notices():
            logger.warning("%s", notice)

    return pa.RecordBatchReader.from_batches(pa.schema([decoded_schema.field(name) for name in wanted]), rows())
