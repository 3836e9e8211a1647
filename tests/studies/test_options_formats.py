"""KIP-32's formats: bytes by the draft's layout, round trips, wrappers, sizes by plain arithmetic."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.options import sizes
from studies.options.formats import OPTIONS, Message, Option, assign, decode, decode_at, encode, encode_set, places
from tidelog.errors import CorruptBatchError, InvalidArgumentError, InvalidRecordError
from tidelog.records.batch import iter_headers
from tidelog.records.compression import Codec
from tidelog.records.legacy import encode_message
from tidelog.records.records import iter_records

TIMES = st.integers(-1, 2**63 - 1)
FIELDS = st.none() | st.binary(max_size=40)
FORMATS = st.sampled_from(list(Option))


def by_hand(option: Option, offset: int, create: int, append: int, key: bytes | None, value: bytes | None) -> bytes:
    """The draft's layout in Kafka's order, field by field."""
    body = struct.pack(">bb", 0 if option is Option.BEFORE else 1, 0)
    if option in (Option.BOTH, Option.CREATE_TIME):
        body += struct.pack(">q", create)
    if option in (Option.BOTH, Option.APPEND_TIME):
        body += struct.pack(">q", append)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qi", offset, 4 + len(body)) + struct.pack(">I", zlib.crc32(body)) + body


def as_read(option: Option, message: Message) -> Message:
    """A message as a reader sees it: without the times that the format has no room for."""
    if not option.has_create_time:
        message = message._replace(create_ms=-1)
    return message if option.has_append_time else message._replace(append_ms=-1)


@given(FORMATS, st.integers(0, 2**62), TIMES, TIMES, FIELDS, FIELDS)
def test_a_message_is_what_the_draft_lays_out(option, offset, create, append, key, value):
    message = Message(offset, create, append, key, value)
    data = encode(option, message)
    assert data == by_hand(option, offset, create, append, key, value)
    assert list(decode(option, data)) == [as_read(option, message)]


@given(FORMATS, st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4]), st.data())
def test_sets_and_wrappers_round_trip(option, codec, data):
    offsets = sorted(data.draw(st.sets(st.integers(0, 1000), min_size=1, max_size=12)))
    messages = [Message(o, data.draw(TIMES), data.draw(TIMES), data.draw(FIELDS), data.draw(FIELDS)) for o in offsets]
    raw = encode_set(option, messages, codec)
    read = list(decode(option, raw))
    latest = max(message.append_ms for message in messages)
    if codec is Codec.NONE:
        expected = messages
    else:
        # An inner time that nobody set is the wrapper's.
        expected = [m._replace(append_ms=latest) if m.append_ms == -1 else m for m in messages]
    assert read == [as_read(option, message) for message in expected]


@given(st.sampled_from(OPTIONS), st.sampled_from([Codec.GZIP, Codec.LZ4]))
def test_a_wrapper_has_the_first_create_time_and_the_latest_append_time(option, codec):
    inside = [Message(3, 50, 9, None, b"a"), Message(5, 40, 11, None, b"b"), Message(8, 60, 10, None, b"c")]
    raw = encode_set(option, inside, codec)
    (place,) = places(raw)
    wrapper = decode_at(option, raw, *place)
    assert wrapper.offset == 8
    assert wrapper.create_ms == (50 if option.has_create_time else -1)
    assert wrapper.append_ms == (11 if option.has_append_time else -1)


@given(FORMATS, st.sampled_from([Codec.NONE, Codec.GZIP]), st.integers(1, 8), st.integers(0, 10**9), st.integers(0, 10**12))
def test_a_leader_gives_offsets_and_append_times(option, codec, count, base, append):
    sent = [Message(i, 100 + i, -1, b"k", bytes(i)) for i in range(count)]
    data = bytearray(encode_set(option, sent, codec))
    before = bytes(data)
    assert assign(option, data, base, append) == count
    expected = [as_read(option, m._replace(offset=base + m.offset, append_ms=append)) for m in sent]
    assert list(decode(option, data)) == expected
    assert len(data) == len(before), "nothing is recompressed"
    if codec is not Codec.NONE:
        packed = decode_at(option, before, 0, len(before)).value
        assert decode_at(option, data, 0, len(data)).value == packed


@given(FORMATS, st.data())
def test_damage_is_told(option, data):
    raw = bytearray(encode(option, Message(7, 1, 2, b"key", b"value")))
    at = data.draw(st.integers(12, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptBatchError):
        list(decode(option, raw))


def test_what_is_cut_off_is_told():
    raw = encode(Option.BOTH, Message(7, 1, 2, b"key", b"value"))
    for length in range(1, len(raw)):
        with pytest.raises(InvalidRecordError):
            list(decode(Option.BOTH, raw[:length]))
    with pytest.raises(InvalidArgumentError):
        encode_set(Option.BOTH, [], Codec.GZIP)
    with pytest.raises(InvalidRecordError):
        list(decode(Option.BOTH, encode(Option.BEFORE, Message(0, 0, 0, None, None))))


@given(st.integers(0, 2**62), TIMES, FIELDS, FIELDS)
def test_before_is_v0_and_option_3_is_v1(offset, create, key, value):
    message = Message(offset, create, -1, key, value)
    assert encode(Option.BEFORE, message) == encode_message(0, offset, -1, key, value)
    assert encode(Option.CREATE_TIME, message) == encode_message(1, offset, create, key, value)


def test_sizes_are_the_sum_of_the_fields():
    """offset 8, size 4, crc 4, magic 1, attributes 1, lengths 4 and 4; 8 for each time."""
    found = {(m.case, m.subject, m.metric): m.value for m in sizes.measure(sizes.cases(1)[0])}
    times = {"v0": 0, "option 1": 2, "option 2": 1, "option 3": 1, sizes.PAYLOAD: 2, "v1": 1}
    for value_bytes in sizes.VALUE_BYTES:
        for name, count in times.items():
            size = 26 + 8 * count + value_bytes
            assert found["uncompressed", name, f"bytes a message, {value_bytes} B"] == size
            over = found["uncompressed", name, f"over v0, {value_bytes} B"]
            assert over == pytest.approx(100 * 8 * count / (26 + value_bytes))
        # v2: a header of 61 for the batch; a record has lengths and deltas as varints, attributes, no headers.
        records = 0
        for i in range(sizes.MESSAGES):
            body = 1 + varint(i * sizes.STEP_MS) + varint(i) + varint(-1) + varint(value_bytes) + value_bytes + 1
            records += varint(body) + body
        for name in (sizes.V2, sizes.V2_LOG_APPEND_TIME):
            assert found["uncompressed", name, f"bytes a message, {value_bytes} B"] == (61 + records) / sizes.MESSAGES


def varint(value: int) -> int:
    """How many bytes a zig-zag varint takes."""
    raw = 2 * value if value >= 0 else -2 * value - 1
    return 1 if raw < 128 else 2 if raw < 128**2 else 3


@pytest.mark.parametrize("codec", sizes.CODECS.values(), ids=sizes.CODECS)
def test_what_is_measured_can_be_read_back(codec):
    times, values = sizes.content(100)
    for option in OPTIONS:
        read = list(decode(option, sizes.FORMATS[option.value](times, values, codec)))
        assert [m.value for m in read] == values
        assert [m.offset for m in read] == list(range(sizes.MESSAGES))
        assert {m.append_ms for m in read} == ({sizes.APPEND_MS} if option.has_append_time else {-1})
        assert [m.create_ms for m in read] == (times if option.has_create_time else [-1] * len(times))
    for name in ("v0", "v1", sizes.V2, sizes.V2_LOG_APPEND_TIME, sizes.V2_SINGLE):
        data = sizes.FORMATS[name](times, values, codec)
        headers = list(iter_headers(data))
        read = [r.value for h in headers for r in iter_records(h, memoryview(data)[h.position : h.end_position])]
        assert read == values


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_fields_stand_in_the_order_of_kafkas_files(codec: Codec) -> None:
    """What is compared differs in its times only: without, it is v0 to the byte, and with CreateTime v1."""
    for value_bytes in sizes.VALUE_BYTES:
        times, values = sizes.content(value_bytes)
        before, with_time = (sizes._option(option)(times, values, codec) for option in (Option.BEFORE, Option.CREATE_TIME))
        v0, v1 = (sizes.FORMATS[name](times, values, codec) for name in ("v0", "v1"))
        if codec is Codec.NONE:
            assert (before, with_time) == (v0, v1)
        assert len(before) == len(v0)
        assert abs(len(with_time) - len(v1)) <= 8  # the wrapper's time is the first in the draft, the largest in v1
