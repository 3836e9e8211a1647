"""The offset map of a copying job: the target offsets of a source partition's records.

A folder has a file for each source partition (`offset_map_file`). The copier appends to it along with the target's transactions:

| step | the target | the map | after a crash here |
|---|---|---|---|
| 1 | batches appended, offsets known | | the transaction is aborted; nothing is recorded |
| 2 | | `stage(runs)`, synced | the target's committed position decides |
| 3 | the transaction commits, with the position | | the target's committed position decides |
| 4 | | `confirm()` | the chunk counts |

A writer calls `settle` first, after it has fenced older writers and read the committed position. From then on, older writers'
staged chunks are void. Readers ignore staged chunks unless they are given the committed position.

| a source offset | its target offset | is exact |
|---|---|---|
| in a linear run | at the same distance from the run's beginning | yes |
| between two runs, where nothing was copied (markers, aborted records, gaps) | the beginning of the later run | yes |
| in a run with gaps, after its first record | the beginning of the run | no: earlier records of the run may be read, too |
| after the last run, up to the copying position | after the last run's records | yes |
| after the copying position | after the last run's records | no: the records in between are missing in the target |
| before copying began | the beginning of the first run | no: those records are not in the target |

Reading from the target offset, exact or not, skips none of the copied records at or after the source offset.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tidelog.copying.offset_map_file import (
    CONFIRM,
    DISCARD,
    SUFFIX,
    MapHead,
    MapRun,
    add_run,
    chunk,
    head_chunk,
    map_path,
    open_chunk,
    read_state,
    stage_chunk,
)
from tidelog.errors import InvalidArgumentError, NotFoundError, StorageError
from tidelog.formats.checkpoints import replace_file
from tidelog.model import TopicPartition

__all__ = ["MapRun", "OffsetMap", "OffsetMapWriter", "PartitionMap", "TargetPosition"]


class TargetPosition(NamedTuple):
    """Where to read in the target, and whether that is exact; see the second table of the module's docstring."""

    offset: int
    is_exact: bool


class PartitionMap:
    """The map of one source partition, in memory."""

    def __init__(self, head: MapHead, runs: list[MapRun], next_source_offset: int) -> None:
        self.source = head.source
        self.target_topic = head.target_topic
        self.start_offset = head.start_offset
        """The source offset at which copying began."""
        self.runs = runs
        """The runs in order of source offsets. Source offsets between two runs were not copied."""
        self.next_source_offset = next_source_offset
        """The source offset that copying has reached."""
        self._last_offsets = [run.last_source_offset for run in runs]

    @property
    def end_target_offset(self) -> int:
        """The target offset after the last copied record; 0 if nothing was copied."""
        return self.runs[-1].next_target_offset if self.runs else 0

    def target_of(self, source_offset: int) -> TargetPosition:
        """Return the target offset from which to read the copies of all records from `source_offset` on."""
        place = bisect_left(self._last_offsets, source_offset)
        if place == len(self.runs):
            is_known = bool(self.runs) and source_offset <= self.next_source_offset
            return TargetPosition(self.end_target_offset, is_known and self.runs[-1].record_count >= 0)
        run = self.runs[place]
        if source_offset <= run.source_offset:
            is_known = run.record_count >= 0 or (place > 0 and self.runs[place - 1].record_count >= 0)
            return TargetPosition(run.target_offset, is_known and source_offset >= self.start_offset)
        if run.is_linear:
            return TargetPosition(run.target_offset + source_offset - run.source_offset, True)
        return TargetPosition(run.target_offset, False)

    def behind(self, source_offset: int) -> int | None:
        """Return a target offset above the copies of all records below `source_offset`; None if it is unknown.

        If `target_of` is exact, both return the same offset.
        """
        place = bisect_left(self._last_offsets, source_offset)
        if place == len(self.runs):
            return self.end_target_offset if self.runs and self.runs[-1].record_count >= 0 else None
        run = self.runs[place]
        before_is_known = place == 0 or self.runs[place - 1].record_count >= 0
        if source_offset <= run.source_offset and (run.record_count >= 0 or before_is_known):
            return run.target_offset
        if run.record_count >= 0:
            return run.target_offset + source_offset - run.source_offset if run.is_linear else run.next_target_offset
        return next((later.target_offset for later in self.runs[place + 1 :] if later.record_count >= 0), None)


