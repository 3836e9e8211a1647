"""The column kernel: records in and out of batches without an object per record.

One source file in Cython's pure-Python mode. Where a C compiler is found it is compiled at install; elsewhere the same file runs
interpreted, a hundred times slower and with the same answers. `COMPILED` says which.

Reading is a pass over a batch's decompressed records that fills `Rows`, a struct of preallocated columns: offset, timestamp,
create time, and where key, value and headers lie. From there `gather` copies keys or values into Arrow's binary layout,
`views` points at them in Arrow's view layout without a copy, `gather_headers` builds list<struct<key, value>>. Writing is
the way back: `size_records_v2` and `encode_records_v2` from columns in Arrow's layout. `check_records_v2` is a leader's pass
over what a producer sent: it notes nothing, and judges. `murmur2` is the hash by which Kafka's producers choose partitions.

A v2 record (spec §10.1); varint is zig-zag, 7 bits a byte, at most 5 bytes (varlong: 10)::

    varint length of what follows | int8 attributes, unused | varlong timestamp delta | varint offset delta
    varint key length, -1 null | key | varint value length, -1 null | value
    varint header count | per header: varint key length | key | varint value length, -1 null | value

A v0 or v1 message (spec §10.2)::

    int64 offset | int32 size of what follows | int32 CRC | int8 magic | int8 attributes | int64 timestamp, v1 only
    int32 key length, -1 null | key | int32 value length, -1 null | value

Invariants
  - Every length is checked against the bytes that are there before a byte is read; nothing is trusted but the buffer's own
    length.
  - No exceptions in the hot loops, which run without the GIL: a scan returns rows appended, or a fault code (`FAULTS`) with
    `rows.fault_position`, and then has appended nothing. `columns`, `records` and `builder` turn faults into errors.
  - Positions are int32 and relative to the buffer that was handed in, so buffers are smaller than 2 GiB.

Only modules of `records/` call this.
"""

from __future__ import annotations

from array import array

import cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_FromStringAndSize
    from cython.cimports.libc.string import memcpy
    from cython.cimports.tidelog.records.build_stamp import TIDELOG_SOURCE_CRC

    from tidelog.records.build_stamp import check_source

    check_source(__name__, __file__, TIDELOG_SOURCE_CRC)

COMPILED: bool = cython.compiled

KEY = 0
VALUE = 1

MIN_INT64 = -(2**63)
MAX_INT64 = 2**63 - 1
NO_LIMIT = 2**62

FAULTS = {
    -1: "record cut off",
    -2: "varint longer than its type",
    -3: "record longer than its batch",
    -4: "record size differs from its fields",
    -5: "key longer than its record",
    -6: "value longer than its record",
    -7: "impossible number of headers",
    -8: "header key longer than its record",
    -9: "header value longer than its record",
    -10: "fewer records than the batch declares",
    -11: "bytes behind the last record",
    -12: "offset out of range",
    -13: "timestamp beyond int64",
    -14: "negative number of records",
    -15: "more records than the batch has room for",
    -20: "message size out of range",
    -21: "message of another format inside a compressed message",
    -22: "compressed message inside a compressed message",
    -23: "empty compressed message set",
}
"""Fault code → what is wrong, for an error's text."""

_CUT_OFF = cython.declare(cython.int, -1)
_VARINT = cython.declare(cython.int, -2)
_RECORD_SIZE = cython.declare(cython.int, -3)
_SIZE_MISMATCH = cython.declare(cython.int, -4)
_KEY_SIZE = cython.declare(cython.int, -5)
_VALUE_SIZE = cython.declare(cython.int, -6)
_HEADER_COUNT = cython.declare(cython.int, -7)
_HEADER_KEY = cython.declare(cython.int, -8)
_HEADER_VALUE = cython.declare(cython.int, -9)
_TOO_FEW = cython.declare(cython.int, -10)
_TRAILING = cython.declare(cython.int, -11)
_OFFSET = cython.declare(cython.int, -12)
_TIMESTAMP = cython.declare(cython.int, -13)
_NEGATIVE_COUNT = cython.declare(cython.int, -14)
_NO_ROOM = cython.declare(cython.int, -15)
_MESSAGE_SIZE = cython.declare(cython.int, -20)
_OTHER_MAGIC = cython.declare(cython.int, -21)
_NESTED = cython.declare(cython.int, -22)
_EMPTY_SET = cython.declare(cython.int, -23)

_INT64_MIN = cython.declare(cython.longlong, -(2**63 - 1) - 1)
_INT64_MAX = cython.declare(cython.longlong, 2**63 - 1)
_TWO_TO_32 = cython.declare(cython.longlong, 2**32)
_MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_MURMUR_M = cython.declare(cython.ulonglong, 0x5BD1E995)
_MURMUR_SEED = cython.declare(cython.ulonglong, 0x9747B28C)

# length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each
_MIN_RECORD_BYTES = cython.declare(cython.Py_ssize_t, 7)


def _inclusive(minimum: object, end: object) -> tuple:
    """Turn [minimum, end), None for no bound, into [first, last] within int64; first > last where nothing is inside."""
    first = MIN_INT64 if minimum is None else minimum
    last = MAX_INT64 if end is None else end - 1
    if first > last or first > MAX_INT64 or last < MIN_INT64:
        return MAX_INT64, MIN_INT64
    return max(first, MIN_INT64), min(last, MAX_INT64)


@cython.cclass
class Rows:
    """Columns of the records that scans have found, one entry a record; preallocated, and grown by doubling.

    `count` rows are valid. Bounds restrict what a scan appends: `min_timestamp <= timestamp < end_timestamp` and
    `min_offset <= offset < end_offset`. With `timed` (a time bound was given) records without a timestamp are left out and
    counted. Without `positions`, where keys, values and headers lie is not noted.
    """

    count = cython.declare(cython.Py_ssize_t, visibility="public")
    capacity = cython.declare(cython.Py_ssize_t, visibility="public")
    scanned = cython.declare(cython.longlong, visibility="public")
    without_timestamp = cython.declare(cython.longlong, visibility="public")
    fault_position = cython.declare(cython.Py_ssize_t, visibility="public")

    min_timestamp: cython.longlong
    last_timestamp: cython.longlong
    min_offset: cython.longlong
    last_offset: cython.longlong
    timed: cython.bint
    bounded: cython.bint
    positions = cython.declare(cython.bint, visibility="public")

    stores: dict
    offset: cython.p_longlong
    timestamp: cython.p_longlong
    create_time: cython.p_longlong
    key_position: cython.p_int
    key_length: cython.p_int
    value_position: cython.p_int
    value_length: cython.p_int
    headers_position: cython.p_int
    header_count: cython.p_int
    source: cython.p_int
    timestamp_type: cython.p_schar

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
        """Set what scans append; None is no bound."""
        self.timed = min_timestamp is not None or end_timestamp is not None
        self.bounded = self.timed or min_offset is not None or end_offset is not None
        self.min_timestamp, self.last_timestamp = _inclusive(min_timestamp, end_timestamp)
        self.min_offset, self.last_offset = _inclusive(min_offset, end_offset)

    def clear(self) -> None:
        """Forget the rows and the counters; keep the memory and the bounds."""
        self.count = 0
        self.scanned = 0
        self.without_timestamp = 0

    def reserve(self, more: cython.Py_ssize_t) -> None:
        """Make room for `more` rows behind those that are there."""
        needed: cython.Py_ssize_t = self.count + more
        if needed <= self.capacity:
            return
        capacity: cython.Py_ssize_t = max(needed, 2 * self.capacity)
        for name, old in self.stores.items():
            new = array(old.typecode, bytes(capacity * old.itemsize))
            new[: self.count] = old[: self.count]
            self.stores[name] = new
        self.capacity = capacity
        self.offset = _longs(self.stores["offset"])
        self.timestamp = _longs(self.stores["timestamp"])
        self.create_time = _longs(self.stores["create_time"])
        self.key_position = _ints(self.stores["key_position"])
        self.key_length = _ints(self.stores["key_length"])
        self.value_position = _ints(self.stores["value_position"])
        self.value_length = _ints(self.stores["value_length"])
        self.headers_position = _ints(self.stores["headers_position"])
        self.header_count = _ints(self.stores["header_count"])
        self.source = _ints(self.stores["source"])
        self.timestamp_type = _bytes_signed(self.stores["timestamp_type"])

    def column(self, name: str) -> memoryview:
        """Return the valid part of a column, by name, as it stands now: the next scan may write over it."""
        return memoryview(self.stores[name])[: self.count]


