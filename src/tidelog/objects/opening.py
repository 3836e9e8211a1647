"""Opens addresses as folders for readers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path
from typing import cast

from tidelog.errors import DataDirNotFoundError, InvalidArgumentError
from tidelog.folder_list import Folders, are_several, each_address, list_folders
from tidelog.folder_path import folder_path
from tidelog.formats.paths.file_path import FilePath
from tidelog.objects.address import ObjectAddress, addresses_in, are_several_objects, is_object_address
from tidelog.objects.object_path import ObjectPath, object_folder


def folder_at(address: str | os.PathLike[str] | FilePath) -> FilePath:
    """Return the path of the folder that an address names, local or in object storage. The folder need not exist.

    Raises InvalidArgumentError if the address is malformed, has an unknown scheme, or names several folders.
    """
    if hasattr(address, "iterdir") and not isinstance(address, Path):
        return cast("FilePath", address)
    if is_object_address(address):
        return object_folder(address)
    if isinstance(address, str) and (are_several_objects(address) or are_several(address)):
        raise InvalidArgumentError("several folders are given where only one is allowed", found=str(address))
    return local_folder(address)


def local_folder(address: str | os.PathLike[str]) -> FilePath:
    """Return the path of a local folder. Raises InvalidArgumentError for an unknown scheme."""
    return folder_path(address)


def folders_at(address: Folders) -> list[FilePath]:
    """Return the folders that an address, or a list of addresses, names, without duplicates. Raises what `folder_at` and
    `list_folders` raise.
    """
    if not isinstance(address, str | os.PathLike):
        return list(dict.fromkeys(folder for one in each_address(address) for folder in folders_at(one)))
    if hasattr(address, "iterdir") and not isinstance(address, Path):
        return [folder_at(address)]
    if are_several_objects(address):
        return folders_at(addresses_in(address))
    return list(_matching(address)) if is_object_address(address) else list(list_folders(address))


def _matching(address: str | os.PathLike[str]) -> Iterator[FilePath]:
    """Yield the folders that an address in object storage names. The last part of the address may be a pattern. The folders share
    one listing.
    """
    folder = object_folder(address)
    if set("*?") & set(folder.parent.key):
        raise InvalidArgumentError("only the last part of an address may be a pattern", found=str(folder))
    if not has_magic(folder.name):
        yield folder
        return
    place = folder.source.place
    parent = object_folder(ObjectAddress(str(place._replace(prefix=folder.parent.key)), folder.source.options))
    found: list[ObjectPath] = []
    with suppress(FileNotFoundError):
        found = sorted(one for one in parent.iterdir() if fnmatchcase(one.name, folder.name) and one.is_dir())
    if not found:
        raise DataDirNotFoundError("no folder matches the pattern", path=folder)
    yield from found


def address_of(*folders: FilePath) -> str:
    """Return an address with which another process can open these folders. For object storage it carries the options."""
    text = os.pathsep.join(map(str, folders))
    options = [one.source.options for one in folders if isinstance(one, ObjectPath)]
    if not options:
        return text
    are_equal = all(one == options[0] for one in options)
    parts = () if are_equal else tuple(one.address if isinstance(one, ObjectPath) else str(one) for one in folders)
    return ObjectAddress(text, options[0], parts)


def absolute_address(address: Folders) -> str:
    """Return an address of the same folders for a process with a different working directory. Raises what `folders_at` raises."""
    return address_of(*(folder.absolute() for folder in folders_at(address)))


def log_sizes(folder: FilePath) -> dict[str, int]:
    """Return the listed sizes of the logs below a folder in object storage, by address. For a local folder the result is
    empty.
    """
    if not isinstance(folder, ObjectPath):
        return {}
    return {f"{folder.source}/{key}": size for key, size in folder.source.listing(folder.key).log_sizes().items()}


def refresh(folder: FilePath) -> None:
    """Drop the listing of a folder in object storage, so that the folder is listed again."""
    if isinstance(folder, ObjectPath):
        folder.refresh()
