"""Defines what readers need from a path and from an open file.

`pathlib.Path` is such a path. So are paths to files elsewhere: objects in a bucket, remote segments.

A path to a file elsewhere opens the file itself (`VirtualPath.open_handle`). It is not a path of the operating system:
`os.fspath` raises TypeError, so that code which calls `open` by mistake does not look for a local file of that name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, cast

from tidelog.errors import InvalidArgumentError


class FilePath(Protocol):
    """A path to a file or folder that is only read. Its methods do the same as those of `pathlib.Path`, and raise the same
    errors.
    """

    @property
    def name(self) -> str: ...
    @property
    def stem(self) -> str: ...
    @property
    def suffix(self) -> str: ...
    @property
    def parent(self) -> Self: ...
    def __fspath__(self) -> str: ...
    def __hash__(self) -> int: ...
    def __lt__(self, other: Any) -> bool: ...
    def __truediv__(self, name: str, /) -> Self: ...
    def with_name(self, name: str, /) -> Self: ...
    def with_suffix(self, suffix: str, /) -> Self: ...
    def absolute(self) -> Self: ...
    def iterdir(self) -> Iterator[Self]: ...
    def stat(self) -> os.stat_result: ...
    def exists(self) -> bool: ...
    def is_dir(self) -> bool: ...
    def is_file(self) -> bool: ...
    def is_symlink(self) -> bool: ...


class Handle(Protocol):
    """An open file. Its content may still change; `stat` returns the current state, for kinds of files that have one."""

    fd: int
    """The descriptor, for kernels that read the file themselves; -1 if there is none."""
    is_constant: bool
    """Whether the content never changes: a read fails if the content was replaced."""

    def stat(self) -> os.stat_result: ...

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes, fewer only at the end of the file. Raises OSError, also if the file was replaced."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer`; return the number of bytes, smaller than the buffer only at the end of the file. Raises OSError."""

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Announce that the byte ranges `ranges` are about to be read, in this ascending order. An implementation may ignore
        it.
        """

    def close(self) -> None: ...


class VirtualPath(FilePath, Protocol):
    """A path whose file is not reached through the operating system."""

    def open_handle(self) -> Handle:
        """Open the file for reading. Raises OSError like `open`: FileNotFoundError if the file does not exist."""

    def at(self, text: str) -> Self:
        """Return the path with the text `text` in the same bucket or remote storage."""


AnyPath = str | os.PathLike[str] | FilePath

_Path = TypeVar("_Path", bound=FilePath)


def as_path(path: AnyPath) -> FilePath:
    """Return `path` as a path; it may be a text."""
    return Path(path) if isinstance(path, str | Path) or not hasattr(path, "iterdir") else cast("FilePath", path)


def path_at(text: str, near: FilePath) -> FilePath:
    """Return the path with the text `text`, of the same kind as `near`."""
    return Path(text) if isinstance(near, Path) else cast("VirtualPath", near).at(text)


def with_ending(path: _Path, ending: str) -> _Path:
    """Return the path with `ending` appended to its name."""
    return path.with_name(path.name + ending) if ending else path


def list_names(directory: FilePath) -> list[str]:
    """Return the names in a folder. For a local folder this is faster than `iterdir`. Raises OSError like `iterdir`."""
    return os.listdir(directory) if isinstance(directory, Path) else [path.name for path in directory.iterdir()]  # noqa: PTH208


def log_files(directory: FilePath) -> Iterator[FilePath]:
    """Yield a partition's ``.log`` files. Raises OSError."""
    return (path for path in directory.iterdir() if path.name.endswith(".log"))


def local_path(path: FilePath) -> Path:
    """Return the local path of a file or folder that will be written. Raises InvalidArgumentError unless `path` is in this
    machine's file system.
    """
    if not isinstance(path, Path):
        raise InvalidArgumentError("the path must be in the local file system", found=str(path))
    return path
