"""Arrow batches of records as text for people, and as CSV. `sources/selection/record_files.py` has the formats for programs.

| format | output |
|---|---|
| text | a line per record: time, partition, offset, key, value, headers; harmless to a terminal, and unambiguous |
| csv | a header, and a line per record; headers as JSON |
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO

from tidelog.cli.printing import terminal
from tidelog.cli.printing.layout import NOTHING, csv_lines, show_bytes, table
from tidelog.sources.selection.record_files import DecodedText, Encoding, record_rows
from tidelog.times import format_time

if TYPE_CHECKING:
    import pyarrow as pa

CSV_HEADER = ("topic", "partition", "offset", "time", "key", "value", "headers")

TEXT_HEADER = ("time", "partition", "offset", "key", "value", "headers")


def write_text(
    batches: Iterable[pa.RecordBatch],
    out: BinaryIO,
    encoding: Encoding,
    *,
    with_header: bool,
    with_topic: bool = False,
    to_stdout: bool = True,
) -> None:
    """Write a line for each record, for people."""
    header = ("topic", *TEXT_HEADER) if with_topic else TEXT_HEADER
    styles = ["", terminal.DIM] if with_topic else [terminal.DIM]
    cells = _text_cells(batches, encoding, with_topic)
    for line in table(header if with_header else None, cells, styles=styles, to_stdout=to_stdout):
        # Header names may contain invalid Unicode; a line must still be printed.
        out.write(line.encode("utf-8", "backslashreplace") + b"\n")


def write_csv(
    batches: Iterable[pa.RecordBatch], out: BinaryIO, encoding: Encoding, also: Mapping[str, object] | None = None
) -> None:
    """Write a CSV header line, then a line for each record. Record headers are written as JSON, nulls as empty cells. The cells
    in `also` are added to every line.
    """
    also = also or {}
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

    def cells() -> Iterator[Sequence[object]]:
        yield *CSV_HEADER, *also
        for row in record_rows(batches):
            headers = encode([[header["key"], encoding(header["value"])] for header in row.headers]) if row.headers else None
            time = None if row.timestamp is None else format_time(row.timestamp)
            yield row.topic, row.partition, row.offset, time, encoding(row.key), encoding(row.value), headers, *also.values()

    for line in csv_lines(cells()):
        out.write(line.encode("utf-8", "backslashreplace") + b"\n")


def _text_cells(batches: Iterable[pa.RecordBatch], encoding: Encoding, with_topic: bool) -> Iterator[list[object]]:
    show = _show_base64 if encoding.is_base64 else show_bytes
    for row in record_rows(batches):
        time = NOTHING if row.timestamp is None else format_time(row.timestamp)
        cells: list[object] = [row.topic] if with_topic else []
        cells += [time, row.partition, row.offset, show(row.key), show(row.value)]
        if row.headers:
            cells.append(" ".join(f"{header['key']}={show(header['value'])}" for header in row.headers))
        yield cells


def _show_base64(data: bytes | None) -> str:
    if isinstance(data, DecodedText):
        return show_bytes(data)
    return "<null>" if data is None else b64encode(data).decode("ascii")
