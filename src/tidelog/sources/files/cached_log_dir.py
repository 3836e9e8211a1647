"""A data folder that caches its opened logs, for repeated reads.

A partition is opened again only if something has changed: files were added or removed, the last segment grew, a checkpoint moved.
Checking an unchanged partition costs a listing of its file names and a `stat` of its last segment.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from tidelog.backup.opening import folders_at
from tidelog.folder_list import Folders
from tidelog.formats import names
from tidelog.formats.paths.file_path import AnyPath, list_names
from tidelog.model import TopicPartition
from tidelog.objects.tier import is_tiered
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.log_dirs import LogDirs


class _Look(NamedTuple):
    """A fingerprint of a partition's folder. If two fingerprints are equal, nothing in the folder has changed in between."""

    files: frozenset[str]
    last: tuple[int, int, int]
    """The last segment's inode, size and time of change (ns)."""
    log_start_offset: int | None
    high_watermark: int | None


class CachedLogDir(LogDir):
    """A data folder that caches its opened logs and shows the folder as of the last call to `look`."""

    def __init__(self, path: AnyPath, *, skip_damaged: bool = False, may_be_empty: bool = False) -> None:
        self._known: set[str] = set()
        self._looked: set[TopicPartition] = set()
        self._kept: dict[TopicPartition, tuple[_Look, Log]] = {}
        super().__init__(path, skip_damaged=skip_damaged, may_be_empty=may_be_empty)

    def look(self) -> None:
        """Update to the folder's current state."""
        super().look()
        self._forget("_names")
        self._known &= set(self._names)
        for key in self._kept.keys() - self._partitions:
            self._kept.pop(key)[1].close()
        self._looked = set()

    def release(self, most: int) -> None:
        """Close all files, and free the time maps of the cached logs. If more than `most` logs are cached, drop them all."""
        self.close()
        if len(self._kept) > most:
            self._kept.clear()
            self._looked.clear()
        for _, log in self._kept.values():
            for segment in log.segments:
                segment.head.time_map, segment.head.is_map_known = None, False

    def close(self) -> None:
        """Close all files."""
        for _, log in self._kept.values():
            log.close()

    def log(self, topic: str, partition: int, message_format: int | None = None) -> Log:
        """Return a partition's log, as it was at the first call since the last `look`. Raises the errors of `LogDir.log`."""
        key = TopicPartition(topic, partition)
        kept = self._kept.get(key)
        if kept is not None and key in self._looked:
            return kept[1]
        now = self._look_at(key)
        if kept is None or kept[0] != now:
            log = super().log(topic, partition, message_format)
            if kept is not None:
                log.go_on_from(kept[1])
                kept[1].close()
            kept = self._kept[key] = now, log
        self._looked.add(key)
        return kept[1]

    def _look_at(self, key: TopicPartition) -> _Look:
        directory = self.directory(*key)
        try:
            files = frozenset(name for name in list_names(directory) if not name.endswith(names.DELETED_SUFFIX))
            last = max((name for name in files if name.endswith(names.LOG_SUFFIX)), default=None)
            stat = None if last is None else (directory / last).stat()
        except OSError:
            # The partition is deleted or changing. Opening the log shows which, so do not cache this state.
            return _Look(frozenset(), (0, 0, -1), None, None)
        seen = (0, 0, 0) if stat is None else (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        return _Look(files, seen, self.log_start_offsets.get(key), self.high_watermarks.get(key))

    def _holds_a_log(self, name: str) -> bool:
        if name not in self._known and super()._holds_a_log(name):
            self._known.add(name)
        return name in self._known


def open_cached(folders: Folders, *, skip_damaged: bool = False) -> LogDir:
    """Open a data folder, or several as one, for repeated reads. Raises DataDirNotFoundError, InvalidArgumentError."""
    if is_tiered(folders):
        from tidelog.reader.tiered.tiered_log_dir import open_log_dir

        return open_log_dir(folders, partial(open_cached, skip_damaged=skip_damaged))
    paths = folders_at(folders)
    if len(paths) == 1:
        return CachedLogDir(paths[0], skip_damaged=skip_damaged)
    return LogDirs(paths, skip_damaged=skip_damaged, opened=CachedLogDir)
