"""The indexes and time maps of a data folder built anew, partition by partition, several segments at a time.

| where | what is written |
|---|---|
| in place | files that are missing, or differ from what the log says; each appears whole, or stays as it was |
| in another folder | all files, below ``<topic>-<partition>/``; the data folder is only read |

Logs are never touched: what follows a batch that is wrong is not indexed, and told. Whoever writes in place holds the folder's
lock (`dir_lock`); nobody may be appending then. The rules are those of `index_rebuild` and `log.time_map_builder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import CorruptDataError, StorageError
from tidelog.log import names
from tidelog.log.checkpoints import replace_file, sync_directory
from tidelog.log.files import read_whole
from tidelog.log.producer_state import ProducerState
from tidelog.log.segment import Segment
from tidelog.log.time_map import TimeMap
from tidelog.log.time_map_builder import TimeMapBuilder, add_batches
from tidelog.log.time_map_file import replace_time_map
from tidelog.storage.index_tools.in_order import in_order
from tidelog.storage.index_tools.index_content import index_path
from tidelog.storage.index_tools.index_finding import Finding
from tidelog.storage.index_tools.index_rebuild import aborted_in, state_at
from tidelog.storage.index_tools.index_verify import DEFAULT_INTERVAL_BYTES, PartitionToVerify, guess_interval, log_faults
from tidelog.storage.loading.log_scan import Progress, ScannedLog, scan_log


class RebuiltFile(NamedTuple):
    """One file: how long it was (None: it was missing) and is (None: it was removed, for nothing belongs there)."""

    path: Path
    old_bytes: int | None
    new_bytes: int | None
    is_right: bool
    """Whether it was right already."""


@dataclass
class RebuiltPartition:
    """What was done for a partition."""

    topic: str
    partition: int
    directory: Path
    """Where the files are."""
    interval_bytes: int
    segments: int = 0
    size_bytes: int = 0
    files: list[RebuiltFile] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """What is wrong with the logs."""

    @property
    def changed(self) -> list[RebuiltFile]:
        """Return the files that were there and were not right."""
        return [file for file in self.files if not file.is_right and file.old_bytes is not None]

    @property
    def new(self) -> list[RebuiltFile]:
        """Return the files that were not there."""
        return [file for file in self.files if not file.is_right and file.old_bytes is None]


class RebuildOptions(NamedTuple):
    """How a folder is rebuilt."""

    out_dir: Path | None = None
    """Where the files go; None stands for their own places."""
    interval_bytes: int | None = None
    """None: as the indexes that are there were written."""
    time_maps: bool = True
    threads: int = 1
    progress: Progress | None = None
    """Hears, from the walking threads, how many bytes more of the logs were walked."""


def rebuild_partitions(partitions: Iterable[PartitionToVerify], options: RebuildOptions) -> Iterator[RebuiltPartition]:
    """Yield what was done for each partition, in order, when its files are there.

    Raises StorageError, SegmentChangedError for a log that goes or shrinks meanwhile; what was written till then stays.
    """
    waiting: list[_Partition] = []

    def segments() -> Iterator[_Segment]:
        for partition in partitions:
            opened = _Partition(partition, options)
            waiting.append(opened)
            yield from opened.segments

    for rebuilt in in_order(_rebuild, segments(), options.threads):
        while waiting[0] is not rebuilt.segment.partition:
            yield waiting.pop(0).result
        waiting[0].take(rebuilt)
    for partition in waiting:
        yield partition.result


class _Segment(NamedTuple):
    """A segment that is to be gone through, on any thread."""

    partition: _Partition
    segment: Segment


class _Rebuilt(NamedTuple):
    segment: _Segment
    scanned: ScannedLog
    files: list[RebuiltFile]
    findings: list[Finding]


class _Partition:
    """One partition on its way."""

    def __init__(self, partition: PartitionToVerify, options: RebuildOptions) -> None:
        self.options = options
        log = partition.open()
        likely = partition.likely_interval_bytes
        preferred = [DEFAULT_INTERVAL_BYTES] if likely is None else [likely, DEFAULT_INTERVAL_BYTES]
        interval = options.interval_bytes
        self.interval_bytes = guess_interval(log.segments, preferred) if interval is None else interval
        self.directory = log.directory if options.out_dir is None else options.out_dir / log.directory.name
        self.segments = [_Segment(self, segment) for segment in log.segments]
        self.result = RebuiltPartition(log.topic, log.partition, self.directory, self.interval_bytes)
        self._state: ProducerState | None = None
        if options.out_dir is not None:
            _make_folder(self.directory)

    def target(self, segment: Segment, suffix: str) -> Path:
        """Return where a file of a segment belongs."""
        path = index_path(segment.log_path, suffix)
        return path if self.options.out_dir is None else self.directory / names.file_name(segment.base_offset, suffix)

    def take(self, rebuilt: _Rebuilt) -> None:
        """Take the next segment's outcome, and write its aborted transactions."""
        segment, result = rebuilt.segment.segment, self.result
        if self._state is None:
            self._state = state_at(segment.log_path)
        aborted = aborted_in(segment.file, rebuilt.scanned, self._state)
        segment.close()
        result.segments += 1
        result.size_bytes += rebuilt.scanned.size_bytes
        result.findings += rebuilt.findings
        transactions = b"".join(txn.to_bytes() for txn in aborted)
        result.files += [*rebuilt.files, *_put(self.target(segment, names.TXN_INDEX_SUFFIX), transactions or None)]


