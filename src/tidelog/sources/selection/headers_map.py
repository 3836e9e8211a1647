"""The headers of records as MAP(VARCHAR, VARCHAR), for SQL: `headers['trace-id']`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

HEADERS_MAP = pa.map_(pa.string(), pa.string())


def headers_map(headers: pa.Array) -> pa.Array:
    """Convert the column `headers` of a scan to `HEADERS_MAP`.

    Of several headers with the same name, the last one counts. A value that is null or not UTF-8 becomes null.
    """
    offsets = headers.offsets
    if len(offsets) and offsets[0].as_py():
        offsets = pc.subtract(offsets, offsets[0])
    keys, values = headers.flatten().flatten()
    count = len(keys)
    if count and pc.max(headers.value_lengths()).as_py() > 1:
        at = pa.array(range(count), pa.int32())
        rows = pa.table([pc.list_parent_indices(headers), keys, at], ["row", "key", "at"])
        distinct = rows.group_by(["row", "key"], use_threads=False).aggregate([("at", "min"), ("at", "max")])
        if distinct.num_rows < count:
            distinct = distinct.sort_by("at_min")
            firsts = distinct["at_min"].combine_chunks()
            before = pc.cumulative_sum(pc.is_in(at, value_set=firsts).cast(pa.int32()))
            offsets = pa.concat_arrays([pa.array([0], pa.int32()), before]).take(offsets)
            keys, values = keys.take(firsts), values.take(distinct["at_max"].combine_chunks())
    return pa.MapArray.from_arrays(offsets, keys, _texts(values))


def _texts(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
