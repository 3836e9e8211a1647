"""Is a compiled kernel the one that its source says? Otherwise answers come from code that nobody sees.

A compiled module hides the `.py` beside it. After a change of the source, or a change of branch, the old one would go on
being imported, and the rest of the package would call what is no longer there. So setup.py compiles a checksum of the source
into each kernel, and each kernel compares it, as its first act, with the source beside it. Without a source there is nothing
to compare, and a kernel that runs interpreted is its own source.
"""

from __future__ import annotations

import zlib
from pathlib import Path


def check_source(module: str, compiled_file: str, source_crc: int) -> None:
    """Raise ImportError unless the source beside a compiled module has the CRC-32 that the module was built with."""
    source = Path(compiled_file).with_name(f"{module.rpartition('.')[2]}.py")
    try:
        found = zlib.crc32(source.read_bytes())
    except OSError:
        return
    if found != source_crc:
        raise ImportError(
            f"{module} was compiled from another version of {source}: run `make install` again, "
            "or `python setup.py build_ext --inplace --force` in the project's folder",
            name=module,
            path=compiled_file,
        )
