"""Reads JSON Lines files, which have one object per line. The line itself is the row's JSON text, so an import loses nothing.

Arrow's JSON reader parses each line, which checks the line's syntax, and reads only the requested columns. All other fields may
change their type from row to row. A requested column is read as the first of these types that fits:

    integer (64 bits), unsigned integer (64 bits), text, true/false, fractional number

The column keeps that type until a block does not fit. Blank lines and a byte order mark are skipped, and blank lines do not count
as rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson
import pyarrow.types as pt

from tidelog.errors import CorruptDataError, InvalidArgumentError
from tidelog.ingest.source import Rows, Wanted, arrow_errors, slices

_BLOCK_BYTES = 4 << 20
_MAX_LINE_BYTES = 1 << 30
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KINDS = (pa.int64(), pa.uint64(), pa.string(), pa.bool_(), pa.float64())


class JsonLinesSource:
    """A file of JSON objects, one per line."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._path = path
        self._wanted = wanted
        with arrow_errors(path, "JSON Lines"):
            self.size_bytes = path.stat().st_size
        self._kinds: dict[str, pa.DataType] = {}

    def rows(self) -> Iterator[Rows]:
        """Yield the rows. Raises CorruptDataError, with the row's number, for a row that is not a JSON object.

        Raises InvalidArgumentError for a requested column that no row has, or whose values have different types.
        """
        row = 0
        seen: set[str] = set()
        with self._path.open("rb") as file, arrow_errors(self._path, "JSON Lines"):
            for block in _blocks(self._stream(file), self._path):
                lines = self._lines(block, row + 1)
                if not len(lines):
                    continue
                columns = self._columns(lines, row + 1)
                seen.update(name for name in columns.schema.names if columns.column(name).null_count < len(lines))
                whole = pa.RecordBatch.from_arrays([*columns.columns, lines], [*columns.schema.names, "\0line"])
                for part in slices(whole):
                    first_row, row = row + 1, row + part.num_rows
                    texts = part.column(part.num_columns - 1)
                    yield Rows(first_row, part.select(columns.schema.names), texts, min(file.tell(), self.size_bytes))
        missing = [name for name in self._wanted.names() if name not in seen]
        if row and missing:
            raise InvalidArgumentError(f"no row has a value in column {missing[0]!r}", path=self._path)

    def _stream(self, file: io.BufferedReader) -> BinaryIO:
        stream: BinaryIO = file
        if self._path.suffix in (".gz", ".bz2", ".zst", ".lz4"):
            stream = pa.CompressedInputStream(pa.PythonFile(file), pa.Codec.detect(str(self._path)).name)
        return stream

    def _lines(self, block: bytes, first_row: int) -> pa.StringArray:
        """Return the lines of `block` that are not blank, without surrounding white space."""
        text = pa.array([block], pa.binary()).view(pa.string())
        try:
            text.validate(full=True)
        except pa.ArrowInvalid:
            filled = [line for line in block.split(b"\n") if line.strip()]
            row = next(i for i, line in enumerate(filled) if line.decode(errors="replace").encode() != line)
            raise CorruptDataError(f"row {first_row + row} is not UTF-8", path=self._path) from None
        lines = pc.ascii_trim_whitespace(pc.split_pattern(text, "\n").flatten())
        return lines.filter(pc.not_equal(lines, ""))

    def _columns(self, lines: pa.StringArray, first_row: int) -> pa.RecordBatch:
        """Parse `lines` and return the requested columns."""
        names = self._wanted.names()
        kinds = {name: self._kinds.get(name, _KINDS[0]) for name in names}
        try:
            table = _parsed(lines, kinds)
        except pa.ArrowInvalid:
            self._check_syntax(lines, first_row)
            kinds = {name: self._fitting(lines, name) for name in names}
            table = _parsed(lines, kinds)
        if table.num_rows != len(lines) or not _look_like_objects(lines):
            self._check_syntax(lines, first_row)
        self._kinds = kinds
        return table.combine_chunks().to_batches()[0]

    def _fitting(self, lines: pa.StringArray, name: str) -> pa.DataType:
        """Return the first type that fits all values of a column."""
        for kind in _KINDS:
            try:
                _parsed(lines, {name: kind})
            except pa.ArrowInvalid:
                continue
            if pt.is_floating(kind) and name != self._wanted.timestamp:
                break
            return kind
        raise InvalidArgumentError(
            f"column {name!r} has values of mixed or unsupported types",
            path=self._path,
            expected="all text, all integers of 64 bits or all true/false",
        )

    def _check_syntax(self, lines: pa.StringArray, first_row: int) -> None:
        """Raise CorruptDataError for the first line that is not exactly one object. The line is found by bisection, which is fast
        for long blocks.
        """
        low, high = 0, len(lines)
        if _is_objects(lines):
            return
        while high - low > 1:
            middle = (low + high) // 2
            if _is_objects(lines.slice(low, middle - low)):
                low = middle
            else:
                high = middle
        line = lines[low].as_py()
        shown = line if len(line) <= 60 else line[:57] + "..."
        raise CorruptDataError(f"row {first_row + low} is not one JSON object on one line", path=self._path, found=repr(shown))


def _is_objects(lines: pa.StringArray) -> bool:
    """Whether each line is one object."""
    try:
        return _look_like_objects(lines) and bool(_parsed(lines, {"\0none": pa.null()}).num_rows == len(lines))
    except pa.ArrowInvalid:
        return False


def _look_like_objects(lines: pa.StringArray) -> bool:
    """Whether each line begins and ends like an object. If so, no object spans two lines, and counting objects is a sufficient
    check.
    """
    return bool(pc.all(pc.and_(pc.starts_with(lines, "{"), pc.ends_with(lines, "}"))).as_py())


def _parsed(lines: pa.StringArray, kinds: dict[str, pa.DataType]) -> pa.Table:
    text = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")[0].as_buffer()
    return pajson.read_json(
        pa.BufferReader(text),
        read_options=pajson.ReadOptions(use_threads=False, block_size=max(1, text.size)),
        parse_options=pajson.ParseOptions(explicit_schema=pa.schema(kinds), unexpected_field_behavior="ignore"),
    )


def _blocks(stream: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield blocks of whole lines."""
    rest = b""
    start = True
    while True:
        block = stream.read(_BLOCK_BYTES)
        if start:
            block, start = block.removeprefix(_BYTE_ORDER_MARK), False
        if not block:
            break
        cut = block.rfind(b"\n") + 1
        if cut:
            yield rest + block[:cut]
            rest = block[cut:]
        else:
            rest += block
            if len(rest) > _MAX_LINE_BYTES:
                raise CorruptDataError("a line is longer than 1 GiB; JSON Lines has one object per line", path=path)
    if rest:
        yield rest
