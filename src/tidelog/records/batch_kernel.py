"""The batch kernel: a segment's batches checked, indexed and followed, without an object per batch.

Beside `kernel`, which looks inside batches, this one goes over them: recovery and the rebuilding of indexes read every byte of
a segment, and with batches of 1 KiB a gigabyte holds a million of them. It is likewise one file in Cython's pure-Python mode,
compiled where a C compiler is found and interpreted elsewhere, with the same answers. Compiled, the checksums come from
`checksums.h`: the processor's CRC-32C instruction if it has one, tables if not. `CRC32C` says which.

`SegmentScan` is the state of one walk from a segment's first batch to its last valid one; chunks of the file are handed to it
one after the other. For each batch (spec §4.7, §10):

==========  ==========================================================================================================
header      length, magic 0 to 2, size for that magic, offsets within int64
checksum    CRC-32C (v2) or CRC-32 (v0, v1) of the whole batch
order       first offset above the last one of the batch before, and not below the segment's base: no checksum of v2
            covers the base offset, and what comes later would be unreachable
range       last offset - base within int32, or else no index can tell it
indexes     if it begins more than `index_interval_bytes` behind the batch of the last entry: (last offset, position) into
            the offset index, (largest timestamp so far, last offset of the batch that first had it) into the time index
            unless the last entry has it already
epochs      its leader epoch and first offset, if it is above all before
producers   where it is, if the producers' state must be told of it (below)
==========  ==========================================================================================================

The walk ends at the first batch that fails (`fault`, one of `FAULTS`) or that the buffer does not hold to its end.

What a producer's state is after a segment follows from few of its batches: every marker, each batch that opens a transaction
(or that breaks one, being outside of it), and the last five of each producer, because no more are kept. `producer_positions`
has just these. Telling the state of more of them, in order, changes nothing.

Invariants
  - Nothing is read beyond the buffer; nothing that a batch says is trusted before it is checked.
  - The walk runs without the GIL and raises nothing: tables that are full end it, are enlarged, and it goes on.

`storage.recovery` calls this, as does all that walks whole segments.
"""

from __future__ import annotations

import zlib
from array import array

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.build_stamp import TIDELOG_SOURCE_CRC
    from cython.cimports.tidelog.records.native import (
        tidelog_checksums_init,
        tidelog_crc32,
        tidelog_crc32c,
        tidelog_crc32c_by_table,
    )

    from tidelog.records.build_stamp import check_source

    check_source(__name__, __file__, TIDELOG_SOURCE_CRC)
    CRC32C: str = ("table", "SSE4.2", "ARMv8")[tidelog_checksums_init()]
else:
    from crc32c import crc32c as _package_crc32c

    CRC32C = "package"

COMPILED: bool = cython.compiled

OVERFLOW = -7

FAULTS = {
    -1: "batch length too small",
    -2: "unknown batch magic",
    -3: "batch too small for its magic",
    -4: "batch offset out of range",
    -5: "batch checksum does not match",
    -6: "batch offset too low for its place",
    OVERFLOW: "batch offset does not fit its segment",
    -8: "batch position beyond int32",
}
"""Fault code → what is wrong with the batch that ended a scan, for an error's text."""

_LENGTH = cython.declare(cython.int, -1)
_MAGIC = cython.declare(cython.int, -2)
_SIZE = cython.declare(cython.int, -3)
_OFFSET = cython.declare(cython.int, -4)
_CHECKSUM = cython.declare(cython.int, -5)
_ORDER = cython.declare(cython.int, -6)
_OVERFLOW = cython.declare(cython.int, -7)
_POSITION = cython.declare(cython.int, -8)

_INT32_MAX = cython.declare(cython.longlong, 2**31 - 1)
_INT64_MAX = cython.declare(cython.longlong, 2**63 - 1)
_MASK32 = cython.declare(cython.longlong, 2**32 - 1)
_MASK64 = cython.declare(cython.ulonglong, 2**64 - 1)
_HASH_FACTOR = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)

_MIN_HEADER_BYTES = cython.declare(cython.Py_ssize_t, 18)
_HEADER_BYTES_V2 = cython.declare(cython.Py_ssize_t, 61)
_TRANSACTIONAL_BIT = cython.declare(cython.int, 0x10)
_CONTROL_BIT = cython.declare(cython.int, 0x20)

