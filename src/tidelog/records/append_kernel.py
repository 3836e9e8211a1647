"""The append kernel: an ordinary producer's batch checked and put into its place, in one call.

Nearly everything that a leader is sent is of one kind: a single v2 batch, not compressed, whose records pass. `take_plain_batch`
does for it what `storage.append_analysis` and `records.validation` do for any records, and nothing for all others: it returns
None, and they say what is wrong, or do what has to be done. So every rule has one place that tells, and this one only has to
recognise what no rule objects to:

==============  ======================================================================================================
buffer          exactly one batch, magic 2, base offset 0
attributes      none but "transactional": no codec, CreateTime, no control batch, no delete horizon
count           above 0, and that of the offsets; a producer id comes with a sequence
checksum        right
records         `kernel.check_records_v2` refuses none, and their offset deltas are 0, 1, 2...
==============  ======================================================================================================

Then base offset and leader epoch are written, the largest timestamp where it was wrong, or the append time; the checksum only
if what it covers has changed. Until all is checked nothing is changed.

Like `kernel` this is one file in Cython's pure-Python mode; interpreted it takes nothing, as it would be no faster than the
others. `storage.appending` calls it.
"""

from __future__ import annotations

import cython

from tidelog.records.kernel import check_records_v2

if cython.compiled:
    from cython.cimports.tidelog.records.build_stamp import TIDELOG_SOURCE_CRC
    from cython.cimports.tidelog.records.native import tidelog_checksums_init, tidelog_crc32c

    from tidelog.records.build_stamp import check_source

    check_source(__name__, __file__, TIDELOG_SOURCE_CRC)
    tidelog_checksums_init()

COMPILED: bool = cython.compiled

_HEADER_BYTES = cython.declare(cython.Py_ssize_t, 61)
_LOG_OVERHEAD = cython.declare(cython.longlong, 12)
_LOG_APPEND_TIME_BIT = cython.declare(cython.int, 0x08)
_TRANSACTIONAL_BIT = cython.declare(cython.int, 0x10)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _get(data: cython.p_uchar, at: cython.Py_ssize_t, size: cython.int) -> cython.longlong:
    """Return the signed big-endian number of `size` bytes at `at`."""
    raw: cython.ulonglong = 0
    i: cython.int
    for i in range(size):
        raw = raw << 8 | data[at + i]
    if size < 8 and data[at] & 0x80:
        return cython.cast(cython.longlong, raw) - (cython.cast(cython.longlong, 1) << 8 * size)
    return cython.cast(cython.longlong, raw)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put(data: cython.p_uchar, at: cython.Py_ssize_t, size: cython.int, value: cython.longlong) -> cython.void:
    """Write a big-endian number of `size` bytes."""
    i: cython.int
    for i in range(size):
        data[at + i] = value >> 8 * (size - 1 - i) & 255


def take_plain_batch(
    data: cython.uchar[::1],
    base_offset: cython.longlong,
    leader_epoch: cython.longlong,
    min_timestamp: cython.longlong,
    last_timestamp: cython.longlong,
    needs_keys: cython.bint,
    append_time: cython.longlong,
) -> object:
    """Give a plain batch, all of `data`, its place; return its header's fields as a tuple, None for anything else.

    The fields are those of `batch.BatchHeader`, in order. Records have timestamps in [`min_timestamp`, `last_timestamp`] (ms), or
    none, and keys where `needs_keys`. `append_time` (ms) is LogAppendTime's, -1 with CreateTime.
    """
    if not cython.compiled:
        return None
    size: cython.Py_ssize_t = len(data)
    if size <= _HEADER_BYTES:
        return None
    p: cython.p_uchar = cython.address(data[0])
    attributes: cython.int = cython.cast(cython.int, _get(p, 21, 2))
    last_offset_delta: cython.longlong = _get(p, 23, 4)
    count: cython.longlong = _get(p, 57, 4)
    producer_id: cython.longlong = _get(p, 43, 8)
    base_sequence: cython.longlong = _get(p, 53, 4)
    crc: cython.uint = cython.cast(cython.uint, _get(p, 17, 4) & 0xFFFFFFFF)
    if (
        p[16] != 2
        or _get(p, 8, 4) + _LOG_OVERHEAD != size
        or _get(p, 0, 8) != 0
        or attributes & ~_TRANSACTIONAL_BIT
        or count <= 0
        or last_offset_delta + 1 != count
        or (producer_id >= 0 and base_sequence < 0)
    ):
        return None
    found: cython.uint
    with cython.nogil:
        found = tidelog_crc32c(0, p + 21, size - 21)
    if found != crc:
        return None
    base_timestamp: cython.longlong = _get(p, 27, 8)
    refused, max_timestamp, is_in_order, _ = check_records_v2(
        data, _HEADER_BYTES, size, count, base_timestamp, min_timestamp, last_timestamp, needs_keys, None
    )
    if refused or not is_in_order:
        return None
    largest: cython.longlong = max_timestamp
    if append_time >= 0:
        largest = append_time
        attributes |= _LOG_APPEND_TIME_BIT
    _put(p, 0, 8, base_offset)
    _put(p, 12, 4, leader_epoch)
    if append_time >= 0 or _get(p, 35, 8) != largest:
        _put(p, 21, 2, attributes)
        _put(p, 35, 8, largest)
        with cython.nogil:
            crc = tidelog_crc32c(0, p + 21, size - 21)
        _put(p, 17, 4, crc)
    return (
        0,
        size,
        base_offset,
        base_offset + last_offset_delta,
        2,
        crc,
        attributes,
        base_timestamp,
        largest,
        leader_epoch,
        producer_id,
        _get(p, 51, 2),
        base_sequence,
        count,
    )
