"""An ordinary producer's batch, checked and patched for the append in one call.

Nearly every append is a single uncompressed v2 batch with valid records. For it, `take_plain_batch` does what
`storage.partition.append.append_analysis` and `records.validation` do for any records. For anything else it changes nothing and
returns None, and they do the work or raise the error. So each rule is reported in one place, and this code only recognises
batches that violate none:

==============  ======================================================================================================
buffer          exactly one batch, magic 2, base offset 0
attributes      only "transactional": no codec, CreateTime, no control batch, no delete horizon
count           above 0, and equal to the number of offsets; a producer id comes with a sequence
checksum        correct
records         `record_check` refuses none, and their offset deltas are 0, 1, 2...
==============  ======================================================================================================

Then it writes base offset and leader epoch, the largest timestamp if it was wrong, or the append time, and the checksum if a
field that it covers has changed. Nothing is changed before all checks have passed.

Interpreted, it always returns None: it would be no faster than the others. `storage.partition.append.appends` calls it.
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
    """Check and patch a plain batch, all of `data`; return its header's fields as a tuple, or None for anything else.

    The fields are those of `batch.BatchHeader`, in order. Records have timestamps in [`min_timestamp`, `last_timestamp`] (ms), or
    none, and keys if `needs_keys`. `append_time` (ms) is for LogAppendTime, -1 for CreateTime.
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