_KEPT_BATCHES = cython.declare(cython.Py_ssize_t, 5)
_FIRST_ROOM = 256
_FIRST_SLOTS = 64


# --- Buffers as pointers (compiled) or as themselves (interpreted) --------------------------------------------------------


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
def _input(view: cython.const[cython.uchar][::1]) -> cython.pointer(cython.const[cython.uchar]):
    if cython.compiled:
        return cython.address(view[0])
    else:
        return memoryview(view)


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
def _output(view: cython.uchar[::1]) -> cython.p_uchar:
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
def _small(view: cython.schar[::1]) -> cython.p_schar:
    if cython.compiled:
        return cython.address(view[0])
    else:
        return view


# --- Big-endian numbers and checksums -------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int32(data: cython.pointer(cython.const[cython.uchar]), at: cython.Py_ssize_t) -> cython.longlong:
    """Return the signed int32 at `at`."""
    if cython.compiled:
        high: cython.longlong = cython.cast(cython.schar, data[at])
        return high << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
    else:
        return int.from_bytes(data[at : at + 4], "big", signed=True)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int64(data: cython.pointer(cython.const[cython.uchar]), at: cython.Py_ssize_t) -> cython.longlong:
    """Return the signed int64 at `at`."""
    if cython.compiled:
        raw: cython.ulonglong = 0
        i: cython.int
        for i in range(8):
            raw = raw << 8 | data[at + i]
        return cython.cast(cython.longlong, raw)
    else:
        return int.from_bytes(data[at : at + 8], "big", signed=True)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put(out: cython.p_uchar, at: cython.Py_ssize_t, size: cython.int, value: cython.longlong) -> cython.void:
    """Write the low `size` bytes of a number that is not negative."""
    i: cython.int
    for i in range(size):
        out[at + i] = value >> 8 * (size - 1 - i) & 255


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _crc32c(
    data: cython.pointer(cython.const[cython.uchar]), start: cython.Py_ssize_t, end: cython.Py_ssize_t, value: cython.uint
) -> cython.uint:
    if cython.compiled:
        return tidelog_crc32c(value, data + start, end - start)
    else:
        return _package_crc32c(data[start:end], value)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _crc32(
    data: cython.pointer(cython.const[cython.uchar]), start: cython.Py_ssize_t, end: cython.Py_ssize_t, value: cython.uint
) -> cython.uint:
    if cython.compiled:
        return tidelog_crc32(value, data + start, end - start)
    else:
        return zlib.crc32(data[start:end], value)


def crc32c(data: cython.const[cython.uchar][::1], value: cython.uint = 0) -> int:
    """Return the CRC-32C of `data`; `value` is that of what came before. Releases the GIL."""
    length: cython.Py_ssize_t = len(data)
    if length == 0:
        return value
    pointer: cython.pointer(cython.const[cython.uchar]) = _input(data)
    with cython.nogil:
        value = _crc32c(pointer, 0, length, value)
    return value


def crc32c_by_table(data: cython.const[cython.uchar][::1], value: cython.uint = 0) -> int:
    """Return the same as `crc32c`, as a processor without an instruction for it comes to it."""
    length: cython.Py_ssize_t = len(data)
    if length == 0:
        return value
    pointer: cython.pointer(cython.const[cython.uchar]) = _input(data)
    if cython.compiled:
        return tidelog_crc32c_by_table(value, pointer, length)
    else:
        return _crc32c(pointer, 0, length, value)


def crc32(data: cython.const[cython.uchar][::1], value: cython.uint = 0) -> int:
    """Return zlib's CRC-32 of `data`; `value` is that of what came before. Releases the GIL."""
    length: cython.Py_ssize_t = len(data)
    if length == 0:
        return value
    pointer: cython.pointer(cython.const[cython.uchar]) = _input(data)
    with cython.nogil:
        value = _crc32(pointer, 0, length, value)
    return value


# --- What identifies batches -----------------------------------------------------------------------------------------------


