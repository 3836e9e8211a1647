"""Reads CSV files with a header line into typed columns, without loss of information.

Arrow infers types from the first block only. This reader determines the types over the whole file before it yields the first row,
so a later row can neither fail the import nor be converted to a wrong type::

    pass 1  read with inferred types; if a value does not fit, widen the column and start over:
            nothing → any type, integer → double, date or coarse timestamp → finer timestamp, anything else → text
    pass 2  check the text of numeric columns: leading zeros or plus signs (zip codes, phone numbers), or integers
            too long for 64 bits that Arrow would round to doubles, make the column text
    then    the rows

Null texts (empty, ``NA``, ``null``, ...) are null in typed columns and stay text in text columns. Unlike in Arrow, ``nan`` is not
a null text but a floating-point value.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.types as pt

from tidelog.errors import CorruptDataError, InvalidArgumentError
from tidelog.ingest.progress import Position, ProgressMaker, silent
from tidelog.ingest.source import Rows, Wanted, arrow_errors, check_columns, slices

_SHOWN_CHARACTERS = 60
_BLOCK_BYTES = 1 << 20  # Arrow reads 32 blocks ahead.
_MAX_BLOCK_BYTES = 1 << 30
_NULLS = ["", "#N/A", "#N/A N/A", "#NA", "N/A", "NA", "NULL", "n/a", "null"]
_MISFIT = re.compile(r"In CSV column #(\d+):.*?CSV conversion error to [^:]*: invalid value '(.*)'$", re.DOTALL)
_MISFIT_COLUMN = re.compile(r"In CSV column #(\d+):")
_LOSES_ZEROS = r"^[+-]?0[0-9]|^\+"
_LOSES_DIGITS = r"^[+-]?[0-9]{16,}$"


class CsvSource:
    """A CSV file. Raises InvalidArgumentError if a requested column is missing, CorruptDataError if the file is not CSV."""

    def __init__(
        self,
        path: Path,
        wanted: Wanted,
        *,
        as_text: bool = False,
        delimiter: str | None = None,
        progress: ProgressMaker = silent,
    ) -> None:
        if delimiter is not None and not (len(delimiter) == 1 and delimiter.isascii() and delimiter not in '"\r\n'):
            raise InvalidArgumentError(
                "the delimiter must be one ASCII character other than a quote or a line break", found=repr(delimiter)
            )
        self._path = path
        self._delimiter = delimiter or ("\t" if ".tsv" in path.suffixes else ",")
        self._block_bytes = _BLOCK_BYTES
        self._progress = progress
        with arrow_errors(path, "CSV"):
            self.size_bytes = path.stat().st_size
            self._names = self._header()
            check_columns(path, wanted, self._names)
            self._columns = self._names if wanted.value is None else wanted.names()
            self._types: dict[str, pa.DataType] = dict.fromkeys(self._columns, pa.string()) if as_text else {}
            self._settle_types()
            if not as_text:
                self._keep_digits()

    def rows(self) -> Iterator[Rows]:
        """Yield the rows with the determined types."""
        row = 0
        with self._file() as file, arrow_errors(self._path, "CSV"):
            for batch in self._open(file, self._columns, self._types):
                for part in slices(batch):
                    first_row, row = row + 1, row + part.num_rows
                    yield Rows(first_row, part, None, min(file.tell(), self.size_bytes))

    def _header(self) -> list[str]:
        while True:
            try:
                with self._file() as file:
                    return list(self._open(file, None, {}).schema.names)
            except pa.ArrowInvalid as error:
                self._widen(error, {})

    def _settle_types(self) -> None:
        """Read the file repeatedly, and widen types until every value fits the type of its column."""
        # Text after an unclosed quote ends up in the last column, so read the last column too.
        unread = [self._names[-1]] if self._names[-1] not in self._columns else []
        while True:
            types: dict[str, pa.DataType] = {}
            try:
                with self._file() as file, self._progress(f"reading types of {self._path.name}", self.size_bytes) as bar:
                    position = Position(bar)
                    reader = self._open(file, [*self._columns, *unread], self._types | dict.fromkeys(unread, pa.binary()))
                    types = dict(zip(reader.schema.names, reader.schema.types, strict=True))
                    last = None
                    for batch in reader:
                        last = batch if batch.num_rows else last
                        position.reach(file.tell())
            except pa.ArrowInvalid as error:
                self._widen(error, types)
                continue
            self._types = {name: kind for name, kind in types.items() if name not in unread}
            break
        if last is None:
            self._check_quotes(self._names[-1])
        else:
            self._check_quotes(last.column(last.schema.get_all_field_indices(self._names[-1])[-1])[-1].as_py())
        for name, kind in self._types.items():
            if pt.is_binary(kind):
                raise InvalidArgumentError(f"column {name!r} has text that is not UTF-8", path=self._path)

    def _check_quotes(self, last_value: object) -> None:
        """Raise CorruptDataError if the file's last value contains whole lines because its quote is never closed."""
        text = last_value.decode(errors="replace") if isinstance(last_value, bytes) else last_value
        if not isinstance(text, str) or not re.search("[\r\n]", text):
            return
        end = b""
        with self._file() as file:
            stream = self._stream(file)
            while block := stream.read(_BLOCK_BYTES):
                end = block.rstrip() or end
        if not end.endswith(b'"'):
            start = text.splitlines()[0][:_SHOWN_CHARACTERS]
            raise CorruptDataError("a quote is never closed", path=self._path, found=repr(f'"{start}'))

    def _widen(self, error: pa.ArrowInvalid, types: dict[str, pa.DataType]) -> None:
        """Widen a column's type or increase the block size, depending on `error`. Raise `error` again if it has a different
        cause.
        """
        text = str(error)
        long_row = "straddling object" in text
        long_header = "Empty CSV file or block" in text and self._block_bytes < self.size_bytes
        if (long_row or long_header) and self._block_bytes < _MAX_BLOCK_BYTES:
            self._block_bytes *= 4
            return
        column = _MISFIT_COLUMN.search(text)
        if not types or column is None or "conversion error" not in text:
            raise error
        name = self._names[int(column[1])]  # The number counts the file's columns, not the columns that are read.
        before = types[name]
        if pt.is_string(before):
            raise error
        misfit = _MISFIT.search(text)
        self._types = types | {name: pa.string() if misfit is None else _wider(before, _type_of(misfit[2]))}

    def _keep_digits(self) -> None:
        """Turn numeric columns into text if their numbers would lose digits."""
        numeric = [name for name, kind in self._types.items() if pt.is_integer(kind) or pt.is_floating(kind)]
        suspects = set(numeric)
        if not numeric:
            return
        with self._file() as file, self._progress(f"reading numbers of {self._path.name}", self.size_bytes) as bar:
            position = Position(bar)
            for batch in self._open(file, numeric, dict.fromkeys(numeric, pa.string())):
                position.reach(file.tell())
                for name in sorted(suspects):
                    pattern = f"{_LOSES_ZEROS}|{_LOSES_DIGITS}" if pt.is_floating(self._types[name]) else _LOSES_ZEROS
                    if pc.any(pc.match_substring_regex(batch.column(name), pattern)).as_py():
                        self._types[name] = pa.string()
                        suspects.discard(name)

    def _file(self) -> pa.NativeFile:
        # Arrow reads ahead on its own threads. With a Python file they would wait for the interpreter, and an interrupted run
        # would abort or never end.
        return pa.OSFile(os.fsencode(self._path))

    def _stream(self, file: pa.NativeFile) -> pa.NativeFile:
        compressed = pa.Codec.detect(str(self._path)) if self._path.suffix in (".gz", ".bz2", ".zst", ".lz4") else None
        return pa.CompressedInputStream(file, compressed.name) if compressed else file

    def _open(self, file: pa.NativeFile, columns: list[str] | None, types: dict[str, pa.DataType]) -> pacsv.CSVStreamingReader:
        return pacsv.open_csv(
            self._stream(file),
            read_options=pacsv.ReadOptions(block_size=self._block_bytes),
            parse_options=pacsv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(
                include_columns=columns, column_types=types, strings_can_be_null=False, null_values=_NULLS
            ),
        )


def _type_of(value: str) -> pa.DataType:
    """Return the type that Arrow infers for one value."""
    quoted = '"' + value.replace('"', '""') + '"'
    options = pacsv.ParseOptions(newlines_in_values=True)
    conversion = pacsv.ConvertOptions(null_values=_NULLS)
    return pacsv.read_csv(io.BytesIO(f"x\n{quoted}\n".encode()), parse_options=options, convert_options=conversion).schema.types[
        0
    ]


def _wider(before: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type that fits the values of both types, or text if no other type does."""
    if pt.is_null(before):
        return other if not pt.is_null(other) else pa.string()
    if pt.is_integer(before) and pt.is_floating(other):
        return other
    if pt.is_timestamp(before) and pt.is_timestamp(other) and before.tz == other.tz and before.unit != other.unit:
        return pa.timestamp("ns", before.tz)
    if pt.is_date(before) and pt.is_timestamp(other) and other.tz is None:
        return other
    return pa.string()
