"""Checks and patches an ordinary producer's batch in one call, so that it can be appended.

Nearly every append is a single uncompressed v2 batch with valid records. For it, `take_plain_batch` does what
`storage.partition.append.append_analysis` and `records.validation` do for any records. For anything else it changes nothing and
returns None, and those modules do the work or raise the error. So each error is raised in one place. `take_plain_batch` accepts
only these batches:

==============  ======================================================================================================
buffer          exactly one batch, magic 2, base offset 0
attributes      only "transactional": no codec, CreateTime, no control batch, no delete horizon
count           above 0, and equal to the number of offsets; a producer id comes with a sequence
checksum        correct
records         `record_check` refuses none, and their offset deltas are 0, 1, 2...
==============  ======================================================================================================

Then it writes base offset and leader epoch, the largest timestamp if it was wrong, or the append time, and the checksum if a
field that it covers has changed. Nothing is changed before all checks have passed.

`PlainAppends` does the whole append of such a batch, if nothing else is due: no roll, no write of an index, no flush, no change
of an epoch, topic or configuration. The batch is outside transactions. If it has a producer id, it follows the producer's last
batch directly: the same epoch, the next sequence. `PlainAppends` has no state. It reads and sets the attributes of the log's
parts (`storage.partition`, `storage.producers`), as `Appends` does in more steps, and leaves everything else to `Appends`.

Interpreted, both always return None: they would be no faster than the steps of `Appends`. `storage.partition.append.appends`
calls them.
"""

from __future__ import annotations

import os

import cython

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, crc, layout
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, crc, layout

from tidelog.records.kernel.rows.record_check import check_records_v2

build_stamp.check(__name__, __file__)
crc.prepare()

COMPILED: bool = cython.compiled

_NOT_PLAIN = cython.declare(cython.longlong, -3)
_UNKNOWN = cython.declare(cython.longlong, -2)
"""A segment's largest timestamp that was not looked up yet."""


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
    largest: cython.longlong = _largest_time(data, p, size, min_timestamp, last_timestamp, needs_keys)
    if largest == _NOT_PLAIN:
        return None
    _patch(p, size, base_offset, leader_epoch, largest, append_time)
    return (
        0,
        size,
        base_offset,
        base_offset + buffers.int32(p, 23),
        2,
        buffers.uint32(p, 17),
        buffers.int16(p, 21),
        buffers.int64(p, 27),
        buffers.int64(p, 35),
        leader_epoch,
        buffers.int64(p, 43),
        buffers.int16(p, 51),
        buffers.int32(p, 53),
        buffers.int32(p, 57),
    )


@cython.cfunc
def _largest_time(
    data: object,
    p: cython.p_uchar,
    size: cython.Py_ssize_t,
    min_timestamp: cython.longlong,
    last_timestamp: cython.longlong,
    needs_keys: cython.bint,
) -> cython.longlong:
    """Return the largest timestamp of a plain batch at `p`, -1 if no record has one, `_NOT_PLAIN` if the batch is not plain."""
    count: cython.longlong = buffers.int32(p, 57)
    found: cython.uint
    if (
        p[16] != 2
        or buffers.int32(p, 8) + layout.LOG_OVERHEAD != size
        or buffers.int64(p, 0) != 0
        or buffers.int16(p, 21) & ~layout.TRANSACTIONAL_BIT
        or count <= 0
        or buffers.int32(p, 23) + 1 != count
        or (buffers.int64(p, 43) >= 0 and buffers.int32(p, 53) < 0)
    ):
        return _NOT_PLAIN
    with cython.nogil:
        found = crc.crc32c(p, 21, size, 0)
    if found != cython.cast(cython.uint, buffers.uint32(p, 17)):
        return _NOT_PLAIN
    refused, max_timestamp, is_in_order, _ = check_records_v2(
        data, layout.HEADER_BYTES, size, count, buffers.int64(p, 27), min_timestamp, last_timestamp, needs_keys, None
    )
    return _NOT_PLAIN if refused or not is_in_order else max_timestamp


