# What send_queue.py does, in C (send_queue.h), compiled into the kernel that uses it. Cython reads this; nobody else does.
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from libc.stdlib cimport free

cdef extern from "<sys/socket.h>" nogil:
    int shutdown(int fd, int how)
    int SHUT_RDWR

cdef extern from "send_queue.h" nogil:
    ctypedef struct Rest "tidelog_rest":
        Rest *next
        int fd
        size_t size
        unsigned char bytes[1]
    ctypedef struct Queue "tidelog_send_queue":
        uint64_t puts, told
        bint has_rests
        int wake_fds[2]
    Queue *queue_open "tidelog_send_queue_open"(bint with_thread)
    void queue_close "tidelog_send_queue_close"(Queue *queue)
    bint tidelog_has_room(Queue *queue, int fd, size_t size)
    bint tidelog_make_room(Queue *queue, int fd)
    void tidelog_put_begin(Queue *queue, int fd, size_t size)
    void tidelog_put_bytes(Queue *queue, const void *data, size_t size)
    bint tidelog_put_end(Queue *queue)
    void flush "tidelog_flush"(Queue *queue)
    void finish "tidelog_finish"(Queue *queue)
    bint is_settled "tidelog_is_settled"(Queue *queue, uint64_t number)
    Rest *tidelog_take_rests(Queue *queue)


cdef inline int put(Queue *queue, int fd, list chunks, size_t size) except -1:
    # An error leaves the queue as it was.
    cdef Py_buffer view
    cdef size_t left = size
    cdef bint is_possible = True
    if not tidelog_has_room(queue, fd, size):
        with nogil:
            is_possible = tidelog_make_room(queue, fd)
        if not is_possible:
            raise MemoryError
    tidelog_put_begin(queue, fd, size)
    for chunk in chunks:
        PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE)
        is_possible = <size_t> view.len <= left
        if is_possible:
            tidelog_put_bytes(queue, view.buf, view.len)
            left -= view.len
        PyBuffer_Release(&view)
        if not is_possible:
            break
    if left or not is_possible:
        raise ValueError("the chunks do not have the size of the response")
    if tidelog_put_end(queue):
        with nogil:
            flush(queue)
    return 0


cdef inline list take_rests(Queue *queue):
    cdef Rest *rest
    cdef Rest *following
    with nogil:
        rest = tidelog_take_rests(queue)
    found = []
    while rest:
        try:
            found.append((rest.fd, PyBytes_FromStringAndSize(<char *> rest.bytes, rest.size)))
        except MemoryError:
            shutdown(rest.fd, SHUT_RDWR)  # The peer sees the end of the connection, not a gap.
        following = rest.next
        free(rest)
        rest = following
    return found
