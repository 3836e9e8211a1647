"""How a segment's files are laid out in remote storage. Each of Kafka's plugins (RemoteStorageManager) has its own layout.

A layout is a module with a class like `Layout`, and a row in `LAYOUTS`. The first layout that finds files for a segment is used.
"""

from __future__ import annotations

import os
import stat as stat_modes
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Protocol

from tidelog.errors import NotFoundError
from tidelog.formats import names
from tidelog.formats.paths.file_path import FilePath, Handle
from tidelog.reader.tiered.remote_segments import RemoteSegment

INDEX_SUFFIXES = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
"""Besides the ``.log``, a remote segment always has files with these suffixes. So they are opened without first checking that
they exist.
"""


class Layout(Protocol):
    """The interface of a layout: finds and opens the files of remote segments below one address."""

    name: str

    def __init__(self, root: FilePath, key_files: tuple[str, ...]) -> None:
        """`key_files` are ``FILE`` or ``ID=FILE``, for a layout whose files may be encrypted. Nothing is read yet."""

    def holds(self, segment: RemoteSegment) -> bool:
        """Return whether a segment's files exist in this layout."""

    def check_keys(self) -> None:
        """Raise InvalidArgumentError or StorageError if a key file cannot be used, or if this layout has no encryption."""

    def open(self, segment: RemoteSegment, suffix: str) -> Handle:
        """Open the segment's file with one of Kafka's suffixes: ``.log``, ``.index``, ``.timeindex``, ``.txnindex``,
        ``.snapshot``, ``leader-epoch-checkpoint``. The producer snapshot is as of the segment's end.

        Raises FileNotFoundError or another OSError, CorruptDataError, InvalidArgumentError for a missing key.
        """

    def path(self, segment: RemoteSegment) -> FilePath:
        """Return the path of the file with a segment's records, for messages."""


LAYOUTS = (
    "tidelog.reader.tiered.local_layout:LocalLayout",
    "tidelog.reader.tiered.aiven_layout:AivenLayout",
)
"""Every layout, as `module:class`."""


def open_layout(root: FilePath, key_files: tuple[str, ...], segments: Iterable[RemoteSegment]) -> Layout:
    """Return the layout of the files below `root`: the layout in which the first of `segments` is found.

    Raises NotFoundError if no layout finds any of the segments.
    """
    layouts: list[Layout] = []
    for opened_by in LAYOUTS:
        module, _, name = opened_by.partition(":")
        layouts.append(getattr(import_module(module), name)(root, key_files))
    tried = None
    for segment in segments:
        for layout in layouts:
            if layout.holds(segment):
                if key_files:
                    layout.check_keys()
                return layout
        tried = tried or segment
    if tried is None:
        return layouts[0]
    places = " nor ".join(str(layout.path(tried)) for layout in layouts)
    raise NotFoundError(f"no remote segment at the tier's address: found neither {places}", path=root)


class BytesHandle:
    """A handle for a small file whose whole content is in memory."""

    fd = -1
    is_constant = False

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stat(self) -> os.stat_result:
        return stat_of(len(self._data))

    def read(self, position: int, length: int) -> bytes:
        return self._data[position : position + length]

    def read_into(self, position: int, buffer: memoryview) -> int:
        return copy_into(buffer, self.read(position, len(buffer)))

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        pass

    def close(self) -> None:
        pass


def copy_into(buffer: memoryview, data: bytes) -> int:
    """Copy bytes to the start of a buffer and return their number."""
    buffer[: len(data)] = data
    return len(data)


def stat_of(size_bytes: int, *, inode: int = 0, device: int = 0, modified_ms: int = 0) -> os.stat_result:
    """Return a stat result, that of a regular file, for a file that exists only in remote storage."""
    seconds, modified_ns = modified_ms // 1000, modified_ms * 1_000_000
    fields = (stat_modes.S_IFREG | 0o444, inode, device, 1, 0, 0, size_bytes, seconds, seconds, seconds)
    return os.stat_result(fields, {"st_atime_ns": modified_ns, "st_mtime_ns": modified_ns, "st_ctime_ns": modified_ns})
