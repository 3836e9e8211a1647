# How binary_column.py lies in memory, for the kernels that read it. Cython reads this; nobody else does.
cdef class BinaryColumn:
    cdef public Py_ssize_t length
    cdef Py_ssize_t first
    cdef bint has_validity
    cdef tuple owners
    cdef const int *offsets
    cdef const unsigned char *data
    cdef const unsigned char *validity
