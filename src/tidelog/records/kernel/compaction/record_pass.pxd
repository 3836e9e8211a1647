# What record_pass.py gives the two passes. Cython reads this; nobody else does.
from tidelog.records.kernel.compaction.offset_table cimport OffsetTable

cdef long long read_record(
    const unsigned char *p, Py_ssize_t pos, Py_ssize_t end, long long max_offset_delta, long long *fields
) noexcept nogil
cdef int check_count(Py_ssize_t start, Py_ssize_t end, long long count) noexcept nogil
cdef Py_ssize_t plain_batch_end(
    const unsigned char *p, Py_ssize_t pos, Py_ssize_t end, long long transactional_end
) noexcept nogil

cdef class Pass:
    cdef public long long transactional_end
    cdef public Py_ssize_t fault_position

    cdef object noted_store
    cdef long long *noted
    cdef Py_ssize_t noted_count
    cdef object fields_store
    cdef long long *fields
    cdef object block_store
    cdef unsigned long long *block

    cdef long long read_block(
        self,
        OffsetTable table,
        const unsigned char *p,
        Py_ssize_t pos,
        Py_ssize_t end,
        long long count,
        long long base_offset,
        long long last_offset,
        long long min_offset
    ) noexcept nogil
    cdef bint note(self, const unsigned char *p, Py_ssize_t pos) noexcept nogil
