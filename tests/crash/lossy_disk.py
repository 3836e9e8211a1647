"""A disk that forgets: what a power failure may leave of files that were written but not synced.

While it is in place, `os.fsync` notes what each file holds: that much is durable. `lose_power` copies a folder as it might be
found afterwards. Of each file, whatever differs from its durable content may be there or not, block by block: kept, as it was at
the last sync, or zeros; and the file may be cut anywhere after its durable length. Names are kept: file systems journal renames
and creations in order, and a file without a sync may well be there and empty.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

BLOCK_BYTES = 64


class LossyDisk:
    """Notes syncs from `install` on, for the rest of a test."""

    def __init__(self) -> None:
        self._durable: dict[tuple[int, int], bytes] = {}
        self._held: dict[tuple[int, int], int] = {}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        real_fsync = os.fsync

        def fsync(fd: int) -> None:
            real_fsync(fd)
            stat = os.fstat(fd)
            path = Path(f"/proc/self/fd/{fd}")
            if path.is_file():
                key = stat.st_dev, stat.st_ino
                self._durable[key] = path.read_bytes()
                # As long as it is open, no other file gets its inode.
                if key not in self._held:
                    self._held[key] = os.dup(fd)

        patch.setattr(os, "fsync", fsync)

    def release(self) -> None:
        """Give up what was noted."""
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()
        self._durable.clear()

    def lose_power(self, source: Path, target: Path, rng: random.Random) -> None:
        """Copy `source` to `target` as a power failure might leave it."""
        for path in sorted(source.rglob("*")):
            copy = target / path.relative_to(source)
            if path.is_dir():
                copy.mkdir(parents=True, exist_ok=True)
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            stat = path.stat()
            durable = self._durable.get((stat.st_dev, stat.st_ino), b"")
            copy.write_bytes(_left_over(path.read_bytes(), durable, rng))
            shutil.copystat(path, copy)


def _left_over(current: bytes, durable: bytes, rng: random.Random) -> bytes:
    if current == durable or rng.random() < 0.2:
        return current
    fate = rng.choice(("synced", "cut", "blocks"))
    if fate == "synced":
        return durable
    if fate == "cut":
        return current[: rng.randint(len(durable), len(current))] if current.startswith(durable) else current
    left = bytearray()
    for at in range(0, max(len(current), len(durable)), BLOCK_BYTES):
        new, old = current[at : at + BLOCK_BYTES], durable[at : at + BLOCK_BYTES]
        if new == old:
            left += new
            continue
        # Zeros only where nothing durable was: a block that was on the disk holds the old bytes or the new ones.
        choice = rng.choice((new, old.ljust(len(new), b"\0")))
        left += choice
    return bytes(left)
