"""Down-conversion for clients that know only older message formats (KIP-31, KIP-283). The layout of the result is Kafka 3.9.1's.

| fetch version | knows formats up to |
|---|---|
| 0, 1 | v0 |
| 2, 3 | v1 |
| 4 and later | v2 |

The size of the converted records is fixed in advance: the number of bytes read from the log, or the size of the first converted
batch if that is larger. Batches are converted until that size is reached. If they take less, the rest is filled with the
beginning of a larger batch, because clients ignore an incomplete batch at the end. If a batch cannot be converted (zstd), the
filler replaces that batch and all later ones, unless it is the first batch.

Records are sent unconverted if the client knows the topic's configured format and no batch has a newer format. (Kafka
checks the configuration only: after a topic's format is lowered, it sends old clients batches that they cannot read.)

These are pure functions, partly in the kernel. Long conversions run on another thread. A megabyte of batches may hold a gigabyte
of records, so that thread can switch to another response after each batch.
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
"""The most bytes of filler."""

_FILLER = Struct(">qi")


class Converted(NamedTuple):
    """Converted records, and how many batches were converted."""

    records: Bytes
    batches: int


def newest_magic(fetch_version: int) -> int:
    """Return the newest message format that a version of Fetch can carry."""
    return 2 if fetch_version > 3 else 1 if fetch_version > 1 else 0


def down_converting(data: Bytes, configured_magic: int, magic: int, fetch_offset: int) -> Generator[None, None, Converted]:
    """Convert `data`, batch by batch, for a client that fetches from `fetch_offset` and knows formats up to `magic`.

    `configured_magic` is the topic's format. Raises UnsupportedCompressionTypeError if the first batch cannot be converted, and
    CorruptDataError if `data` is not made of batches.
    """
    if configured_magic <= magic and _is_known(data, magic):
        return Converted(data, 0)
    view = memoryview(data)
    converted = bytearray()
    size = len(data)
    batches = position = 0
    while (header := next(iter_headers(view[position:], position), None)) is not None:
        batch: Bytes
        end = position
        if magic == 0 and header.magic == 1:
            batch, count, end = kernel.plain_messages_to_v0(data, position, fetch_offset)
        if end == position:
            try:
                batch = down_convert(data, header, magic, fetch_offset)
                count, end = int(header.magic > magic), header.end_position
            except UnsupportedCompressionTypeError:
                if not converted:
                    raise
                break
        position = end
        yield
        if not batch:
            continue
        if converted:
            converted += batch
        else:
            size = max(size, len(batch))
            converted = batch if isinstance(batch, bytearray) else bytearray(batch)
        batches += count
        if len(converted) >= size:
            return Converted(memoryview(converted)[:size], batches)
    if not converted:
        # No record is left. The filler shows the client that it is not at the log's end.
        size = LOG_OVERHEAD if position else 0
    while (left := size - len(converted)) > 0:
        filler = bytearray(max(LOG_OVERHEAD, min(left + 1, _CHUNK_BYTES)))
        _FILLER.pack_into(filler, 0, -1, max(left + 1, HEADER_BYTES))
        converted += memoryview(filler)[:left]
    return Converted(converted, batches)


def _is_known(data: Bytes, magic: int) -> bool:
    """Return whether no batch in `data` has a format newer than `magic`. Raises CorruptDataError if `data` does not consist of
    batches.
    """
    return kernel.holds_messages_only(data, magic) or all(header.magic <= magic for header in iter_headers(data))
