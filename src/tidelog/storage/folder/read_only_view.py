"""Serves a data folder without changing it: a temporary folder with the same content receives all writes.

| in the folder | in the view |
|---|---|
| ``.log``, ``.index``, ``.timeindex``, with any suffix after it | a symbolic link: `LogSegment` never writes through one |
| the last ``.log`` of a coordinator's partition | a copy: changes of groups are appended to it |
| all other files of a partition: epochs, snapshots, ids, ``.txnindex`` | a copy |
| the metadata log, checkpoints, ``meta.properties``, the clean-shutdown file | a copy |
| time maps, ``.lock``, partitions that were being removed | left out |

Recovery truncates, rebuilds and renames in the view only. A linked ``.log`` is not truncated, but the view does not read past its
new end. The view needs only read permission for the folder, and takes no lock. Another process may continue to write to the
folder: the view shows the state at the time when the view was created.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tidelog.config import PropertyValue
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.formats import names
from tidelog.model import METADATA_TOPIC
from tidelog.reader.metadata_log import QUORUM_STATE

LINKED_SUFFIXES = (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)

NEVER_MS = 2**62

PROPERTIES: dict[str, PropertyValue] = {
    "log.cleaner.enable": False,
    "tidelog.time.map.enable": False,
    "log.initial.task.delay.ms": NEVER_MS,
    "log.retention.check.interval.ms": NEVER_MS,
}
"""Properties with which a log manager does not delete, compact or map."""

_LEFT_OUT = (".lock", names.DELETED_SUFFIX, ".timemap")


class ReadOnlyView:
    """A context manager. On entry it creates a view of `directory` at `path`, and returns it; on exit it removes the view."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).absolute()
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @property
    def path(self) -> Path:
        """The path of the view."""
        assert self._temporary is not None
        return Path(self._temporary.name) / self.directory.name

    def __enter__(self) -> Self:
        """Create the view, and return this object. Raises InvalidArgumentError if there is no folder, StorageError if it cannot
        be read.
        """
        if not self.directory.is_dir():
            raise InvalidArgumentError("there is no folder to serve", path=self.directory)
        self._temporary = tempfile.TemporaryDirectory(prefix="tidelog-read-only-")
        try:
            _copy_folder(self.directory, self.path)
        except OSError as error:
            self._temporary.cleanup()
            raise StorageError(f"cannot read the data folder: {error}", path=self.directory) from error
        except BaseException:
            self._temporary.cleanup()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._temporary is not None
        self._temporary.cleanup()


def _copy_folder(source: Path, target: Path) -> None:
    target.mkdir()
    with os.scandir(source) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.name.endswith(_LEFT_OUT):
                continue
            if not entry.is_dir():
                if entry.is_file():
                    _copy(entry.path, target / entry.name)
            elif entry.name.endswith(names.DELETE_DIR_SUFFIX):
                continue
            elif entry.name == f"{METADATA_TOPIC}-0":
                _copy_metadata(Path(entry.path), target / entry.name)
            else:
                _copy_partition(Path(entry.path), target / entry.name)


def _copy_metadata(source: Path, target: Path) -> None:
    """Copy the metadata log without the quorum's state: the view must not look like a quorum member."""
    target.mkdir()  # Without the folder's mode, which may forbid writing.
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_file() and entry.name != QUORUM_STATE:
                _copy(entry.path, target / entry.name)


def _copy_partition(source: Path, target: Path) -> None:
    target.mkdir()
    with os.scandir(source) as entries:
        found = sorted(entry.name for entry in entries if entry.is_file() and not entry.name.endswith(_LEFT_OUT))
    logs = [name for name in found if name.endswith(names.LOG_SUFFIX)]
    written = logs[-1:] if source.name.startswith("__") else []
    for name in found:
        kind = Path(name).suffixes[:1]
        if kind and kind[0] in LINKED_SUFFIXES and name not in written:
            (target / name).symlink_to(source / name)
        else:
            _copy(source / name, target / name)


def _copy(source: str | Path, target: str | Path) -> None:
    """Copy a file's bytes and timestamps. The copy is writable even if the original is not."""
    shutil.copyfile(source, target)
    status = os.stat(source)  # noqa: PTH116
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
