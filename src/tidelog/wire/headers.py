"""Reads and writes frames. A frame is its size in four bytes, a header, and a message.

| header | fields | used by |
|---|---|---|
| request v0 | api_key, api_version, correlation_id | version 0 of ControlledShutdown |
| request v1 | api_key, api_version, correlation_id, client_id | requests before their first flexible version |
| request v2 | those of v1 and tagged fields; client_id keeps its two-byte length | all other requests |
| response v0 | correlation_id | responses before their first flexible version, and every ApiVersions response |
| response v1 | correlation_id and tagged fields | all other responses |

Kafka has defined no tagged fields for headers yet; they are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple, TypeVar

from tidelog.errors import ProtocolError
from tidelog.wire.codec import Bytes, Message, decoder, encoder
from tidelog.wire.decoder_source import MAX_STRING_BYTES, skip_tagged_fields
from tidelog.wire.fields import REQUESTS

M = TypeVar("M", bound=Message)

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7

_REQUEST_V0 = Struct(">hhi")
_LENGTH = Struct(">h")
_RESPONSE = Struct(">i")
_SIZED_REQUEST = Struct(">ihhih")
_SIZED_REQUEST_V0 = Struct(">ihhi")


class RequestHeader(NamedTuple):
    """A request's header."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: Bytes, position: int = 0, end: int | None = None) -> tuple[RequestHeader, int]:
    """Return a frame's header and the message's position. `frame[position:end]` does not include the size.

    An API is known once its module in `messages/` has been imported. The header of an unknown API is decoded as v1, and the
    position is then meaningless. Raises ProtocolError for an invalid header.
    """
    if end is None:
        end = len(frame)
    try:
        api_key, api_version, correlation_id = _REQUEST_V0.unpack_from(frame, position)
        if api_key == CONTROLLED_SHUTDOWN and api_version == 0:
            if position + 8 > end:
                raise ProtocolError("the frame ends within the request header", position=end)
            return RequestHeader(api_key, api_version, correlation_id, None), position + 8
        (length,) = _LENGTH.unpack_from(frame, position + 8)
        position += 10
        client_id = None
        if length >= 0:
            stop = position + length
            if stop > end:
                raise ProtocolError("request header: client_id is longer than the rest of the frame", position=position)
            client_id = str(frame[position:stop], "utf-8", "replace")
            if length > MAX_STRING_BYTES // 3 and len(client_id.encode()) > MAX_STRING_BYTES:
                raise ProtocolError("request header: client_id is too long after invalid UTF-8 is replaced", position=position)
            position = stop
        request = REQUESTS.get(api_key)
        if request is not None and api_version >= request.FIRST_FLEXIBLE:
            position = skip_tagged_fields(frame, position)
    except (struct_error, IndexError):
        raise ProtocolError("the frame ends within the request header", position=position) from None
    if position > end:
        raise ProtocolError("the frame ends within the request header", position=end)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def request_chunks(message: Message, version: int, correlation_id: int, client_id: str | None) -> list[Bytes]:
    """Return a request's complete frame, including its size."""
    chunks = encoder(type(message), version)(message)
    if version == 0 and message.API_KEY == CONTROLLED_SHUTDOWN:
        head = _SIZED_REQUEST_V0.pack(8 + sum(map(len, chunks)), message.API_KEY, version, correlation_id)
        return [head, *chunks]
    name = b"" if client_id is None else client_id.encode()
    size = 10 + len(name) + sum(map(len, chunks))
    tags = b""
    if version >= message.FIRST_FLEXIBLE:
        tags = b"\0"
        size += 1
    length = -1 if client_id is None else len(name)
    head = _SIZED_REQUEST.pack(size, message.API_KEY, version, correlation_id, length) + name + tags
    if not chunks:
        return [head]
    chunks[0] = head + chunks[0]
    return chunks


def response_chunks(message: Message, version: int, correlation_id: int) -> list[Bytes]:
    """Return a response's complete frame, including its size."""
    return response_writer(type(message), version)(message, correlation_id)


def response_writer(cls: type[M], version: int) -> Callable[[M, int], list[Bytes]]:
    """Return `write(message, correlation_id)`, which returns the complete frame of a response in a version."""
    encode = encoder(cls, version)
    is_flexible = version >= cls.FIRST_FLEXIBLE and cls.API_KEY != API_VERSIONS
    head_bytes = 5 if is_flexible else 4
    head = Struct(">iix" if is_flexible else ">ii").pack

    def write(message: M, correlation_id: int) -> list[Bytes]:
        chunks = encode(message)
        if len(chunks) == 1:
            body = chunks[0]
            chunks[0] = head(len(body) + head_bytes, correlation_id) + body
        else:
            chunks.insert(0, head(sum(map(len, chunks)) + head_bytes, correlation_id))
        return chunks

    return write


def read_response(cls: type[M], version: int, frame: Bytes) -> tuple[int, M]:
    """Return a response's correlation id and message. `frame` does not include the size. Raises ProtocolError."""
    try:
        (correlation_id,) = _RESPONSE.unpack_from(frame)
        position = 4
        if version >= cls.FIRST_FLEXIBLE and cls.API_KEY != API_VERSIONS:
            position = skip_tagged_fields(frame, position)
    except (struct_error, IndexError):
        raise ProtocolError("the frame ends within the response header", position=0) from None
    return correlation_id, decoder(cls, version)(frame, position)
