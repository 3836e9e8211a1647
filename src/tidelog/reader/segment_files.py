"""Lists a consistent set of a partition's files while its owner may be renaming them.

The folder is listed until two consecutive listings agree. From then on each segment is identified by its inode
(`formats.files`), so that the files of one listing are read together. The meaning of the names:

=========================  ======================================================================================
``N.log``                  a segment; N has 20 digits, any other name with this ending is an error
``….deleted``              being deleted: not listed (but a segment that was listed before is still found by this name)
``N.log.cleaned``          the cleaner's unfinished work: ignored, and every ``.swap`` at or above it with it
``N.log.swap``             finished work about to be renamed: replaces every segment whose base is in
                           [its base, its next offset), as in Kafka's loader after a crash (spec §6.2)
=========================  ======================================================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError, NotFoundError, SegmentChangedError, StorageError
from tidelog.formats import names
from tidelog.formats.files import FileIdentity
from tidelog.formats.paths.file_path import FilePath, list_names

MAX_LISTINGS = 32
"""The maximum number of listings before giving up on finding two that agree."""

_LOG_SWAP_SUFFIX = names.LOG_SUFFIX + names.SWAP_SUFFIX


class SegmentFile(NamedTuple):
    """A listed ``.log`` or ``.log.swap``."""

    base_offset: int
    path: FilePath
    stat: os.stat_result

    @property
    def identity(self) -> FileIdentity:
        return FileIdentity.of(self.stat)


class Listing(NamedTuple):
    """The files in a partition's folder that readers need."""

    segments: list[SegmentFile]
    snapshots: list[int]
    """Offsets of the producer snapshots, ascending."""


def list_partition(directory: FilePath, next_offset: Callable[[SegmentFile], int]) -> Listing:
    """List a partition's folder. `next_offset` returns the end of a ``.log.swap``; it is called only if there is such a file.

    Raises NotFoundError if the folder does not exist, SegmentChangedError if it keeps changing, StorageError (also for a dangling
    link), CorruptDataError for a ``.log`` whose name is not a segment's.
    """
    previous = None
    for _ in range(MAX_LISTINGS):
        found = _scan(directory)
        # A live segment's size and time change between listings, so compare only names and inodes.
        current = {name: file and file.identity for name, file in found.items()}
        if current == previous:
            return _resolve(found, next_offset)
        previous = current
    raise SegmentChangedError(f"a folder changed during each of {MAX_LISTINGS} listings", path=directory)


def _scan(directory: FilePath) -> dict[str, SegmentFile | None]:
    """Return the relevant names in the folder. Segments map to their state, other files to None."""
    found: dict[str, SegmentFile | None] = {}
    try:
        for name in list_names(directory):
            if name.endswith((names.SNAPSHOT_SUFFIX, names.CLEANED_SUFFIX)):
                found[name] = None
            elif name.endswith((names.LOG_SUFFIX, _LOG_SWAP_SUFFIX)):
                try:
                    found[name] = _listed(directory / name)
                except NotFoundError:
                    if (directory / name).is_symlink():
                        raise StorageError("the link to a segment is dangling", path=directory / name) from None
                    found[name] = None  # Renamed in the meantime: the next listing will differ.
    except StorageError:
        raise  # StorageError is an OSError too, and already names the file.
    except FileNotFoundError:
        raise NotFoundError("no such folder", path=directory) from None
    except NotADirectoryError:
        raise NotFoundError("not a folder", path=directory) from None
    except OSError as error:
        raise StorageError(f"cannot list a folder: {error.strerror}", path=directory) from error
    return found


def segment_file(path: FilePath) -> SegmentFile:
    """Return the state of one ``.log``, given its path. Raises NotFoundError, InvalidArgumentError for a name that is not an
    offset, StorageError.
    """
    return _look_at(path, names.offset_from_file_name(path.name))


def _listed(path: FilePath) -> SegmentFile:
    ending = _LOG_SWAP_SUFFIX if path.name.endswith(_LOG_SWAP_SUFFIX) else names.LOG_SUFFIX
    return _look_at(path, names.base_offset_of_log(path, ending))


def _look_at(path: FilePath, base_offset: int) -> SegmentFile:
    try:
        return SegmentFile(base_offset, path, path.stat())
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError("no such file", path=path) from None
    except OSError as error:
        raise StorageError(f"cannot stat a file: {error.strerror}", path=path) from error


def _resolve(found: dict[str, SegmentFile | None], next_offset: Callable[[SegmentFile], int]) -> Listing:
    plain = {file.base_offset: file for name, file in found.items() if file and name.endswith(names.LOG_SUFFIX)}
    swaps = [file for name, file in found.items() if file and name.endswith(_LOG_SWAP_SUFFIX)]
    cleaned = [offset for name in found if name.endswith(names.CLEANED_SUFFIX) and (offset := _offset(name)) is not None]
    valid = [file for file in swaps if not cleaned or file.base_offset < min(cleaned)]
    if valid:
        start = min(file.base_offset for file in valid)
        end = max(start + 1, *(next_offset(file) for file in valid))
        plain = {base: file for base, file in plain.items() if not start <= base < end}
        plain.update({file.base_offset: file for file in valid})
    snapshots = sorted(offset for name in found if name.endswith(names.SNAPSHOT_SUFFIX) and (offset := _offset(name)) is not None)
    return Listing([plain[base] for base in sorted(plain)], snapshots)


def _offset(name: str) -> int | None:
    try:
        return names.offset_from_file_name(name)
    except InvalidArgumentError:
        return None
