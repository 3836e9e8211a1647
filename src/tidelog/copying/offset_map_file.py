"""The file of an offset map: a sequence of chunks with checksums. A crash can only tear the last chunk.

``<folder>/<topic>-<partition>.offsetmap``, named by the source's partition. All numbers are little-endian.

| bytes of a chunk | |
|---|---|
| 0..3 | length of the bytes after the checksum, uint32 |
| 4..7 | CRC-32C of those bytes |
| 8 | kind |
| 9..16 | writer: a random number, chosen each time the file is opened |
| 17.. | content |

| kind | content | meaning |
|---|---|---|
| 0 head | JSON: source topic and partition, target topic, `start_offset` | only the first chunk |
| 1 open | int8 verdict, int64 position | a writer begins at the position; the staged chunk counts if the verdict is 1 |
| 2 stage | int64 next source offset, then runs | a chunk has been appended to the target, and will be committed |
| 3 confirm | | the staged chunk counts |
| 4 discard | | the staged chunk does not count |

A run is int64 source offset, last source offset; int32 target partition; int64 target offset; int32 record count; int64 largest
timestamp.

Only the chunks of the last writer that opened the file count. A zombie may continue staging, but its transaction is fenced and
never commits. A staged chunk at the end is undecided: only the target knows whether it was committed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from tidelog.errors import CorruptDataError, StorageError
from tidelog.formats.files import read_whole
from tidelog.model import NO_TIMESTAMP, TopicPartition

SUFFIX = ".offsetmap"
VERSION = 1

HEAD, OPEN, STAGE, CONFIRM, DISCARD = range(5)

UNKNOWN_COUNT = -1
"""The record count of a run whose offsets were copied while no map was kept."""

_FRAME = struct.Struct("<II")
_START = struct.Struct("<BQ")
_OPEN = struct.Struct("<bq")
_POSITION = struct.Struct("<q")
_RUN = struct.Struct("<qqiqiq")


class MapRun(NamedTuple):
    """Consecutive records of a source partition whose copies are in a target partition, in the same order and without gaps.

    If `record_count` equals the number of source offsets, the run is linear: each target offset differs from its source offset by
    the same number.
    """

    source_offset: int
    last_source_offset: int
    target_partition: int
    target_offset: int
    record_count: int
    max_timestamp: int = NO_TIMESTAMP
    """The largest timestamp of the source records, epoch ms."""

    @property
    def is_linear(self) -> bool:
        return self.record_count == self.last_source_offset - self.source_offset + 1

    @property
    def next_target_offset(self) -> int:
        return self.target_offset + max(0, self.record_count)


class MapHead(NamedTuple):
    """The partition and target topic of a map. Copying began at `start_offset`; earlier records of the source are not in the
    target.
    """

    source: TopicPartition
    target_topic: str
    start_offset: int


class MapState(NamedTuple):
    """The content of a file, from its first to its last whole chunk."""

    head: MapHead
    runs: list[MapRun]
    next_source_offset: int
    """All source offsets below this one have been copied or skipped."""
    staged: list[MapRun]
    staged_position: int | None
    """The value of `next_source_offset` if the staged chunk counts; None without a staged chunk."""
    end_position: int
    """The file position after the last whole chunk."""


def map_path(folder: Path, source: TopicPartition) -> Path:
    """Return the path of a source partition's map."""
    return folder / f"{source.topic}-{source.partition}{SUFFIX}"


def head_chunk(head: MapHead) -> bytes:
    """Return the first chunk of a file."""
    content = {
        "version": VERSION,
        "source_topic": head.source.topic,
        "source_partition": head.source.partition,
        "target_topic": head.target_topic,
        "start_offset": head.start_offset,
    }
    return chunk(HEAD, 0, json.dumps(content, separators=(",", ":")).encode())


def open_chunk(writer: int, counts: bool, position: int) -> bytes:
    """Return the chunk that a writer begins with."""
    return chunk(OPEN, writer, _OPEN.pack(counts, position))


def stage_chunk(writer: int, next_source_offset: int, runs: Iterable[MapRun]) -> bytes:
    """Return the chunk that stages runs."""
    return chunk(STAGE, writer, _POSITION.pack(next_source_offset) + b"".join(_RUN.pack(*run) for run in runs))


def chunk(kind: int, writer: int, content: bytes = b"") -> bytes:
    """Return a chunk with its checksum."""
    body = _START.pack(kind, writer) + content
    return _FRAME.pack(len(body), crc32c(body)) + body


