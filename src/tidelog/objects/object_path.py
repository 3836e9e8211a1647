"""Paths of objects. For readers they are what `pathlib.Path` is for files (`formats/paths/file_path.py`).

Existence, size and time of an object come from the listing, so they cost no request. All paths of a source share the source's
listing, client and configuration.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidelog.formats.paths.file_path import FilePath
from tidelog.formats.paths.named_path import NamedPath
from tidelog.objects.address import ObjectAddress, Place, options_of, parse
from tidelog.objects.listing import Listing, ObjectFacts, ObjectStore

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tidelog.objects.disk_cache import DiskCache
    from tidelog.objects.object_file import ObjectFile

MOST_PREFETCHED_BYTES = 32 * 1024 * 1024
"""The most bytes that are prefetched and not yet read."""

_DEVICE = 1 << 40
"""The device number of all objects. No disk has this number."""


class ObjectSource:
    """A bucket, with a listing of the objects below `root`."""

    def __init__(self, place: Place, options: Mapping[str, str], store: ObjectStore | None = None) -> None:
        # Import on use, like everything that only objects need, because readers of local folders load this module too.
        from tidelog.objects.read_ahead import Window

        self.place = place
        self.options = dict(options)
        self.root: str | None = None
        """The folder below which everything is listed. None: folders are listed one by one."""
        self.window = Window()
        self.small: dict[str, memoryview] = {}
        """Small objects that have been read, by address, facts and position."""
        self._store = store
        self._listings: dict[str, Listing] = {}
        self._waiting: dict[str, tuple[Future[memoryview] | None, int]] = {}
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        """Protects the prefetched parts, because several segments may be examined in parallel."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the listing: a process that gets a path rarely needs more than that object."""
        return (ObjectSource, (self.place, self.options))

    def __str__(self) -> str:
        return f"{self.place.scheme}://{self.place.bucket}"

    @property
    def store(self) -> ObjectStore:
        """The client for the bucket."""
        if self._store is None:
            from tidelog.objects.stores import open_store

            self._store = open_store(self.place, tuple(sorted(self.options.items())))
        return self._store

    @cached_property
    def cache(self) -> DiskCache:
        """The disk cache for parts of objects."""
        from tidelog.objects.disk_cache import open_cache

        return open_cache(self.options)

    def prefetch(self, key: str, fetch: Callable[[], memoryview], size_bytes: int) -> None:
        """Begin to fetch a part of an object, unless too many prefetched bytes are still unread."""
        from tidelog.objects.read_ahead import executor

        with self._lock:
            if key not in self._waiting and self._waiting_bytes + size_bytes <= MOST_PREFETCHED_BYTES:
                self._waiting[key] = executor().submit(fetch), size_bytes
                self._waiting_bytes += size_bytes

    def fetched(self, key: str) -> Future[memoryview] | None:
        """Take a prefetched part. Return None if the part was not prefetched."""
        with self._lock:
            future, size_bytes = self._waiting.pop(key, (None, 0))
            self._waiting_bytes -= size_bytes
        return future

    def listing(self, folder: str) -> Listing:
        """Return a listing that includes a folder."""
        root = folder if self.root is None or not _is_below(folder, self.root) else self.root
        found = self._listings.get(root)
        if found is None:
            found = self._listings[root] = Listing(self.store, root)
        return found

    def forget(self) -> None:
        """Drop the listing, so that the next look-up lists again."""
        self._listings = {}
        self._waiting, self._waiting_bytes = {}, 0


