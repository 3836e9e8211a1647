"""The compaction kernel: which offset is each key's latest, and which records therefore stay, without an object per record.

A second pass over what `kernel` reads, compiled or interpreted like that one, with the same answers (Cython's pure-Python
mode). `OffsetTable` maps keys to offsets; a `MapPass` fills it from records; a `CleanPass` asks it about each record, and
copies or rebuilds batches. Both take the records of one batch, decompressed, or runs of whole batches of the plain kind:
v2, uncompressed, no control batch, transactional only below an offset up to which the caller knows nothing to be aborted. They
stop in front of any other batch, and of one that is damaged: the caller then looks at that batch by itself and says what is
wrong with it. Of the transactional batches that they take, they note the producers.

Table
    A slot is 24 bytes: a 128-bit hash that stands for the key, and the offset + 1, 0 in an empty slot. That is what Kafka
    takes, so the same memory holds the same number of keys. The hash is SipHash-2-4 (interpreted: BLAKE2b) under a random
    salt: ten times cheaper than Kafka's MD5 for short keys, and nobody who does not know the salt can make two keys collide.
    Memory that holds no key yet is not touched, and so costs nothing.

A record that is rebuilt keeps its bytes from the offset delta on; length and timestamp delta are rewritten where the
batch's base timestamp changes.

Only `records.filter` and the cleaner call this.
"""

from __future__ import annotations

import mmap
from array import array
from hashlib import blake2b

import cython
from crc32c import crc32c

from tidelog.records.build_stamp import check_source
from tidelog.records.kernel import FAULTS as RECORD_FAULTS

if cython.compiled:
    from cython.cimports.libc.string import memcpy
    from cython.cimports.tidelog.records.build_stamp import TIDELOG_SOURCE_CRC
    from cython.cimports.tidelog.records.native import tidelog_checksums_init, tidelog_crc32c

    check_source(__name__, __file__, TIDELOG_SOURCE_CRC)
    tidelog_checksums_init()

COMPILED: bool = cython.compiled

SLOT_BYTES = 24
NO_BASE = -(2**63 - 1) - 1
"""Stands for: the base timestamp is that of the first record that stays."""

GROWTH_BYTES = 10
"""What one record may take more when it is rebuilt: a timestamp delta of 10 bytes for one of 1, a length of one byte more."""

FAULTS = {**RECORD_FAULTS, -30: "negative timestamp"}
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
_NEGATIVE_TIMESTAMP = cython.declare(cython.int, -30)

_INT64_MIN = cython.declare(cython.longlong, -(2**63 - 1) - 1)
_INT64_MAX = cython.declare(cython.longlong, 2**63 - 1)
_TWO_TO_32 = cython.declare(cython.longlong, 2**32)
_MASK32 = cython.declare(cython.longlong, 2**32 - 1)
_GROWTH_BYTES = cython.declare(cython.Py_ssize_t, GROWTH_BYTES)
_SIP_0 = cython.declare(cython.ulonglong, 0x736F6D6570736575)
_SIP_1 = cython.declare(cython.ulonglong, 0x646F72616E646F6D)
_SIP_2 = cython.declare(cython.ulonglong, 0x6C7967656E657261)
_SIP_3 = cython.declare(cython.ulonglong, 0x7465646279746573)
_MIN_RECORD_BYTES = cython.declare(cython.Py_ssize_t, 7)
_HEADER_BYTES = cython.declare(cython.Py_ssize_t, 61)
_HASHED_PROBES = cython.declare(cython.Py_ssize_t, 32)
_LOG_APPEND_TIME_BIT = cython.declare(cython.int, 0x08)
_DELETE_HORIZON_BIT = cython.declare(cython.int, 0x40)
_TRANSACTIONAL_BIT = cython.declare(cython.int, 0x10)
# Codec, control: a batch with any of these is not of the plain kind.
_NOT_PLAIN_BITS = cython.declare(cython.int, 0x27)
_NOTED_PRODUCERS = cython.declare(cython.Py_ssize_t, 1024)

