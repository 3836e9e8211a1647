"""The frame of a metadata record's value: the record's type and version (KIP-631).

::

    uvarint  version of the frame, 1
    uvarint  key of the record (`records`)
    uvarint  version of the record
    bytes    the record

Newer releases may add records and versions. `decode_record` returns such a record as `UnknownRecord`, and `image` decides whether
it can be ignored. Bytes after a known record are skipped, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.errors import ProtocolError
from tidelog.metadata.records import RECORD_TYPES
from tidelog.wire.codec import Bytes, Message, decoder, encoder
from tidelog.wire.decoder_source import MAX_STRING_BYTES, kind_of
from tidelog.wire.encoder_source import varint_bytes
from tidelog.wire.fields import Struct

FRAME_VERSION = 1


class UnknownRecord(NamedTuple):
    """A record whose type or version is unknown: its key, version and complete value."""

    api_key: int
    version: int
    value: bytes

    @property
    def name(self) -> str:
        """The name to display for the record."""
        cls = RECORD_TYPES.get(self.api_key)
        return f"record {self.api_key}" if cls is None else cls.__name__


class Frame(NamedTuple):
    """The frame of a value. The record itself begins at `position`."""

    api_key: int
    version: int
    position: int


_HEADS: dict[tuple[type[Message], int], bytes] = {}
_TEXTS: dict[type[Struct], tuple[tuple[str, str, Any], ...]] = {}
"""The fields of each type that contain strings: name, kind, and kind or type of the elements."""
_READERS: dict[Bytes, Callable[..., Any]] = {}
"""Compiled readers, by the three bytes of a frame. Almost all records have a frame of three bytes."""


def encode_record(record: Message, version: int) -> bytes:
    """Encode a record. Raises InvalidArgumentError for values that the version cannot encode."""
    cls = type(record)
    head = _HEADS.get((cls, version))
    if head is None:
        head = _HEADS[cls, version] = b"".join(map(varint_bytes, (FRAME_VERSION, cls.API_KEY, version)))
    return b"".join([head, *encoder(cls, version)(record)])


def check_record(record: Message, version: int) -> None:
    """Raise InvalidArgumentError for a record whose strings the version cannot encode.

    `encode_record` makes the same check. This function is far faster for nearly all records.
    """
    if not _is_plain(record):
        encode_record(record, version)


def _is_plain(struct: Struct) -> bool:
    """Whether all strings are so short that their encoding need not be checked."""
    cls = type(struct)
    texts = _TEXTS.get(cls)
    if texts is None:
        texts = _TEXTS[cls] = tuple((field.name, field.kind, field.of) for field in cls.FIELDS if _has_text(field.kind, field.of))
    for name, kind, of in texts:
        value = getattr(struct, name)
        if value is None:
            continue
        if kind == "string":
            if len(value) > MAX_STRING_BYTES or not value.isascii():
                return False
        elif kind == "struct":
            if not _is_plain(value):
                return False
        elif kind_of(of) != "struct" or not all(map(_is_plain, value)):
            return False
    return True


def _has_text(kind: str, of: Any) -> bool:
    return kind in ("string", "struct") or (kind == "array" and kind_of(of) in ("string", "struct"))


def decode_record(value: Bytes) -> Message | UnknownRecord:
    """Decode a record. Raises ProtocolError, with the position in the value, for invalid bytes."""
    read = _READERS.get(bytes(value[:3]))
    if read is not None:
        return read(value, 3)  # type: ignore[no-any-return]
    frame = read_frame(value)
    cls = RECORD_TYPES.get(frame.api_key)
    if cls is None or frame.version not in cls.VERSIONS:
        return UnknownRecord(frame.api_key, frame.version, bytes(value))
    read = decoder(cls, frame.version, exact=False)
    if frame.position == 3:
        _READERS[bytes(value[:3])] = read
    return read(value, frame.position)  # type: ignore[no-any-return]


def read_frame(value: Bytes) -> Frame:
    """Read the three numbers before a record. Raises ProtocolError."""
    frame_version, position = _read_uvarint(value, 0)
    if frame_version != FRAME_VERSION:
        raise ProtocolError(
            "the frame of a metadata record has an unknown version",
            position=0,
            found=f"version {frame_version}",
            expected="version 1",
        )
    api_key, position = _read_uvarint(value, position)
    version, position = _read_uvarint(value, position)
    return Frame(api_key, version, position)


def _read_uvarint(value: Bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(value) and shift <= 28:
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise ProtocolError("the frame of a metadata record ends too early", position=position)
