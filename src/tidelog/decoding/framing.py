"""Confluent's wire format: which schema a value was written with.

| begins with | then | then |
|---|---|---|
| 0 | the schema's id in the registry, 4 bytes, big-endian | the payload; for Protobuf, message indexes before it |
| 1, in a header (`HEADERS`) | the schema's GUID, 16 bytes | message indexes for Protobuf; the value is the payload |

`with_header_ids` puts the header's bytes in front of the value, so that both are read in one way.
(Confluent's documentation, "Formats, Serializers, and Deserializers: wire format"; the header since confluent-kafka 2.10.)
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

ID_MAGIC: Final = 0
GUID_MAGIC: Final = 1
ID_BYTES: Final = 5
GUID_BYTES: Final = 17

HEADERS: Final = {"key": b"__key_schema_id", "value": b"__value_schema_id"}


def with_header_ids(column: pa.Array, headers: pa.Array, side: str) -> pa.Array:
    """Return the column with each record's schema header in front of its value, where there is one."""
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


def schema_key(value: bytes) -> bytes | None:
    """Return the bytes at the beginning of a value that name its schema, None if there are none."""
    if len(value) >= ID_BYTES and value[0] == ID_MAGIC:
        return value[:ID_BYTES]
    if len(value) >= GUID_BYTES and value[0] == GUID_MAGIC:
        return value[:GUID_BYTES]
    return None