# What `_record` finds, by index.
_TIME_DELTA = cython.declare(cython.int, 0)
_OFFSET_DELTA = cython.declare(cython.int, 1)
_REST_POSITION = cython.declare(cython.int, 2)
_KEY_POSITION = cython.declare(cython.int, 3)
_KEY_LENGTH = cython.declare(cython.int, 4)
_VALUE_LENGTH = cython.declare(cython.int, 5)
_FIELDS = 6


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
def _words(view: cython.ulonglong[::1]) -> cython.pointer(cython.ulonglong):
    if cython.compiled:
        return cython.address(view[0])
    else:
        return view


def _zeros(size: int) -> mmap.mmap:
    """Return writable zeros that take no memory before they are written to, and all of which goes when they go."""
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size)


# --- Numbers --------------------------------------------------------------------------------------------------------------


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


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put(out: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong, size: cython.int) -> cython.void:
    """Write the low `size` bytes of a number, big-endian."""
    i: cython.int = size - 1
    while i >= 0:
        out[at + i] = value & 255
        value >>= 8
        i -= 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _copy(
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
    data: cython.pointer(cython.const[cython.uchar]),
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    if cython.compiled:
        memcpy(cython.address(out[at]), cython.address(data[start]), size)
    else:
        out[at : at + size] = data[start : start + size]
    return at + size


# --- Records --------------------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _record(
    p: cython.pointer(cython.const[cython.uchar]),
    pos: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    max_offset_delta: cython.longlong,
    fields: cython.p_longlong,
) -> cython.longlong:
    """Read the record at `pos` into `fields`; return the position behind it, or a fault code. All of it is validated."""
    packed: cython.longlong
    value: cython.longlong
    size: cython.int
    record_end: cython.Py_ssize_t
    headers: cython.longlong
    packed = _varint(p, pos, end)
    if packed & 15 == 0:
        return packed >> 4
    pos += packed & 15
    value = packed >> 4
    value = (value >> 1) ^ -(value & 1)
    if value < 0 or value > end - pos:
        return _RECORD_SIZE
    record_end = pos + value
    pos += 1  # attributes: unused so far

    size = _varlong_size(p, pos, record_end)
    if size < 0:
        return size
    fields[_TIME_DELTA] = _varlong_value(p, pos, size)
    pos += size
    fields[_REST_POSITION] = pos

    packed = _varint(p, pos, record_end)
    if packed & 15 == 0:
        return packed >> 4
    pos += packed & 15
    value = packed >> 4
    value = (value >> 1) ^ -(value & 1)
    if value < 0 or value > max_offset_delta:
        return _OFFSET
    fields[_OFFSET_DELTA] = value

    packed = _varint(p, pos, record_end)
    if packed & 15 == 0:
        return packed >> 4
    pos += packed & 15
    value = packed >> 4
    value = (value >> 1) ^ -(value & 1)
    fields[_KEY_POSITION] = pos
    fields[_KEY_LENGTH] = value
    if value > record_end - pos:
        return _KEY_SIZE
    if value > 0:
        pos += value

    packed = _varint(p, pos, record_end)
    if packed & 15 == 0:
        return packed >> 4
    pos += packed & 15
    value = packed >> 4
    value = (value >> 1) ^ -(value & 1)
    fields[_VALUE_LENGTH] = value
    if value > record_end - pos:
        return _VALUE_SIZE
    if value > 0:
        pos += value

    packed = _varint(p, pos, record_end)
    if packed & 15 == 0:
        return packed >> 4
    pos += packed & 15
    value = packed >> 4
    headers = (value >> 1) ^ -(value & 1)
    if headers < 0 or headers > record_end - pos:
        return _HEADER_COUNT
    while headers > 0:
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
        headers -= 1
    return record_end if pos == record_end else _SIZE_MISMATCH


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _check_count(start: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.longlong) -> cython.int:
    if count < 0:
        return _NEGATIVE_COUNT
    if count > (end - start) // _MIN_RECORD_BYTES:
        return _NO_ROOM
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _plain_batch_end(
    p: cython.pointer(cython.const[cython.uchar]),
    pos: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    transactional_end: cython.longlong,
) -> cython.Py_ssize_t:
    """Return the position behind the batch at `pos` if it is whole, of the plain kind and has the right checksum, else -1."""
    length: cython.longlong
    batch_end: cython.Py_ssize_t
    if end - pos < _HEADER_BYTES or p[pos + 16] != 2:
        return -1
    length = _int32(p, pos + 8)
    if length < _HEADER_BYTES - 12 or length > end - pos - 12:
        return -1
    batch_end = pos + 12 + length
    if p[pos + 22] & _NOT_PLAIN_BITS != 0 or _int64(p, pos) < 0 or _int32(p, pos + 23) < 0:
        return -1
    if _int64(p, pos) > _INT64_MAX - _int32(p, pos + 23):
        return -1
    if p[pos + 22] & _TRANSACTIONAL_BIT != 0 and _int64(p, pos) + _int32(p, pos + 23) >= transactional_end:
        return -1
    if cython.compiled:
        if tidelog_crc32c(0, cython.address(p[pos + 21]), batch_end - pos - 21) != _int32(p, pos + 17) & _MASK32:
            return -1
    else:
        if crc32c(bytes(p[pos + 21 : batch_end])) != _int32(p, pos + 17) & _MASK32:
            return -1
    return batch_end


