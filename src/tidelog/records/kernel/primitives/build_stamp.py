"""Checks that a compiled kernel matches its source, so that no outdated code runs.

A compiled module hides the `.py` beside it. After a change of the source or of the branch, the old module would still be
imported, and the rest of the package would call functions that the old module lacks. So setup.py compiles two checksums into each
kernel: one of its own source, and one of the files that all kernels share (`.pxd` and `.h`). On import, each kernel first
compares them with the files on disk. A wheel has neither sources nor shared files, so nothing is compared. An interpreted kernel
needs no check.
"""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1]


def shared_files(folder: Path) -> list[Path]:
    """Return the files below a kernel folder that are compiled into more than one kernel, in a fixed order."""
    return sorted(path for kind in ("*.pxd", "*.h") for path in folder.rglob(kind))


@cache
def shared_crc(folder: Path) -> int | None:
    """Return the CRC-32 of all shared files in a folder, None if there are none."""
    crc = 0
    files = shared_files(folder)
    for path in files:
        crc = zlib.crc32(path.read_bytes(), crc)
    return crc if files else None


def check(module: str, file: str) -> None:
    """Do nothing, because an interpreted kernel needs no check. Compiled kernels call `check_sources` instead
    (build_stamp.pxd).
    """


def check_sources(module: str, compiled_file: str, source_crc: int, shared: int, folder: Path = FOLDER) -> None:
    """Raise ImportError unless a compiled module's source and the shared files have the CRC-32s with which it was built."""
    source = Path(compiled_file).with_name(f"{module.rpartition('.')[2]}.py")
    try:
        found = zlib.crc32(source.read_bytes())
    except OSError:
        found = source_crc
    if found != source_crc:
        what = f"{source}"
    elif shared_crc(folder) not in (shared, None):
        what = f"the .pxd and .h files in {folder}"
    else:
        return
    raise ImportError(
        f"{module} was compiled from a different version of {what}: run `make install` again, "
        "or `python setup.py build_ext --inplace --force` in the project's folder",
        name=module,
        path=compiled_file,
    )
