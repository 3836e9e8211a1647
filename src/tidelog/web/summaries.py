"""Summaries of partitions in folders, from the first and last batches. A summary is cached until the partition's files change.

A summary has the first timestamp of the first batch and the largest timestamp of the last batch. Batches between them are not
read, and may have earlier or later records.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from tidelog.errors import TidelogError, UnknownTopicOrPartitionError
from tidelog.formats import names
from tidelog.formats.paths.file_path import list_names
from tidelog.model import NO_TIMESTAMP, TopicPartition
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.web.time_maps import first_time

KEPT = 20_000
"""The most partitions whose summaries are cached, at some hundred bytes each."""


class Summary(NamedTuple):
    """The offsets, size and times of one partition."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    size_bytes: int
    segments: int
    first_ms: int
    """The first batch's first timestamp, -1 without one."""
    last_ms: int
    """The last batch's largest timestamp, -1 without one."""
    error: str | None = None
    """The reason why the partition cannot be read; all numbers are then 0."""


class Summaries:
    """A cache of summaries, for all sources. Thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, TopicPartition], tuple[object, Summary]] = OrderedDict()
        self._lock = Lock()

    def known(self, log_dir: LogDir, key: TopicPartition) -> Summary | None:
        """Return the cached summary, None if there is none or the partition has changed. Costs a few system calls."""
        kept = self._known.get((log_dir.address, key))
        return None if kept is None or kept[0] != _stamp(log_dir, key) else kept[1]

    def of(self, log_dir: LogDir, key: TopicPartition) -> Summary:
        """Return the summary of a partition."""
        found = self.known(log_dir, key)
        if found is not None:
            return found
        stamp = _stamp(log_dir, key)
        try:
            with LogDir.log(log_dir, *key) as log:  # Opened for this only: a folder may have thousands of partitions.
                found = summarized(log)
        except TidelogError as error:
            found = Summary(0, 0, None, 0, 0, NO_TIMESTAMP, NO_TIMESTAMP, str(error))
        with self._lock:
            self._known[log_dir.address, key] = stamp, found
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return found


def summarized(log: Log) -> Summary:
    """Return the summary of an open log. Raises the same errors as reading."""
    first = last = NO_TIMESTAMP
    for segment in log.segments:
        header = next(segment.headers(), None)
        segment.close()
        if header is not None:
            first = first_time(header)
            break
    for segment in reversed(log.segments):
        header = segment.valid_end().last_header
        segment.close()
        if header is not None:
            last = header.max_timestamp
            break
    size_bytes = sum(segment.size_bytes for segment in log.segments)
    ends = (log.log_start_offset, log.log_end_offset, log.high_watermark)
    return Summary(*ends, size_bytes, len(log.segments), first, last)


def _stamp(log_dir: LogDir, key: TopicPartition) -> object:
    """Return a value that changes when a partition's files do: the folder's time, the last segment's size and time, the
    checkpoints.
    """
    try:
        home = log_dir.home(key)
        folder = home.path / names.log_dir_name(*key)
        offsets = (home.log_start_offsets.get(key), home.high_watermarks.get(key))
        last = max((name for name in list_names(folder) if name.endswith(names.LOG_SUFFIX)), default=None)
        changed = folder.stat().st_mtime_ns
        if last is None:
            return (changed, None, *offsets)
        stat = (folder / last).stat()
    except (OSError, UnknownTopicOrPartitionError):
        return object()  # The partition is being deleted. This value equals no other, so it is looked at again.
    return (changed, last, stat.st_ino, stat.st_size, stat.st_mtime_ns, *offsets)
