"""A hash table of each key's latest offset, in one buffer.

A slot is 24 bytes: a 128-bit hash of the key, and the offset + 1, which is 0 in an empty slot. Kafka uses the same size, so the
same memory holds the same number of keys. The hash is SipHash-2-4 (interpreted: BLAKE2b) with a random salt. It is ten times
cheaper than Kafka's MD5 for short keys, and nobody can construct collisions without knowing the salt. Memory without keys is not
touched, and so costs nothing. A large table uses pages of two megabytes if the system has them.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from hashlib import blake2b

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp

build_stamp.check(__name__, __file__)

COMPILED: bool = cython.compiled

SLOT_BYTES = 24

_LARGE_BYTES = 16 * 1024 * 1024
_HASHED_PROBES = cython.declare(cython.Py_ssize_t, 32)
_SIP_0 = cython.declare(cython.ulonglong, 0x736F6D6570736575)
_SIP_1 = cython.declare(cython.ulonglong, 0x646F72616E646F6D)
_SIP_2 = cython.declare(cython.ulonglong, 0x6C7967656E657261)
_SIP_3 = cython.declare(cython.ulonglong, 0x7465646279746573)


def _zeros(size: int) -> mmap.mmap:
    """Return writable zeros that take no memory until they are written to, and that release all their memory when they are
    freed.
    """
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    zeros = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE") and size >= _LARGE_BYTES:
        # Keys are spread over all of it: with small pages, each access would be a page fault at first and a TLB miss later.
        with suppress(OSError):  # The system has none.
            zeros.madvise(mmap.MADV_HUGEPAGE)
    return zeros


class OffsetTable:
    """A map from keys to offsets, for `slots` keys of 24 bytes each. `salt` is 16 random bytes.

    `latest_offset` is the last offset that the table covers. `put` advances it.
    """

    def __init__(self, slots: cython.Py_ssize_t, salt: bytes) -> None:
        if slots < 1:
            raise ValueError(f"{slots} slots")
        if len(salt) != 16:
            raise ValueError(f"the salt has {len(salt)} bytes, not 16")
        self.slots = slots
        self.salt = salt
        self.salt_low = int.from_bytes(salt[:8], "little")
        self.salt_high = int.from_bytes(salt[8:], "little")
        self.clear()

    def clear(self) -> None:
        """Remove every key and release the memory."""
        self.store = None
        self.store = memoryview(_zeros(SLOT_BYTES * self.slots)).cast("Q")
        self.words = buffers.words(self.store)
        self.size = 0
        self.latest_offset = -1

    def put(self, key: cython.const[cython.uchar][::1], offset: cython.longlong) -> None:
        """Set the key's latest offset, and replace any earlier one. Raises ValueError if the table is full."""
        if not self.put_entry(buffers.input_bytes(key), 0, len(key), offset):
            raise ValueError(f"the table of {self.slots} slots is full")

    def get(self, key: cython.const[cython.uchar][::1]) -> int:
        """Return the key's latest offset, -1 if the table does not have the key."""
        return self.get_entry(buffers.input_bytes(key), 0, len(key))

    def put_entry(
        self,
        p: cython.pointer(cython.const[cython.uchar]),
        at: cython.Py_ssize_t,
        length: cython.Py_ssize_t,
        offset: cython.longlong,
    ) -> cython.bint:
        self.hash_key(p, at, length)
        return self.put_hashed(self.hash_low, self.hash_high, offset)

    def put_hashed(self, low: cython.ulonglong, high: cython.ulonglong, offset: cython.longlong) -> cython.bint:
        slot: cython.Py_ssize_t = self.find(low, high)
        if slot < 0:
            return False
        if self.words[slot + 2] == 0:
            self.words[slot] = low
            self.words[slot + 1] = high
            self.size += 1
        self.words[slot + 2] = offset + 1
        self.latest_offset = offset
        return True

    def get_entry(
        self, p: cython.pointer(cython.const[cython.uchar]), at: cython.Py_ssize_t, length: cython.Py_ssize_t
    ) -> cython.longlong:
        self.hash_key(p, at, length)
        return self.get_hashed(self.hash_low, self.hash_high)

    def get_hashed(self, low: cython.ulonglong, high: cython.ulonglong) -> cython.longlong:
        slot: cython.Py_ssize_t = self.find(low, high)
        found: cython.longlong
        if slot < 0:
            return -1
        found = self.words[slot + 2]
        return found - 1

    def find(self, low: cython.ulonglong, high: cython.ulonglong) -> cython.Py_ssize_t:
        """Return the index in `words` of the slot with this hash, or of the empty slot for it. Return -1 if there is neither.

        The first few probes are far apart, so that a nearly full table needs few probes. Then all slots are probed in turn.
        """
        slots: cython.Py_ssize_t = self.slots
        slot: cython.Py_ssize_t = low % cython.cast(cython.ulonglong, slots)
        step: cython.Py_ssize_t = 0
        probes: cython.Py_ssize_t = 0
        while probes < slots + _HASHED_PROBES:
            if self.words[3 * slot + 2] == 0:
                return 3 * slot
            if self.words[3 * slot] == low and self.words[3 * slot + 1] == high:
                return 3 * slot
            probes += 1
            if probes == 1:
                step = high % cython.cast(cython.ulonglong, slots)
            if step == 0 or probes == _HASHED_PROBES:
                step = 1
            slot += step
            if slot >= slots:
                slot -= slots
        return -1

    def hash_key(
        self, p: cython.pointer(cython.const[cython.uchar]), at: cython.Py_ssize_t, length: cython.Py_ssize_t
    ) -> cython.void:
        """Store the key's 128-bit hash in `hash_low` and `hash_high`, and prefetch its slot: most slots are in no cache, and the
        caller hashes other keys meanwhile.
        """
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
            # The whole words, the rest with the length in the top byte, and two empty rounds for the two halves of the result.
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
            buffers.prefetch(self.words, 3 * (self.hash_low % cython.cast(cython.ulonglong, self.slots)))
        else:
            digest = blake2b(bytes(p[at : at + length]), digest_size=16, key=self.salt).digest()
            self.hash_low = int.from_bytes(digest[:8], "little")
            self.hash_high = int.from_bytes(digest[8:], "little")
