# What sending.py does, in C (sending.h), compiled into the kernel that uses it. Cython reads this; nobody else does.
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t
from libc.stdlib cimport free

cdef extern from "sending.h" nogil:
    ctypedef struct Job "tidelog_job":
        Job *next
        int64_t key
        int error
        size_t sent
    ctypedef struct Pool "tidelog_pool":
        int wake_fds[2]
    Pool *pool_open "tidelog_pool_open"(int warm, int cold)
    Job *job_new "tidelog_job_new"(int64_t key, int fd, int count)
    void tidelog_job_add(Job *job, const void *data, size_t size, size_t limit)
    void pool_put "tidelog_pool_put"(Pool *pool, Job *job)
    Job *pool_take "tidelog_pool_take"(Pool *pool)
    bint pool_close "tidelog_pool_close"(Pool *pool, double seconds)
    int tidelog_is_in_memory(const void *at, size_t size)
    size_t tidelog_ahead(const void *at, size_t size, size_t limit)


cdef inline size_t mapping_end(object chunk) except? 0:
    # Where the memory ends that the chunk is a part of.
    cdef Py_buffer view
    PyObject_GetBuffer(chunk.obj if type(chunk) is memoryview else chunk, &view, PyBUF_SIMPLE)
    cdef size_t end = <size_t> view.buf + view.len
    PyBuffer_Release(&view)
    return end


cdef inline int job_add(Job *job, object chunk) except -1:
    # The caller keeps the chunk: what it exports does not move meanwhile.
    cdef Py_buffer view
    PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE)
    tidelog_job_add(job, view.buf, view.len, mapping_end(chunk))
    PyBuffer_Release(&view)
    return 0


cdef inline bint is_in_memory(object chunk) except -1:
    cdef Py_buffer view
    PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE)
    cdef bint found = tidelog_is_in_memory(view.buf, view.len) and not tidelog_ahead(
        view.buf, view.len, mapping_end(chunk)
    )
    PyBuffer_Release(&view)
    return found


cdef inline void job_free(Job *job) noexcept:
    free(job)
