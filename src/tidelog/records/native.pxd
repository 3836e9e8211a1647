# What the compiled kernels take from C. Cython reads this; nobody else does.
from libc.stdint cimport uint32_t, uint8_t

cdef extern from "checksums.h" nogil:
    int tidelog_checksums_init()
    uint32_t tidelog_crc32c(uint32_t crc, const uint8_t *data, size_t length)
    uint32_t tidelog_crc32c_by_table(uint32_t crc, const uint8_t *data, size_t length)
    uint32_t tidelog_crc32(uint32_t crc, const uint8_t *data, size_t length)
