"""Names of modules in docstrings and comments: what they call `room.module` exists, under that name.

Renames leave such names behind, and a reader who follows one finds nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src" / "tidelog"
ROOMS = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
OTHERS = {"metadata.version", "client.rack", "client.properties", "security.protocol"}
"""Kafka's properties, and a file, whose first word is also the name of a room."""

DOTTED = re.compile(r"`(?:tidelog\.)?([a-z_]+(?:\.\w+)+)`")
FOLDER = re.compile(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`")


def exists(name: str, bases: list[Path]) -> bool:
    """Whether a dotted name is that of a module, or of something in one, seen from any of the folders."""
    return any(_is_in(base, name.split(".")) for base in bases)


def _is_in(folder: Path, parts: list[str]) -> bool:
    for place, part in enumerate(parts):
        if (folder / part).is_dir():
            folder /= part
            continue
        module = next((path for path in (folder / f"{part}.py", folder / f"{part}.pyx") if path.exists()), None)
        rest = parts[place + 1 :] if module else parts[place:]
        text = (module or folder / "__init__.py").read_text(encoding="utf-8")
        return not rest or re.search(rf"\b{rest[0]}\b", text) is not None
    return True


def test_modules_that_the_code_speaks_of_exist() -> None:
    missing: list[str] = []
    for path in sorted([*ROOT.rglob("*.py"), *ROOT.rglob("*.pyx")]):
        bases = [ROOT, *(parent for parent in path.parents if ROOT in parent.parents)]
        text = path.read_text(encoding="utf-8")
        names = {name for name in DOTTED.findall(text) if name.split(".")[0] in ROOMS} - OTHERS
        missing += [f"{path.name}: {name}" for name in names if not exists(name, bases)]
        folders = set(FOLDER.findall(text))
        missing += [
            f"{path.name}: {name}" for name in folders if not any((base / name).exists() for base in (ROOT.parents[1], *bases))
        ]
    assert missing == []
    assert not exists("storage.recovery", [ROOT]), "what it is about"
