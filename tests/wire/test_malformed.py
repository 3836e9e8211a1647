"""Bytes that are no message: truncated, changed, random, claiming more than there is. All that comes of it is ProtocolError."""

from __future__ import annotations

import contextlib
import random
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.wire.random_messages import every_version, message_classes, random_struct
from tidelog.errors import ProtocolError, TooManyElementsError
from tidelog.wire.codec import Message, decode, decoder, encode
from tidelog.wire.decoder_source import MAX_ELEMENTS
from tidelog.wire.encoder_source import varint_bytes
from tidelog.wire.headers import read_request_header, read_response
from tidelog.wire.messages.api_versions import ApiVersionsResponse
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.produce import ProduceRequest, TopicProduceData
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

VERSIONS = every_version()
NEWEST = [(cls, cls.VERSIONS[-1]) for cls in message_classes()]


def random_data(cls: type[Message], version: int, rng: random.Random) -> bytes:
    return b"".join(encode(random_struct(cls, version, rng), version))


@given(pair=st.sampled_from(VERSIONS), seed=st.integers(0, 1 << 30))
@examples(80)
def test_truncated(pair: tuple[type[Message], int], seed: int) -> None:
    """Whatever stands after the end, it is not read."""
    data = random_data(*pair, random.Random(seed))
    for end in range(max(0, len(data) - 40), len(data)):
        with pytest.raises(ProtocolError):
            decode(*pair, data[:end])
        with pytest.raises(ProtocolError):
            decode(*pair, data, 0, end)


@given(pair=st.sampled_from(VERSIONS), seed=st.integers(0, 1 << 30))
@examples(80)
def test_bytes_behind(pair: tuple[type[Message], int], seed: int) -> None:
    data = random_data(*pair, random.Random(seed))
    with pytest.raises(ProtocolError, match="follow the message"):
        decode(*pair, data + b"\0")


@given(pair=st.sampled_from(VERSIONS), seed=st.integers(0, 1 << 30), data=st.data())
@examples(300)
def test_changed(pair: tuple[type[Message], int], seed: int, data: st.DataObject) -> None:
    """A few bytes are others: it is read, and then written as something that is read as the same, or it is refused."""
    frame = bytearray(random_data(*pair, random.Random(seed)))
    for _ in range(data.draw(st.integers(1, 4))):
        if frame:
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)))
    try:
        message = decode(*pair, frame)
    except ProtocolError:
        return
    if "\ufffd" not in repr(message):
        assert repr(decode(*pair, b"".join(encode(message, pair[1])))) == repr(message)


@given(pair=st.sampled_from(VERSIONS), frame=st.binary(max_size=200))
@examples(400)
def test_random(pair: tuple[type[Message], int], frame: bytes) -> None:
    try:
        decode(*pair, frame)
    except ProtocolError as error:
        assert error.position is None or 0 <= error.position <= len(frame)


