"""Frames and headers, byte by byte and against kio."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_reader

from tidelog.errors import CorruptBatchError, InvalidTimestampError, LogOfflineError, ProtocolError, TidelogError
from tidelog.wire.codec import Bytes
from tidelog.wire.error_codes import ErrorCode, error_code_of
from tidelog.wire.headers import read_request_header, read_response, request_chunks, response_chunks
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData


def frame_of(chunks: list[Bytes]) -> bytes:
    """The frame without its size, which must be right."""
    data = b"".join(chunks)
    assert int.from_bytes(data[:4]) == len(data) - 4
    return data[4:]


@pytest.mark.parametrize("client_id", [None, "", "me", "größe"])
@pytest.mark.parametrize("version", [0, 8, 9, 12])
def test_requests(version: int, client_id: str | None) -> None:
    frame = frame_of(request_chunks(MetadataRequest(), version, -5, client_id))
    header, position = read_request_header(frame)
    assert header == (3, version, -5, client_id)
    theirs: Any
    theirs, size = entity_reader(HeaderV2 if version >= 9 else HeaderV1)(frame, 0)
    assert (theirs.request_api_key, theirs.request_api_version, theirs.correlation_id, theirs.client_id) == header
    assert size == position
    assert read_request_header(b"xyz" + frame, 3)[1] == position + 3


def test_requests_by_hand() -> None:
    assert b"".join(request_chunks(ApiVersionsRequest(), 0, 1, "ab")) == b"\0\0\0\x0c\0\x12\0\0\0\0\0\1\0\2ab"
    assert b"".join(request_chunks(ApiVersionsRequest("a", "b"), 3, 1, None)) == b"\0\0\0\x10\0\x12\0\3\0\0\0\1\xff\xff\0\2a\2b\0"


def test_controlled_shutdown_names_no_client_at_first() -> None:
    """Version 0 has a header of its own (Kafka's RequestHeaderData, version 0)."""
    first = b"".join(request_chunks(ControlledShutdownRequest(5), 0, 9, "me"))
    assert first == b"\0\0\0\x0c\0\7\0\0\0\0\0\x09\0\0\0\5"
    assert read_request_header(first[4:]) == ((7, 0, 9, None), 8)
    second = b"".join(request_chunks(ControlledShutdownRequest(5), 1, 9, "me"))
    assert second == b"\0\0\0\x10\0\7\0\1\0\0\0\x09\0\2me\0\0\0\5"
    assert read_request_header(second[4:]) == ((7, 1, 9, "me"), 12)
    with pytest.raises(ProtocolError):
        read_request_header(first[4:], 0, 7)


def test_records_pass_uncopied() -> None:
    batch = bytearray(100)
    chunks = request_chunks(
        ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])]), 9, 1, "c"
    )
    assert chunks[1] is batch
    frame_of(chunks)


@pytest.mark.parametrize(("version", "head"), [(0, b"\0\0\0\7"), (8, b"\0\0\0\7"), (9, b"\0\0\0\7\0"), (12, b"\0\0\0\7\0")])
def test_responses(version: int, head: bytes) -> None:
    response = MetadataResponse(controller_id=3) if version else MetadataResponse()
    frame = frame_of(response_chunks(response, version, 7))
    assert frame.startswith(head)
    assert read_response(MetadataResponse, version, frame) == (7, response)


def test_the_answer_to_api_versions_has_the_old_header() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(0, 0, 11)])
    frame = frame_of(response_chunks(response, 3, 7))
    assert frame == b"\0\0\0\7\0\0\2\0\0\0\0\0\x0b\0\0\0\0\0\0"
    assert read_response(ApiVersionsResponse, 3, frame) == (7, response)


def test_tagged_fields_of_headers_are_passed_over() -> None:
    frame = frame_of(request_chunks(MetadataRequest(), 9, 1, "c"))
    with_tags = frame[:11] + b"\2\0\3abc\x80\1\0" + frame[12:]
    header, position = read_request_header(with_tags)
    assert header.client_id == "c"
    assert with_tags[position:] == frame[12:]
    answer = frame_of(response_chunks(ProduceResponse(), 9, 7))
    assert read_response(ProduceResponse, 9, answer[:4] + b"\1\5\1x" + answer[5:]) == (7, ProduceResponse())


@pytest.mark.parametrize(("count", "length"), [(b"\x7f", 127), (b"\x80\1", 128), (b"\x80\x89\x7a", 2_000_000)])
def test_a_header_has_few_tagged_fields(count: bytes, length: int) -> None:
    """Headers are read on the loop."""
    plain = frame_of(request_chunks(MetadataRequest(), 9, 1, "me"))
    position = read_request_header(plain)[1]
    assert plain[position - 1] == 0
    frame = plain[: position - 1] + count + b"\5\0" * length + plain[position:]
    if length < 128:
        assert read_request_header(frame) == ((3, 9, 1, "me"), position + 2 * length)
        return
    with pytest.raises(ProtocolError, match="more than 127 tagged fields"):
        read_request_header(frame)


def test_an_unknown_api_has_a_header_too() -> None:
    assert read_request_header(b"\x7f\0\0\1\0\0\0\2\0\1a")[0] == (0x7F00, 1, 2, "a")


@pytest.mark.parametrize("end", range(11))
def test_truncated_headers(end: int) -> None:
    with pytest.raises(ProtocolError):
        read_request_header(frame_of(request_chunks(MetadataRequest(), 0, 1, "c"))[:end])


def test_error_codes() -> None:
    assert int(ErrorCode.NONE) == 0
    assert error_code_of(CorruptBatchError("x")) is ErrorCode.CORRUPT_MESSAGE
    assert error_code_of(InvalidTimestampError("x")) is ErrorCode.INVALID_TIMESTAMP
    assert error_code_of(LogOfflineError("x")) is ErrorCode.KAFKA_STORAGE_ERROR
    assert error_code_of(TidelogError("x")) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_error_codes_are_kios() -> None:
    from kio.schema.errors import ErrorCode as Theirs

    theirs = {code.name.upper(): int(code) for code in Theirs}
    ours = {code.name: int(code) for code in ErrorCode}
    assert {name: ours.get(name) for name in theirs} == theirs
