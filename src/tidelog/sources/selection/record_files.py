"""Arrow batches of records as JSON lines, Arrow or Parquet, written to a stream in bounded memory.

| format | output |
|---|---|
| jsonl | a line per record: `{"topic","partition","offset","timestamp","timestamp_type","key","value","headers"}` |
| arrow | an IPC stream, or an IPC file if the output is a file that does not end in `.arrows` |
| parquet | row groups of about 64 MiB |

In jsonl, `timestamp` is epoch milliseconds or null, `timestamp_type` Kafka's name, `headers` a list of [key, value]; keys and
values are text (`utf8`: bytes that are not UTF-8 become U+FFFD, and are counted) or base64, which keeps every byte.

The writers do not depend on the source of the records. pyarrow is imported only for its formats.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_A_TIME = 1024
"""Rows turned into Python objects at once; a batch may have many more."""

ROW_GROUP_BYTES = 64 << 20

TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
"""Kafka's ids of timestamp types, and their names."""


class RecordRow(NamedTuple):
    """One record in Python objects; `timestamp` in epoch milliseconds, None without one."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[dict[str, Any]]


class Encoding:
    """Converts bytes to text, as `utf8` or `base64`. Counts the values that are not valid UTF-8."""

    def __init__(self, name: str) -> None:
        self.is_base64 = name == "base64"
        self.replaced = 0

    def __call__(self, data: bytes | None) -> str | None:
        if data is None:
            return None
        if self.is_base64:
            return b64encode(data).decode("ascii")
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.replaced += 1
            return data.decode("utf-8", "replace")

    def notices(self) -> list[str]:
        """Return notices about values that utf8 could not represent."""
        if not self.replaced:
            return []
        what = "1 key or value is" if self.replaced == 1 else f"{self.replaced:,} keys or values are"
        return [f"{what} not UTF-8; undecodable bytes became U+FFFD (--encoding base64 keeps every byte)"]


def write_jsonl(batches: Iterable[pa.RecordBatch], out: BinaryIO, encoding: Encoding) -> None:
    """Write a JSON object for each record."""
    # UTF-8 rather than escapes, because there are many records.
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    for row in record_rows(batches):
        line = encode(
            {
                "topic": row.topic,
                "partition": row.partition,
                "offset": row.offset,
                "timestamp": row.timestamp,
                "timestamp_type": TIMESTAMP_TYPES[row.timestamp_type],
                "key": encoding(row.key),
                "value": encoding(row.value),
                "headers": [[header["key"], encoding(header["value"])] for header in row.headers],
            }
        )
        out.write(line.encode() + b"\n")


def write_arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: BinaryIO, *, as_file: bool) -> None:
    """Write an Arrow IPC stream, or a file, which also has an index of its batches at the end."""
    import pyarrow as pa

    new = pa.ipc.new_file if as_file else pa.ipc.new_stream
    with new(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: BinaryIO) -> None:
    """Write a Parquet file; batches are combined into row groups of about `ROW_GROUP_BYTES`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(out, schema) as writer:
        gathered: list[pa.RecordBatch] = []
        gathered_bytes = 0
        for batch in batches:
            gathered.append(batch)
            gathered_bytes += batch.nbytes
            if gathered_bytes >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(gathered, schema))
                gathered, gathered_bytes = [], 0
        if gathered:
            writer.write_table(pa.Table.from_batches(gathered, schema))


def record_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[RecordRow]:
    """Yield the records as Python objects."""
    import pyarrow as pa

    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_A_TIME):
            part = batch.slice(start, ROWS_AT_A_TIME)
            columns = [
                # Python's datetime ends with the year 9999, timestamps do not.
                (part.column(name).cast(pa.int64()) if name == "timestamp" else part.column(name)).to_pylist()
                for name in RecordRow._fields
            ]
            yield from map(RecordRow._make, zip(*columns, strict=True))
