"""The folder or bucket of a backup. Each object is written as a whole, and never changed.

An object is only ever overwritten with the same bytes, because the names of data and manifests contain checksums.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from tidelog.backup.manifest import StoredFile
from tidelog.errors import InvalidArgumentError, NotFoundError, StorageError
from tidelog.folder_path import folder_path
from tidelog.formats.checkpoints import replace_file, sync_file
from tidelog.formats.files import read_whole
from tidelog.formats.paths.file_path import FilePath
from tidelog.formats.paths.local_handle import open_handle
from tidelog.objects.address import ObjectAddress, is_in_storage, is_object_address, options_of, parse
from tidelog.objects.listing import ObjectFacts
from tidelog.objects.object_path import ObjectPath, ObjectSource
from tidelog.objects.object_store import ObstoreStore
from tidelog.ordered_map import ordered_map

_TEMPORARY = ".tmp"
_READ_BYTES = 1024 * 1024
"""The number of bytes that are hashed at a time, while they are in the processor's cache."""
_SYNCED = 8
"""The number of files that are synced at the same time."""


class Target(ABC):
    """The place of one backup's objects. `address` is the text with which another process can open the same backup."""

    address: str

    def __str__(self) -> str:
        return str(self.address)

    @abstractmethod
    def get(self, key: str) -> bytes:
        """Return an object's bytes. Raises NotFoundError, StorageError."""

    def facts(self, key: str) -> StoredFile:
        """Read an object, and return its size and checksum. Raises NotFoundError, StorageError."""
        return StoredFile.of(self.get(key))

    @abstractmethod
    def put(self, key: str, data: bytes | bytearray | memoryview) -> None:
        """Write an object atomically. Once this returns, the object survives a crash. Raises StorageError."""

    def put_soon(self, key: str, data: bytes | bytearray | memoryview) -> None:
        """Write an object that need not survive a crash before `flush` returns: only objects put after `flush` may depend on it.
        Callable on any thread. Raises StorageError.
        """
        self.put(key, data)

    @abstractmethod
    def flush(self) -> None:
        """Return once all objects from `put_soon` survive a crash of the machine. Raises StorageError."""

    @abstractmethod
    def list(self, prefix: str = "", after: str = "", *, unfinished: bool = False) -> Iterator[tuple[str, ObjectFacts]]:
        """Yield the keys and sizes of the objects below a folder, ordered by key, starting after `after`.

        With `unfinished`, include objects that are being written, or were being written when a process was killed.
        """

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects. Missing objects are ignored. Raises StorageError."""

    @abstractmethod
    def file(self, key: str, size_bytes: int) -> FilePath:
        """Return the path of an object whose size is known. This needs no request."""


class FolderTarget(Target):
    """A backup in a local folder, which is created with the first object."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.address = os.fspath(self.root)
        self._unsynced: list[Path] = []

    def get(self, key: str) -> bytes:
        with self._reading(key):
            return read_whole(self.root / key)

    def facts(self, key: str) -> StoredFile:
        memory = memoryview(bytearray(_READ_BYTES))
        size_bytes, sha256 = 0, hashlib.sha256()
        with self._reading(key), closing(open_handle(self.root / key)) as handle:
            while count := handle.read_into(size_bytes, memory):
                sha256.update(memory[:count])
                size_bytes += count
        return StoredFile(size_bytes, sha256.hexdigest())

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError("an object is missing", path=self.root / key) from None
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"cannot read an object: {error.strerror}", path=self.root / key) from error

    def put(self, key: str, data: bytes | bytearray | memoryview) -> None:
        self.put_soon(key, data)
        self.flush()

    def put_soon(self, key: str, data: bytes | bytearray | memoryview) -> None:
        path = self.root / key
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot create a folder: {error.strerror}", path=path.parent) from error
        # Two backups may write the same object at the same time, until one of them is refused.
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{_TEMPORARY}")
        replace_file(path, data, syncs=False, temporary=temporary)
        self._unsynced.append(path)

    def flush(self) -> None:
        # A point has some files for each partition. A disk syncs many files together in a fraction of the time.
        files, self._unsynced = self._unsynced, []
        folders = {folder for path in files for folder in path.parents if folder.is_relative_to(self.root)}
        try:
            for some in (files, folders):
                for _ in ordered_map(sync_file, some, min(_SYNCED, len(some))):
                    pass
        except OSError as error:
            raise StorageError(f"cannot write to the disk: {error.strerror}", path=self.root) from error

    def list(self, prefix: str = "", after: str = "", *, unfinished: bool = False) -> Iterator[tuple[str, ObjectFacts]]:
        top = self.root / prefix if prefix else self.root
        try:
            for folder, folders, files in os.walk(top, onerror=_refuse):
                folders.sort()
                base = Path(folder).relative_to(self.root).as_posix()
                keys = (name if base == "." else f"{base}/{name}" for name in files)
                for key in sorted(key for key in keys if key > after and (unfinished or not key.endswith(_TEMPORARY))):
                    with contextlib.suppress(FileNotFoundError):
                        found = (self.root / key).stat()
                        yield key, ObjectFacts(found.st_size, found.st_mtime_ns, "")
        except FileNotFoundError:
            return

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self.root / key
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise StorageError(f"cannot remove an object: {error.strerror}", path=path) from error
            with contextlib.suppress(OSError):  # The folder is not empty, or a different backup has just removed it.
                path.parent.rmdir()

    def file(self, key: str, size_bytes: int) -> FilePath:
        return self.root / key


