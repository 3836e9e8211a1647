"""A stream from a growing folder: which partitions there are, and what each holds, looked at before every batch.

A partition is opened again only where something changed: files came or went, the last segment grew, a checkpoint moved. What
did not change costs a listing of names.

| end of what is read | where |
|---|---|
| the high-watermark checkpoint | the folder has one for the partition: what lies beyond may be cut off when a leader changes |
| the log's end | there is none: a backup, a folder that a tool wrote |
| with read_committed, the last stable offset | it is smaller |

Kafka writes the checkpoint every five seconds and when it stops.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from tidelog.errors import NotFoundError, SegmentChangedError, UnsupportedForMessageFormatError
from tidelog.formats import names
from tidelog.model import TopicPartition
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.missing import MissingOffsets
from tidelog.reader.salvage import LeftOut
from tidelog.reader.time_search import find_from, find_offset
from tidelog.sources.brokers import AnySplit
from tidelog.sources.plan import plan
from tidelog.sources.reader import read_split
from tidelog.sources.split import Split
from tidelog.spark.bounds import missing_partitions
from tidelog.spark.options import ReadOptions
from tidelog.spark.places import Partition
from tidelog.spark.stream.batch_ranges import Span

_log = logging.getLogger("tidelog.spark")

ATTEMPTS = 5
"""How often a batch is planned before a folder is given up in which files vanish faster than they can be opened."""


class _Look(NamedTuple):
    """What was seen of a partition's folder: where it is the same, nothing has changed."""

    files: frozenset[str]
    last: tuple[int, int, int]
    """The last segment's inode, size and time of change (ns)."""
    log_start_offset: int | None
    high_watermark: int | None