def _rebuild(one: _Segment) -> _Rebuilt:
    segment, partition = one.segment, one.partition
    options = partition.options
    scanned = scan_log(segment.file, segment.size_bytes, segment.base_offset, partition.interval_bytes, progress=options.progress)
    files: list[RebuiltFile] = []
    # An empty segment's indexes are made with their first entry.
    for suffix, data in ((names.INDEX_SUFFIX, scanned.offset_entries), (names.TIME_INDEX_SUFFIX, scanned.time_entries)):
        path = partition.target(segment, suffix)
        if scanned.batches or path.exists():
            files += _put(path, data)
    findings = log_faults(segment, segment.size_bytes, scanned)
    if options.time_maps:
        builder = TimeMapBuilder(segment.base_offset)
        try:
            add_batches(builder, segment.file, scanned.valid_bytes)
            files += _put_time_map(partition.target(segment, names.TIME_MAP_SUFFIX), builder.build())
        except CorruptDataError as error:
            findings.append(Finding(segment.log_path, f"no time map: {error.message}", position=error.position))
    return _Rebuilt(one, scanned, files, findings)


def _put(path: Path, data: bytes | None) -> Iterator[RebuiltFile]:
    """Let a file hold `data`, or let there be none; yield what that took, nothing if there was no file and is none."""
    old = _content(path)
    if old is None and data is None:
        return
    if data is None:
        try:
            path.unlink()
            sync_directory(path.parent)
        except OSError as error:
            raise StorageError(f"cannot remove an index: {error.strerror or error}", path=path) from error
    elif data != old:
        replace_file(path, data)
    yield RebuiltFile(path, None if old is None else len(old), None if data is None else len(data), data == old)


def _put_time_map(path: Path, time_map: TimeMap | None) -> Iterator[RebuiltFile]:
    """The same for a time map, which need not be synced."""
    data = None if time_map is None else time_map.to_bytes()
    if time_map is None or data is None:
        yield from _put(path, None)
        return
    old = _content(path)
    if data != old:
        replace_time_map(path, time_map)
    yield RebuiltFile(path, None if old is None else len(old), len(data), data == old)


def _content(path: Path) -> bytes | None:
    try:
        return read_whole(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read a file: {error.strerror or error}", path=path) from error


def _make_folder(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make a folder: {error.strerror or error}", path=directory) from error
