"""An index file as it lies there: its entries, the zeros behind them, and what is wrong with its length (spec §2.2).

What counts as an entry here is every slot up to the last one that is not zero: bytes in between that make no sense are for the
caller to judge. Nothing is mapped, and nothing is kept open.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tidelog.errors import SegmentChangedError
from tidelog.formats import names
from tidelog.formats.files import ReadOnlyFile
from tidelog.reader.segment import Segment

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12


class IndexContent(NamedTuple):
    """What a file holds."""

    path: Path
    data: bytes
    """The slots up to the last one that is not zero."""
    padding_bytes: int
    """Slots of zeros behind them: room that was preallocated, in a live index."""
    ragged_bytes: int
    """What is left over behind the last whole slot; none, in a sound file."""


def read_index(path: Path, entry_bytes: int) -> IndexContent | None:
    """Read a file; None where there is none. Raises StorageError."""
    with ReadOnlyFile(path, fallbacks=()) as file:
        try:
            data = file.read(0, file.size_bytes())
        except SegmentChangedError:
            return None
    ragged = len(data) % entry_bytes
    # The last slot may end in zeros of its own.
    used = min(-(-len(data.rstrip(b"\0")) // entry_bytes) * entry_bytes, len(data) - ragged)
    return IndexContent(path, data[:used], len(data) - ragged - used, ragged)


def read_indexes(segment: Segment) -> tuple[IndexContent | None, IndexContent | None]:
    """Read the offset index and the time index of a segment. Raises SegmentChangedError if they may be another's by now."""
    offsets = read_index(index_path(segment.log_path, names.INDEX_SUFFIX), OFFSET_ENTRY_BYTES)
    times = read_index(index_path(segment.log_path, names.TIME_INDEX_SUFFIX), TIME_ENTRY_BYTES)
    check_in_place(segment)
    return offsets, times


def check_in_place(segment: Segment) -> None:
    """Raise SegmentChangedError unless the `.log` still bears its name: what is read beside it is its own then."""
    if segment.file.locate() != segment.log_path:
        raise SegmentChangedError("a segment was removed or replaced", path=segment.log_path)


def index_path(log_path: Path, suffix: str) -> Path:
    """Return the path of an index beside a `.log`, or beside a `.log.swap` that is about to take its place."""
    plain = log_path.with_suffix("") if log_path.suffix == names.SWAP_SUFFIX else log_path
    path = plain.with_suffix(suffix)
    swap = Path(f"{path}{names.SWAP_SUFFIX}")
    return swap if plain != log_path and swap.exists() else path