def digest_batches(
    data: cython.const[cython.uchar][::1], end: cython.longlong, value: cython.uint = 0
) -> tuple[cython.longlong, cython.uint]:
    """Follow batches from the start of `data` on until `end`; return (where that led, their digest).

    The digest is a CRC-32C over base offset, size and checksum field of one batch after the other, 16 bytes as they stand in the
    header; `value` is that of the batches before. Of the last batch only the header need be there; where a header is not, or no
    batch's, the walk ends in front of it. Nothing else is checked.
    """
    length: cython.Py_ssize_t = len(data)
    position: cython.longlong = 0
    if length == 0:
        return (position, value)
    pointer: cython.pointer(cython.const[cython.uchar]) = _input(data)
    at: cython.Py_ssize_t
    size: cython.longlong
    with cython.nogil:
        while position < end and length - position >= 21:
            at = cython.cast(cython.Py_ssize_t, position)
            size = _int32(pointer, at + 8)
            if size < 14 or pointer[at + 16] > 2:
                break
            value = _crc32c(pointer, at, at + 12, value)
            if pointer[at + 16] == 2:
                value = _crc32c(pointer, at + 17, at + 21, value)
            else:
                value = _crc32c(pointer, at + 12, at + 16, value)
            position += 12 + size
    return (position, value)


# --- The walk -------------------------------------------------------------------------------------------------------------


