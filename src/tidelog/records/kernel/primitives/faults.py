"""Faults of records and batches: the codes that hot loops return, and the texts for errors.

faults.pxd has the same codes for C.
"""

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

FAULTS = {
    CUT_OFF: "record cut off",
    VARINT: "varint longer than its type",
    RECORD_SIZE: "record longer than its batch",
    SIZE_MISMATCH: "record size differs from its fields",
    KEY_SIZE: "key longer than its record",
    VALUE_SIZE: "value longer than its record",
    HEADER_COUNT: "impossible number of headers",
    HEADER_KEY: "header key longer than its record",
    HEADER_VALUE: "header value longer than its record",
    TOO_FEW: "fewer records than the batch declares",
    TRAILING: "bytes after the last record",
    OFFSET: "offset out of range",
    TIMESTAMP: "timestamp beyond int64",
    NEGATIVE_COUNT: "negative number of records",
    NO_ROOM: "more records than the batch has room for",
    MESSAGE_SIZE: "message size out of range",
    OTHER_MAGIC: "message of another format inside a compressed message",
    NESTED: "compressed message inside a compressed message",
    EMPTY_SET: "empty compressed message set",
    NEGATIVE_TIMESTAMP: "negative timestamp",
}
"""Fault code → the fault of a record, in words."""

BATCH_LENGTH = -1
BATCH_MAGIC = -2
BATCH_SIZE = -3
BATCH_OFFSET = -4
BATCH_CHECKSUM = -5
BATCH_ORDER = -6
BATCH_OVERFLOW = -7
BATCH_POSITION = -8

BATCH_FAULTS = {
    BATCH_LENGTH: "batch length too small",
    BATCH_MAGIC: "unknown batch magic",
    BATCH_SIZE: "batch too small for its magic",
    BATCH_OFFSET: "batch offset out of range",
    BATCH_CHECKSUM: "the batch checksum does not match",
    BATCH_ORDER: "batch offset too low for its place",
    BATCH_OVERFLOW: "batch offset does not fit its segment",
    BATCH_POSITION: "batch position beyond int32",
}
"""Fault code → the fault of the batch that ended a walk, in words."""
