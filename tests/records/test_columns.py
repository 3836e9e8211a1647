"""Columns against single records, on logs that Kafka wrote and on batches made for one question each."""

from __future__ import annotations

import struct
import sys
from itertools import pairwise

import pytest

from tests.records.helpers import FORMATS, golden_batches, header_of, raw_batch_v2, simple_records, with_right_crc
from tidelog.errors import CorruptBatchError, DecompressionError, InvalidArgumentError, InvalidRecordError
from tidelog.records import patch
from tidelog.records.batch import LOG_APPEND_TIME, iter_headers
from tidelog.records.builder import Producer, build_batch_v2, build_empty_batch_v2, build_end_txn_marker
from tidelog.records.columns import BinaryBuffers, Columns, ViewBuffers
from tidelog.records.compression import Codec, compress
from tidelog.records.control import ControlType
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record, first_record_at, iter_records, max_timestamp_record

NOW = 1_600_000_000_000
TOPICS = [("kafka-2.4.1", "migrated-v0-v1-v2"), ("kafka-3.9.1", "v2-snappy-ct"), ("kafka-3.9.1", "transactions")]


def longs(data: bytes) -> list[int]:
    return memoryview(data).cast("q").tolist()


def entries(buffers: BinaryBuffers) -> list[bytes | None]:
    cuts = memoryview(buffers.offsets).cast("i").tolist()
    return [
        buffers.data[a:b] if buffers.validity is None or buffers.validity[i >> 3] >> (i & 7) & 1 else None
        for i, (a, b) in enumerate(pairwise(cuts))
    ]


