"""A v2 batch as messages of v0 and v1: by the kernel, compiled and interpreted, what is built record by record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.records.kernels import KERNELS
from tests.records.strategies import Batch, batches
from tidelog.records import conversion, scanner
from tidelog.records.batch import iter_headers
from tidelog.records.compression import Codec
from tidelog.records.conversion import Target, down_convert, rebuild
from tidelog.records.records import iter_records


@pytest.fixture(scope="module", autouse=True)
def kernel() -> None:
    """One run is enough: these tests choose their kernel themselves."""


@pytest.mark.parametrize("chosen", KERNELS)
@examples(60)
@given(batch=batches(), magic=st.sampled_from([0, 1]), skipped=st.integers(0, 3))
def test_the_same_as_record_by_record(chosen: str, batch: Batch, magic: int, skipped: int) -> None:
    header = next(iter_headers(batch.data))
    if header.magic != 2 or header.codec is Codec.ZSTD or header.is_control:
        return
    records = [record._replace(headers=()) for record in iter_records(header, batch.data)]
    first_offset = header.base_offset + skipped
    if header.codec is Codec.NONE:
        records = [record for record in records if record.offset >= first_offset]
    target = Target(magic, header.codec, timestamp_type=header.timestamp_type, append_time=header.max_timestamp)
    expected = rebuild(records, target) if records else bytearray()
    with pytest.MonkeyPatch.context() as patch:
        for module in (conversion, scanner):
            patch.setattr(module, "kernel", KERNELS[chosen])
        assert down_convert(batch.data, [header], magic, first_offset) == expected


@pytest.mark.parametrize("chosen", KERNELS)
def test_rows_and_positions_are_checked(chosen: str) -> None:
    longs, ints = memoryview(b"\0" * 8).cast("q"), memoryview(b"\0" * 4).cast("i")
    far = memoryview((99).to_bytes(4, "little")).cast("i")
    encode, size = KERNELS[chosen].encode_messages, KERNELS[chosen].messages_bytes
    with pytest.raises(ValueError, match="rows 0:2 of 1"):
        size(ints, ints, 0, 2, 1)
    with pytest.raises(ValueError, match="key of row 0 outside of 4 bytes"):
        encode(bytearray(34), b"data", longs, longs, far, ints, ints, ints, 0, 1, 0, 1, 0)
    with pytest.raises(ValueError, match="33 bytes for rows 0:1"):
        encode(bytearray(33), b"data", longs, longs, ints, ints, ints, ints, 0, 1, 0, 1, 0)
