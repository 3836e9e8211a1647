"""Cuts ranges of offsets into pieces of about equal size, for logs whose files are not accessible."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.model import TopicPartition

MIN_SPLIT_OFFSETS = 1_000
"""The smallest number of offsets in a piece. Smaller pieces cost too much, because the batches at each cut are fetched and
decompressed twice.
"""


class OffsetPiece(NamedTuple):
    """Offsets `[start_offset, end_offset)`, and their approximate size in bytes."""

    key: TopicPartition
    start_offset: int
    end_offset: int
    size_bytes: int


def cut_offsets(
    ranges: Mapping[TopicPartition, tuple[int, int]],
    bytes_each: Mapping[TopicPartition, float],
    *,
    split_bytes: int | None = None,
    min_splits: int | None = None,
) -> Iterator[OffsetPiece]:
    """Cut offset ranges into pieces of about `split_bytes`, or smaller so that there are about `min_splits` pieces; yield them in
    order.

    `bytes_each` has the approximate number of bytes per offset for each partition. A number that is missing or below one counts
    as one.
    """
    total = sum(end - start for start, end in ranges.values())
    for key, (start, end) in ranges.items():
        count = end - start
        if count <= 0:
            continue
        size_bytes = max(count, int(count * bytes_each.get(key, 0.0)))
        pieces = 1 if min_splits is None else -(-min_splits * count // total)
        pieces = max(pieces, 1 if split_bytes is None else -(-size_bytes // split_bytes))
        pieces = max(1, min(pieces, count // MIN_SPLIT_OFFSETS))
        cuts = [start + count * piece // pieces for piece in range(pieces + 1)]
        yield from (OffsetPiece(key, low, high, size_bytes // pieces) for low, high in itertools.pairwise(cuts))