class BucketTarget(Target):
    """A backup in a bucket."""

    def __init__(self, address: str) -> None:
        place = parse(address)
        if place.service == "hdfs":
            raise InvalidArgumentError(
                "a backup cannot be stored in HDFS", found=address, expected="a folder, s3://, gs:// or abfs://"
            )
        self.address = ObjectAddress(str(address), options_of(address))
        self._source = ObjectSource(place, options_of(address))
        self._prefix = f"{place.prefix}/" if place.prefix else ""

    @property
    def _store(self) -> ObstoreStore:
        store = self._source.store
        assert isinstance(store, ObstoreStore)
        return store

    def get(self, key: str) -> bytes:
        return self._store.get(self._prefix + key)

    def put(self, key: str, data: bytes | bytearray | memoryview) -> None:
        self._store.put(self._prefix + key, data)

    def flush(self) -> None:
        pass  # An object is in the bucket as soon as the write has been confirmed.

    def list(self, prefix: str = "", after: str = "", *, unfinished: bool = False) -> Iterator[tuple[str, ObjectFacts]]:
        below = (self._prefix + prefix).rstrip("/")
        for key, facts in self._store.list(below, self._prefix + after if after else None):
            yield key.removeprefix(self._prefix), facts

    def delete(self, keys: Iterable[str]) -> None:
        self._store.delete([self._prefix + key for key in keys])

    def file(self, key: str, size_bytes: int) -> FilePath:
        # Only a listing would return the tag. Without the tag the size is checked, and the batches have checksums of their own.
        return ObjectPath(self._source, self._prefix + key, ObjectFacts(size_bytes, 0, ""))


def open_target(address: str | os.PathLike[str]) -> Target:
    """Return the target at an address, which need not exist. Raises InvalidArgumentError for an invalid address, or several
    addresses.
    """
    if is_object_address(address):
        return BucketTarget(str(address) if not isinstance(address, ObjectAddress) else address)
    if is_in_storage(address):
        raise InvalidArgumentError(
            "a backup must have a single address", found=str(address), expected="a folder, or s3://bucket/prefix"
        )
    return FolderTarget(folder_path(address, "a folder, or s3://bucket/prefix"))


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise StorageError(f"cannot list a folder: {error.strerror}", path=error.filename) from error
