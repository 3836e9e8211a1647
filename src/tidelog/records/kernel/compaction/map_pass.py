"""The first pass: it puts keys into the table."""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.compaction.offset_table import OffsetTable
    from cython.cimports.tidelog.records.kernel.compaction.record_pass import Pass, check_count, plain_batch_end
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, faults, layout
else:
    from tidelog.records.kernel.compaction.offset_table import OffsetTable
    from tidelog.records.kernel.compaction.record_pass import Pass, check_count, plain_batch_end
    from tidelog.records.kernel.primitives import buffers, build_stamp, faults, layout

build_stamp.check(__name__, __file__)


@cython.cclass
class MapPass(Pass):
    """Puts the keys of records at or above `min_offset` into `table`, until the table has `max_entries`.

    `is_full` is True if the table had no room for a record. `table.latest_offset` is then the offset of the last record that was
    added.
    """

    messages_read = cython.declare(cython.longlong, visibility="public")
    is_full = cython.declare(cython.bint, visibility="public")

    table: OffsetTable
    min_offset: cython.longlong
    max_entries: cython.longlong

    def __init__(self, table: OffsetTable, min_offset: cython.longlong, max_entries: cython.longlong) -> None:
        Pass.__init__(self)
        self.table = table
        self.min_offset = min_offset
        self.max_entries = max_entries
        self.messages_read = 0
        self.is_full = False

    def add_records(
        self,
        data: cython.const[cython.uchar][::1],
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.longlong,
        base_offset: cython.longlong,
        last_offset: cython.longlong,
    ) -> int:
        """Add the records of a v2 batch, which are decompressed in `data[start:end]`. Return 0, or a fault code."""
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"the range {start}:{end} is outside of {len(data)} bytes")
        p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
        fault: cython.int
        with cython.nogil:
            fault = self._add(p, start, end, count, base_offset, last_offset)
        return fault

    def add_batches(
        self, data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Add the plain batches from `start` on. Return the position of the first batch that is not plain or was not added
        completely.
        """
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"the range {start}:{end} is outside of {len(data)} bytes")
        p: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
        pos: cython.Py_ssize_t = start
        batch_end: cython.Py_ssize_t
        base_offset: cython.longlong
        messages_read: cython.longlong
        with cython.nogil:
            while True:
                batch_end = plain_batch_end(p, pos, end, self.transactional_end)
                if batch_end < 0 or not self.note(p, pos):
                    break
                base_offset = buffers.int64(p, pos)
                messages_read = self.messages_read
                if (
                    self._add(
                        p,
                        pos + layout.HEADER_BYTES,
                        batch_end,
                        buffers.int32(p, pos + 57),
                        base_offset,
                        base_offset + buffers.int32(p, pos + 23),
                    )
                    < 0
                ):
                    # Keys already added stay in the table; the caller raises an error for this batch.
                    self.messages_read = messages_read
                    break
                if self.is_full:
                    break
                pos = batch_end
        return pos

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add(
        self,
        p: cython.pointer(cython.const[cython.uchar]),
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.longlong,
        base_offset: cython.longlong,
        last_offset: cython.longlong,
    ) -> cython.int:
        pos: cython.Py_ssize_t = start
        after: cython.longlong
        i: cython.longlong = 0
        j: cython.longlong
        at: cython.Py_ssize_t
        block: cython.longlong
        offset: cython.longlong
        fault: cython.int = check_count(start, end, count)
        self.fault_position = start
        if fault < 0:
            return fault
        while i < count:
            block = min(count - i, layout.BLOCK_RECORDS)
            after = self.read_block(self.table, p, pos, end, block, base_offset, last_offset, self.min_offset)
            if after < 0:
                return after
            at = 0
            for j in range(block):
                offset = self.block[at + layout.RECORD_OFFSET]
                if self.block[at + layout.HAS_KEY] and offset >= self.min_offset:
                    if self.table.size >= self.max_entries:
                        self.is_full = True
                        return 0
                    self.table.put_hashed(self.block[at + layout.HASH_LOW], self.block[at + layout.HASH_HIGH], offset)
                self.messages_read += 1
                at += layout.BLOCK_FIELDS
            pos = after
            i += block
        if pos != end:
            self.fault_position = pos
            return faults.TRAILING
        if last_offset >= self.min_offset:
            self.table.latest_offset = last_offset
        return 0
