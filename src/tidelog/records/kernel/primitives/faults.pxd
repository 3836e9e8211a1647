# The codes of faults.py, as constants of C. Cython reads this; nobody else does.

cdef enum:
    CUT_OFF = -1
    VARINT = -2
    RECORD_SIZE = -3
    SIZE_MISMATCH = -4
    KEY_SIZE = -5
    VALUE_SIZE = -6
    HEADER_COUNT = -7
    HEADER_KEY = -8
    HEADER_VALUE = -9
    TOO_FEW = -10
    TRAILING = -11
    OFFSET = -12
    TIMESTAMP = -13
    NEGATIVE_COUNT = -14
    NO_ROOM = -15
    MESSAGE_SIZE = -20
    OTHER_MAGIC = -21
    NESTED = -22
    EMPTY_SET = -23
    NEGATIVE_TIMESTAMP = -30

    BATCH_LENGTH = -1
    BATCH_MAGIC = -2
    BATCH_SIZE = -3
    BATCH_OFFSET = -4
    BATCH_CHECKSUM = -5
    BATCH_ORDER = -6
    BATCH_OVERFLOW = -7
    BATCH_POSITION = -8
