"""Opens each point of a backup once, because opening one in a bucket needs several requests."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from tidelog.sources.opening import open_source
from tidelog.sources.source import Source


class Points:
    """Opens a backup's points on demand, and closes all of them when the context ends."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self._sources: dict[str, Source] = {}

    def __enter__(self) -> Points:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._opened.close()

    def at(self, address: str) -> Source:
        """Return the point at an address. Raises the errors of `open_source`."""
        if address not in self._sources:
            self._sources[address] = self._opened.enter_context(open_source(address))
        return self._sources[address]
