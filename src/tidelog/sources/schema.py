"""The columns of a scan and their Arrow types.

| column | Arrow type | null if | content |
|---|---|---|---|
| topic | string | never | |
| partition | int32 | never | |
| offset | int64 | never | |
| timestamp | timestamp[ms, UTC] | the record has none | create time, or append time with LogAppendTime |
| timestamp_type | int32 | never | Kafka's ids: -1 no timestamp, 0 CreateTime, 1 LogAppendTime |
| key | binary | the key is null | |
| value | binary | the value is null (a tombstone) | |
| headers | list<struct<key: string, value: binary>> | never (an empty list) | values may be null |
| create_time | timestamp[ms, UTC] | unknown | the producer's time; only delivered on request |

`create_time` equals `timestamp` for CreateTime. In a v2 batch with LogAppendTime the deltas still contain the producer's time
(KIP-32 decided against keeping both; format v2 happens to keep them). v0 has no timestamps. v1 with LogAppendTime has only the
broker's time.

With `views`, key and value are `binary_view` columns that point into the bytes of the log instead of copies.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tidelog.errors import InvalidArgumentError

TIMESTAMP = pa.timestamp("ms", tz="UTC")

HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])

HEADERS = pa.list_(pa.field("item", HEADER, nullable=False))

_FIELDS: dict[str, pa.Field] = {
    field.name: field
    for field in (
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS, nullable=False),
        pa.field("create_time", TIMESTAMP),
    )
}

ALL_COLUMNS: tuple[str, ...] = tuple(_FIELDS)
"""Every column that a scan can deliver."""

DEFAULT_COLUMNS: tuple[str, ...] = tuple(name for name in _FIELDS if name != "create_time")
"""The columns returned if none are named."""

VIEW_COLUMNS = frozenset({"key", "value"})
"""The columns that `views` turns into `binary_view`."""


def resolve_columns(columns: Iterable[str] | None) -> tuple[str, ...]:
    """Return the columns in the requested order, or the default ones.

    Raises InvalidArgumentError if the list is empty or has an unknown name or a duplicate.
    """
    if columns is None:
        return DEFAULT_COLUMNS
    if isinstance(columns, str):
        raise InvalidArgumentError("columns must be a list of names", found=repr(columns), expected=f"e.g. [{columns!r}]")
    names = tuple(columns)
    if not names:
        raise InvalidArgumentError("the list of columns is empty", expected="at least one name")
    for name in names:
        if name not in _FIELDS:
            raise InvalidArgumentError("unknown column", found=repr(name), expected=f"one of {', '.join(ALL_COLUMNS)}")
        if names.count(name) > 1:
            raise InvalidArgumentError("a column is listed twice", found=repr(name))
    return names


def scan_schema(columns: Iterable[str] | None = None, *, views: bool = False) -> pa.Schema:
    """Return the Arrow schema of a scan of these columns (None: all but `create_time`)."""
    fields = []
    for name in resolve_columns(columns):
        field = _FIELDS[name]
        fields.append(field.with_type(pa.binary_view()) if views and name in VIEW_COLUMNS else field)
    return pa.schema(fields)
