"""Walks a segment's batches once, without an object per batch: checks them, builds the indexes, and collects facts about them.

Recovery and index rebuilds read every byte of a segment, and a gigabyte holds a million batches of 1 KiB. `SegmentScan` is the
state of one walk from a segment's first batch to its last valid one. The caller passes the file in chunks. The walk checks or
collects for each batch (spec §4.7, §10):

==========  ==========================================================================================================
header      length, magic 0 to 2, size for that magic, offsets within int64
checksum    CRC-32C (v2) or CRC-32 (v0, v1) of the whole batch
order       first offset above the previous batch's last one, and not below the segment's base: v2 checksums do not
            cover the base offset, and later batches would be unreachable
range       last offset - base within int32: an index cannot express more
indexes     if it begins more than `index_interval_bytes` after the last entry's batch: (last offset, position) into
            the offset index, (largest timestamp so far, last offset of the batch that first had it) into the time index
            unless the last entry has it already
epochs      its leader epoch and first offset, if the epoch is a new maximum, and where the epoch's last batch begins;
            whether an epoch is lower than an earlier one (`lowers_epoch`)
gaps        the first missing offsets between two v2 batches (`gap_start`, `gap_end`)
producers   its position, if the producer state needs it (below)
==========  ==========================================================================================================

The walk ends at the first batch that fails (`fault`, one of `BATCH_FAULTS`) or that the buffer does not hold completely.

The producer state after a segment depends on few of its batches: every marker, each batch that opens a transaction, each batch
outside of its producer's open transaction, and each producer's last five batches, because no more are kept. `producer_positions`
has their positions. Applying more batches, in order, does not change the result.

Invariants
  - Nothing is read beyond the buffer; no field of a batch is used before it is checked.
  - The walk runs without the GIL and raises nothing. If a table is full, the walk stops, and continues with a larger table.

`storage.loading.recovery` and all other code that walks whole segments use this module.
"""

from __future__ import annotations

from array import array

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, crc, faults, layout
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, crc, faults, layout

build_stamp.check(__name__, __file__)
crc.prepare()

_MASK64 = cython.declare(cython.ulonglong, 2**64 - 1)
_HASH_FACTOR = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
_MIN_HEADER_BYTES = cython.declare(cython.Py_ssize_t, 18)
_KEPT_BATCHES = cython.declare(cython.Py_ssize_t, 5)
_FIRST_ROOM = 256
_FIRST_SLOTS = 64


