"""Opens addresses: as folders for readers, and their buckets."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import cast

from tidelog.folder_list import Folders, list_folders
from tidelog.folder_path import folder_path
from tidelog.formats.paths.file_path import FilePath
from tidelog.objects.address import Place, is_object_address
from tidelog.objects.listing import ObjectStore
from tidelog.objects.object_path import ObjectPath, object_folder


def folder_at(address: str | os.PathLike[str] | FilePath) -> FilePath:
    """Return the folder that an address names, local or in object storage; it need not exist.

    Raises InvalidArgumentError for a mangled address and an unknown scheme.
    """
    if hasattr(address, "iterdir") and not isinstance(address, Path):
        return cast("FilePath", address)
    return object_folder(address) if is_object_address(address) else local_folder(address)


def local_folder(address: str | os.PathLike[str]) -> FilePath:
    """Return the path of a local folder. Raises InvalidArgumentError for an unknown scheme."""
    return folder_path(address)


def folders_at(address: Folders) -> list[FilePath]:
    """Return the folders that an address, or a list of them, names, without duplicates. Raises as `folder_at` and
    `list_folders`.
    """
    if not isinstance(address, str | os.PathLike):
        return list(dict.fromkeys(folder for one in address for folder in folders_at(one)))
    if is_object_address(address) or (hasattr(address, "iterdir") and not isinstance(address, Path)):
        return [folder_at(address)]
    return list(list_folders(address))


def address_of(folder: FilePath) -> str:
    """Return the text by which another process can open a folder. For object storage it carries the options."""
    return folder.address if isinstance(folder, ObjectPath) else str(folder)


def refresh(folder: FilePath) -> None:
    """Forget what was listed of a folder in object storage, so that it is listed again."""
    if isinstance(folder, ObjectPath):
        folder.refresh()


@lru_cache(maxsize=32)
def open_store(place: Place, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    """Return a bucket's requests, shared by all sources with the same options. Raises InvalidArgumentError, AuthenticationError,
    MissingPackageError.
    """
    if place.service == "hdfs":
        from tidelog.objects.arrow_store import ArrowStore, open_hdfs

        return ArrowStore(open_hdfs(place, dict(options)), str(place._replace(prefix="")))
    from tidelog.objects.object_store import open_object_store

    return open_object_store(place, dict(options))
