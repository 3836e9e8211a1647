"""Passes batches from tasks to the driver: in the commit message if they are small, otherwise in a file.

A task writes nothing to the target, so it may fail, be retried or run twice. Only the driver's commit counts.

    file: the batches, one after the other, in the wire format, and nothing else; the index is in the commit message
    name: tidelog-spool-<writer>-<epoch>-<random>.batches; in a batch write, <epoch> is `batch`

The folder is `spoolDir`, to which tasks and driver must both have access. The default is the machine's folder for temporary
files, which suffices on a single machine. A file is removed after its commit or abort. The query's next commit removes files of a
killed task or driver (`sweep`). Each batch is checked when it is read (size and checksum), so a lost or damaged file is an error.
Nothing is synced, because a restarted driver runs its tasks again.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import uuid
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import IO

from tidelog.errors import CorruptDataError, StorageError
from tidelog.model import TopicPartition
from tidelog.records.batch import check_crc, read_header

INLINE_BYTES = 1 << 20
"""The most bytes that a commit message may have. Larger task results would go through Spark's block manager."""

_BUFFER_BYTES = 1 << 20
_SUFFIX = ".batches"


@dataclass(frozen=True, slots=True)
class SpooledBatches:
    """One task's batches, in order: either in `data` or in the file `path`. Picklable."""

    keys: tuple[TopicPartition, ...]
    """The partitions, without duplicates."""
    key_numbers: array[int]
    """int32, for each batch: the index of its partition in `keys`."""
    sizes: array[int]
    """int32, for each batch: its size in bytes."""
    record_count: int
    data: bytes | None
    path: str | None

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes)

    def batches(self) -> Iterator[tuple[TopicPartition, bytearray]]:
        """Yield each batch with its partition, in the order of the rows. Batches have base offset 0.

        Raises StorageError if the file is gone, CorruptDataError if its content is not what the task wrote.
        """
        if self.path is None:
            data, at = memoryview(self.data or b""), 0
            for number, size in zip(self.key_numbers, self.sizes, strict=True):
                yield self.keys[number], bytearray(data[at : at + size])
                at += size
            return
        try:
            file = Path(self.path).open("rb")  # noqa: SIM115 -- closed below
        except FileNotFoundError:
            raise StorageError(
                "a task's spool file is missing: the option spoolDir must name a folder shared by tasks and driver",
                path=self.path,
            ) from None
        except OSError as error:
            raise StorageError(f"cannot open a task's spool file: {error.strerror}", path=self.path) from error
        with file:
            at = 0
            for number, size in zip(self.key_numbers, self.sizes, strict=True):
                yield self.keys[number], self._checked(file, at, size)
                at += size

    def _checked(self, file: BufferedReader, at: int, size: int) -> bytearray:
        batch = bytearray(size)
        try:
            read = file.readinto(batch)
        except OSError as error:
            raise StorageError(f"cannot read a task's spool file: {error.strerror}", path=self.path) from error
        if read != size:
            raise CorruptDataError("a task's spool file is truncated", path=self.path, position=at, found=read, expected=size)
        check_crc(read_header(batch, path=self.path, position=at), batch, path=self.path)
        return batch

    def delete(self) -> None:
        """Remove the spool file, if there is one."""
        if self.path is not None:
            with suppress(OSError):
                Path(self.path).unlink()


class Spool:
    """Collects a task's batches. Use it as a context manager: leaving the block without `finish` removes the file."""

    def __init__(self, directory: str | None, writer: str, epoch: int | None, *, inline_bytes: int = INLINE_BYTES) -> None:
        self._directory = Path(directory or tempfile.gettempdir())
        self._name = f"{_prefix(writer)}{'batch' if epoch is None else epoch}-{uuid.uuid4().hex}{_SUFFIX}"
        self._inline_bytes = inline_bytes
        self._numbers: dict[TopicPartition, int] = {}
        self._key_numbers = array("i")
        self._sizes = array("i")
        self._record_count = 0
        self._inline = bytearray()
        self._file: IO[bytes] | None = None
        self._is_finished = False

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None and not self._is_finished:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self.path.unlink()

    @property
    def path(self) -> Path:
        return self._directory / self._name

    def add(self, key: TopicPartition, batch: bytearray) -> None:
        """Add a finished v2 batch. Raises StorageError."""
        self._key_numbers.append(self._numbers.setdefault(key, len(self._numbers)))
        self._sizes.append(len(batch))
        self._record_count += int.from_bytes(batch[57:61], "big")
        try:
            if self._file is None and len(self._inline) + len(batch) > self._inline_bytes:
                self._directory.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("xb", buffering=_BUFFER_BYTES)
                self._file.write(self._inline)
                self._inline = bytearray()
            if self._file is None:
                self._inline += batch
            else:
                self._file.write(batch)
        except OSError as error:
            raise StorageError(f"cannot write a spool file: {error.strerror}", path=self.path) from error

    def finish(self) -> SpooledBatches:
        """Complete the file, and return the batches that were added."""
        path = None
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                raise StorageError(f"cannot write a spool file: {error.strerror}", path=self.path) from error
            path = os.fspath(self.path)
        self._is_finished = True
        keys = tuple(self._numbers)
        data = bytes(self._inline) if path is None else None
        return SpooledBatches(keys, self._key_numbers, self._sizes, self._record_count, data, path)


def sweep(directory: str | None, writer: str, epoch: int) -> None:
    """Remove the spool files of this writer's tasks for epochs up to and including `epoch`. They are no longer needed."""
    prefix = _prefix(writer)
    pattern = re.compile(rf"{re.escape(prefix)}(\d+)-[0-9a-f]{{32}}{re.escape(_SUFFIX)}")
    with suppress(OSError), os.scandir(directory or tempfile.gettempdir()) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match is not None and int(match[1]) <= epoch:
                with suppress(OSError):
                    Path(entry.path).unlink()


def _prefix(writer: str) -> str:
    # A transactional id may have characters that are not allowed in a file name.
    return f"tidelog-spool-{hashlib.sha256(writer.encode()).hexdigest()[:16]}-"
