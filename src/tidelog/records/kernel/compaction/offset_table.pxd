# How offset_table.py lies in memory, for the passes over it. Cython reads this; nobody else does.
cdef class OffsetTable:
    cdef public Py_ssize_t slots
    cdef public Py_ssize_t size
    cdef public long long latest_offset

    cdef object store
    cdef unsigned long long *words
    cdef bytes salt
    cdef unsigned long long salt_low
    cdef unsigned long long salt_high
    cdef unsigned long long hash_low
    cdef unsigned long long hash_high

    cdef bint put_entry(self, const unsigned char *p, Py_ssize_t at, Py_ssize_t length, long long offset) noexcept nogil
    cdef long long get_entry(self, const unsigned char *p, Py_ssize_t at, Py_ssize_t length) noexcept nogil
    cdef bint put_hashed(self, unsigned long long low, unsigned long long high, long long offset) noexcept nogil
    cdef long long get_hashed(self, unsigned long long low, unsigned long long high) noexcept nogil
    cdef Py_ssize_t find(self, unsigned long long low, unsigned long long high) noexcept nogil
    cdef void hash_key(self, const unsigned char *p, Py_ssize_t at, Py_ssize_t length) noexcept nogil
