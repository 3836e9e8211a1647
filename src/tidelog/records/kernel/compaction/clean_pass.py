"""The second pass: it marks, copies or rebuilds the records to keep.

A rebuilt record keeps its bytes from the offset delta on. Its length and timestamp delta are rewritten if the batch's base
timestamp changes.
"""

from __future__ import annotations

from array import array

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.compaction.offset_table import OffsetTable
    from cython.cimports.tidelog.records.kernel.compaction.record_pass import Pass, check_count, plain_batch_end, read_record
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, crc, faults, layout, varints
else:
    from tidelog.records.kernel.compaction.offset_table import OffsetTable
    from tidelog.records.kernel.compaction.record_pass import Pass, check_count, plain_batch_end, read_record
    from tidelog.records.kernel.primitives import buffers, build_stamp, crc, faults, layout, varints

build_stamp.check(__name__, __file__)
crc.prepare()

NO_BASE = -(2**63 - 1) - 1
"""A value of `new_base`: the new base timestamp is the first kept record's."""

GROWTH_BYTES = 10
"""The most bytes by which a rebuilt record may grow: the timestamp delta may take 10 bytes instead of 1, and the length one
more.
"""

_GROWTH_BYTES = cython.declare(cython.Py_ssize_t, GROWTH_BYTES)


