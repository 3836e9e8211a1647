"""The sources of the page. A source is not thread-safe, so each source has a few open instances, which requests borrow.

A borrowed source shows the current state of the log. After an error it is closed, and the next request opens a new one. So the
page recovers when a broker is back or a folder exists again. Brokers have a few seconds for each call: a person waits for them.
After a failure to reach brokers, further requests fail at once for a moment, so that they do not wait one after the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidelog.errors import BrokerUnreachableError, NotFoundError
from tidelog.sources.chunks import Chunks
from tidelog.sources.opening import kind_of, open_source
from tidelog.sources.source import Source

KEPT = 2
"""How many idle instances are kept open. Each caches what it has read about the log."""


BROKERS_MS = 5_000
"""Milliseconds that brokers may take for a call, with retries. Kafka's clients take 30 to 60 s, which is right for programs."""

AWAY_S = 2.0
"""After brokers could not be reached, requests to them fail at once for this many seconds."""

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
        self._away: BrokerUnreachableError | None = None
        self.unreachable_until_s = 0.0
        """Requests to brokers that could not be reached fail at once until this monotonic time."""

    @contextmanager
    def borrowed(self) -> Iterator[Source]:
        """Lend an open source for the block. Raises the same errors as `open_source`."""
        with self._lock:
            if self._away is not None and time.monotonic() < self.unreachable_until_s:
                raise BrokerUnreachableError(self._away.message, path=self._away.path)
            source = self._idle.pop() if self._idle else None
        try:
            with self._lent(source or open_source(self.address, timeout_ms=BROKERS_MS)) as lent:
                yield lent
        except BrokerUnreachableError as error:
            self._away, self.unreachable_until_s = error, time.monotonic() + AWAY_S
            raise

    @contextmanager
    def _lent(self, source: Source) -> Iterator[Source]:
        try:
            source.refresh()
            yield source
            source.reading.chunks = Chunks()  # Free what was read, so that an idle server is small.
            if source.log_dir is not None:
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
        """Close the idle instances. Borrowed instances are closed when they are returned."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for source in idle:
            source.close()


class SourcePools:
    """All sources of a server. Their names are numbers from `0` on."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.pools = [SourcePool(str(number), address) for number, address in enumerate(addresses)]

    def named(self, name: str | None) -> SourcePool:
        """Return a source by name, the first one if the name is None. Raises NotFoundError."""
        for pool in self.pools:
            if name in (None, pool.name):
                return pool
        raise NotFoundError("unknown source", found=repr(name), expected=" or ".join(pool.name for pool in self.pools))

    def close(self) -> None:
        """Close all sources."""
        for pool in self.pools:
            pool.close()