# --- Buffers as pointers (compiled) or as themselves (interpreted) --------------------------------------------------------


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
def _input(view: cython.const[cython.uchar][::1]) -> cython.pointer(cython.const[cython.uchar]):
    if cython.compiled:
        return cython.address(view[0])
    else:
        return view


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
def _input_ints(view: cython.const[cython.int][::1]) -> cython.pointer(cython.const[cython.int]):
    if cython.compiled:
        return cython.address(view[0])
    else:
        return view


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
def _input_longs(view: cython.const[cython.longlong][::1]) -> cython.pointer(cython.const[cython.longlong]):
    if cython.compiled:
        return cython.address(view[0])
    else:
        return view


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
def _longs(view: cython.longlong[::1]) -> cython.p_longlong:
    if cython.compiled:
        return cython.address(view[0])
    else:
        return view


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
def _ints(view: cython.int[::1]) -> cython.p_int:
    if cython.compiled:
        return cython.address(view[0])
    else:
        return view


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
def _bytes_signed(view: cython.schar[::1]) -> cython.p_schar:
    if cython.compiled:
        return cython.address(view[0])
    else:
        return view


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
def _output(view: cython.uchar[::1]) -> cython.p_uchar:
    if cython.compiled:
        return cython.address(view[0])
    else:
        return view


@cython.cfunc
def _new_bytes(size: cython.Py_ssize_t) -> bytearray:
    """Return `size` bytes to be written over: not zeroed where that can be had."""
    if cython.compiled:
        return PyByteArray_FromStringAndSize(cython.NULL, size)
    else:
        return bytearray(size)


