"""Encodes and decodes messages. The functions for a version of a message are compiled on first use.

    decode(ProduceRequest, 9, frame, position)   the message; ProtocolError for invalid bytes, including trailing ones
    encode(response, 9)                          chunks to be sent in order; record batches are separate chunks, not copied

A decoded message takes at most forty times the memory of its bytes, and a request has at most a million elements. Lengths and
counts are compared with the rest of the frame before anything is allocated. A field that a version lacks gets its default value
when decoded, and is omitted when encoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tidelog.wire.decoder_source import DecoderSource
from tidelog.wire.encoder_source import EncoderSource
from tidelog.wire.fields import Bytes as Bytes
from tidelog.wire.fields import Message as Message
from tidelog.wire.fields import Records as Records
from tidelog.wire.generated import compiled

M = TypeVar("M", bound=Message)

_DECODERS: dict[tuple[type[Message], int, bool], Callable[..., Any]] = {}
_ENCODERS: dict[tuple[type[Message], int], Callable[[Any], list[Bytes]]] = {}


def decode(cls: type[M], version: int, data: Bytes, position: int = 0, end: int | None = None) -> M:
    """Decode the message that fills `data[position:end]`.

    `records` fields are memoryviews into `data`; they are writable if `data` is. Raises ProtocolError, with the position within
    `data`, for invalid bytes, and InvalidArgumentError for an unknown version.
    """
    return decoder(cls, version)(data, position, end)


def encode(message: Message, version: int) -> list[Bytes]:
    """Encode a message as chunks. There is at least one chunk, unless the message is empty in that version.

    Raises InvalidArgumentError for values that the version cannot encode: an illegal null, a number out of range.
    """
    return encoder(type(message), version)(message)


def decoder(cls: type[M], version: int, *, exact: bool = True) -> Callable[..., M]:
    """Return the compiled reader of a version, `read(data, position=0, end=None)`, which does what `decode` does.

    Without `exact`, bytes after the message are skipped, as Kafka's brokers do in requests.
    """
    read = _DECODERS.get((cls, version, exact))
    if read is None:
        cls.check_version(version)
        written = DecoderSource(cls, version)
        source = written.source(exact=exact)
        read = _DECODERS[cls, version, exact] = compiled(
            source, "decode", f"decode {cls.__name__} v{version}{'' if exact else ', not exact'}", written.names
        )
    return read


def encoder(cls: type[M], version: int) -> Callable[[M], list[Bytes]]:
    """Return the compiled writer of a version, `write(message)`, which does what `encode` does."""
    write = _ENCODERS.get((cls, version))
    if write is None:
        cls.check_version(version)
        written = EncoderSource(cls, version)
        write = _ENCODERS[cls, version] = compiled(written.source(), "encode", f"encode {cls.__name__} v{version}", written.names)
    return write