def seen(buffers: ViewBuffers) -> list[bytes | None]:
    """Read views as the Arrow format lays them out."""
    found: list[bytes | None] = []
    for i in range(len(buffers.views) // 16):
        view = buffers.views[16 * i : 16 * i + 16]
        length, prefix, index, position = memoryview(view).cast("i")
        if buffers.validity is not None and not buffers.validity[i >> 3] >> (i & 7) & 1:
            assert view == bytes(16)
            found.append(None)
        elif length <= 12:
            assert view[4 + length :] == bytes(12 - length)
            found.append(view[4 : 4 + length])
        else:
            data = bytes(buffers.buffers[index][position : position + length])
            assert data[:4] == prefix.to_bytes(4, sys.byteorder, signed=True)
            found.append(data)
    return found


@pytest.mark.parametrize(("flavor", "topic"), TOPICS)
@pytest.mark.parametrize("one_buffer", [True, False])
def test_columns_and_views_are_the_records(flavor: str, topic: str, one_buffer: bool) -> None:
    """Formats and codecs mixed in one collection, from a buffer per batch or from one for all of a segment."""
    columns = Columns(include_control=True)
    records: list[Record] = []
    for path, header, batch in golden_batches(flavor, topic, 0):
        if one_buffer:
            columns.add(header, batch.obj, header.position, path)
        else:
            columns.add(header, batch, path=path)
        records += iter_records(header, batch)
    assert columns.rows == len(records)
    keys, values = [r.key for r in records], [r.value for r in records]
    assert longs(columns.offsets()) == [r.offset for r in records]
    assert entries(columns.keys()) == seen(columns.key_views()) == keys
    assert entries(columns.values()) == seen(columns.value_views()) == values
    assert columns.key_bytes() == sum(len(key or b"") for key in keys)
    assert columns.value_bytes() == sum(len(value or b"") for value in values)
    assert columns.source_bytes >= columns.key_bytes() + columns.value_bytes()
    first, last = len(records) // 3, len(records) // 2
    assert longs(columns.offsets(first, last)) == [r.offset for r in records[first:last]]
    assert longs(columns.timestamps(first, last).data) == [r.timestamp for r in records[first:last]]
    assert entries(columns.values(first, last)) == seen(columns.value_views(first, last)) == values[first:last]
    assert memoryview(columns.timestamp_types(first, last)).cast("b").tolist() == [r.timestamp_type for r in records[first:last]]
    assert entries(columns.keys(5, 5)) == seen(columns.key_views(5, 5)) == []


@pytest.mark.parametrize("length", range(20))
@pytest.mark.parametrize("at_the_end", [True, False])
def test_short_and_long_views(length: int, at_the_end: bool) -> None:
    """Lengths around the 12 bytes that fit a view, also where the buffer ends right after the value."""
    value = bytes(range(65, 65 + length))
    batch = build_batch_v2([Record(0, NOW, 0, None, value), Record(1, NOW, 0, value, None), Record(2, NOW, 0, b"k", value)])
    if at_the_end:
        records = [Record(0, NOW, 0, b"k", value)]
        batch = build_message_set(records, 1)
    columns = Columns()
    columns.add(header_of(batch), batch)
    assert seen(columns.value_views()) == entries(columns.values()) == ([value] if at_the_end else [value, None, value])
    assert seen(columns.key_views()) == entries(columns.keys()) == ([b"k"] if at_the_end else [None, value, b"k"])


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_bounds(magic: int, codec: Codec) -> None:
    """Bounds are [minimum, end), and cut inside of batches; records without a timestamp are outside of any time."""
    records = [Record(10 + i, NOW + (i * 7) % 10, 0, None, b"%d" % i) for i in range(10)]
    batch = build_batch_v2(records, codec=codec) if magic == 2 else build_message_set(records, magic, codec=codec)
    view = memoryview(batch)
    for first, end in (
        (None, None),
        (NOW + 3, None),
        (None, NOW + 3),
        (NOW + 3, NOW + 7),
        (NOW + 7, NOW + 3),
        (NOW, NOW + 10),
        (0, 5),
    ):
        for low, high in ((None, None), (12, None), (None, 17), (12, 17), (-(2**80), 2**80), (30, 40), (0, 5), (2**70, None)):
            columns = Columns(first, end, low, high)
            for header in iter_headers(batch):
                columns.add(header, view[header.position : header.end_position])
            within = [r for r in records if (low is None or r.offset >= low) and (high is None or r.offset < high)]
            timed = first is not None or end is not None
            wanted = [r for r in within if (first is None or r.timestamp >= first) and (end is None or r.timestamp < end)]
            if magic == 0:
                wanted = [] if timed else within
                assert columns.without_timestamp == (len(within) if timed else 0)
            assert longs(columns.offsets()) == [r.offset for r in wanted]


def test_the_last_int64_is_within_no_bound() -> None:
    batch = build_batch_v2([Record(2**63 - 2, 2**63 - 1, 0, None, b"v")])
    for bounds in ({"min_timestamp": 0}, {"min_offset": 0}, {"min_timestamp": -(2**63)}, {"end_timestamp": 2**63}):
        columns = Columns(**bounds)
        assert columns.add(header_of(batch), batch) == 1
    assert Columns(end_timestamp=2**63 - 1).add(header_of(batch), batch) == 0


def test_records_without_timestamps_are_counted() -> None:
    batch = build_batch_v2([Record(0, -1, 0, None, b"v"), Record(1, NOW, 0, None, b"v"), Record(2, -1, 0, None, b"v")])
    columns = Columns(min_timestamp=0)
    assert columns.add(header_of(batch), batch) == 1
    assert columns.without_timestamp == 2
    columns.clear()
    columns.set_bounds()
    assert columns.add(header_of(batch), batch) == 3
    times = columns.timestamps()
    assert (times.null_count, times.validity, longs(times.data)) == (2, bytearray(b"\x02"), [-1, NOW, -1])
    assert columns.without_timestamp == 0


def test_a_v0_batch_of_no_times_is_read_for_its_count() -> None:
    """No header says how many records a v0 wrapper holds, so that they must be counted inside."""
    batch = build_message_set(simple_records(7), 0, codec=Codec.GZIP)
    columns = Columns(end_timestamp=NOW)
    assert columns.add(header_of(batch), batch) == 0
    assert columns.without_timestamp == 7


def test_create_times_of_log_append_time_batches() -> None:
    """In v2 the deltas still hold the producers' times when the broker's are the records' timestamps."""
    batch = build_batch_v2(
        [Record(i, time, 0, None, b"v") for i, time in enumerate((NOW, NOW - 5, -1))],
        timestamp_type=LOG_APPEND_TIME,
        append_time=NOW + 1000,
    )
    columns = Columns()
    columns.add(header_of(batch), batch)
    assert longs(columns.timestamps().data) == [NOW + 1000] * 3
    assert columns.timestamps().validity is None
    assert columns.create_times() == (memoryview(columns.create_times().data), bytearray(b"\x03"), 1)
    assert longs(columns.create_times().data) == [NOW, NOW - 5, -1]
    assert memoryview(columns.timestamp_types()).cast("b").tolist() == [1, 1, 1]


def test_bounds_are_on_the_append_time() -> None:
    batch = build_batch_v2(simple_records(3), timestamp_type=LOG_APPEND_TIME, append_time=NOW + 1000)
    assert Columns(NOW + 1000, NOW + 1001).add(header_of(batch), batch) == 3
    assert Columns(NOW, NOW + 1000).add(header_of(batch), batch) == 0


def test_control_batches() -> None:
    """Control records are left out unless asked for."""
    batch = build_end_txn_marker(5, NOW, ControlType.COMMIT, Producer(1, 0))
    assert Columns().add(header_of(batch), batch) == 0
    columns = Columns(include_control=True)
    assert columns.add(header_of(batch), batch) == 1
    assert entries(columns.keys()) == [b"\x00\x00\x00\x01"]


def test_empty_batches_and_gaps() -> None:
    """What compaction leaves: batches without records, and records with offsets missing between them."""
    gaps = build_batch_v2([Record(o, NOW, 0, None, b"v") for o in (22, 29, 30)], base_offset=20)
    empty = build_empty_batch_v2(31, 40)
    columns = Columns()
    assert columns.add(header_of(gaps), gaps) == 3
    assert columns.add(header_of(empty), empty) == 0
    assert longs(columns.offsets()) == [22, 29, 30]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_empty_batch_with_a_codec(codec: Codec) -> None:
    """An empty batch may keep its codec, with an empty block or with none at all."""
    batch = build_empty_batch_v2(3, 9)
    batch[22] = codec
    for block in (b"", compress(codec, b"")):
        whole = batch + block
        whole[8:12] = struct.pack(">i", len(whole) - 12)
        whole = with_right_crc(whole)
        assert Columns().add(header_of(whole), whole) == 0


def test_headers() -> None:
    """Lists of headers per row, null and empty values apart, and rows without any."""
    rows = [(("a", b"1"), ("b", None)), (), (("", b""),), (("ünïcode", b"x" * 20),), ()]
    batch = build_batch_v2([Record(i, NOW, 0, None, None, headers) for i, headers in enumerate(rows)])
    columns = Columns()
    columns.add(header_of(batch), batch)
    found = columns.headers()
    assert memoryview(found.list_offsets).cast("i").tolist() == [0, 2, 2, 3, 4, 4]
    assert found.header_count == 4
    keys = entries(BinaryBuffers(found.key_offsets, found.key_data, None, 0))
    values = entries(BinaryBuffers(found.value_offsets, found.value_data, found.value_validity, found.value_null_count))
    assert [(key or b"").decode() for key in keys] == ["a", "b", "", "ünïcode"]
    assert values == [b"1", None, b"", b"x" * 20]
    assert found.value_null_count == 1
    one = columns.headers(3, 5)
    assert (memoryview(one.list_offsets).cast("i").tolist(), one.value_validity) == ([0, 1, 1], None)


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ([b"\xff\xfe", b"ok"], ["\ufffd\ufffd", "ok"]),
        ([b"ok", b"\xc3", b"\xa9", b"ok"], ["ok", "\ufffd", "\ufffd", "ok"]),  # a character cut in two is none
        ([b"\xed\xa0\x80"], ["\ufffd\ufffd\ufffd"]),
    ],
)
def test_header_keys_that_are_no_text(keys: list[bytes], wanted: list[str]) -> None:
    """They get replacement characters, in columns as in records: Arrow's strings must be UTF-8."""
    section = bytes((0, 0, 0, 1, 1, 2 * len(keys))) + b"".join(bytes((2 * len(key),)) + key + b"\x01" for key in keys)
    batch = raw_batch_v2(bytes((2 * len(section),)) + section, 1)
    columns = Columns()
    columns.add(header_of(batch), batch)
    found = columns.headers()
    decoded = [(key or b"").decode() for key in entries(BinaryBuffers(found.key_offsets, found.key_data, None, 0))]
    assert decoded == wanted == [key for key, _ in next(iter(iter_records(header_of(batch), batch))).headers]


