"""The hashes with which producers choose partitions: murmur2 in Kafka's producer, CRC-32 in librdkafka's."""

from __future__ import annotations

from array import array

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp
    from cython.cimports.tidelog.records.kernel.rows.binary_column import BinaryColumn
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp
    from tidelog.records.kernel.rows.binary_column import BinaryColumn

build_stamp.check(__name__, __file__)

_MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_CRC32_POLYNOMIAL = cython.declare(cython.ulonglong, 0xEDB88320)
_MURMUR_M = cython.declare(cython.ulonglong, 0x5BD1E995)
_MURMUR_SEED = cython.declare(cython.ulonglong, 0x9747B28C)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _murmur2(
    p: cython.pointer(cython.const[cython.uchar]), start: cython.Py_ssize_t, length: cython.Py_ssize_t
) -> cython.ulonglong:
    h: cython.ulonglong = _MURMUR_SEED ^ length
    k: cython.ulonglong
    byte: cython.ulonglong
    i: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + length
    while i + 4 <= end:
        byte = p[i + 3]
        k = (byte << 24) | (p[i + 2] << 16) | (p[i + 1] << 8) | p[i]
        k = k * _MURMUR_M & _MASK32
        k ^= k >> 24
        k = k * _MURMUR_M & _MASK32
        h = h * _MURMUR_M & _MASK32
        h ^= k
        i += 4
    if end - i == 3:
        h ^= p[i + 2] << 16
    if end - i >= 2:
        h ^= p[i + 1] << 8
    if end - i >= 1:
        h ^= p[i]
        h = h * _MURMUR_M & _MASK32
    h ^= h >> 13
    h = h * _MURMUR_M & _MASK32
    return h ^ h >> 15


def murmur2(data: cython.const[cython.uchar][::1]) -> int:
    """Return Kafka's 32-bit murmur2 of `data`, unsigned."""
    return _murmur2(buffers.input_bytes(data), 0, len(data))


def crc32_partitions(keys: BinaryColumn, partitions: cython.int) -> array:
    """Return each key's partition (int32) by librdkafka's default partitioner: CRC-32 modulo the number of partitions. Null and
    empty keys get -1, because librdkafka assigns them at random.
    """
    if partitions < 1:
        raise ValueError(f"{partitions} partitions")
    out = array("i", bytes(4 * keys.length))
    target: cython.p_int = buffers.ints(out)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    length: cython.longlong
    bit: cython.int
    crc: cython.ulonglong
    with cython.nogil:
        for row in range(keys.length):
            length = buffers.entry_length(keys.offsets, keys.validity, keys.has_validity, keys.first + row)
            if length <= 0:
                target[row] = -1
                continue
            crc = _MASK32
            for at in range(keys.offsets[keys.first + row], keys.offsets[keys.first + row] + length):
                crc ^= keys.data[at]
                for bit in range(8):
                    crc = crc >> 1 ^ (_CRC32_POLYNOMIAL if crc & 1 else 0)
            target[row] = (crc ^ _MASK32) % partitions
    return out


def murmur2_partitions(keys: BinaryColumn, partitions: cython.int) -> array:
    """Return each key's partition (int32) by Kafka's default partitioner: positive(murmur2) modulo the number of partitions; -1
    for a null key.
    """
    if partitions < 1:
        raise ValueError(f"{partitions} partitions")
    out = array("i", bytes(4 * keys.length))
    target: cython.p_int = buffers.ints(out)
    row: cython.Py_ssize_t
    length: cython.longlong
    h: cython.ulonglong
    with cython.nogil:
        for row in range(keys.length):
            length = buffers.entry_length(keys.offsets, keys.validity, keys.has_validity, keys.first + row)
            if length < 0:
                target[row] = -1
            else:
                h = _murmur2(keys.data, keys.offsets[keys.first + row], length)
                target[row] = (h & 2147483647) % partitions
    return out
