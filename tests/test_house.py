"""The house's measures: one concept a file, a room of few files, and names that say what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tidelog"
PLACES = (ROOT / "src", ROOT / "studies", ROOT / "bench", ROOT / "demo")

MAX_LINES = 450
MAX_FILES = 20

LONG_FILES: dict[str, str] = {}
"""Files that may be longer for now, and why. The list only shrinks."""

WIDE_FOLDERS: dict[str, str] = {
    "src/tidelog/wire/messages": "a file an API, as Kafka has them",
    "src/tidelog/broker/apis": "a file an API, as Kafka has them",
}


def files() -> list[Path]:
    """Every file of Python or Cython that somebody wrote; what Cython makes of them is no `.py`."""
    found = [path for place in PLACES for suffix in ("*.py", "*.pyx", "*.pxd", "*.pyi") for path in place.rglob(suffix)]
    return sorted(path for path in found if "__pycache__" not in path.parts)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_file_is_long() -> None:
    lines = {name_of(path): path.read_text(encoding="utf-8").count("\n") for path in files()}
    assert len(lines) > 600, "the files were found"
    long = {name: count for name, count in lines.items() if count > MAX_LINES}
    assert {name: count for name, count in long.items() if name not in LONG_FILES} == {}
    assert sorted(name for name in LONG_FILES if name not in long) == [], "exceptions that nothing needs any more"


def test_no_folder_is_wide() -> None:
    wide: dict[str, int] = {}
    for folder in {path.parent for path in files()}:
        count = sum(path.suffix in (".py", ".pyx") for path in folder.iterdir())
        if count > MAX_FILES:
            wide[name_of(folder)] = count
    assert {name: count for name, count in wide.items() if name not in WIDE_FOLDERS} == {}
    assert sorted(name for name in WIDE_FOLDERS if name not in wide) == [], "exceptions that nothing needs any more"


@pytest.mark.parametrize("room", sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()))
def test_each_room_says_what_it_owns(room: str) -> None:
    for path in (SOURCE / room).rglob("__init__.py"):
        assert path.read_text(encoding="utf-8").startswith('"""'), name_of(path)