def test_selected_columns_keep_no_buffers() -> None:
    """Without key, value and headers nothing of the batches is kept; what was not asked for is refused."""
    batch = build_batch_v2(simple_records(5))
    columns = Columns(names=("offset", "timestamp"))
    assert columns.add(header_of(batch), batch) == 5
    assert columns.source_bytes == 0
    assert longs(columns.offsets()) == [0, 1, 2, 3, 4]
    for refused in (columns.keys, columns.values, columns.key_views, columns.value_views, columns.headers):
        with pytest.raises(InvalidArgumentError, match="was not requested"):
            refused()
    with pytest.raises(InvalidArgumentError, match=r"unknown column: found colour"):
        Columns(names=("colour",))


def test_clear_keeps_nothing_but_bounds() -> None:
    batch = build_batch_v2(simple_records(5), codec=Codec.LZ4)
    columns = Columns(min_offset=3)
    columns.add(header_of(batch), batch)
    views = columns.value_views()
    columns.clear()
    assert (columns.rows, columns.source_bytes) == (0, 0)
    assert columns.add(header_of(batch), batch) == 2
    assert seen(views) == seen(columns.value_views()) == [b"value 3", b"value 4"]


def test_rows_grow() -> None:
    """Far more rows than there was room for at first, from many batches."""
    columns = Columns()
    for i in range(60):
        batch = build_batch_v2(simple_records(100, base_offset=100 * i))
        columns.add(header_of(batch), batch)
    assert longs(columns.offsets()) == list(range(6000))
    assert entries(columns.values()) == [b"value %d" % (i % 100) for i in range(6000)]


