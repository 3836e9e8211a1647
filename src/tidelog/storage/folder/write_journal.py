"""Commits a write to many partitions atomically, even if a crash occurs in between.

Complete segments are staged in a folder inside each partition's folder (`STAGING`: Kafka and readers ignore folders there, and it
is removed with the partition). The name of one file in the data folder shows which step has been reached::

    1  tidelog-write.staging      which partitions are being staged           a crash: the staging folders are removed
    2  segments staged and synced
    3  renamed to tidelog-write.committed                                     the commit; after a later crash it is finished
    4  segments moved up, each .log before its indexes
    5  checkpoints: high watermarks become visible for all partitions at once
    6  renamed to tidelog-writer-<…>.json, or removed                         the writer's last commit
    7  the new segments get their time maps                                   after a crash some have none

| who | finishes an interrupted commit |
|---|---|
| the next write, or the start of a Tidelog broker | under the folder's lock, by `finish_pending` |
| Apache Kafka | no: it opens the segments already moved, which are sound; the others wait for Tidelog |

Kafka may therefore append in between. The staged segments then no longer begin at the log's end, and are staged again. A `.log`
is moved before its indexes: a log without an index is only slower to search, but an index without its log is removed.

Format of the file, JSON: `version`, `writer` (a name, or null if nothing is to be stored), `note` (the writer's text, or null),
`partitions` (names of their folders).
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import sync_directory, write_offset_checkpoint
from tidelog.formats.json_files import read_json, understanding, write_json
from tidelog.model import TopicPartition
from tidelog.storage.folder.dir_checkpoints import DirCheckpoints

logger = logging.getLogger("tidelog.storage")

VERSION = 1
_WHAT = "a write's journal"
STAGING_FILE = "tidelog-write.staging"
COMMITTED_FILE = "tidelog-write.committed"

STAGING = "tidelog-staged"
"""A folder inside a partition's folder; it contains a folder with the partition's name."""

RESTAGING = "tidelog-restaged"
"""The staged segments, rewritten for a log that has grown."""

OUTDATED = "tidelog-outdated"
"""The staged segments that `RESTAGING` has replaced."""

Restage = Callable[[Path, Path, int], None]
"""Stages segments again. The arguments are the partition's folder, the folder with the staged segments, and the offset at which
the new ones must begin. The result is in `RESTAGING`.
"""

INDEX_SUFFIXES = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TIME_MAP_SUFFIX)


@dataclass(frozen=True)
class Journal:
    """The content of a journal file."""

    writer: str | None
    note: str | None
    partitions: tuple[TopicPartition, ...]

    def write(self, path: Path) -> None:
        """Write the journal to a file, replacing the file. Raises StorageError."""
        partitions = [names.log_dir_name(*key) for key in self.partitions]
        write_json(path, VERSION, {"writer": self.writer, "note": self.note, "partitions": partitions})


def read_journal(path: Path) -> Journal | None:
    """Read a journal, or return None if there is none. Raises CorruptCheckpointError, StorageError."""
    content = read_json(path, VERSION, _WHAT)
    if content is None:
        return None
    with understanding(path, _WHAT):
        partitions = tuple(names.parse_topic_partition_name(name) for name in content["partitions"])
        writer, note = content["writer"], content["note"]
        if not all(value is None or isinstance(value, str) for value in (writer, note)):
            raise TypeError("writer and note must be texts or null")
        return Journal(writer, note, partitions)


def writer_file(directory: Path, writer: str) -> Path:
    """Return the file that records a writer's last commit."""
    # A writer's name may have characters that a file's name cannot.
    return directory / f"tidelog-writer-{hashlib.sha256(writer.encode()).hexdigest()[:16]}.json"


def staged_folder(partition: Path, staging: str = STAGING) -> Path:
    """Return the folder in which a partition's segments are staged."""
    return partition / staging / partition.name


def is_pending(directory: Path) -> bool:
    """Whether a write was interrupted."""
    return any((directory / name).exists() for name in (STAGING_FILE, COMMITTED_FILE))


def finish_pending(directory: Path, restage: Restage) -> None:
    """Finish or undo an interrupted write. The caller must hold the folder's lock. Raises StorageError, CorruptDataError."""
    journal = read_journal(directory / COMMITTED_FILE)
    if journal is not None:
        logger.warning("%s: a committed write was interrupted; moving its segments into place", directory)
        for key in journal.partitions:
            _make_fit(directory / names.log_dir_name(*key), restage)
        finish_committed(directory, journal)
        return
    journal = read_journal(directory / STAGING_FILE)
    if journal is not None:
        undo_staging(directory, journal)


def undo_staging(directory: Path, journal: Journal) -> None:
    """Remove uncommitted staged segments. Raises StorageError."""
    try:
        for key in journal.partitions:
            folder = directory / names.log_dir_name(*key)
            for staging in (STAGING, RESTAGING, OUTDATED):
                if (folder / staging).exists():
                    shutil.rmtree(folder / staging)
        (directory / STAGING_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"cannot remove staged segments: {error.strerror}", path=directory) from error


