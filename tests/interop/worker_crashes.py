"""Keeps the stack of a worker that a fatal signal ended. On the terminal it would be lost between the other workers' output."""

from __future__ import annotations

import faulthandler
import os
from pathlib import Path

FOLDER = "TIDELOG_INTEROP_CRASHES"
"""The environment variable with the folder for the stacks."""


def keep_stack() -> None:
    """In a worker: write the stacks to a file if a fatal signal arrives. Elsewhere: nothing."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and FOLDER in os.environ:
        faulthandler.enable((Path(os.environ[FOLDER]) / worker).open("wb"))  # It keeps the file open.


def crashes(folder: Path) -> dict[str, str]:
    """Return the signal and the stack of the thread that got it, by worker."""
    found = {}
    for path in sorted(folder.iterdir()):
        signal, *threads = path.read_text(errors="replace").split("\n\n")
        if signal:
            current = [one for one in threads if one.startswith("Current thread")]
            found[path.name] = "\n".join([signal, *(current or threads)])
    return found
