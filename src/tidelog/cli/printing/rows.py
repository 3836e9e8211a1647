"""Rows of a query as text, JSON lines, CSV, Arrow or Parquet, in bounded memory.

| type | text and CSV | JSON |
|---|---|---|
| numbers, booleans | as they are | as they are; NaN and infinity are null |
| INTERVAL | `1 day 12:00:00` | the same text |
| TIMESTAMP, with or without time zone | ISO 8601, in the query's zone | the same text |
| BLOB | printable, escaped | the text; bytes that are not UTF-8 as U+FFFD |
| structs, lists, maps | JSON | JSON |
| all others | text | text |
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo
from decimal import Decimal
from itertools import chain
from typing import Any, BinaryIO

import pyarrow as pa

from tidelog.cli.printing.layout import Amount, csv_lines, show_bytes, table
from tidelog.times import format_time
from tidelog.zones import find_zone, local_time

_ROWS_AT_A_TIME = 1024

_INFINITY = 2**63 - 1

_LAST_LOCAL_MS = 253_402_214_400_000
"""The start of the last day that Python's `datetime` can represent in every zone."""


class Counted:
    """Iterates over batches, and counts the rows that have been read."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.rows = 0
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def write_rows(names: Sequence[str], batches: Iterable[pa.RecordBatch], out: BinaryIO, format_name: str) -> None:
    """Write rows as `text`, `jsonl` or `csv`."""
    lines: Iterator[str]
    if format_name == "jsonl":
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        lines = (encode(dict(zip(names, map(_json, row), strict=True))) for row in _rows(batches))
    elif format_name == "csv":
        lines = csv_lines(chain([names], ([_cell(value) for value in row] for row in _rows(batches))))
    else:
        lines = table(names, ([_cell(value) for value in row] for row in _rows(batches)))
    for line in lines:
        out.write(line.encode("utf-8", "backslashreplace") + b"\n")


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_AT_A_TIME):
            part = batch.slice(start, _ROWS_AT_A_TIME)
            yield from zip(*(_values(column) for column in part.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    """Return the column's values as Python objects. Timestamps become text, because `datetime` ends with the year 9999."""
    kind = column.type
    if pa.types.is_map(kind):
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    if pa.types.is_interval(kind):
        return [None if one is None else _interval(*one) for one in column.to_pylist()]
    if not pa.types.is_timestamp(kind):
        return list(column.to_pylist())
    zone = None if kind.tz in (None, "UTC") else find_zone(kind.tz)
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    numbers = column.cast(pa.int64()).to_pylist()
    return [None if number is None else _time(number, per_second, zone, has_zone=kind.tz is not None) for number in numbers]


def _interval(months: int, days: int, nanoseconds: int) -> str:
    """Return an interval as DuckDB shows it: `2 months 1 day 12:00:00.5`."""
    parts = [f"{count} {unit}{'' if abs(count) == 1 else 's'}" for count, unit in ((months, "month"), (days, "day")) if count]
    if nanoseconds or not parts:
        seconds, rest = divmod(abs(nanoseconds), 10**9)
        fraction = f".{rest:09}".rstrip("0") if rest else ""
        sign = "-" if nanoseconds < 0 else ""
        parts.append(f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}")
    return " ".join(parts)


def _time(number: int, per_second: int, zone: tzinfo | None, *, has_zone: bool) -> str:
    if abs(number) == _INFINITY:
        return "infinity" if number > 0 else "-infinity"
    seconds, fraction = divmod(number, per_second)
    time_ms = seconds * 1000 + fraction * 1000 // per_second
    rest = str(fraction).zfill(len(str(per_second)) - 1)[3:].rstrip("0") if per_second > 1000 else ""
    if zone is None or not 0 <= time_ms < _LAST_LOCAL_MS:
        text, offset = format_time(time_ms)[:-1], "Z" if has_zone else ""
    else:
        local = local_time(time_ms, zone).isoformat(timespec="milliseconds")
        text, offset = local[:-6], local[-6:]
    return f"{text}{rest}{offset}"


def _cell(value: Any) -> object:
    if value is None or type(value) is int:
        return value
    if isinstance(value, float | Decimal):
        return Amount(value)
    if isinstance(value, bytes):
        return show_bytes(value)
    if isinstance(value, dict | list):
        return json.dumps(_json(value), ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {str(name): _json(one) for name, one in value.items()}
    if isinstance(value, list):
        # A map is a list of pairs.
        if value and all(isinstance(one, tuple) for one in value):
            return {str(name): _json(one) for name, one in value}
        return [_json(one) for one in value]
    return value if value is None or isinstance(value, str | int | bool) else str(value)
