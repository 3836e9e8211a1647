"""Reads index files, and replaces index files and time maps.

Reading (`IndexContent`) returns the entries, the zeros after them, and any fault in the length (spec §2.2). Every slot up to the
last non-zero slot counts as an entry; the caller judges invalid bytes among them. Files are neither mapped nor kept open.

Writing (`put`) replaces each file atomically and reports what changed (`RebuiltFile`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import SegmentChangedError, StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import replace_file, sync_directory
from tidelog.formats.files import ReadOnlyFile, read_whole
from tidelog.formats.paths.file_path import FilePath, local_path, with_ending
from tidelog.formats.time_map import TimeMap
from tidelog.reader.segment import Segment
from tidelog.reader.time_map_file import replace_time_map

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12


class IndexContent(NamedTuple):
    """The content of an index file."""

    path: FilePath
    data: bytes
    """The slots up to and including the last non-zero slot."""
    padding_bytes: int
    """The number of zero bytes in whole slots after `data`: preallocated space in a live index."""
    ragged_bytes: int
    """The number of bytes after the last complete slot; 0 in a sound file."""


def read_index(path: FilePath, entry_bytes: int) -> IndexContent | None:
    """Read an index file. Return None if it does not exist. Raises StorageError."""
    with ReadOnlyFile(path, fallbacks=()) as file:
        try:
            data = file.read(0, file.size_bytes())
        except SegmentChangedError:
            return None
    ragged = len(data) % entry_bytes
    # The last entry itself may end in zeros.
    used = min(-(-len(data.rstrip(b"\0")) // entry_bytes) * entry_bytes, len(data) - ragged)
    return IndexContent(path, data[:used], len(data) - ragged - used, ragged)


def read_indexes(segment: Segment) -> tuple[IndexContent | None, IndexContent | None]:
    """Read a segment's offset index and time index. Raises SegmentChangedError if the files may now belong to a different
    segment.
    """
    offsets = read_index(index_path(segment.log_path, names.INDEX_SUFFIX), OFFSET_ENTRY_BYTES)
    times = read_index(index_path(segment.log_path, names.TIME_INDEX_SUFFIX), TIME_ENTRY_BYTES)
    check_in_place(segment)
    return offsets, times


def check_in_place(segment: Segment) -> None:
    """Raise SegmentChangedError if the `.log` was renamed or removed, because files that were read next to it may then belong
    to a different segment.
    """
    if segment.file.locate() != segment.log_path:
        raise SegmentChangedError("a segment was removed or replaced", path=segment.log_path)


def index_path(log_path: FilePath, suffix: str) -> FilePath:
    """Return the path of a segment's index. The file need not exist.

    The index of a `.log.swap` is a `.swap` as well; a file with the plain name belongs to the replaced segment. If a replacement
    stopped after renaming its `.log`, the index remains a `.swap` until a broker starts (spec §6.7).
    """
    plain = log_path.with_suffix("") if log_path.suffix == names.SWAP_SUFFIX else log_path
    path = plain.with_suffix(suffix)
    swap = with_ending(path, names.SWAP_SUFFIX)
    return swap if plain != log_path or (swap.exists() and not path.exists()) else path


# --- put in place


class RebuiltFile(NamedTuple):
    """One file, its size before (None: it was missing) and its size after (None: it was removed because it should not exist)."""

    path: FilePath
    old_bytes: int | None
    new_bytes: int | None
    is_right: bool
    """Whether it was already correct."""
    is_left: bool = False
    """Whether an incorrect file was left unchanged because only missing files were to be written."""


def put(path: FilePath, data: bytes | None, *, missing_only: bool = False) -> Iterator[RebuiltFile]:
    """Write `data` to a file, or remove the file if `data` is None. Yield the change; nothing if the file neither existed nor
    exists.

    With `missing_only` an existing file is left unchanged. Raises StorageError.
    """
    old = content_of(path)
    if old is None and data is None:
        return
    if missing_only and old is not None:
        yield RebuiltFile(path, len(old), len(old), data == old, is_left=data != old)
        return
    if data is None:
        try:
            local_path(path).unlink()
            sync_directory(local_path(path.parent))
        except OSError as error:
            raise StorageError(f"cannot remove an index file: {error.strerror or error}", path=path) from error
    elif data != old:
        replace_file(local_path(path), data)
    yield RebuiltFile(path, None if old is None else len(old), None if data is None else len(data), data == old)


def put_time_map(path: FilePath, time_map: TimeMap | None) -> Iterator[RebuiltFile]:
    """Write or remove a time map like `put`, but without a sync, which a time map does not need."""
    if time_map is None:
        yield from put(path, None)
        return
    data, old = time_map.to_bytes(), content_of(path)
    if data != old:
        replace_time_map(local_path(path), time_map)
    yield RebuiltFile(path, None if old is None else len(old), len(data), data == old)


def content_of(path: FilePath) -> bytes | None:
    """Return a file's content, None if it does not exist. Raises StorageError."""
    try:
        return read_whole(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read a file: {error.strerror or error}", path=path) from error


def make_folder(directory: Path) -> None:
    """Create a folder and its parents. Raises StorageError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create a folder: {error.strerror or error}", path=directory) from error
