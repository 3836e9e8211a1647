"""Code that the cleaner's two passes share: it parses records, recognizes plain batches, and collects producer ids.

Both passes process the decompressed records of one batch, or consecutive whole batches that are plain. A plain batch has format
v2, and is neither compressed nor a control batch; it may be transactional only below an offset (`transactional_end`) up to which
the caller knows that no transaction was aborted. The passes stop before a batch that is not plain or is damaged: the caller then
handles that batch alone and raises the error. They collect the producer ids of transactional batches.

Only `records.compaction` and `records.filter` call the passes.
"""

from __future__ import annotations

from array import array

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.compaction.offset_table import OffsetTable
    from cython.cimports.tidelog.records.kernel.primitives import (
        buffers,
        build_stamp,
        crc,
        faults,
        layout,
        record_headers,
        varints,
    )
else:
    from tidelog.records.kernel.compaction.offset_table import OffsetTable
    from tidelog.records.kernel.primitives import buffers, build_stamp, crc, faults, layout, record_headers, varints

build_stamp.check(__name__, __file__)
crc.prepare()

# Codec, control: a batch with any of these bits is not plain.
_NOT_PLAIN_BITS = cython.declare(cython.int, 0x27)
_NOTED_PRODUCERS = cython.declare(cython.Py_ssize_t, 1024)


def read_record(
    p: cython.pointer(cython.const[cython.uchar]),
    pos: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    max_offset_delta: cython.longlong,
    fields: cython.p_longlong,
) -> cython.longlong:
    """Read the record at `pos` into `fields`. Return the position after it, or a fault code. Validates the whole record."""
    packed: cython.longlong
    value: cython.longlong
    size: cython.int
    record_end: cython.Py_ssize_t
    headers: cython.longlong
    packed = varints.read(p, pos, end)
    if packed & 15 == 0:
        return packed >> 4
    pos += packed & 15
    value = packed >> 4
    value = (value >> 1) ^ -(value & 1)
    if value < 0 or value > end - pos:
        return faults.RECORD_SIZE
    record_end = pos + value
    pos += 1  # attributes: unused so far

    size = varints.long_size(p, pos, record_end)
    if size < 0:
        return size
    fields[layout.TIME_DELTA] = varints.long_value(p, pos, size)
    pos += size
    fields[layout.REST_POSITION] = pos

    packed = varints.read(p, pos, record_end)
    if packed & 15 == 0:
        return packed >> 4
    pos += packed & 15
    value = packed >> 4
    value = (value >> 1) ^ -(value & 1)
    if value < 0 or value > max_offset_delta:
        return faults.OFFSET
    fields[layout.OFFSET_DELTA] = value

    packed = varints.read(p, pos, record_end)
    if packed & 15 == 0:
        return packed >> 4
    pos += packed & 15
    value = packed >> 4
    value = (value >> 1) ^ -(value & 1)
    fields[layout.KEY_POSITION] = pos
    fields[layout.KEY_LENGTH] = value
    if value > record_end - pos:
        return faults.KEY_SIZE
    if value > 0:
        pos += value

    packed = varints.read(p, pos, record_end)
    if packed & 15 == 0:
        return packed >> 4
    pos += packed & 15
    value = packed >> 4
    value = (value >> 1) ^ -(value & 1)
    fields[layout.VALUE_LENGTH] = value
    if value > record_end - pos:
        return faults.VALUE_SIZE
    if value > 0:
        pos += value

    packed = varints.read(p, pos, record_end)
    if packed & 15 == 0:
        return packed >> 4
    pos += packed & 15
    value = packed >> 4
    headers = (value >> 1) ^ -(value & 1)
    pos = record_headers.skip(p, pos, record_end, headers)
    if pos < 0:
        return pos
    return record_end if pos == record_end else faults.SIZE_MISMATCH


def check_count(start: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.longlong) -> cython.int:
    if count < 0:
        return faults.NEGATIVE_COUNT
    if count > (end - start) // layout.MIN_RECORD_BYTES:
        return faults.NO_ROOM
    return 0


