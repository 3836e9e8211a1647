"""The folders for this user's files, by the XDG Base Directory Specification: `$XDG_CACHE_HOME/tidelog` for files that can be
re-created (default: ~/.cache), `$XDG_STATE_HOME/tidelog` for state that commands keep between runs (default: ~/.local/state).

A variable with a relative path is ignored, as the specification says.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder for caches; it need not exist. `environment` replaces `os.environ`."""
    return _folder("XDG_CACHE_HOME", ".cache", os.environ if environment is None else environment)


def state_folder() -> Path:
    """Return the folder for state that commands keep between runs; it need not exist."""
    return _folder("XDG_STATE_HOME", ".local/state", os.environ)


def _folder(variable: str, default: str, environment: Mapping[str, str]) -> Path:
    base = environment.get(variable, "")
    # Not `Path.home()`, which fails for a user without an entry in the system's user database.
    home = environment.get("HOME") or os.path.expanduser("~")  # noqa: PTH111
    return (Path(base) if os.path.isabs(base) else Path(home, default)) / "tidelog"  # noqa: PTH117
