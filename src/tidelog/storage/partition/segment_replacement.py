"""Replaces segments with new ones so that a crash at any moment loses nothing (spec §6.7).

| step | files of the new segments | files of the old ones | what a start after a crash does (`temporary_files`) |
|---|---|---|---|
| before | ``.cleaned`` | in place | removes the new ones |
| 1 | ``.cleaned`` → ``.swap``, from the last to the first | in place | while a ``.cleaned`` is left: removes the new ones |
| 2 | ``.swap`` | → ``.deleted`` | finishes the replacement |
| 3 | ``.swap`` → their names | ``.deleted`` | finishes the replacement |

The folder is synced after each step, so that the steps stay in order after a power loss. An owner with threads waits for the sync
on another thread.

To abort a replacement, `ReplacementAbortedError` is thrown into it: before step 2, the replacement then removes the new files;
after that it is completed. If the generator is only closed, the files stay as they are after a crash, because the folder may
belong to another owner by then. Compaction and the split of an overflowed segment use this; the caller removes the producer
snapshots of the returned segments.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from tidelog.errors import InvalidArgumentError
from tidelog.formats.names import CLEANED_SUFFIX, SWAP_SUFFIX
from tidelog.storage.partition.file_deletion import delete_segment_files
from tidelog.storage.partition.flush_job import sync_files
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.log_segments import LogSegments

T = TypeVar("T")

Replacing = Generator[Callable[[], object], None, list[LogSegment]]
"""Yields functions; the caller must call each of them, on any thread, before it continues."""


class ReplacementAbortedError(Exception):
    """Thrown into a replacement's steps by the log's owner, which continues to use the log. The steps clean up, and raise it
    again.
    """


def replacing_segments(
    existing: LogSegments,
    new: Iterable[LogSegment],
    old: Iterable[LogSegment],
    directory: Path,
    scheduler: Scheduler | None,
    delete_delay_ms: int,
) -> Replacing:
    """Replace `old` in `existing` with the segments `new`, which are closed and flushed with the suffix ``.cleaned``.

    Returns the segments of `old` whose base offset no new segment has. Old segments that are no longer in `existing` (deleted
    meanwhile) are ignored. Raises InvalidArgumentError without a new segment, StorageError.
    """
    coming = sorted(new, key=lambda segment: segment.base_offset)
    if not coming:
        raise InvalidArgumentError("segments must be replaced by at least one new segment", path=directory)
    sync = partial(sync_files, [directory])
    for segment in reversed(coming):
        segment.change_file_suffixes(CLEANED_SUFFIX, SWAP_SUFFIX)
    try:
        yield sync
    except ReplacementAbortedError:
        for segment in coming:
            segment.delete_if_exists()
        raise
    going = sorted((one for one in old if existing.get(one.base_offset) is one), key=lambda segment: segment.base_offset)
    bases = {segment.base_offset for segment in coming}
    # In memory the new ones are added first: a reader always finds one of the two.
    for segment in reversed(coming):
        existing.add(segment)
    for segment in going:
        if segment.base_offset not in bases:
            existing.remove(segment.base_offset)
    delete_segment_files(going, scheduler, delete_delay_ms)
    try:
        yield sync
    except ReplacementAbortedError:
        _name(coming)
        raise
    _name(coming)
    yield sync
    return [segment for segment in going if segment.base_offset not in bases]


def replace_segments(
    existing: LogSegments,
    new: Iterable[LogSegment],
    old: Iterable[LogSegment],
    directory: Path,
    scheduler: Scheduler | None,
    delete_delay_ms: int,
) -> list[LogSegment]:
    """Replace segments like `replacing_segments`, in one call."""
    return at_once(replacing_segments(existing, new, old, directory, scheduler, delete_delay_ms))


def at_once(steps: Generator[Callable[[], object], None, T]) -> T:
    """Run all steps now, and return their result."""
    try:
        while True:
            next(steps)()
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _name(segments: Iterable[LogSegment]) -> None:
    for segment in segments:
        segment.change_file_suffixes(SWAP_SUFFIX, "")
