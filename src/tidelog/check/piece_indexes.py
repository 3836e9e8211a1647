"""The indexes of a segment that a backup stored in pieces, built by the rules for pieces (docs/backup.md, the format).

| a piece | has offset index entries for | and time index entries, each if the largest timestamp has risen, |
|---|---|---|
| with indexes | its first batch, and the first batch after every interval | with each offset index entry, and at the end |
| without | its first batch | the same |

A segment's first batch never has an entry. Kafka's rule alone would not explain the entry at the start of each later piece: every
piece would look like a broker restart.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from tidelog.check.batch_table import BatchTable
from tidelog.formats.paths.file_path import FilePath

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")

Piece = tuple[int, int | None]
"""A piece's size in bytes, and the index interval in bytes; None if the piece has no indexes."""


class PieceIndexes(NamedTuple):
    """The bytes of a segment's indexes."""

    offsets: bytes
    times: bytes


def pieces_of(log_path: FilePath) -> Sequence[Piece] | None:
    """Return the pieces of a `.log` in a backup, None for all other files."""
    known = getattr(log_path, "index_pieces", None)
    return None if known is None else cast("Callable[[], Sequence[Piece] | None]", known)()


def piece_indexes(table: BatchTable, pieces: Sequence[Piece]) -> PieceIndexes:
    """Return the indexes of a segment with these batches, built by the rules for pieces."""
    offsets: list[bytes] = []
    times: list[bytes] = []
    indexed_rise = -1

    def add_time(batch: int) -> None:
        nonlocal indexed_rise
        rise = table.rise_up_to(batch)
        if rise > indexed_rise:
            indexed_rise = rise
            times.append(_TIME_ENTRY.pack(table.timestamps[rise], table.last_offsets[table.risen_at[rise]]))

    batch, end = 0, 0
    for size_bytes, interval_bytes in pieces:
        start, end = end, end + size_bytes
        indexed_position = 0 if start == 0 else None
        while batch < len(table) and table.positions[batch] < end:
            position = table.positions[batch]
            is_due = indexed_position is None or (interval_bytes is not None and position - indexed_position > interval_bytes)
            if is_due:
                indexed_position = position
                offsets.append(_OFFSET_ENTRY.pack(table.last_offsets[batch], position))
                add_time(batch)
            batch += 1
        add_time(batch - 1)
    return PieceIndexes(b"".join(offsets), b"".join(times))