def plain_batch_end(
    p: cython.pointer(cython.const[cython.uchar]),
    pos: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    transactional_end: cython.longlong,
) -> cython.Py_ssize_t:
    """Return the position after the batch at `pos` if the batch is whole and plain and its checksum is correct; otherwise -1."""
    length: cython.longlong
    batch_end: cython.Py_ssize_t
    if end - pos < layout.HEADER_BYTES or p[pos + 16] != 2:
        return -1
    length = buffers.int32(p, pos + 8)
    if length < layout.HEADER_BYTES - 12 or length > end - pos - 12:
        return -1
    batch_end = pos + 12 + length
    if p[pos + 22] & _NOT_PLAIN_BITS != 0 or buffers.int64(p, pos) < 0 or buffers.int32(p, pos + 23) < 0:
        return -1
    if buffers.int64(p, pos) > layout.MAX_INT64 - buffers.int32(p, pos + 23):
        return -1
    if p[pos + 22] & layout.TRANSACTIONAL_BIT != 0 and buffers.int64(p, pos) + buffers.int32(p, pos + 23) >= transactional_end:
        return -1
    if crc.crc32c(p, pos + 21, batch_end, 0) != buffers.uint32(p, pos + 17):
        return -1
    return batch_end


class Pass:
    """The base class of both passes. It has `transactional_end` (see the module's docstring) and the producers of the processed
    transactional batches.

    A producer of several consecutive batches is stored once. A pass stops if there is no room for another producer.
    """

    def __init__(self) -> None:
        self.transactional_end = -1
        self.noted_store = array("q", bytes(8 * _NOTED_PRODUCERS))
        self.noted = buffers.longs(self.noted_store)
        self.noted_count = 0
        self.fields_store = array("q", bytes(8 * layout.RECORD_FIELDS))
        self.fields = buffers.longs(self.fields_store)
        self.block_store = array("Q", bytes(8 * layout.BLOCK_FIELDS * layout.BLOCK_RECORDS))
        self.block = buffers.words(self.block_store)
        self.fault_position = 0

    def take_producers(self) -> array:
        """Return the producer ids that were collected since the last call."""
        found = self.noted_store[: self.noted_count]
        self.noted_count = 0
        return found

    def read_block(
        self,
        table: OffsetTable,
        p: cython.pointer(cython.const[cython.uchar]),
        pos: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.longlong,
        base_offset: cython.longlong,
        last_offset: cython.longlong,
        min_offset: cython.longlong,
    ) -> cython.longlong:
        """Read `count` records from `pos` on into `block`. Return the position after them, or a fault code.

        The keys of records at or above `min_offset` are hashed. Sets `fault_position` to the position of a faulty record.
        """
        i: cython.longlong
        after: cython.longlong
        offset: cython.longlong
        at: cython.Py_ssize_t = 0
        fields: cython.p_longlong = self.fields
        for i in range(count):
            self.fault_position = pos
            if pos == end:
                return faults.TOO_FEW
            after = read_record(p, pos, end, last_offset - base_offset, fields)
            if after < 0:
                return after
            offset = base_offset + fields[layout.OFFSET_DELTA]
            self.block[at + layout.RECORD_OFFSET] = offset
            self.block[at + layout.HAS_KEY] = fields[layout.KEY_LENGTH] >= 0
            self.block[at + layout.IS_TOMBSTONE] = fields[layout.VALUE_LENGTH] < 0
            if fields[layout.KEY_LENGTH] >= 0 and offset >= min_offset:
                table.hash_key(p, fields[layout.KEY_POSITION], fields[layout.KEY_LENGTH])
                self.block[at + layout.HASH_LOW] = table.hash_low
                self.block[at + layout.HASH_HIGH] = table.hash_high
            at += layout.BLOCK_FIELDS
            pos = after
        return pos

    def note(self, p: cython.pointer(cython.const[cython.uchar]), pos: cython.Py_ssize_t) -> cython.bint:
        """Store the producer of the batch at `pos` if the batch is transactional. Return False if there is no room."""
        producer_id: cython.longlong
        if p[pos + 22] & layout.TRANSACTIONAL_BIT == 0:
            return True
        producer_id = buffers.int64(p, pos + 43)
        if self.noted_count > 0 and self.noted[self.noted_count - 1] == producer_id:
            return True
        if self.noted_count == _NOTED_PRODUCERS:
            return False
        self.noted[self.noted_count] = producer_id
        self.noted_count += 1
        return True
