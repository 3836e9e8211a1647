"""Tidelog's own small files, for facts that Kafka does not store: one JSON object with a version, replaced as a whole.

::

    {"version": 1, ...}
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidelog.errors import CorruptCheckpointError, StorageError
from tidelog.formats.checkpoints import replace_file, sync_directory
from tidelog.formats.files import read_whole
from tidelog.formats.paths.file_path import FilePath


def read_json(path: FilePath, version: int, what: str) -> dict[str, Any] | None:
    """Return the object in a file, None if there is no file. `what` names the file in errors.

    Raises CorruptCheckpointError if the content is not an object of that version, StorageError.
    """
    content = read_object(path, what)
    if content is not None and content.get("version") != version:
        found = repr(content["version"]) if "version" in content else "none"
        raise CorruptCheckpointError(f"{what} has an unknown version", path=path, found=found, expected=version)
    return content


def read_object(path: FilePath, what: str) -> dict[str, Any] | None:
    """Return the object in a file of any version, None if there is no file. Raises CorruptCheckpointError if the content is not
    an object, StorageError.
    """
    try:
        content = json.loads(read_whole(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read {what}: {error.strerror or error}", path=path) from error
    except (ValueError, RecursionError) as error:  # RecursionError: a thousand nested brackets.
        raise CorruptCheckpointError(f"{what} is not JSON: {error}", path=path) from None
    if not isinstance(content, dict):
        raise CorruptCheckpointError(f"{what} is not a JSON object", path=path, found=type(content).__name__)
    return content


def write_json(path: Path, version: int, content: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Replace the file. Raises StorageError."""
    replace_file(path, _encoded(version, content, indent))


def write_new_json(path: Path, version: int, content: Mapping[str, Any], *, indent: int | None = 2) -> bool:
    """Create a file atomically. If it already exists, leave it unchanged and return False.

    Exactly one of several concurrent writers gets True. Raises StorageError.
    """
    # Each writer uses its own name, so that none removes another's unfinished file.
    temporary = Path(f"{path}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(_encoded(version, content, indent))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            if not path.exists():
                raise  # A dangling symbolic link.
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if path.exists():
                return False
            temporary.replace(path)  # A file system without hard links: atomic and exclusive creation is impossible.
        sync_directory(path.parent)
    except OSError as error:
        raise StorageError(f"cannot write a file: {error.strerror or error}", path=path) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return True


_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def _encoded(version: int, content: Mapping[str, Any], indent: int | None) -> bytes:
    text = json.dumps({"version": version, **content}, indent=indent, ensure_ascii=False)
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # A path that is not UTF-8 contains lone surrogates in Python, which JSON can write in ASCII.
        return f"{json.dumps({'version': version, **content}, indent=indent)}\n".encode()


def make_folder(path: Path) -> None:
    """Create the folder `path` if it does not exist. Raises StorageError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create a folder: {error.strerror or error}", path=path) from error


@contextlib.contextmanager
def understanding(path: FilePath, what: str) -> Iterator[None]:
    """A context for parsing an object: it turns the parser's errors into CorruptCheckpointError. `what` names the file."""
    try:
        yield
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:  # OverflowError: Infinity for a number.
        raise CorruptCheckpointError(f"{what} has unexpected content: {error!r}", path=path) from error