@cython.cfunc
@cython.exceptval(check=False)
def _patch(
    p: cython.p_uchar,
    size: cython.Py_ssize_t,
    base_offset: cython.longlong,
    leader_epoch: cython.longlong,
    largest: cython.longlong,
    append_time: cython.longlong,
) -> cython.void:
    """Write what an append changes in a plain batch."""
    checksum: cython.uint
    buffers.put(p, 0, 8, base_offset)
    buffers.put(p, 12, 4, leader_epoch)
    if append_time >= 0:
        largest = append_time
        buffers.put(p, 21, 2, buffers.int16(p, 21) | layout.LOG_APPEND_TIME_BIT)
    if append_time >= 0 or buffers.int64(p, 35) != largest:
        buffers.put(p, 35, 8, largest)
        with cython.nogil:
            checksum = crc.crc32c(p, 21, size, 0)
        buffers.put(p, 17, 4, checksum)


@cython.final
@cython.cclass
class PlainAppends:
    """The whole append of a plain batch to one log, under one configuration and leader epoch."""

    _config: object
    _local: object
    _watermarks: object
    _producers: object
    _epochs: object
    _metadata_file: object
    _availability: object
    _leader_epoch: cython.longlong
    _before_max_ms: cython.longlong
    _after_max_ms: cython.longlong
    _needs_keys: cython.bint
    _max_bytes: cython.longlong
    _segment_bytes: cython.longlong
    _max_segment_ms: cython.longlong
    _flush_messages: cython.longlong

    def __init__(self, parts: tuple, leader_epoch: int, before_max_ms: int, after_max_ms: int, needs_keys: bool) -> None:
        """`parts` are the log's local log, watermarks, producer state, leader epochs, metadata file and availability. Timestamps
        may be up to `before_max_ms` before the clock's time, and up to `after_max_ms` after it.
        """
        self._local, self._watermarks, self._producers, self._epochs, self._metadata_file, self._availability = parts
        config = self._config = self._local.config
        self._leader_epoch = leader_epoch
        self._before_max_ms = before_max_ms
        self._after_max_ms = after_max_ms
        self._needs_keys = needs_keys
        self._max_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._segment_bytes = config.segment_bytes
        self._max_segment_ms = config.max_segment_ms
        self._flush_messages = config.flush_messages

    def append(self, records: object, leader_epoch: cython.longlong, now_ms: cython.longlong) -> tuple | None:
        """Append a plain batch, all of the buffer `records`, and return the fields of `AppendInfo`. None for anything unusual,
        and if the write fails: then `Appends` does everything again, and reports it.
        """
        if not cython.compiled:
            return None
        local = self._local
        if (
            leader_epoch != self._leader_epoch
            or local.config is not self._config
            or self._availability.offline_reason is not None
            or local.is_closed
            or not local._has_index_write
            or self._metadata_file.is_dirty
        ):
            return None
        view = cython.declare(Py_buffer)  # noqa: F821 - Cython has it built in.
        PyObject_GetBuffer(records, cython.address(view), PyBUF_SIMPLE)
        try:
            if view.readonly or not layout.HEADER_BYTES < view.len <= self._max_bytes:
                return None
            return self._append(records, cython.cast(cython.p_uchar, view.buf), view.len, now_ms)
        finally:
            PyBuffer_Release(cython.address(view))

    @cython.cfunc
    def _append(self, records: object, p: cython.p_uchar, size: cython.Py_ssize_t, now_ms: cython.longlong) -> tuple | None:
        local = self._local
        segment = local.segments.active
        log = segment.log
        first_offset: cython.longlong = local.log_end_offset
        last_offset: cython.longlong = first_offset + buffers.int32(p, 23)
        base_offset: cython.longlong = segment.base_offset
        before: cython.longlong = log.size_bytes
        since: cython.longlong = segment.bytes_since_last_index_entry
        fd: cython.int = log._fd
        has_entry: cython.bint = since > segment.index_interval_bytes
        most_pending: cython.longlong = segment.index_write_behind if has_entry else layout.MAX_INT32
        if (
            buffers.int16(p, 21)
            or fd < 0
            or log._is_torn
            or not 0 < before <= self._segment_bytes - size
            or before + size > layout.MAX_INT32
            or not 0 <= last_offset - base_offset <= layout.MAX_INT32
            or last_offset - cython.cast(cython.longlong, local.recovery_point) >= self._flush_messages - 1
            or self._epochs.assign_fast(self._leader_epoch, first_offset) is None
            or not _has_room(segment.offset_index, 0, most_pending)
            or not _has_room(segment.time_index, 1, most_pending)
        ):
            return None
        latest: cython.longlong = segment._max_timestamp
        first_time = segment._rolling_based_timestamp
        if latest == _UNKNOWN or first_time is None or first_time < 0 or now_ms < 0:
            return None
        low: cython.longlong = now_ms - self._before_max_ms
        high: cython.longlong = layout.MAX_INT64
        if self._after_max_ms < layout.MAX_INT64 - now_ms:
            high = now_ms + self._after_max_ms
        if self._before_max_ms == layout.MAX_INT64 and self._after_max_ms == layout.MAX_INT64:
            low = layout.MIN_INT64
        producers = self._producers
        has_producer: cython.bint = buffers.int64(p, 43) >= 0
        entry = self._followed(p) if has_producer else None
        if has_producer and entry is None:
            return None
        largest: cython.longlong = _largest_time(records, p, size, low, high, self._needs_keys)
        since_first: cython.longlong = largest - first_time
        if largest == _NOT_PLAIN or since_first > self._max_segment_ms - segment.roll_jitter_ms:
            return None
        if has_producer:
            producer_id = entry.producer_id
            entry = producers.following(entry, last_offset, buffers.int32(p, 23), largest)
        offset_of_latest: object = segment._offset_of_max_timestamp
        if largest > latest:
            latest, offset_of_latest = largest, last_offset
        positions, times = segment.offset_index._live_entries, segment.time_index._live_entries
        entries: tuple = (positions.entries, times.entries)
        is_written: cython.bint = False
        try:
            if has_entry:
                positions.append(last_offset, before)
                times.maybe_append(latest, offset_of_latest)
                since = 0
            _patch(p, size, first_offset, self._leader_epoch, largest, -1)
            log._is_torn = True
            is_written = os.pwrite(fd, records, before) == size
        except Exception:
            is_written = False  # `Appends` tries again, and reports it.
        finally:
            if not is_written:
                buffers.put(p, 0, 8, 0)
                if has_entry:
                    positions.keep(entries[0])
                    times.keep(entries[1])
        if not is_written:
            return None
        log._is_written = True
        log._is_synced = False
        log.size_bytes = before + size
        log._is_torn = False
        segment._max_timestamp = latest
        segment._offset_of_max_timestamp = offset_of_latest
        segment.bytes_since_last_index_entry = since + size
        local.log_end_offset = producers.map_end_offset = last_offset + 1
        if has_producer:
            producers._producers[producer_id] = entry
        return first_offset, last_offset, largest, -1, self._watermarks.log_start_offset, size, False, None

    @cython.cfunc
    def _followed(self, p: cython.p_uchar) -> object:
        """Return the state of the producer whose last batch the batch at `p` follows directly; None if it does not, and if any
        transaction of the log is undecided.
        """
        producers = self._producers
        producer_id = buffers.int64(p, 43)
        entry = producers._producers.get(producer_id)
        first: cython.longlong = buffers.int32(p, 53)
        last: cython.longlong = first + buffers.int32(p, 23)
        if (
            entry is None
            or first <= 0
            or last > layout.MAX_INT32
            or cython.cast(cython.longlong, entry.producer_epoch) != buffers.int16(p, 51)
            or self._watermarks._first_unstable is not None
            or producers.has_undecided
            or producers._verifications
        ):
            return None
        batches: tuple = entry.batches
        if not batches or cython.cast(cython.longlong, batches[len(batches) - 1][0]) != first - 1:
            return None
        for batch in batches:
            if cython.cast(cython.longlong, batch[0]) == last:
                return None  # Perhaps a duplicate: a follower keeps batches in any order.
        return entry


@cython.cfunc
def _has_room(index: object, reserved: cython.longlong, most_pending: cython.longlong) -> cython.bint:
    """Whether an index is in memory, has room for another entry, and then has fewer than `most_pending` unwritten entries."""
    entries = index._live_entries
    if entries is None:
        return False
    count: cython.longlong = entries.entries
    written: cython.longlong = index._written
    return count < cython.cast(cython.longlong, entries.max_entries) - reserved and count + 1 - written < most_pending