def read_state(path: Path) -> MapState | None:
    """Read a map. Return None if the file does not exist yet. Raises CorruptDataError, StorageError."""
    try:
        data = read_whole(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read an offset map: {error.strerror or error}", path=path) from error
    chunks = iter(_chunks(data, path))
    first = next(chunks, None)
    if first is None or first[1] != HEAD:
        raise CorruptDataError("the offset map has no header", path=path, position=0)
    end, head = first[0], _read_head(first[3], path)
    runs: list[MapRun] = []
    next_source_offset = head.start_offset
    owner: int | None = None
    staged: tuple[int, list[MapRun]] | None = None
    for end, kind, writer, content in chunks:  # noqa: B007  # the last end is used below
        if kind == OPEN:
            counts, position = _OPEN.unpack(content)
            if counts and staged is not None:
                next_source_offset = _accept(runs, next_source_offset, staged)
            if position > next_source_offset:
                add_run(runs, _gap(runs, next_source_offset, position))
                next_source_offset = position
            owner, staged = writer, None
        elif writer != owner:
            continue
        elif kind == STAGE:
            staged = _POSITION.unpack_from(content)[0], [MapRun(*run) for run in _RUN.iter_unpack(content[_POSITION.size :])]
        elif kind == CONFIRM and staged is not None:
            next_source_offset = _accept(runs, next_source_offset, staged)
            staged = None
        elif kind == DISCARD:
            staged = None
    position, staged_runs = staged or (None, [])
    return MapState(head, runs, next_source_offset, staged_runs, position, end)


def add_run(runs: list[MapRun], run: MapRun) -> None:
    """Add a run to `runs`; merge it with the last run if it continues that run."""
    if runs:
        last = runs[-1]
        if run.record_count == UNKNOWN_COUNT:  # The target offsets are unknown, but they are after those of the previous run.
            run = run._replace(target_offset=max(run.target_offset, last.next_target_offset))
        elif (
            last.is_linear
            and run.is_linear
            and last.target_partition == run.target_partition
            and last.last_source_offset + 1 == run.source_offset
            and last.next_target_offset == run.target_offset
            and last.record_count + run.record_count < 2**31
        ):
            run = MapRun(
                last.source_offset,
                run.last_source_offset,
                run.target_partition,
                last.target_offset,
                last.record_count + run.record_count,
                max(last.max_timestamp, run.max_timestamp),
            )
            runs.pop()
    runs.append(run)


def _accept(runs: list[MapRun], next_source_offset: int, staged: tuple[int, list[MapRun]]) -> int:
    position, staged_runs = staged
    for run in staged_runs:
        add_run(runs, run)
    return max(next_source_offset, position)


def _gap(runs: list[MapRun], start: int, end: int) -> MapRun:
    """Return a run for source offsets that were copied to unknown target offsets."""
    if not runs:
        return MapRun(start, end - 1, 0, 0, UNKNOWN_COUNT)
    return MapRun(start, end - 1, runs[-1].target_partition, runs[-1].next_target_offset, UNKNOWN_COUNT)


def _chunks(data: bytes, path: Path) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield (end, kind, writer, content) of each whole chunk, up to a torn last chunk. Raises CorruptDataError if whole chunks
    follow a torn chunk.
    """
    position = 0
    while position + _FRAME.size <= len(data):
        length, crc = _FRAME.unpack_from(data, position)
        start, end = position + _FRAME.size, position + _FRAME.size + length
        if end > len(data) or length < _START.size:
            if length < _START.size and any(data[position:]):
                raise CorruptDataError("a chunk of an offset map is too short", path=path, position=position, found=length)
            return  # The chunk is incomplete, or a crash left zeros.
        body = data[start:end]
        if crc32c(body) != crc:
            if end == len(data):
                return
            raise CorruptDataError(
                "the checksum of a chunk of an offset map is wrong", path=path, position=position, expected=crc
            )
        kind, writer = _START.unpack_from(body)
        yield end, kind, writer, body[_START.size :]
        position = end


def _read_head(content: bytes, path: Path) -> MapHead:
    try:
        head = json.loads(content)
        version = head["version"]
        if version == VERSION:
            source = TopicPartition(head["source_topic"], head["source_partition"])
            return MapHead(source, head["target_topic"], head["start_offset"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError("the header of an offset map is invalid", path=path, position=0) from error
    raise CorruptDataError(
        "the version of an offset map is not supported", path=path, position=0, found=version, expected=VERSION
    )
