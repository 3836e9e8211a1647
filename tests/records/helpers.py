"""Shared by the tests of records: golden logs, batches made by hand, and records to fill them with."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from crc32c import crc32c

from tidelog.records.batch import BatchHeader, iter_headers, read_header
from tidelog.records.compression import Codec
from tidelog.records.records import Record, iter_records

GOLDEN = Path(__file__).parent.parent / "golden"
FLAVORS = ("kafka-2.4.1", "kafka-3.9.1")

V2_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
LEGACY_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
FORMATS = [(2, codec) for codec in V2_CODECS] + [(magic, codec) for magic in (0, 1) for codec in LEGACY_CODECS]


@cache
def expected(flavor: str) -> dict[str, list[dict[str, Any]]]:
    """What the broker answered, topic by topic."""
    return json.loads((GOLDEN / flavor / "expected.json").read_text())["topics"]


GOLDEN_PARTITIONS = [
    (flavor, topic, partition["partition"])
    for flavor in FLAVORS
    for topic, partitions in expected(flavor).items()
    for partition in partitions
]


def golden_partition(flavor: str, topic: str, partition: int) -> dict[str, Any]:
    return next(found for found in expected(flavor)[topic] if found["partition"] == partition)


def golden_batches(flavor: str, topic: str, partition: int) -> Iterator[tuple[Path, BatchHeader, memoryview]]:
    """Yield the batches of a partition's segments, in order."""
    for path in sorted((GOLDEN / flavor / "log" / f"{topic}-{partition}").glob("*.log")):
        data = memoryview(path.read_bytes())
        for header in iter_headers(data, 0, path):
            yield path, header, data[header.position : header.end_position]


def as_expected(record: Record) -> list[Any]:
    """Put a record as expected.json does; the types there count from 0 for none."""
    return [
        record.offset,
        record.timestamp,
        record.timestamp_type + 1,
        text(record.key),
        text(record.value),
        [[key, text(value)] for key, value in record.headers],
    ]


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def read_all(data: bytes | bytearray | memoryview) -> list[Record]:
    """Return every record of the batches in `data`."""
    view = memoryview(data)
    return [
        record for header in iter_headers(view) for record in iter_records(header, view[header.position : header.end_position])
    ]


def raw_batch_v2(
    section: bytes,
    count: int,
    *,
    attributes: int = 0,
    base_offset: int = 0,
    base_timestamp: int = 0,
    last_offset_delta: int | None = None,
) -> bytes:
    """Return a v2 batch with a right checksum around a records section that may be anything."""
    last = max(count - 1, 0) if last_offset_delta is None else last_offset_delta
    body = struct.pack(">hiqqqhii", attributes, last, base_timestamp, base_timestamp, -1, -1, -1, count) + section
    return struct.pack(">qiibI", base_offset, len(body) + 9, -1, 2, crc32c(body)) + body


def with_right_crc(batch: bytes | bytearray) -> bytearray:
    """Return a batch of any format with the checksum of the bytes that it has."""
    fixed = bytearray(batch)
    if fixed[16] == 2:
        fixed[17:21] = struct.pack(">I", crc32c(fixed[21:]))
    else:
        fixed[12:16] = struct.pack(">I", zlib.crc32(fixed[16:]))
    return fixed


def header_of(batch: bytes | bytearray) -> BatchHeader:
    return read_header(batch)


def simple_records(count: int = 3, *, base_offset: int = 0, timestamp: int = 1_600_000_000_000) -> list[Record]:
    return [Record(base_offset + i, timestamp + i, 0, b"key %d" % i, b"value %d" % i) for i in range(count)]
