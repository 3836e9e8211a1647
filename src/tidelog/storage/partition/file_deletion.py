"""Deletes segment files: renamed at once, removed later (spec §6.5).

| step | when | why |
|---|---|---|
| the time map is removed | at once | it can be rebuilt at any time |
| files get the suffix ``.deleted`` | at once | a restart must not find the segment again |
| files are removed | after file.delete.delay.ms | readers that have them open can continue |

If the process ends before the delay is over, the next start removes the ``.deleted`` files. The log, the loader and all code that
replaces segments use this.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable

from tidelog.errors import StorageError
from tidelog.formats.names import DELETED_SUFFIX
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.log_segment import LogSegment

logger = logging.getLogger("tidelog.storage")


def delete_segment_files(segments: Iterable[LogSegment], scheduler: Scheduler | None, delay_ms: int) -> None:
    """Rename the files of segments to ``.deleted``, and remove them `delay_ms` later, or at once without a scheduler.

    Renaming twice does no harm. Raises StorageError if a file cannot be renamed (or removed at once).
    """
    going = list(segments)
    for segment in going:
        if not segment.log.path.name.endswith(DELETED_SUFFIX):
            forget_time_map(segment)
            segment.change_file_suffixes("", DELETED_SUFFIX)
            # Closing the last descriptor of a removed file frees its blocks, which takes long: avoid that here.
            segment.give_descriptors_back()
    if scheduler is None:
        _remove(going)
    elif going:
        scheduler.schedule("delete-file", lambda: _remove(going), delay_ms=delay_ms, ahead=lambda: _unlink(going))


def forget_time_map(segment: LogSegment) -> None:
    """Remove the time map of a deleted or truncated segment; a remaining one would be detected, so errors are ignored."""
    # Imported with the first deleted segment: a broker's start does not need it.
    from tidelog.reader.time_map_file import remove_time_map

    try:
        remove_time_map(segment.log.path)
    except StorageError as error:
        logger.warning("%s", error)


def _unlink(segments: list[LogSegment]) -> None:
    """Remove the files by name. Any thread may call it, because removing large files takes long. Errors will recur in
    `_remove`.
    """
    for segment in segments:
        for path in segment.paths:
            with contextlib.suppress(OSError):
                path.unlink()


def _remove(segments: list[LogSegment]) -> None:
    """Remove each segment's files. If one segment cannot be removed, the others still are."""
    failed: StorageError | None = None
    for segment in segments:
        try:
            segment.delete_if_exists()
        except StorageError as error:
            failed = failed or error
    if failed is not None:
        raise failed
