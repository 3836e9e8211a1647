"""Is a compiled kernel the one that its source says? Otherwise answers come from code that nobody sees.

A compiled module hides the `.py` beside it. After a change of the source, or a change of branch, the old one would go on
being imported, and the rest of the package would call what is no longer there. So setup.py compiles two checksums into each
kernel: that of its own source, and that of what all kernels share (`.pxd` and `.h` files). As its first act each kernel compares
them with the files that are there. Without a source, and without shared files (a wheel has none), there is nothing to compare,
and a kernel that runs interpreted is its own source.
"""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1]


def shared_files(folder: Path) -> list[Path]:
    """Return the files below a folder of kernels that are compiled into more than one of them, in a fixed order."""
    return sorted(path for kind in ("*.pxd", "*.h") for path in folder.rglob(kind))


@cache
def shared_crc(folder: Path) -> int | None:
    """Return the CRC-32 of all shared files of a folder, None if there are none."""
    crc = 0
    files = shared_files(folder)
    for path in files:
        crc = zlib.crc32(path.read_bytes(), crc)
    return crc if files else None


def check(module: str, file: str) -> None:
    """Do nothing: what runs interpreted is its own source. Compiled kernels call `check_sources` instead (build_stamp.pxd)."""


def check_sources(module: str, compiled_file: str, source_crc: int, shared: int, folder: Path = FOLDER) -> None:
    """Raise ImportError unless a compiled module's source, and the shared files, have the CRC-32s that it was built with."""
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
        f"{module} was compiled from another version of {what}: run `make install` again, "
        "or `python setup.py build_ext --inplace --force` in the project's folder",
        name=module,
        path=compiled_file,
    )
