"""The output files of processes that the tests start. The report of a failed test shows the ends of those that were written to
while it ran (`tests/interop/conftest.py`).
"""

from __future__ import annotations

from pathlib import Path

LINES = 60
_BYTES = 1 << 16

_files: dict[Path, None] = {}
"""In the order in which they were first used."""


def note(path: Path) -> None:
    """Remember the output file of a process."""
    _files[path] = None


def ends_since(time_s: float) -> list[tuple[Path, str]]:
    """Return the files that were written to since that time (seconds since the epoch), each with its last `LINES` lines."""
    found = []
    for path in _files:
        try:
            if path.stat().st_mtime >= time_s:
                found.append((path, "\n".join(_tail(path).splitlines()[-LINES:])))
        except OSError:
            continue  # The test has removed it.
    return found


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _BYTES, 0))
        return file.read().decode(errors="replace")
