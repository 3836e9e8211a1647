"""Index files as they lie there, and index files and time maps put in place.

Read (`IndexContent`): the entries, the zeros after them, and what is wrong with the length (spec §2.2). Every slot up to the last
non-zero one counts as an entry: the caller judges senseless bytes in between. Nothing is mapped, and nothing is kept open.

Put in place (`put`): each file whole or as it was, with a report of what that took (`RebuiltFile`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import SegmentChangedError, StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import replace_file, sync_directory
from tidelog.formats.files import ReadOnlyFile, read_whole
from tidelog.formats.time_map import TimeMap
from tidelog.reader.segment import Segment
from tidelog.reader.time_map_file import replace_time_map

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12


class IndexContent(NamedTuple):
    """What a file holds."""

    path: Path
    data: bytes
    """The slots up to the last one that is not zero."""
    padding_bytes: int
    """Slots of zeros after them: room that was preallocated, in a live index."""
    ragged_bytes: int
    """Bytes after the last whole slot; none in a sound file."""


def read_index(path: Path, entry_bytes: int) -> IndexContent | None:
    """Read a file; None if there is none. Raises StorageError."""
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
    """Return the path of an index of a segment, there or not.

    An index beside a `.log.swap` is a `.swap` as well: what has the plain name belongs to a segment that is replaced. Where a
    replacement stopped after its `.log`, the index still is a `.swap`, until a broker starts (spec §6.7).
    """
    plain = log_path.with_suffix("") if log_path.suffix == names.SWAP_SUFFIX else log_path
    path = plain.with_suffix(suffix)
    swap = Path(f"{path}{names.SWAP_SUFFIX}")
    return swap if plain != log_path or (swap.exists() and not path.exists()) else path


# --- put in place


class RebuiltFile(NamedTuple):
    """One file: how long it was (None: it was missing) and is (None: it was removed, for nothing belongs there)."""

    path: Path
    old_bytes: int | None
    new_bytes: int | None
    is_right: bool
    """Whether it was right already."""
    is_left: bool = False
    """Whether it stays as it is although it was not right: only missing ones were asked for."""


def put(path: Path, data: bytes | None, *, missing_only: bool = False) -> Iterator[RebuiltFile]:
    """Let a file hold `data`, or let there be none; yield what that took, nothing if there was no file and is none.

    With `missing_only` a file that exists stays. Raises StorageError.
    """
    old = content_of(path)
    if old is None and data is None:
        return
    if missing_only and old is not None:
        yield RebuiltFile(path, len(old), len(old), data == old, is_left=data != old)
        return
    if data is None:
        try:
            path.unlink()
            sync_directory(path.parent)
        except OSError as error:
            raise StorageError(f"cannot remove an index: {error.strerror or error}", path=path) from error
    elif data != old:
        replace_file(path, data)
    yield RebuiltFile(path, None if old is None else len(old), None if data is None else len(data), data == old)


def put_time_map(path: Path, time_map: TimeMap | None) -> Iterator[RebuiltFile]:
    """The same for a time map, which need not be synced."""
    if time_map is None:
        yield from put(path, None)
        return
    data, old = time_map.to_bytes(), content_of(path)
    if data != old:
        replace_time_map(path, time_map)
    yield RebuiltFile(path, None if old is None else len(old), len(data), data == old)


def content_of(path: Path) -> bytes | None:
    """Return what a file holds, None if there is none. Raises StorageError."""
    try:
        return read_whole(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read a file: {error.strerror or error}", path=path) from error


def make_folder(directory: Path) -> None:
    """Make a folder, and those above it. Raises StorageError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make a folder: {error.strerror or error}", path=directory) from error
