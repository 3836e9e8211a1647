"""How remote storage keeps a segment's files. Each plugin of Kafka's (RemoteStorageManager) has a layout of its own.

A layout is one module with a class like `Layout`, and its row in `LAYOUTS`. The first one that finds files for a segment is used.
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
"""The files that a remote segment always has, besides its ``.log``, and that are read without asking whether they exist."""


class Layout(Protocol):
    """The files of remote segments below one address."""

    name: str

    def __init__(self, root: FilePath, key_files: tuple[str, ...]) -> None:
        """`key_files`: ``FILE`` or ``ID=FILE``, for a layout that encrypts. Nothing is read yet."""

    def holds(self, segment: RemoteSegment) -> bool:
        """Return whether there are files of this layout for a segment."""

    def check_keys(self) -> None:
        """Raise InvalidArgumentError or StorageError for key files that cannot be used, or if nothing is encrypted in this
        layout.
        """

    def open(self, segment: RemoteSegment, suffix: str) -> Handle:
        """Open the file with an ending of Kafka's: ``.log``, ``.index``, ``.timeindex``, ``.txnindex``, ``.snapshot``,
        ``leader-epoch-checkpoint``. The snapshot is that of the segment's end.

        Raises FileNotFoundError if there is none, another OSError, CorruptDataError, InvalidArgumentError for a missing key.
        """

    def path(self, segment: RemoteSegment) -> FilePath:
        """Return the path of the file that holds a segment's records, for messages."""


LAYOUTS = (
    "tidelog.reader.tiered.local_layout:LocalLayout",
    "tidelog.reader.tiered.aiven_layout:AivenLayout",
)
"""Every layout."""


def open_layout(root: FilePath, key_files: tuple[str, ...], segments: Iterable[RemoteSegment]) -> Layout:
    """Return the layout of the files below `root`, judged by the first of these segments that is found.

    Raises NotFoundError if there is no file of any of them.
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
    raise NotFoundError(f"no remote segment at the tier's address: neither {places}", path=root)


class BytesHandle:
    """A small file that was read as a whole."""

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
    """Return the state of a regular file that the operating system does not know."""
    seconds, modified_ns = modified_ms // 1000, modified_ms * 1_000_000
    fields = (stat_modes.S_IFREG | 0o444, inode, device, 1, 0, 0, size_bytes, seconds, seconds, seconds)
    return os.stat_result(fields, {"st_atime_ns": modified_ns, "st_mtime_ns": modified_ns, "st_ctime_ns": modified_ns})
