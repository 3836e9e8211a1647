# Which sources a compiled kernel was made from: setup.py defines it. Cython reads this; nobody else does.
cdef extern from *:
    """
    #ifndef TIDELOG_SOURCE_CRC
    #define TIDELOG_SOURCE_CRC 0u
    #define TIDELOG_SHARED_CRC 0u
    #endif
    """
    const unsigned int TIDELOG_SOURCE_CRC
    const unsigned int TIDELOG_SHARED_CRC


cdef inline int check(str module, str compiled_file) except -1:
    from tidelog.records.kernel.primitives.build_stamp import check_sources

    check_sources(module, compiled_file, TIDELOG_SOURCE_CRC, TIDELOG_SHARED_CRC)
    return 0