@cython.cclass
class SegmentScan:
    """One walk over a segment's batches; the module's text says what is checked and collected.

    Offsets are absolute, positions are bytes in the ``.log``, timestamps milliseconds. Before the first batch `last_offset` is
    one below the base, timestamps and `offset_of_max_timestamp` are -1. `valid_bytes` is where the valid batches end.
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
    epoch_pairs: cython.p_longlong
    epoch_count: cython.Py_ssize_t
    epoch_room: cython.Py_ssize_t
    events: cython.p_int
    event_count: cython.Py_ssize_t
    event_room: cython.Py_ssize_t

    # Producers, hashed by id into slots, the next free one taken; -1 is a free slot, and a place in `kept` not used yet.
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
        self.full = False
        self.entry_count = self.time_count = self.epoch_count = self.event_count = 0
        self.stores = {}
        self.slot = 0
        self._size_entries(_FIRST_ROOM)
        self._size_epochs(_FIRST_ROOM)
        self._size_events(_FIRST_ROOM)
        self._size_slots(_FIRST_SLOTS)

    def scan(self, data: cython.const[cython.uchar][::1], position: cython.longlong) -> int:
        """Walk the batches of `data`, whose first byte is at file position `position`; return how many bytes were valid batches.

        Less than all of `data` is consumed at a fault, and where the last batch is not all there: `needed_bytes` then is its
        size, 0 if not even that is known. After a fault nothing more is consumed.
        """
        length: cython.Py_ssize_t = len(data)
        consumed: cython.Py_ssize_t = 0
        self.needed_bytes = 0
        if self.fault or length == 0:
            return 0
        pointer: cython.pointer(cython.const[cython.uchar]) = _input(data)
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
        """Go on from `data[start]`; return where the walk stands. Ends early, with `full` set, before a table overflows."""
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
            if position + at > _INT32_MAX:
                fault = _POSITION
                break
            size = _int32(data, at + 8) + 12
            if size < 26:
                fault = _LENGTH
                break
            magic = data[at + 16]
            if magic > 2:
                fault = _MAGIC
                break
            if size < (_HEADER_BYTES_V2 if magic == 2 else 26 + 8 * magic):
                fault = _SIZE
                break
            if size > end - at:
                self.needed_bytes = size
                break
            first = _int64(data, at)
            last = first
            if first < 0:
                fault = _OFFSET
                break
            if magic == 2:
                delta = _int32(data, at + 23)
                if delta < 0 or first > _INT64_MAX - delta:
                    fault = _OFFSET
                    break
                last = first + delta
                if self.checking and _crc32c(data, at + 21, at + size, 0) != _int32(data, at + 17) & _MASK32:
                    fault = _CHECKSUM
                    break
            elif self.checking and _crc32(data, at + 16, at + size, 0) != _int32(data, at + 12) & _MASK32:
                fault = _CHECKSUM
                break
            if first <= self.last_offset:
                fault = _ORDER
                break
            if last - self.base_offset > _INT32_MAX:
                fault = _OVERFLOW
                break

            self.last_offset = last
            if magic == 2:
                timestamp = _int64(data, at + 35)
                attributes = data[at + 22]
            else:
                timestamp = _int64(data, at + 18) if magic == 1 else -1
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
                epoch = _int32(data, at + 12)
                if epoch > self.latest_epoch:
                    self.latest_epoch = epoch
                    self.epoch_pairs[2 * self.epoch_count] = epoch
                    self.epoch_pairs[2 * self.epoch_count + 1] = first
                    self.epoch_count += 1
                producer = _int64(data, at + 43)
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
        _put(self.entries, 8 * self.entry_count, 4, self.last_offset - self.base_offset)
        _put(self.entries, 8 * self.entry_count + 4, 4, position)
        self.entry_count += 1
        self._add_time_entry()

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_time_entry(self) -> cython.void:
        if self.max_timestamp > self.last_time_entry:
            self.last_time_entry = self.max_timestamp
            _put(self.time_entries_, 12 * self.time_count, 8, self.max_timestamp)
            _put(self.time_entries_, 12 * self.time_count + 8, 4, self.offset_of_max_timestamp - self.base_offset)
            self.time_count += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _follow_producer(self, producer: cython.longlong, attributes: cython.int, position: cython.longlong) -> cython.void:
        slot: cython.Py_ssize_t = self.slot
        if self.slot_producer[slot] != producer:
            slot = self._find_slot(producer)
            self.slot = slot
        if attributes & _CONTROL_BIT:
            self.slot_open[slot] = 0
            self.events[self.event_count] = position
            self.event_count += 1
            return
        self.slot_kept[_KEPT_BATCHES * slot + self.slot_next[slot]] = position
        self.slot_next[slot] = 0 if self.slot_next[slot] == _KEPT_BATCHES - 1 else self.slot_next[slot] + 1
        if (attributes & _TRANSACTIONAL_BIT != 0) != (self.slot_open[slot] != 0):
            self.slot_open[slot] = 1
            self.events[self.event_count] = position
            self.event_count += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find_slot(self, producer: cython.longlong) -> cython.Py_ssize_t:
        """Return the slot of a producer, taken for it if it has none; one is free always."""
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
        # One time entry more than offset entries: the last one, which `finish` adds.
        self.stores["entries"] = self._enlarged("entries", bytearray(8 * room), 8 * self.entry_count)
        self.stores["time_entries"] = self._enlarged("time_entries", bytearray(12 * room + 12), 12 * self.time_count)
        self.entries = _output(self.stores["entries"])
        self.time_entries_ = _output(self.stores["time_entries"])
        self.entry_room = room

    def _size_epochs(self, room: cython.Py_ssize_t) -> None:
        self.stores["epochs"] = self._enlarged("epochs", array("q", bytes(16 * room)), 2 * self.epoch_count)
        self.epoch_pairs = _longs(self.stores["epochs"])
        self.epoch_room = room

    def _size_events(self, room: cython.Py_ssize_t) -> None:
        self.stores["events"] = self._enlarged("events", array("i", bytes(4 * room)), self.event_count)
        self.events = _ints(self.stores["events"])
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
        self.slot_producer = _longs(new["producer"])
        self.slot_kept = _ints(new["kept"])
        self.slot_next = _small(new["next"])
        self.slot_open = _small(new["open"])
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
        """The offset behind the last valid batch; the base without one."""
        last: object = self.last_offset
        return last + 1

    @property
    def index_entries(self) -> bytes:
        """The offset index as the file holds it."""
        return bytes(memoryview(self.stores["entries"])[: 8 * self.entry_count])

    @property
    def time_entries(self) -> bytes:
        """The time index as the file holds it; `finish` adds the last entry."""
        return bytes(memoryview(self.stores["time_entries"])[: 12 * self.time_count])

    @property
    def epochs(self) -> list:
        """(epoch, first offset) of each batch whose leader epoch is above all before."""
        pairs = self.stores["epochs"][: 2 * self.epoch_count].tolist()
        return list(zip(pairs[::2], pairs[1::2], strict=True))

    def finish(self) -> None:
        """Add the largest timestamp to the time index, as a roll, a close and a recovery do."""
        self._add_time_entry()

    def producer_positions(self) -> list:
        """Where the batches are, in order, that the producers' state must be told of."""
        found = set(self.stores["events"][: self.event_count])
        found.update(self.stores["kept"])
        found.discard(-1)
        return sorted(found)
