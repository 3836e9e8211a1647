# The batch kernel's types as its callers see them: in batch_kernel.py they are Cython's.
from typing import Literal

from tidelog.records.compression import Bytes

COMPILED: bool
CRC32C: Literal["SSE4.2", "ARMv8", "table", "package"]
OVERFLOW: Literal[-7]
FAULTS: dict[int, str]

def crc32c(data: Bytes, value: int = 0) -> int: ...
def crc32c_by_table(data: Bytes, value: int = 0) -> int: ...
def crc32(data: Bytes, value: int = 0) -> int: ...
def digest_batches(data: Bytes, end: int, value: int = 0) -> tuple[int, int]: ...

class SegmentScan:
    base_offset: int
    batches: int
    valid_bytes: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    first_max_timestamp: int
    last_index_position: int
    last_append_time: int
    producers: int
    fault: int
    fault_position: int
    needed_bytes: int
    def __init__(self, base_offset: int, index_interval_bytes: int, check_crc: bool = True) -> None: ...
    def scan(self, data: Bytes, position: int) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def index_entries(self) -> bytes: ...
    @property
    def time_entries(self) -> bytes: ...
    @property
    def epochs(self) -> list[tuple[int, int]]: ...
    def finish(self) -> None: ...
    def producer_positions(self) -> list[int]: ...