class OffsetMap:
    """All maps of a folder, each read when it is first needed."""

    def __init__(self, folder: Path, settled: Mapping[TopicPartition, int]) -> None:
        self._folder = folder
        self._settled = settled
        self._parts: dict[TopicPartition, PartitionMap] = {}

    @classmethod
    def open(cls, folder: str | os.PathLike[str], settled: Mapping[TopicPartition, int] | None = None) -> OffsetMap:
        """Open a folder of maps. `settled` has the positions committed in the target, by source partition: staged chunks below a
        position count, even if they are not confirmed. Raises NotFoundError.
        """
        path = Path(folder)
        if not path.is_dir():
            raise NotFoundError("the folder of offset maps does not exist", path=path)
        return cls(path, settled or {})

    def partitions(self) -> list[TopicPartition]:
        """Return the source partitions that have a map. Raises StorageError."""
        try:
            names = [path.name.removesuffix(SUFFIX) for path in self._folder.iterdir() if path.name.endswith(SUFFIX)]
        except OSError as error:
            raise StorageError(f"cannot list the folder of offset maps: {error.strerror or error}", path=self._folder) from error
        split = (name.rpartition("-") for name in names)
        return sorted(TopicPartition(topic, int(number)) for topic, dash, number in split if dash and number.isdecimal())

    def partition(self, source: TopicPartition) -> PartitionMap:
        """Return the map of a source partition.

        Raises NotFoundError, CorruptDataError, StorageError; InvalidArgumentError if the file belongs to a different partition.
        """
        found = self._parts.get(source)
        if found is None:
            path = map_path(self._folder, source)
            state = read_state(path)
            if state is None:
                raise NotFoundError(f"there is no offset map for {source.topic}-{source.partition}", path=path)
            _check_source(state.head, source, path)
            runs, position = state.runs, state.next_source_offset
            if state.staged_position is not None and self._settled.get(source, -1) >= state.staged_position:
                position = state.staged_position
                for run in state.staged:
                    add_run(runs, run)
            found = self._parts[source] = PartitionMap(state.head, runs, position)
        return found

    def target_of(self, topic: str, partition: int, source_offset: int) -> TargetPosition:
        """Return the target offset for an offset of a source partition, and whether it is exact. Raises the errors of
        `partition`.
        """
        return self.partition(TopicPartition(topic, partition)).target_of(source_offset)