# --- Varints --------------------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint(data: cython.pointer(cython.const[cython.uchar]), pos: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """Decode a varint of at most 5 bytes, zig-zag left as it is; return it * 16 + bytes taken, or a fault * 16."""
    raw: cython.longlong = 0
    byte: cython.longlong
    shift: cython.int = 0
    at: cython.Py_ssize_t = pos
    while at < end:
        byte = data[at]
        at += 1
        if shift == 28:
            if byte >= 128:
                return _VARINT * 16
            byte &= 15  # bits beyond the 32nd are dropped, as Kafka drops them
        raw |= (byte & 127) << shift
        if byte < 128:
            return raw * 16 + (at - pos)
        shift += 7
    return _CUT_OFF * 16


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varlong_size(data: cython.pointer(cython.const[cython.uchar]), pos: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
    """Return the bytes of the int64 varint at `pos`, or a fault code."""
    size: cython.int = 0
    while pos + size < end:
        if size == 10:
            return _VARINT
        if data[pos + size] < 128:
            return size + 1
        size += 1
    return _VARINT if size >= 10 else _CUT_OFF


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varlong_value(data: cython.pointer(cython.const[cython.uchar]), pos: cython.Py_ssize_t, size: cython.int) -> cython.longlong:
    raw: cython.ulonglong = 0
    byte: cython.ulonglong
    i: cython.int
    half: cython.longlong
    for i in range(size):
        byte = data[pos + i]
        if i == 9:
            byte &= 1  # the 64th bit
        raw |= (byte & 127) << (7 * i)
    half = raw >> 1
    if raw & 1:
        return -half - 1
    return half


# --- Reading: batches into rows -------------------------------------------------------------------------------------------


def scan_records_v2(
    rows: Rows,
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    batch_last_offset: cython.longlong,
    base_timestamp: cython.longlong,
    append_time: cython.longlong,
    timestamp_type: cython.int,
    source: cython.int,
    limit: cython.longlong,
) -> cython.longlong:
    """Append the records of a v2 batch, decompressed in `data[start:end]`, to `rows`; return how many, or a fault code.

    `append_time` is every record's timestamp where `timestamp_type` is 1 (LogAppendTime). `source` is noted with each row.
    The whole batch is validated: `count` records, each as long as it says and with an offset from `base_offset` to
    `batch_last_offset`, and nothing behind them; only a scan that meets `limit` rows stops there (`NO_LIMIT` for all).
    """
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"range {start}:{end} outside of {len(data)} bytes")
    rows.fault_position = start
    if base_offset < 0:
        return _OFFSET
    if count < 0:
        return _NEGATIVE_COUNT
    if count > (end - start) // _MIN_RECORD_BYTES:
        return _NO_ROOM
    if start == end or limit <= 0:
        return 0
    rows.reserve(min(count, limit))

    p: cython.pointer(cython.const[cython.uchar]) = _input(data)
    offsets: cython.p_longlong = rows.offset
    timestamps: cython.p_longlong = rows.timestamp
    create_times: cython.p_longlong = rows.create_time
    key_positions: cython.p_int = rows.key_position
    key_lengths: cython.p_int = rows.key_length
    value_positions: cython.p_int = rows.value_position
    value_lengths: cython.p_int = rows.value_length
    headers_positions: cython.p_int = rows.headers_position
    header_counts: cython.p_int = rows.header_count
    positions: cython.bint = rows.positions
    bounded: cython.bint = rows.bounded
    timed: cython.bint = rows.timed
    min_timestamp: cython.longlong = rows.min_timestamp
    last_timestamp: cython.longlong = rows.last_timestamp
    min_offset: cython.longlong = rows.min_offset
    last_offset: cython.longlong = rows.last_offset
    # Deltas outside of these would carry a timestamp out of int64, or an offset out of what the batch's header says.
    min_time_delta: cython.longlong = _INT64_MIN - base_timestamp if base_timestamp < 0 else _INT64_MIN
    max_time_delta: cython.longlong = _INT64_MAX - base_timestamp if base_timestamp > 0 else _INT64_MAX
    max_offset_delta: cython.longlong = batch_last_offset - base_offset

    fault: cython.int = 0
    without_timestamp: cython.longlong = 0
    first_row: cython.Py_ssize_t = rows.count
    end_row: cython.Py_ssize_t = first_row + limit
    row: cython.Py_ssize_t = first_row
    pos: cython.Py_ssize_t = start
    record: cython.Py_ssize_t = start
    record_end: cython.Py_ssize_t
    i: cython.Py_ssize_t = 0
    j: cython.longlong
    packed: cython.longlong
    value: cython.longlong
    size: cython.int
    time_delta: cython.longlong
    timestamp: cython.longlong
    create_time: cython.longlong
    offset: cython.longlong
    key_position: cython.Py_ssize_t
    key_length: cython.longlong
    value_position: cython.Py_ssize_t
    value_length: cython.longlong
    header_count: cython.longlong
    headers_position: cython.Py_ssize_t

    # Varints of one or two bytes, nearly all there are, are decoded where they stand: the next position then depends on a
    # predicted branch, not on what was loaded.
    with cython.nogil:
        while i < count:
            record = pos
            # length
            if pos >= end:
                fault = _TOO_FEW
                break
            value = p[pos]
            if value < 128:
                pos += 1
            elif pos + 1 < end and p[pos + 1] < 128:
                value = (value & 127) | p[pos + 1] << 7
                pos += 2
            else:
                packed = _varint(p, pos, end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
            value = (value >> 1) ^ -(value & 1)
            if value < 0 or value > end - pos:
                fault = _RECORD_SIZE
                break
            record_end = pos + value
            pos += 1  # attributes: unused so far

            # timestamp delta
            if pos >= record_end:
                fault = _CUT_OFF
                break
            value = p[pos]
            if value < 128:
                pos += 1
                time_delta = (value >> 1) ^ -(value & 1)
            elif pos + 1 < record_end and p[pos + 1] < 128:
                value = (value & 127) | p[pos + 1] << 7
                time_delta = (value >> 1) ^ -(value & 1)
                pos += 2
            else:
                size = _varlong_size(p, pos, record_end)
                if size < 0:
                    fault = size
                    break
                time_delta = _varlong_value(p, pos, size)
                pos += size
            if time_delta < min_time_delta or time_delta > max_time_delta:
                fault = _TIMESTAMP
                break

            # offset delta
            if pos >= record_end:
                fault = _CUT_OFF
                break
            value = p[pos]
            if value < 128:
                pos += 1
            elif pos + 1 < record_end and p[pos + 1] < 128:
                value = (value & 127) | p[pos + 1] << 7
                pos += 2
            else:
                packed = _varint(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
            value = (value >> 1) ^ -(value & 1)
            if value < 0 or value > max_offset_delta:
                fault = _OFFSET
                break
            offset = base_offset + value

            # key
            if pos >= record_end:
                fault = _CUT_OFF
                break
            value = p[pos]
            if value < 128:
                pos += 1
            elif pos + 1 < record_end and p[pos + 1] < 128:
                value = (value & 127) | p[pos + 1] << 7
                pos += 2
            else:
                packed = _varint(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
            key_length = (value >> 1) ^ -(value & 1)
            key_position = pos
            if key_length < 0:
                key_length = -1
            else:
                if key_length > record_end - pos:
                    fault = _KEY_SIZE
                    break
                pos += key_length

            # value
            if pos >= record_end:
                fault = _CUT_OFF
                break
            value = p[pos]
            if value < 128:
                pos += 1
            elif pos + 1 < record_end and p[pos + 1] < 128:
                value = (value & 127) | p[pos + 1] << 7
                pos += 2
            else:
                packed = _varint(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
            value_length = (value >> 1) ^ -(value & 1)
            value_position = pos
            if value_length < 0:
                value_length = -1
            else:
                if value_length > record_end - pos:
                    fault = _VALUE_SIZE
                    break
                pos += value_length

            # headers: most records have none, which is one zero byte
            if pos >= record_end:
                fault = _CUT_OFF
                break
            value = p[pos]
            headers_position = pos + 1
            if value == 0:
                header_count = 0
                pos += 1
            else:
                packed = _varint(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                headers_position = pos
                value = packed >> 4
                header_count = (value >> 1) ^ -(value & 1)
                if header_count < 0 or header_count > record_end - pos:
                    fault = _HEADER_COUNT
                    break
                j = 0
                while j < header_count:
                    packed = _varint(p, pos, record_end)
                    if packed & 15 == 0:
                        fault = packed >> 4
                        break
                    pos += packed & 15
                    value = packed >> 4
                    value = (value >> 1) ^ -(value & 1)
                    if value < 0 or value > record_end - pos:
                        fault = _HEADER_KEY
                        break
                    pos += value
                    packed = _varint(p, pos, record_end)
                    if packed & 15 == 0:
                        fault = packed >> 4
                        break
                    pos += packed & 15
                    value = packed >> 4
                    value = (value >> 1) ^ -(value & 1)
                    if value > record_end - pos:
                        fault = _HEADER_VALUE
                        break
                    if value > 0:
                        pos += value
                    j += 1
                if fault < 0:
                    break
            if pos != record_end:
                fault = _SIZE_MISMATCH
                break
            pos = record_end
            i += 1

            create_time = base_timestamp + time_delta
            timestamp = append_time if timestamp_type == 1 else create_time
            if bounded:
                if offset < min_offset or offset > last_offset:
                    continue
                if timed:
                    if timestamp == -1:
                        without_timestamp += 1
                        continue
                    if timestamp < min_timestamp or timestamp > last_timestamp:
                        continue
            offsets[row] = offset
            timestamps[row] = timestamp
            create_times[row] = create_time
            if positions:
                key_positions[row] = key_position
                key_lengths[row] = key_length
                value_positions[row] = value_position
                value_lengths[row] = value_length
                headers_positions[row] = headers_position
                header_counts[row] = header_count
            row += 1
            if row == end_row:
                break
        else:
            if pos != end:
                record = pos
                fault = _TRAILING
    if fault < 0:
        rows.fault_position = record
        return fault
    _append_constants(rows, row, source, timestamp_type)
    rows.scanned += i
    rows.without_timestamp += without_timestamp
    return row - first_row


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _short_end(
    data: cython.pointer(cython.const[cython.uchar]), pos: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the end of the varint at `pos` if it has one or two bytes, else -1: it is longer or cut off."""
    if pos < end:
        if data[pos] < 128:
            return pos + 1
        if pos + 1 < end and data[pos + 1] < 128:
            return pos + 2
    return -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _short_value(
    data: cython.pointer(cython.const[cython.uchar]), pos: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    value: cython.longlong = data[pos]
    if end - pos == 2:
        value = (value & 127) | data[pos + 1] << 7
    return (value >> 1) ^ -(value & 1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _after_headers(
    p: cython.pointer(cython.const[cython.uchar]), pos: cython.Py_ssize_t, record_end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the position behind a record's headers, or a fault code."""
    packed: cython.longlong = _varint(p, pos, record_end)
    value: cython.longlong
    header_count: cython.longlong
    j: cython.longlong = 0
    if packed & 15 == 0:
        return packed >> 4
    pos += packed & 15
    value = packed >> 4
    header_count = (value >> 1) ^ -(value & 1)
    if header_count < 0 or header_count > record_end - pos:
        return _HEADER_COUNT
    while j < header_count:
        packed = _varint(p, pos, record_end)
        if packed & 15 == 0:
            return packed >> 4
        pos += packed & 15
        value = packed >> 4
        value = (value >> 1) ^ -(value & 1)
        if value < 0 or value > record_end - pos:
            return _HEADER_KEY
        pos += value
        packed = _varint(p, pos, record_end)
        if packed & 15 == 0:
            return packed >> 4
        pos += packed & 15
        value = packed >> 4
        value = (value >> 1) ^ -(value & 1)
        if value > record_end - pos:
            return _HEADER_VALUE
        if value > 0:
            pos += value
        j += 1
    return pos


def check_records_v2(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base_timestamp: cython.longlong,
    min_timestamp: cython.longlong,
    last_timestamp: cython.longlong,
    needs_keys: cython.bint,
    refused: object,
) -> tuple:
    """Check the records of a v2 batch, decompressed in `data[start:end]`, as a leader does before it appends them.

    Returns (refused records, max timestamp, whether the offset deltas are 0, 1, 2..., whether the records are plain), or
    (fault code, position, False, False) for records that cannot be read. What passes here, deltas in order, is what
    `scan_records_v2` reads. Plain records have no attributes and no timestamp below -1, and the first one's timestamp is the
    base timestamp: rebuilt, they would be the same.

    A record is refused without a key where `needs_keys`, and with a timestamp outside of [`min_timestamp`,
    `last_timestamp`], -1 excepted. `refused`, an array of int64 or None, takes three entries for each: index in the batch,
    1 (key) or 2 (timestamp), its timestamp.
    """
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"range {start}:{end} outside of {len(data)} bytes")
    if count < 0:
        return (_NEGATIVE_COUNT, start, False, False)
    if count > (end - start) // _MIN_RECORD_BYTES:
        return (_NO_ROOM, start, False, False)
    listed: cython.p_longlong
    room: cython.Py_ssize_t = 0
    if cython.compiled:
        listed = cython.NULL
    if refused is not None:
        listed = _longs(refused)
        room = len(refused) // 3
    p: cython.pointer(cython.const[cython.uchar]) = _input(data)
    min_time_delta: cython.longlong = _INT64_MIN - base_timestamp if base_timestamp < 0 else _INT64_MIN
    max_time_delta: cython.longlong = _INT64_MAX - base_timestamp if base_timestamp > 0 else _INT64_MAX

    fault: cython.Py_ssize_t = 0
    refusals: cython.Py_ssize_t = 0
    reason: cython.int
    in_order: cython.bint = True
    is_plain: cython.bint = True
    max_timestamp: cython.longlong = -1
    pos: cython.Py_ssize_t = start
    record: cython.Py_ssize_t = start
    record_end: cython.Py_ssize_t
    at: cython.Py_ssize_t
    i: cython.Py_ssize_t = 0
    packed: cython.longlong
    value: cython.longlong
    size: cython.int
    time_delta: cython.longlong
    timestamp: cython.longlong
    key_length: cython.longlong

    # As in `scan_records_v2`: positions follow from predicted branches where varints have one or two bytes.
    with cython.nogil:
        while i < count:
            record = pos
            if pos >= end:
                fault = _TOO_FEW
                break
            at = _short_end(p, pos, end)
            if at > 0:
                value = _short_value(p, pos, at)
                pos = at
            else:
                packed = _varint(p, pos, end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
                value = (value >> 1) ^ -(value & 1)
            if value < 0 or value > end - pos:
                fault = _RECORD_SIZE
                break
            record_end = pos + value
            if pos < record_end and p[pos] != 0:
                is_plain = False
            pos += 1  # attributes: unused so far

            at = _short_end(p, pos, record_end)
            if at > 0:
                time_delta = _short_value(p, pos, at)
                pos = at
            else:
                size = _varlong_size(p, pos, record_end)
                if size < 0:
                    fault = size
                    break
                time_delta = _varlong_value(p, pos, size)
                pos += size
            if time_delta < min_time_delta or time_delta > max_time_delta:
                fault = _TIMESTAMP
                break

            at = _short_end(p, pos, record_end)
            if at > 0:
                value = _short_value(p, pos, at)
                pos = at
            else:
                packed = _varint(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
                value = (value >> 1) ^ -(value & 1)
            if value != i:
                in_order = False

            at = _short_end(p, pos, record_end)
            if at > 0:
                key_length = _short_value(p, pos, at)
                pos = at
            else:
                packed = _varint(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
                key_length = (value >> 1) ^ -(value & 1)
            if key_length > 0:
                if key_length > record_end - pos:
                    fault = _KEY_SIZE
                    break
                pos += key_length

            at = _short_end(p, pos, record_end)
            if at > 0:
                value = _short_value(p, pos, at)
                pos = at
            else:
                packed = _varint(p, pos, record_end)
                if packed & 15 == 0:
                    fault = packed >> 4
                    break
                pos += packed & 15
                value = packed >> 4
                value = (value >> 1) ^ -(value & 1)
            if value > 0:
                if value > record_end - pos:
                    fault = _VALUE_SIZE
                    break
                pos += value

            if pos < record_end and p[pos] == 0:
                pos += 1
            else:
                pos = _after_headers(p, pos, record_end)
                if pos < 0:
                    fault = pos
                    break
            if pos != record_end:
                fault = _SIZE_MISMATCH
                break

            timestamp = base_timestamp + time_delta
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if timestamp < -1 or (i == 0 and time_delta != 0):
                is_plain = False
            reason = 0
            if needs_keys and key_length < 0:
                reason = 1
            elif (timestamp < min_timestamp or timestamp > last_timestamp) and timestamp != -1:
                reason = 2
            if reason > 0:
                if refusals < room:
                    listed[3 * refusals] = i
                    listed[3 * refusals + 1] = reason
                    listed[3 * refusals + 2] = timestamp
                refusals += 1
            i += 1
        else:
            if pos != end:
                record = pos
                fault = _TRAILING
    if fault < 0:
        return (fault, record, False, False)
    return (refusals, max_timestamp, in_order, is_plain)


@cython.cfunc
def _append_constants(rows: Rows, end_row: cython.Py_ssize_t, source: cython.int, timestamp_type: cython.int) -> cython.void:
    """Count the rows up to `end_row` in, with what is the same for all of them."""
    sources: cython.p_int = rows.source
    types: cython.p_schar = rows.timestamp_type
    row: cython.Py_ssize_t
    if cython.compiled:
        for row in range(rows.count, end_row):
            sources[row] = source
            types[row] = timestamp_type
    else:
        sources[rows.count : end_row] = array("i", [source]) * (end_row - rows.count)
        types[rows.count : end_row] = array("b", [timestamp_type]) * (end_row - rows.count)
    rows.count = end_row


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int32(data: cython.pointer(cython.const[cython.uchar]), pos: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = data[pos]
    if value >= 128:
        value -= 256
    return value * 16777216 + (data[pos + 1] << 16 | data[pos + 2] << 8 | data[pos + 3])


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int64(data: cython.pointer(cython.const[cython.uchar]), pos: cython.Py_ssize_t) -> cython.longlong:
    high: cython.longlong = _int32(data, pos)
    low: cython.longlong = _int32(data, pos + 4)
    if low < 0:
        low += _TWO_TO_32
    return high * _TWO_TO_32 + low


def last_message_offset(data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> tuple:
    """Return (messages, offset field of the last one) of the message set in `data[start:end]`, or (fault code, position)."""
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"range {start}:{end} outside of {len(data)} bytes")
    p: cython.pointer(cython.const[cython.uchar]) = _input(data)
    pos: cython.Py_ssize_t = start
    offset: cython.longlong = -1
    size: cython.longlong
    messages: cython.Py_ssize_t = 0
    if start == end:
        return (_EMPTY_SET, start)
    while pos < end:
        if end - pos < 26:
            return (_CUT_OFF, pos)
        offset = _int64(p, pos)
        size = _int32(p, pos + 8)
        if size < 14 or size > end - pos - 12:
            return (_MESSAGE_SIZE, pos)
        messages += 1
        pos += 12 + size
    return (messages, offset)


def scan_messages(
    rows: Rows,
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    magic: cython.int,
    base_offset: cython.longlong,
    append_time: cython.longlong,
    timestamp_type: cython.int,
    nested: cython.bint,
    source: cython.int,
    limit: cython.longlong,
) -> cython.longlong:
    """Append the v0 or v1 messages in `data[start:end]` to `rows`; return how many, or a fault code.

    `base_offset` is added to each message's offset field: 0 where they are absolute. `nested` says that the messages come
    out of a compressed one: none of them may be compressed again, and under a LogAppendTime wrapper their own timestamps are
    the producers'. `timestamp_type` is -1 for v0; where it is 1, `append_time` is every record's timestamp.
    """
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"range {start}:{end} outside of {len(data)} bytes")
    header_bytes: cython.Py_ssize_t = 26 if magic == 0 else 34
    if base_offset < 0:
        rows.fault_position = start
        return _OFFSET
    rows.reserve(min((end - start) // header_bytes + 1, limit))
    p: cython.pointer(cython.const[cython.uchar]) = _input(data)
    first_row: cython.Py_ssize_t = rows.count
    row: cython.Py_ssize_t = first_row
    pos: cython.Py_ssize_t = start
    at: cython.Py_ssize_t
    message_end: cython.Py_ssize_t
    fault: cython.int = 0
    messages: cython.longlong = 0
    without_timestamp: cython.longlong = 0
    size: cython.longlong
    offset: cython.longlong
    own_timestamp: cython.longlong
    timestamp: cython.longlong
    key_length: cython.longlong
    key_position: cython.Py_ssize_t
    value_length: cython.longlong

    if start == end:
        rows.fault_position = start
        return _EMPTY_SET
    with cython.nogil:
        while pos < end and row - first_row < limit:
            if end - pos < 26:
                fault = _CUT_OFF
                break
            offset = _int64(p, pos)
            size = _int32(p, pos + 8)
            if size < 14 or size > end - pos - 12:
                fault = _MESSAGE_SIZE
                break
            message_end = pos + 12 + size
            if p[pos + 16] != magic:
                fault = _OTHER_MAGIC
                break
            if size < header_bytes - 12:
                fault = _MESSAGE_SIZE
                break
            if nested and p[pos + 17] & 7 != 0:
                fault = _NESTED
                break
            if offset < 0 or offset > _INT64_MAX - base_offset:
                fault = _OFFSET
                break
            offset += base_offset
            own_timestamp = -1 if magic == 0 else _int64(p, pos + 18)
            at = pos + header_bytes - 8
            key_length = _int32(p, at)
            at += 4
            key_position = at
            if key_length < 0:
                key_length = -1
            else:
                if key_length > message_end - at - 4:
                    fault = _KEY_SIZE
                    break
                at += key_length
            value_length = _int32(p, at)
            at += 4
            if value_length < 0:
                value_length = -1
            elif value_length > message_end - at:
                fault = _VALUE_SIZE
                break
            messages += 1
            pos = message_end

            timestamp = append_time if timestamp_type == 1 else own_timestamp
            if rows.bounded:
                if offset < rows.min_offset or offset > rows.last_offset:
                    continue
                if rows.timed:
                    if timestamp == -1:
                        without_timestamp += 1
                        continue
                    if timestamp < rows.min_timestamp or timestamp > rows.last_timestamp:
                        continue
            rows.offset[row] = offset
            rows.timestamp[row] = timestamp
            rows.create_time[row] = -1 if timestamp_type == 1 and not nested else own_timestamp
            rows.key_position[row] = key_position
            rows.key_length[row] = key_length
            rows.value_position[row] = at
            rows.value_length[row] = value_length
            rows.headers_position[row] = at
            rows.header_count[row] = 0
            row += 1
    if fault < 0:
        rows.fault_position = pos
        return fault
    _append_constants(rows, row, source, timestamp_type)
    rows.scanned += messages
    rows.without_timestamp += without_timestamp
    return row - first_row


# --- Reading: rows into Arrow's layouts -----------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _run_end(sources: cython.p_int, row: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the row behind the last one, from `row` on and before `last`, that has the same source."""
    source: cython.int = sources[row]
    while row < last and sources[row] == source:
        row += 1
    return row


@cython.cfunc
def _positions(rows: Rows, which: cython.int) -> cython.p_int:
    return rows.key_position if which == KEY else rows.value_position


@cython.cfunc
def _lengths(rows: Rows, which: cython.int) -> cython.p_int:
    return rows.key_length if which == KEY else rows.value_length


@cython.cfunc
def _check_range(rows: Rows, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.void:
    if not 0 <= first <= last <= rows.count:
        raise ValueError(f"rows {first}:{last} outside of {rows.count}")


def sizes(rows: Rows, which: cython.int, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> tuple:
    """Return (bytes, nulls) of the keys (`KEY`) or values (`VALUE`) of rows `first` to `last`, exclusive."""
    _check_range(rows, first, last)
    lengths: cython.p_int = _lengths(rows, which)
    total: cython.longlong = 0
    nulls: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    length: cython.longlong
    with cython.nogil:
        for row in range(first, last):
            length = lengths[row]
            if length < 0:
                nulls += 1
            else:
                total += length
    return (total, nulls)


@cython.cfunc
def _validity(lengths: cython.p_int, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> bytearray:
    """Return Arrow's validity bitmap: a bit a row, least significant first, 0 where the length is negative."""
    bitmap = bytearray((last - first + 7) // 8)
    out: cython.p_uchar = _output(bitmap)
    i: cython.Py_ssize_t
    for i in range(last - first):
        if lengths[first + i] >= 0:
            out[i >> 3] |= 1 << (i & 7)
    return bitmap


def timestamp_validity(rows: Rows, name: str, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> tuple:
    """Return (nulls, bitmap or None) of column `timestamp` or `create_time`: -1 stands for none."""
    _check_range(rows, first, last)
    times: cython.p_longlong = rows.create_time if name == "create_time" else rows.timestamp
    nulls: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    i: cython.Py_ssize_t
    for row in range(first, last):
        nulls += times[row] == -1
    if nulls == 0:
        return (0, None)
    bitmap = bytearray((last - first + 7) // 8)
    out: cython.p_uchar = _output(bitmap)
    for i in range(last - first):
        if times[first + i] != -1:
            out[i >> 3] |= 1 << (i & 7)
    return (nulls, bitmap)


def gather(rows: Rows, which: cython.int, sources: list, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> tuple:
    """Copy keys or values into Arrow's binary layout; return (offsets, data, validity or None, nulls).

    `offsets` are int32: the bytes (`sizes`) must stay below 2 GiB, else OverflowError. `sources[i]` is the buffer that rows
    of source i point into.
    """
    total, nulls = sizes(rows, which, first, last)
    if total > 2147483647:
        raise OverflowError(f"{total} bytes do not fit int32 offsets")
    count: cython.Py_ssize_t = last - first
    offsets = _new_bytes(4 * (count + 1))
    data = _new_bytes(total)
    offsets_view = memoryview(offsets).cast("i")
    out_offsets: cython.p_int = _ints(offsets_view)
    out: cython.p_uchar = _output(data)
    lengths: cython.p_int = _lengths(rows, which)
    positions: cython.p_int = _positions(rows, which)
    row_sources: cython.p_int = rows.source
    source_view: cython.const[cython.uchar][::1]
    p: cython.pointer(cython.const[cython.uchar])
    room: cython.longlong = total
    available: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t = first
    end: cython.Py_ssize_t
    length: cython.Py_ssize_t
    position: cython.Py_ssize_t
    while row < last:
        source_view = sources[row_sources[row]]
        available = len(source_view)
        p = _input(source_view)
        with cython.nogil:
            end = _run_end(row_sources, row, last)
            while row < end:
                out_offsets[row - first] = at
                length = lengths[row]
                if length > 0:
                    position = positions[row]
                    if cython.compiled:
                        if length <= 16 and position + 16 <= available and at + 16 <= room:
                            # Short ones as one move of fixed size; what is too much gets written over.
                            memcpy(cython.address(out[at]), cython.address(p[position]), 16)
                        else:
                            memcpy(cython.address(out[at]), cython.address(p[position]), length)
                    else:
                        out[at : at + length] = p[position : position + length]
                    at += length
                row += 1
    out_offsets[count] = at
    return (offsets, data, _validity(lengths, first, last) if nulls else None, nulls)


def views(
    rows: Rows, which: cython.int, sources: list, first: cython.Py_ssize_t, last: cython.Py_ssize_t, first_source: cython.int
) -> tuple:
    """Point at keys or values in Arrow's view layout, without a copy; return (views, validity or None, nulls).

    A view is 16 bytes: int32 length, then up to 12 bytes of data, or 4 bytes of it, int32 buffer index and int32 position.
    Buffer indices count from `first_source`.
    """
    _, nulls = sizes(rows, which, first, last)
    count: cython.Py_ssize_t = last - first
    # 16 bytes more: tails are cleared with a store of fixed size that reaches into the next view.
    out_bytes = _new_bytes(16 * count + 16)
    ints = memoryview(out_bytes).cast("i")
    out_ints: cython.p_int = _ints(ints)
    out: cython.p_uchar = _output(out_bytes)
    zeros: cython.pointer(cython.const[cython.uchar]) = _input(_ZEROS)
    lengths: cython.p_int = _lengths(rows, which)
    positions: cython.p_int = _positions(rows, which)
    row_sources: cython.p_int = rows.source
    source_view: cython.const[cython.uchar][::1]
    p: cython.pointer(cython.const[cython.uchar])
    available: cython.Py_ssize_t
    buffer_index: cython.int
    row: cython.Py_ssize_t = first
    end: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    length: cython.Py_ssize_t
    position: cython.Py_ssize_t
    while row < last:
        source_view = sources[row_sources[row]]
        available = len(source_view)
        p = _input(source_view)
        buffer_index = row_sources[row] - first_source
        with cython.nogil:
            end = _run_end(row_sources, row, last)
            while row < end:
                length = lengths[row]
                position = positions[row]
                if length > 12:
                    out_ints[at >> 2] = length
                    if cython.compiled:
                        memcpy(cython.address(out[at + 4]), cython.address(p[position]), 4)
                    else:
                        out[at + 4 : at + 8] = p[position : position + 4]
                    out_ints[(at >> 2) + 2] = buffer_index
                    out_ints[(at >> 2) + 3] = position
                else:
                    if length < 0:
                        length = 0
                    out_ints[at >> 2] = length
                    if cython.compiled:
                        if position + 12 <= available:
                            memcpy(cython.address(out[at + 4]), cython.address(p[position]), 12)
                        elif length > 0:
                            memcpy(cython.address(out[at + 4]), cython.address(p[position]), length)
                        memcpy(cython.address(out[at + 4 + length]), zeros, 16)
                    else:
                        out[at + 4 : at + 4 + length] = p[position : position + length]
                        out[at + 4 + length : at + 16] = zeros[: 12 - length]
                at += 16
                row += 1
    ints.release()
    del out_bytes[16 * count :]
    return (out_bytes, _validity(lengths, first, last) if nulls else None, nulls)


_ZEROS = bytes(16)


def gather_headers(rows: Rows, sources: list, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> tuple:
    """Copy headers into the buffers of Arrow's list<struct<key: utf8, value: binary>>.

    Return (list offsets, key offsets, key data, value offsets, value data, value validity or None, null values, headers).
    Whether the keys are UTF-8 is for the caller to see to. OverflowError where keys or values reach 2 GiB.
    """
    _check_range(rows, first, last)
    row_sources: cython.p_int = rows.source
    header_counts: cython.p_int = rows.header_count
    headers_positions: cython.p_int = rows.headers_position
    source_view: cython.const[cython.uchar][::1]
    p: cython.pointer(cython.const[cython.uchar])
    available: cython.Py_ssize_t
    row: cython.Py_ssize_t
    end: cython.Py_ssize_t
    j: cython.int
    pos: cython.Py_ssize_t
    raw: cython.longlong
    packed: cython.longlong
    length: cython.longlong
    headers: cython.longlong = 0
    key_bytes: cython.longlong = 0
    value_bytes: cython.longlong = 0
    nulls: cython.longlong = 0

    row = first
    while row < last:
        source_view = sources[row_sources[row]]
        available = len(source_view)
        p = _input(source_view)
        with cython.nogil:
            end = _run_end(row_sources, row, last)
            while row < end:
                if header_counts[row] > 0:
                    headers += header_counts[row]
                    pos = headers_positions[row]
                    for j in range(header_counts[row]):
                        packed = _varint(p, pos, available)
                        raw = packed >> 4
                        length = (raw >> 1) ^ -(raw & 1)
                        key_bytes += length
                        pos += (packed & 15) + length
                        packed = _varint(p, pos, available)
                        raw = packed >> 4
                        length = (raw >> 1) ^ -(raw & 1)
                        pos += packed & 15
                        if length < 0:
                            nulls += 1
                        else:
                            value_bytes += length
                            pos += length
                row += 1
    if key_bytes > 2147483647 or value_bytes > 2147483647 or headers > 2147483647:
        raise OverflowError(f"{max(key_bytes, value_bytes)} bytes of headers do not fit int32 offsets")

    list_offsets = _new_bytes(4 * (last - first + 1))
    key_offsets = _new_bytes(4 * (headers + 1))
    value_offsets = _new_bytes(4 * (headers + 1))
    key_data = _new_bytes(key_bytes)
    value_data = _new_bytes(value_bytes)
    validity = bytearray((headers + 7) // 8)
    list_view = memoryview(list_offsets).cast("i")
    key_view = memoryview(key_offsets).cast("i")
    value_view = memoryview(value_offsets).cast("i")
    out_list: cython.p_int = _ints(list_view)
    out_key_offsets: cython.p_int = _ints(key_view)
    out_value_offsets: cython.p_int = _ints(value_view)
    out_keys: cython.p_uchar = _output(key_data)
    out_values: cython.p_uchar = _output(value_data)
    out_validity: cython.p_uchar = _output(validity)
    at: cython.Py_ssize_t = 0
    key_at: cython.Py_ssize_t = 0
    value_at: cython.Py_ssize_t = 0

    row = first
    while row < last:
        source_view = sources[row_sources[row]]
        available = len(source_view)
        p = _input(source_view)
        with cython.nogil:
            end = _run_end(row_sources, row, last)
            while row < end:
                out_list[row - first] = at
                if header_counts[row] > 0:
                    pos = headers_positions[row]
                    for j in range(header_counts[row]):
                        out_key_offsets[at] = key_at
                        out_value_offsets[at] = value_at
                        packed = _varint(p, pos, available)
                        raw = packed >> 4
                        length = (raw >> 1) ^ -(raw & 1)
                        pos += packed & 15
                        if cython.compiled:
                            memcpy(cython.address(out_keys[key_at]), cython.address(p[pos]), length)
                        else:
                            out_keys[key_at : key_at + length] = p[pos : pos + length]
                        key_at += length
                        pos += length
                        packed = _varint(p, pos, available)
                        raw = packed >> 4
                        length = (raw >> 1) ^ -(raw & 1)
                        pos += packed & 15
                        if length >= 0:
                            if cython.compiled:
                                memcpy(cython.address(out_values[value_at]), cython.address(p[pos]), length)
                            else:
                                out_values[value_at : value_at + length] = p[pos : pos + length]
                            value_at += length
                            pos += length
                            out_validity[at >> 3] |= 1 << (at & 7)
                        at += 1
                row += 1
    out_list[last - first] = at
    out_key_offsets[at] = key_at
    out_value_offsets[at] = value_at
    return (list_offsets, key_offsets, key_data, value_offsets, value_data, validity if nulls else None, nulls, headers)


def starts_inside_characters(offsets: cython.const[cython.int][::1], data: cython.const[cython.uchar][::1]) -> bool:
    """Return whether any slice of `data` that `offsets` cut begins with a UTF-8 continuation byte.

    Text that is valid as a whole and has no such cut is valid in each slice.
    """
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t = len(data)
    for i in range(len(offsets)):
        if offsets[i] < size and data[offsets[i]] & 0xC0 == 0x80:
            return True
    return False


# --- Writing: columns into batches ----------------------------------------------------------------------------------------


@cython.cclass
class BinaryColumn:
    """A column of byte strings in Arrow's binary layout, to be written from: int32 offsets, data, validity bitmap or None.

    `first` is where the column begins in them (the offset of a sliced Arrow array), `length` how many entries it has.
    Raises ValueError where the offsets do not fit the data: nothing is read outside of it later.
    """

    length = cython.declare(cython.Py_ssize_t, visibility="public")
    first: cython.Py_ssize_t
    has_validity: cython.bint
    owners: tuple
    offsets: cython.pointer(cython.const[cython.int])
    data: cython.pointer(cython.const[cython.uchar])
    validity: cython.pointer(cython.const[cython.uchar])

    def __init__(
        self,
        offsets: object,
        data: object,
        validity: object,
        first: cython.Py_ssize_t,
        length: cython.Py_ssize_t,
    ) -> None:
        offsets_view: cython.const[cython.int][::1] = memoryview(offsets).cast("B").cast("i")
        data_view: cython.const[cython.uchar][::1] = memoryview(data).cast("B")
        validity_view: cython.const[cython.uchar][::1] = memoryview(b"" if validity is None else validity).cast("B")
        if first < 0 or length < 0 or len(offsets_view) < first + length + 1:
            raise ValueError(f"{len(offsets_view)} offsets for {first} + {length} entries")
        if validity is not None and len(validity_view) * 8 < first + length:
            raise ValueError(f"{len(validity_view)} bytes of validity for {first} + {length} entries")
        previous: cython.longlong = 0
        i: cython.Py_ssize_t
        for i in range(first, first + length + 1):
            if offsets_view[i] < previous:
                raise ValueError(f"offset {offsets_view[i]} of entry {i} below the one before it")
            previous = offsets_view[i]
        if previous > len(data_view):
            raise ValueError(f"offset {previous} beyond {len(data_view)} bytes of data")
        self.length = length
        self.first = first
        self.has_validity = validity is not None
        self.owners = (offsets, data, validity)
        self.offsets = _input_ints(offsets_view)
        self.data = _input(data_view)
        self.validity = _input(validity_view)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _entry_length(column: BinaryColumn, row: cython.Py_ssize_t) -> cython.longlong:
    """Return the length of an entry, -1 for null."""
    at: cython.Py_ssize_t = column.first + row
    if column.has_validity and not column.validity[at >> 3] >> (at & 7) & 1:
        return -1
    return column.offsets[at + 1] - column.offsets[at]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint_bytes(value: cython.longlong) -> cython.int:
    """Return how many bytes a value takes as a zig-zag varint."""
    size: cython.int = 1
    if value < 0:
        value = -value - 1  # as many bits as the zig-zag of it, less the sign's
    while value >= 64:
        value >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_varint(out: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    sign: cython.longlong = 0
    if value < 0:
        sign = 1
        value = -value - 1
    # The sign goes into the lowest bit, so that the first byte carries six bits of the value and no shift can overflow.
    if value < 64:
        out[at] = value << 1 | sign
        return at + 1
    out[at] = (value & 63) << 1 | sign | 128
    value >>= 6
    at += 1
    while value >= 128:
        out[at] = (value & 127) | 128
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _body_bytes(
    time_delta: cython.longlong,
    offset_delta: cython.longlong,
    key_length: cython.longlong,
    value_length: cython.longlong,
    headers_length: cython.longlong,
) -> cython.longlong:
    size: cython.longlong = 1 + _varint_bytes(time_delta) + _varint_bytes(offset_delta)
    size += _varint_bytes(key_length) + _varint_bytes(value_length)
    size += headers_length if headers_length > 0 else 1
    if key_length > 0:
        size += key_length
    if value_length > 0:
        size += value_length
    return size


def size_records_v2(
    timestamps: cython.const[cython.longlong][::1],
    keys: BinaryColumn,
    values: BinaryColumn,
    headers: object,
    indices: object,
    deltas: object,
    base_timestamp: object,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    limit_bytes: cython.longlong,
) -> tuple:
    """Return (rows, bytes, max timestamp) that one batch's records section takes, from entry `first` on, up to `last` exclusive.

    The section stays within `limit_bytes`, but for a first record that alone is larger. `indices` (int32, or None for 0, 1,
    2...) says which row an entry stands for: so the rows of one partition are picked out of a shared column. `headers` is a
    column of encoded headers (`builder.encode_headers`), or None. `deltas` (int32 by row) are the offsets relative to the
    batch, or None for 0, 1, 2... Timestamps are written relative to `base_timestamp`, None for the first record's.
    Raises ValueError for a row outside of the columns and for a negative timestamp that is not -1.
    """
    return _encode(None, 0, timestamps, keys, values, headers, indices, deltas, base_timestamp, first, last, limit_bytes)


def encode_records_v2(
    out: object,
    start: cython.Py_ssize_t,
    timestamps: cython.const[cython.longlong][::1],
    keys: BinaryColumn,
    values: BinaryColumn,
    headers: object,
    indices: object,
    deltas: object,
    base_timestamp: object,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
) -> tuple:
    """Write the records section of a v2 batch to `out[start:]`, with the room that `size_records_v2` told; return the same."""
    return _encode(out, start, timestamps, keys, values, headers, indices, deltas, base_timestamp, first, last, NO_LIMIT)


@cython.cfunc
def _encode(
    target: object,
    start: cython.Py_ssize_t,
    timestamps: cython.const[cython.longlong][::1],
    keys: BinaryColumn,
    values: BinaryColumn,
    headers: object,
    indices: object,
    deltas: object,
    base_timestamp: object,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    limit_bytes: cython.longlong,
) -> tuple:
    """Size (no target) or write: one loop for both, so that they cannot differ."""
    writing: cython.bint = target is not None
    out: cython.p_uchar = _output(target if writing else bytearray(1))
    room: cython.Py_ssize_t = len(target) if writing else 0
    has_headers: cython.bint = headers is not None
    header_column: BinaryColumn = headers if has_headers else keys
    has_indices: cython.bint = indices is not None
    index_view: cython.const[cython.int][::1] = indices if has_indices else array("i", [0])
    index: cython.pointer(cython.const[cython.int]) = _input_ints(index_view)
    has_deltas: cython.bint = deltas is not None
    delta_view: cython.const[cython.int][::1] = deltas if has_deltas else index_view
    delta: cython.pointer(cython.const[cython.int]) = _input_ints(delta_view)
    row_count: cython.Py_ssize_t = min(len(timestamps), keys.length, values.length)
    if has_headers:
        row_count = min(row_count, header_column.length)
    if has_deltas:
        row_count = min(row_count, len(delta_view))
    entries: cython.Py_ssize_t = len(index_view) if has_indices else row_count
    if not 0 <= first <= last <= entries:
        raise ValueError(f"entries {first}:{last} outside of {entries}")
    if writing and not 0 <= start <= room:
        raise ValueError(f"start {start} outside of {room} bytes")

    time_pointer: cython.pointer(cython.const[cython.longlong]) = _input_longs(timestamps)
    i: cython.Py_ssize_t = first
    row: cython.Py_ssize_t = 0
    has_base: cython.bint = base_timestamp is not None
    base: cython.longlong = base_timestamp if has_base else 0
    if base < -1:
        raise ValueError(f"negative base timestamp {base}")
    offset_delta: cython.longlong
    max_timestamp: cython.longlong = -1
    timestamp: cython.longlong = 0
    total: cython.longlong = 0
    body: cython.longlong
    size: cython.longlong
    key_length: cython.longlong
    value_length: cython.longlong
    headers_length: cython.longlong
    at: cython.Py_ssize_t = start
    fault: cython.int = 0
    with cython.nogil:
        while i < last:
            row = index[i] if has_indices else i
            if row < 0 or row >= row_count:
                fault = 1
                break
            timestamp = time_pointer[row]
            if timestamp < -1:
                fault = 2
                break
            if i == first and not has_base:
                base = timestamp
            if base < 0 and timestamp == _INT64_MAX:
                fault = 4
                break
            offset_delta = delta[row] if has_deltas else i - first
            key_length = _entry_length(keys, row)
            value_length = _entry_length(values, row)
            headers_length = _entry_length(header_column, row) if has_headers else 0
            body = _body_bytes(timestamp - base, offset_delta, key_length, value_length, headers_length)
            size = body + _varint_bytes(body)
            if total + size > limit_bytes and i > first:
                break
            total += size
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if writing:
                if size > room - at:
                    fault = 3
                    break
                at = _put_varint(out, at, body)
                out[at] = 0
                at = _put_varint(out, at + 1, timestamp - base)
                at = _put_varint(out, at, offset_delta)
                at = _put_varint(out, at, key_length)
                at = _put_entry(out, at, keys, row, key_length)
                at = _put_varint(out, at, value_length)
                at = _put_entry(out, at, values, row, value_length)
                if headers_length > 0:
                    at = _put_entry(out, at, header_column, row, headers_length)
                else:
                    out[at] = 0
                    at += 1
            i += 1
    if fault == 1:
        raise ValueError(f"row {row} outside of {row_count}")
    if fault == 2:
        raise ValueError(f"negative timestamp {timestamp} in row {row}")
    if fault == 3:
        raise ValueError(f"no room for record {i - first} at byte {at} of {room}")
    if fault == 4:
        raise ValueError(f"timestamp {timestamp} in row {row} too far from the batch's first, {base}")
    return (i - first, total, max_timestamp)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_entry(
    out: cython.p_uchar, at: cython.Py_ssize_t, column: BinaryColumn, row: cython.Py_ssize_t, length: cython.longlong
) -> cython.Py_ssize_t:
    if length <= 0:
        return at
    position: cython.Py_ssize_t = column.offsets[column.first + row]
    if cython.compiled:
        memcpy(cython.address(out[at]), cython.address(column.data[position]), length)
    else:
        out[at : at + length] = column.data[position : position + length]
    return at + length


# --- Partitioning ---------------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _murmur2(
    p: cython.pointer(cython.const[cython.uchar]), start: cython.Py_ssize_t, length: cython.Py_ssize_t
) -> cython.ulonglong:
    h: cython.ulonglong = _MURMUR_SEED ^ length
    k: cython.ulonglong
    byte: cython.ulonglong
    i: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + length
    while i + 4 <= end:
        byte = p[i + 3]
        k = (byte << 24) | (p[i + 2] << 16) | (p[i + 1] << 8) | p[i]
        k = k * _MURMUR_M & _MASK32
        k ^= k >> 24
        k = k * _MURMUR_M & _MASK32
        h = h * _MURMUR_M & _MASK32
        h ^= k
        i += 4
    if end - i == 3:
        h ^= p[i + 2] << 16
    if end - i >= 2:
        h ^= p[i + 1] << 8
    if end - i >= 1:
        h ^= p[i]
        h = h * _MURMUR_M & _MASK32
    h ^= h >> 13
    h = h * _MURMUR_M & _MASK32
    return h ^ h >> 15


def murmur2(data: cython.const[cython.uchar][::1]) -> int:
    """Return Kafka's 32-bit murmur2 of `data`, unsigned."""
    return _murmur2(_input(data), 0, len(data))


def murmur2_partitions(keys: BinaryColumn, partitions: cython.int) -> array:
    """Return each key's partition (int32) by Kafka's default partitioner, positive(murmur2) mod partitions; -1 for null."""
    if partitions < 1:
        raise ValueError(f"{partitions} partitions")
    out = array("i", bytes(4 * keys.length))
    target: cython.p_int = _ints(out)
    row: cython.Py_ssize_t
    length: cython.longlong
    h: cython.ulonglong
    with cython.nogil:
        for row in range(keys.length):
            length = _entry_length(keys, row)
            if length < 0:
                target[row] = -1
            else:
                h = _murmur2(keys.data, keys.offsets[keys.first + row], length)
                target[row] = (h & 2147483647) % partitions
    return out


# --- Time maps ------------------------------------------------------------------------------------------------------------


def map_batches(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    block_bytes: cython.longlong,
    state: cython.longlong[::1],
    times: cython.longlong[::1],
) -> tuple:
    """Add whole v2 batches, from `data[start]` on, to a block of a time map; return (where it stopped, why).

    Why: 0 at `end`, or in front of a batch that is not for it (another format; compressed, if its header alone does not tell
    the times; anything that is wrong); 1 when the block has `block_bytes`, and the next batch begins another; otherwise how
    many entries `times` must have for the next batch. Checksums are the caller's, and records are only followed as far as
    their timestamps. `log.time_map_builder` says what `state`, eleven numbers, is; the digest is its own.
    """
    if not 0 <= start <= end <= len(data) or len(state) != 11:
        raise ValueError(f"range {start}:{end} outside of {len(data)} bytes, or no state")
    p: cython.pointer(cython.const[cython.uchar]) = _input(data)
    now: cython.p_longlong = _longs(state)
    noted: cython.p_longlong = _longs(times)
    room: cython.Py_ssize_t = len(times)
    why: cython.longlong = 0
    pos: cython.Py_ssize_t = start
    at: cython.Py_ssize_t
    batch_end: cython.Py_ssize_t
    record_end: cython.Py_ssize_t
    row: cython.Py_ssize_t
    length: cython.longlong
    attributes: cython.int
    base_offset: cython.longlong
    last_delta: cython.longlong
    base_timestamp: cython.longlong
    min_time_delta: cython.longlong
    max_time_delta: cython.longlong
    count: cython.longlong
    i: cython.longlong
    packed: cython.longlong
    value: cython.longlong
    size: cython.int
    timestamp: cython.longlong
    without: cython.longlong
    crc: cython.longlong
    with cython.nogil:
        while end - pos >= 61:
            if now[4] >= 0 and now[0] - now[4] >= block_bytes:
                why = 1
                break
            length = _int32(p, pos + 8)
            if p[pos + 16] != 2 or length < 49 or length > end - pos - 12:
                break
            batch_end = pos + 12 + length
            base_offset = _int64(p, pos)
            last_delta = _int32(p, pos + 23)
            if base_offset < now[1] or last_delta < 0 or base_offset > _INT64_MAX - 1 - last_delta:
                break
            attributes = p[pos + 22]
            count = _int32(p, pos + 57)
            if count < 0 or (now[4] >= 0 and now[8] + count > 2147483647):
                break
            row = now[10]
            without = 0
            if attributes & 32:
                count = 0  # control records are no data
            elif attributes & 8:
                timestamp = _int64(p, pos + 35)
                if timestamp == -1:
                    break
                if count > 0:
                    if row >= room:
                        why = row + 1
                        break
                    noted[row] = timestamp
                    row += 1
            elif attributes & 7 or count > (batch_end - pos - 61) // _MIN_RECORD_BYTES:
                break
            else:
                if count > room - row:
                    why = row + count
                    break
                base_timestamp = _int64(p, pos + 27)
                min_time_delta = _INT64_MIN - base_timestamp if base_timestamp < 0 else _INT64_MIN
                max_time_delta = _INT64_MAX - base_timestamp if base_timestamp > 0 else _INT64_MAX
                at = pos + 61
                i = 0
                while i < count:
                    if at >= batch_end:
                        break
                    value = p[at]
                    if value < 128:
                        at += 1
                    elif at + 1 < batch_end and p[at + 1] < 128:
                        value = (value & 127) | p[at + 1] << 7
                        at += 2
                    else:
                        packed = _varint(p, at, batch_end)
                        if packed & 15 == 0:
                            break
                        at += packed & 15
                        value = packed >> 4
                    value = (value >> 1) ^ -(value & 1)
                    if value < 0 or value > batch_end - at:
                        break
                    record_end = at + value
                    at += 1  # attributes
                    if at >= record_end:
                        break
                    value = p[at]
                    if value < 128:
                        value = (value >> 1) ^ -(value & 1)
                    else:
                        size = _varlong_size(p, at, record_end)
                        if size < 0:
                            break
                        value = _varlong_value(p, at, size)
                    if value < min_time_delta or value > max_time_delta:
                        break
                    timestamp = base_timestamp + value
                    if timestamp == -1:
                        without += 1
                    else:
                        noted[row] = timestamp
                        row += 1
                    at = record_end
                    i += 1
                if i < count or at != batch_end:
                    break
            crc = _int32(p, pos + 17)
            if crc < 0:
                crc += _TWO_TO_32
            if now[4] < 0:
                now[4] = now[0]
                now[5] = base_offset
            now[6] = now[0] - now[4]
            now[8] += count
            now[9] += without
            now[10] = row
            now[2] = base_offset
            now[3] = crc
            now[0] += batch_end - pos
            now[1] = base_offset + last_delta + 1
            pos = batch_end
    return (pos, why)


def note_timestamps(rows: Rows, times: cython.longlong[::1], at: cython.Py_ssize_t) -> int:
    """Copy the timestamps of all rows, those excepted that have none, to `times[at:]`; return how many."""
    if not 0 <= at <= len(times) - rows.count:
        raise ValueError(f"no room for {rows.count} rows at {at} of {len(times)}")
    timestamps: cython.p_longlong = rows.timestamp
    noted: cython.p_longlong = _longs(times)
    end: cython.Py_ssize_t = at
    row: cython.Py_ssize_t
    with cython.nogil:
        for row in range(rows.count):
            if timestamps[row] != -1:
                noted[end] = timestamps[row]
                end += 1
    return end - at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _sort(p: cython.p_longlong, scratch: cython.p_longlong, count: cython.Py_ssize_t) -> cython.void:
    """Sort `p[:count]`, smallest first, by the bytes of their distances, last byte first; `scratch` has 256 entries more."""
    smallest: cython.longlong = _INT64_MAX
    largest: cython.longlong = _INT64_MIN
    previous: cython.longlong = _INT64_MIN
    in_order: cython.bint = True
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    shift: cython.int = 0
    byte: cython.int
    passed: cython.longlong
    distance: cython.ulonglong
    for i in range(count):
        if p[i] < previous:
            in_order = False
        previous = p[i]
        smallest = min(smallest, previous)
        largest = max(largest, previous)
    if in_order:
        return
    # In 64 bits without a sign no distance is too large.
    while shift < 64 and (cython.cast(cython.ulonglong, largest) - cython.cast(cython.ulonglong, smallest)) >> shift > 0:
        for byte in range(256):
            scratch[count + byte] = 0
        for i in range(count):
            distance = cython.cast(cython.ulonglong, p[i]) - cython.cast(cython.ulonglong, smallest)
            scratch[count + (distance >> shift & 255)] += 1
        passed = 0
        for byte in range(256):
            passed += scratch[count + byte]
            scratch[count + byte] = passed - scratch[count + byte]
        for i in range(count):
            distance = cython.cast(cython.ulonglong, p[i]) - cython.cast(cython.ulonglong, smallest)
            at = count + (distance >> shift & 255)
            scratch[scratch[at]] = p[i]
            scratch[at] += 1
        for i in range(count):
            p[i] = scratch[i]
        shift += 8


def time_bounds(times: cython.longlong[::1], count: cython.Py_ssize_t, most_holes: cython.Py_ssize_t) -> tuple:
    """Sort `times[:count]` and return (smallest, largest, holes); of none, 2^63 - 1 and -2^63.

    A hole is two times that follow each other with more between them than an eighth of the shortest stretch that holds half of
    all: what an even flow does not have, and late records do. Where there are more than `most_holes`, only the widest of them
    are told. `holes` is an array of the times before, behind, before, behind ..., ascending.
    """
    if not 0 <= count <= len(times):
        raise ValueError(f"{count} of {len(times)} times")
    holes = array("q")
    if count == 0:
        return (_INT64_MAX, _INT64_MIN, holes)
    p: cython.p_longlong = _longs(times)
    half: cython.Py_ssize_t = (count - 1) // 2
    found: cython.Py_ssize_t
    i: cython.Py_ssize_t
    gap: cython.longlong
    if cython.compiled:
        scratch = _new_bytes(8 * (count + 256))
        scratch_view = memoryview(scratch).cast("q")
        q: cython.p_longlong = _longs(scratch_view)
        with cython.nogil:
            _sort(p, q, count)
    else:
        p[:count] = array("q", sorted(p[:count]))
    smallest: cython.longlong = p[0]
    largest: cython.longlong = p[count - 1]
    if smallest < 0 and largest > _INT64_MAX + smallest:
        return (smallest, largest, holes)
    least: cython.longlong = largest - smallest
    with cython.nogil:
        for i in range(count - half):
            gap = p[i + half] - p[i]
            if gap < least:
                least = gap
        least >>= 3
        while True:
            found = 0
            for i in range(1, count):
                if p[i] - p[i - 1] > least:
                    found += 1
            if found <= most_holes:
                break
            # Times may lie 2^63 - 1 ms apart; beyond that there is no gap.
            least = _INT64_MAX if least > _INT64_MAX - (least >> 1) - 1 else least + (least >> 1) + 1
    for i in range(1, count):
        if p[i] - p[i - 1] > least:
            holes.append(p[i - 1])
            holes.append(p[i])
    return (smallest, largest, holes)
