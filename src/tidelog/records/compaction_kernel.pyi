# The compaction kernel's types as its callers see them: in compaction_kernel.py they are Cython's.
from array import array

from tidelog.records.compression import Bytes

COMPILED: bool
SLOT_BYTES: int
NO_BASE: int
GROWTH_BYTES: int
FAULTS: dict[int, str]

class OffsetTable:
    slots: int
    size: int
    latest_offset: int
    def __init__(self, slots: int, salt: bytes) -> None: ...
    def clear(self) -> None: ...
    def put(self, key: Bytes, offset: int) -> None: ...
    def get(self, key: Bytes) -> int: ...

class Pass:
    transactional_end: int
    def take_producers(self) -> array[int]: ...

class MapPass(Pass):
    messages_read: int
    is_full: bool
    fault_position: int
    def __init__(self, table: OffsetTable, min_offset: int, max_entries: int) -> None: ...
    def add_records(self, data: Bytes, start: int, end: int, count: int, base_offset: int, last_offset: int) -> int: ...
    def add_batches(self, data: Bytes, start: int, end: int) -> int: ...

class CleanPass(Pass):
    messages_read: int
    messages_retained: int
    without_key: int
    max_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    written: int
    fault_position: int
    has_tombstones: bool
    last_retained_offset: int
    base_timestamp: int
    batch_max_timestamp: int
    def __init__(self, table: OffsetTable | None, now_ms: int, horizon_ms: int, kept_ends: array[int]) -> None: ...
    def select(
        self, data: Bytes, start: int, end: int, base_offset: int, last_offset: int, retain_tombstones: bool, keep: bytearray
    ) -> int: ...
    def rebuild(
        self,
        data: Bytes,
        start: int,
        end: int,
        keep: bytearray,
        base_timestamp: int,
        append_time: int,
        is_append_time: bool,
        new_base: int,
        out: bytearray,
    ) -> int: ...
    def filter_batches(self, data: Bytes, start: int, end: int, out: bytearray) -> int: ...
