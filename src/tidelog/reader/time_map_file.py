"""Stores time maps, and checks whether a map belongs to its segment.

A map is beside its segment, as ``<base>.timemap``. For data folders that must not be written to, maps are in a folder of the
user's choice, as ``<folder>/<topic>-<partition>/<base>.timemap``. The chosen folder is searched first.

A map determines what is skipped, so it must describe the current log. These facts are checked:

| fact | shows |
|---|---|
| the map's checksum, version and length | that the map is complete; so it need not be synced against crashes |
| base offset, covered bytes, the last batch | that the map is about a segment with this name, which was not truncated |
| the log's stamp (`file_stamp`) equals that in the map | that the log has not changed since: the map is *bound*, and trusted |
| if the stamps differ: the digests of the blocks | that the batches to be skipped are the batches that were mapped |

Checking the stamp costs one system call. The stamp changes with a copy, a rename, or an append to a mapped segment. Then the
headers of each block to be skipped are read and compared with the block's digest (`check_blocks`). A map that disagrees with the
log is ignored, with one notice. Writing the map again binds it to the current log.

A map is never required: without a map the log is read. Apache Kafka does not know these files. Kafka's loader and retention
ignore them, and deleting a topic removes the whole folder. When Kafka deletes a segment, its map is left behind;
`remove_stale_time_maps` removes such maps. Owners of folders write a map when a segment is complete (`write_time_map`). `sources`
reads the maps (`TimeMaps`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import (
    CorruptBatchError,
    CorruptDataError,
    CorruptIndexError,
    NotFoundError,
    SegmentChangedError,
    StorageError,
)
from tidelog.formats import names
from tidelog.formats.batch_walk import walk
from tidelog.formats.file_stamp import UNKNOWN, FileStamp, settled_stamp
from tidelog.formats.files import Notices, ReadOnlyFile
from tidelog.formats.paths.file_path import AnyPath, FilePath, as_path, local_path
from tidelog.formats.time_map import BLOCK_BYTES, HEADER, TimeMap, size_bytes
from tidelog.formats.time_map_builder import TimeMapBuilder, add_batches
from tidelog.reader.segment import Segment
from tidelog.reader.segment_files import segment_file
from tidelog.records.batch import HEADER_BYTES, BatchHeader, PathLike, read_header
from tidelog.records.kernel import digest_batches

_TEMPORARY_SUFFIX = ".tmp"


def time_map_path(log_path: AnyPath, directory: AnyPath | None = None) -> FilePath:
    """Return the path of a ``.log``'s map: beside the ``.log``, or below `directory`, in a folder with the name of the
    partition's folder.
    """
    log = as_path(log_path).absolute()
    name = log.name.removesuffix(names.SWAP_SUFFIX).removesuffix(names.LOG_SUFFIX) + names.TIME_MAP_SUFFIX
    return (log.parent if directory is None else as_path(directory) / log.parent.name) / name


class FoundMap(NamedTuple):
    """A segment's map and its path."""

    time_map: TimeMap
    path: FilePath
    is_bound: bool
    """Whether the log is still exactly the file that was mapped. If not, the map must be verified with `check_blocks`."""


class TimeMaps:
    """Finds the maps of segments, in `directory` or beside the segments. Raises NotFoundError if `directory` does not exist."""

    def __init__(self, directory: AnyPath | None = None) -> None:
        self._directories = [None] if directory is None else [directory, None]
        if directory is not None and not as_path(directory).is_dir():
            is_file = as_path(directory).exists()
            raise NotFoundError(f"the time map directory {'is a file' if is_file else 'does not exist'}", path=directory)

    def find(self, segment: Segment) -> list[FoundMap]:
        """Return the segment's maps, with bound maps first. A map that does not fit the segment is left out, with a notice."""
        found = []
        for directory in self._directories:
            path = time_map_path(segment.log_path, directory)
            try:
                time_map = read_time_map(path)
                if time_map is None:
                    continue
                check_agrees(time_map, segment.file, segment.base_offset, segment.end_position, path)
            except (CorruptIndexError, StorageError) as error:
                note_unused(segment, path, error)
                continue
            found.append(FoundMap(time_map, path, is_bound(time_map, segment.file)))
        return sorted(found, key=lambda one: not one.is_bound)


def note_unused(segment: Segment, path: FilePath, error: CorruptIndexError | StorageError) -> None:
    """Log why a map is not used."""
    found = "" if error.found is None else f" (found {error.found})"
    segment.notices.note(path, f"{error.message}{found}; the log is read instead")


def is_bound(time_map: TimeMap, file: ReadOnlyFile) -> bool:
    """Whether a log is currently exactly the file that was mapped. Call this after reading the map, not before.

    A copy in object storage has a different stamp, but objects are never modified. For an object, the size must equal the size in
    the stamp, and the last batch must equal the map's last batch (`check_agrees`).
    """
    if file.is_constant():
        return time_map.stamp != UNKNOWN and time_map.stamp.size_bytes == file.size_bytes()
    return time_map.stamp != UNKNOWN and time_map.stamp == file.stamp()


