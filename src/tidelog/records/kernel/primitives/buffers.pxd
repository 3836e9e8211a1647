# What buffers.py does, in C, compiled into each kernel that uses it. Cython reads this; nobody else does.
cimport cython
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from libc.string cimport memcpy


# --- Buffers as pointers: an empty one has a place, too


cdef inline const unsigned char *input_bytes(const unsigned char[::1] view) noexcept:
    with cython.boundscheck(False):
        return &view[0]


cdef inline const int *input_ints(const int[::1] view) noexcept:
    with cython.boundscheck(False):
        return &view[0]


cdef inline const long long *input_longs(const long long[::1] view) noexcept:
    with cython.boundscheck(False):
        return &view[0]


cdef inline unsigned char *output(unsigned char[::1] view) noexcept:
    with cython.boundscheck(False):
        return &view[0]


cdef inline long long *longs(long long[::1] view) noexcept:
    with cython.boundscheck(False):
        return &view[0]


cdef inline unsigned long long *words(unsigned long long[::1] view) noexcept:
    with cython.boundscheck(False):
        return &view[0]


cdef inline int *ints(int[::1] view) noexcept:
    with cython.boundscheck(False):
        return &view[0]


cdef inline signed char *signed_bytes(signed char[::1] view) noexcept:
    with cython.boundscheck(False):
        return &view[0]


cdef extern from *:
    void _prefetch "__builtin_prefetch"(const void *address) noexcept nogil


cdef inline void prefetch(const unsigned long long *words, Py_ssize_t at) noexcept nogil:
    _prefetch(words + at)


cdef inline bytearray new_bytes(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)


cdef inline Py_ssize_t copy(
    unsigned char *out, Py_ssize_t at, const unsigned char *data, Py_ssize_t start, Py_ssize_t size
) noexcept nogil:
    memcpy(out + at, data + start, size)
    return at + size


# --- Numbers of Kafka: big-endian


cdef inline long long int16(const unsigned char *data, Py_ssize_t at) noexcept nogil:
    return <long long><signed char>data[at] << 8 | data[at + 1]


cdef inline long long int32(const unsigned char *data, Py_ssize_t at) noexcept nogil:
    cdef unsigned int raw
    raw = <unsigned int>data[at] << 24 | <unsigned int>data[at + 1] << 16 | <unsigned int>data[at + 2] << 8 | data[at + 3]
    return <int>raw


cdef inline long long uint32(const unsigned char *data, Py_ssize_t at) noexcept nogil:
    return <unsigned int>int32(data, at)


cdef inline long long int64(const unsigned char *data, Py_ssize_t at) noexcept nogil:
    return <long long>(<unsigned long long>int32(data, at) << 32 | <unsigned long long>uint32(data, at + 4))


cdef inline void put(unsigned char *out, Py_ssize_t at, int size, long long value) noexcept nogil:
    cdef int i
    for i in range(size):
        out[at + i] = value >> 8 * (size - 1 - i) & 255


# --- Arrow's binary layout


cdef inline long long entry_length(
    const int *offsets, const unsigned char *validity, bint has_validity, Py_ssize_t at
) noexcept nogil:
    if has_validity and not validity[at >> 3] >> (at & 7) & 1:
        return -1
    return offsets[at + 1] - offsets[at]
