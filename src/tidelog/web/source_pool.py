"""The sources of the page. A source is for one thread at a time, so each has a few open instances, which requests borrow.

A borrowed source shows the log's current state. After an error it is closed. So the next request opens another one, and finds a
broker that is back, or a folder that exists again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidelog.errors import NotFoundError
from tidelog.sources.chunks import Chunks
from tidelog.sources.files.cached_log_dir import CachedLogDir
from tidelog.sources.opening import kind_of, open_source
from tidelog.sources.source import Source

KEPT = 2
"""How many idle instances are kept open; each knows what it has read about the log."""


KEPT_LOGS = 5000
"""How many open partitions an idle instance keeps."""


class SourcePool:
    """One source, and its open instances."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.kind = kind_of(address)
        self._idle: list[Source] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @contextmanager
    def borrowed(self) -> Iterator[Source]:
        """An open source for the block. Raises what opening it raises."""
        with self._lock:
            source = self._idle.pop() if self._idle else None
        if source is None:
            source = open_source(self.address)
        try:
            source.refresh()
            yield source
            source.reading.chunks = Chunks()  # What was read is not needed again; an idle server is small.
            if isinstance(source.log_dir, CachedLogDir):
                source.log_dir.release(KEPT_LOGS)
        except BaseException:
            source.close()
            raise
        with self._lock:
            if len(self._idle) < KEPT and not self._is_closed:
                self._idle.append(source)
                return
        source.close()

    def close(self) -> None:
        """Close the idle instances; others are closed when they are returned."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for source in idle:
            source.close()


class SourcePools:
    """All sources of a server, by name: `0` is the first."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.pools = [SourcePool(str(number), address) for number, address in enumerate(addresses)]

    def named(self, name: str | None) -> SourcePool:
        """Return a source; the first if no name is given. Raises NotFoundError."""
        for pool in self.pools:
            if name in (None, pool.name):
                return pool
        raise NotFoundError("there is no such source", found=repr(name), expected=" or ".join(pool.name for pool in self.pools))

    def close(self) -> None:
        """Close all sources."""
        for pool in self.pools:
            pool.close()
