"""The notation and what is compiled of it: defaults, versions, records that are not copied, constructors, errors."""

from __future__ import annotations

import copy
import linecache
import pickle
import traceback
import uuid

import pytest

from tests.wire.random_messages import every_version, random_struct
from tidelog.errors import InvalidArgumentError
from tidelog.wire.codec import Message, decode, decoder, encode, encoder
from tidelog.wire.decoder_source import ELEMENTS_AT_ONCE
from tidelog.wire.encoder_source import DATA_JOINED, PARTS_AT_ONCE
from tidelog.wire.fields import (
    ZERO_UUID,
    Struct,
    array,
    boolean,
    data,
    float64,
    int8,
    int32,
    parse_versions,
    string,
    struct,
    uint16,
)
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidelog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData


class Point(Struct):
    x: int = int32()
    y: int = int32("1+", default=7)


class Shape(Message, api="Shape", key=9000, versions="0-3", flexible="2+"):
    name: str | None = string(nullable="1+")
    points: list[Point] = array(Point)
    centre: Point = struct(Point, "1+")
    weight: float = float64("1-2", default=0.5)
    port: int = uint16("2+")
    names: list[str] | None = array(string, "1+", nullable="2+")
    flags: list[int] = array(int8, "1+")
    blob: bytes | None = data(nullable="2+", default=None)
    closed: bool = boolean("2+", tag=3)
    around: Point = struct(Point, "3+", tag=1)


FULL = Shape("a", [Point(1, 2)], Point(3, 4), 1.25, 65535, ["p", "q"], [-1, 2], b"raw", closed=True, around=Point(5, 6))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, Shape("a", [Point(1)], blob=b"raw")),
        (1, Shape("a", [Point(1, 2)], Point(3, 4), 1.25, 0, ["p", "q"], [-1, 2], b"raw")),
        (2, Shape("a", [Point(1, 2)], Point(3, 4), 1.25, 65535, ["p", "q"], [-1, 2], b"raw", closed=True)),
        (3, Shape("a", [Point(1, 2)], Point(3, 4), 0.5, 65535, ["p", "q"], [-1, 2], b"raw", True, Point(5, 6))),
    ],
)
def test_a_version_has_its_fields_and_the_others_their_defaults(version: int, expected: Shape) -> None:
    assert decode(Shape, version, b"".join(encode(FULL, version))) == expected


def test_bytes_by_hand() -> None:
    assert b"".join(encode(Shape("ab", [Point(1), Point(2)], blob=b"x"), 0)) == (b"\0\2ab\0\0\0\2\0\0\0\1\0\0\0\2\0\0\0\1x")
    small = Shape(None, [Point(1, 2)], Point(3, 4), 0.0, 1, None, [9], None, True, Point(5, 6))
    assert b"".join(encode(small, 3)) == (
        b"\0"  # no name
        b"\2\0\0\0\1\0\0\0\2\0"  # one point, no tagged fields in it
        b"\0\0\0\3\0\0\0\4\0"  # centre
        b"\0\1\0\2\x09\0"  # port, no names, one flag, no blob
        b"\2\1\x09\0\0\0\5\0\0\0\6\0\3\1\1"  # two tagged fields: around (tag 1, nine bytes), closed (tag 3, one byte)
    )


def test_unknown_tagged_fields_are_passed_over() -> None:
    data = b"".join(encode(Shape(closed=True), 3))
    assert data.endswith(b"\1\3\1\1")
    with_more = data[:-4] + b"\3\0\2hi\3\1\1\xc8\1\0"
    assert decode(Shape, 3, with_more) == Shape(closed=True)
    points = b"\1" + b"\2" + bytes(8) + b"\1\5\3abc" + bytes(9) + b"\0\0\1\1\0\0"
    assert decode(Shape, 3, points).points == [Point(0, 0)]


