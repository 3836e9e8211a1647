"""Caches parts of objects on this machine's disk: indexes, time maps, and the blocks of logs that searches read.

An entry's name is a digest of the object's address, size, time and ETag, and of the part's position. So an entry always belongs
to the same content, and nothing needs to be invalidated. An entry contains a digest of its bytes; a damaged entry is ignored.
If the cache grows beyond its size, the least recently used entries are removed at one of the next writes. Errors of the disk are
ignored: the part then counts as not cached.

| option | default |
|---|---|
| `cache_dir` | `$XDG_CACHE_HOME/tidelog`, else `~/.cache/tidelog` |
| `cache_bytes` | 256 MiB; 0 disables the cache |
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from tidelog.errors import InvalidArgumentError
from tidelog.objects.settings import setting
from tidelog.user_folders import cache_folder

DEFAULT_BYTES = 256 * 1024 * 1024
_DIGEST_BYTES = 16
_WRITES_BETWEEN_SWEEPS = 256


class DiskCache:
    """A folder of entries. If they exceed `most_bytes`, the oldest are removed, at the first write and then every
    `_WRITES_BETWEEN_SWEEPS` writes. 0 disables the cache. Several processes may share the folder.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._writes = 0

    def get(self, key: str) -> bytes | None:
        """Return an entry's bytes, or None if there is no entry."""
        if not self._most_bytes:
            return None
        path = self._path(key)
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        data = content[_DIGEST_BYTES:]
        return data if content[:_DIGEST_BYTES] == _digest(data) else None

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Write an entry."""
        if not self._most_bytes:
            return
        path = self._path(key)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.write_bytes(_digest(data) + data)
            temporary.replace(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            return
        if self._writes % _WRITES_BETWEEN_SWEEPS == 0:
            self._sweep()
        self._writes += 1

    def _path(self, key: str) -> Path:
        name = blake2b(key.encode(), digest_size=20).hexdigest()
        return self._folder / name[:2] / name[2:]

    def _sweep(self) -> None:
        """If the entries exceed `most_bytes`, remove the least recently used until a quarter of `most_bytes` is free."""
        found: list[tuple[int, int, str]] = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(folder, name)  # noqa: PTH118 -- there may be thousands
                with suppress(OSError):
                    entry = os.stat(path)  # noqa: PTH116
                    found.append((entry.st_mtime_ns, entry.st_size, path))
        total = sum(size for _, size, _ in found)
        if total <= self._most_bytes:
            return
        for _, size, path in sorted(found):
            if total <= self._most_bytes * 3 // 4:
                return
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108
            total -= size


def _digest(data: bytes | memoryview) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def open_cache(options: Mapping[str, str]) -> DiskCache:
    """Return the cache that the options and the environment configure. Raises InvalidArgumentError."""
    text = setting(options, "cache_bytes")
    if text is not None and not text.isdecimal():
        raise InvalidArgumentError(
            "invalid value for option cache_bytes", found=repr(text), expected="a number of bytes, 0 for no cache"
        )
    folder = setting(options, "cache_dir") or cache_folder()
    return DiskCache(Path(folder) / "objects", DEFAULT_BYTES if text is None else int(text))
