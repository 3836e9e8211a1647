"""A table that DuckDB scans through Python: DuckDB passes columns and a filter, and gets a stream of Arrow batches.

DuckDB passes filters and columns only to an Arrow data set, and expects that the data set applies the filters. So `ArrowTable` is
a subclass of Arrow's `Dataset`, but uses nothing of its implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

Read = Callable[[Sequence[str], pc.Expression | None], pa.RecordBatchReader]
"""Returns the rows that pass a filter. The columns are in the given order."""


class ArrowTable(ds.Dataset):  # type: ignore[misc] # pyarrow has no types
    """A table with a schema. `read` is called once per scan, possibly in another thread."""

    def __init__(self, schema: pa.Schema, read: Read) -> None:
        # The __init__ of the base class raises an error. Without that call, the object contains no data set of Arrow.
        self._columns = schema
        self._read = read

    @property
    def schema(self) -> pa.Schema:
        return self._columns

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> _Scan:
        names = self._columns.names if columns is None else list(columns)
        return _Scan(self._read(names, filter))


class _Scan:
    """One scan, with the interface that DuckDB expects of an Arrow scanner."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    def to_reader(self) -> pa.RecordBatchReader:
        return self._reader


def rows_table(schema: pa.Schema, rows: Callable[[pc.Expression | None], list[dict[str, Any]]]) -> ArrowTable:
    """Return a table of few rows. `rows` makes the rows at each scan, and may use the filter to make fewer."""

    def read(columns: Sequence[str], filter: pc.Expression | None) -> pa.RecordBatchReader:
        found = pa.Table.from_pylist(rows(filter), schema)
        if filter is not None:
            found = found.filter(filter)
        return found.select(columns).to_reader()

    return ArrowTable(schema, read)