@given(frame=st.binary(max_size=60))
@examples(300)
def test_random_headers(frame: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        _header, position = read_request_header(frame)
        assert 0 < position <= len(frame)
    with contextlib.suppress(ProtocolError):
        read_response(ApiVersionsResponse, 3, frame)


def test_counts_and_lengths_that_nothing_backs() -> None:
    """A frame of some bytes that promises gigabytes costs nothing."""
    most, compact_most = b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"
    frames: list[tuple[type[Message], int, bytes]] = [
        (ProduceRequest, 0, b"\xff\xff" + bytes(4) + most),
        (ProduceRequest, 0, b"\xff\xff" + bytes(4) + b"\0\0\0\1\0\1a" + most),
        (ProduceRequest, 0, b"\xff\xff" + bytes(4) + b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\0" + most),
        (ProduceRequest, 9, b"\0" + bytes(6) + compact_most),
        (ProduceRequest, 9, b"\0" + bytes(6) + b"\2" + compact_most),
        (ProduceRequest, 9, b"\0" + bytes(6) + b"\2\2a\2" + bytes(4) + compact_most),
        (ProduceRequest, 9, b"\0" + bytes(6) + b"\1" + compact_most),
        (ProduceRequest, 9, b"\0" + bytes(6) + b"\1\1\x63" + compact_most),
        (FetchRequest, 12, bytes(21) + compact_most),
        (FetchRequest, 12, bytes(100) + compact_most + b"\1\2"),
    ]
    tracemalloc.start()
    try:
        for cls, version, frame in frames:
            with pytest.raises(ProtocolError):
                decode(cls, version, frame)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("varint", [b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f"])
def test_varints_beyond_int32(varint: bytes) -> None:
    with pytest.raises(ProtocolError, match="varint"):
        decode(ProduceRequest, 9, varint + bytes(20))


def test_a_null_where_none_may_be() -> None:
    with pytest.raises(ProtocolError, match=r"ProduceRequest v7: TopicProduceData.name is null"):
        decode(ProduceRequest, 7, b"\xff\xff\0\1\0\0\0\0\0\0\0\1\xff\xff\0\0\0\0")


def test_elements_are_bounded() -> None:
    """Of a request that is nothing but empty topics, a hundred megabytes of which would become gigabytes."""
    count = MAX_ELEMENTS + 1
    frame = b"\0" + bytes(6) + varint_bytes(count + 1) + b"\1\1\0" * count + b"\0"
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="more than 1048576 elements"):
            decode(ProduceRequest, 9, frame)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_all_partitions_of_a_cluster_in_one_request() -> None:
    """ZooKeeper's controller names them to each broker that starts: of three replicas each, more than a client may name."""
    count = 200_000
    state = UpdateMetadataPartitionState("", 0, 1, 1, 1, [1, 2, 3], 1, [1, 2, 3])
    request = UpdateMetadataRequest(1, topic_states=[UpdateMetadataTopicState("t", partition_states=[state] * count)])
    frame = b"".join(encode(request, 8))
    assert len(decode(UpdateMetadataRequest, 8, frame).topic_states[0].partition_states) == count


@pytest.mark.parametrize("cls", [cls for cls, _ in NEWEST if cls.__name__.endswith("Request")], ids=lambda cls: cls.__name__)
def test_tagged_fields_are_elements(cls: type[Message]) -> None:
    """Five million that nobody knows are ten megabytes, and took more than a second of the broker's loop."""
    version = cls.VERSIONS[-1]
    if not cls.is_flexible(version):
        return
    frame = b"".join(encode(cls(), version))
    assert frame[-1] == 0

    def tagged(count: int) -> bytes:
        return frame[:-1] + varint_bytes(count) + b"\x64\0" * count

    assert decoder(cls, version)(tagged(300), room=300) == cls()
    with pytest.raises(TooManyElementsError):
        decoder(cls, version)(tagged(301), room=300)
    with pytest.raises(ProtocolError, match="tagged"):
        decoder(cls, version)(frame[:-1] + varint_bytes(1000) + b"\x64\0" * 999)


@pytest.mark.parametrize("version", [3, 8, 9])
def test_long_names_are_many_elements(version: int) -> None:
    """Bytes of names that are no UTF-8 are replaced one by one: two thousand of 32 KB took 0.8 s."""
    count = 100
    frame = b"".join(encode(ProduceRequest(topic_data=[TopicProduceData("x" * 10_900)] * count), version)).replace(b"x", b"\xff")
    read = decoder(ProduceRequest, version)
    with pytest.raises(TooManyElementsError):
        read(frame, room=count * 80)
    assert read(frame, room=count * 90).topic_data[-1].name == "\ufffd" * 10_900
    short = b"".join(encode(ProduceRequest(topic_data=[TopicProduceData("x" * 100)] * count), version))
    assert len(read(short, room=count).topic_data) == count


@pytest.mark.parametrize("version", [8, 9])
def test_names_that_no_answer_could_carry(version: int) -> None:
    """A byte that is no UTF-8 becomes three: a name that is read must not be longer than one that can be written."""
    for letter, length, is_taken in (
        (b"x", 32_767, True),
        (b"\xff", 10_922, True),
        (b"\xff", 10_923, False),
        (b"\xff", 32_767, False),
    ):
        frame = b"".join(encode(ProduceRequest(topic_data=[TopicProduceData("x" * length)]), version)).replace(b"x", letter)
        header = struct.pack(">hhih", ProduceRequest.API_KEY, 3, 1, length) + letter * length
        if is_taken:
            assert encode(decode(ProduceRequest, version, frame), version)
            assert read_request_header(header)[0].client_id == (letter * length).decode("utf-8", "replace")
        else:
            with pytest.raises(ProtocolError, match=r"TopicProduceData.name is too long"):
                decode(ProduceRequest, version, frame)
            with pytest.raises(ProtocolError, match="client_id is too long"):
                read_request_header(header)


def test_memory_of_the_worst_frame() -> None:
    """The most that bytes can become: Produce to topics without a name and without partitions, three bytes each."""
    count = 20_000
    frame = b"\0" + bytes(6) + varint_bytes(count + 1) + b"\1\1\0" * count + b"\0"
    decoder(ProduceRequest, 9)
    tracemalloc.start()
    try:
        message = decode(ProduceRequest, 9, frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(message.topic_data) == count
    assert peak < 60 * len(frame)
