"""Confluent's wire format: finds the schema that a value was written with.

| begins with | then | then |
|---|---|---|
| 0 | the schema's id in the registry, 4 bytes, big-endian | the payload; for Protobuf, message indexes before it |
| 1, in a header (`HEADERS`) | the schema's GUID, 16 bytes | message indexes for Protobuf; the value is the payload |

`with_header_ids` puts the bytes of the header in front of the value, so that both forms are read in the same way. (Confluent's
documentation, "Formats, Serializers, and Deserializers: wire format"; the header since confluent-kafka 2.10.)
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

ID_MAGIC: Final = 0
GUID_MAGIC: Final = 1
ID_BYTES: Final = 5
GUID_BYTES: Final = 17

_HEAD_BYTES: Final = 64
_MAX_BYTES: Final = (1 << 31) - 1
_MAX_INDEXES: Final = 16

HEADERS: Final = {"key": b"__key_schema_id", "value": b"__value_schema_id"}


def with_header_ids(column: pa.Array, headers: pa.Array, side: str) -> pa.Array:
    """Return the column with each record's schema header, if the record has one, in front of the value."""
    entries = pc.list_flatten(headers)
    is_wanted = pc.equal(entries.field("key"), pa.scalar(HEADERS[side].decode()))
    if not pc.any(is_wanted).as_py():
        return column
    rows = pc.list_parent_indices(headers).filter(is_wanted).to_pylist()
    ids = entries.field("value").filter(is_wanted).to_pylist()
    prefixes: list[bytes] = [b""] * len(column)
    for row, found in zip(rows, ids, strict=True):
        if found is not None and len(found) >= GUID_BYTES and found[0] == GUID_MAGIC:
            prefixes[row] = found
    return pc.binary_join_element_wise(pa.array(prefixes, pa.binary()), column, pa.scalar(b"", pa.binary()))


def payload(column: pa.Array, key_bytes: int) -> pa.Array:
    """Return the values without their first `key_bytes` bytes."""
    # Pass an end: without it, some releases of Arrow compute a negative size.
    return pc.binary_slice(column, key_bytes, _MAX_BYTES)


def schema_keys(column: pa.Array, *, with_indexes: bool) -> pa.Array:
    """Return for each value its first bytes, which name its schema; null if the value names none. With `with_indexes` (for
    Protobuf), these bytes include the message indexes.
    """
    first = pc.binary_slice(column, 0, 1)
    sizes = pc.binary_length(column)
    by_id = pc.and_(pc.equal(first, bytes([ID_MAGIC])), pc.greater_equal(sizes, ID_BYTES))
    by_guid = pc.and_(pc.equal(first, bytes([GUID_MAGIC])), pc.greater_equal(sizes, GUID_BYTES))
    found = pc.if_else(by_id, pc.binary_slice(column, 0, ID_BYTES), pa.scalar(None, pa.binary()))
    if pc.any(by_guid).as_py():
        found = pc.if_else(by_guid, pc.binary_slice(column, 0, GUID_BYTES), found)
    if with_indexes:
        heads = pc.if_else(found.is_valid(), pc.binary_slice(column, 0, _HEAD_BYTES), pa.scalar(None, pa.binary()))
        found = pa.array([None if head is None else _with_indexes(head) for head in heads.to_pylist()], pa.binary())
    return found


def id_bytes(key: bytes) -> int:
    """Return the size in bytes of the schema's id in a key of `schema_keys`."""
    return ID_BYTES if key[0] == ID_MAGIC else GUID_BYTES


def _with_indexes(head: bytes) -> bytes | None:
    """Return the bytes that name a schema, including the message indexes; None if the indexes are malformed."""
    size = id_bytes(head)
    if head[size : size + 1] == b"\0":
        return head[: size + 1]
    try:
        return head[: _read_indexes(head, size)[1]]
    except ValueError:
        return None


def message_indexes(key: bytes) -> tuple[int, ...]:
    """Return the message indexes in a key of `schema_keys`."""
    size = id_bytes(key)
    return _read_indexes(key, size)[0] if len(key) > size else ()


def _read_indexes(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Return Protobuf's message indexes and the position after them. A count of 0 stands for the first message."""
    count, position = _varint(data, position)
    if not 0 <= count <= _MAX_INDEXES:
        raise ValueError("invalid number of message indexes")
    found = []
    for _ in range(count):
        index, position = _varint(data, position)
        if index < 0:
            raise ValueError("invalid message index")
        found.append(index)
    return tuple(found) or (0,), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(data) and shift < 32:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
    raise ValueError("a varint")
