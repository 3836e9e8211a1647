"""Writes Arrow batches of records to a stream as JSON lines, Arrow or Parquet, in bounded memory.

| format | output |
|---|---|
| jsonl | a line per record: `{"topic","partition","offset","timestamp","timestamp_type","key","value","headers"}` |
| arrow | an IPC stream, or an IPC file if the output is a file that does not end in `.arrows` |
| parquet | row groups of about 64 MiB |

In jsonl, `timestamp` is in epoch milliseconds or null, `timestamp_type` is Kafka's name, and `headers` is a list of [key, value].
Keys and values are text with `utf8`: bytes that are not UTF-8 become U+FFFD, and are counted. With `base64` every byte is kept. A
value that was decoded into JSON is JSON. If a value could not be decoded, `value` is null and `value_undecoded` has its bytes in
base64.

The writers do not depend on the kind of source. pyarrow is imported only for Arrow and Parquet.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
"""Kafka's ids of timestamp types, and their names."""

FORM = "_form"
"""The suffix of the columns that say whether a decoded `key` or `value` is text, JSON or undecoded bytes
(`selection/decoded_records.py`)."""

RAW, TEXT, JSON, UNDECODED = range(4)

ROWS_AT_A_TIME = 1024
"""Rows that are converted to Python objects at once. A batch may have many more."""

ROW_GROUP_BYTES = 64 << 20


class DecodedText(bytes):
    """A key or value as text, in UTF-8."""


class DecodedJson(DecodedText):
    """A key or value as JSON."""


class Undecoded(bytes):
    """A key or value that could not be decoded."""


_FORMS: dict[int, type[bytes]] = {RAW: bytes, TEXT: DecodedText, JSON: DecodedJson, UNDECODED: Undecoded}


class RecordRow(NamedTuple):
    """One record as Python objects. `timestamp` is in epoch milliseconds, None if the record has none."""

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
        if isinstance(data, DecodedText):
            return data.decode()
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


def write_jsonl(
    batches: Iterable[pa.RecordBatch], out: BinaryIO, encoding: Encoding, also: Mapping[str, object] | None = None
) -> None:
    """Write a JSON object for each record. `also` are additional fields of every object."""
    also = also or {}
    # UTF-8 rather than escapes, because there are many records.
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    for row in record_rows(batches):
        fields = {
            "topic": row.topic,
            "partition": row.partition,
            "offset": row.offset,
            "timestamp": row.timestamp,
            "timestamp_type": TIMESTAMP_TYPES[row.timestamp_type],
            "key": encoding(row.key),
            "value": encoding(row.value),
            "headers": [[header["key"], encoding(header["value"])] for header in row.headers],
            **also,
        }
        if type(row.key) in _DECODED or type(row.value) in _DECODED:
            line = "{" + ",".join(_members(row, fields, encode)) + "}"
        else:
            line = encode(fields)
        out.write(line.encode() + b"\n")


_DECODED = (DecodedJson, Undecoded)


def _members(row: RecordRow, fields: Mapping[str, object], encode: Callable[[object], str]) -> Iterator[str]:
    """Yield the members of a line. Decoded JSON is inserted unchanged. Undecoded bytes are base64 in a further member, beside
    a null.
    """
    for name, value in fields.items():
        data = row.key if name == "key" else row.value if name == "value" else None
        if isinstance(data, DecodedJson):
            yield f'"{name}":{data.decode()}'
        elif isinstance(data, Undecoded):
            yield f'"{name}":null,"{name}_undecoded":"{b64encode(data).decode("ascii")}"'
        else:
            yield f"{encode(name)}:{encode(value)}"


def write_arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: BinaryIO, *, as_file: bool) -> None:
    """Write an Arrow IPC stream, or an IPC file, which ends with an index of its batches."""
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
                # Timestamps may be later than 9999, where Python's datetime ends. A cast would import pyarrow.compute.
                (part.column(name).view(pa.int64()) if name == "timestamp" else part.column(name)).to_pylist()
                for name in RecordRow._fields
            ]
            for side in ("key", "value"):
                if side + FORM in part.schema.names:
                    place = RecordRow._fields.index(side)
                    forms = part.column(side + FORM).to_pylist()
                    columns[place] = [
                        None if data is None else _FORMS[form](data) for data, form in zip(columns[place], forms, strict=True)
                    ]
            yield from map(RecordRow._make, zip(*columns, strict=True))