@cython.cclass
class SegmentScan:
    """One walk over a segment's batches; the module's docstring lists what it checks and collects.

    Offsets are absolute, positions are bytes in the ``.log``, timestamps milliseconds. Before the first batch, `last_offset` is
    one below the base, and timestamps and `offset_of_max_timestamp` are -1. The valid batches end at `valid_bytes`.
    """

    base_offset = cython.declare(cython.longlong, visibility="readonly")
    batches = cython.declare(cython.longlong, visibility="readonly")
    valid_bytes = cython.declare(cython.longlong, visibility="readonly")
    last_offset = cython.declare(cython.longlong, visibility="readonly")
    max_timestamp = cython.declare(cython.longlong, visibility="readonly")
    offset_of_max_timestamp = cython.declare(cython.longlong, visibility="readonly")
    first_max_timestamp = cython.declare(cython.longlong, visibility="readonly")
    last_index_position = cython.declare(cython.longlong, visibility="readonly")
    last_append_time = cython.declare(cython.longlong, visibility="readonly")
    producers = cython.declare(cython.Py_ssize_t, visibility="readonly")
    fault = cython.declare(cython.int, visibility="readonly")
    fault_position = cython.declare(cython.longlong, visibility="readonly")
    needed_bytes = cython.declare(cython.longlong, visibility="readonly")
    gap_start = cython.declare(cython.longlong, visibility="readonly")
    gap_end = cython.declare(cython.longlong, visibility="readonly")
    lowers_epoch = cython.declare(cython.bint, visibility="readonly")

    interval: cython.longlong
    checking: cython.bint
    full: cython.bint
    latest_epoch: cython.longlong
    last_time_entry: cython.longlong

    stores: dict
    entries: cython.p_uchar
    entry_count: cython.Py_ssize_t
    entry_room: cython.Py_ssize_t
    time_entries_: cython.p_uchar
    time_count: cython.Py_ssize_t
    epoch_runs: cython.p_longlong
    epoch_count: cython.Py_ssize_t
    epoch_room: cython.Py_ssize_t
    events: cython.p_int
    event_count: cython.Py_ssize_t
    event_room: cython.Py_ssize_t

    # Producers, hashed by id into slots with linear probing; -1 is a free slot, or an unused entry of `kept`.
    slot_bits: cython.int
    slots: cython.Py_ssize_t
    slot: cython.Py_ssize_t
    slot_producer: cython.p_longlong
    slot_kept: cython.p_int
    slot_next: cython.p_schar
    slot_open: cython.p_schar

    def __init__(
        self, base_offset: cython.longlong, index_interval_bytes: cython.longlong, check_crc: cython.bint = True
    ) -> None:
        self.base_offset = base_offset
        self.interval = index_interval_bytes
        self.checking = check_crc
        self.batches = 0
        self.valid_bytes = 0
        self.last_offset = base_offset - 1
        self.max_timestamp = -1
        self.offset_of_max_timestamp = -1
        self.first_max_timestamp = -1
        self.last_append_time = -1
        self.last_index_position = 0
        self.last_time_entry = -1
        self.latest_epoch = -1
        self.producers = 0
        self.fault = 0
        self.fault_position = 0
        self.needed_bytes = 0
        self.gap_start = self.gap_end = -1
        self.lowers_epoch = False
        self.full = False
        self.entry_count = self.time_count = self.epoch_count = self.event_count = 0
        self.stores = {}
        self.slot = 0
        self._size_entries(_FIRST_ROOM)
        self._size_epochs(_FIRST_ROOM)
        self._size_events(_FIRST_ROOM)
        self._size_slots(_FIRST_SLOTS)

    def scan(self, data: cython.const[cython.uchar][::1], position: cython.longlong) -> int:
        """Walk the batches of `data`, whose first byte is at file position `position`. Return how many bytes hold valid batches.

        The walk stops before a fault and before a partial last batch, whose size is then in `needed_bytes` (0 if unknown). After
        a fault, further calls return 0.
        """
        length: cython.Py_ssize_t = len(data)
        consumed: cython.Py_ssize_t = 0
        self.needed_bytes = 0
        if self.fault or length == 0:
            return 0
        pointer: cython.pointer(cython.const[cython.uchar]) = buffers.input_bytes(data)
        while True:
            with cython.nogil:
                consumed = self._walk(pointer, consumed, length, position)
            if not self.full:
                self.valid_bytes = position + consumed
                return consumed
            self._make_room()

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _walk(
        self,
        data: cython.pointer(cython.const[cython.uchar]),
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        position: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Continue at `data[start]`, and return the position reached. If a table is full, stop early and set `full`."""
        at: cython.Py_ssize_t = start
        size: cython.longlong
        magic: cython.int
        attributes: cython.int
        first: cython.longlong
        last: cython.longlong
        delta: cython.longlong
        epoch: cython.longlong
        timestamp: cython.longlong
        producer: cython.longlong
        fault: cython.int = 0
        self.full = False
        while end - at >= _MIN_HEADER_BYTES:
            if (
                self.entry_count == self.entry_room
                or self.epoch_count == self.epoch_room
                or self.event_count == self.event_room
                or 2 * self.producers >= self.slots
            ):
                self.full = True
                break
            if position + at > layout.MAX_INT32:
                fault = faults.BATCH_POSITION
                break
            size = buffers.int32(data, at + 8) + 12
            if size < 26:
                fault = faults.BATCH_LENGTH
                break
            magic = data[at + 16]
            if magic > 2:
                fault = faults.BATCH_MAGIC
                break
            if size < (layout.HEADER_BYTES if magic == 2 else 26 + 8 * magic):
                fault = faults.BATCH_SIZE
                break
            if size > end - at:
                self.needed_bytes = size
                break
            first = buffers.int64(data, at)
            last = first
            if first < 0:
                fault = faults.BATCH_OFFSET
                break
            if magic == 2:
                delta = buffers.int32(data, at + 23)
                if delta < 0 or first > layout.MAX_INT64 - delta:
                    fault = faults.BATCH_OFFSET
                    break
                last = first + delta
                if self.checking and crc.crc32c(data, at + 21, at + size, 0) != buffers.uint32(data, at + 17):
                    fault = faults.BATCH_CHECKSUM
                    break
            elif self.checking and crc.crc32(data, at + 16, at + size, 0) != buffers.uint32(data, at + 12):
                fault = faults.BATCH_CHECKSUM
                break
            if first <= self.last_offset:
                fault = faults.BATCH_ORDER
                break
            if last - self.base_offset > layout.MAX_INT32:
                fault = faults.BATCH_OVERFLOW
                break

            if magic == 2 and first - self.last_offset > 1 and self.batches and self.gap_start < 0:
                self.gap_start = self.last_offset + 1
                self.gap_end = first
            self.last_offset = last
            if magic == 2:
                timestamp = buffers.int64(data, at + 35)
                attributes = data[at + 22]
            else:
                timestamp = buffers.int64(data, at + 18) if magic == 1 else -1
                attributes = data[at + 17] if magic == 1 else 0
            if self.batches == 0:
                self.first_max_timestamp = timestamp
            self.batches += 1
            if attributes & 8:
                self.last_append_time = timestamp
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
                self.offset_of_max_timestamp = last
            if position + at - self.last_index_position > self.interval:
                self._add_entry(position + at)
                self.last_index_position = position + at
            if magic == 2:
                epoch = buffers.int32(data, at + 12)
                if epoch > self.latest_epoch:
                    self.latest_epoch = epoch
                    self.epoch_runs[3 * self.epoch_count] = epoch
                    self.epoch_runs[3 * self.epoch_count + 1] = first
                    self.epoch_runs[3 * self.epoch_count + 2] = first
                    self.epoch_count += 1
                elif epoch >= 0:
                    if epoch < self.latest_epoch:
                        self.lowers_epoch = True
                    else:
                        self.epoch_runs[3 * self.epoch_count - 1] = first
                producer = buffers.int64(data, at + 43)
                if producer >= 0:
                    self._follow_producer(producer, attributes, position + at)
            at += size
        if fault:
            self.fault = fault
            self.fault_position = position + at
        return at

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_entry(self, position: cython.longlong) -> cython.void:
        buffers.put(self.entries, 8 * self.entry_count, 4, self.last_offset - self.base_offset)
        buffers.put(self.entries, 8 * self.entry_count + 4, 4, position)
        self.entry_count += 1
        self._add_time_entry()

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_time_entry(self) -> cython.void:
        if self.max_timestamp > self.last_time_entry:
            self.last_time_entry = self.max_timestamp
            buffers.put(self.time_entries_, 12 * self.time_count, 8, self.max_timestamp)
            buffers.put(self.time_entries_, 12 * self.time_count + 8, 4, self.offset_of_max_timestamp - self.base_offset)
            self.time_count += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _follow_producer(self, producer: cython.longlong, attributes: cython.int, position: cython.longlong) -> cython.void:
        slot: cython.Py_ssize_t = self.slot
        if self.slot_producer[slot] != producer:
            slot = self._find_slot(producer)
            self.slot = slot
        if attributes & layout.CONTROL_BIT:
            self.slot_open[slot] = 0
            self.events[self.event_count] = position
            self.event_count += 1
            return
        self.slot_kept[_KEPT_BATCHES * slot + self.slot_next[slot]] = position
        self.slot_next[slot] = 0 if self.slot_next[slot] == _KEPT_BATCHES - 1 else self.slot_next[slot] + 1
        if (attributes & layout.TRANSACTIONAL_BIT != 0) != (self.slot_open[slot] != 0):
            self.slot_open[slot] = 1
            self.events[self.event_count] = position
            self.event_count += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find_slot(self, producer: cython.longlong) -> cython.Py_ssize_t:
        """Return a producer's slot, and assign one if the producer has none. A free slot always exists."""
        key: cython.ulonglong = producer
        slot: cython.Py_ssize_t = (key * _HASH_FACTOR & _MASK64) >> (64 - self.slot_bits)
        while self.slot_producer[slot] != producer:
            if self.slot_producer[slot] < 0:
                self.slot_producer[slot] = producer
                self.producers += 1
                break
            slot = (slot + 1) & (self.slots - 1)
        return slot

    # --- tables

    def _make_room(self) -> None:
        if self.entry_count == self.entry_room:
            self._size_entries(4 * self.entry_room)
        if self.epoch_count == self.epoch_room:
            self._size_epochs(4 * self.epoch_room)
        if self.event_count == self.event_room:
            self._size_events(4 * self.event_room)
        if 2 * self.producers >= self.slots:
            self._size_slots(4 * self.slots)

    def _size_entries(self, room: cython.Py_ssize_t) -> None:
        # One more time entry than offset entries: `finish` adds the last one.
        self.stores["entries"] = self._enlarged("entries", bytearray(8 * room), 8 * self.entry_count)
        self.stores["time_entries"] = self._enlarged("time_entries", bytearray(12 * room + 12), 12 * self.time_count)
        self.entries = buffers.output(self.stores["entries"])
        self.time_entries_ = buffers.output(self.stores["time_entries"])
        self.entry_room = room

    def _size_epochs(self, room: cython.Py_ssize_t) -> None:
        self.stores["epochs"] = self._enlarged("epochs", array("q", bytes(24 * room)), 3 * self.epoch_count)
        self.epoch_runs = buffers.longs(self.stores["epochs"])
        self.epoch_room = room

    def _size_events(self, room: cython.Py_ssize_t) -> None:
        self.stores["events"] = self._enlarged("events", array("i", bytes(4 * room)), self.event_count)
        self.events = buffers.ints(self.stores["events"])
        self.event_room = room

    def _enlarged(self, name: str, new: object, used: cython.Py_ssize_t) -> object:
        if used:
            new[:used] = self.stores[name][:used]
        return new

    def _size_slots(self, slots: cython.Py_ssize_t) -> None:
        old = self.stores
        kept: cython.Py_ssize_t = _KEPT_BATCHES
        new = {
            "producer": array("q", [-1]) * slots,
            "kept": array("i", [-1]) * (slots * kept),
            "next": array("b", bytes(slots)),
            "open": array("b", bytes(slots)),
        }
        self.slots = slots
        self.slot_bits = slots.bit_length() - 1
        self.slot_producer = buffers.longs(new["producer"])
        self.slot_kept = buffers.ints(new["kept"])
        self.slot_next = buffers.signed_bytes(new["next"])
        self.slot_open = buffers.signed_bytes(new["open"])
        self.producers = 0
        if "producer" in old:
            for place, producer in enumerate(old["producer"]):
                if producer >= 0:
                    slot = self._find_slot(producer)
                    new["kept"][slot * kept : slot * kept + kept] = old["kept"][place * kept : place * kept + kept]
                    new["next"][slot] = old["next"][place]
                    new["open"][slot] = old["open"][place]
        self.slot = 0
        self.stores = {**old, **new}

    # --- results

    @property
    def next_offset(self) -> int:
        """The offset after the last valid batch; the base if there is none."""
        last: object = self.last_offset
        return last + 1

    @property
    def index_entries(self) -> bytes:
        """The offset index, as stored in the file."""
        return bytes(memoryview(self.stores["entries"])[: 8 * self.entry_count])

    @property
    def time_entries(self) -> bytes:
        """The time index, as stored in the file. `finish` adds the last entry."""
        return bytes(memoryview(self.stores["time_entries"])[: 12 * self.time_count])

    @property
    def epochs(self) -> list:
        """(epoch, first offset) of each batch whose leader epoch is above all earlier ones."""
        return [(epoch, first) for epoch, first, _ in self.epoch_spans]

    @property
    def epoch_spans(self) -> list:
        """(epoch, first offset, first offset of its last batch) of each leader epoch above all earlier ones."""
        runs = self.stores["epochs"][: 3 * self.epoch_count].tolist()
        return list(zip(runs[::3], runs[1::3], runs[2::3], strict=True))

    def finish(self) -> None:
        """Add the largest timestamp to the time index, as a roll, a close and a recovery do."""
        self._add_time_entry()

    def producer_positions(self) -> list:
        """The positions, in order, of the batches that the producer state needs."""
        found = set(self.stores["events"][: self.event_count])
        found.update(self.stores["kept"])
        found.discard(-1)
        return sorted(found)
