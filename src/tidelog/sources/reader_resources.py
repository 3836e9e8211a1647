"""Resources that a reader keeps from one split to the next: buffers, connections, and files that were opened early."""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping
from types import TracebackType
from typing import Protocol, TypeVar, cast

from tidelog.records.batch import BatchHeader
from tidelog.sources.chunks import Chunks


class Closable(Protocol):
    """A resource that can be kept."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)

LocatedBatch = tuple[BatchHeader, memoryview, int]
"""A batch's header, a buffer that contains it whole, and its start in the buffer."""

BATCH_ROWS = 16_384
"""The default number of rows of an Arrow batch. A batch of this size fits the processor's cache while it is being made."""


class ReaderResources:
    """Shared resources for reading splits: buffers and connections. Not thread-safe.

    `connections` are kept by key. A caller that reads repeatedly may pass the same `connections` to many readings, and then
    closes them itself. Otherwise they are closed with the reading.
    """

    def __init__(self, connections: MutableMapping[Hashable, Closable] | None = None) -> None:
        self.chunks = Chunks()
        self._connections = {} if connections is None else connections
        self._owns_connections = connections is None
        self._pinned: dict[Hashable, Closable] = {}

    def __enter__(self) -> ReaderResources:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def connection(self, key: Hashable, connect: Callable[[], C]) -> C:
        """Return the connection with a key. If there is none yet, `connect` opens it."""
        if key not in self._connections:
            self._connections[key] = connect()
        return cast("C", self._connections[key])

    def pin(self, key: Hashable, file: Closable) -> None:
        """Keep an open file until a caller takes it with `pinned`."""
        self._pinned[key] = file

    def pinned(self, key: Hashable, kind: type[C]) -> C | None:
        """Return the pinned file with a key, or None if there is none. The caller closes the file."""
        file = self._pinned.pop(key, None)
        assert file is None or isinstance(file, kind)
        return file

    def unpin(self) -> None:
        """Close the files that no caller has taken."""
        while self._pinned:
            self._pinned.popitem()[1].close()

    def close(self) -> None:
        """Close the pinned files, and the connections unless the caller passed them in. Idempotent."""
        self.unpin()
        if self._owns_connections:
            while self._connections:
                self._connections.popitem()[1].close()