def test_structs_of_fixed_size_with_and_without_tagged_fields_mixed() -> None:
    """Read in one go up to the first that has some, and then one by one."""
    head = b"\0" + b"\4"
    plain, tagged = b"\0\0\0\1\0\0\0\2\0", b"\0\0\0\3\0\0\0\4\1\x07\2zz"
    rest = bytes(9) + b"\0\0\1\1\0\0"
    for order in ((plain, tagged, plain), (tagged, plain, plain), (plain, plain, tagged)):
        expected = [Point(1, 2) if part is plain else Point(3, 4) for part in order]
        assert decode(Shape, 3, head + b"".join(order) + rest).points == expected


@pytest.mark.parametrize(("text", "expected"), [("3+", (3, 1 << 15)), ("0-12", (0, 12)), ("8", (8, 8))])
def test_versions(text: str, expected: tuple[int, int]) -> None:
    assert parse_versions(text) == expected


def test_constructors() -> None:
    first, second = ProduceRequest(), ProduceRequest()
    first.topic_data.append(TopicProduceData("t"))
    assert second == ProduceRequest(None, 0, 0, [])
    assert FetchResponse().node_endpoints is not FetchResponse().node_endpoints
    assert PartitionData().current_leader is not PartitionData().current_leader
    assert MetadataRequest(topics=None).topics is None
    assert MetadataRequest().topics == []
    with pytest.raises(TypeError, match="unexpected keyword"):
        ProduceRequest(ack=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        first.nothing = 1  # type: ignore[attr-defined]


def test_equality_and_repr() -> None:
    one = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(3, records=[b"ab", b"c"])])])
    partition = "PartitionData(partition_index=3, records=<3 bytes>)"
    assert repr(one) == f"FetchResponse(responses=[FetchableTopicResponse(topic='t', partitions=[{partition}])])"
    assert one == copy.deepcopy(one) == pickle.loads(pickle.dumps(one))
    assert one != FetchResponse()
    assert FetchResponse() != FetchRequest()


def test_records_are_views_into_the_frame() -> None:
    frame = bytearray(b"12345678" + b"".join(encode(_produce([b"abc", memoryview(b"defg")]), 7)))
    batch = decode(ProduceRequest, 7, frame, 8).topic_data[0].partition_data[0].records
    assert isinstance(batch, memoryview)
    assert batch.obj is frame
    batch[0] = ord("X")
    assert b"Xbcdefg" in frame
    assert decode(ProduceRequest, 9, b"".join(encode(_produce(None), 9))) == _produce(None)


@pytest.mark.parametrize("version", [3, 9])
def test_records_are_sent_as_they_are(version: int) -> None:
    first, second = bytes(1000), memoryview(bytearray(500))
    chunks = encode(_produce((first, second)), version)
    assert chunks[1] is first
    assert chunks[2] is second
    assert [type(chunk) for chunk in encode(_produce(b""), version)] == [bytes]
    assert len(encode(_produce(first), version)) == (2 if version < 9 else 3)  # after them, tagged fields


def _produce(batches: object) -> ProduceRequest:
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, batches)])])


