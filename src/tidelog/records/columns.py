"""Decodes batches into columns. This is the way to read records in bulk, without an object per record.

    columns = Columns(min_timestamp=start_ms, end_timestamp=end_ms)
    for header in iter_headers(buffer):
        columns.add(header, buffer, header.position)
    offsets, values = columns.offsets(), columns.values()

The results are buffers in Arrow's layouts (native byte order), which `sources/` wraps without copying them. This module does not
depend on Arrow. Later calls do not change a returned buffer. Views point into the buffers that were added.

A whole batch is validated before any of its rows is added. `Columns` is not thread-safe. The kernel releases the GIL.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError
from tidelog.model import MAX_OFFSET, NO_TIMESTAMP
from tidelog.records import batch as batches
from tidelog.records import kernel
from tidelog.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    PathLike,
)
from tidelog.records.compression import DEFAULT_DECOMPRESSION_LIMIT_BYTES, Bytes
from tidelog.records.kernel import crc32c
from tidelog.records.scanner import raise_fault, scan_batch

COLUMN_NAMES = ("offset", "timestamp", "timestamp_type", "create_time", "key", "value", "headers")

MAX_BUFFER_BYTES = (1 << 31) - 1
"""The largest buffer, because positions are int32."""


class TimeBuffers(NamedTuple):
    """Times as int64 epoch ms, and a validity bitmap (least significant bit first), which is None if every row has a time."""

    data: bytes
    validity: bytearray | None
    null_count: int


class BinaryBuffers(NamedTuple):
    """Arrow's binary layout: int32 offsets (one more than there are rows), the bytes, and a validity bitmap or None."""

    offsets: bytearray
    data: bytearray
    validity: bytearray | None
    null_count: int


class ViewBuffers(NamedTuple):
    """Arrow's binary_view layout: 16 bytes per row, a validity bitmap or None, and the buffers into which the views point."""

    views: bytearray
    validity: bytearray | None
    null_count: int
    buffers: list[Bytes]


class HeaderBuffers(NamedTuple):
    """Arrow's list<struct<key: utf8 not null, value: binary>>: int32 list offsets, then the two children's buffers."""

    list_offsets: bytearray
    key_offsets: bytearray
    key_data: bytearray
    value_offsets: bytearray
    value_data: bytearray
    value_validity: bytearray | None
    value_null_count: int
    header_count: int


