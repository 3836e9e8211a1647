"""Joins small pieces of a segment, so that a continuous backup does not consist of millions of small objects.

| pieces at the end of a segment | are joined once there are |
|---|---|
| pieces under 64 KiB | 16 |
| pieces under 1 MiB | 16 |
| pieces under 8 MiB | 4 |

The original pieces remain until the points that need them expire.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.backup.backup import Backup
from tidelog.backup.layout import data_key
from tidelog.backup.manifest import PartitionManifest, Piece, Segment
from tidelog.capture.piece_builder import PieceBuilder
from tidelog.formats import names
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import iter_headers

_RULES = ((64 * 1024, 16), (1024 * 1024, 16), (8 * 1024 * 1024, 4))


def pieces_to_join(pieces: Sequence[Piece]) -> int:
    """Return how many of the last pieces should be joined, or 0 if none should be."""
    for limit, count in _RULES:
        small = 0
        while small < len(pieces) and pieces[-1 - small].size_bytes < limit:
            small += 1
        if small >= count:
            return count
    return 0


def join(backup: Backup, partition: PartitionManifest, segment: Segment, count: int) -> PieceBuilder:
    """Return the builder of a piece that replaces the last `count` pieces. Raises CorruptDataError, NotFoundError,
    StorageError.
    """
    before, last = segment.pieces[:-count], segment.pieces[-count:]
    largest = max((piece.max_time for piece in before), default=NO_TIMESTAMP)
    builder = PieceBuilder(segment.base_offset, sum(piece.size_bytes for piece in before), largest)
    for piece in last:
        data = memoryview(backup.read(backup.key(partition, piece, names.LOG_SUFFIX), piece.files[names.LOG_SUFFIX]))
        place = data_key(partition.topic_id, partition.partition, piece.stem, names.LOG_SUFFIX)
        for header in iter_headers(data, 0, place):
            builder.add(header, data[header.position : header.end_position])
        aborted = piece.files.get(names.TXN_INDEX_SUFFIX)
        if aborted is not None:
            builder.keep_aborted(backup.read(backup.key(partition, piece, names.TXN_INDEX_SUFFIX), aborted))
    return builder