def finish_committed(directory: Path, journal: Journal) -> None:
    """Move the staged segments into place, write the checkpoints, and close the journal. Raises StorageError, and can then be
    repeated.
    """
    folders = {key: directory / names.log_dir_name(*key) for key in journal.partitions}
    try:
        staged_from = {key: _first_staged_offset(folder) for key, folder in folders.items()}
        moved = [log for folder in folders.values() for log in _move_up(folder)]
        ends = {key: _log_end_offset(folder) for key, folder in folders.items() if folder.is_dir()}
        _checkpoint(directory, ends, staged_from)
        if journal.writer is None:
            (directory / COMMITTED_FILE).unlink()
        else:
            (directory / COMMITTED_FILE).replace(writer_file(directory, journal.writer))
        sync_directory(directory)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"cannot move a segment into place: {error.strerror}", path=directory) from error
    if moved:
        from tidelog.reader.time_map_file import write_time_maps  # A broker starts without this import.

        write_time_maps(moved)  # Not earlier: the move changes the files' timestamps.


def _move_up(folder: Path) -> list[Path]:
    """Move the segments in a staging folder into the partition's folder. Return their new paths."""
    moved = []
    staged = staged_folder(folder)
    if staged.is_dir():
        for log in sorted(staged.glob(f"*{names.LOG_SUFFIX}")):
            # An empty segment may have this name; its indexes must not stay beside the moved log.
            for suffix in INDEX_SUFFIXES:
                (folder / log.name).with_suffix(suffix).unlink(missing_ok=True)
            log.replace(folder / log.name)
            moved.append(folder / log.name)
        for path in sorted(staged.iterdir()):
            # An existing file belongs to a process that has opened the log since, and perhaps appended to it.
            if path.suffix in INDEX_SUFFIXES and not (folder / path.name).exists():
                path.replace(folder / path.name)
        sync_directory(folder)
    for staging in (STAGING, RESTAGING, OUTDATED):
        if (folder / staging).exists():
            shutil.rmtree(folder / staging)
    return moved


def _make_fit(folder: Path, restage: Restage) -> None:
    """Ensure that the staged segments begin where the partition's log ends."""
    if not folder.is_dir():
        logger.warning("%s: the partition was deleted, so the records written to it are dropped", folder)
        return
    try:
        if (folder / RESTAGING).exists() and not (folder / STAGING).exists():
            # Interrupted between the two renames below.
            (folder / RESTAGING).replace(folder / STAGING)
        staged = staged_folder(folder)
        logs = sorted(staged.glob(f"*{names.LOG_SUFFIX}")) if staged.is_dir() else []
        for log in list(logs):
            # A power failure may leave both names of one file.
            if (folder / log.name).exists() and log.samefile(folder / log.name):
                log.unlink()
                logs.remove(log)
        end_offset = _log_end_offset(folder)
        if not logs or names.offset_from_file_name(logs[0].name) == end_offset:
            return
        logger.warning("%s: the log has grown since the write; appending the staged records at offset %d", folder, end_offset)
        if (folder / RESTAGING).exists():
            shutil.rmtree(folder / RESTAGING)
        restage(folder, staged, end_offset)
        (folder / STAGING).replace(folder / OUTDATED)
        (folder / RESTAGING).replace(folder / STAGING)
        sync_directory(folder)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"cannot stage a segment: {error.strerror}", path=folder) from error


def _log_end_offset(folder: Path) -> int:
    from tidelog.reader.log import Log  # Only needed after a crash: a broker starts without this import.

    with Log.open(folder) as log:
        return log.log_end_offset


def _first_staged_offset(folder: Path) -> int | None:
    """Return the offset at which the staged segments begin, or None if none are left."""
    found = [names.offset_from_file_name(path.name) for path in staged_folder(folder).glob(f"*{names.LOG_SUFFIX}")]
    return min(found, default=None)


def _checkpoint(
    directory: Path, end_offsets: Mapping[TopicPartition, int], staged_from: Mapping[TopicPartition, int | None]
) -> None:
    """Make the new ends visible to readers, and raise the recovery points of logs that were completely on disk."""
    before = DirCheckpoints(directory)
    on_disk = {key: end for key, end in end_offsets.items() if before.recovery_points.get(key, -1) == staged_from[key]}
    if on_disk:
        write_offset_checkpoint(directory / names.RECOVERY_POINT_CHECKPOINT, {**before.recovery_points, **on_disk})
    marks = before.high_watermarks
    after = {**marks, **{key: max(end, marks.get(key, 0)) for key, end in end_offsets.items()}}
    if after != marks:
        write_offset_checkpoint(directory / names.HIGH_WATERMARK_CHECKPOINT, after)
