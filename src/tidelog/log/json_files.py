"""Small files of our own, for what Kafka has no file for: one JSON object with its version, replaced as a whole.

::

    {"version": 1, ...}
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidelog.errors import CorruptCheckpointError, StorageError
from tidelog.log.checkpoints import replace_file
from tidelog.log.files import read_whole


def read_json(path: Path, version: int, what: str) -> dict[str, Any] | None:
    """Return the object in a file, None where there is no file; `what` is how errors call it.

    Raises CorruptCheckpointError for anything but an object of that version, StorageError.
    """
    try:
        content = json.loads(read_whole(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read {what}: {error.strerror or error}", path=path) from error
    except ValueError as error:
        raise CorruptCheckpointError(f"{what}: no JSON: {error}", path=path) from None
    if not isinstance(content, dict):
        raise CorruptCheckpointError(f"{what}: no object", path=path, found=type(content).__name__)
    if content.get("version") != version:
        found = repr(content["version"]) if "version" in content else "none"
        raise CorruptCheckpointError(f"{what}: its version", path=path, found=found, expected=version)
    return content


def write_json(path: Path, version: int, content: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Replace the file. Raises StorageError."""
    text = json.dumps({"version": version, **content}, indent=indent, ensure_ascii=False)
    replace_file(path, f"{text}\n".encode())


def make_folder(path: Path) -> None:
    """Make a folder for such files, if it is not there. Raises StorageError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make a folder: {error.strerror or error}", path=path) from error


@contextlib.contextmanager
def understanding(path: Path, what: str) -> Iterator[None]:
    """While an object is taken apart: raise CorruptCheckpointError where it is not as it should be."""
    try:
        yield
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CorruptCheckpointError(f"{what}: not what belongs there: {error!r}", path=path) from error