def test_text_that_is_no_utf8_is_read_as_java_does() -> None:
    data = b"".join(encode(MetadataResponse(cluster_id="ab"), 2)).replace(b"ab", b"a\xff")
    assert decode(MetadataResponse, 2, data).cluster_id == "a\ufffd"


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (ProduceRequest(acks=1 << 15), 3),
        (ProduceRequest(acks=None), 3),  # type: ignore[arg-type]
        (ProduceRequest(transactional_id="x" * 32768), 3),
        (ProduceRequest(transactional_id="x" * 32768), 9),
        (ProduceRequest(transactional_id="\ud800"), 9),
        (ProduceRequest(topic_data=[TopicProduceData(None)]), 9),  # type: ignore[arg-type]
        (ProduceRequest(topic_data=None), 9),  # type: ignore[arg-type]
        (MetadataRequest(topics=None), 0),
        (ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(timestamp=1 << 63)])]), 5),
    ],
)
def test_what_cannot_be_written(message: Message, version: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{type(message).__name__} v{version} cannot be written"):
        encode(message, version)


def test_unknown_versions() -> None:
    for version in (-1, 14):
        with pytest.raises(InvalidArgumentError, match="expected 0 to 13"):
            decode(ProduceResponse, version, b"")
        with pytest.raises(InvalidArgumentError, match="expected 0 to 13"):
            encode(ProduceResponse(), version)


def test_uuids() -> None:
    topic_id = uuid.UUID(int=5)
    request = FetchRequest(topics=[])
    assert decode(FetchRequest, 13, b"".join(encode(request, 13))) == request
    topic = TopicProduceData(topic_id=topic_id)
    assert decode(ProduceRequest, 13, b"".join(encode(ProduceRequest(topic_data=[topic]), 13))).topic_data[0].topic_id == topic_id
    nothing = b"".join(encode(ProduceRequest(topic_data=[TopicProduceData()]), 13))
    assert decode(ProduceRequest, 13, nothing).topic_data[0].topic_id is ZERO_UUID


def test_compiled_once() -> None:
    assert decoder(ProduceRequest, 9) is decoder(ProduceRequest, 9)
    assert encoder(ProduceRequest, 9) is encoder(ProduceRequest, 9)


def test_defaults_alone() -> None:
    """Every message can be made of nothing, written and read in each of its versions."""
    for cls, version in every_version():
        assert decode(cls, version, b"".join(encode(cls(), version))) == cls()


def test_random_messages() -> None:
    import random

    for cls, version in every_version():
        message = random_struct(cls, version, random.Random(version))
        assert decode(cls, version, bytearray(b"".join(encode(message, version)))) == message


def test_a_traceback_shows_the_lines_of_a_generated_reader() -> None:
    with pytest.raises(Exception) as caught:
        decoder(ListOffsetsRequest, 1, exact=False)("no bytes")
    lines = "".join(traceback.format_exception(caught.value))
    name = "<decode ListOffsetsRequest v1, not exact>"
    assert f'File "{name}"' in lines
    shown = linecache.getline(name, traceback.extract_tb(caught.value.__traceback__)[-1].lineno or 0).strip()
    assert shown and shown in lines


def test_very_many_elements_are_joined_piece_by_piece() -> None:
    """One join of half a million parts kept every other thread for a tenth of a second, and so did freeing them."""
    topics = [MetadataResponseTopic(name=f"topic-{i}") for i in range(3 * PARTS_AT_ONCE)]
    for version in (8, 12):
        chunks = encode(MetadataResponse(topics=topics), version)
        assert decode(MetadataResponse, version, b"".join(chunks)).topics == topics
        assert max(map(len, chunks)) < 32 * PARTS_AT_ONCE
    nested = [FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=i) for i in range(3 * PARTS_AT_ONCE)])]
    assert max(map(len, encode(FetchResponse(responses=nested), 11))) < 64 * PARTS_AT_ONCE


def test_very_many_elements_of_one_size_are_all_written() -> None:
    """They are packed piece by piece, too; the last piece is a short one."""
    for count in (PARTS_AT_ONCE, PARTS_AT_ONCE + 1, 2 * PARTS_AT_ONCE + 5):
        partitions = [ListOffsetsPartitionResponse(partition_index=i, offset=i) for i in range(count)]
        response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])
        for version in (5, 7):
            assert decode(ListOffsetsResponse, version, b"".join(encode(response, version))) == response


@pytest.mark.parametrize("version", [2, 6])
def test_large_data_is_not_copied(version: int) -> None:
    small, large = bytes(DATA_JOINED), bytes(DATA_JOINED + 1)
    members = [JoinGroupResponseMember(member_id="a", metadata=one) for one in (small, large, small)]
    message = JoinGroupResponse(members=members, protocol_name="range")
    chunks = encode(message, version)
    assert [chunk is large for chunk in chunks] == [False, True, False]
    assert decode(JoinGroupResponse, version, b"".join(chunks)).members == members


@pytest.mark.parametrize("count", [ELEMENTS_AT_ONCE, ELEMENTS_AT_ONCE + 1, 2 * ELEMENTS_AT_ONCE + 5])
def test_very_many_numbers(count: int) -> None:
    """They are read and written piece by piece."""
    topic = MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(replica_nodes=list(range(count)))])
    for version in (5, 9):
        chunks = encode(MetadataResponse(topics=[topic]), version)
        assert decode(MetadataResponse, version, b"".join(chunks)).topics == [topic]