# --- The table ------------------------------------------------------------------------------------------------------------


@cython.cclass
class OffsetTable:
    """Key → offset, for `slots` keys in a buffer of 24 bytes each. `salt` is 16 random bytes.

    `latest_offset` is up to where the log was looked at: nothing is said about records above it. `put` moves it.
    """

    slots = cython.declare(cython.Py_ssize_t, visibility="public")
    size = cython.declare(cython.Py_ssize_t, visibility="public")
    latest_offset = cython.declare(cython.longlong, visibility="public")

    store: object
    words: cython.pointer(cython.ulonglong)
    salt: bytes
    salt_low: cython.ulonglong
    salt_high: cython.ulonglong
    hash_low: cython.ulonglong
    hash_high: cython.ulonglong

    def __init__(self, slots: cython.Py_ssize_t, salt: bytes) -> None:
        if slots < 1:
            raise ValueError(f"{slots} slots")
        if len(salt) != 16:
            raise ValueError(f"a salt of {len(salt)} bytes")
        self.slots = slots
        self.salt = salt
        self.salt_low = int.from_bytes(salt[:8], "little")
        self.salt_high = int.from_bytes(salt[8:], "little")
        self.clear()

    def clear(self) -> None:
        """Forget every key, and give the memory back."""
        self.store = None
        self.store = memoryview(_zeros(SLOT_BYTES * self.slots)).cast("Q")
        self.words = _words(self.store)
        self.size = 0
        self.latest_offset = -1

    def put(self, key: cython.const[cython.uchar][::1], offset: cython.longlong) -> None:
        """Note `offset` as the key's latest, whatever was noted before. Raises ValueError if the table is full."""
        if not self._put(_input(key), 0, len(key), offset):
            raise ValueError(f"a table of {self.slots} slots is full")

    def get(self, key: cython.const[cython.uchar][::1]) -> int:
        """Return the key's latest offset, -1 if it was never put."""
        return self._get(_input(key), 0, len(key))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put(
        self,
        p: cython.pointer(cython.const[cython.uchar]),
        at: cython.Py_ssize_t,
        length: cython.Py_ssize_t,
        offset: cython.longlong,
    ) -> cython.bint:
        slot: cython.Py_ssize_t = self._find(p, at, length)
        if slot < 0:
            return False
        if self.words[slot + 2] == 0:
            self.words[slot] = self.hash_low
            self.words[slot + 1] = self.hash_high
            self.size += 1
        self.words[slot + 2] = offset + 1
        self.latest_offset = offset
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _get(
        self, p: cython.pointer(cython.const[cython.uchar]), at: cython.Py_ssize_t, length: cython.Py_ssize_t
    ) -> cython.longlong:
        slot: cython.Py_ssize_t = self._find(p, at, length)
        found: cython.longlong
        if slot < 0:
            return -1
        found = self.words[slot + 2]
        return found - 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find(
        self, p: cython.pointer(cython.const[cython.uchar]), at: cython.Py_ssize_t, length: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Return the index in `words` of the key's slot, or of the empty one where it belongs; -1 if there is neither.

        A first few slots are far from each other, so that a table nearly full needs few probes; then all come in turn.
        """
        self._hash(p, at, length)
        slots: cython.Py_ssize_t = self.slots
        slot: cython.Py_ssize_t = self.hash_low % cython.cast(cython.ulonglong, slots)
        step: cython.Py_ssize_t = self.hash_high % cython.cast(cython.ulonglong, slots)
        probes: cython.Py_ssize_t = 0
        if step == 0:
            step = 1
        while probes < slots + _HASHED_PROBES:
            if self.words[3 * slot + 2] == 0:
                return 3 * slot
            if self.words[3 * slot] == self.hash_low and self.words[3 * slot + 1] == self.hash_high:
                return 3 * slot
            probes += 1
            if probes == _HASHED_PROBES:
                step = 1
            slot += step
            if slot >= slots:
                slot -= slots
        return -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _hash(
        self, p: cython.pointer(cython.const[cython.uchar]), at: cython.Py_ssize_t, length: cython.Py_ssize_t
    ) -> cython.void:
        """Leave the key's 128 bits in `hash_low` and `hash_high`."""
        if cython.compiled:
            v0: cython.ulonglong = self.salt_low ^ _SIP_0
            v1: cython.ulonglong = self.salt_high ^ _SIP_1 ^ 0xEE
            v2: cython.ulonglong = self.salt_low ^ _SIP_2
            v3: cython.ulonglong = self.salt_high ^ _SIP_3
            word: cython.ulonglong
            whole: cython.Py_ssize_t = length >> 3
            block: cython.Py_ssize_t
            rounds: cython.int
            i: cython.int
            # The whole words, the rest with the length on top, and twice nothing for the two halves of the result.
            for block in range(whole + 3):
                word = 0
                rounds = 2
                if block < whole:
                    memcpy(cython.address(word), cython.address(p[at + 8 * block]), 8)
                elif block == whole:
                    memcpy(cython.address(word), cython.address(p[at + 8 * block]), length & 7)
                    word |= cython.cast(cython.ulonglong, length & 255) << 56
                elif block == whole + 1:
                    v2 ^= 0xEE
                    rounds = 4
                else:
                    self.hash_low = v0 ^ v1 ^ v2 ^ v3
                    v1 ^= 0xDD
                    rounds = 4
                v3 ^= word
                for i in range(rounds):
                    v0 += v1
                    v1 = (v1 << 13 | v1 >> 51) ^ v0
                    v0 = v0 << 32 | v0 >> 32
                    v2 += v3
                    v3 = (v3 << 16 | v3 >> 48) ^ v2
                    v0 += v3
                    v3 = (v3 << 21 | v3 >> 43) ^ v0
                    v2 += v1
                    v1 = (v1 << 17 | v1 >> 47) ^ v2
                    v2 = v2 << 32 | v2 >> 32
                v0 ^= word
            self.hash_high = v0 ^ v1 ^ v2 ^ v3
        else:
            digest = blake2b(bytes(p[at : at + length]), digest_size=16, key=self.salt).digest()
            self.hash_low = int.from_bytes(digest[:8], "little")
            self.hash_high = int.from_bytes(digest[8:], "little")


# --- Passes ---------------------------------------------------------------------------------------------------------------


@cython.cclass
class Pass:
    """What both passes have: `transactional_end`, see the module; the producers of transactional batches that were taken.

    One that writes many batches in a row is noted once for them; where there is no room for another note, a run stops.
    """

    transactional_end = cython.declare(cython.longlong, visibility="public")

    noted_store: object
    noted: cython.p_longlong
    noted_count: cython.Py_ssize_t
    fields_store: object
    fields: cython.p_longlong

    def __init__(self) -> None:
        self.transactional_end = -1
        self.noted_store = array("q", bytes(8 * _NOTED_PRODUCERS))
        self.noted = _longs(self.noted_store)
        self.noted_count = 0
        self.fields_store = array("q", bytes(8 * _FIELDS))
        self.fields = _longs(self.fields_store)

    def take_producers(self) -> array:
        """Return the ids noted since the last call."""
        found = self.noted_store[: self.noted_count]
        self.noted_count = 0
        return found

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _note(self, p: cython.pointer(cython.const[cython.uchar]), pos: cython.Py_ssize_t) -> cython.bint:
        """Note the producer of the batch at `pos` if that is transactional; False if there is no room for it."""
        producer_id: cython.longlong
        if p[pos + 22] & _TRANSACTIONAL_BIT == 0:
            return True
        producer_id = _int64(p, pos + 43)
        if self.noted_count > 0 and self.noted[self.noted_count - 1] == producer_id:
            return True
        if self.noted_count == _NOTED_PRODUCERS:
            return False
        self.noted[self.noted_count] = producer_id
        self.noted_count += 1
        return True


# --- First pass: keys into the table --------------------------------------------------------------------------------------


@cython.cclass
class MapPass(Pass):
    """Puts the keys of records at or above `min_offset` into `table`, as long as that holds fewer than `max_entries`.

    `is_full` says that a record found no place; `table.latest_offset` is then the last one that did.
    """

    messages_read = cython.declare(cython.longlong, visibility="public")
    is_full = cython.declare(cython.bint, visibility="public")
    fault_position = cython.declare(cython.Py_ssize_t, visibility="public")

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
        self.fault_position = 0

    def add_records(
        self,
        data: cython.const[cython.uchar][::1],
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.longlong,
        base_offset: cython.longlong,
        last_offset: cython.longlong,
    ) -> int:
        """Take the records of a v2 batch, decompressed in `data[start:end]`; return 0, or a fault code."""
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"range {start}:{end} outside of {len(data)} bytes")
        p: cython.pointer(cython.const[cython.uchar]) = _input(data)
        fault: cython.int
        with cython.nogil:
            fault = self._add(p, start, end, count, base_offset, last_offset)
        return fault

    def add_batches(
        self, data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Take the plain batches from `start` on; return where the first begins that is none, or was not taken whole."""
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"range {start}:{end} outside of {len(data)} bytes")
        p: cython.pointer(cython.const[cython.uchar]) = _input(data)
        pos: cython.Py_ssize_t = start
        batch_end: cython.Py_ssize_t
        base_offset: cython.longlong
        messages_read: cython.longlong
        with cython.nogil:
            while True:
                batch_end = _plain_batch_end(p, pos, end, self.transactional_end)
                if batch_end < 0 or not self._note(p, pos):
                    break
                base_offset = _int64(p, pos)
                messages_read = self.messages_read
                if (
                    self._add(
                        p,
                        pos + _HEADER_BYTES,
                        batch_end,
                        _int32(p, pos + 57),
                        base_offset,
                        base_offset + _int32(p, pos + 23),
                    )
                    < 0
                ):
                    # What went into the table stays; the caller raises an error over this batch.
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
        offset: cython.longlong
        fields: cython.p_longlong = self.fields
        fault: cython.int = _check_count(start, end, count)
        self.fault_position = start
        if fault < 0:
            return fault
        while i < count:
            self.fault_position = pos
            if pos == end:
                return _TOO_FEW
            after = _record(p, pos, end, last_offset - base_offset, fields)
            if after < 0:
                return after
            offset = base_offset + fields[_OFFSET_DELTA]
            if fields[_KEY_LENGTH] >= 0 and offset >= self.min_offset:
                if self.table.size >= self.max_entries:
                    self.is_full = True
                    return 0
                self.table._put(p, fields[_KEY_POSITION], fields[_KEY_LENGTH], offset)
            self.messages_read += 1
            pos = after
            i += 1
        if pos != end:
            self.fault_position = pos
            return _TRAILING
        if last_offset >= self.min_offset:
            self.table.latest_offset = last_offset
        return 0


# --- Second pass: what stays ----------------------------------------------------------------------------------------------


@cython.cclass
class CleanPass(Pass):
    """Keeps the records that are their key's latest, as `table` says; of tombstones those whose time has not come.

    `now_ms` is compared with a batch's delete horizon; `horizon_ms` (-1: none) goes into a batch that has tombstones and no
    horizon yet. `kept_ends` (int64, sorted) are last offsets of batches that must not vanish: such batches are not taken as
    plain ones. The counters grow from call to call; what `select` and `rebuild` say about one batch is written over.
    """

    messages_read = cython.declare(cython.longlong, visibility="public")
    messages_retained = cython.declare(cython.longlong, visibility="public")
    without_key = cython.declare(cython.longlong, visibility="public")
    max_offset = cython.declare(cython.longlong, visibility="public")
    max_timestamp = cython.declare(cython.longlong, visibility="public")
    offset_of_max_timestamp = cython.declare(cython.longlong, visibility="public")
    written = cython.declare(cython.Py_ssize_t, visibility="public")
    fault_position = cython.declare(cython.Py_ssize_t, visibility="public")
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
        self.kept_ends = _longs(self.kept_ends_store)
        self.kept_count = len(kept_ends)
        self.keep_store = bytearray(64)
        self.messages_read = 0
        self.messages_retained = 0
        self.without_key = 0
        self.max_offset = -1
        self.max_timestamp = -1
        self.offset_of_max_timestamp = -1
        self.written = 0
        self.fault_position = 0
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
        """Mark with 1 in `keep`, one byte a record, those of a v2 batch that stay; return how many, or a fault code.

        Sets `has_tombstones` and `last_retained_offset`, of those that stay.
        """
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"range {start}:{end} outside of {len(data)} bytes")
        p: cython.pointer(cython.const[cython.uchar]) = _input(data)
        marks: cython.p_uchar = _output(keep) if len(keep) else _output(bytearray(1))
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
        """Write those records that `keep` marks to `out`; return how many bytes, or a fault code.

        `out` must have `GROWTH_BYTES` more for each record than the section takes now. `new_base` (ms) is the base timestamp
        from now on, `NO_BASE` for the first record's. Sets `base_timestamp` and `batch_max_timestamp`.
        """
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"range {start}:{end} outside of {len(data)} bytes")
        if len(out) < end - start + GROWTH_BYTES * len(keep):
            raise ValueError(f"{len(out)} bytes of room for {len(keep)} records of {end - start} bytes")
        p: cython.pointer(cython.const[cython.uchar]) = _input(data)
        marks: cython.pointer(cython.const[cython.uchar]) = _input(keep)
        target: cython.p_uchar = _output(out)
        count: cython.longlong = len(keep)
        size: cython.longlong
        with cython.nogil:
            size = self._rebuild(p, start, end, count, marks, base_timestamp, append_time, is_append_time, new_base, target, 0)
        return size

    def filter_batches(
        self, data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t, out: bytearray
    ) -> cython.Py_ssize_t:
        """Filter the plain batches from `start` on into `out`; return where the first begins that was not taken.

        Sets `written` to the bytes in `out`. Stops where that might not have room for the next batch.
        """
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"range {start}:{end} outside of {len(data)} bytes")
        p: cython.pointer(cython.const[cython.uchar]) = _input(data)
        target: cython.p_uchar = _output(out)
        room: cython.Py_ssize_t = len(out)
        marks: cython.p_uchar = _output(self.keep_store)
        marks_room: cython.longlong = len(self.keep_store)
        pos: cython.Py_ssize_t = start
        batch_end: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        count: cython.longlong
        grown: cython.longlong = 0
        while True:
            with cython.nogil:
                while True:
                    batch_end = _plain_batch_end(p, pos, end, self.transactional_end)
                    if batch_end < 0:
                        grown = 0
                        break
                    count = _int32(p, pos + 57)
                    if count > marks_room:
                        grown = min(count, batch_end - pos)
                        break
                    if room - at < batch_end - pos + _GROWTH_BYTES * count:
                        grown = 0
                        break
                    if self._is_kept_end(_int64(p, pos) + _int32(p, pos + 23)) or not self._note(p, pos):
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
            marks = _output(self.keep_store)
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
        """Filter one plain batch to `out[at:]`; return the bytes written, or a fault code, and then nothing counts."""
        attributes: cython.int = p[pos + 22]
        base_offset: cython.longlong = _int64(p, pos)
        last_offset: cython.longlong = base_offset + _int32(p, pos + 23)
        base_timestamp: cython.longlong = _int64(p, pos + 27)
        max_timestamp: cython.longlong = _int64(p, pos + 35)
        start: cython.Py_ssize_t = pos + _HEADER_BYTES
        without_key: cython.longlong = self.without_key
        has_horizon: cython.bint = attributes & _DELETE_HORIZON_BIT != 0
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
            size = _copy(out, at, p, pos, batch_end - pos) - at
        else:
            new_base = self.horizon_ms if needs_horizon else base_timestamp if has_horizon else _INT64_MIN
            size = self._rebuild(
                p,
                start,
                batch_end,
                count,
                marks,
                base_timestamp,
                max_timestamp,
                attributes & _LOG_APPEND_TIME_BIT != 0,
                new_base,
                out,
                at + _HEADER_BYTES,
            )
            if size < 0:
                self.without_key = without_key
                return size
            size += _HEADER_BYTES
            max_timestamp = self.batch_max_timestamp
            kept_offset = self.last_retained_offset
            self._put_header(p, pos, out, at, size, attributes, new_base != _INT64_MIN, retained)
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
        """Write the header of a rebuilt plain batch: the old one's, but for what the records say."""
        crc: cython.longlong
        _copy(out, at, p, pos, _HEADER_BYTES)
        _put(out, at + 8, size - 12, 4)
        attributes &= _LOG_APPEND_TIME_BIT | _TRANSACTIONAL_BIT
        if has_horizon:
            attributes |= _DELETE_HORIZON_BIT
        _put(out, at + 21, attributes, 2)
        _put(out, at + 27, self.base_timestamp, 8)
        _put(out, at + 35, self.batch_max_timestamp, 8)
        _put(out, at + 57, retained, 4)
        if cython.compiled:
            crc = tidelog_crc32c(0, cython.address(out[at + 21]), size - 21)
        else:
            crc = crc32c(bytes(out[at + 21 : at + size]))
        _put(out, at + 17, crc, 4)

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
        offset: cython.longlong
        retained: cython.longlong = 0
        stays: cython.bint
        latest: cython.longlong = self.table.latest_offset
        fields: cython.p_longlong = self.fields
        fault: cython.int = _check_count(start, end, count)
        self.fault_position = start
        self.has_tombstones = False
        self.last_retained_offset = -1
        if fault < 0:
            return fault
        while i < count:
            self.fault_position = pos
            if pos == end:
                return _TOO_FEW
            after = _record(p, pos, end, last_offset - base_offset, fields)
            if after < 0:
                return after
            offset = base_offset + fields[_OFFSET_DELTA]
            if offset > latest:
                stays = True
            elif fields[_KEY_LENGTH] < 0:
                self.without_key += 1
                stays = False
            elif fields[_VALUE_LENGTH] < 0 and not retain_tombstones:
                stays = False
            else:
                stays = offset >= self.table._get(p, fields[_KEY_POSITION], fields[_KEY_LENGTH])
            marks[i] = 1 if stays else 0
            if stays:
                retained += 1
                if fields[_VALUE_LENGTH] < 0:
                    self.has_tombstones = True
                if offset > self.last_retained_offset:
                    self.last_retained_offset = offset
            pos = after
            i += 1
        if pos != end:
            self.fault_position = pos
            return _TRAILING
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
        has_base: cython.bint = new_base != _INT64_MIN
        base: cython.longlong = new_base
        max_timestamp: cython.longlong = -1
        fields: cython.p_longlong = self.fields
        min_delta: cython.longlong = _INT64_MIN - base_timestamp if base_timestamp < 0 else _INT64_MIN
        max_delta: cython.longlong = _INT64_MAX - base_timestamp if base_timestamp > 0 else _INT64_MAX
        fault: cython.int = _check_count(start, end, count)
        self.fault_position = start
        if fault < 0:
            return fault
        while i < count:
            self.fault_position = pos
            if pos == end:
                return _TOO_FEW
            after = _record(p, pos, end, _INT64_MAX, fields)
            if after < 0:
                return after
            if marks[i] != 0:
                if is_append_time:
                    timestamp = append_time
                else:
                    if fields[_TIME_DELTA] < min_delta or fields[_TIME_DELTA] > max_delta:
                        return _TIMESTAMP
                    timestamp = base_timestamp + fields[_TIME_DELTA]
                if timestamp < -1:
                    return _NEGATIVE_TIMESTAMP
                if not has_base:
                    base = timestamp
                    has_base = True
                if timestamp > max_timestamp:
                    max_timestamp = timestamp
                if base < 0 and timestamp == _INT64_MAX:
                    return _TIMESTAMP
                delta = timestamp - base
                rest = fields[_REST_POSITION]
                at = _put_varint(out, at, 1 + _varint_bytes(delta) + (after - rest))
                out[at] = 0
                at = _put_varint(out, at + 1, delta)
                at = _copy(out, at, p, rest, after - rest)
            pos = after
            i += 1
        self.base_timestamp = base if has_base else -1
        self.batch_max_timestamp = append_time if is_append_time else max_timestamp
        return at - out_start
