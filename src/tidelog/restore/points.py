"""The points of a backup that are being read, each opened once: for a bucket, opening one is some requests."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from tidelog.sources.opening import open_source
from tidelog.sources.source import Source


class Points:
    """Opens points when they are needed, and closes all at the end."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self._sources: dict[str, Source] = {}

    def __enter__(self) -> Points:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._opened.close()

    def at(self, address: str) -> Source:
        """Return the point at an address. Raises what opening it raises."""
        if address not in self._sources:
            self._sources[address] = self._opened.enter_context(open_source(address))
        return self._sources[address]