@cython.cclass
class CleanPass(Pass):
    """Keeps each key's latest record according to `table`, and tombstones until their delete horizon.

    `now_ms` is compared with a batch's delete horizon. A batch with tombstones but without a horizon gets `horizon_ms` (-1:
    none). `kept_ends` (int64, sorted) are the last offsets of batches that must stay, even empty: they are not handled as plain
    batches. The counters add up over all calls; each call of `select` or `rebuild` overwrites the results of the previous one.
    """

    messages_read = cython.declare(cython.longlong, visibility="public")
    messages_retained = cython.declare(cython.longlong, visibility="public")
    without_key = cython.declare(cython.longlong, visibility="public")
    max_offset = cython.declare(cython.longlong, visibility="public")
    max_timestamp = cython.declare(cython.longlong, visibility="public")
    offset_of_max_timestamp = cython.declare(cython.longlong, visibility="public")
    written = cython.declare(cython.Py_ssize_t, visibility="public")
    has_tombstones = cython.declare(cython.bint, visibility="public")
    last_retained_offset = cython.declare(cython.longlong, visibility="public")
    base_timestamp = cython.declare(cython.longlong, visibility="public")
    batch_max_timestamp = cython.declare(cython.longlong, visibility="public")

    table: OffsetTable
    now_ms: cython.longlong
    horizon_ms: cython.longlong
    kept_ends_store: object
    kept_ends: cython.p_longlong
    kept_count: cython.Py_ssize_t
    keep_store: object

    def __init__(self, table: object, now_ms: cython.longlong, horizon_ms: cython.longlong, kept_ends: array) -> None:
        Pass.__init__(self)
        self.table = OffsetTable(1, bytes(16)) if table is None else table
        self.now_ms = now_ms
        self.horizon_ms = horizon_ms
        self.kept_ends_store = kept_ends if len(kept_ends) else array("q", [-1])
        self.kept_ends = buffers.longs(self.kept_ends_store)
        self.kept_count = len(kept_ends)
        self.keep_store = bytearray(64)
        self.messages_read = 0
        self.messages_retained = 0
        self.without_key = 0
        self.max_offset = -1
        self.max_timestamp = -1
        self.offset_of_max_timestamp = -1
        self.written = 0
        self.has_tombstones = False
        self.last_retained_offset = -1
        self.base_timestamp = -1
        self.batch_max_timestamp = -1

    def select(
        self,
        data: cython.const[cython.uchar][::1],
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        base_offset: cython.longlong,
        last_offset: cython.longlong,
        retain_tombstones: cython.bint,
        keep: bytearray,
    ) -> int:
        """Mark the kept records of a v2 batch with 1 in `keep`, which has a byte for each record. Return their number, or a fault
        code.

        Sets `has_tombstones` and `last_retained_offset` for the kept records.
        """
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"the range {start}:{end} is not within {len(data)} bytes")
        p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
        marks: cython.p_uchar = buffers.output(keep) if len(keep) else buffers.output(bytearray(1))
        count: cython.longlong = len(keep)
        retained: cython.longlong
        with cython.nogil:
            retained = self._select(p, start, end, count, base_offset, last_offset, retain_tombstones, marks)
        return retained

    def rebuild(
        self,
        data: cython.const[cython.uchar][::1],
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        keep: cython.const[cython.uchar][::1],
        base_timestamp: cython.longlong,
        append_time: cython.longlong,
        is_append_time: cython.bint,
        new_base: cython.longlong,
        out: bytearray,
    ) -> cython.longlong:
        """Write the records marked in `keep` to `out`. Return the number of bytes, or a fault code.

        `out` needs the size of the records section, and `GROWTH_BYTES` more for each record. `new_base` (ms) is the new base
        timestamp, or `NO_BASE` for the first kept record's timestamp. Sets `base_timestamp` and `batch_max_timestamp`.
        """
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"the range {start}:{end} is not within {len(data)} bytes")
        if len(out) < end - start + GROWTH_BYTES * len(keep):
            raise ValueError(f"{len(out)} bytes are too few for {len(keep)} records of {end - start} bytes")
        p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
        marks: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(keep)
        target: cython.p_uchar = buffers.output(out)
        count: cython.longlong = len(keep)
        size: cython.longlong
        with cython.nogil:
            size = self._rebuild(p, start, end, count, marks, base_timestamp, append_time, is_append_time, new_base, target, 0)
        return size

    def filter_batches(
        self, data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t, out: bytearray
    ) -> cython.Py_ssize_t:
        """Filter the plain batches from `start` on into `out`. Return the position of the first unprocessed batch.

        Sets `written` to the number of bytes in `out`. Stops if `out` may not have room for the next batch.
        """
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"the range {start}:{end} is not within {len(data)} bytes")
        p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
        target: cython.p_uchar = buffers.output(out)
        room: cython.Py_ssize_t = len(out)
        marks: cython.p_uchar = buffers.output(self.keep_store)
        marks_room: cython.longlong = len(self.keep_store)
        pos: cython.Py_ssize_t = start
        batch_end: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        count: cython.longlong
        grown: cython.longlong = 0
        while True:
            with cython.nogil:
                while True:
                    batch_end = plain_batch_end(p, pos, end, self.transactional_end)
                    if batch_end < 0:
                        grown = 0
                        break
                    count = buffers.int32(p, pos + 57)
                    if count > marks_room:
                        grown = min(count, batch_end - pos)
                        break
                    if room - at < batch_end - pos + _GROWTH_BYTES * count:
                        grown = 0
                        break
                    if self._is_kept_end(buffers.int64(p, pos) + buffers.int32(p, pos + 23)) or not self.note(p, pos):
                        grown = 0
                        break
                    size: cython.longlong = self._filter(p, pos, batch_end, count, marks, target, at)
                    if size < 0:
                        grown = 0
                        break
                    at += size
                    pos = batch_end
            if grown <= marks_room:
                break
            self.keep_store = bytearray(2 * grown)
            marks = buffers.output(self.keep_store)
            marks_room = len(self.keep_store)
        self.written = at
        return pos

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_kept_end(self, last_offset: cython.longlong) -> cython.bint:
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self.kept_count
        middle: cython.Py_ssize_t
        while low < high:
            middle = (low + high) // 2
            if self.kept_ends[middle] < last_offset:
                low = middle + 1
            else:
                high = middle
        return low < self.kept_count and self.kept_ends[low] == last_offset

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _filter(
        self,
        p: cython.pointer(cython.const[cython.uchar]),
        pos: cython.Py_ssize_t,
        batch_end: cython.Py_ssize_t,
        count: cython.longlong,
        marks: cython.p_uchar,
        out: cython.p_uchar,
        at: cython.Py_ssize_t,
    ) -> cython.longlong:
        """Filter one plain batch to `out[at:]`. Return the number of bytes written, or a fault code, in which case no counter
        changes.
        """
        attributes: cython.int = p[pos + 22]
        base_offset: cython.longlong = buffers.int64(p, pos)
        last_offset: cython.longlong = base_offset + buffers.int32(p, pos + 23)
        base_timestamp: cython.longlong = buffers.int64(p, pos + 27)
        max_timestamp: cython.longlong = buffers.int64(p, pos + 35)
        start: cython.Py_ssize_t = pos + layout.HEADER_BYTES
        without_key: cython.longlong = self.without_key
        has_horizon: cython.bint = attributes & layout.DELETE_HORIZON_BIT != 0
        needs_horizon: cython.bint
        new_base: cython.longlong
        kept_offset: cython.longlong = last_offset
        size: cython.longlong
        retained: cython.longlong = self._select(
            p, start, batch_end, count, base_offset, last_offset, not has_horizon or self.now_ms < base_timestamp, marks
        )
        if retained < 0:
            self.without_key = without_key
            return retained
        needs_horizon = self.has_tombstones and not has_horizon and self.horizon_ms >= 0
        if retained == 0:
            size = 0
        elif retained == count and not needs_horizon:
            size = buffers.copy(out, at, p, pos, batch_end - pos) - at
        else:
            new_base = self.horizon_ms if needs_horizon else base_timestamp if has_horizon else layout.MIN_INT64
            size = self._rebuild(
                p,
                start,
                batch_end,
                count,
                marks,
                base_timestamp,
                max_timestamp,
                attributes & layout.LOG_APPEND_TIME_BIT != 0,
                new_base,
                out,
                at + layout.HEADER_BYTES,
            )
            if size < 0:
                self.without_key = without_key
                return size
            size += layout.HEADER_BYTES
            max_timestamp = self.batch_max_timestamp
            kept_offset = self.last_retained_offset
            self._put_header(p, pos, out, at, size, attributes, new_base != layout.MIN_INT64, retained)
        self.messages_read += count
        if retained > 0:
            self.messages_retained += retained
            if max_timestamp > self.max_timestamp:
                self.max_timestamp = max_timestamp
                self.offset_of_max_timestamp = last_offset
            if kept_offset > self.max_offset:
                self.max_offset = kept_offset
        return size

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_header(
        self,
        p: cython.pointer(cython.const[cython.uchar]),
        pos: cython.Py_ssize_t,
        out: cython.p_uchar,
        at: cython.Py_ssize_t,
        size: cython.longlong,
        attributes: cython.int,
        has_horizon: cython.bint,
        retained: cython.longlong,
    ) -> cython.void:
        """Write the header of a rebuilt plain batch: the old header, with the fields updated that depend on the records."""
        buffers.copy(out, at, p, pos, layout.HEADER_BYTES)
        buffers.put(out, at + 8, 4, size - 12)
        attributes &= layout.LOG_APPEND_TIME_BIT | layout.TRANSACTIONAL_BIT
        if has_horizon:
            attributes |= layout.DELETE_HORIZON_BIT
        buffers.put(out, at + 21, 2, attributes)
        buffers.put(out, at + 27, 8, self.base_timestamp)
        buffers.put(out, at + 35, 8, self.batch_max_timestamp)
        buffers.put(out, at + 57, 4, retained)
        buffers.put(out, at + 17, 4, crc.crc32c(out, at + 21, at + size, 0))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _select(
        self,
        p: cython.pointer(cython.const[cython.uchar]),
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.longlong,
        base_offset: cython.longlong,
        last_offset: cython.longlong,
        retain_tombstones: cython.bint,
        marks: cython.p_uchar,
    ) -> cython.longlong:
        pos: cython.Py_ssize_t = start
        after: cython.longlong
        i: cython.longlong = 0
        j: cython.longlong
        at: cython.Py_ssize_t
        block: cython.longlong
        offset: cython.longlong
        retained: cython.longlong = 0
        stays: cython.bint
        latest: cython.longlong = self.table.latest_offset
        fault: cython.int = check_count(start, end, count)
        self.fault_position = start
        self.has_tombstones = False
        self.last_retained_offset = -1
        if fault < 0:
            return fault
        while i < count:
            block = min(count - i, layout.BLOCK_RECORDS)
            after = self.read_block(self.table, p, pos, end, block, base_offset, last_offset, 0)
            if after < 0:
                return after
            at = 0
            for j in range(block):
                offset = self.block[at + layout.RECORD_OFFSET]
                if offset > latest:
                    stays = True
                elif not self.block[at + layout.HAS_KEY]:
                    self.without_key += 1
                    stays = False
                elif self.block[at + layout.IS_TOMBSTONE] and not retain_tombstones:
                    stays = False
                else:
                    stays = offset >= self.table.get_hashed(self.block[at + layout.HASH_LOW], self.block[at + layout.HASH_HIGH])
                marks[i + j] = 1 if stays else 0
                if stays:
                    retained += 1
                    if self.block[at + layout.IS_TOMBSTONE]:
                        self.has_tombstones = True
                    if offset > self.last_retained_offset:
                        self.last_retained_offset = offset
                at += layout.BLOCK_FIELDS
            pos = after
            i += block
        if pos != end:
            self.fault_position = pos
            return faults.TRAILING
        return retained

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _rebuild(
        self,
        p: cython.pointer(cython.const[cython.uchar]),
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.longlong,
        marks: cython.pointer(cython.const[cython.uchar]),
        base_timestamp: cython.longlong,
        append_time: cython.longlong,
        is_append_time: cython.bint,
        new_base: cython.longlong,
        out: cython.p_uchar,
        out_start: cython.Py_ssize_t,
    ) -> cython.longlong:
        pos: cython.Py_ssize_t = start
        after: cython.longlong
        i: cython.longlong = 0
        at: cython.Py_ssize_t = out_start
        timestamp: cython.longlong
        delta: cython.longlong
        rest: cython.Py_ssize_t
        has_base: cython.bint = new_base != layout.MIN_INT64
        base: cython.longlong = new_base
        max_timestamp: cython.longlong = -1
        fields: cython.p_longlong = self.fields
        min_delta: cython.longlong = layout.MIN_INT64 - base_timestamp if base_timestamp < 0 else layout.MIN_INT64
        max_delta: cython.longlong = layout.MAX_INT64 - base_timestamp if base_timestamp > 0 else layout.MAX_INT64
        fault: cython.int = check_count(start, end, count)
        self.fault_position = start
        if fault < 0:
            return fault
        while i < count:
            self.fault_position = pos
            if pos == end:
                return faults.TOO_FEW
            after = read_record(p, pos, end, layout.MAX_INT64, fields)
            if after < 0:
                return after
            if marks[i] != 0:
                if is_append_time:
                    timestamp = append_time
                else:
                    if fields[layout.TIME_DELTA] < min_delta or fields[layout.TIME_DELTA] > max_delta:
                        return faults.TIMESTAMP
                    timestamp = base_timestamp + fields[layout.TIME_DELTA]
                if timestamp < -1:
                    return faults.NEGATIVE_TIMESTAMP
                if not has_base:
                    base = timestamp
                    has_base = True
                if timestamp > max_timestamp:
                    max_timestamp = timestamp
                if base < 0 and timestamp == layout.MAX_INT64:
                    return faults.TIMESTAMP
                delta = timestamp - base
                rest = fields[layout.REST_POSITION]
                at = varints.put(out, at, 1 + varints.size(delta) + (after - rest))
                out[at] = 0
                at = varints.put(out, at + 1, delta)
                at = buffers.copy(out, at, p, rest, after - rest)
            pos = after
            i += 1
        self.base_timestamp = base if has_base else -1
        self.batch_max_timestamp = append_time if is_append_time else max_timestamp
        return at - out_start
