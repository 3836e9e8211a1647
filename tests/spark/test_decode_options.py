"""The options of typed columns, and how batches are decoded into them, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from tests.sources.logs import TOPIC, LogBuilder
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError, InvalidRecordError
from tidelog.spark.decode_options import column_ddl
from tidelog.spark.options import ReadOptions, parse_options
from tidelog.spark.source import TidelogReader
from tidelog.spark.typed_columns import typed_columns, typed_schema

VALUE = StructType([StructField("id", LongType()), StructField("to", StringType())])
VALUES = [b'{"id":1,"to":"IAH"}', None, b"{broken", b'{"id":2.5}', b'{"id":2,"late":true}', b"[]"]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    builder = LogBuilder(tmp_path, segment_bytes=300)
    for value in VALUES:
        builder.append([(1_373_446_800_000, b"UA", value)])
    builder.close()
    return str(builder.data_dir)


def parse(folder: str = "/nowhere", **options: str) -> ReadOptions:
    return parse_options({"path": folder, "subscribe": TOPIC, **options}, ManualClock(0))


def rows(options: ReadOptions, value: Any = VALUE) -> list[dict[str, Any]]:
    """Return what Spark's workers read, with a type of the column value."""
    given = typed_schema(options, {}) if value is None else None
    if given is None:
        names = list(options.columns)
        plain = typed_schema(parse(columns=",".join(name for name in names if not name.endswith("Undecoded"))), {})
        assert isinstance(plain, StructType)
        kinds = {one.name: one.dataType for one in plain} | {
            "value": value,
            "valueUndecoded": BinaryType(),
            "keyUndecoded": BinaryType(),
        }
        given = StructType([StructField(name, kinds[name]) for name in names])
    assert isinstance(given, StructType)
    reader: TidelogReader = pickle.loads(pickle.dumps(TidelogReader(options, 1, columns=typed_columns(given, options))))

    def read() -> Iterator[pa.RecordBatch]:
        for partition in reader.partitions():
            yield from reader.read(partition)

    found: list[dict[str, Any]] = pa.Table.from_batches(read()).to_pylist()
    return found


def test_values_are_typed_and_nothing_is_lost(folder: str, caplog: pytest.LogCaptureFixture) -> None:
    found = rows(parse(folder, decode="json", schema="id BIGINT, to STRING", columns="offset,value,valueUndecoded"))
    assert [row["offset"] for row in found] == list(range(len(VALUES)))
    assert [row["value"] for row in found] == [{"id": 1, "to": "IAH"}, None, None, None, {"id": 2, "to": None}, None]
    assert [row["valueUndecoded"] for row in found] == [None, None, b"{broken", b'{"id":2.5}', None, b"[]"]
    assert "3 values are null because they are not json: their bytes are in valueUndecoded" in caplog.text


def test_columns_that_are_not_wanted_are_not_decoded(folder: str, caplog: pytest.LogCaptureFixture) -> None:
    assert list(rows(parse(folder, decode="json", schema="id BIGINT", columns="offset"))[0]) == ["offset"]
    only = rows(parse(folder, decode="json", schema="id BIGINT, to STRING", columns="value"))
    assert [row["value"] and row["value"]["id"] for row in only] == [1, None, None, None, 2, None]
    assert list(only[0]) == ["value"]
    assert "3 values are null because they are not json: the column valueUndecoded would have their bytes" in caplog.text


def test_keys_and_values_of_formats_without_a_schema(folder: str) -> None:
    found = rows(parse(folder, keyDecode="utf8", decode="hex", columns="key,value"), None)
    assert found[0] == {"key": "UA", "value": VALUES[0].hex()}  # type: ignore[union-attr]


def test_failfast_names_the_record(folder: str) -> None:
    options = parse(folder, decode="json", schema="id BIGINT, to STRING", mode="FAILFAST")
    assert "valueUndecoded" not in options.columns
    with pytest.raises(InvalidRecordError, match=f"{TOPIC}-0 offset 2: the value is not json; mode PERMISSIVE returns"):
        rows(options)


def test_failfast_passes_what_is_right(folder: str) -> None:
    found = rows(parse(folder, decode="hex", mode="FAILFAST", columns="value"), StringType())
    assert len(found) == len(VALUES)


def test_default_columns() -> None:
    columns = parse(decode="json", keyDecode="utf8", schema="id BIGINT").columns
    assert columns == (
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "keyUndecoded",
        "valueUndecoded",
    )
    assert parse().columns == columns[:-2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"decode": "jsn"}, "option decode: unknown format: jsn .did you mean json"),
        ({"schema": "id BIGINT"}, "option schema needs the option decode"),
        ({"decode": "json", "keySchema": "STRING"}, "option keySchema needs the option keyDecode"),
        (
            {"decode": "avro", "schema": "id BIGINT"},
            "option schema cannot be DDL, because the avro schema determines the type",
        ),
        ({"mode": "FAILFAST"}, "option mode needs the option decode"),
        ({"decode": "raw", "schema.registry.url": "http://localhost"}, "option schema.registry.url needs the option decode"),
        ({"decode": "json", "mode": "DROPMALFORMED"}, "option mode: expected permissive or failfast"),
        ({"columns": "value,valueUndecoded"}, "option columns: 'valueUndecoded' is not one of"),
        (
            {"decode": "json", "mode": "failfast", "columns": "value,valueUndecoded"},
            "option columns: 'valueUndecoded' is not one of",
        ),
        ({"decode": "json", "columns": "valueUndecoded"}, "option columns: valueUndecoded needs the column value"),
    ],
)
def test_what_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        parse(**options)


def test_a_type_is_needed_and_has_to_fit() -> None:
    with pytest.raises(
        InvalidArgumentError, match="option decode json: the type of the column value is unknown: expected the option schema"
    ):
        typed_schema(parse(decode="json"), {})
    options = parse(decode="json", columns="value")
    for kind in (StructType([StructField("id", LongType(), nullable=False)]), ArrayType(LongType(), containsNull=False)):
        with pytest.raises(InvalidArgumentError, match="column value: every type must be nullable"):
            typed_columns(StructType([StructField("value", kind)]), options)
    with pytest.raises(InvalidArgumentError, match="column value: utf8 decodes to text: found bigint"):
        typed_columns(StructType([StructField("value", LongType())]), parse(decode="utf8", columns="value"))
    with pytest.raises(InvalidArgumentError, match="fixed schema"):
        typed_columns(StructType([StructField("value", LongType())]), parse(columns="value"))


def test_ddl() -> None:
    assert typed_schema(parse(decode="json", schema="id BIGINT, `to it` STRING", columns="value,offset,valueUndecoded"), {}) == (
        "value STRUCT<id BIGINT, `to it` STRING>, offset bigint, valueUndecoded binary"
    )
    for one in ("BIGINT", "ARRAY<INT>", "MAP<STRING, INT>", "decimal(10, 2)", " struct<a: int> "):
        assert column_ddl(one) == one
    assert column_ddl("id: BIGINT") == "STRUCT<id: BIGINT>"


def test_a_credential_is_in_no_repr() -> None:
    options = parse(decode="json", **{"schema.registry.basic.auth.user.info": "user:of-tests"})
    assert "of-tests" not in repr(options)
