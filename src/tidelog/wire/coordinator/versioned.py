"""Stored messages: two bytes of version, then the message in that version.

The version of a key says what kind of record it is: in `__consumer_offsets` 0 and 1 are an offset, 2 is a group, and 3 and more
belong to the new kinds of groups (KIP-848, KIP-932), which are skipped here. As in Kafka, bytes after a message are passed
over too: a newer release may have put them there.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeVar

from tidelog.errors import ProtocolError
from tidelog.wire.codec import Bytes, Message, decoder, encoder

M = TypeVar("M", bound=Message)

_VERSION = Struct(">h")


def encode_versioned(message: Message, version: int) -> bytes:
    """Write a stored message. Raises InvalidArgumentError for what the version cannot express, or a version there is not."""
    return b"".join([_VERSION.pack(version), *encoder(type(message), version)(message)])


def version_of(data: Bytes) -> int:
    """Return the version of a stored message. Raises ProtocolError if there is none."""
    if len(data) < _VERSION.size:
        raise ProtocolError("a stored message has no version", found=f"{len(data)} bytes", expected="at least 2 bytes")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def decode_versioned(cls: type[M], data: Bytes) -> M:
    """Read a stored message. Raises ProtocolError for a version that is unknown, and for bytes that are no such message."""
    version = version_of(data)
    if version not in cls.VERSIONS:
        raise ProtocolError(
            f"{cls.__name__} is stored in an unknown version", found=version, expected=f"{cls.VERSIONS[0]} to {cls.VERSIONS[-1]}"
        )
    return decoder(cls, version, exact=False)(data, _VERSION.size)
