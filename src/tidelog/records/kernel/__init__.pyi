# The kernels' types as their callers see them: in the kernels they are Cython's.
from array import array
from typing import Any, Literal

from tidelog.records.compression import Bytes

COMPILED: bool
FAULTS: dict[int, str]
BATCH_FAULTS: dict[int, str]
BATCH_CHECKSUM: Literal[-5]
BATCH_OVERFLOW: Literal[-7]

def first_match(data: Bytes, entry_offset: int, offset: int, timestamp: int, min_offset: int) -> tuple[int, int, int] | None: ...
def first_indexed_match(
    fd: int,
    log_bytes: int,
    read_bytes: int,
    flags: int,
    scratch: memoryview,
    times: Bytes,
    positions: Bytes,
    base_offset: int,
    timestamp: int,
    min_offset: int,
) -> tuple[int, int, int] | None: ...
def walk_times(
    fd: int, position: int, end_position: int, min_offset: int, latest: int, ends: array[int], times: array[int]
) -> tuple[int, int]: ...
def append_spans(data: Bytes, since: int, interval: int) -> tuple[array[int], int]: ...
def take_plain_batch(
    data: bytearray | memoryview,
    base_offset: int,
    leader_epoch: int,
    min_timestamp: int,
    last_timestamp: int,
    needs_keys: bool,
    append_time: int,
) -> tuple[int, ...] | None: ...

class PlainAppends:
    def __init__(
        self, parts: tuple[object, ...], leader_epoch: int, before_max_ms: int, after_max_ms: int, needs_keys: bool
    ) -> None: ...
    def append(self, records: Bytes, leader_epoch: int, now_ms: int) -> tuple[Any, ...] | None: ...

def build_state_batch(
    entries: list[tuple[bytes, bytes | None]],
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
) -> bytearray | None: ...
def build_commit_batch(group_id: str, topics: list[list[Any]], timestamp: int, longest: int) -> bytearray | None: ...
def holds_messages_only(data: Bytes, magic: int) -> bool: ...
def plain_messages_to_v0(data: Bytes, start: int, first_offset: int) -> tuple[bytearray, int, int]: ...
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

KINDS: dict[str, int]

class MessagePlan:
    def __init__(self, numbers: array[int], defaults: list[Any], is_flexible: bool) -> None: ...
    def read(self, data: memoryview, position: int, end: int, room: int) -> list[Any] | None: ...
    def write(self, row: list[Any], correlation_id: int) -> bytes: ...

CRC32C: Literal["SSE4.2", "ARMv8", "table", "package"]

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
    gap_start: int
    gap_end: int
    lowers_epoch: bool
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
    @property
    def epoch_spans(self) -> list[tuple[int, int, int]]: ...
    def finish(self) -> None: ...
    def producer_positions(self) -> list[int]: ...

SLOT_BYTES: int
NO_BASE: int
GROWTH_BYTES: int

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

KEY: Literal[0]
VALUE: Literal[1]
MIN_INT64: int
MAX_INT64: int
NO_LIMIT: int

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

def scan_plain_batches(rows: Rows, data: Bytes, start: int, end: int) -> int: ...
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
    mixed: bool,
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
def crc32_partitions(keys: BinaryColumn, partitions: int) -> array[int]: ...
def murmur2(data: Bytes) -> int: ...
def murmur2_partitions(keys: BinaryColumn, partitions: int) -> array[int]: ...
def map_batches(data: Bytes, start: int, end: int, block_bytes: int, state: array[int], times: array[int]) -> tuple[int, int]: ...
def note_timestamps(rows: Rows, times: array[int], at: int) -> int: ...
def time_bounds(times: array[int], count: int, most_holes: int) -> tuple[int, int, array[int]]: ...

class SendQueue:
    def __init__(self, with_thread: bool) -> None: ...
    def fileno(self) -> int: ...
    def put(self, fd: int, chunks: list[Bytes], size: int) -> int: ...
    def flush(self) -> None: ...
    def is_settled(self, number: int) -> bool: ...
    def take_rests(self) -> list[tuple[int, bytes]]: ...
    def close(self) -> None: ...

class Senders:
    def __init__(self, warm: int, cold: int) -> None: ...
    def fileno(self) -> int: ...
    def send(self, fd: int, chunks: list[Bytes], owner: object) -> None: ...
    def done(self) -> list[tuple[object, int, int]]: ...
    def close(self, seconds: float) -> list[object] | None: ...

def is_in_memory(chunks: list[Bytes]) -> bool: ...
