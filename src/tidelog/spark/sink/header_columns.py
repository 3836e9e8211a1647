"""Converts the column `headers` of a DataFrame to headers in the encoding of v2 records."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import InvalidArgumentError
from tidelog.ingest.arrow_columns import encoded_headers


def header_column(headers: pa.Array) -> pa.Array:
    """Encode a list<struct<key, value>> column as a binary column. Null becomes an empty list of headers.

    Raises InvalidArgumentError for a header without a key.
    """
    if pa.types.is_null(headers.type):
        return pa.nulls(len(headers), pa.binary())
    entries = headers.flatten()
    keys, values = entries.flatten()
    if entries.null_count or keys.null_count:
        raise InvalidArgumentError("column headers: a header has no key", found=f"{keys.null_count} headers")
    counts = pc.fill_null(pc.list_value_length(headers), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    return encoded_headers(keys.cast(pa.binary()), values.cast(pa.binary()), offsets)
