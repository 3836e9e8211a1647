"""Records for older fetchers: how long they are, where they end, what is never converted."""

from __future__ import annotations

import struct
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.works import done
from tidelog.broker.fetch.down_conversion import Converted, down_converting, newest_magic
from tidelog.errors import UnsupportedCompressionTypeError
from tidelog.records.batch import CREATE_TIME, iter_headers
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Bytes, Codec
from tidelog.records.control import ControlType, control_key, end_txn_value
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record, iter_records


def records(first: int, count: int, size: int = 10) -> list[Record]:
    return [Record(first + i, 1000 + first + i, CREATE_TIME, b"k", b"v" * size, (("h", b"x"),)) for i in range(count)]


def batch(first: int, count: int, codec: Codec = Codec.NONE, size: int = 10) -> bytes:
    return bytes(build_batch_v2(records(first, count, size), codec=codec))


def read(data: bytes | memoryview | bytearray) -> list[Record]:
    raw = bytes(data)
    return [record for header in iter_headers(raw) for record in iter_records(header, raw[header.position : header.end_position])]


def down_converted(data: Bytes, configured_magic: int, magic: int, fetch_offset: int) -> Converted:
    """The whole conversion, in one go."""
    return done(down_converting(data, configured_magic, magic, fetch_offset))


def test_batch_by_batch() -> None:
    """A megabyte of batches may be a gigabyte of records: others have turns between two of them."""
    stored = b"".join(batch(10 * n, 10, Codec.GZIP) for n in range(5))
    steps = down_converting(stored, 2, 1, 0)
    assert [next(steps) for _ in range(4)] == [None] * 4
    with pytest.raises(StopIteration) as end:
        next(steps)
        next(steps)
    assert end.value.value == down_converted(stored, 2, 1, 0)


def test_which_format() -> None:
    assert [newest_magic(version) for version in range(6)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("magic", [0, 1])
def test_longer_than_what_is_stored(magic: int) -> None:
    """One batch comes whole, although the old format needs more room."""
    stored = batch(0, 50)
    converted = down_converted(stored, 2, magic, 0)
    assert converted.batches == 1
    assert len(converted.records) > len(stored)
    assert [record.offset for record in read(converted.records)] == list(range(50))


def test_cut_and_filled() -> None:
    """Further batches come as far as there is room; a shorter rest is filled with what is cut off at the end."""
    stored = batch(0, 3, size=1000) + batch(3, 50)
    converted = down_converted(stored, 2, 1, 0)
    assert len(converted.records) == len(stored)
    offsets = [record.offset for record in read(converted.records)]
    assert offsets == list(range(len(offsets))) and 3 < len(offsets) < 53
    packed = batch(0, 50, Codec.GZIP) + batch(50, 1)[:40]
    converted = down_converted(packed, 2, 1, 0)
    assert len(converted.records) == max(len(packed), len(converted.records))
    assert [record.offset for record in read(converted.records)] == list(range(50))


def test_filler() -> None:
    """Kafka's: a batch of offset -1 that says to be longer than all there is."""
    stored = build_message_set(records_without_headers(2), 1) + batch(2, 1)[:-1] + b""
    converted = down_converted(bytes(stored), 2, 1, 0)
    kept = sum(header.size for header in iter_headers(bytes(stored)))
    filler = bytes(converted.records)[kept:]
    assert struct.unpack_from(">qi", filler) == (-1, max(len(filler) + 1, 61))
    assert not any(filler[12:])


def records_without_headers(count: int) -> list[Record]:
    return [record._replace(headers=()) for record in records(0, count)]


def test_fetch_offset() -> None:
    """Of uncompressed batches, records before the offset are left out; compressed ones come whole."""
    assert [record.offset for record in read(down_converted(batch(0, 10), 2, 1, 4).records)] == list(range(4, 10))
    assert [record.offset for record in read(down_converted(batch(0, 10, Codec.GZIP), 2, 1, 4).records)] == list(range(10))


def test_control_batches_only() -> None:
    record = Record(5, 1000, CREATE_TIME, control_key(ControlType.COMMIT), end_txn_value(0))
    marker = bytes(build_batch_v2([record], producer=Producer(7, 0, -1), is_transactional=True, is_control=True))
    converted = down_converted(marker, 2, 1, 5)
    assert (len(converted.records), converted.batches) == (12, 0)
    assert list(iter_headers(bytes(converted.records))) == []
    assert len(down_converted(marker[:-1], 2, 1, 5).records) == 0


def test_zstd() -> None:
    with pytest.raises(UnsupportedCompressionTypeError):
        down_converted(batch(0, 5, Codec.ZSTD), 2, 1, 0)
    stored = batch(0, 5) + batch(5, 500, Codec.ZSTD, size=100)
    converted = down_converted(stored, 2, 1, 0)
    assert [record.offset for record in read(converted.records)] == list(range(5))


def test_untouched() -> None:
    """What is stored in a format that the fetcher knows, in a topic of such a format, is not looked at any closer."""
    stored = bytes(build_message_set(records_without_headers(5), 1)) + b"\0\0\0"
    converted = down_converted(stored, 1, 1, 0)
    assert converted.records is stored
    # Lowered while there were newer batches: those are converted.
    mixed = batch(0, 2) + bytes(
        build_message_set([record._replace(offset=record.offset + 2) for record in records_without_headers(2)], 1)
    )
    assert [record.offset for record in read(down_converted(mixed, 1, 1, 0).records)] == [0, 1, 2, 3]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4])), min_size=1, max_size=6),
    st.integers(0, 40),
    st.sampled_from([0, 1]),
)
def test_a_prefix(batches: list[tuple[int, Codec]], cut: int, magic: int) -> None:
    """What comes is a prefix of what is stored, in the old format, and never shorter than what was read."""
    stored, offset = b"", 0
    for count, codec in batches:
        stored += batch(offset, count, codec)
        offset += count
    data = stored[: len(stored) - cut]
    converted = down_converted(data, 2, magic, 0)
    expected = [
        record._replace(headers=(), **({} if magic else {"timestamp": -1, "timestamp_type": -1})) for record in read(data)
    ]
    found = read(converted.records)
    assert found == expected[: len(found)]
    if expected:
        assert found and len(converted.records) >= len(data)
    assert all(
        header.magic == magic
        for header in takewhile(lambda header: header.base_offset >= 0, iter_headers(bytes(converted.records)))
    )
