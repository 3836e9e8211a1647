"""A reader of v2 segments without anything of Tidelog's: a few lines from the format's description, for tests to compare with."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import NamedTuple


class PlainRecord(NamedTuple):
    """`timestamp` is what a consumer sees, `create_time` what the producer sent; epoch ms."""

    segment: int
    offset: int
    timestamp: int
    create_time: int
    is_append_time: bool
    is_control: bool


def read_partition(directory: Path) -> list[PlainRecord]:
    """Return all records of a partition's folder; uncompressed and gzip only."""
    return [record for path in sorted(directory.glob("*.log")) for record in _read_segment(path)]


def _read_segment(path: Path) -> list[PlainRecord]:
    data = path.read_bytes()
    found = []
    at = 0
    while at < len(data):
        base_offset, length = struct.unpack_from(">qi", data, at)
        attributes, _, base_time, max_time = struct.unpack_from(">hiqq", data, at + 21)
        (count,) = struct.unpack_from(">i", data, at + 57)
        body = data[at + 61 : at + 12 + length]
        assert attributes & 7 < 2
        body = gzip.decompress(body) if attributes & 7 else body
        is_append_time, is_control = bool(attributes & 8), bool(attributes & 32)
        position = 0
        for _ in range(count):
            size, position = _varint(body, position)
            end = position + size
            time_delta, after = _varint(body, position + 1)
            offset_delta, _ = _varint(body, after)
            created = base_time + time_delta
            seen = max_time if is_append_time else created
            found.append(PlainRecord(int(path.stem), base_offset + offset_delta, seen, created, is_append_time, is_control))
            position = end
        at += 12 + length
    return found


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
