"""Writes the rows of a job (`--rows PATH`).

| PATH | output | written by |
|---|---|---|
| ends in `.csv` | one file with a header | this process, row by row |
| ends in `.json` or `.jsonl` | one file, an object per line | the same |
| any other, including Spark's URLs | a folder of Parquet files | Spark's workers |

A file appears atomically. A folder must not exist; that is checked before the job begins.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.cli.printing.layout import show_bytes
from tidelog.cli.printing.output import open_output
from tidelog.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FLUSH_BYTES = 1 << 16


def check_target(target: str, data_dir: str | None) -> None:
    """Raise InvalidArgumentError or NotFoundError for a target that cannot be written; nothing is created yet."""
    if _is_url(target):
        return
    path = Path(target)
    if data_dir is not None and path.resolve().is_relative_to(Path(data_dir).resolve()):
        raise InvalidArgumentError("the rows would be written inside the data folder", path=target)
    if _format_of(target) is None and path.exists():
        raise InvalidArgumentError("the folder for the rows already exists", path=target)
    if not path.absolute().parent.is_dir():
        raise NotFoundError("no such folder", path=path.absolute().parent)


def write_rows(rows: DataFrame, target: str, data_dir: str | None) -> None:
    """Write a job's rows. Raises StorageError, and Spark's own errors for a folder."""
    kind = _format_of(target)
    if kind is None:
        rows.write.parquet(target if _is_url(target) else Path(target).absolute().as_uri())
        return
    lines = _csv_lines(rows) if kind == "csv" else _json_lines(rows)
    with open_output(target, format_name=kind, binary=False, data_dir=data_dir) as out:
        for line in lines:
            out.write(line.encode("utf-8", "surrogateescape"))


def json_object(values: dict[str, Any]) -> str:
    """Return an object as a compact JSON line in ASCII. Values of types that JSON lacks become text."""
    return json.dumps(values, separators=(",", ":"), default=_plain)


def _json_lines(rows: DataFrame) -> Iterator[str]:
    for row in rows.toLocalIterator():
        yield f"{json_object(row.asDict(recursive=True))}\n"


def _csv_lines(rows: DataFrame) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(rows.columns)
    for row in rows.toLocalIterator():
        writer.writerow([_cell(value) for value in row])
        if buffer.tell() >= FLUSH_BYTES:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    return _plain(value) if isinstance(value, bytes | bytearray | date) else json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return show_bytes(bytes(value))
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value.asDict(recursive=True) if hasattr(value, "asDict") else str(value)


def _format_of(target: str) -> str | None:
    return {".csv": "csv", ".json": "json", ".jsonl": "json"}.get(Path(target).suffix.lower())


def _is_url(target: str) -> bool:
    return "://" in target
