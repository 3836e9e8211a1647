"""Lets the source log a notice once per application, although Spark starts a Python process for each plan."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDERS = "SPARK_LOCAL_DIRS"
"""The environment variable in which Spark lists folders that it removes when the application ends."""


def is_first(what: str) -> bool:
    """Return whether this is the first call with `what` in this application on this machine; True if that is unknown. `what`
    becomes part of a file's name.
    """
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
