"""Index files and time maps put in place: each whole or as it was, and what that took told (`RebuiltFile`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.formats.checkpoints import replace_file, sync_directory
from tidelog.formats.files import read_whole
from tidelog.formats.time_map import TimeMap
from tidelog.reader.time_map_file import replace_time_map


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

    With `missing_only` a file that is there stays. Raises StorageError.
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
    """Return what a file holds, None where there is none. Raises StorageError."""
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
