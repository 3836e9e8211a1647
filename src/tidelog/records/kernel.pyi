# The kernel's types as its callers see them: in kernel.py they are Cython's.
from array import array
from typing import Literal

from tidelog.records.compression import Bytes

COMPILED: bool
KEY: Literal[0]
VALUE: Literal[1]
MIN_INT64: int
MAX_INT64: int
NO_LIMIT: int
FAULTS: dict[int, str]

class Rows:
    count: int
    capacity: int
    scanned: int
    without_timestamp: int
    fault_position: int
    positions: bool
    def __init__(self, capacity: int = 0) -> None: ...
    def set_bounds(
        self, min_timestamp: int | None, end_timestamp: int | None, min_offset: int | None, end_offset: int | None
    ) -> None: ...
    def clear(self) -> None: ...
    def reserve(self, more: int) -> None: ...
    def column(self, name: str) -> memoryview[int]: ...

def scan_records_v2(
    rows: Rows,
    data: Bytes,
    start: int,
    end: int,
    count: int,
    base_offset: int,
    batch_last_offset: int,
    base_timestamp: int,
    append_time: int,
    timestamp_type: int,
    source: int,
    limit: int,
) -> int: ...
def check_records_v2(
    data: Bytes,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    min_timestamp: int,
    last_timestamp: int,
    needs_keys: bool,
    refused: array[int] | None,
) -> tuple[int, int, bool, bool]: ...
def last_message_offset(data: Bytes, start: int, end: int) -> tuple[int, int]: ...
def scan_messages(
    rows: Rows,
    data: Bytes,
    start: int,
    end: int,
    magic: int,
    base_offset: int,
    append_time: int,
    timestamp_type: int,
    nested: bool,
    source: int,
    limit: int,
) -> int: ...
def sizes(rows: Rows, which: int, first: int, last: int) -> tuple[int, int]: ...
def timestamp_validity(rows: Rows, name: str, first: int, last: int) -> tuple[int, bytearray | None]: ...
def gather(
    rows: Rows, which: int, sources: list[Bytes], first: int, last: int
) -> tuple[bytearray, bytearray, bytearray | None, int]: ...
def views(
    rows: Rows, which: int, sources: list[Bytes], first: int, last: int, first_source: int
) -> tuple[bytearray, bytearray | None, int]: ...
def gather_headers(
    rows: Rows, sources: list[Bytes], first: int, last: int
) -> tuple[bytearray, bytearray, bytearray, bytearray, bytearray, bytearray | None, int, int]: ...
def starts_inside_characters(offsets: memoryview[int], data: Bytes) -> bool: ...

class BinaryColumn:
    length: int
    def __init__(self, offsets: Bytes | array[int], data: Bytes, validity: Bytes | None, first: int, length: int) -> None: ...

def size_records_v2(
    timestamps: memoryview[int] | array[int],
    keys: BinaryColumn,
    values: BinaryColumn,
    headers: BinaryColumn | None,
    indices: memoryview[int] | array[int] | None,
    deltas: memoryview[int] | array[int] | None,
    base_timestamp: int | None,
    first: int,
    last: int,
    limit_bytes: int,
) -> tuple[int, int, int]: ...
def encode_records_v2(
    out: bytearray | memoryview,
    start: int,
    timestamps: memoryview[int] | array[int],
    keys: BinaryColumn,
    values: BinaryColumn,
    headers: BinaryColumn | None,
    indices: memoryview[int] | array[int] | None,
    deltas: memoryview[int] | array[int] | None,
    base_timestamp: int | None,
    first: int,
    last: int,
) -> tuple[int, int, int]: ...
def murmur2(data: Bytes) -> int: ...
def murmur2_partitions(keys: BinaryColumn, partitions: int) -> array[int]: ...
def map_batches(data: Bytes, start: int, end: int, block_bytes: int, state: array[int], times: array[int]) -> tuple[int, int]: ...
def note_timestamps(rows: Rows, times: array[int], at: int) -> int: ...
def time_bounds(times: array[int], count: int, most_holes: int) -> tuple[int, int, array[int]]: ...
