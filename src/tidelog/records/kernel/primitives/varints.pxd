# What varints.py does, in C, compiled into each kernel that uses it. Cython reads this; nobody else does.
from tidelog.records.kernel.primitives cimport faults


cdef inline long long read(const unsigned char *data, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef long long raw = 0
    cdef long long byte
    cdef int shift = 0
    cdef Py_ssize_t at = pos
    while at < end:
        byte = data[at]
        at += 1
        if shift == 28:
            if byte >= 128:
                return faults.VARINT * 16
            byte &= 15  # bits beyond the 32nd are dropped, as Kafka drops them
        raw |= (byte & 127) << shift
        if byte < 128:
            return raw * 16 + (at - pos)
        shift += 7
    return faults.CUT_OFF * 16


cdef inline int long_size(const unsigned char *data, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef int size = 0
    while pos + size < end:
        if size == 10:
            return faults.VARINT
        if data[pos + size] < 128:
            return size + 1
        size += 1
    return faults.VARINT if size >= 10 else faults.CUT_OFF


cdef inline long long long_value(const unsigned char *data, Py_ssize_t pos, int size) noexcept nogil:
    cdef unsigned long long raw = 0
    cdef unsigned long long byte
    cdef int i
    cdef long long half
    for i in range(size):
        byte = data[pos + i]
        if i == 9:
            byte &= 1  # the 64th bit
        raw |= (byte & 127) << (7 * i)
    half = raw >> 1
    if raw & 1:
        return -half - 1
    return half


cdef inline int size(long long value) noexcept nogil:
    cdef int bytes_taken = 1
    if value < 0:
        value = -value - 1  # as many bits as the zig-zag of it, less the sign's
    while value >= 64:
        value >>= 7
        bytes_taken += 1
    return bytes_taken


cdef inline Py_ssize_t put(unsigned char *out, Py_ssize_t at, long long value) noexcept nogil:
    cdef long long sign = 0
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
