"""Checkpoint files: the small text files in which Kafka keeps offsets (spec §7).

::

    0                        version
    2                        number of entries
    flights 0 1200           topic partition offset, in any order
    flights 1 900

An empty file, or one with a single line, has no entries. Any other file that cannot be parsed raises CorruptCheckpointError.
The caller decides whether that is fatal. Kafka continues as if the file were empty, and so does `log_dir`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tidelog.errors import CorruptCheckpointError, StorageError
from tidelog.formats.files import read_whole
from tidelog.formats.large_file import DIRECT_BYTES, write_large
from tidelog.formats.paths.file_path import FilePath
from tidelog.model import TopicPartition

VERSION = 0
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_SHOWN_CHARACTERS = 60


def read_lines(path: FilePath) -> list[list[str]]:
    """Return the fields of each entry; empty if there is no file. Raises CorruptCheckpointError, StorageError."""
    return parse_lines(read_checkpoint(path), path)


def read_checkpoint(path: FilePath) -> bytes:
    """Return a checkpoint's bytes; empty if there is no file. Raises StorageError."""
    try:
        return read_whole(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageError(f"cannot read a checkpoint: {error.strerror}", path=path) from error


def parse_lines(data: bytes, path: FilePath) -> list[list[str]]:
    """Return the fields of each entry in a checkpoint's bytes. Raises CorruptCheckpointError."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError("a checkpoint is not UTF-8", path=path, position=error.start) from None
    if not lines:
        return []
    version = parse_number(lines[0], path, 1)
    if version != VERSION:
        raise CorruptCheckpointError("the checkpoint has an unknown version", path=path, found=version, expected=VERSION)
    if len(lines) == 1:
        return []
    expected = parse_number(lines[1], path, 2)
    entries = [line.split() for line in lines[2:] if line.strip()]
    if len(entries) != expected:
        raise CorruptCheckpointError(
            "the checkpoint's number of entries is wrong", path=path, found=len(entries), expected=expected
        )
    return entries


def write_lines(path: Path, entries: Iterable[str]) -> None:
    """Replace the file's entries: write a temporary file, sync it and rename it. Raises StorageError."""
    replace_file(path, encode_lines(entries))


def encode_lines(entries: Iterable[str]) -> bytes:
    """Return the content of a file with these entries."""
    lines = list(entries)
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(lines)), *lines)).encode()


def replace_file(path: Path, data: bytes | bytearray | memoryview, *, syncs: bool = True, temporary: Path | None = None) -> None:
    """Write `data` to `temporary`, by default ``<path>.tmp``, sync it and rename it to `path`, so that a reader sees either the
    whole old file or the whole new one.

    Without `syncs` the caller must sync the file and its folder before anything relies on them. If another process may write the
    same file at the same time, each process must pass a different `temporary`.
    """
    temporary = Path(f"{path}.tmp") if temporary is None else temporary
    try:
        try:
            if len(data) >= DIRECT_BYTES and not syncs:
                write_large(temporary, data)
            else:
                with temporary.open("wb") as file:
                    file.write(data)
                    if syncs:
                        file.flush()
                        os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            # A full disk must not leave a partial file.
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        if syncs:
            sync_directory(path.parent)
    except OSError as error:
        raise StorageError(f"cannot write a file: {error.strerror}", path=path) from error


def sync_directory(directory: Path) -> None:
    """Make renames and creations in `directory` durable."""
    sync_file(directory)  # a directory is a file, too


def sync_file(path: Path) -> None:
    """Sync a file, including what other processes wrote to it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def parse_number(text: str, path: FilePath, line: int) -> int:
    """Parse an int64 in a text file. Raises CorruptCheckpointError, which names the line."""
    if _NUMBER.fullmatch(text.strip()):
        number = int(text)
        if -(2**63) <= number < 2**63:
            return number
    shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    raise CorruptCheckpointError(f"line {line} is not a 64-bit number", path=path, found=repr(shown))


def read_offset_checkpoint(path: FilePath) -> dict[TopicPartition, int]:
    """Return the offset of each partition in a recovery-point, replication (high watermark), log-start or cleaner checkpoint.

    Raises CorruptCheckpointError, StorageError.
    """
    offsets = {}
    for line, fields in enumerate(read_lines(path), start=3):
        if len(fields) != 3:
            raise CorruptCheckpointError(
                f"line {line} of the checkpoint has the wrong number of fields", path=path, found=len(fields), expected="3 fields"
            )
        topic, partition, offset = fields
        offsets[TopicPartition(topic, parse_number(partition, path, line))] = parse_number(offset, path, line)
    return offsets


def write_offset_checkpoint(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint."""
    write_lines(path, (f"{key.topic} {key.partition} {offset}" for key, offset in offsets.items()))
