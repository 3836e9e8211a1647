"""A file system of pyarrow's as a bucket. Without ETags: an object is known by its size and time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidelog.errors import SegmentChangedError, StorageError
from tidelog.objects.listing import ObjectFacts


class ArrowStore:
    """The files below `root` in a file system. `address` is the root's text, for errors."""

    def __init__(self, filesystem: Any, address: str, root: str = "") -> None:
        self._filesystem = filesystem
        self._address = address
        self._root = root.rstrip("/")

    def list(self, prefix: str) -> Iterable[tuple[str, ObjectFacts]]:
        from pyarrow import fs

        base = f"{self._root}/{prefix}" if prefix else self._root or "/"
        try:
            found = self._filesystem.get_file_info(fs.FileSelector(base, allow_not_found=True, recursive=True))
        except OSError as error:
            raise StorageError(f"cannot list a folder: {error}", path=f"{self._address}/{prefix}") from error
        for one in found:
            if one.type == fs.FileType.File:
                yield one.path.removeprefix(f"{self._root}/"), _facts(one)

    def read(self, key: str, facts: ObjectFacts, start: int, end: int) -> memoryview:
        from pyarrow import fs

        at, path = f"{self._address}/{key}", f"{self._root}/{key}"
        try:
            with self._filesystem.open_input_file(path) as file:
                now = self._filesystem.get_file_info(path)
                if now.type != fs.FileType.File or _facts(now) != facts:
                    raise SegmentChangedError("an object was overwritten while it was being read", path=at)
                data = memoryview(file.read_at(end - start, start))
        except SegmentChangedError:
            raise
        except FileNotFoundError:
            raise SegmentChangedError("an object has been deleted", path=at) from None
        except OSError as error:
            raise StorageError(f"cannot read an object: {error}", path=at, position=start) from error
        if len(data) != end - start:
            raise StorageError("a response has the wrong length", path=at, position=start, found=len(data), expected=end - start)
        return data


def _facts(info: Any) -> ObjectFacts:
    return ObjectFacts(info.size, info.mtime_ns or 0, "")
