"""The common form of Produce, parsed and answered without message objects.

Most requests to a broker are small, and most of these name one partition of one topic, outside of a transaction. These two
functions handle them in a third of `codec`'s time; for all other requests they return None, and `codec` handles the request.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from tidelog.errors import ProtocolError
from tidelog.wire.decoder_source import read_varint
from tidelog.wire.messages.produce import PartitionProduceResponse

FIRST_FLEXIBLE: Final = 9
FIRST_READ: Final = 5
LAST_READ: Final = 12
_FIRST_WITH_RECORD_ERRORS: Final = 8

_read_head = Struct(">hhiih").unpack_from
_read_partition = Struct(">iii").unpack_from
_read_flexible_head = Struct(">BhiBB").unpack_from
_read_flexible_partition = Struct(">Bi").unpack_from

_write_head = Struct(">iiih").pack
_write_partition = Struct(">iihqqqi").pack
_write_partition_8 = Struct(">iihqqqihi").pack
_write_flexible_head = Struct(">iiBBB").pack
_write_flexible_partition = Struct(">BihqqqBBBBiB").pack


class UsualProduce(NamedTuple):
    """The fields of a Produce request of the common form."""

    topic: str
    partition: int
    acks: int
    timeout_ms: int
    records: memoryview


def read_usual_fast(version: int, data: memoryview, position: int, end: int) -> UsualProduce | None:
    """Parse the request in `data[position:end]`, after its header; None if it has another form or is malformed."""
    try:
        if version >= FIRST_FLEXIBLE:
            no_transaction, acks, timeout_ms, topics, length = _read_flexible_head(data, position)
            start = position + 9
            stop = start + length - 1
            if no_transaction or topics != 2 or not 1 < length < 128:
                return None
            partitions, partition = _read_flexible_partition(data, stop)
            size, first = read_varint(data, stop + 5)
            last = first + size - 1
            if partitions != 2 or size < 1 or last + 3 != end or data[last] or data[last + 1] or data[last + 2]:
                return None
        else:
            transaction, acks, timeout_ms, topics, length = _read_head(data, position)
            start = position + 14
            stop = start + length
            if transaction >= 0 or topics != 1 or length < 1:
                return None
            partitions, partition, size = _read_partition(data, stop)
            first = stop + 12
            last = first + size
            if partitions != 1 or size < 0 or last != end:
                return None
    except (struct_error, IndexError, ProtocolError):
        return None
    # Everything read is below `end`, because the sizes add up to it.
    return UsualProduce(str(data[start:stop], "utf-8", "replace"), partition, acks, timeout_ms, data[first:last])


def write_usual_fast(version: int, correlation_id: int, topic: str, answer: PartitionProduceResponse) -> bytes | None:
    """Return the whole frame of a response for the one partition; None if it has an error, or a name is long."""
    name = topic.encode()
    length = len(name)
    if answer.error_code or length > 126:
        return None
    offset, appended_ms, log_start = answer.base_offset, answer.log_append_time_ms, answer.log_start_offset
    if version >= FIRST_FLEXIBLE:
        head = _write_flexible_head(47 + length, correlation_id, 0, 2, length + 1)
        return head + name + _write_flexible_partition(2, answer.index, 0, offset, appended_ms, log_start, 1, 0, 0, 0, 0, 0)
    if version >= _FIRST_WITH_RECORD_ERRORS:
        head = _write_head(54 + length, correlation_id, 1, length)
        return head + name + _write_partition_8(1, answer.index, 0, offset, appended_ms, log_start, 0, -1, 0)
    head = _write_head(48 + length, correlation_id, 1, length)
    return head + name + _write_partition(1, answer.index, 0, offset, appended_ms, log_start, 0)
