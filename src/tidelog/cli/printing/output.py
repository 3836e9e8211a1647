"""The destination of an answer: standard output, or a file that gets its name when it is complete.

A file is written under another name and renamed at the end, so that readers never see a part of it, and a failed run leaves the
old file. Anything but a regular file (a named pipe, `/dev/null`) is written directly. Files inside the data folder that is read
are refused, because a command must not change its source. A write error is a StorageError that names the file, except that a
closed pipe is a BrokenPipeError, which ends the command quietly.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import click

from tidelog.cli.printing import notices
from tidelog.cli.printing.terminal import stdout_is_terminal
from tidelog.errors import InvalidArgumentError, StorageError

BUFFER_BYTES = 1 << 18

STDOUT = "-"

Result = TypeVar("Result")


@contextmanager
def open_output(target: str | None, *, format_name: str, binary: bool, data_dir: str | None) -> Iterator[BinaryIO]:
    """Open standard output (`target` None or "-") or the file `target` for bytes; the file is in place when the block ends
    without an error.

    Raises UsageError if a binary format would go to a terminal, InvalidArgumentError for a target inside `data_dir`, StorageError
    if writing fails, and BrokenPipeError if the reader of a pipe is gone.
    """
    if target is None or target == STDOUT:
        yield from _standard_output(format_name, binary)
        return
    # The path is not resolved: only the system can follow /dev/stdout and similar links.
    try:
        mode = os.stat(target).st_mode  # noqa: PTH116
    except FileNotFoundError:
        mode = None
    except OSError as error:
        raise _refused(error, target) from error
    if mode is not None and stat.S_ISDIR(mode):
        raise StorageError("the output is a folder", path=target)
    if mode is not None and not stat.S_ISREG(mode):
        descriptor = _or_refused(target, lambda: os.open(target, os.O_WRONLY | os.O_CLOEXEC))
        yield from _buffered(descriptor, target)
        return
    path = Path(os.path.realpath(target))
    if data_dir is not None and path.is_relative_to(os.path.realpath(data_dir)):
        raise InvalidArgumentError(
            "the output cannot be inside the data folder, because this command must not change that folder", path=target
        )
    yield from _new_file(path, target, mode)


def print_lines(lines: Iterable[str]) -> None:
    """Write lines of text to standard output. They are buffered, unless that is a terminal."""
    if sys.stdout is None:
        raise StorageError("standard output is closed")
    for line in lines:
        try:
            sys.stdout.write(f"{line}\n")
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _refused(error, "standard output") from error


def _standard_output(format_name: str, binary: bool) -> Iterator[BinaryIO]:
    if sys.stdout is None:
        raise StorageError("standard output is closed")
    if binary and stdout_is_terminal():
        raise click.UsageError(f"{format_name} is binary and standard output is a terminal: add --output FILE, or '> FILE'.")
    out = sys.stdout.buffer
    yield from _through(_Sink(out.write, out.flush, "standard output"))


def _new_file(path: Path, name: str, mode: int | None) -> Iterator[BinaryIO]:
    # A unique name, of a length that every file system accepts.
    temporary = path.with_name(f".tidelog-{os.getpid()}-{os.urandom(4).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = _or_refused(name, lambda: os.open(temporary, flags, 0o666))
    try:
        if mode is not None:
            # The new file keeps the permissions of the replaced one.
            _or_refused(name, lambda: os.fchmod(descriptor, stat.S_IMODE(mode)))
        yield from _buffered(descriptor, name, sync=True)
        _or_refused(name, lambda: temporary.replace(path))
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, KeyboardInterrupt):
            notices.note(f"{name} was not written" if mode is None else f"{name} is unchanged")
        raise


def _buffered(descriptor: int, name: str, *, sync: bool = False) -> Iterator[BinaryIO]:
    try:
        yield from _through(_Sink(lambda data: os.write(descriptor, data), None, name))
        if sync:
            _or_refused(name, lambda: os.fsync(descriptor))
    finally:
        os.close(descriptor)


def _through(sink: _Sink) -> Iterator[BinaryIO]:
    stream = io.BufferedWriter(sink, BUFFER_BYTES)
    try:
        yield cast("BinaryIO", stream)
        stream.flush()
        sink.push()
    finally:
        # The error was already reported: the rest of the buffer must not cause a second one.
        sink.give_up = True
        stream.close()


class _Sink(io.RawIOBase):
    """The raw stream of an output: passes bytes to a function, and turns system errors into a StorageError."""

    def __init__(self, write: Callable[[Any], int], flush: Callable[[], None] | None, name: str) -> None:
        self._write = write
        self._push = flush
        self._name = name
        self.give_up = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if self.give_up:
            return len(data)
        return _or_refused(self._name, lambda: self._write(data))

    def push(self) -> None:
        """Flush the destination, if it needs flushing. Raises StorageError, BrokenPipeError."""
        if self._push is not None:
            _or_refused(self._name, self._push)


def _or_refused(name: str, action: Callable[[], Result]) -> Result:
    try:
        return action()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _refused(error, name) from error


def _refused(error: OSError, name: str) -> StorageError:
    return StorageError(f"cannot write: {error.strerror or error}", path=name)
