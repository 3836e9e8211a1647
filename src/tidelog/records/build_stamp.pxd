# Which source a compiled kernel was made from, told by setup.py. Cython reads this; nobody else does.
cdef extern from *:
    """
    #ifndef TIDELOG_SOURCE_CRC
    #define TIDELOG_SOURCE_CRC 0u
    #endif
    """
    const unsigned int TIDELOG_SOURCE_CRC
