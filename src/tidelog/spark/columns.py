"""The source's columns: Spark's types, the Arrow types that Spark expects for them, and the conversion from a scan.

| column | Spark type | Arrow type | from the scan's | null if |
|---|---|---|---|---|
| key | binary | binary | key | the key is null |
| value | binary | binary | value | the value is null |
| topic | string | string | topic | never |
| partition | int | int32 | partition | never |
| offset | bigint | int64 | offset | never |
| timestamp | timestamp | timestamp[us, UTC] | timestamp | the record has no timestamp (the connector returns 1 ms before 1970) |
| timestampType | int | int32 | timestamp_type | never; -1 none, 0 CreateTime, 1 LogAppendTime |
| headers | array<struct<key: string, value: binary>> | list<struct> | headers | the record has no headers, as in the connector |
| createTime | timestamp | timestamp[us, UTC] | create_time | unknown |
| keyUndecoded, valueUndecoded | binary | binary | key_undecoded, value_undecoded | the key or value was decoded, or is null |

Names, types and nullability (all nullable) are those of Spark's Kafka connector; `createTime` and the columns of undecoded bytes
are Tidelog's. With the options `decode` and `keyDecode`, value and key have the decoded types (`typed_columns`). Spark checks
only the schema of a split's first Arrow batch, so every batch goes through `spark_batch`. `pyarrow.compute` is imported by the
functions of tasks: the import takes 20 ms, and processes that plan do not need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from tidelog.errors import InvalidArgumentError
from tidelog.extras import imported_from
from tidelog.times import format_time

with imported_from("spark", "PySpark"):
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DataType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))

_TYPES: dict[str, tuple[DataType, pa.DataType, str]] = {
    "key": (BinaryType(), pa.binary(), "key"),
    "value": (BinaryType(), pa.binary(), "value"),
    "topic": (StringType(), pa.string(), "topic"),
    "partition": (IntegerType(), pa.int32(), "partition"),
    "offset": (LongType(), pa.int64(), "offset"),
    "timestamp": (TimestampType(), _TIMESTAMP, "timestamp"),
    "timestampType": (IntegerType(), pa.int32(), "timestamp_type"),
    "headers": (
        ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        _HEADERS,
        "headers",
    ),
    "createTime": (TimestampType(), _TIMESTAMP, "create_time"),
    "keyUndecoded": (BinaryType(), pa.binary(), "key_undecoded"),
    "valueUndecoded": (BinaryType(), pa.binary(), "value_undecoded"),
}


def spark_schema(columns: Sequence[str], typed: Mapping[str, DataType] = MappingProxyType({})) -> StructType:
    """Return the DataFrame schema of these columns, in the given order. `typed` has the types of decoded keys and values."""
    return StructType([StructField(name, typed.get(name, _TYPES[name][0])) for name in columns])


def arrow_schema(columns: Sequence[str], typed: Mapping[str, pa.DataType] = MappingProxyType({})) -> pa.Schema:
    """Return the Arrow schema that Spark derives from `spark_schema`. `typed` has the types of decoded keys and values."""
    return pa.schema([pa.field(name, typed.get(name, _TYPES[name][1])) for name in columns])


def scan_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the scan's names for these columns, in the same order."""
    return tuple(_TYPES[name][2] for name in columns)


def spark_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a scan's batch, read with `scan_columns`, as a batch with Spark's `schema`.

    Raises InvalidArgumentError for a timestamp that Spark's microseconds cannot hold (beyond the year 294247).
    """
    arrays = []
    for array, field in zip(batch.columns, schema, strict=True):
        if array.type != field.type:
            array = _headers(array) if field.type == _HEADERS else _microseconds(array, field.name)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _headers(array: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    lengths = pc.list_value_length(array)
    if not pc.any(pc.greater(lengths, 0)).as_py():
        return pa.nulls(len(array), _HEADERS)
    none = pa.scalar(None, array.type)
    return pc.if_else(pc.greater(lengths, 0), array, none).cast(_HEADERS)


def _microseconds(array: pa.Array, column: str) -> pa.Array:
    try:
        return array.cast(_TIMESTAMP)
    except pa.ArrowInvalid:
        import pyarrow.compute as pc

        latest_ms = pc.max(array.cast(pa.int64())).as_py()
        raise InvalidArgumentError(
            f"column {column}: Spark's timestamps end in the year 294247; {latest_ms} ms is {format_time(latest_ms)}. "
            "Limit the range with the option endTime, or leave the column out with the option columns"
        ) from None