class Columns:
    """Collects the records within time and offset bounds as columns.

    The bounds are `min_timestamp <= timestamp < end_timestamp` (epoch ms) and `min_offset <= offset < end_offset`; None means no
    bound. If there is a time bound, records without a timestamp are outside, and are counted. `names` (from `COLUMN_NAMES`; None
    for all) lists the columns that will be read. Without key, value and headers, no source buffer is kept. Control batches are
    left out unless `include_control` is set. `limit_bytes` bounds the decompressed size of a batch.
    """

    def __init__(
        self,
        min_timestamp: int | None = None,
        end_timestamp: int | None = None,
        min_offset: int | None = None,
        end_offset: int | None = None,
        *,
        names: Iterable[str] | None = None,
        include_control: bool = False,
        check_crc: bool = True,
        limit_bytes: int = DEFAULT_DECOMPRESSION_LIMIT_BYTES,
        capacity: int = 0,
    ) -> None:
        self.names = frozenset(COLUMN_NAMES if names is None else names)
        unknown = self.names.difference(COLUMN_NAMES)
        if unknown:
            raise InvalidArgumentError("unknown column", found=", ".join(sorted(unknown)), expected=", ".join(COLUMN_NAMES))
        self.include_control = include_control
        self.check_crc = check_crc
        self.limit_bytes = limit_bytes
        self._sources: list[Bytes] = []
        self._last_source: Bytes | None = None
        self._last_buffer: Bytes | None = None
        self._viewed: Bytes | None = None
        self._view = memoryview(b"")
        self._source_bytes = 0
        self._rows = kernel.Rows(capacity)
        self._rows.positions = self._keeps_sources = not self.names.isdisjoint(("key", "value", "headers"))
        self.set_bounds(min_timestamp, end_timestamp, min_offset, end_offset)

    def set_bounds(
        self,
        min_timestamp: int | None = None,
        end_timestamp: int | None = None,
        min_offset: int | None = None,
        end_offset: int | None = None,
    ) -> None:
        """Set the bounds for batches that are added after this call."""
        self.min_timestamp = min_timestamp
        self.end_timestamp = end_timestamp
        self.min_offset = min_offset
        self.end_offset = end_offset
        self._low_offset = -1 if min_offset is None else min_offset
        self._high_offset = MAX_OFFSET if end_offset is None else end_offset - 1
        self._is_timed = min_timestamp is not None or end_timestamp is not None
        self._rows.set_bounds(min_timestamp, end_timestamp, min_offset, end_offset)

    def add(self, header: BatchHeader, buffer: Bytes, index: int = 0, path: PathLike = None) -> int:
        """Append the records within bounds of the batch at `buffer[index:]`, and return their number.

        Passing one large buffer with different values of `index` is cheaper than a slice for each batch. The buffer must not
        change until `clear`, and must not exceed 2 GiB. Raises CorruptBatchError, InvalidRecordError or DecompressionError; after
        an error nothing is appended.
        """
        # This runs once per batch, and a batch may hold a single record. So fields are unpacked at once, and common batches go
        # directly to the kernel.
        _, size, base_offset, last_offset, magic, crc, attributes, base_timestamp, max_timestamp, _, _, _, _, count = header
        is_v2 = magic == 2
        if buffer is not self._viewed:
            self._view_buffer(buffer)
        # Verify before the header excludes any record: a flipped bit can turn any batch into a control batch.
        if self.check_crc:
            batch = self._view[index : index + size]
            if not is_v2 or len(batch) != size or crc32c(batch[21:]) != crc:
                batches.check_crc(header, batch, path)
        if attributes & CONTROL_BIT and is_v2 and not self.include_control:
            return 0
        # A legacy wrapper has the offset of its last record, so earlier records may still be inside the bounds.
        if last_offset < self._low_offset or (base_offset > self._high_offset and is_v2):
            return 0
        if self._is_timed and self._is_outside_of_time(header):
            return 0
        if not is_v2 or attributes & CODEC_MASK:
            return self._add_by_scanner(header, buffer, index, path)
        if index + size > len(self._view):
            return self._add_by_scanner(header, buffer, index, path)  # This raises the specific error.
        is_new = buffer is not self._last_source
        appended = kernel.scan_records_v2(
            self._rows,
            buffer,
            index + HEADER_BYTES,
            index + size,
            count,
            base_offset,
            last_offset,
            base_timestamp,
            max_timestamp,
            1 if attributes & LOG_APPEND_TIME_BIT else 0,
            len(self._sources) if is_new else len(self._sources) - 1,
            kernel.NO_LIMIT,
        )
        if appended < 0:
            raise_fault(appended, self._rows.fault_position, header, index, path)
        if is_new and appended and self._keeps_sources:
            self._keep(buffer)
        return appended

    def _view_buffer(self, buffer: Bytes) -> None:
        if len(buffer) > MAX_BUFFER_BYTES:
            raise InvalidArgumentError(
                "the buffer is too large for int32 positions", found=f"{len(buffer)} bytes", expected="less than 2 GiB"
            )
        self._view = memoryview(buffer)
        self._viewed = buffer

    def _add_by_scanner(self, header: BatchHeader, buffer: Bytes, index: int, path: PathLike) -> int:
        """Append a batch that is compressed or in an old format."""
        is_in_place = not header.is_compressed and buffer is self._last_source
        source = len(self._sources) - 1 if is_in_place else len(self._sources)
        appended, data = scan_batch(self._rows, header, buffer, index, source=source, limit_bytes=self.limit_bytes, path=path)
        if appended and self._keeps_sources and not is_in_place:
            self._keep(data)
        return appended

    def _keep(self, source: Bytes) -> None:
        self._sources.append(source)
        self._last_source = source
        # If compressed and uncompressed batches alternate in a buffer, the list has that buffer several times.
        if source is not self._last_buffer:
            self._source_bytes += len(source)
        if source is self._viewed:
            self._last_buffer = source

    def _is_outside_of_time(self, header: BatchHeader) -> bool:
        """Whether the header shows that no record is inside the time bounds. The checksum must have been verified."""
        largest = header.max_timestamp
        if largest == NO_TIMESTAMP:
            return False  # The batch's records must be counted as records without a timestamp.
        if self.min_timestamp is not None and largest < self.min_timestamp:
            return True
        return self.end_timestamp is not None and largest >= self.end_timestamp and header.timestamp_type == LOG_APPEND_TIME

    def clear(self) -> None:
        """Remove rows, counters and buffers. Keep the bounds and the allocated memory."""
        self._rows.clear()
        self._sources = []
        self._last_source = None
        self._last_buffer = None
        self._viewed = None
        self._view = memoryview(b"")
        self._source_bytes = 0

    # --- Counts and sizes ---

    @property
    def rows(self) -> int:
        """The number of rows collected since `clear`."""
        return self._rows.count

    @property
    def without_timestamp(self) -> int:
        """The number of records within the offset bounds that were left out because there is a time bound and they have no
        timestamp.
        """
        return self._rows.without_timestamp

    @property
    def source_bytes(self) -> int:
        """The size of the source buffers that are kept, which is at least the size of all keys and values. It is cheap enough to
        read after each batch.
        """
        return self._source_bytes

    def key_bytes(self, first: int = 0, last: int | None = None) -> int:
        """Return the total size of the keys of rows `first` to `last`, exclusive."""
        return kernel.sizes(self._rows, kernel.KEY, first, self._end(last))[0]

    def value_bytes(self, first: int = 0, last: int | None = None) -> int:
        """Return the total size of the values of rows `first` to `last`, exclusive."""
        return kernel.sizes(self._rows, kernel.VALUE, first, self._end(last))[0]

    def _end(self, last: int | None) -> int:
        return self._rows.count if last is None else last

    # --- Buffers, each for rows `first` to `last`, exclusive ---

    def offsets(self, first: int = 0, last: int | None = None) -> bytes:
        """Return the offsets, int64."""
        return bytes(self._rows.column("offset")[first : self._end(last)])

    def timestamps(self, first: int = 0, last: int | None = None) -> TimeBuffers:
        """Return the timestamps. They are null for records without a timestamp."""
        return self._times("timestamp", first, last)

    def create_times(self, first: int = 0, last: int | None = None) -> TimeBuffers:
        """Return the producers' timestamps, even if `timestamps` returns the broker's. A timestamp is null if it is lost or the
        record never had one.
        """
        return self._times("create_time", first, last)

    def _times(self, name: str, first: int, last: int | None) -> TimeBuffers:
        end = self._end(last)
        null_count, validity = kernel.timestamp_validity(self._rows, name, first, end)
        return TimeBuffers(bytes(self._rows.column(name)[first:end]), validity, null_count)

    def timestamp_types(self, first: int = 0, last: int | None = None) -> bytes:
        """Return the timestamp types, int8: -1 none (v0), 0 CreateTime, 1 LogAppendTime."""
        return bytes(self._rows.column("timestamp_type")[first : self._end(last)])

    def keys(self, first: int = 0, last: int | None = None) -> BinaryBuffers:
        """Return copies of the keys. Raises OverflowError if they exceed 2 GiB (`key_bytes`)."""
        self._require("key")
        return BinaryBuffers(*kernel.gather(self._rows, kernel.KEY, self._sources, first, self._end(last)))

    def values(self, first: int = 0, last: int | None = None) -> BinaryBuffers:
        """Return copies of the values. Raises OverflowError if they exceed 2 GiB (`value_bytes`)."""
        self._require("value")
        return BinaryBuffers(*kernel.gather(self._rows, kernel.VALUE, self._sources, first, self._end(last)))

    def key_views(self, first: int = 0, last: int | None = None) -> ViewBuffers:
        """Return views of the keys. Only keys of up to 12 bytes are copied."""
        self._require("key")
        return self._views(kernel.KEY, first, last)

    def value_views(self, first: int = 0, last: int | None = None) -> ViewBuffers:
        """Return views of the values. Only values of up to 12 bytes are copied."""
        self._require("value")
        return self._views(kernel.VALUE, first, last)

    def _views(self, which: int, first: int, last: int | None) -> ViewBuffers:
        end = self._end(last)
        sources = self._rows.column("source")
        # Source numbers increase from row to row, so the first and last row give the range of buffers in use.
        low, high = (sources[first], sources[end - 1] + 1) if first < end else (0, 0)
        views, validity, null_count = kernel.views(self._rows, which, self._sources, first, end, low)
        return ViewBuffers(views, validity, null_count, self._sources[low:high])

    def headers(self, first: int = 0, last: int | None = None) -> HeaderBuffers:
        """Return the headers. In keys that are not UTF-8, invalid bytes become replacement characters, as in Kafka's client.
        Raises OverflowError if the headers exceed 2 GiB.
        """
        self._require("headers")
        found = HeaderBuffers(*kernel.gather_headers(self._rows, self._sources, first, self._end(last)))
        return found if _is_text(found) else _with_text_keys(found)

    def raw_headers(self, first: int = 0, last: int | None = None) -> HeaderBuffers:
        """Return the headers with their keys as stored, even if they are not UTF-8, for callers that write the headers again."""
        self._require("headers")
        return HeaderBuffers(*kernel.gather_headers(self._rows, self._sources, first, self._end(last)))

    def _require(self, name: str) -> None:
        if name not in self.names:
            raise InvalidArgumentError(f"column {name} was not requested", found=", ".join(sorted(self.names)))


def _is_text(headers: HeaderBuffers) -> bool:
    if headers.key_data.isascii():
        return True
    try:
        headers.key_data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not kernel.starts_inside_characters(memoryview(headers.key_offsets).cast("i"), headers.key_data)


def _with_text_keys(headers: HeaderBuffers) -> HeaderBuffers:
    """Return the headers, with bytes of keys that are not UTF-8 replaced. This is rare, so keys are converted one at a time."""
    cuts = memoryview(headers.key_offsets).cast("i")
    offsets = bytearray(4 * len(cuts))
    new_cuts = memoryview(offsets).cast("i")
    data = bytearray()
    for i in range(len(cuts) - 1):
        data += headers.key_data[cuts[i] : cuts[i + 1]].decode("utf-8", "replace").encode("utf-8")
        new_cuts[i + 1] = len(data)
    return headers._replace(key_offsets=offsets, key_data=data)
