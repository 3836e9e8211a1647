"""Stored messages: a two-byte version, then the message in that version.

A key's version identifies the kind of record. In `__consumer_offsets`, 0 and 1 are for offsets, 2 is for groups, and 3 and above
are for the newer group types (KIP-848, KIP-932, KIP-1071). As in Kafka, bytes after a message are ignored, because a newer
release may have added them.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TypeVar

from tidelog.errors import ProtocolError
from tidelog.wire.codec import Bytes, Message, decoder, encoder

M = TypeVar("M", bound=Message)

_VERSION = Struct(">h")


def encode_versioned(message: Message, version: int) -> bytes:
    """Encode a stored message. Raises InvalidArgumentError for an unknown version, or for a field that the version cannot
    encode.
    """
    return b"".join([_VERSION.pack(version), *encoder(type(message), version)(message)])


def version_of(data: Bytes) -> int:
    """Return the version of a stored message. Raises ProtocolError if the bytes are too short for a version."""
    if len(data) < _VERSION.size:
        raise ProtocolError("a stored message has no version", found=f"{len(data)} bytes", expected="at least 2 bytes")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def stored_decoder(cls: type[M], version: int) -> Callable[[Bytes, int], M]:
    """Return the reader of a stored message in a version, `read(data, position)`. Raises ProtocolError for an unknown version."""
    if version not in cls.VERSIONS:
        raise ProtocolError(
            f"{cls.__name__} is stored in an unknown version", found=version, expected=f"{cls.VERSIONS[0]} to {cls.VERSIONS[-1]}"
        )
    return decoder(cls, version, exact=False)


def decode_versioned(cls: type[M], data: Bytes) -> M:
    """Decode a stored message. Raises ProtocolError for an unknown version or malformed bytes."""
    return stored_decoder(cls, version_of(data))(data, _VERSION.size)
