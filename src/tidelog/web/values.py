"""Keys, values and headers in the form of a response: as text or as hexadecimal digits, limited in length.

| kind | field | if |
|---|---|---|
| null | | there is no key or value |
| json | text | it is JSON and was not cut |
| text | text | it is UTF-8, or its beginning is |
| bytes | hex | it is not UTF-8 |

Only the first `limit` bytes of a value are copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.sources.selection.row_bytes import row_bytes
from tidelog.web.context import Answer, known_ms, plain

if TYPE_CHECKING:
    import pyarrow as pa


class Decoder(Protocol):
    """Decodes keys and values for display (`decoded`)."""

    is_hex: set[str]
    """Which of `key` and `value` are shown as hexadecimal digits."""

    def cells(self, batch: pa.RecordBatch, numbers: Sequence[int], limit: int) -> dict[str, list[Answer | None]]:
        """Return the cells of some rows, for `key`, `value` or both, whichever is decoded."""


CELL_BYTES = 4096
"""The most bytes of a key or value in a list of records."""

HEADER_BYTES = 1024
HEADERS_BYTES = 16 * 1024
"""The most bytes of a header's name or value in a list, and about the most bytes of all headers of a record."""

ROWS_DECODED = 32
"""Rows that are decoded at once. Each holds up to 1 MiB of its key and of its value."""

ROW_BYTES = 100
"""About how many bytes a row or a header needs in a response, besides its content."""


def cell(data: bytes | None, size: int, *, is_hex: bool = False) -> Answer:
    """Return the cell of a key or value. `data` is its beginning, `size` its whole size."""
    if data is None:
        return {"kind": "null", "size": 0, "cut": False}
    is_cut = len(data) < size
    text = None if is_hex else _text(data, is_cut)
    if text is None:
        return {"kind": "bytes", "size": size, "cut": is_cut, "hex": data.hex()}
    kind = "json" if not is_cut and _is_json(text) else "text"
    return {"kind": kind, "size": size, "cut": is_cut, "text": text}


def _text(data: bytes, is_cut: bool) -> str | None:
    for lost in range(4 if is_cut else 1):  # The cut may split a character of up to four bytes.
        try:
            return data[: len(data) - lost].decode("utf-8")
        except UnicodeDecodeError as error:
            if error.start < len(data) - 4:
                return None
    return None


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def rows(
    batch: pa.RecordBatch, numbers: Sequence[int] | None = None, *, decoding: Decoder | None = None, limit: int = CELL_BYTES
) -> Iterator[tuple[Answer, int]]:
    """Yield the rows `numbers` of a batch (None for all), each with its size in the response. Keys and values are cut to `limit`
    bytes.
    """
    import pyarrow as pa

    partitions, offsets, types = (batch.column(name) for name in ("partition", "offset", "timestamp_type"))
    times = batch.column("timestamp").cast(pa.int64())
    keys, values, headers = (batch.column(name) for name in ("key", "value", "headers"))
    wanted = range(batch.num_rows) if numbers is None else numbers
    is_hex: set[str] = set() if decoding is None else decoding.is_hex
    decoded: dict[str, list[Answer | None]] = {}
    for place, row in enumerate(wanted):
        if decoding is not None and place % ROWS_DECODED == 0:
            decoded = decoding.cells(batch, wanted[place : place + ROWS_DECODED], limit)
        key, key_size = beginning(keys, row, limit)
        value, value_size = beginning(values, row, limit)
        shown, header_bytes = _headers(headers[row])
        yield (
            {
                "partition": partitions[row].as_py(),
                "offset": plain(offsets[row].as_py()),
                "timestamp_ms": known_ms(times[row].as_py()),
                "timestamp_type": types[row].as_py(),
                "key": _decoded(decoded, "key", place) or cell(key, key_size, is_hex="key" in is_hex),
                "value": _decoded(decoded, "value", place) or cell(value, value_size, is_hex="value" in is_hex),
                "headers": shown,
                "headers_cut": len(shown) < len(headers[row]),
            },
            ROW_BYTES + len(key or b"") + len(value or b"") + header_bytes,
        )


def _decoded(decoded: dict[str, list[Answer | None]], side: str, place: int) -> Answer | None:
    return decoded[side][place % ROWS_DECODED] if side in decoded else None


def beginning(array: pa.Array, row: int, limit: int) -> tuple[bytes | None, int]:
    """Return up to `limit` bytes of a row of a binary, binary_view or string array, and its whole size."""
    held = row_bytes(array, row)
    return (None, 0) if held is None else (held.slice(0, min(limit, held.size)).to_pybytes(), held.size)


def _headers(scalar: Any) -> tuple[list[Answer], int]:
    found: list[Answer] = []
    used = 0
    entries = scalar.values
    for index in range(len(entries)):
        if used > HEADERS_BYTES:
            break
        name, size = beginning(entries.field("key"), index, HEADER_BYTES)
        value, value_size = beginning(entries.field("value"), index, HEADER_BYTES)
        shown = cell(name, size)
        found.append({"key": shown.get("text") or shown.get("hex", ""), "value": cell(value, value_size)})
        used += ROW_BYTES + len(name or b"") + len(value or b"")
    return found, used
