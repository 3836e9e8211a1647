"""Rows: the results of scans as columns, with one entry for each record."""

from __future__ import annotations

from array import array

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, layout
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, layout

build_stamp.check(__name__, __file__)

COMPILED: bool = cython.compiled


def _inclusive(minimum: object, end: object) -> tuple:
    """Convert [minimum, end), in which None means no bound, to [first, last] within int64; first > last if the range is empty."""
    first = layout.MIN_INT64 if minimum is None else minimum
    last = layout.MAX_INT64 if end is None else end - 1
    if first > last or first > layout.MAX_INT64 or last < layout.MIN_INT64:
        return layout.MAX_INT64, layout.MIN_INT64
    return max(first, layout.MIN_INT64), min(last, layout.MAX_INT64)


class Rows:
    """The records that scans have found, as columns with one entry for each record. They are preallocated, and grow by doubling.

    `count` rows are valid. Bounds restrict what a scan appends: `min_timestamp <= timestamp < end_timestamp` and
    `min_offset <= offset < end_offset`. With `timed` (a time bound was given), records without a timestamp are left out and
    counted. Without `positions`, the positions of keys, values and headers are not stored.
    """

    def __init__(self, capacity: cython.Py_ssize_t = 0) -> None:
        self.stores = {
            "offset": array("q"),
            "timestamp": array("q"),
            "create_time": array("q"),
            "key_position": array("i"),
            "key_length": array("i"),
            "value_position": array("i"),
            "value_length": array("i"),
            "headers_position": array("i"),
            "header_count": array("i"),
            "source": array("i"),
            "timestamp_type": array("b"),
        }
        self.count = 0
        self.capacity = 0
        self.scanned = 0
        self.without_timestamp = 0
        self.fault_position = 0
        self.positions = True
        self.set_bounds(None, None, None, None)
        self.reserve(max(capacity, 16))

    def set_bounds(self, min_timestamp: object, end_timestamp: object, min_offset: object, end_offset: object) -> None:
        """Set the bounds for later scans; None means no bound."""
        self.timed = min_timestamp is not None or end_timestamp is not None
        self.bounded = self.timed or min_offset is not None or end_offset is not None
        self.min_timestamp, self.last_timestamp = _inclusive(min_timestamp, end_timestamp)
        self.min_offset, self.last_offset = _inclusive(min_offset, end_offset)

    def clear(self) -> None:
        """Clear the rows and the counters; keep the memory and the bounds."""
        self.count = 0
        self.scanned = 0
        self.without_timestamp = 0

    def reserve(self, more: cython.Py_ssize_t) -> None:
        """Make room for `more` additional rows."""
        needed: cython.Py_ssize_t = self.count + more
        if needed <= self.capacity:
            return
        capacity: cython.Py_ssize_t = max(needed, 2 * self.capacity)
        for name, old in self.stores.items():
            new = array(old.typecode, bytes(capacity * old.itemsize))
            new[: self.count] = old[: self.count]
            self.stores[name] = new
        self.capacity = capacity
        self.offset = buffers.longs(self.stores["offset"])
        self.timestamp = buffers.longs(self.stores["timestamp"])
        self.create_time = buffers.longs(self.stores["create_time"])
        self.key_position = buffers.ints(self.stores["key_position"])
        self.key_length = buffers.ints(self.stores["key_length"])
        self.value_position = buffers.ints(self.stores["value_position"])
        self.value_length = buffers.ints(self.stores["value_length"])
        self.headers_position = buffers.ints(self.stores["headers_position"])
        self.header_count = buffers.ints(self.stores["header_count"])
        self.source = buffers.ints(self.stores["source"])
        self.timestamp_type = buffers.signed_bytes(self.stores["timestamp_type"])

    def column(self, name: str) -> memoryview:
        """Return the valid part of a column, by name. The next scan may overwrite it."""
        return memoryview(self.stores[name])[: self.count]

    def count_in(self, end_row: cython.Py_ssize_t, source: cython.int, timestamp_type: cython.int) -> cython.void:
        """Add the rows up to `end_row`, all with this source and timestamp type."""
        sources: cython.p_int = self.source
        types: cython.p_schar = self.timestamp_type
        row: cython.Py_ssize_t
        if cython.compiled:
            for row in range(self.count, end_row):
                sources[row] = source
                types[row] = timestamp_type
        else:
            sources[self.count : end_row] = array("i", [source]) * (end_row - self.count)
            types[self.count : end_row] = array("b", [timestamp_type]) * (end_row - self.count)
        self.count = end_row