class KeptLogDir(LogDir):
    """A data folder that keeps its opened logs. `look` brings it up to date; until then it stays as it was seen."""

    def __init__(self, path: str | os.PathLike[str], *, skip_damaged: bool = False) -> None:
        self._known: set[str] = set()
        self._looked: set[TopicPartition] = set()
        self._kept: dict[TopicPartition, tuple[_Look, Log]] = {}
        super().__init__(path, skip_damaged=skip_damaged)

    def look(self) -> None:
        """See what is there now."""
        for cached in ("_names", "_partitions", "log_start_offsets", "high_watermarks", "recovery_points", "cleaner_offsets"):
            self.__dict__.pop(cached, None)
        self._known &= set(self._names)
        for key in self._kept.keys() - self._partitions:
            self._kept.pop(key)[1].close()
        self._looked = set()

    def close(self) -> None:
        """Give all descriptors back."""
        for _, log in self._kept.values():
            log.close()

    def log(self, topic: str, partition: int, message_format: int | None = None) -> Log:
        """Return a partition's log as it was at the first call since the last `look`. Raises as `LogDir.log`."""
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
            with os.scandir(directory) as entries:
                files = frozenset(entry.name for entry in entries if not entry.name.endswith(names.DELETED_SUFFIX))
            last = max((name for name in files if name.endswith(names.LOG_SUFFIX)), default=None)
            stat = None if last is None else (directory / last).stat()
        except OSError:
            # Going or changing: opening the log tells which, and nothing is kept of this look.
            return _Look(frozenset(), (0, 0, -1), None, None)
        seen = (0, 0, 0) if stat is None else (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        return _Look(files, seen, self.log_start_offsets.get(key), self.high_watermarks.get(key))

    def _holds_a_log(self, name: str) -> bool:
        if name not in self._known and super()._holds_a_log(name):
            self._known.add(name)
        return name in self._known


class FolderStreamPlace:
    """See the module."""

    def __init__(self, options: ReadOptions) -> None:
        assert options.path is not None
        self._log_dir = KeptLogDir(options.path, skip_damaged=options.skip_damaged)
        self._isolation = options.isolation
        self._start_ms = options.start_ms
        self._time_map_dir = options.time_map_dir
        self._read_options = options
        self._reported: set[LeftOut] = set()
        self._ends: dict[TopicPartition, tuple[Log, list[MissingOffsets]]] = {}

    def close(self) -> None:
        self._log_dir.close()

    def topics(self) -> dict[str, list[int]]:
        self._log_dir.look()
        return self._log_dir.topics()

    def topic_ids(self, keys: Iterable[TopicPartition]) -> dict[str, uuid.UUID]:
        found: dict[str, uuid.UUID] = {}
        for key in keys:
            topic_id = self._log_dir.log(*key).topic_id
            if topic_id is not None:
                found[key.topic] = topic_id
        return found

    def spans(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Span]:
        found: dict[TopicPartition, Span] = {}
        for key in keys:
            try:
                log = self._log_dir.log(*key)
                found[key] = Span(log.log_start_offset, self._end(log), log.log_end_offset)
            except NotFoundError:
                continue  # Gone since its folder was listed.
            log.close()
        return found

    def missing(self, keys: Iterable[TopicPartition]) -> list[MissingOffsets]:
        found = missing_partitions(self._read_options, self._log_dir)
        for key in keys:
            log = self._log_dir.log(*key)
            known = self._ends.get(key)
            if known is None or known[0] is not log:
                known = self._ends[key] = log, log.missing(log.log_end_offset)
                log.close()
            found += known[1]
        return found

    def missing_in(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[MissingOffsets]:
        return [one for key, (start, end) in ranges.items() if start < end for one in self._log_dir.log(*key).missing(start, end)]

    def _end(self, log: Log) -> int:
        end = log.log_end_offset if log.high_watermark is None else log.high_watermark
        return min(end, log.last_stable_offset) if self._isolation == "read_committed" else end

    def open(self, partitions: Sequence[tuple[str, int]], times: Sequence[Mapping[tuple[str, int], int]]) -> Iterator[Partition]:
        for topic, partition in partitions:
            log = self._log_dir.log(topic, partition)
            yield _StreamPartition(log, self._end(log))

    def starts_for(self, keys: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for key in keys:
            log = self._log_dir.log(*key)
            try:
                first = _StreamPartition(log, self._end(log)).find(time_ms)
            except UnsupportedForMessageFormatError:
                first = log.log_start_offset  # Older segments may have what the last one lacks.
            found[key] = self._end(log) if first is None else first
        return found

    def reach(self, ranges: Mapping[TopicPartition, tuple[int, int]], time_ms: int) -> tuple[dict[TopicPartition, int], bool]:
        found: dict[TopicPartition, int] = {}
        for key, (start, end) in ranges.items():
            first = find_from(self._log_dir.log(*key), time_ms, start)
            found[key] = end if first is None else min(first, end)
        return found, True

    def splits(self, ranges: Mapping[TopicPartition, tuple[int, int]], min_splits: int, split_bytes: int) -> list[AnySplit]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._plan(ranges, min_splits, split_bytes)
            except SegmentChangedError:
                # Compacted meanwhile, or on its way out.
                if attempt == ATTEMPTS:
                    raise
                self._log_dir.look()
        raise AssertionError("unreachable")

    def bytes_each(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        found: dict[TopicPartition, float] = {}
        for key in keys:
            log = self._log_dir.log(*key)
            size_bytes = sum(segment.size_bytes for segment in log.segments)
            found[key] = size_bytes / max(1, log.log_end_offset - log.segments[0].base_offset) if size_bytes else 0.0
        return found

    def read(self, split: AnySplit, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        assert isinstance(split, Split)
        return read_split(split, columns)

    def _plan(self, ranges: Mapping[TopicPartition, tuple[int, int]], min_splits: int, split_bytes: int) -> list[AnySplit]:
        by_topic: dict[str, dict[int, tuple[int | None, int | None]]] = {}
        for key in sorted(ranges):
            by_topic.setdefault(key.topic, {})[key.partition] = ranges[key]
        total = sum(end - start for start, end in ranges.values())
        found: list[AnySplit] = []
        for topic, offsets in by_topic.items():
            count = sum(end - start for key, (start, end) in ranges.items() if key.topic == topic)
            planned = plan(
                self._log_dir,
                topic,
                start=self._start_ms,
                isolation=self._isolation,
                offsets=offsets,
                time_map_dir=self._time_map_dir,
                split_bytes=split_bytes,
                min_splits=max(1, -(-min_splits * count // max(1, total))),
            )
            found += planned.splits
            for one in planned.known.left_out:
                if one not in self._reported:
                    self._reported.add(one)
                    _log.warning("%s", one)
        return found


class _StreamPartition:
    """A log as starting offsets see it: it ends where a stream's reading ends."""

    def __init__(self, log: Log, end: int) -> None:
        self._log = log
        self.log_start_offset = log.log_start_offset
        self.log_end_offset = end

    def find(self, timestamp: int) -> int | None:
        found = find_offset(self._log, timestamp)
        return None if found is None or found.offset >= self.log_end_offset else found.offset

    def missing_before(self, offset: int | None) -> list[MissingOffsets]:
        return self._log.missing(0, offset)
