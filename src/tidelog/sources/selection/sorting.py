"""`--sort time`: sorts records by timestamp, partition and offset; records without a timestamp come first.

Results up to `IN_MEMORY_BYTES` are sorted in memory. DuckDB sorts larger ones, on disk if memory does not suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tidelog.extras import imported_from

if TYPE_CHECKING:
    import pyarrow as pa

IN_MEMORY_BYTES = 256 << 20

SORTER_MEMORY = "512MiB"

ROWS = 16_384
"""The number of rows in a sorted batch."""

KEYS = ("timestamp", "topic", "partition", "offset")


def sorted_by_time(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all records sorted by time. Raises MissingPackageError if they do not fit in `IN_MEMORY_BYTES` and DuckDB is
    missing.
    """
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    rest = iter(batches)
    for batch in rest:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes > IN_MEMORY_BYTES:
            yield from _sorted_by_duckdb(chain(held, rest), batch.schema)
            return
    yield from by_time(held)


def by_time(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Sort records in memory by time."""
    import pyarrow as pa

    if not batches:
        return []
    table = pa.Table.from_batches(batches)
    keys = [(name, "ascending", "at_start") for name in KEYS]
    try:
        ordered = table.sort_by(keys)
    except (TypeError, ValueError):  # Before pyarrow 23 all sort keys share one null placement.
        import pyarrow.compute as pc

        order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in KEYS], null_placement="at_start")
        ordered = table.take(order)
    return list(ordered.to_batches(max_chunksize=ROWS))


def _sorted_by_duckdb(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    with imported_from("sql", "DuckDB"):
        import duckdb
    # DuckDB's timestamps are int64 microseconds, whose range is too small for some millisecond values.
    place = schema.get_field_index("timestamp")
    plain = schema.set(place, pa.field("timestamp", pa.int64()))

    def as_numbers() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = batch.columns
            columns[place] = columns[place].cast(pa.int64())
            yield pa.RecordBatch.from_arrays(columns, schema=plain)

    with (
        TemporaryDirectory(prefix="tidelog-sort-") as folder,  # by default DuckDB creates `.tmp` in the current folder
        duckdb.connect(config={"memory_limit": SORTER_MEMORY, "threads": 1, "temp_directory": folder}) as connection,
    ):
        rows = connection.from_arrow(pa.RecordBatchReader.from_batches(plain, as_numbers()))
        ordered = rows.order(", ".join(f'"{name}" NULLS FIRST' for name in KEYS))
        for batch in ordered.to_arrow_reader(ROWS):
            yield batch.cast(plain).cast(schema)
