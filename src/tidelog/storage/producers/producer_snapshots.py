"""The ``.snapshot`` files of one partition (spec §9.1; format: `formats.producer_snapshot`).

The folder is listed when a snapshot is first needed. The caller removes damaged files. Files that another process has removed
count as missing. Each `ProducerStateManager` has a `ProducerSnapshots`.
"""

from __future__ import annotations

import bisect
import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tidelog.errors import CorruptSnapshotError, InvalidArgumentError, StorageError
from tidelog.formats import names
from tidelog.formats.files import read_whole
from tidelog.formats.producer_snapshot import ProducerEntry, join_snapshot, parse_snapshot


class ProducerSnapshots:
    """Snapshots of the producer state, by offset. Each has the state of all records below its offset."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offsets: list[int] | None = None

    @property
    def directory(self) -> Path:
        """The partition's folder."""
        return self._directory

    @property
    def offsets(self) -> list[int]:
        """The offsets of the snapshots, ascending. Raises StorageError."""
        if self._offsets is None:
            self._offsets = _list_offsets(self._directory)
        return self._offsets

    @property
    def latest(self) -> int | None:
        """The offset of the newest snapshot; None without snapshots."""
        return self.offsets[-1] if self.offsets else None

    @property
    def oldest(self) -> int | None:
        """The offset of the oldest snapshot; None without snapshots."""
        return self.offsets[0] if self.offsets else None

    def path(self, offset: int) -> Path:
        """Return the path of the snapshot at `offset`, whether it exists or not."""
        return self._directory / names.file_name(offset, names.SNAPSHOT_SUFFIX)

    def reload(self, found: Iterable[str] | None = None) -> None:
        """Drop the list of files, because others may have added or removed some. `found` are the files' names, if they were just
        listed.
        """
        self._offsets = None if found is None else _offsets_of(name for name in found if name.endswith(names.SNAPSHOT_SUFFIX))

    def update_parent_dir(self, directory: Path) -> None:
        """Update the paths after the folder has been renamed."""
        self._directory = directory

    def write(self, offset: int, packed: Sequence[bytes], *, sync: bool) -> Path:
        """Write the snapshot at `offset` and return its path; `packed` are the entries' bytes.

        If it raises StorageError, no file is left. The file is written under its final name: if a crash leaves a torn file, its
        checksum is wrong, and the previous snapshot is used.
        """
        offsets = self.offsets
        path = self.path(offset)
        try:
            with path.open("wb") as file:
                file.write(join_snapshot(packed))
                file.flush()
                if sync:
                    os.fsync(file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            raise StorageError(f"cannot write a snapshot: {error.strerror}", path=path) from error
        index = bisect.bisect_left(offsets, offset)
        if index == len(offsets) or offsets[index] != offset:
            offsets.insert(index, offset)
        return path

    def read(self, offset: int) -> list[ProducerEntry]:
        """Return the entries of a snapshot. Raises CorruptSnapshotError, also if the file is missing; StorageError."""
        path = self.path(offset)
        try:
            return parse_snapshot(read_whole(path), path)
        except FileNotFoundError:
            raise CorruptSnapshotError("the producer snapshot no longer exists", path=path) from None
        except OSError as error:
            raise StorageError(f"cannot read a snapshot: {error.strerror}", path=path) from error

    def delete(self, offset: int) -> None:
        """Remove a snapshot, if it exists. Raises StorageError."""
        self._forget(offset)
        path = self.path(offset)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"cannot delete a snapshot: {error.strerror}", path=path) from error

    def mark_for_deletion(self, offset: int) -> Path | None:
        """Rename a snapshot to ``….deleted`` and return that path; None if it does not exist. Raises StorageError.

        The caller removes the file later.
        """
        if not self._forget(offset):
            return None
        path = self.path(offset)
        renamed = Path(f"{path}{names.DELETED_SUFFIX}")
        try:
            path.replace(renamed)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot rename a snapshot: {error.strerror}", path=path) from error
        return renamed

    def _forget(self, offset: int) -> bool:
        offsets = self.offsets
        index = bisect.bisect_left(offsets, offset)
        if index == len(offsets) or offsets[index] != offset:
            return False
        del offsets[index]
        return True


def _list_offsets(directory: Path) -> list[int]:
    try:
        with os.scandir(directory) as entries:
            return _offsets_of(entry.name for entry in entries if entry.name.endswith(names.SNAPSHOT_SUFFIX) and entry.is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"cannot list snapshots: {error.strerror}", path=directory) from error


def _offsets_of(file_names: Iterable[str]) -> list[int]:
    offsets = []
    for name in file_names:
        try:
            offsets.append(names.offset_from_file_name(name))
        except InvalidArgumentError:
            continue
    return sorted(offsets)
