r"""`-f FORMAT`: prints records in a user-defined format, with kcat's letters.

| | |
|---|---|
| `%t` `%p` `%o` | topic, partition, offset |
| `%T` | timestamp in epoch milliseconds, -1 without one |
| `%k` `%K` | key, nothing for null; its length in bytes, -1 for null |
| `%s` `%S` | value, nothing for null; its length in bytes, -1 for null |
| `%R` | the value's length as a big-endian int32 |
| `%h` | headers: `name=value`, with commas between; `NULL` for a null value |
| `%%` | a percent sign |
| `\n` `\t` `\r` `\e` `\\` `\xNN` | a line feed, a tab, a carriage return, an escape, a backslash, a byte |

Keys and values are written unchanged, so their control characters reach the terminal.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, BinaryIO

from tidelog.errors import InvalidArgumentError
from tidelog.sources.selection.record_files import RecordRow, record_rows

if TYPE_CHECKING:
    import pyarrow as pa

Part = Callable[[RecordRow], bytes]

_TOKEN = re.compile(r"%(.)|\\x([0-9A-Fa-f]{2})|\\(.)|([^%\\]+)|([%\\])", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "e": b"\x1b", "\\": b"\\", "0": b"\0"}


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(row: RecordRow) -> bytes:
    return b",".join(
        header["key"].encode("utf-8", "surrogateescape") + b"=" + (b"NULL" if header["value"] is None else header["value"])
        for header in row.headers
    )


_LETTERS: dict[str, Part] = {
    "t": lambda row: row.topic.encode(),
    "p": lambda row: b"%d" % row.partition,
    "o": lambda row: b"%d" % row.offset,
    "T": lambda row: b"%d" % (-1 if row.timestamp is None else row.timestamp),
    "k": lambda row: row.key or b"",
    "K": lambda row: b"%d" % _length(row.key),
    "s": lambda row: row.value or b"",
    "S": lambda row: b"%d" % _length(row.value),
    "R": lambda row: struct.pack(">i", _length(row.value)),
    "h": _headers,
}


def parse_format(text: str) -> list[Part]:
    """Parse a format into its parts. Raises InvalidArgumentError for an unknown letter or escape."""
    parts: list[Part] = []
    for letter, code, escape, plain, stray in _TOKEN.findall(text):
        if letter in _LETTERS:
            parts.append(_LETTERS[letter])
        elif letter == "%":
            parts.append(_constant(b"%"))
        elif code:
            parts.append(_constant(bytes.fromhex(code)))
        elif escape in _ESCAPES:
            parts.append(_constant(_ESCAPES[escape]))
        elif plain:
            parts.append(_constant(plain.encode("utf-8", "surrogateescape")))
        else:
            unknown = f"%{letter}" if letter else f"\\{escape}" if escape else stray
            expected = f"%{', %'.join(_LETTERS)}, %%, \\n, \\t, \\xNN"
            raise InvalidArgumentError("-f has an unknown placeholder", found=unknown, expected=expected)
    return parts


def write_formatted(batches: Iterable[pa.RecordBatch], out: BinaryIO, parts: list[Part]) -> None:
    """Write each record in the format that `parse_format` has parsed into `parts`."""
    for row in record_rows(batches):
        out.write(b"".join([part(row) for part in parts]))


def _constant(data: bytes) -> Part:
    return lambda row: data
