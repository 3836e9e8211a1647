"""Searches within compressed batches, for a thread that serves many clients: some kilobytes may unpack to a hundred megabytes.

Within `non_blocking` a batch is unpacked up to `AT_ONCE_BYTES`: to hand it over would cost more. Of a larger one
`NotSearchedError` is raised, whose `prefetch` searches on another thread; who comes by again gets what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

from tidelog.errors import DecompressedTooLargeError, TidelogError
from tidelog.formats.non_blocking_read import NotCachedError, is_non_blocking
from tidelog.records.compression import DEFAULT_DECOMPRESSION_LIMIT_BYTES

AT_ONCE_BYTES = 1 << 20
KEPT = 64
"""So many results wait for those who asked. They come by for all that their search needs from the start again and again."""

Found: TypeAlias = "tuple[int, int] | None"
"""A record's offset and timestamp, or the other way round; None without one."""

Search: TypeAlias = Callable[[int], Found]
"""Searches a batch; unpacks so many bytes at most."""


class NotSearchedError(NotCachedError):
    """A batch is to be searched on another thread."""

    def __init__(self, results: dict[Hashable, Found | TidelogError], key: Hashable, search: Search) -> None:
        Exception.__init__(self, "not searched")
        self._results = results
        self._key = key
        self._search = search

    def prefetch(self) -> None:
        """Search, and keep what was found, or what is wrong with the batch."""
        result: Found | TidelogError
        try:
            result = self._search(DEFAULT_DECOMPRESSION_LIMIT_BYTES)
        except TidelogError as error:
            result = error
        self._results[self._key] = result


class SearchedBatches:
    """The batches of one segment that were searched on another thread, until those who asked come by again."""

    def __init__(self) -> None:
        self._results: dict[Hashable, Found | TidelogError] = {}

    def find(self, key: Hashable, search: Search) -> Found:
        """Return what `search` returns; `key` is what it depends on. Raises what it raises, NotSearchedError."""
        if not is_non_blocking():
            return search(DEFAULT_DECOMPRESSION_LIMIT_BYTES)
        if key in self._results:
            result = self._results[key]
            if isinstance(result, TidelogError):
                raise result
            return result
        while len(self._results) >= KEPT:
            oldest, *_ = list(self._results)  # Other threads may add to them meanwhile.
            self._results.pop(oldest, None)
        try:
            return search(AT_ONCE_BYTES)
        except DecompressedTooLargeError:
            raise NotSearchedError(self._results, key, search) from None
