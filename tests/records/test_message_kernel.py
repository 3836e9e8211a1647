"""Batches as messages of v0 and v1: by the kernels, compiled and interpreted, what is built record by record."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.records.kernels import KERNELS
from tests.records.strategies import Batch, batches
from tidelog.errors import TidelogError
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
    first_offset = batch.records[0].offset + skipped
    for header in iter_headers(batch.data):
        if header.magic <= magic or header.codec is Codec.ZSTD or header.is_control:
            continue
        records = [record._replace(headers=()) for record in iter_records(header, batch.data[header.position :][: header.size])]
        if header.codec is Codec.NONE:
            records = [record for record in records if record.offset >= first_offset]
        target = Target(magic, header.codec, timestamp_type=header.timestamp_type, append_time=header.max_timestamp)
        expected = rebuild(records, target) if records else bytearray()
        with pytest.MonkeyPatch.context() as patch:
            for module in (conversion, scanner):
                patch.setattr(module, "kernel", KERNELS[chosen])
            assert down_convert(batch.data, header, magic, first_offset) == expected


@pytest.mark.parametrize("chosen", KERNELS)
def test_rows_and_positions_are_checked(chosen: str) -> None:
    longs, ints = memoryview(b"\0" * 8).cast("q"), memoryview(b"\0" * 4).cast("i")
    far = memoryview((99).to_bytes(4, "little")).cast("i")
    encode, size = KERNELS[chosen].encode_messages, KERNELS[chosen].messages_bytes
    with pytest.raises(ValueError, match="rows 0:2 do not fit 1 keys"):
        size(ints, ints, 0, 2, 1)
    with pytest.raises(ValueError, match="the key of row 0 is not within the buffer of 4 bytes"):
        encode(bytearray(34), b"data", longs, longs, far, ints, ints, ints, 0, 1, 0, 1, 0)
    with pytest.raises(ValueError, match="33 bytes are the wrong size for rows 0:1"):
        encode(bytearray(33), b"data", longs, longs, ints, ints, ints, ints, 0, 1, 0, 1, 0)


@pytest.mark.parametrize("chosen", KERNELS)
@examples(60)
@given(
    parts=st.lists(batches(), min_size=1, max_size=4),
    skipped=st.integers(0, 5),
    cut=st.integers(0, 40),
    damage=st.none() | st.tuples(st.integers(0, 2**16), st.integers(1, 255)),
)
def test_plain_messages(chosen: str, parts: list[Batch], skipped: int, cut: int, damage: tuple[int, int] | None) -> None:
    """A run is what its messages are one by one; it ends at the first that would not be taken as it is, or not at all."""
    data = bytearray(b"".join(bytes(part.data) for part in parts))
    if damage is not None:
        data[damage[0] % len(data)] ^= damage[1]
    data = data[: len(data) - cut]
    run, count, end = KERNELS[chosen].plain_messages_to_v0(data, 0, skipped)
    expected, taken, position = bytearray(), 0, 0
    while True:
        try:
            header = next(iter_headers(memoryview(data)[position:]), None)
            if header is None or header.magic != 1 or header.codec is not Codec.NONE:
                break
            records = list(iter_records(header, memoryview(data)[position : position + header.size]))
            messages = rebuild(records, Target(0, Codec.NONE)) if records[0].offset >= skipped else b""
        except TidelogError:
            break
        expected += messages
        taken += bool(messages)
        position += header.size
    assert (bytes(run), count, end) == (bytes(expected), taken, position)


def message(key_length: int, value_length: int, magic: int = 1, timestamp: int = 5) -> bytes:
    """A message of four bytes of key and of value, with lengths that say something else, and the right checksum."""
    rest = struct.pack(">bbqi4si4s", magic, 0, timestamp, key_length, b"kkkk"[: max(key_length, 0)], value_length, b"vvvv")
    return struct.pack(">qiI", 7, len(rest) + 4, zlib.crc32(rest)) + rest


@pytest.mark.parametrize("chosen", KERNELS)
def test_what_is_not_plain(chosen: str) -> None:
    """Lengths that lie, or are null in an odd way, are left to others; bytes after the value are dropped."""
    convert = KERNELS[chosen].plain_messages_to_v0
    far = 2**31 - 1
    lengths = [(4, 5), (4, far), (far, 4), (-2, 4), (4, -2)]
    for odd in (*(message(*each) for each in lengths), message(4, 4, timestamp=-2)):
        assert convert(message(4, 4) + odd, 0, 0)[1:] == (1, len(odd))
    (header,) = iter_headers(message(4, 2))
    records = list(iter_records(header, message(4, 2)))
    assert convert(message(4, 2), 0, 0) == (rebuild(records, Target(0, Codec.NONE)), 1, header.size)
    with pytest.raises(ValueError, match="start 3 outside of 2 bytes"):
        convert(b"ab", 3, 0)


@pytest.mark.parametrize("chosen", KERNELS)
@given(parts=st.lists(batches(), min_size=1, max_size=4), magic=st.sampled_from([0, 1]), cut=st.integers(0, 40))
def test_who_knows_all_of_it(chosen: str, parts: list[Batch], magic: int, cut: int) -> None:
    data = b"".join(bytes(part.data) for part in parts)
    data = data[: len(data) - cut]
    assert KERNELS[chosen].holds_messages_only(data, magic) == all(header.magic <= magic for header in iter_headers(data))
    assert not KERNELS[chosen].holds_messages_only(message(4, 4, magic=-1), magic)
    assert not KERNELS[chosen].holds_messages_only(bytes(26), magic)
