"""Properties: flipped or cut bytes give a typed error with its place, or a right answer; never a crash, a hang or much memory."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.records.helpers import raw_batch_v2
from tests.records.kernels import INTERPRETED, KERNELS
from tests.records.strategies import Batch, batches
from tidelog.errors import CorruptBatchError, CorruptDataError, InvalidRecordError
from tidelog.records.batch import iter_headers
from tidelog.records.columns import Columns
from tidelog.records.records import Record, iter_records

LIMIT_BYTES = 1 << 20


def read(data: bytes | bytearray, *, check_crc: bool = True) -> list[Record] | CorruptDataError:
    """Read batches as far as they go: every record, or the typed error that came first, which names a place."""
    view = memoryview(data)
    try:
        records = []
        for header in iter_headers(view, 1000, "a.log"):
            batch = view[header.position - 1000 : header.end_position - 1000]
            records += iter_records(header, batch, path="a.log", check_crc=check_crc, limit_bytes=LIMIT_BYTES)
    except CorruptDataError as error:
        assert error.path == "a.log"
        assert error.position is not None
        assert 1000 <= error.position <= 1000 + len(data)
        return error
    return records


def is_under_checksum(batch: Batch, index: int) -> bool:
    """Offsets are not, in any format; nor is the leader epoch of v2."""
    return index >= 16 if batch.magic == 2 else index >= 12


@examples(150)
@given(batch=batches(), index=st.integers(0, 2**16), bit=st.integers(0, 7))
def test_flipped_bits(batch: Batch, index: int, bit: int) -> None:
    index %= len(batch.data)
    broken = bytearray(batch.data)
    broken[index] ^= 1 << bit
    found = read(broken)
    if isinstance(found, CorruptDataError):
        return
    changed = next((h for h in iter_headers(batch.data) if h.position <= index < h.end_position), None)
    assert changed is not None
    if is_under_checksum(batch, index - changed.position):
        # The one thing a checksum cannot see is a length that now reaches beyond the end: the rest is a batch not yet written.
        assert 8 <= index - changed.position < 12 or found == batch.records[: len(found)]
        assert found == batch.records[: len(found)]
    else:
        assert [record[1:] for record in found] == [record[1:] for record in batch.records][: len(found)]


@examples(100)
@given(batch=batches(), cut=st.integers(0, 2**16))
def test_cut_bytes(batch: Batch, cut: int) -> None:
    """A cut log is read up to its last whole batch."""
    size = cut % len(batch.data)
    whole = [header for header in iter_headers(batch.data) if header.end_position <= size]
    found = read(batch.data[:size])
    assert found == (batch.records[: len(whole)] if batch.magic < 2 and not batch.codec else [])


def test_declared_numbers_cost_no_memory(kernel: ModuleType) -> None:
    """A batch that claims two thousand million records, headers or bytes is refused before room is made for them."""
    huge = 2**31 - 1
    claims = [
        raw_batch_v2(b"\x0e\x00\x00\x00\x01\x01\x00" * 3, huge),
        raw_batch_v2(b"\x16\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f", 1),
        raw_batch_v2(b"\x16\x00\x00\x00\xfe\xff\xff\xff\x0f\x01\x00", 1),
        raw_batch_v2(b"\xfe\xff\xff\xff\x0f" + bytes(20), 1),
    ]
    for claim in claims:
        tracemalloc.start()
        try:
            assert isinstance(read(claim), InvalidRecordError)
            columns = Columns()
            with suppress(InvalidRecordError):
                columns.add(next(iter_headers(claim)), claim)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 200_000


def test_lengths_of_batches_cost_no_memory() -> None:
    """A length beyond the end is a batch not yet written; one that is impossible is an error."""
    batch = bytearray(raw_batch_v2(b"", 0))
    batch[8:12] = struct.pack(">i", 2**31 - 1)
    assert read(batch) == []
    batch[8:12] = struct.pack(">i", -(2**31))
    assert isinstance(read(batch), CorruptBatchError)


def test_scans_stay_inside_of_their_range(kernel: ModuleType) -> None:
    """A range outside of its buffer is refused whatever a caller says."""
    rows = kernel.Rows()
    for start, end in ((-1, 5), (0, 11), (6, 5), (-(2**40), 2**40)):
        for scan in (
            lambda s, e: kernel.scan_records_v2(rows, bytes(10), s, e, 1, 0, 0, 0, 0, 0, 0, 1),
            lambda s, e: kernel.scan_messages(rows, bytes(10), s, e, 1, 0, 0, 0, False, False, 0, 1),
            lambda s, e: kernel.last_message_offset(bytes(10), s, e),
        ):
            try:
                scan(start, end)
            except ValueError as error:
                assert "outside of 10 bytes" in str(error)
            else:
                raise AssertionError("a range outside of its buffer was read")


def test_both_kernels_are_tested(kernel: ModuleType) -> None:
    """The interpreted kernel is the file itself, and the compiled one, where there is one, is not."""
    assert not INTERPRETED.COMPILED
    assert KERNELS["interpreted"] is INTERPRETED
    assert all(found.COMPILED is (name == "compiled") for name, found in KERNELS.items())
    assert kernel in KERNELS.values()
