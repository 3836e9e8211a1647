"""Opens the address of a folder to read: a data folder, locally or in a bucket, or a point of a backup.

| address | is |
|---|---|
| the folder or bucket of a backup | its newest point |
| ``backup:ADDRESS`` | the same, without listing a bucket's objects; an error if it is not a backup |
| ``backup:ADDRESS#12`` | its point 12 |
| any other | opened by `objects.opening` |
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from tidelog.backup.layout import HEAD, SCHEME
from tidelog.errors import InvalidArgumentError
from tidelog.folder_list import Folders, each_address
from tidelog.formats.paths.file_path import FilePath
from tidelog.objects import opening
from tidelog.objects.address import ObjectAddress, is_in_storage, options_of
from tidelog.objects.object_path import ObjectPath
from tidelog.objects.tier import is_tiered

if TYPE_CHECKING:
    from tidelog.backup.backup_path import PointFolder
    from tidelog.backup.target import Target

_POINT = re.compile(r"backup:(.*?)(?:#(\d+))?", re.DOTALL)


def is_point(address: object) -> TypeGuard[str]:
    """Return whether an address has the form ``backup:ADDRESS`` or ``backup:ADDRESS#N``."""
    return isinstance(address, str) and address.startswith(SCHEME)


def point_address(address: str, sequence: int | None) -> str:
    """Return the address of a backup's point number `sequence`, or of its newest point if `sequence` is None. The options in the
    backup's address are kept.
    """
    text = f"{SCHEME}{address}" + ("" if sequence is None else f"#{sequence}")
    return ObjectAddress(text, options_of(address)) if options_of(address) else text


def parse_address(address: str) -> tuple[str, int | None]:
    """Parse a point's address. Return the address of its backup, and the point's sequence or None for the newest point. Raises
    InvalidArgumentError.
    """
    match = _POINT.fullmatch(address)
    if match is None or not match[1]:
        raise InvalidArgumentError("not the address of a backup's point", found=address, expected=f"{SCHEME}ADDRESS[#POINT]")
    place = match[1]
    options = options_of(address)
    return (ObjectAddress(place, options) if options else place), None if match[2] is None else int(match[2])


def in_storage(address: str) -> str | None:
    """Return the backup's address if the backup is in object storage, otherwise None."""
    place = parse_address(address)[0]
    return place if is_in_storage(place) else None


def settled(address: str, absolute: Callable[[str], str]) -> str:
    """Return the point's address with an absolute path, for a process with a different working directory."""
    place, sequence = parse_address(address)
    return point_address(place if is_in_storage(place) else absolute(place), sequence)


def folder_at(address: str | os.PathLike[str] | FilePath) -> FilePath:
    """Open the folder, or the point of a backup, that an address names.

    Raises the errors of `objects.opening.folder_at`, NotFoundError if there is no such backup or point, CorruptDataError if it
    is damaged.
    """
    if is_point(address):
        from tidelog.backup.backup import open_backup

        place, sequence = parse_address(address)
        return _path(open_backup(place).target, sequence)
    return _point_in(opening.folder_at(address))


def folders_at(address: Folders) -> list[FilePath]:
    """Open the folders that an address, or a list of addresses, names. Raises the errors of `objects.opening.folders_at` and
    `folder_at`.
    """
    if is_point(address):
        return [folder_at(address)]
    if not isinstance(address, str | os.PathLike):
        return list(dict.fromkeys(folder for one in each_address(address) for folder in folders_at(one)))
    return list(map(_point_in, opening.folders_at(address)))


def address_of(*folders: FilePath) -> str:
    """Return an address with which another process can open these folders. For object storage it carries the options."""
    point = _point_of(folders[0]) if len(folders) == 1 else None
    return opening.address_of(*folders) if point is None else point.address


def absolute_address(address: Folders) -> str:
    """Return an address of the same folders for a process with a different working directory. Raises the errors of
    `folders_at`.
    """
    return address_of(*(folder.absolute() for folder in folders_at(address)))


def point_after(address: str, time_ms: int) -> str:
    """Return the address of a backup's first point that was taken at or after a time, or of its newest point if all are older. An
    address of anything else is returned unchanged.
    """
    folders = [] if is_tiered(address) else folders_at(address)
    point = _point_of(folders[0]) if len(folders) == 1 else None
    if point is None:
        return address
    later = [one for one in point.backup.points_since(time_ms) if one.time_ms >= time_ms]
    return point_address(point.target.address, later[0].sequence if later else None)


def refresh(folder: FilePath) -> None:
    """Drop cached facts about a folder in object storage, and move to a backup's newest point."""
    point = _point_of(folder)
    if point is None:
        opening.refresh(folder)
    else:
        point.refresh()


def _point_of(folder: FilePath) -> PointFolder | None:
    """Return the backup's point that contains a path, or None if none does."""
    if isinstance(folder, Path | ObjectPath):
        return None
    from tidelog.backup.backup_path import BackupPath

    return folder.folder if isinstance(folder, BackupPath) else None


def _point_in(folder: FilePath) -> FilePath:
    """Return the newest point if a folder is a backup, otherwise the folder itself."""
    # This lists the bucket's objects, of which a backup has many. An address with `backup:` avoids the listing.
    if not isinstance(folder, Path | ObjectPath) or not _has_head(folder):
        return folder
    from tidelog.backup.target import open_target

    return _path(open_target(folder.address if isinstance(folder, ObjectPath) else folder), None)


def _has_head(folder: Path | ObjectPath) -> bool:
    try:
        return (folder / HEAD).is_file()
    except PermissionError:
        return False  # The error is reported when the folder is listed.


def _path(target: Target, sequence: int | None) -> FilePath:
    from tidelog.backup.backup_path import BackupPath, PointFolder

    return BackupPath(PointFolder(target, sequence))
