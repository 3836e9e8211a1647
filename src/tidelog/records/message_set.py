"""Reads v0 or v1 messages as columns, to check and rebuild them without an object for each.

A compressed message of a few kilobytes may contain a million messages. `validation` therefore checks columns first, and reads
records one by one only if it must report what is wrong with their bytes.

`rebuilt` returns, byte for byte, what `conversion.rebuild` returns for the same records. This module is pure.
"""

from __future__ import annotations

import zlib
from array import array
from struct import Struct
from typing import cast

from tidelog.errors import CorruptBatchError, InvalidArgumentError
from tidelog.model import NO_TIMESTAMP
from tidelog.records import kernel
from tidelog.records.batch import LOG_APPEND_TIME, LOG_APPEND_TIME_BIT, LOG_OVERHEAD, BatchHeader
from tidelog.records.builder import build_batch_v2_from_columns
from tidelog.records.compression import Bytes, Codec, compress, room
from tidelog.records.conversion import Target, check_codec
from tidelog.records.legacy import encode_message
from tidelog.records.pieces import extreme, numbered

_SIZE_AND_CRC = Struct(">8xiI").unpack_from


class MessageSet:
    """The messages in `data`. If `is_nested`, `data` is the content of the wrapper with `header`. Otherwise `header` is the first
    message's header.

    `base_offset` is added to the messages' offsets.
    """

    def __init__(self, header: BatchHeader, data: Bytes, base_offset: int, *, is_nested: bool = True) -> None:
        """Read the messages. Afterwards `fault` is 0, or the kernel's code for the fault at `fault_position`, where the bytes are
        not a message.
        """
        self._data = data
        self._rows = rows = kernel.Rows()
        count = kernel.scan_messages(
            rows,
            data,
            0,
            len(data),
            header.magic,
            base_offset,
            NO_TIMESTAMP,
            header.timestamp_type,
            is_nested,
            False,
            0,
            kernel.NO_LIMIT,
        )
        self.fault = min(count, 0)
        self.fault_position = rows.fault_position
        self.count = max(count, 0)

    @property
    def timestamps(self) -> memoryview[int]:
        """Each message's own timestamp in epoch ms; -1 in v0."""
        return self._rows.column("timestamp")

    @property
    def key_lengths(self) -> memoryview[int]:
        """The length of each message's key; -1 for a message without a key."""
        return self._rows.column("key_length")

    @property
    def is_in_order(self) -> bool:
        """Whether the offsets are 0, 1, 2..."""
        return self._rows.column("offset") == array("q", range(self.count))

    def check_crcs(self, header: BatchHeader) -> None:
        """Raise CorruptBatchError if a checksum is wrong."""
        data = memoryview(self._data)
        position, end = 0, len(data)
        while position < end:
            size, crc = _SIZE_AND_CRC(data, position)
            following = position + LOG_OVERHEAD + size
            if zlib.crc32(data[position + 16 : following]) != crc:
                raise CorruptBatchError(
                    f"the checksum of the message at byte {position} inside a compressed message does not match",
                    position=header.position,
                )
            position = following

    def rebuilt(self, to: Target, base_offset: int) -> bytearray:
        """Return the records, with offsets that start at `base_offset`, in the topic's format and codec.

        Raises InvalidArgumentError for a negative timestamp, UnsupportedCompressionTypeError for zstd before v2.
        """
        return self._as_batch(to, base_offset) if to.magic == 2 else self._as_messages(to, base_offset)

    def _as_batch(self, to: Target, base_offset: int) -> bytearray:
        keys, values = (
            kernel.BinaryColumn(*kernel.gather(self._rows, which, [self._data], 0, self.count)[:3], 0, self.count)
            for which in (kernel.KEY, kernel.VALUE)
        )
        built = build_batch_v2_from_columns(
            self.timestamps,
            keys,
            values,
            base_offset=base_offset,
            codec=to.codec,
            level=to.level,
            timestamp_type=to.timestamp_type,
            append_time=to.append_time,
            leader_epoch=to.leader_epoch,
        )
        return built.data

    def _as_messages(self, to: Target, base_offset: int) -> bytearray:
        check_codec(to.codec, to.magic)
        count = self.count
        by_append = to.timestamp_type == LOG_APPEND_TIME
        timestamps = memoryview(array("q", [to.append_time]) * count) if by_append else self.timestamps
        is_packed = to.codec is not Codec.NONE
        key_lengths, value_lengths = self.key_lengths, self._rows.column("value_length")
        size = kernel.messages_bytes(key_lengths, value_lengths, 0, count, to.magic)
        messages = room(size) if is_packed else bytearray(size)
        fault = kernel.encode_messages(
            messages,
            self._data,
            numbered(base_offset, count),
            timestamps,
            self._rows.column("key_position"),
            key_lengths,
            self._rows.column("value_position"),
            value_lengths,
            0,
            count,
            base_offset if is_packed and to.magic == 1 else 0,
            to.magic,
            LOG_APPEND_TIME_BIT if by_append and to.magic == 1 else 0,
        )
        if fault >= 0:
            raise InvalidArgumentError("a record has a negative timestamp", found=timestamps[fault])
        if not is_packed:
            return cast("bytearray", messages)
        packed = bytes(compress(to.codec, messages, to.level, magic=to.magic))
        return bytearray(
            encode_message(
                to.magic,
                base_offset + count - 1,
                extreme(max, timestamps),
                None,
                packed,
                codec=to.codec,
                timestamp_type=to.timestamp_type,
            )
        )
