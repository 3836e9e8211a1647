# The numbers of layout.py, as constants of C. Cython reads this; nobody else does.

cdef enum:
    KEY = 0
    VALUE = 1

    LOG_OVERHEAD = 12
    HEADER_BYTES = 61
    MIN_RECORD_BYTES = 7

    CODEC_BITS = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40

    TIME_DELTA = 0
    OFFSET_DELTA = 1
    REST_POSITION = 2
    KEY_POSITION = 3
    KEY_LENGTH = 4
    VALUE_LENGTH = 5
    RECORD_FIELDS = 6

    HASH_LOW = 0
    HASH_HIGH = 1
    RECORD_OFFSET = 2
    HAS_KEY = 3
    IS_TOMBSTONE = 4
    BLOCK_FIELDS = 5
    BLOCK_RECORDS = 32

cdef extern from *:
    """
    #define TIDELOG_NO_LIMIT (1LL << 62)
    #define TIDELOG_MAX_INT32 0x7fffffffLL
    #define TIDELOG_MAX_INT64 0x7fffffffffffffffLL
    #define TIDELOG_MIN_INT64 (-TIDELOG_MAX_INT64 - 1)
    """
    const long long NO_LIMIT "TIDELOG_NO_LIMIT"
    const long long MAX_INT32 "TIDELOG_MAX_INT32"
    const long long MAX_INT64 "TIDELOG_MAX_INT64"
    const long long MIN_INT64 "TIDELOG_MIN_INT64"
