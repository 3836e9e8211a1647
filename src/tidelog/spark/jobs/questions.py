"""The questions of the job `lookup` from files.

| file | how columns are read |
|---|---|
| `.csv` | a header names them; all are text but partition |
| `.json`, `.jsonl` | an object a line; numbers are numbers |
| `.parquet` | as they are |
| a folder | all of its files, of the kind of the first one that is of any |
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}


def read_questions(spark: SparkSession, path: str) -> DataFrame:
    """Return the questions in a file or folder, or at a URL that Spark knows. Nothing but column names and types is read.

    Raises NotFoundError, InvalidArgumentError for a file of another kind.
    """
    kind = _kind_of(path)
    given = path if "://" in path else Path(path).absolute().as_uri()
    if kind == "csv":
        read = spark.read.csv(given, header=True)
        for name in read.columns:
            if name.lower() == "partition":
                # What is no number becomes null, which the look-ups refuse.
                read = read.withColumn(name, read[name].try_cast("int"))
        return read
    return spark.read.json(given) if kind == "json" else spark.read.parquet(given)


def _kind_of(path: str) -> str:
    names = [path]
    if "://" not in path:
        local = Path(path)
        if not local.exists():
            raise NotFoundError("no such file of questions", path=path)
        if local.is_dir():
            names = sorted(entry.name for entry in local.iterdir())
    for name in names:
        kind = KINDS.get(Path(name).suffix.lower())
        if kind is not None:
            return kind
    raise InvalidArgumentError("questions of an unknown kind", path=path, expected=", ".join(KINDS))
