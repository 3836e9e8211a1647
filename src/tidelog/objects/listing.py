"""The objects below an address, by folder, as of one listing.

| listed | when |
|---|---|
| everything below the address, page by page | a data folder is opened or refreshed |
| one folder | a process, such as a Spark executor, gets a single path |

Memory use is about 100 bytes per object: a folder's names are one text, which becomes a dictionary only while the folder is used.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple, Protocol

_OPEN_FOLDERS = 64
"""The maximum number of folders whose dictionaries are kept."""


class ObjectFacts(NamedTuple):
    """The facts about an object in a listing."""

    size_bytes: int
    modified_ns: int
    tag: str
    """The ETag without quotes; empty if the store has none."""


class ObjectStore(Protocol):
    """The interface of a client for one bucket. Keys have no slash at either end. Thread-safe."""

    def list(self, prefix: str) -> Iterable[tuple[str, ObjectFacts]]:
        """Yield the key and the facts of each object below a folder, at any depth. Raises StorageError, AuthenticationError."""

    def read(self, key: str, facts: ObjectFacts, start: int, end: int) -> memoryview:
        """Return all bytes in [start, end) of the object, which must still be the one that was listed.

        Raises SegmentChangedError if the object was deleted or overwritten, StorageError, AuthenticationError.
        """


class _Folder:
    """A folder's objects, and the names of its subfolders."""

    __slots__ = ("folders", "modified", "names", "sizes", "tags")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.tags: list[str] = []
        self.sizes = array("q")
        self.modified = array("q")
        self.folders: dict[str, None] = {}

    def pack(self) -> None:
        """Join the collected texts into one. More texts may follow."""
        self.names, self.tags = ["\n".join(self.names)] if self.names else [], ["\n".join(self.tags)] if self.tags else []

    def objects(self) -> dict[str, ObjectFacts]:
        names = "\n".join(self.names).split("\n") if self.names else []
        tags = "\n".join(self.tags).split("\n") if self.tags else []
        return {
            name: ObjectFacts(size, modified, tag)
            for name, size, modified, tag in zip(names, self.sizes, self.modified, tags, strict=True)
        }


class Listing:
    """The objects below the key `root`; `""` means the whole bucket."""

    def __init__(self, store: ObjectStore, root: str) -> None:
        self._folders: dict[str, _Folder] = {}
        self._opened: OrderedDict[str, dict[str, ObjectFacts]] = OrderedDict()
        packed: _Folder | None = None
        for key, facts in store.list(root):
            parent, _, name = key.rpartition("/")
            folder = self._folder(parent, root)
            if packed is not folder:
                if packed is not None:
                    packed.pack()
                packed = folder
            folder.names.append(name)
            folder.tags.append(facts.tag)
            folder.sizes.append(facts.size_bytes)
            folder.modified.append(facts.modified_ns)
        if packed is not None:
            packed.pack()

    def _folder(self, key: str, root: str) -> _Folder:
        folder = self._folders.get(key)
        if folder is None:
            folder = self._folders[key] = _Folder()
            if key != root:
                parent, _, name = key.rpartition("/")
                self._folder(parent, root).folders[name] = None
        return folder

    def is_folder(self, key: str) -> bool:
        """Return whether there are objects below a key."""
        return key in self._folders

    def names(self, key: str) -> list[str]:
        """Return the names of the objects and subfolders in a folder. Raises KeyError if there is no such folder."""
        folder = self._folders[key]
        return [*(name for name in self.objects(key) if name not in folder.folders), *folder.folders]

    def log_sizes(self) -> dict[str, int]:
        """Return the sizes of all logs in bytes, by key."""
        return {
            f"{key}/{name}": size
            for key, folder in self._folders.items()
            for name, size in zip("\n".join(folder.names).split("\n"), folder.sizes, strict=False)
            if name.endswith(".log")
        }

    def objects(self, key: str) -> dict[str, ObjectFacts]:
        """Return a folder's objects by name. The result is empty if there is no such folder."""
        opened = self._opened.get(key)
        if opened is None:
            folder = self._folders.get(key)
            opened = self._opened[key] = {} if folder is None else folder.objects()
            if len(self._opened) > _OPEN_FOLDERS:
                self._opened.popitem(last=False)
        return opened
