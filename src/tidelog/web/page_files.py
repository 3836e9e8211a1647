"""The files of the page, in the package's folder `page`. A path is looked up in the list of these files, so it cannot name any
other file.
"""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parent / "page"

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Content types by suffix. Files with other suffixes are not served."""

INDEX = "index.html"


def page_file(path: str) -> tuple[bytes, str] | None:
    """Return the content and type of the file at a path such as `/js/app.js`, None if there is no such file."""
    wanted = path.removeprefix("/") or INDEX
    for file in PAGE.rglob("*"):
        if file.relative_to(PAGE).as_posix() == wanted and file.suffix in TYPES and file.is_file():
            return file.read_bytes(), TYPES[file.suffix]
    return None