class ObjectPath(NamedPath):
    """The path of an object, or of a folder, which is a prefix of objects' keys. `facts` are the object's facts if they are known
    already.
    """

    __slots__ = ("_facts", "key", "source")

    def __init__(self, source: ObjectSource, key: str, facts: ObjectFacts | None = None) -> None:
        self.source = source
        self.key = key
        self._facts = facts

    def __reduce__(self) -> tuple[Any, ...]:
        return (ObjectPath, (self.source, self.key, self._facts if self._facts is not None else self._listed()))

    def __str__(self) -> str:
        return str(self.source.place._replace(prefix=self.key))

    @property
    def address(self) -> str:
        """The path as an address, which carries the options."""
        return ObjectAddress(str(self), self.source.options)

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.source, self.key.rpartition("/")[0])

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.source, f"{self.key}/{name}" if self.key else name)

    def with_name(self, name: str) -> ObjectPath:
        return self.parent / name

    def at(self, text: str) -> ObjectPath:
        return ObjectPath(self.source, text.removeprefix(str(self.source.place._replace(prefix=""))).strip("/"))

    def iterdir(self) -> Iterator[ObjectPath]:
        listing = self.source.listing(self.key)
        if not listing.is_folder(self.key):
            raise self._missing(errno.ENOTDIR if self._listed() else errno.ENOENT)
        objects = listing.objects(self.key)
        start = f"{self.key}/" if self.key else ""
        return (ObjectPath(self.source, start + name, objects.get(name)) for name in listing.names(self.key))

    def stat(self) -> os.stat_result:
        facts = self.facts()
        if facts is None:
            if not self.is_dir():
                raise self._missing(errno.ENOENT)
            return _stat(stat.S_IFDIR, 0, ObjectFacts(0, 0, ""))
        return _stat(stat.S_IFREG, self.identity(facts), facts)

    def facts(self) -> ObjectFacts | None:
        """Return the object's facts from the listing; None if there is no such object."""
        if self._facts is None:
            self._facts = self._listed()
        return self._facts

    def identity(self, facts: ObjectFacts) -> int:
        """Return a number that identifies the object's key and content: any other key or content has a different number."""
        from hashlib import blake2b

        digest = blake2b(f"{self}\n{facts}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def is_dir(self) -> bool:
        return self.source.listing(self.key).is_folder(self.key)

    def is_file(self) -> bool:
        return self.facts() is not None

    def open_handle(self) -> ObjectFile:
        from tidelog.objects.object_file import ObjectFile

        facts = self.facts()
        if facts is None:
            raise self._missing(errno.EISDIR if self.is_dir() else errno.ENOENT)
        return ObjectFile(self.source, self.key, facts, _stat(stat.S_IFREG, self.identity(facts), facts))

    def refresh(self) -> None:
        """List the bucket again at the next look-up."""
        self.source.forget()

    def _listed(self) -> ObjectFacts | None:
        folder, _, name = self.key.rpartition("/")
        return self.source.listing(folder).objects(folder).get(name)

    def _missing(self, number: int) -> OSError:
        return OSError(number, os.strerror(number), str(self))


def object_folder(address: str | os.PathLike[str], store: ObjectStore | None = None) -> ObjectPath:
    """Return the path of a data folder in object storage. Everything below it is listed at the first look-up.

    Raises InvalidArgumentError for a malformed address.
    """
    place = parse(address)
    source = ObjectSource(place, options_of(address), store)
    source.root = place.prefix
    return ObjectPath(source, place.prefix)


def prefetch(paths: Iterable[FilePath]) -> None:
    """Begin to fetch the parts of these files that a search will need. Local files are ignored."""
    for path in paths:
        if isinstance(path, ObjectPath) and path.is_file():
            path.open_handle().prefetch()


def _is_below(key: str, root: str) -> bool:
    return not root or key == root or key.startswith(f"{root}/")


def _stat(mode: int, inode: int, facts: ObjectFacts) -> os.stat_result:
    seconds = facts.modified_ns // 1_000_000_000
    values = (mode | 0o444, inode, _DEVICE, 1, 0, 0, facts.size_bytes, seconds, seconds, seconds)
    times = {f"st_{name}_ns": facts.modified_ns for name in ("atime", "mtime", "ctime")}
    return os.stat_result(values, times)
