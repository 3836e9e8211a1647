"""Writes Arrow batches of records to a stream as JSON lines, Arrow or Parquet, in bounded memory.

| format | output |
|---|---|
| jsonl | a line per record: `{"topic","partition","offset","timestamp","timestamp_type","key","value","headers"}` |
| arrow | an IPC stream, or an IPC file if the output is a file that does not end in `.arrows` |
| parquet | row groups of about 4 MiB, or one larger record |

In jsonl, `timestamp` is in epoch milliseconds or null, `timestamp_type` is Kafka's name, and `headers` is a list of [key, value].
With `utf8`, keys and values are text; bytes that are not UTF-8 become U+FFFD, and such keys and values are counted. With `base64`
every byte is kept. A value that was decoded into JSON is written as JSON. If a value could not be decoded, `value` is null and
`value_undecoded` has its bytes in base64.

The writers do not depend on the kind of source. pyarrow is imported only for Arrow and Parquet.
"""

from __future__ import annotations

import json
from base64 import b64encode
from codecs import getincrementaldecoder
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

REPLACEMENT = "\ufffd".encode()

ROWS_AT_A_TIME = 1024
"""Rows that are converted to Python objects at once. A batch may have many more."""

BYTES_AT_A_TIME = 1 << 20
"""If `ROWS_AT_A_TIME` rows have more bytes than this, fewer rows are converted at once. Larger keys and values are written in
pieces of about this size.
"""

ROW_GROUP_BYTES = 4 << 20

LARGE_VALUES = 64 << 10
"""If records have more bytes than this, Parquet values are written without a dictionary."""


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

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield the content of a JSON string for the data (without the quotes), piece by piece."""
        if self.is_base64 and not isinstance(data, DecodedText):
            yield from _in_base64(data)
            return
        decode = getincrementaldecoder("utf-8")("replace").decode
        replaced = data.count(REPLACEMENT)
        for start in range(0, len(data), BYTES_AT_A_TIME):
            end = start + BYTES_AT_A_TIME
            text = decode(data[start:end], end >= len(data))
            replaced -= text.count("\ufffd")
            yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
        self.replaced += replaced < 0

    def notices(self) -> list[str]:
        """Return notices about values that utf8 could not represent."""
        if not self.replaced:
            return []
        what = "1 key or value is" if self.replaced == 1 else f"{self.replaced:,} keys or values are"
        return [f"{what} not UTF-8; undecodable bytes became U+FFFD (encoding base64 keeps every byte)"]


def write_jsonl(
    batches: Iterable[pa.RecordBatch], out: BinaryIO, encoding: Encoding, also: Mapping[str, object] | None = None
) -> None:
    """Write a JSON object for each record. The fields in `also` are added to every object."""
    also = also or {}
    # UTF-8 rather than escapes, because there are many records.
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    for row in record_rows(batches):
        is_large = max(len(row.key or b""), len(row.value or b"")) > BYTES_AT_A_TIME
        fields: dict[str, object] = {
            "topic": row.topic,
            "partition": row.partition,
            "offset": row.offset,
            "timestamp": row.timestamp,
            "timestamp_type": TIMESTAMP_TYPES[row.timestamp_type],
            "key": None if is_large else encoding(row.key),
            "value": None if is_large else encoding(row.value),
            "headers": [[header["key"], encoding(header["value"])] for header in row.headers],
            **also,
        }
        if is_large:
            for piece in _large_line(row, fields, encoding):
                out.write(piece)
        elif type(row.key) in _DECODED or type(row.value) in _DECODED:
            out.write(("{" + ",".join(_members(row, fields, encode)) + "}\n").encode())
        else:
            out.write(encode(fields).encode() + b"\n")
        del row, fields  # The next record may be just as large, so free this one first.


_DECODED = (DecodedJson, Undecoded)


def _members(row: RecordRow, fields: Mapping[str, object], encode: Callable[[object], str]) -> Iterator[str]:
    """Yield the members of a record's JSON object. Decoded JSON is inserted unchanged. For undecoded bytes the member is null,
    and a second member has the bytes in base64.
    """
    for name, value in fields.items():
        data = row.key if name == "key" else row.value if name == "value" else None
        if isinstance(data, DecodedJson):
            yield f'"{name}":{data.decode()}'
        elif isinstance(data, Undecoded):
            yield f'"{name}":null,"{name}_undecoded":"{b64encode(data).decode("ascii")}"'
        else:
            yield f"{encode(name)}:{encode(value)}"


def _large_line(row: RecordRow, fields: Mapping[str, object], encoding: Encoding) -> Iterator[bytes]:
    """Yield a record's line in pieces. Each complete copy of the line would need as much memory as the record."""
    mark = "{"
    for name, value in fields.items():
        data = row.key if name == "key" else row.value if name == "value" else None
        yield f'{mark}"{name}":'.encode()
        mark = ","
        if isinstance(data, DecodedJson):
            yield data
        elif isinstance(data, Undecoded):
            yield f'null,"{name}_undecoded":"'.encode()
            yield from _in_base64(data)
            yield b'"'
        elif data is not None:
            yield b'"'
            yield from encoding.pieces(data)
            yield b'"'
        else:
            yield json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    yield b"}\n"


def _in_base64(data: bytes) -> Iterator[bytes]:
    size = BYTES_AT_A_TIME // 3 * 3
    return (b64encode(data[start : start + size]) for start in range(0, len(data), size))


def write_arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: BinaryIO, *, as_file: bool) -> None:
    """Write an Arrow IPC stream, or an IPC file, which ends with an index of its batches."""
    import pyarrow as pa

    new = pa.ipc.new_file if as_file else pa.ipc.new_stream
    with new(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: BinaryIO) -> None:
    """Write a Parquet file; batches are combined into row groups of about `ROW_GROUP_BYTES`.

    Offsets and timestamps hardly repeat, so they get no dictionary: it would cost memory and space in the file. If the first
    records have large values, values get no dictionary and no statistics either, because each would copy the values.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups = _row_groups(batches, schema)
    first = next(groups, None)
    columns: list[str] | bool = True
    statistics: list[str] | bool = True
    if RecordRow._fields == tuple(schema.names) and pa.types.is_binary(schema.field("value").type):
        headers = ["headers.list.element.key", "headers.list.element.value"]
        columns = ["topic", "partition", "timestamp_type", "key", "value", *headers]
        if first is not None and first.nbytes > LARGE_VALUES * first.num_rows:
            columns.remove("value")
            statistics = [*columns, "offset", "timestamp"]
    with pq.ParquetWriter(out, schema, use_dictionary=columns, write_statistics=statistics) as writer:
        while first is not None:
            writer.write_table(first)
            first = None  # The next batch may be just as large, so free this one first.
            first = next(groups, None)


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    import pyarrow as pa

    gathered: list[pa.RecordBatch] = []
    gathered_bytes = 0
    for batch in batches:
        gathered.append(batch)
        gathered_bytes += batch.nbytes
        del batch
        if gathered_bytes >= ROW_GROUP_BYTES:
            group, gathered, gathered_bytes = pa.Table.from_batches(gathered, schema), [], 0
            yield group
            del group
    if gathered:
        yield pa.Table.from_batches(gathered, schema)


def record_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[RecordRow]:
    """Yield the records as Python objects."""
    import pyarrow as pa

    for batch in batches:
        rows = max(1, min(ROWS_AT_A_TIME, batch.num_rows * BYTES_AT_A_TIME // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, rows):
            part = batch.slice(start, rows)
            columns = [
                # Timestamps may be after the year 9999, the last that `datetime` supports. A cast would import pyarrow.compute.
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
            del columns
