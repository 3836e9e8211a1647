"""What a kill leaves: the folder as it is before each call that changes a file or a name.

`CrashStates(folder, into)` copies `folder` before every rename, removal, truncation, sync and write of the code that runs
inside it, and in the middle of each write. Each copy is a state that a kill at that moment leaves behind::

    with CrashStates(log.directory, tmp_path / "states") as states:
        do_something(log)
    for state in states.folders:
        assert what_is_loaded_from(state) == ...
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

_NAMES = ("rename", "replace", "unlink", "remove", "mkdir", "rmdir")
_CALLS = (*_NAMES, "fsync", "truncate", "ftruncate", "write", "pwrite", "pwritev", "writev")
_WRITES = ("write", "pwrite")


class CrashStates:
    """See the module. The copies keep the folder's name, each in a folder of its own; equal ones are kept once."""

    def __init__(self, folder: Path, into: Path) -> None:
        self.folder = folder
        self.into = into
        self.folders: list[Path] = []
        self.calls: list[str] = []
        self._originals: dict[str, Callable[..., Any]] = {}
        self._before: dict[str, bytes] | None = None
        self._copying = False

    def __enter__(self) -> CrashStates:
        for name in _CALLS:
            self._originals[name] = getattr(os, name)
            setattr(os, name, self._hook(name))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for name, original in self._originals.items():
            setattr(os, name, original)
        self._copy("the end")

    def _hook(self, name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            if self._copying:
                return original(*arguments, **keywords)
            self._copy(f"{name} {arguments[0]!r}")
            if name in _WRITES:
                self._write_half(name, arguments)
            return original(*arguments, **keywords)

        return call

    def _write_half(self, name: str, arguments: tuple[Any, ...]) -> None:
        path, data = Path(f"/proc/self/fd/{arguments[0]}").readlink(), arguments[1]
        position = arguments[2] if name == "pwrite" else os.lseek(arguments[0], 0, os.SEEK_CUR)
        state = self._copy(f"half of a {name}", always=True)
        if self.folder in path.parents:
            with (state / path.relative_to(self.folder)).open("r+b") as file:
                file.seek(position)
                file.write(memoryview(data).cast("B")[: len(data) // 2])

    def _copy(self, call: str, *, always: bool = False) -> Path:
        self._copying = True
        try:
            now = {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(self.folder.rglob("*"))}
            if now != self._before or always:
                self._before = None if always else now
                self.folders.append(self.into / str(len(self.folders)) / self.folder.name)
                self.calls.append(call)
                shutil.copytree(self.folder, self.folders[-1])
            return self.folders[-1]
        finally:
            self._copying = False
