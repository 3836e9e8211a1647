from tidelog.records.kernel.primitives cimport send_queue

cdef class SendQueue:
    cdef send_queue.Queue *_queue
