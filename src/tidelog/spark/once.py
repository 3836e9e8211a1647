"""Notices of the source once per application, although Spark starts a Python process for each plan."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDERS = "SPARK_LOCAL_DIRS"
"""Set by Spark: folders that are removed with the application."""


def is_first(what: str) -> bool:
    """Whether this is the first call with `what` (a file's name) in this application on this machine; True if that is unknown."""
    folder = os.environ.get(_FOLDERS, "").split(",")[0]
    if not folder:
        return True
    try:
        os.close(os.open(Path(folder) / f"tidelog-said-{what}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    except OSError:
        pass
    return True
