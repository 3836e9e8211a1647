"""One scan of topics for a query. It prunes by the filter, reads with `tidelog.scan`, and applies the rest of the filter.

Timestamps become microseconds, DuckDB's unit. Timestamps beyond DuckDB's range become infinity, so they stay later than every
other time. Keys, values and headers become text here, except in `raw` tables, because Arrow checks UTF-8 for all values of a
column at once, whereas DuckDB's functions check each value.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.decoding.topic_decoding import UNDECODED
from tidelog.model import SIDES
from tidelog.queries.decoded_topic import DecodedTopic, scanned_name
from tidelog.queries.pruning import LARGEST, MICROSECONDS, Bounds, Filter
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.sources.opening import Address
from tidelog.sources.plan import plan
from tidelog.sources.scan_plan import ScanPlan
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.schema import TIMESTAMP
from tidelog.sources.selection.headers_map import HEADERS_MAP, headers_map
from tidelog.sources.selection.record_columns import COLUMNS
from tidelog.sources.split import Split
from tidelog.sources.stream import scan

logger = logging.getLogger("tidelog.queries")


@dataclass(slots=True)
class TopicScan:
    """The part of a topic that a scan has read, or would read."""

    topic: str
    columns: tuple[str, ...]
    bounds: Bounds
    has_all_partitions: bool
    """Whether every partition of the topic can have records that pass."""
    missing: tuple[MissingOffsets, ...]
    """Partitions that are missing from the folder, and could have records that pass. Empty if `has_all_partitions`."""
    filter: str | None
    """The filter as text, in Arrow's notation; None without a filter."""
    report: ScanReport = field(default_factory=ScanReport)
    plan: ScanPlan[Split] | None = None
    """The plan of the scan, set by `plan_topic` for EXPLAIN."""


def table_schema(scanned: pa.Schema, *, is_raw: bool) -> pa.Schema:
    """Return the schema of a table for DuckDB, from the schema of a scan of all columns. Timestamps are in microseconds. Unless
    the table is raw, it has the columns of `record_columns`: keys and values are text, headers are a map.
    """

    def converted(field: pa.Field) -> pa.Field:
        if field.type == TIMESTAMP:
            return field.with_type(MICROSECONDS)
        if is_raw:
            return field
        if field.name == "headers":
            return field.with_type(HEADERS_MAP)
        return field.with_type(pa.string()) if field.name in SIDES and field.type == pa.binary() else field

    fields = [field for field in scanned if is_raw or field.name in COLUMNS or field.name.endswith(UNDECODED)]
    return pa.schema([converted(field) for field in fields])


def topic_scan(
    topic: str, partitions: Sequence[int], missing: Sequence[MissingOffsets], names: Sequence[str], accepts: Filter
) -> TopicScan | None:
    """Return the scan for the records of a topic that pass the filter; None if none can. `missing` are the missing partitions."""
    every = {*partitions, *(one.partition for one in missing)}
    bounds = accepts.bounds(topic, sorted(every))
    if bounds is None:
        return None
    wanted = set(bounds.partitions)
    also = () if bounds.is_exact else [name for name in accepts.schema.names if accepts.mentions(name)]
    return TopicScan(
        topic=topic,
        columns=tuple(dict.fromkeys((*names, *also))),
        bounds=replace(bounds, partitions=tuple(sorted(wanted & set(partitions)))),
        has_all_partitions=wanted == every,
        missing=() if wanted == every else tuple(one for one in missing if one.partition in wanted),
        filter=None if accepts.expression is None else str(accepts.expression),
    )


def read_topic(
    source: Address, shape: DecodedTopic, one: TopicScan, accepts: Filter, names: Sequence[str], options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """Yield a topic's records that pass. If the caller stops early, the scan's notices are still logged."""
    one.report.missing += one.missing
    decoding = shape.decoding()
    is_read = False
    try:
        if one.bounds.partitions:
            columns = dict.fromkeys(map(scanned_name, one.columns))
            if decoding is not None and decoding.needs_headers:
                columns["headers"] = None
            for batch in scan(source, one.topic, columns=columns, report=one.report, **_range(one), **options):
                found = for_duckdb(batch if decoding is None else decoding.decode(batch), accepts.schema)
                if not one.bounds.is_exact:
                    found = found.filter(accepts.expression)
                yield found.select(names)
            is_read = True
    finally:
        if decoding is not None:
            one.report.undecoded += decoding.undecoded.total()
            for notice in decoding.notices():
                logger.warning("%s", notice)
        if not is_read:
            _log_notices(one)


def plan_topic(source: Address, one: TopicScan, options: Mapping[str, Any]) -> None:
    """Set `one.plan`: the part of the topic that the scan would read."""
    one.report.missing += one.missing
    if one.bounds.partitions:
        one.plan = plan(source, one.topic, **_range(one), **options)
        one.report += one.plan.known
    _log_notices(one)


def _open(first: int, end: int) -> tuple[int | None, int | None]:
    return first or None, None if end == LARGEST else end


def _log_notices(one: TopicScan) -> None:
    for notice in one.report.notices():
        logger.warning("%s: %s", one.topic, notice)


def _range(one: TopicScan) -> dict[str, Any]:
    time, offsets, numbers = one.bounds.time, one.bounds.offsets, one.bounds.partitions
    return {
        "start": time.start_ms,
        "end": time.end_ms,
        # With partitions None, a scan also reports partitions that are missing from the folder.
        "partitions": None if one.has_all_partitions else numbers,
        "offsets": None if offsets is None else {number: _open(*offsets[number]) for number in numbers},
    }


def for_duckdb(batch: pa.RecordBatch, table: pa.Schema) -> pa.RecordBatch:
    """Convert a batch's columns to the types of `table_schema`."""
    wanted = pa.schema([table.field(name) for name in batch.schema.names])
    if batch.schema == wanted:
        return batch
    columns = [_converted(column, field.type) for column, field in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if kind == HEADERS_MAP:
        return headers_map(column)
    return _in_microseconds(column) if kind == MICROSECONDS else _as_text(column)


def _as_text(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else _text(value) for value in column.to_pylist()], pa.string())


def _text(value: bytes) -> str:
    """Return bytes as text. If they are not UTF-8, escape all but printable ASCII, as DuckDB does."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1").translate(_ESCAPED)


_ESCAPED = {byte: f"\\x{byte:02X}" for byte in range(256) if not 32 <= byte < 127 or chr(byte) in "\"'\\"}


def _in_microseconds(times: pa.Array) -> pa.Array:
    try:
        return times.cast(MICROSECONDS)
    except pa.ArrowInvalid:
        numbers = times.cast(pa.int64())
        most = LARGEST // 1000
        within = pc.multiply(pc.max_element_wise(pc.min_element_wise(numbers, most), -most), 1000)
        clamped = pc.if_else(pc.greater(numbers, most), LARGEST, pc.if_else(pc.less(numbers, -most), -LARGEST, within))
        return pc.if_else(numbers.is_valid(), clamped, pa.scalar(None, pa.int64())).cast(MICROSECONDS)