def read_time_map(path: FilePath) -> TimeMap | None:
    """Read a map; return None if the file does not exist. Raises CorruptIndexError, StorageError."""
    file = ReadOnlyFile(path, fallbacks=())
    try:
        file.open()
    except SegmentChangedError:
        return None
    with file:
        expected_bytes = size_bytes(file.read(0, HEADER.size), path)
        found_bytes = file.size_bytes()
        if found_bytes != expected_bytes:
            raise CorruptIndexError("a time map has an invalid length", path=path, found=f"{found_bytes} bytes")
        return TimeMap.from_bytes(file.read(0, expected_bytes), path)


def check_agrees(time_map: TimeMap, file: ReadOnlyFile, base_offset: int, end_position: int, path: FilePath) -> None:
    """Raise CorruptIndexError unless the map can belong to the log `file`, whose last batch ends at `end_position`."""
    if time_map.base_offset != base_offset:
        raise CorruptIndexError(
            "a time map belongs to a different segment", path=path, found=f"base offset {time_map.base_offset}"
        )
    if time_map.positions[0] != 0:
        raise _disagrees(0, path)
    if time_map.covered_bytes > end_position:
        raise CorruptIndexError("a time map is longer than its segment", path=path, found=f"{time_map.covered_bytes} bytes")
    last = batch_at(time_map.last_batch_position, file, path)
    if (last.base_offset, last.crc) != (time_map.last_batch_offset, time_map.last_batch_crc):
        raise _disagrees(last.position, path)
    if (last.end_position, last.next_offset) != (time_map.covered_bytes, time_map.next_offset):
        raise _disagrees(last.position, path)


def check_blocks(time_map: TimeMap, blocks: range, file: ReadOnlyFile, path: PathLike, *, position: int) -> None:
    """Check that the batches from `position`, which must be the start of a batch, to the end of `blocks` are those that were
    mapped.

    `position` is at or before the start of the first block. Reads the headers of each block. Raises CorruptIndexError if the
    batches differ, SegmentChangedError if the log is truncated during the check.
    """
    if blocks and position < time_map.positions[blocks.start]:
        start = time_map.positions[blocks.start]
        for header in walk(file, position, start):
            if header.end_position > start:
                raise _disagrees(header.position, path)
    for block in blocks:
        start, end = time_map.positions[block], time_map.end_position(block)
        last = time_map.last_batches[block]
        if not 0 <= last < end - start or (last and last >= time_map.block_bytes):
            raise _disagrees(start, path)
        data = file.read(start, min(last + HEADER_BYTES, end - start))
        length, digest = digest_batches(data, end - start)
        if length != end - start or digest != time_map.digests[block]:
            raise _disagrees(start, path)


def first_batch(time_map: TimeMap, block: int, file: ReadOnlyFile, path: PathLike) -> BatchHeader:
    """Return the first batch of a block. Raises CorruptIndexError if the log has a different batch at this position."""
    header = batch_at(time_map.positions[block], file, path)
    offset = time_map.first_offsets[block]
    # The header of a compressed v0 or v1 message contains the last inner offset.
    agrees = header.base_offset == offset if header.magic == 2 else header.base_offset >= offset
    if not agrees:
        raise _disagrees(header.position, path)
    return header


def last_batch(time_map: TimeMap, block: int, file: ReadOnlyFile, path: PathLike) -> BatchHeader:
    """Return the last batch of a block. Raises CorruptIndexError if no batch ends with the block."""
    header = batch_at(time_map.positions[block] + time_map.last_batches[block], file, path)
    if header.end_position != time_map.end_position(block):
        raise _disagrees(header.position, path)
    return header


def batch_at(position: int, file: ReadOnlyFile, path: PathLike) -> BatchHeader:
    """Return the header of the batch at a position from a map. Raises CorruptIndexError if no batch begins there."""
    try:
        if position < 0:
            raise _disagrees(position, path)
        return read_header(file.read(position, HEADER_BYTES), 0, position, file.path)
    except CorruptBatchError as error:
        raise _disagrees(position, path) from error


def _disagrees(position: int, path: PathLike) -> CorruptIndexError:
    return CorruptIndexError(
        "a time map does not agree with its segment", path=path, found=f"a different batch at byte {position}"
    )


# --- writing


def write_time_map(
    log_path: AnyPath,
    directory: AnyPath | None = None,
    *,
    end_position: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    notices: Notices | None = None,
) -> TimeMap | None:
    """Write or extend a segment's map. If that fails, log the error and return None: the map is not required.

    Arguments and result are the same as for `rebuild_time_map`.
    """
    path = time_map_path(log_path, directory)
    try:
        return rebuild_time_map(log_path, directory, end_position=end_position, block_bytes=block_bytes)
    except (CorruptDataError, SegmentChangedError, StorageError, NotFoundError) as error:
        (notices or Notices()).note(path, f"no time map was written: {error}")
        return None


