# The append kernel's types as its callers see them: in append_kernel.py they are Cython's.

COMPILED: bool

def take_plain_batch(
    data: bytearray | memoryview,
    base_offset: int,
    leader_epoch: int,
    min_timestamp: int,
    last_timestamp: int,
    needs_keys: bool,
    append_time: int,
) -> tuple[int, ...] | None: ...
