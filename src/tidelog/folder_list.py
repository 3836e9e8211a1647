"""Converts an address to one or more data folders.

| address | folders |
|---|---|
| `/backup/kafka`, `file:///backup/kafka` | that folder: see `folder_path` |
| `/d1:/d2`, `/d1,/d2` | both; if a folder with the whole name exists, only that folder |
| a folder of `tidelog serve --processes` | the folder, and its `process1`, `process2`, … |
| `/backup/broker-*` | the folders that match, sorted by name |
| `server.properties` | the broker's `log.dirs`, or `log.dir` if that is not set |
| a list of such addresses | the folders of all addresses, in order |
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from tidelog.errors import DataDirNotFoundError, InvalidArgumentError
from tidelog.folder_path import SCHEME, folder_path

Folders: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

_PROPERTIES = ".properties"
_LOG_DIRS = ("log.dirs", "log.dir")


def are_several(address: object) -> bool:
    """Return whether an address or a list of addresses may name more than one folder."""
    if isinstance(address, Sequence) and not isinstance(address, str):
        return True
    if not isinstance(address, str | os.PathLike):
        return False
    text = os.fspath(address)
    if Path(text).is_dir():
        return _has_processes(Path(text))
    return _is_properties(text) or (not SCHEME.match(text) and (":" in text or "," in text or glob.has_magic(text)))


def list_folders(address: Folders) -> list[Path]:
    """Return the folders that an address names, without duplicates. Only patterns and properties files are looked up on disk.

    Raises DataDirNotFoundError if no folder matches a pattern, InvalidArgumentError for an unsupported scheme and for a
    properties file without log.dirs, StorageError if such a file cannot be read.
    """
    return list(dict.fromkeys(_folders(address)))


def each_address(addresses: Iterable[Folders]) -> Iterable[Folders]:
    """Return the addresses in a list that a Python caller passed. Raises InvalidArgumentError if it is not a list of
    addresses.
    """
    if not isinstance(addresses, Iterable):
        raise InvalidArgumentError("the address is neither a folder nor host:port", found=repr(addresses))
    return addresses


def _folders(address: Folders) -> Iterator[Path]:
    if not isinstance(address, str | os.PathLike):
        for one in each_address(address):
            yield from _folders(one)
        return
    text = os.fspath(address)
    if not are_several(address):
        yield folder_path(text)
    elif Path(text).is_dir():
        yield Path(text)
        yield from sorted(filter(Path.is_dir, Path(text).glob("process[1-9]*")), key=lambda path: (len(path.name), path.name))
    elif _is_properties(text):
        yield from _of_properties(Path(text))
    elif ":" in text or "," in text:
        for part in re.split("[:,]", text):
            if part.strip():
                yield from _folders(part.strip())
    else:
        found = sorted(path for path in map(Path, glob.glob(text)) if path.is_dir())  # noqa: PTH207 -- the pattern may be absolute
        if not found:
            raise DataDirNotFoundError("no folder matches the pattern", path=text)
        yield from found


def _has_processes(path: Path) -> bool:
    """Whether a data folder contains one data folder for each process (`storage.folder.process_folders`)."""
    with suppress(OSError):  # Listing the folder later reports the error.
        return (path / "process1" / "meta.properties").is_file()
    return False


def _is_properties(text: str) -> bool:
    return text.endswith(_PROPERTIES) and Path(text).is_file()


def _of_properties(path: Path) -> Iterator[Path]:
    from tidelog.properties_file import read_properties_file

    properties = read_properties_file(path)
    text = next((str(properties[name]) for name in _LOG_DIRS if properties.get(name)), None)
    if text is None:
        raise InvalidArgumentError("the properties file names no data folder", path=path, expected="log.dirs=/d1,/d2")
    for part in text.split(","):
        if part.strip():
            yield path.parent / part.strip()
