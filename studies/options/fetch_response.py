"""Option 3's FetchResponse for replication: a partition's messages with their time index entries.

    [TopicName [Partition ErrorCode HighwaterMarkOffset MessageSetSize MessageSet [TimeIndexEntry]]]

    TopicName            int16 length, bytes        HighwaterMarkOffset  int64
    Partition            int32                      MessageSetSize       int32
    ErrorCode            int16                      TimeIndexEntry       LogAppendTime int64, Offset int32
    [...]                int32 count, entries

The draft does not define the base of an entry's int32 offset. An absolute offset does not fit, and the response does not contain
the segment's base offset. Here the offset is relative to the fetch offset, and negative for entries of earlier messages. For
consumers the array is empty.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidelog.errors import InvalidRecordError

_COUNT = Struct(">i")
_NAME = Struct(">h")
_PARTITION = Struct(">ihqi")
_ENTRY = Struct(">qi")

INDEX_ENTRY_BYTES = _ENTRY.size
"""LogAppendTime int64, Offset int32: the format in the file and in the response."""


class IndexEntry(NamedTuple):
    """An entry of option 3's time index. The offset is absolute here."""

    append_ms: int
    offset: int


class PartitionData(NamedTuple):
    """A response for one partition of one topic."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    message_set: bytes
    entries: tuple[IndexEntry, ...]


def encode(data: PartitionData, fetch_offset: int) -> bytes:
    """Return a response to a fetch from `fetch_offset`."""
    name = data.topic.encode()
    head = _PARTITION.pack(data.partition, data.error_code, data.high_watermark, len(data.message_set))
    entries = b"".join([_ENTRY.pack(append_ms, offset - fetch_offset) for append_ms, offset in data.entries])
    one = _COUNT.pack(1)
    return b"".join((one, _NAME.pack(len(name)), name, one, head, data.message_set, _COUNT.pack(len(data.entries)), entries))


def decode(response: bytes, fetch_offset: int) -> PartitionData:
    """Decode a response with one partition. Raise InvalidRecordError if it is cut off or has extra bytes."""
    name_at = _COUNT.size + _NAME.size
    if len(response) < name_at:
        raise InvalidRecordError("fetch response cut off", found=f"{len(response)} bytes")
    head_at = name_at + _NAME.unpack_from(response, _COUNT.size)[0] + _COUNT.size
    set_at = head_at + _PARTITION.size
    if len(response) < set_at:
        raise InvalidRecordError("fetch response cut off", found=f"{len(response)} bytes")
    partition, error_code, high_watermark, size = _PARTITION.unpack_from(response, head_at)
    entries_at = set_at + size + _COUNT.size
    if len(response) < entries_at:
        raise InvalidRecordError("fetch response cut off", found=f"{len(response)} bytes", expected=f"{entries_at} or more")
    (count,) = _COUNT.unpack_from(response, entries_at - _COUNT.size)
    if len(response) != entries_at + count * _ENTRY.size:
        raise InvalidRecordError(
            "fetch response's index entries", found=f"{len(response) - entries_at} bytes", expected=count * 12
        )
    entries = tuple(IndexEntry(time, fetch_offset + offset) for time, offset in _ENTRY.iter_unpack(response[entries_at:]))
    topic = response[name_at : head_at - _COUNT.size].decode()
    return PartitionData(topic, partition, error_code, high_watermark, response[set_at : set_at + size], entries)
