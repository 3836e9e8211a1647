"""Builds batches from columns: determines each key's partition and the number of rows that fit into a batch, and builds the
batch.

    batches = ColumnBatches(timestamps, BinaryBuffers..., BinaryBuffers...)
    rows = batches.fitting(indices, first, limit_bytes)
    batch = batches.build(indices, first, first + rows)

This is for callers that have columns in Arrow's layout. The module does not depend on Arrow, and creates no object per record.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from tidelog.records.batch import HEADER_BYTES
from tidelog.records.builder import build_batch_v2_from_columns
from tidelog.records.compression import Codec
from tidelog.records.kernel import BinaryColumn, murmur2_partitions, size_records_v2


class BinaryLayout(NamedTuple):
    """A column of byte strings in Arrow's binary layout. Each part supports the buffer protocol."""

    offsets: Any
    """Offsets as int32, at least `first + length + 1` of them."""
    data: Any
    validity: Any | None
    """Bitmap, least significant bit first; None if no entry is null."""
    first: int
    length: int


class ColumnBatches:
    """Rows to write: int64 `timestamps` (epoch ms), `keys`, `values`, and `headers` as `builder.encode_headers` returns them."""

    def __init__(
        self,
        timestamps: memoryview,
        keys: BinaryLayout,
        values: BinaryLayout,
        headers: BinaryLayout | None = None,
        *,
        codec: Codec = Codec.NONE,
    ) -> None:
        self._timestamps = timestamps
        self._keys = BinaryColumn(*keys)
        self._values = BinaryColumn(*values)
        self._headers = None if headers is None else BinaryColumn(*headers)
        self._codec = codec

    def fitting(self, indices: memoryview, first: int, limit_bytes: int) -> int:
        """Return how many of the rows `indices[first:]` (int32) fit into a batch of `limit_bytes` before compression, at least
        one.
        """
        rows: int = self._size(indices, first, len(indices), limit_bytes)[0]
        return rows

    def size_bytes(self, indices: memoryview, first: int, last: int) -> int:
        """Return the uncompressed size of a batch with the rows `indices[first:last]`."""
        size: int = self._size(indices, first, last, 2**62)[1]
        return size + HEADER_BYTES

    def build(self, indices: memoryview, first: int, last: int) -> bytearray:
        """Return a batch with the rows `indices[first:last]` and base offset 0."""
        return build_batch_v2_from_columns(
            self._timestamps,
            self._keys,
            self._values,
            base_offset=0,
            headers=self._headers,
            indices=indices,
            first=first,
            last=last,
            codec=self._codec,
        ).data

    def _size(self, indices: memoryview, first: int, last: int, limit_bytes: int) -> tuple[int, int, int]:
        sizes: tuple[int, int, int] = size_records_v2(
            self._timestamps,
            self._keys,
            self._values,
            self._headers,
            indices,
            None,
            None,
            first,
            last,
            limit_bytes - HEADER_BYTES,
        )
        return sizes


def partitions_of(keys: BinaryLayout, partitions: int) -> array[int]:
    """Return the partition (int32) that Kafka's default partitioner assigns to each key; -1 for a null key."""
    chosen: array[int] = murmur2_partitions(BinaryColumn(*keys), partitions)
    return chosen
