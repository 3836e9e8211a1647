"""Ranges of offsets, cut into pieces of about equal size: where a log's files are not seen, that is all that can be cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.model import TopicPartition

MIN_SPLIT_OFFSETS = 1_000
"""No piece of a partition that is cut has fewer: the batches at a cut are fetched and opened twice."""


class OffsetPiece(NamedTuple):
    """Offsets `[start_offset, end_offset)`, and about how many bytes they take."""

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
    """Yield the pieces of ranges of offsets, in their order: of about `split_bytes`, and about `min_splits` of them.

    `bytes_each` is about what an offset of a partition takes; at least one byte, also where it is unknown.
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
