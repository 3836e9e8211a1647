# What record_headers.py does, in C, compiled into each kernel that uses it. Cython reads this; nobody else does.
from tidelog.records.kernel.primitives cimport faults, varints


cdef inline Py_ssize_t skip(const unsigned char *data, Py_ssize_t pos, Py_ssize_t end, long long count) noexcept nogil:
    cdef long long packed
    cdef long long size
    if count < 0 or count > end - pos:
        return faults.HEADER_COUNT
    while count > 0:
        packed = varints.read(data, pos, end)
        if packed & 15 == 0:
            return packed >> 4
        pos += packed & 15
        size = packed >> 4
        size = (size >> 1) ^ -(size & 1)
        if size < 0 or size > end - pos:
            return faults.HEADER_KEY
        pos += size
        packed = varints.read(data, pos, end)
        if packed & 15 == 0:
            return packed >> 4
        pos += packed & 15
        size = packed >> 4
        size = (size >> 1) ^ -(size & 1)
        if size > end - pos:
            return faults.HEADER_VALUE
        if size > 0:
            pos += size
        count -= 1
    return pos