def test_a_bad_batch_leaves_the_rows_as_they_were() -> None:
    good = build_batch_v2(simple_records(5))
    broken = bytearray(good)
    broken[70] ^= 1
    zipped = build_batch_v2(simple_records(5), codec=Codec.GZIP)
    zipped[61] ^= 0xFF
    fewer = bytearray(good)
    fewer[60] = 4
    columns = Columns()
    columns.add(header_of(good), good)
    for batch, error in (
        (broken, CorruptBatchError),
        (with_right_crc(zipped), DecompressionError),
        (with_right_crc(fewer), InvalidRecordError),
    ):
        with pytest.raises(error, match=r"\(a\.log at byte \d+\)"):
            columns.add(header_of(batch), batch, path="a.log")
    with pytest.raises(CorruptBatchError, match="truncated"):
        columns.add(header_of(good), good[:-1])
    assert columns.rows == 5
    columns.add(header_of(good), good)
    assert longs(columns.offsets()) == [0, 1, 2, 3, 4] * 2
    assert entries(columns.values()) == [b"value %d" % i for i in range(5)] * 2


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_first_record_at_and_max_timestamp(magic: int, codec: Codec, timestamp_type: int) -> None:
    """Spec §4.9: first by offset among those that reach the timestamp. §13: the first that carries the largest."""
    records = [Record(o, NOW + t, 0, None, b"v") for o, t in ((50, 3), (51, 9), (53, 1), (54, 9), (60, 4))]
    options = {"codec": codec, "timestamp_type": timestamp_type, "append_time": NOW + 5}
    batch = build_batch_v2(records, **options) if magic == 2 else build_message_set(records, magic, **options)
    view = memoryview(batch)
    parts = [(header, view[header.position : header.end_position]) for header in iter_headers(batch)]
    read = [record for header, part in parts for record in iter_records(header, part)]
    for timestamp in range(NOW - 1, NOW + 11):
        for min_offset in range(49, 62):
            answers = [first_record_at(header, part, timestamp, min_offset) for header, part in parts]
            wanted = next(((r.offset, r.timestamp) for r in read if r.timestamp >= timestamp and r.offset >= min_offset), None)
            assert next((answer for answer in answers if answer), None) == wanted
    for min_offset in (0, 52, 54, 55, 61):
        best = max(
            (found for h, p in parts if (found := max_timestamp_record(h, p, min_offset))),
            key=lambda f: (f[1], -f[0]),
            default=None,
        )
        left = [(r.offset, r.timestamp) for r in read if r.offset >= min_offset and r.timestamp >= 0]
        assert best == max(left, key=lambda f: (f[1], -f[0]), default=None)


def test_first_record_at_checks_the_batch() -> None:
    batch = build_batch_v2(simple_records(3))
    batch[65] ^= 1
    with pytest.raises(CorruptBatchError):
        first_record_at(header_of(batch), batch, NOW)
    with pytest.raises(CorruptBatchError):
        max_timestamp_record(header_of(batch), batch)


def test_log_append_time_of_a_full_batch_needs_no_records() -> None:
    """The header alone answers where no offset is missing: here the records are not even readable."""
    batch = build_batch_v2(simple_records(5, base_offset=7), codec=Codec.GZIP)
    patch.set_max_timestamp(batch, LOG_APPEND_TIME, NOW)
    batch[61:] = bytes(len(batch) - 61)
    batch = with_right_crc(batch)
    assert first_record_at(header_of(batch), batch, NOW, 9) == (9, NOW)
    assert first_record_at(header_of(batch), batch, NOW, 12) is None
    assert first_record_at(header_of(batch), batch, NOW + 1) is None
