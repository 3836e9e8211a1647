"""Parses many Protobuf messages of one type in one call, as the elements of an enclosing message.

If each message were parsed alone, the library would allocate memory for each, and take twice as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from tidelog.extras import imported_from

MAX_BYTES: Final = 64 << 20
"""The most bytes that are parsed in one call."""

_LABEL_REPEATED, _TYPE_MESSAGE = 3, 11


class ProtobufRows:
    """Parses messages of the type of `descriptor`."""

    def __init__(self, descriptor: Any) -> None:
        with imported_from("decode", "protobuf"):
            from google.protobuf import descriptor_pb2, message_factory
        name = f"tidelog.rows.{descriptor.full_name}"
        file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package=name, dependency=[descriptor.file.name])
        field = file.message_type.add(name="Rows").field.add(name="rows", number=1, label=_LABEL_REPEATED, type=_TYPE_MESSAGE)
        field.type_name = f".{descriptor.full_name}"
        pool = descriptor.file.pool
        pool.AddSerializedFile(file.SerializeToString())
        self._class = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{name}.Rows"))

    def parse(self, values: Sequence[bytes]) -> tuple[list[Any], bool]:
        """Return the messages without their unknown fields, and whether it is certain that there were none.

        Raises the library's DecodeError if a message is malformed, ValueError if there are too many bytes.
        """
        sizes = list(map(len, values))
        if sum(sizes) > MAX_BYTES:
            raise ValueError("too many bytes")
        body = b"".join(chain.from_iterable(zip(map(_prefix, sizes), values, strict=True)))
        rows = self._class.FromString(body)
        messages = list(rows.rows)
        rows.DiscardUnknownFields()
        return messages, rows.ByteSize() == len(body)


@lru_cache(1 << 16)
def _prefix(size: int) -> bytes:
    """Return the bytes before a message: the tag of field 1, then the length as a varint."""
    parts = bytearray(b"\n")
    while size > 0x7F:
        parts.append(size & 0x7F | 0x80)
        size >>= 7
    parts.append(size)
    return bytes(parts)
