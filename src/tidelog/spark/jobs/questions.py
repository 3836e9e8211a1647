"""Reads the questions of the job `lookup` from files, and converts their times to milliseconds.

| file | how columns are read |
|---|---|
| `.csv` | named by the header; all are text, except partition |
| `.json`, `.jsonl` | one object per line; numbers are numbers |
| `.parquet` | columns keep their types |
| a folder | all files in it, in the format of the first file with a known extension |
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import CorruptDataError, InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

KINDS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}


COLUMNS = ("topic", "partition", "timestamp")
"""The columns that questions must have. Column names are case-insensitive."""


def check_questions(path: str) -> None:
    """Check, without Spark, that the questions exist in a known format. If they are a single CSV or Parquet file, also check that
    it has the columns.

    Raises NotFoundError, InvalidArgumentError, CorruptDataError.
    """
    kind = _kind_of(path)
    if "://" in path or not Path(path).is_file():
        return
    if kind == "csv":
        with Path(path).open(encoding="utf-8", errors="replace", newline="") as file:
            check_columns(next(csv.reader(file), []))
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            check_columns(pq.read_schema(path).names)
        except pa.ArrowException as error:
            raise CorruptDataError(f"not a Parquet file: {error}", path=path) from None


def check_columns(names: Sequence[str]) -> None:
    """Raise InvalidArgumentError if questions lack a column."""
    known = {name.lower() for name in names}
    for name in COLUMNS:
        if name not in known:
            raise InvalidArgumentError(f"the lookup rows lack the column {name!r}", found=", ".join(names))


def read_questions(spark: SparkSession, path: str) -> DataFrame:
    """Return the questions in a file or folder, or at a URL that Spark supports. This call reads only column names and types.

    Raises NotFoundError, InvalidArgumentError for a file with an unknown format.
    """
    kind = _kind_of(path)
    given = path if "://" in path else Path(path).absolute().as_uri()
    if kind == "csv":
        read = spark.read.csv(given, header=True)
        for name in read.columns:
            if name.lower() == "partition":
                # Text that is not a number becomes null, which `look_up` refuses.
                read = read.withColumn(name, read[name].try_cast("int"))
        return read
    return spark.read.json(given) if kind == "json" else spark.read.parquet(given)


def _kind_of(path: str) -> str:
    names = [path]
    if "://" not in path:
        local = Path(path)
        if not local.exists():
            raise NotFoundError("the file with the lookup rows does not exist", path=path)
        if local.is_dir():
            names = sorted(entry.name for entry in local.iterdir())
    for name in names:
        kind = KINDS.get(Path(name).suffix.lower())
        if kind is not None:
            return kind
    raise InvalidArgumentError("the lookup rows are in an unknown file format", path=path, expected=", ".join(KINDS))


def epoch_ms(column: Column, kind: DataType) -> Column:
    """Return a column of timestamps, of any accepted type, in epoch ms. Invalid text becomes null."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if isinstance(kind, t.IntegerType | t.LongType):
        return column.cast("bigint")
    if isinstance(kind, t.TimestampType):
        return f.unix_millis(column)
    if isinstance(kind, t.StringType):
        text = f.trim(column)
        # Spark's parser requires seconds, and a colon in the zone offset.
        clock = f.regexp_replace(text, "^([^ T]+[ T][0-9]{2}:[0-9]{2})(?!:)", "$1:00")
        # Text without a zone is UTC. Say so explicitly, because Spark would use the session's time zone.
        zoned = (
            f.when(text.rlike("^[^ T]*$"), f.concat(text, f.lit("T00:00:00Z")))
            .when(
                text.rlike("(?i)([0-9]z|[+-][0-9]{2}(:?[0-9]{2})?)$"),
                f.regexp_replace(clock, "([+-][0-9]{2}):?([0-9]{2})$", "$1:$2"),
            )
            .otherwise(f.concat(clock, f.lit("Z")))
        )
        # Spark would read a time without a date as a time today.
        is_dated = text.rlike("^[+]?[0-9]{4,9}-[0-9]{2}-[0-9]{2}")
        return f.when(text.rlike("^-?[0-9]+$"), text.try_cast("bigint")).when(
            is_dated, f.unix_millis(zoned.try_cast("timestamp"))
        )
    local = column.cast("timestamp_ntz")
    micros = f.timestamp_diff("MICROSECOND", f.lit("1970-01-01").cast("timestamp_ntz"), local)
    return f.floor(micros / f.lit(1000)).cast("bigint")
