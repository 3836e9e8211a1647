"""Where the folders of a test are read: where they were written, or elsewhere, so that one test judges all kinds of addresses."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint

_elsewhere: list[Callable[[Path], Any]] = []


def placed(folder: Path) -> Any:
    """Return the address at which a data folder, complete by now, is to be read: the folder itself unless `in_place` is open."""
    return _elsewhere[-1](folder) if _elsewhere else folder


@contextmanager
def in_place(place: Callable[[Path], Any]) -> Iterator[None]:
    """Let `placed` return what `place` makes of a folder."""
    _elsewhere.append(place)
    try:
        yield
    finally:
        _elsewhere.pop()


def spread(folder: Path, disks: list[Path]) -> list[Path]:
    """Copy a data folder as a broker with several disks would have it: partitions in turn, each disk with its own checkpoints."""
    of = {}
    for disk in disks:
        disk.mkdir(parents=True)
    for number, partition in enumerate(sorted(path for path in folder.iterdir() if path.is_dir())):
        of[partition.name] = number % len(disks)
        shutil.copytree(partition, disks[number % len(disks)] / partition.name)
    for checkpoint in folder.glob("*-offset-checkpoint"):
        offsets = read_offset_checkpoint(checkpoint)
        for number, disk in enumerate(disks):
            mine = {key: offset for key, offset in offsets.items() if of.get(names.log_dir_name(*key), 0) == number}
            write_offset_checkpoint(disk / checkpoint.name, mine)
    return disks
