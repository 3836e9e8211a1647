# What crc.py does, in C, compiled into each kernel that uses it. Cython reads this; nobody else does.
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t, uint8_t

cdef extern from "checksums.h" nogil:
    int tidelog_checksums_init()
    uint32_t tidelog_crc32c(uint32_t crc, const uint8_t *data, size_t length)
    uint32_t tidelog_crc32c_by_table(uint32_t crc, const uint8_t *data, size_t length)
    uint32_t tidelog_crc32(uint32_t crc, const uint8_t *data, size_t length)


cdef inline str prepare():
    return ("table", "SSE4.2", "ARMv8")[tidelog_checksums_init()]


cdef inline unsigned int crc32c(
    const unsigned char *data, Py_ssize_t start, Py_ssize_t end, unsigned int value
) noexcept nogil:
    return tidelog_crc32c(value, data + start, end - start)


cdef inline unsigned int crc32c_by_table(
    const unsigned char *data, Py_ssize_t start, Py_ssize_t end, unsigned int value
) noexcept nogil:
    return tidelog_crc32c_by_table(value, data + start, end - start)


cdef inline unsigned int crc32(
    const unsigned char *data, Py_ssize_t start, Py_ssize_t end, unsigned int value
) noexcept nogil:
    return tidelog_crc32(value, data + start, end - start)


cdef inline unsigned int crc32c_of(object data, unsigned int value) except? 0:
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < 4096:  # That takes less time than to give the interpreter away and get it back.
            value = tidelog_crc32c(value, <const uint8_t *> view.buf, view.len)
        else:
            with nogil:
                value = tidelog_crc32c(value, <const uint8_t *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return value
