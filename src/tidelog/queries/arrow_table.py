"""A table that DuckDB scans through Python: it asks for columns and a filter, and gets a stream of Arrow batches.

DuckDB gives filters and columns only to an Arrow data set, and expects that the data set applies the filters. `ArrowTable` is a
data set to DuckDB, by its class, and uses nothing of the base class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

Read = Callable[[Sequence[str], pc.Expression | None], pa.RecordBatchReader]
"""Returns the rows that pass a filter, with these columns, in order."""


class ArrowTable(ds.Dataset):  # type: ignore[misc] # pyarrow has no types
    """A table with a schema. `read` is called once per scan, perhaps in another thread."""

    def __init__(self, schema: pa.Schema, read: Read) -> None:
        # The base class's __init__ refuses to be called; without it, the object holds no data set of Arrow's own.
        self._columns = schema
        self._read = read

    @property
    def schema(self) -> pa.Schema:
        return self._columns

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> _Scan:
        names = self._columns.names if columns is None else list(columns)
        return _Scan(self._read(names, filter))


class _Scan:
    """One scan, in the form in which DuckDB takes it."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    def to_reader(self) -> pa.RecordBatchReader:
        return self._reader


def rows_table(schema: pa.Schema, rows: Callable[[pc.Expression | None], list[dict[str, Any]]]) -> ArrowTable:
    """Return a table of few rows, which are made when it is scanned; `rows` may use the filter to make fewer."""

    def read(columns: Sequence[str], filter: pc.Expression | None) -> pa.RecordBatchReader:
        found = pa.Table.from_pylist(rows(filter), schema)
        if filter is not None:
            found = found.filter(filter)
        return found.select(columns).to_reader()

    return ArrowTable(schema, read)
