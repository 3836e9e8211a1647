"""`tidelog.scan`: a whole scan as one stream of Arrow batches."""

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
from tidelog.model import READ_UNCOMMITTED, SIDES
from tidelog.sources.arrow import coalesce
from tidelog.sources.bounds import LOG_END, OffsetRanges, check_positive
from tidelog.sources.opening import Address, configured, open_source, tiered
from tidelog.sources.plan import scan_request
from tidelog.sources.reader_resources import BATCH_ROWS, ReaderResources
from tidelog.sources.scan_plan import ScanPlan, ScanRequest
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.schema import resolve_columns, scan_schema
from tidelog.sources.selection.record_columns import COLUMNS
from tidelog.sources.selection.where import Where, with_bytes
from tidelog.sources.source import Source
from tidelog.sources.split import Split, announced
from tidelog.sources.split_reader import read_rows
from tidelog.times import MAX_TIME_MS, Time, doubtful_unit

logger = logging.getLogger("tidelog.sources")

PINNED_SPLITS = 256
"""How many splits have their files opened right after planning. Retention deletes a log's oldest segments, and an open file
outlives its deletion. The files of all other splits are opened when they are read, so that a log of many segments does not need a
descriptor for each.
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
    where: str | None = None,
    tier: str | None = None,
    tier_keys: Iterable[str] = (),
) -> pa.RecordBatchReader:
    """Return a stream of every record of a topic with `start <= timestamp < end`, however late it was appended.

    Records are in offset order per partition, one partition after the other. Control records are left out; with a time bound,
    records without a timestamp are left out too. `scan` returns the records that are on disk, or below the broker's high
    watermark, at the time of the call. It never writes. `docs/scan.md` has the details.

    Args:
        source: a Kafka data folder, a `LogDir`, or brokers as `host:port` (several separated by commas).
        topic: the topic's name.
        start: inclusive; epoch milliseconds, `datetime`, `date` or text such as `2013-07-10T09:00`, `yesterday 09:00`, `-3d`.
            None: no bound.
        end: exclusive; the same, or `+15m`, that long after `start`.
        columns: names, in order (`tidelog.sources.schema`). None: all but `create_time`.
        partitions: the numbers of the partitions to read. None: all.
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
        tz: the time zone of times without one, as an IANA name. [default: the value of TIDELOG_TZ, else UTC]
        decode: how to decode keys and values into typed columns: `json` (only values), `{"key": "utf8", "value": "avro"}`, or a
            `tidelog.decoding.Decodings`, which can also have schemas and a schema registry. The columns `key_undecoded` and
            `value_undecoded` are added; they have the bytes that could not be decoded. Types are those of the schema or, without
            a schema, those of the first batch, which is read before `scan` returns. `docs/values.md` has the details.
        where: an SQL expression; only records for which it is true are returned. Its names are `key`, `value`, `headers['name']`,
            `topic`, `partition`, `offset` and `timestamp`: `value->>'$.carrier' = 'UA'`, or with `decode` `value.amount > 3`.
            A record for which it cannot be evaluated does not pass. Needs DuckDB.
        tier: the remote storage of the folder's tiered topics (KIP-405): a folder, or an address of object storage. Remote and
            local records of the topic are then read as one log. `docs/tiered-storage.md` has the details.
        tier_keys: files with RSA private keys, `FILE` or `ID=FILE`, to decrypt encrypted segments.

    Raises:
        InvalidArgumentError: an invalid argument.
        NotFoundError: the folder, the topic, a partition, or the folder of time maps does not exist.
        CorruptDataError: damaged files; also while reading.
        SegmentChangedError: a segment vanished or was replaced while reading.
        StorageError: an error of the file system; also while reading.
        MissingPackageError: `where` and some formats of `decode` need packages of an extra.
        OffsetOutOfRangeError: a broker deleted records before they were read. BrokerUnreachableError, BrokerError, ProtocolError.
    """
    names = resolve_columns(columns)
    check_positive("batch_rows", batch_rows)
    decoding = None if decode is None else Decodings.of(decode).topic(topic)
    passes = None if where is None else Where(where, of_decoded=decoding is not None, name="where")
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
    read_names = names if passes is None else tuple(dict.fromkeys((*names, *COLUMNS)))
    if decoding is not None:
        read_names = decoding.columns_to_read(read_names)
    # Arrow cannot filter views.
    read_views = views and passes is None
    batches = _read(scan_plan, read_names, batch_rows, read_views, report, reading)
    schema = scan_schema(read_names, views=views)
    if decoding is not None:
        schema, batches = _decoded(batches, scan_schema(read_names, views=read_views), decoding, report, passes is not None)
    wanted = [*names, *(one + UNDECODED for one in SIDES if one in names and one + UNDECODED in schema.names)]
    is_same = wanted == schema.names
    schema = pa.schema([schema.field(name) for name in wanted])
    if passes is not None:
        batches = coalesce(_passing(batches, passes, schema, report), batch_rows)
    elif not is_same:
        batches = (batch.select(wanted) for batch in batches)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _plan_and_pin(source: Source, request: ScanRequest, reading: ReaderResources) -> ScanPlan[Split]:
    """Return the plan, and open the files of its first splits at once. Raises SegmentChangedError, before any row is delivered,
    if a file is gone.
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
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, decoding: TopicDecoding, report: ScanReport, keeps_bytes: bool
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches with decoded columns. With `keeps_bytes`, they also have the undecoded keys and values,
    for an SQL expression. The first batch is read at once, because its values may determine the types.
    """
    first = next(batches, None)
    decoding.learn(pa.RecordBatch.from_pylist([], schema=schema) if first is None else first)

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in batches if first is None else chain([first], batches):
            decoded = decoding.decode(with_bytes(batch) if keeps_bytes else batch)
            report.undecoded = decoding.undecoded.total()
            yield decoded
        for notice in decoding.notices():
            logger.warning("%s", notice)

    return decoding.schema(schema), rows()


def _passing(batches: Iterable[pa.RecordBatch], passes: Where, schema: pa.Schema, report: ScanReport) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kept = passes(batch)
        report.records -= batch.num_rows - kept.num_rows
        yield kept.select(schema.names).cast(schema)
    for notice in passes.notices():
        logger.warning("%s", notice)
