"""From a scan's batches to Spark's, value by value."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelog.errors import InvalidArgumentError
from tidelog.sources.schema import scan_schema
from tidelog.spark.columns import arrow_schema, scan_columns, spark_batch

ROWS = [
    {"timestamp": 1_600_604_800_003, "headers": []},
    {"timestamp": None, "headers": [{"key": "a", "value": b"1"}, {"key": "", "value": None}]},
    {"timestamp": 0, "headers": []},
]


def batch(rows: list[dict[str, object]] = ROWS) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=scan_schema(scan_columns(["timestamp", "headers"])))


@pytest.mark.parametrize(("start", "end"), [(0, 3), (0, 1), (1, 3), (1, 2), (2, 3), (0, 0)])
def test_any_slice_is_converted(start: int, end: int) -> None:
    converted = spark_batch(batch().slice(start, end - start), arrow_schema(["timestamp", "headers"]))
    converted.validate(full=True)
    found = [
        (None if us is None else us, headers)
        for us, headers in zip(converted["timestamp"].cast(pa.int64()).to_pylist(), converted["headers"].to_pylist(), strict=True)
    ]
    wanted = [(None if r["timestamp"] is None else r["timestamp"] * 1000, r["headers"] or None) for r in ROWS]  # type: ignore[operator]
    assert found == wanted[start:end]


def test_a_timestamp_beyond_sparks_is_one_error() -> None:
    beyond = batch([{"timestamp": 2**62, "headers": []}])
    with pytest.raises(
        InvalidArgumentError, match=r"column timestamp: Spark's timestamps end .* 4611686018427387904 ms is \+146140482-"
    ):
        spark_batch(beyond, arrow_schema(["timestamp", "headers"]))
    latest = (2**63 - 1) // 1000
    held = spark_batch(batch([{"timestamp": latest, "headers": []}]), arrow_schema(["timestamp", "headers"]))
    assert held["timestamp"].cast(pa.int64()).to_pylist() == [latest * 1000]
