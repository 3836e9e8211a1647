"""Where a benchmark's files are: in a folder of its process, because runs of the same benchmark may overlap."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

OUT = Path(__file__).parents[1] / "out"


def scratch(name: str) -> Path:
    """Return this process's folder for a benchmark's files, not yet created. What runs that were killed have left is removed."""
    for left in OUT.glob(f"{name}-*"):
        number = left.name.removeprefix(f"{name}-")
        if number.isdecimal() and not _is_running(int(number)):
            shutil.rmtree(left, ignore_errors=True)
    return OUT / f"{name}-{os.getpid()}"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
