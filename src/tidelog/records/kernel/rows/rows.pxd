# How rows.py lies in memory, for the kernels that fill and read it. Cython reads this; nobody else does.
cdef class Rows:
    cdef public Py_ssize_t count
    cdef public Py_ssize_t capacity
    cdef public long long scanned
    cdef public long long without_timestamp
    cdef public Py_ssize_t fault_position
    cdef public bint positions

    cdef long long min_timestamp
    cdef long long last_timestamp
    cdef long long min_offset
    cdef long long last_offset
    cdef bint timed
    cdef bint bounded

    cdef dict stores
    cdef long long *offset
    cdef long long *timestamp
    cdef long long *create_time
    cdef int *key_position
    cdef int *key_length
    cdef int *value_position
    cdef int *value_length
    cdef int *headers_position
    cdef int *header_count
    cdef int *source
    cdef signed char *timestamp_type

    cdef void count_in(self, Py_ssize_t end_row, int source, int timestamp_type) noexcept
