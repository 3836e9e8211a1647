"""An ordinary producer's batch checked and put into its place, in one call.

Nearly everything that a leader is sent is of one kind: a single v2 batch, not compressed, whose records pass. `take_plain_batch`
does for it what `storage.partition.append.append_analysis` and `records.validation` do for any records, or nothing: it returns
None, and they say what is wrong, or do what has to be done. So every rule has one place that reports, and this one only has to
recognise what no rule objects to:

==============  ======================================================================================================
buffer          exactly one batch, magic 2, base offset 0
attributes      none but "transactional": no codec, CreateTime, no control batch, no delete horizon
count           above 0, and that of the offsets; a producer id comes with a sequence
checksum        right
records         `record_check` refuses none, and their offset deltas are 0, 1, 2...
==============  ======================================================================================================

Then base offset and leader epoch are written, the largest timestamp where it was wrong, or the append time; the checksum only
if what it covers has changed. Until all is checked nothing is changed.

Interpreted it takes nothing, as it would be no faster than the others. `storage.partition.append.appends` calls it.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, crc, layout
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, crc, layout

from tidelog.records.kernel.rows.record_check import check_records_v2

build_stamp.check(__name__, __file__)
crc.prepare()

COMPILED: bool = cython.compiled


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
    if size <= layout.HEADER_BYTES:
        return None
    p: cython.p_uchar = buffers.output(data)
    attributes: cython.int = cython.cast(cython.int, buffers.int16(p, 21))
    last_offset_delta: cython.longlong = buffers.int32(p, 23)
    count: cython.longlong = buffers.int32(p, 57)
    producer_id: cython.longlong = buffers.int64(p, 43)
    base_sequence: cython.longlong = buffers.int32(p, 53)
    checksum: cython.uint = cython.cast(cython.uint, buffers.uint32(p, 17))
    if (
        p[16] != 2
        or buffers.int32(p, 8) + layout.LOG_OVERHEAD != size
        or buffers.int64(p, 0) != 0
        or attributes & ~layout.TRANSACTIONAL_BIT
        or count <= 0
        or last_offset_delta + 1 != count
        or (producer_id >= 0 and base_sequence < 0)
    ):
        return None
    found: cython.uint
    with cython.nogil:
        found = crc.crc32c(p, 21, size, 0)
    if found != checksum:
        return None
    base_timestamp: cython.longlong = buffers.int64(p, 27)
    refused, max_timestamp, is_in_order, _ = check_records_v2(
        data, layout.HEADER_BYTES, size, count, base_timestamp, min_timestamp, last_timestamp, needs_keys, None
    )
    if refused or not is_in_order:
        return None
    largest: cython.longlong = max_timestamp
    if append_time >= 0:
        largest = append_time
        attributes |= layout.LOG_APPEND_TIME_BIT
    buffers.put(p, 0, 8, base_offset)
    buffers.put(p, 12, 4, leader_epoch)
    if append_time >= 0 or buffers.int64(p, 35) != largest:
        buffers.put(p, 21, 2, attributes)
        buffers.put(p, 35, 8, largest)
        with cython.nogil:
            checksum = crc.crc32c(p, 21, size, 0)
        buffers.put(p, 17, 4, checksum)
    return (
        0,
        size,
        base_offset,
        base_offset + last_offset_delta,
        2,
        checksum,
        attributes,
        base_timestamp,
        largest,
        leader_epoch,
        producer_id,
        buffers.int16(p, 51),
        base_sequence,
        count,
    )
