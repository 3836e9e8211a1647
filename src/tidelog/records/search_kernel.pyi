# The search kernel's types as its callers see them: in search_kernel.py they are Cython's.
from tidelog.records.compression import Bytes

COMPILED: bool

def first_match(data: Bytes, entry_offset: int, offset: int, timestamp: int, min_offset: int) -> tuple[int, int, int] | None: ...
