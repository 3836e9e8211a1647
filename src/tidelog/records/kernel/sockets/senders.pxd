from tidelog.records.kernel.primitives cimport sending

cdef class Senders:
    cdef sending.Pool *_pool
    cdef dict _kept
    cdef long long _last
