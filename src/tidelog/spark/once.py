"""What the source has to say once an application, from Pythons that Spark starts for each plan."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDERS = "SPARK_LOCAL_DIRS"
"""What Spark sets in them: folders that go with the application."""


def is_first(what: str) -> bool:
    """Whether nobody in this application has asked for `what` (a file's name) on this machine; True where that is not known."""
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