def write_time_maps(log_paths: Iterable[AnyPath]) -> None:
    """Write a map for each of these segments, as `write_time_map` does. The segments must be complete and have their final
    names.
    """
    for path in log_paths:
        write_time_map(path)


def rebuild_time_map(
    log_path: AnyPath,
    directory: AnyPath | None = None,
    *,
    end_position: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    from_start: bool = False,
) -> TimeMap | None:
    """Build or extend a segment's map and return it; return None for a segment without batches. A map that is already correct is
    not written again.

    A map that agrees with the segment is extended, unless `from_start` is set or its block size is not `block_bytes`. The map is
    bound to the log's current file. If the existing map was bound to a different file, all its blocks are compared first.
    `end_position` is the end of the batches, if the caller knows it; otherwise an apparently unfinished append at the end is
    excluded. The log itself is never written. The map is written to a temporary file and renamed, without a sync.

    Raises CorruptDataError for a damaged log, NotFoundError, SegmentChangedError, StorageError. After an error the old map is
    unchanged.
    """
    log = as_path(log_path)
    path = local_path(time_map_path(log, directory))
    base_offset = names.offset_from_file_name(log.name)
    if end_position is None:
        segment = Segment.open(log)
        try:
            end_position = segment.end_position
        finally:
            segment.close()
    with ReadOnlyFile(log, segment_file(log).identity) as file:
        stamp = settled_stamp(file.stamp)
        before = None if from_start else _usable(path, file, base_offset, end_position, block_bytes)
        if before is not None and before.covered_bytes == end_position:
            if before.stamp != stamp != UNKNOWN:
                before = replace(before, stamp=stamp)
                replace_time_map(path, before)
            return before
        builder = TimeMapBuilder(base_offset, block_bytes=block_bytes, grown_from=before)
        add_batches(builder, file, end_position)
        if file.locate() != file.path:
            raise SegmentChangedError("a segment was replaced while its time map was being built", path=log)
        time_map = builder.build(unchanged(stamp, file))
    if time_map is None:
        return None
    if directory is not None:
        _make_folder(path.parent)
    replace_time_map(path, time_map)
    return time_map


def unchanged(stamp: FileStamp, file: ReadOnlyFile) -> FileStamp:
    """Return `stamp` if the file, which has been read, still has it. Otherwise return UNKNOWN."""
    return stamp if file.stamp() == stamp else UNKNOWN


def _usable(path: FilePath, file: ReadOnlyFile, base_offset: int, end_position: int, block_bytes: int) -> TimeMap | None:
    """Return the existing map if it is completely correct, else None."""
    try:
        time_map = read_time_map(path)
        if time_map is None or time_map.block_bytes != block_bytes:
            return None
        check_agrees(time_map, file, base_offset, end_position, path)
        if not is_bound(time_map, file):
            check_blocks(time_map, range(time_map.blocks), file, path, position=0)
    except (CorruptIndexError, StorageError):
        return None
    return time_map


def replace_time_map(path: Path, time_map: TimeMap) -> None:
    """Write the map to a temporary file and rename it, so that readers see either the old or the new map. Raises StorageError."""
    # Two processes may write the same map at the same time.
    temporary = Path(f"{path}.{os.getpid()}{_TEMPORARY_SUFFIX}")
    try:
        try:
            temporary.write_bytes(time_map.to_bytes())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"cannot write a time map: {error.strerror or error}", path=path) from error


def _make_folder(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create a folder: {error.strerror or error}", path=directory) from error


def remove_time_map(log_path: AnyPath, directory: AnyPath | None = None) -> None:
    """Remove a segment's map. An owner calls this when it deletes the segment. Raises StorageError."""
    _unlink(local_path(time_map_path(log_path, directory)))


def remove_stale_time_maps(directory: AnyPath, base_offsets: Collection[int]) -> list[Path]:
    """Remove unfinished maps, and maps of segments that are not in `base_offsets`, from a partition's folder.

    Returns the removed paths. `directory` may also be the partition's folder in a folder of maps. Raises StorageError.
    """
    folder = local_path(as_path(directory))
    removed = []
    try:
        found = sorted(folder.glob(f"*{names.TIME_MAP_SUFFIX}*"))
    except OSError as error:
        raise StorageError(f"cannot list a folder: {error.strerror or error}", path=folder) from error
    for path in found:
        stem, _, rest = path.name.partition(names.TIME_MAP_SUFFIX)
        is_temporary = rest.startswith(".") and rest.endswith(_TEMPORARY_SUFFIX)
        if not stem.isdecimal() or (rest and not is_temporary) or not _is_regular(path):
            continue
        if is_temporary or int(stem) not in base_offsets:
            _unlink(path)
            removed.append(path)
    return removed


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"cannot remove a file: {error.strerror or error}", path=path) from error
