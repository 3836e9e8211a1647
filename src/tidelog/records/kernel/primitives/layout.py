"""Numbers that say how batches and records are laid out (spec §10), and the ends of integers. layout.pxd has the same for C."""

KEY = 0
VALUE = 1
"""Which of a record's two byte strings is meant."""

LOG_OVERHEAD = 12
"""Bytes of an entry's offset and size: what the size does not count."""
HEADER_BYTES = 61
"""Bytes of a v2 batch before its records."""
MIN_RECORD_BYTES = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, number of headers: a byte each."""

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
"""In a batch's attributes."""

TIME_DELTA = 0
OFFSET_DELTA = 1
REST_POSITION = 2
KEY_POSITION = 3
KEY_LENGTH = 4
VALUE_LENGTH = 5
RECORD_FIELDS = 6
"""What `record_pass.read_record` finds of a record, by index, and how much that is."""

NO_LIMIT = 2**62
"""Stands for: as many as there are."""
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)