class OffsetMapWriter:
    """Appends to the map of one source partition. Not thread-safe. Call `settle` first, then `stage` and `confirm` in turn."""

    def __init__(
        self, folder: str | os.PathLike[str], source: TopicPartition, target_topic: str, *, start_offset: int = 0
    ) -> None:
        """Create or open a map. In a new map, `start_offset` is the source offset at which copying begins.

        Raises InvalidArgumentError if the map belongs to a different partition or target topic, CorruptDataError, StorageError.
        """
        self._path = map_path(Path(folder), source)
        self._writer = secrets.randbits(64)
        self._fd = -1
        with _storage_error(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        state = read_state(self._path)
        if state is None:
            replace_file(self._path, head_chunk(MapHead(source, target_topic, start_offset)))
            state = read_state(self._path)
            assert state is not None
        _check_source(state.head, source, self._path)
        if state.head.target_topic != target_topic:
            raise InvalidArgumentError(
                "the offset map belongs to a different target topic",
                path=self._path,
                found=target_topic,
                expected=state.head.target_topic,
            )
        self._state = state
        self._next_source_offset = state.next_source_offset
        self._staged: int | None = None
        self._is_settled = False
        self._end_position = state.end_position
        with _storage_error(self._path):
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    @property
    def next_source_offset(self) -> int:
        """The source offset that copying has reached, according to the map. Before `settle` it does not include a staged
        chunk.
        """
        return self._next_source_offset

    @property
    def end_target_offset(self) -> int:
        """The target offset after the last confirmed record when the map was opened; 0 if there was none."""
        return self._state.runs[-1].next_target_offset if self._state.runs else 0

    @property
    def is_new(self) -> bool:
        """Whether nothing has been copied with this map yet."""
        return not self._state.runs and not self._state.staged and self._next_source_offset == self._state.head.start_offset

    def settle(self, committed: int | None) -> int:
        """Decide whether an earlier writer's staged chunk counts, and return the source offset to continue from.

        `committed` is the target's committed position. If it is None (a new job, or the target has dropped the position), the
        map's position is used. If the target's position is ahead of the map's, the offsets between them are recorded as copied to
        unknown target offsets. Raises InvalidArgumentError if the target's position is below a confirmed chunk's, or if it is
        missing but needed to settle a staged chunk.
        """
        state = self._state
        counts = False
        if state.staged_position is not None:
            if committed is None and state.runs:
                raise InvalidArgumentError(
                    "the target has lost the position of an interrupted copy: it is unknown whether the last chunk was committed",
                    path=self._path,
                    expected=f"{self._next_source_offset} or {state.staged_position}",
                )
            counts = committed is not None and committed >= state.staged_position
        position = state.staged_position if counts and state.staged_position is not None else self._next_source_offset
        if committed is not None and committed < self._next_source_offset:
            raise InvalidArgumentError(
                "the target's committed position is below the position confirmed in the offset map",
                path=self._path,
                found=committed,
                expected=self._next_source_offset,
            )
        self._next_source_offset = max(position, committed or 0)
        with _storage_error(self._path):
            if os.fstat(self._fd).st_size > self._end_position:
                os.ftruncate(self._fd, self._end_position)  # Remove a chunk torn by a crash.
        self._append(open_chunk(self._writer, counts, self._next_source_offset))
        self._is_settled = True
        return self._next_source_offset

    def stage(self, runs: Iterable[MapRun], next_source_offset: int | None = None) -> None:
        """Record a chunk that is about to be committed, and sync the file. `next_source_offset` is the position committed with
        it, by default the offset after the last run. Raises InvalidArgumentError if the chunk does not continue the map,
        StorageError.
        """
        noted: list[MapRun] = []
        position = self._next_source_offset
        for run in runs:
            if run.source_offset < position or run.last_source_offset < run.source_offset:
                raise InvalidArgumentError(
                    "a run of the offset map overlaps the previous run",
                    path=self._path,
                    found=run,
                    expected=f"source offset {position} or later",
                )
            position = run.last_source_offset + 1
            add_run(noted, run)
        if next_source_offset is not None:
            if next_source_offset < position:
                raise InvalidArgumentError(
                    "the position to commit is below the end of the runs",
                    path=self._path,
                    found=next_source_offset,
                    expected=position,
                )
            position = next_source_offset
        if not self._is_settled or self._staged is not None:
            raise InvalidArgumentError("the offset map is not ready: call settle, confirm or discard first", path=self._path)
        self._append(stage_chunk(self._writer, position, noted))
        self._staged = position

    def confirm(self) -> None:
        """Record that the staged chunk was committed. The file is not synced, because the target stores the same fact. Raises
        StorageError.
        """
        if self._staged is not None:
            self._append(chunk(CONFIRM, self._writer), sync=False)
            self._next_source_offset, self._staged = self._staged, None

    def discard(self) -> None:
        """Record that the staged chunk was aborted. Raises StorageError."""
        if self._staged is not None:
            self._append(chunk(DISCARD, self._writer))
            self._staged = None

    def close(self) -> None:
        """Close the file. A staged chunk remains undecided, as after a crash."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> OffsetMapWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _append(self, data: bytes, *, sync: bool = True) -> None:
        with _storage_error(self._path):
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(self._fd, left) :]
                if sync:
                    _sync(self._fd)
            except OSError:
                # The disk may be full: remove the incomplete chunk, so that the next chunk does not follow it.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self._end_position)
                raise
            self._end_position += len(data)


def _check_source(head: MapHead, source: TopicPartition, path: Path) -> None:
    """Raise InvalidArgumentError if the file with this name is the map of a different partition. Its offsets would be wrong
    here.
    """
    if head.source != source:
        raise InvalidArgumentError(
            "the offset map belongs to a different partition", path=path, found=f"{head.source.topic}-{head.source.partition}"
        )


def _sync(fd: int) -> None:
    # macOS has no fdatasync.
    (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(fd)


@contextlib.contextmanager
def _storage_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write an offset map: {error.strerror or error}", path=path) from error
