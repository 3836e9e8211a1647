"""A scan's rows in the form of the broker's client, so that the two can be compared."""

from __future__ import annotations

import pyarrow as pa

from tests.kafka.clients import Row


def rows_of(reader: pa.RecordBatchReader) -> list[Row]:
    """Read a scan to its end. Kafka's ids of timestamp types are one below librdkafka's."""
    table = reader.read_all()
    times = [-1 if time is None else time for time in table.column("timestamp").cast("int64").to_pylist()]
    types = [1 + kind for kind in table.column("timestamp_type").to_pylist()]
    headers = [tuple((pair["key"], pair["value"]) for pair in pairs) for pairs in table.column("headers").to_pylist()]
    columns = [table.column(name).to_pylist() for name in ("key", "value")]
    offsets = table.column("offset").to_pylist()
    return [Row(*row) for row in zip(offsets, times, types, *columns, headers, strict=True)]
