"""Records for fetchers that know older message formats only, laid out as Kafka 3.9.1 lays them out (KIP-31, KIP-283).

| fetch version | knows formats up to |
|---|---|
| 0, 1 | v0 |
| 2, 3 | v1 |
| from 4 on | v2 |

What was found in the log decides how many bytes the answer has, before anything is converted: as many as were read, or as the
first converted batch needs, if that is more. Batch after batch is converted until so many bytes are there. If the batches end
before, what is left is filled with the beginning of a batch that is larger than all of it: fetchers leave out what is cut off at
the end. The same comes in place of a batch that cannot be converted (zstd), unless it is the first.

A log whose topic is configured for a format that the fetcher knows, and that holds nothing newer, is sent as it is stored. (Kafka
looks at the configuration only: once a topic's format is lowered, it sends old fetchers batches that they cannot read.)

Pure functions; the work is the kernel's and Python's, for another thread than the loop's if there is much of it. A megabyte of
batches may be a gigabyte of records: it is done batch by batch, and others have their turns on that thread in between.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from typing import NamedTuple

from tidelog.errors import UnsupportedCompressionTypeError
from tidelog.records import kernel
from tidelog.records.batch import HEADER_BYTES, LOG_OVERHEAD, iter_headers
from tidelog.records.compression import Bytes
from tidelog.records.conversion import down_convert

_CHUNK_BYTES = 128 * 1024
"""No batch that only fills is longer."""

_FILLER = Struct(">qi")


class Converted(NamedTuple):
    """Records for the wire, and how many batches were converted for them."""

    records: Bytes
    batches: int


def newest_magic(fetch_version: int) -> int:
    """Return the newest message format that a version of Fetch knows."""
    return 2 if fetch_version > 3 else 1 if fetch_version > 1 else 0


def down_converting(data: Bytes, configured_magic: int, magic: int, fetch_offset: int) -> Generator[None, None, Converted]:
    """Return the records of `data` for a client that asked for `fetch_offset` and knows formats up to `magic`, batch by batch.

    `configured_magic` is the topic's format. Raises UnsupportedCompressionTypeError where the first batch cannot be converted,
    CorruptDataError for anything but a batch.
    """
    if configured_magic <= magic and _is_known(data, magic):
        return Converted(data, 0)
    view = memoryview(data)
    converted = bytearray()
    size = len(data)
    batches = position = 0
    while (header := next(iter_headers(view[position:], position), None)) is not None:
        end = position
        if magic == 0 and header.magic == 1:
            batch, count, end = kernel.plain_messages_to_v0(data, position, fetch_offset)
        if end == position:
            try:
                batch = down_convert(data, (header,), magic, fetch_offset)
                count, end = int(header.magic > magic), header.end_position
            except UnsupportedCompressionTypeError:
                if not converted:
                    raise
                break
        position = end
        yield
        if not batch:
            continue
        if not converted:
            size = max(size, len(batch))
        converted += batch
        batches += count
        if len(converted) >= size:
            return Converted(memoryview(converted)[:size], batches)
    if not converted:
        # Nothing is left of what was there: who gets this knows at least that it is not at the end.
        size = LOG_OVERHEAD if position else 0
    while (left := size - len(converted)) > 0:
        filler = bytearray(max(LOG_OVERHEAD, min(left + 1, _CHUNK_BYTES)))
        _FILLER.pack_into(filler, 0, -1, max(left + 1, HEADER_BYTES))
        converted += memoryview(filler)[:left]
    return Converted(converted, batches)


def _is_known(data: Bytes, magic: int) -> bool:
    """Return whether nothing in `data` is of a later format. Raises CorruptDataError for anything but a batch."""
    return kernel.holds_messages_only(data, magic) or all(header.magic <= magic for header in iter_headers(data))
