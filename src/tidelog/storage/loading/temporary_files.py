"""Clears the files of an interrupted run from a partition's folder before the log is loaded (spec §6.2, §6.7).

| name | left by | becomes |
|---|---|---|
| ``….deleted`` | a delayed deletion | removed |
| ``….cleaned`` | an unfinished compaction or split | removed: the old segments still exist |
| ``….swap`` at or above the smallest ``.cleaned`` | the same, on its way from ``.cleaned`` to ``.swap`` | removed |
| ``….swap`` | a finished compaction or split | renamed into place, after the replaced segments' files are removed |
| ``….index.tmp`` and the like | an index that was being built | removed |
| an index without its ``.log`` | an interrupted deletion or replacement | removed |

The ``.log.swap`` files replace every segment whose base offset is in [smallest base, largest next offset).

Each step may be interrupted as well, and the next start must reach the same result. So the folder is synced between two steps if
the second makes the first irrevocable. And a segment's ``.log.swap`` is renamed before its indexes, because a renamed index
beside a ``.log.swap`` would look like an index of the replaced segment.

This is the first step of `loader`. It looks only at names. If there are no temporary files, the folder is listed once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import sync_directory

logger = logging.getLogger("tidelog.storage")

_LOG_SWAP_SUFFIX = names.LOG_SUFFIX + names.SWAP_SUFFIX
_RAFT_SNAPSHOT_SUFFIX = ".checkpoint" + names.DELETED_SUFFIX
"""The suffix of deleted snapshots of Kafka's metadata log. Kafka removes these files itself."""

INDEX_SUFFIXES = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX, names.TIME_MAP_SUFFIX)
"""Suffixes of files that are worthless without their ``.log``."""

_TEMPORARY_SUFFIXES = tuple(f"{suffix}.tmp" for suffix in INDEX_SUFFIXES)
_SUFFIXES = (names.DELETED_SUFFIX, names.CLEANED_SUFFIX, names.SWAP_SUFFIX, *_TEMPORARY_SUFFIXES)


def clear_temporary_files(directory: Path, next_offset_of_swap: Callable[[int], int]) -> set[str]:
    """Remove or rename all ``.deleted``, ``.cleaned`` and ``.swap`` files. Return the names of the remaining files.

    `next_offset_of_swap(base)` returns the end offset of a ``.log.swap``. It is called only if there is such a file. Raises
    StorageError, and InvalidArgumentError for a ``.cleaned`` or ``.swap`` without an offset in its name.
    """
    found = list_files(directory)
    left = [name for name in found if name.endswith(_SUFFIXES) and not name.endswith(_RAFT_SNAPSHOT_SUFFIX)]
    if not left:
        return found
    deleted = [name for name in left if name.endswith((names.DELETED_SUFFIX, *_TEMPORARY_SUFFIXES))]
    cleaned = {name: _offset(name, directory) for name in left if name.endswith(names.CLEANED_SUFFIX)}
    swaps = {name: _offset(name, directory) for name in left if name.endswith(names.SWAP_SUFFIX)}
    if cleaned:
        invalid = {name: offset for name, offset in swaps.items() if offset >= min(cleaned.values())}
        logger.warning("%s: a replacement of segments was interrupted; keeping the old segments", directory)
        _remove(directory, invalid)
        _sync(directory)  # Without the last .cleaned, the remaining .swap files would look finished.
        _remove(directory, cleaned)
        swaps = {name: offset for name, offset in swaps.items() if name not in invalid}
    _remove(directory, deleted)
    if swaps:
        _put_into_place(directory, swaps, next_offset_of_swap)
    _sync(directory)
    return list_files(directory)


def remove_orphan_indexes(directory: Path, found: set[str]) -> set[str]:
    """Remove the index files whose ``.log`` is not among the names `found`. Return the names of the remaining files. Raises
    StorageError.
    """
    logs = {name.removesuffix(names.LOG_SUFFIX) for name in found if name.endswith(names.LOG_SUFFIX)}
    orphans = {
        name
        for name in found
        if name.rpartition(".")[0] not in logs and name.endswith(INDEX_SUFFIXES) and _offset_or_none(name) is not None
    }
    if not orphans:
        return found
    logger.warning(
        "%s: removing %d index files whose .log does not exist: %s", directory, len(orphans), ", ".join(sorted(orphans))
    )
    _remove(directory, orphans)
    return found - orphans


def list_files(directory: Path) -> set[str]:
    """Return the names of the regular files in a partition's folder.

    Raises StorageError, also for a log that this user is not allowed to read or that is a dangling link; CorruptDataError for a
    ``.log`` whose name is not a segment's, unless the folder is being deleted.
    """
    found = set()
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_file():
                    found.add(entry.name)
                elif entry.name.endswith(names.LOG_SUFFIX) and entry.is_symlink():
                    raise StorageError("the target of a segment's symbolic link does not exist", path=directory / entry.name)
        is_going = directory.name.endswith(names.DELETE_DIR_SUFFIX)
        for name in found:
            if name.endswith(names.LOG_SUFFIX):
                if not os.access(f"{directory}/{name}", os.R_OK):
                    raise StorageError("this user is not allowed to read the log", path=directory / name)
                if not (is_going or names.is_padded(name)):
                    names.base_offset_of_log(directory / name)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"cannot list a folder: {error.strerror}", path=directory) from error
    return found


def _put_into_place(directory: Path, swaps: dict[str, int], next_offset_of_swap: Callable[[int], int]) -> None:
    """Remove the segments that finished ``.swap`` segments replace, then rename the ``.swap`` segments into place."""
    bases = sorted(offset for name, offset in swaps.items() if name.endswith(_LOG_SWAP_SUFFIX))
    if bases:
        end_offset = max(bases[-1] + 1, *(next_offset_of_swap(base) for base in bases))
        logger.warning(
            "%s: completing an interrupted replacement of the segments with offsets %d to %d", directory, bases[0], end_offset - 1
        )
        covered = [name for name in list_files(directory) if _is_covered(name, bases[0], end_offset)]
        _remove(directory, covered)
        _sync(directory)  # Once a .log.swap is renamed, it no longer shows which segments it replaces.
    for name in sorted(swaps, key=lambda name: (swaps[name], not name.endswith(_LOG_SWAP_SUFFIX), name)):
        source = directory / name
        try:
            source.replace(directory / name.removesuffix(names.SWAP_SUFFIX))
        except OSError as error:
            raise StorageError(f"cannot rename a file: {error.strerror}", path=source) from error


def _remove(directory: Path, found: Iterable[str]) -> None:
    for name in sorted(found):
        path = directory / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"cannot remove a file: {error.strerror}", path=path) from error


def _sync(directory: Path) -> None:
    try:
        sync_directory(directory)
    except OSError as error:
        raise StorageError(f"cannot sync a folder: {error.strerror}", path=directory) from error


def _is_covered(name: str, start_offset: int, end_offset: int) -> bool:
    offset = None if name.endswith(names.SWAP_SUFFIX) else _offset_or_none(name)
    return offset is not None and start_offset <= offset < end_offset


def _offset_or_none(name: str) -> int | None:
    try:
        return names.offset_from_file_name(name)
    except InvalidArgumentError:
        return None


def _offset(name: str, directory: Path) -> int:
    try:
        return names.offset_from_file_name(name)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(error.message, path=directory / name, found=error.found, expected=error.expected) from None
