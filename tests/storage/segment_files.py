"""One segment in an empty folder, batches for it, a disk that refuses, and what is then in the files."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from studies.work_dir import MEMORY
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.formats.names import file_name
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.builder import build_batch_v2
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record, iter_records
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.log_segment import FetchData, LogSegment, RollParams

CONFIG = LogConfig(index_interval_bytes=10, segment_index_bytes=1000)
"""What LogSegmentTest takes: an index entry for every second message or so, and little room for them."""


def open_segment(
    directory: Path, base_offset: int = 0, config: LogConfig = CONFIG, clock: ManualClock | None = None, **options: Any
) -> LogSegment:
    return LogSegment.open(directory, base_offset, config, clock or ManualClock(0), **options)


def messages(offset: int, *values: str, magic: int = 1, timestamp: int | None = None) -> bytes:
    """One message each, uncompressed, from `offset` on; the timestamp is ten times the offset unless it is given."""
    return bytes(
        build_message_set(
            [
                Record(offset + i, 10 * (offset + i) if timestamp is None else timestamp, 0, None, value.encode())
                for i, value in enumerate(values)
            ],
            magic,
        )
    )


def batch(offset: int, timestamps: Sequence[int], *, epoch: int = -1, value: bytes = b"value") -> bytes:
    """One v2 batch of records with these timestamps."""
    return bytes(
        build_batch_v2([Record(offset + i, time, 0, b"key", value) for i, time in enumerate(timestamps)], leader_epoch=epoch)
    )


def put(segment: LogSegment, *parts: bytes) -> None:
    """Append batches, all in one go."""
    data = b"".join(parts)
    headers = list(iter_headers(data))
    segment.append(headers[-1].last_offset, headers, data)


def offsets(fetched: FetchData | None) -> list[int]:
    """The offsets of the records that a read gave."""
    assert fetched is not None
    return offsets_in(fetched.data)


def offsets_in(data: bytes | memoryview) -> list[int]:
    return [record.offset for header in iter_headers(data) for record in iter_records(header, batch_of(header, data))]


def batch_of(header: BatchHeader, data: bytes | memoryview) -> memoryview:
    return memoryview(data)[header.position : header.end_position]


def bytes_of(directory: Path, base_offset: int, suffix: str) -> bytes:
    return (directory / file_name(base_offset, suffix)).read_bytes()


def roll_params(segment: LogSegment, config: LogConfig, offset: int, timestamp: int, now_ms: int, size: int = 100) -> RollParams:
    return RollParams(config.max_segment_ms, config.segment_bytes, timestamp, offset, size, now_ms)


def open_descriptors() -> int:
    """Return how many files this process has open: no sockets, and nothing that waits for the collector of garbage only."""
    gc.collect()
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(
        (link.startswith("/") and not link.startswith(("/dev/", "/proc/"))) or link.startswith(f"{MEMORY}/") for link in links
    )


def full_disk(monkeypatch: pytest.MonkeyPatch, *, room: int, only: str = "", cannot_cut: bool = False) -> Callable[[], None]:
    """Let `pwrite` take `room` more bytes, then refuse; `only` for files whose name ends so. Call what is returned to make room.

    With `cannot_cut`, `ftruncate` fails as well.
    """
    left = room
    real_pwrite, real_ftruncate = os.pwrite, os.ftruncate

    def is_meant(fd: int) -> bool:
        return Path(f"/proc/self/fd/{fd}").readlink().name.endswith(only)

    def pwrite(fd: int, data: Any, position: int) -> int:
        nonlocal left
        if not is_meant(fd):
            return real_pwrite(fd, data, position)
        if left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real_pwrite(fd, memoryview(data)[:left], position)
        left -= written
        return written

    def ftruncate(fd: int, length: int) -> None:
        if cannot_cut and is_meant(fd):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real_ftruncate(fd, length)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(os, "ftruncate", ftruncate)

    def make_room() -> None:
        monkeypatch.setattr(os, "pwrite", real_pwrite)
        monkeypatch.setattr(os, "ftruncate", real_ftruncate)

    return make_room


def short_writes(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let each `pwrite` take a few bytes only."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, memoryview(data)[:most], position))


def log_file(path: Path, *parts: bytes) -> LogFile:
    """A new `.log` with these bytes."""
    log = LogFile.open(path)
    for part in parts:
        log.append(part)
    return log
