"""A disk that can be full at will: a tmpfs, made as small as what lies in it.

Mounts need a name space of their own: `within_name_space` starts the present program in one, once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOM = "8g"
"""A bound; memory is taken by what is written."""

INSIDE = "TIDELOG_OWN_MOUNTS"


def can_mount() -> bool:
    """Return whether a process of ours may have mounts of its own."""
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, "-rm", "true"], capture_output=True, check=False).returncode == 0


def is_inside() -> bool:
    """Return whether this process has mounts of its own."""
    return INSIDE in os.environ


def within_name_space(arguments: list[str]) -> None:
    """Go on as the same Python with these arguments, where mounts are nobody else's; where that cannot be, return."""
    if not is_inside() and can_mount():
        os.environ[INSIDE] = "1"
        sys.stdout.flush()
        os.execvp("unshare", ["unshare", "-rm", sys.executable, *arguments])


class SmallDisk:
    """A tmpfs at `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)], check=True)

    def fill(self) -> None:
        """Leave no room."""
        for pages in range(1, 200):
            room = os.statvfs(self.folder)
            used = (room.f_blocks - room.f_bfree + pages // 4) * room.f_frsize
            if self._resize(str(used)):
                return
        raise RuntimeError(f"{self.folder} cannot be made smaller")

    def empty(self) -> None:
        """Let there be room again."""
        if not self._resize(ROOM):
            raise RuntimeError(f"{self.folder} cannot be made larger")

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=False)

    def _resize(self, size: str) -> bool:
        command = ["mount", "-o", f"remount,size={size}", str(self.folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
