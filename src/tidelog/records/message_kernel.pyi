# The message kernel's types as its callers see them: in message_kernel.py they are Cython's.
from tidelog.records.compression import Bytes

COMPILED: bool

def messages_bytes(key_lengths: memoryview, value_lengths: memoryview, first: int, last: int, magic: int) -> int: ...
def encode_messages(
    out: bytearray | memoryview,
    data: Bytes,
    offsets: memoryview,
    timestamps: memoryview,
    key_positions: memoryview,
    key_lengths: memoryview,
    value_positions: memoryview,
    value_lengths: memoryview,
    first: int,
    last: int,
    base_offset: int,
    magic: int,
    attributes: int,
) -> int: ...
