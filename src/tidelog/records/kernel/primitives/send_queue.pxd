# What send_queue.py does, in C (send_queue.h), compiled into the kernel that uses it. Cython reads this; nobody else does.
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from libc.stdlib cimport free

cdef extern from "send_queue.h" nogil:
    ctypedef struct Rest "tidelog_rest":
        Rest *next
        int fd
        size_t size
        unsigned char bytes[1]
    ctypedef struct Queue "tidelog_send_queue":
        uint64_t puts, sent
        bint has_rests
        int wake_fds[2]
    Queue *queue_open "tidelog_send_queue_open"(bint with_thread)
    void queue_close "tidelog_send_queue_close"(Queue *queue)
    bint tidelog_put(Queue *queue, int fd, size_t size)
    void tidelog_put_bytes(Queue *queue, const void *data, size_t size)
    void tidelog_put_all(Queue *queue)
    void flush "tidelog_flush"(Queue *queue)
    void finish "tidelog_finish"(Queue *queue)
    void end_round "tidelog_end_round"(Queue *queue)
    bint is_settled "tidelog_is_settled"(Queue *queue, uint64_t number)
    Rest *tidelog_take_rests(Queue *queue)


cdef inline int put(Queue *queue, int fd, list chunks, size_t size) except -1:
    cdef Py_buffer view
    cdef size_t left = size
    if not tidelog_put(queue, fd, size):
        raise MemoryError
    for chunk in chunks:
        PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE)
        assert <size_t> view.len <= left
        tidelog_put_bytes(queue, view.buf, view.len)
        left -= view.len
        PyBuffer_Release(&view)
    assert not left
    tidelog_put_all(queue)
    return 0


cdef inline list take_rests(Queue *queue):
    cdef Rest *rest
    cdef Rest *following
    with nogil:
        rest = tidelog_take_rests(queue)
    found = []
    while rest:
        found.append((rest.fd, PyBytes_FromStringAndSize(<char *> rest.bytes, rest.size)))
        following = rest.next
        free(rest)
        rest = following
    return found
