"""Constants of the layout of batches and records (spec §10), and integer limits. layout.pxd has the same for C."""

KEY = 0
VALUE = 1
"""Selects one of a record's two byte strings."""

LOG_OVERHEAD = 12
"""The bytes of a batch's offset and size fields, which the size does not count."""
HEADER_BYTES = 61
"""Bytes of a v2 batch before its records."""
MIN_RECORD_BYTES = 7
"""The smallest size of a v2 record: length, attributes, timestamp delta, offset delta, key length, value length and number of
headers take at least a byte each.
"""

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
"""A bit of a batch's attributes."""

TIME_DELTA = 0
OFFSET_DELTA = 1
REST_POSITION = 2
KEY_POSITION = 3
KEY_LENGTH = 4
VALUE_LENGTH = 5
RECORD_FIELDS = 6
"""The fields that `record_pass.read_record` stores, by index, and their number."""

HASH_LOW = 0
HASH_HIGH = 1
RECORD_OFFSET = 2
HAS_KEY = 3
IS_TOMBSTONE = 4
BLOCK_FIELDS = 5
"""The fields that compaction stores of a hashed record, by index, and their number."""
BLOCK_RECORDS = 32
"""How many records compaction hashes before it looks up the first one. Meanwhile the processor fetches their slots."""

NO_LIMIT = 2**62
"""No limit on the number of rows."""
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)
